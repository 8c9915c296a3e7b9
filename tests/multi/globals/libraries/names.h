// SPDX-License-Identifier: Apache-2.0
// A C++ library. It and the library of ledgers need each other: ledgers are announced through a pointer that
// this one holds.
#pragma once

#include <cstddef>
#include <string>

namespace names {

/// Adds a name, under a lock. From any thread of any rank, in run().
void add(int key, std::string name);
/// The same where there is one thread: in constructors.
void add_alone(int key, std::string name);
std::size_t count();
const std::string& of(int key);
/// A function static with a destructor: made by the first thread that asks.
std::string& motto(const std::string& first);

/// What the library of ledgers registers in its constructor.
using Announce = void (*)(const std::string&);
extern Announce announce;

inline long of_inline_function(long by) {
  static long kept = 0;
  return kept += by;
}

}  // namespace names
