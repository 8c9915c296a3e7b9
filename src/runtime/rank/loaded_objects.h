// SPDX-License-Identifier: Apache-2.0
// The code that this process has loaded, and where. A thread's stack holds return addresses and pointers to
// vtables and functions, so every rank must have the same objects at the same addresses (rule 14). Ranks
// forked from one image have, unless a constructor loaded an object.
// Thread safety: any thread; allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kasane::runtime {

struct LoadedObject {
  std::string name;      ///< path; the program itself is "the program"
  std::uint64_t digest;  ///< of its build id (or, without one, its program headers) and its base address
};

/// In the loader's order, with the vDSO, which the kernel places for each program.
std::vector<LoadedObject> loaded_objects();

/// A hash over all of them.
std::uint64_t digest(const std::vector<LoadedObject>& objects);

/// A hash of the canary and the pointer guard of this process, from which they cannot be computed. A stack
/// holds values that were made with them.
std::uint64_t guards_digest() noexcept;

}  // namespace kasane::runtime
