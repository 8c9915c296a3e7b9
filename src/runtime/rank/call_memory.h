// SPDX-License-Identifier: Apache-2.0
// What those who carry out the program's system calls ask of a rank: which of the memory that a call names is
// global, and that it be present for the call's time. Runtime::call_memory().
// Thread safety: any thread.
#pragma once

#include <cstddef>

namespace kasane::runtime {

class CallMemory {
 public:
  /// Whether the address lies in global memory. Also in a child of fork(), of its parent's.
  [[nodiscard]] virtual bool contains(const void*) const noexcept = 0;
  /// Whether the address lies in stacks that are always present, on all ranks.
  [[nodiscard]] virtual bool in_open_stacks(const void* p) const noexcept = 0;
  /// As Runtime::pin(), of what is allocated of the range from p on: returns how much that is, and says
  /// nothing.
  virtual std::size_t pin_allocated(const void* p, std::size_t bytes, bool write) noexcept = 0;
  virtual void unpin(const void* p, std::size_t bytes) = 0;
  /// Before a user-level thread, which holds nothing, uses the range: what of it is elsewhere or on SSD comes
  /// while its worker runs other threads. A hint: what has not come is waited for in place, when it is used.
  virtual void bring(const void* p, std::size_t bytes) noexcept = 0;
  /// Of DRAM, for global memory.
  [[nodiscard]] virtual bool has_budget() const noexcept = 0;
  /// Whether so much can be pinned at once.
  [[nodiscard]] virtual bool can_pin(std::size_t bytes) noexcept = 0;
  /// How much of a longer system call is pinned at once.
  [[nodiscard]] virtual std::size_t part_of_calls() const noexcept = 0;
  /// How much of a system call is brought before it, and stays until it is used.
  [[nodiscard]] virtual std::size_t room_of_calls() const noexcept = 0;

 protected:
  ~CallMemory() = default;
};

}  // namespace kasane::runtime
