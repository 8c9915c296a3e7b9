// SPDX-License-Identifier: Apache-2.0
// What the allocator asks of coherence when memory is reused (rule 7).
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/blocking.h"

namespace kasane::gas {

class HeapHooks {
 public:
  virtual ~HeapHooks() = default;
  /// Makes whole pages that this rank owns, and whose bytes are undefined, present and writable.
  virtual void arm_owned(comm::Blocking&, std::uint64_t offset, std::size_t bytes) = 0;
  /// Does arming make no frames, so that memory which is armed and never touched costs nothing?
  [[nodiscard]] virtual bool arms_without_frames() const noexcept { return true; }
  /// Is there room for so much memory to be armed at once? Else its pages are counted as they are touched.
  [[nodiscard]] virtual bool fits(std::uint64_t /*bytes*/) noexcept { return true; }
  /// This rank takes memory into use that was last used elsewhere: what is cached of it here is dropped.
  virtual void take(comm::Blocking&, std::uint64_t offset, std::size_t bytes) = 0;
  /// Memory is freed here: this rank's unreleased changes to it are never sent, and what a copy here holds of
  /// it is what the owner has.
  virtual void discard(comm::Blocking&, std::uint64_t offset, std::size_t bytes) = 0;
};

}  // namespace kasane::gas
