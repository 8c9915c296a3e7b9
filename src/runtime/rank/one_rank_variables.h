// SPDX-License-Identifier: Apache-2.0
// The program's variables in a job of one rank. They are no parts of V there: they stay private memory of
// the process, which never faults and which system calls reach. To the program they are global memory all the
// same, as they are with several ranks: the calls of the direct view, own, give, where and checkpoints accept
// them. Empty with several ranks, and where each rank has variables of its own.
// Thread safety: constant.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/engine/cursor.h"
#include "mem/space.h"

namespace kasane::runtime {

class OneRankVariables {
 public:
  explicit OneRankVariables(std::vector<mem::ViewPart> parts = {}) noexcept : parts_(std::move(parts)) {}

  /// Whether all of [p, p + bytes) is the program's variables.
  [[nodiscard]] bool contains(const void* p, std::uint64_t bytes = 1) const noexcept {
    for (const mem::ViewPart& w : parts_) {
      const std::uint64_t from = reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(w.at);
      if (from < w.bytes && bytes <= w.bytes - from) return true;
    }
    return false;
  }
  /// Whether a piece of the walk, relative to `global`, begins in a variable.
  [[nodiscard]] bool any_in(const void* global, comm::Cursor cursor) const noexcept {
    if (parts_.empty()) [[likely]]
      return false;
    for (; !cursor.done(); cursor.consume(cursor.piece().bytes)) {
      if (contains(static_cast<const std::byte*>(global) + cursor.piece().remote_offset)) return true;
    }
    return false;
  }

 private:
  std::vector<mem::ViewPart> parts_;
};

}  // namespace kasane::runtime
