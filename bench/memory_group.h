// SPDX-License-Identifier: Apache-2.0
// A memory control group, of version 1 or 2: bounds what commands use, page cache and shared memory included,
// and reports the most that they used.
//
//   MemoryGroup group("kasane-bench-x.123", 256 << 20);
//   command_output(group.around("fio …"));
//   group.peak();
//
// Made below this process's own group, else below the root. Where it cannot be made (no right to, no memory
// controller) it is not good(), and around() changes nothing. Unless swap is allowed, what is above the limit
// must go where the program puts it.
// Thread safety: none needed. Invariant: the group goes with the object, or, if that process was killed, by
// remove_left_behind() of any process that may.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kasane::bench {

class MemoryGroup {
 public:
  static constexpr std::uint64_t kNoLimit = 0;

  enum class Swap : bool { none, allowed };

  /// name: unique on the machine.
  MemoryGroup(const std::string& name, std::uint64_t limit_bytes, Swap swap = Swap::none);
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup();

  [[nodiscard]] bool good() const noexcept { return !path_.empty(); }
  /// The shell command that runs `command` inside.
  [[nodiscard]] std::string around(const std::string& command) const;
  /// The calling process is inside from here on; and its children.
  [[nodiscard]] bool enter() const;
  /// The most bytes that were in use at once. Empty: version 2 before Linux 5.19, or not good().
  [[nodiscard]] std::optional<std::uint64_t> peak() const;

  /// Processes inside that the kernel has killed for want of memory. Empty: before Linux 4.13, or not good().
  [[nodiscard]] std::optional<std::uint64_t> killed() const;

  /// Groups whose names begin so, of a process that is gone.
  static void remove_left_behind(const std::string& prefix);

 private:
  std::string path_;
};

}  // namespace kasane::bench
