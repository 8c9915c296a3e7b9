// SPDX-License-Identifier: Apache-2.0
// The number of frames that stacks of user-level threads have in this rank's memory file. Stacks cannot leave
// DRAM, since threads run on them; a stack keeps its frames as long as it is kept.
//
//   a stack is used here for the first time   note()          kPresumed blocks (or all of a smaller stack)
//   … has given its frames back               forget()        its next use is the first again
//   many are presumed                         measure_new()   the kernel's number for the stacks noted since
//                                                             the last measurement replaces the presumed one
//   at intervals                              measure()       … for all known stacks
//
// The kernel makes a frame when a thread's stack becomes deeper, and tells no thread. So frames are looked
// up: mincore() of a shared mapping of a file says which pages the file has, whichever process touched them,
// in 1 to 6 µs a stack. A measurement is due
//
//   of new stacks: when more than an eighth of what is   for the thread that notes a stack, where room is
//   known is presumed, and kManyPresumed at least        short: it is not used up by what is presumed, and
//                                                        each stack is looked at once for it
//   of all: after each_ns, or 50 times the last          for the pager: stacks that became deeper
//   measurement's time
//
// Thread safety: all from any thread, but not from fault handlers; create() comes first.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/ids.h"
#include "base/result.h"
#include "mem/block_table.h"
#include "mem/budget.h"
#include "mem/space.h"

namespace kasane::mem {

class StackFrames {
 public:
  static constexpr std::uint64_t kPresumed = 16, kManyPresumed = 4 * kPresumed;  ///< blocks

  /// Stacks of equal size, one after the other.
  struct Layout {
    std::uint64_t offset = 0, stack_bytes = 0, stacks = 0;
  };
  /// each_ns: the time after which a measurement is due again, or longer where it takes long.
  static Result<std::unique_ptr<StackFrames>> create(const Space&, Layout, std::uint64_t each_ns);

  /// Blocks to be charged: 0 if the stack was known.
  std::uint64_t note(StackId) noexcept;
  /// The stack has no frames any more. The next measurement corrects the charge.
  void forget(StackId) noexcept;
  /// Blocks charged for a stack that is not known yet.
  [[nodiscard]] std::uint64_t presumed_of_one() const noexcept { return presumed_of_one_; }

  /// Measures all noted stacks. Those that are noted meanwhile stay presumed. Empty: another thread measures.
  std::optional<Measured> measure() noexcept;
  /// As measure(), but only the stacks that were noted since the last measurement of either kind.
  std::optional<Measured> measure_new() noexcept;
  /// Is a large part presumed? For a thread that has noted a stack.
  [[nodiscard]] bool many_presumed() const noexcept {
    return presumed() >= std::max(kManyPresumed, measured() / 8);
  }
  /// The time until a measurement is due because the last one is long ago, in ns; 0: it is due.
  [[nodiscard]] std::uint64_t ns_until_due() const noexcept;

  // relaxed, all of them: numbers.
  [[nodiscard]] std::uint64_t known() const noexcept { return stacks_known_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t presumed() const noexcept { return presumed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t measured() const noexcept { return measured_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kLookBlocks = 4096;

  StackFrames(std::byte* first, Layout layout, Set<StackId> known, Set<StackId> fresh,
              std::uint64_t each_ns) noexcept;
  /// Counts the frames of the stacks in the set, which are not new any more.
  [[nodiscard]] std::uint64_t frames(const Set<StackId>&) noexcept;
  [[nodiscard]] std::uint64_t frames_in(std::byte* begin, std::uint64_t blocks) noexcept;

  std::byte* const first_;
  const Layout layout_;
  const std::uint64_t presumed_of_one_;
  Set<StackId> known_;
  Set<StackId> new_;  ///< noted, but not measured
  const std::uint64_t each_ns_;
  std::atomic<std::uint64_t> stacks_known_{0}, measured_{0}, presumed_{0}, next_ns_{0};
  std::atomic_flag measuring_;
  std::array<unsigned char, kLookBlocks> look_;  ///< of the measuring thread
};

}  // namespace kasane::mem
