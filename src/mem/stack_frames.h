// SPDX-License-Identifier: Apache-2.0
// The frames that stacks of user-level threads have in this rank's memory file, counted: they cannot leave DRAM, since threads run on them, and are a thread's for as long as its stack is kept.
//
//   a stack is used here for the first time    note()       kPresumed blocks (or all of a smaller stack), at once
//   … has given its frames back                forget()     its next use is the first
//   now and then                               measure()    what the kernel says of all stacks ever used here takes the place of what was presumed
//
// Nobody hears of a frame: the kernel makes it when a thread's stack becomes deeper. So they are looked for (mincore() of V: of a shared mapping of a file it says which pages the file has, whoever
// touched them; where this process did, which is most of them, it reads page tables only: 0.2 µs a stack, else 6). That is due
//
//   when more is presumed than an eighth of what is known, and kManyPresumed at least   by who notes it: nobody runs ahead of whoever measures by using more stacks
//   each each_ns, or a 50th of the time                                                  by who makes room: stacks that became deeper
//
// Thread safety: all from any thread, no fault handlers; create() comes first.
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
  static constexpr std::uint64_t kPresumed = 16, kManyPresumed = 4 * kPresumed;   ///< blocks

  /// So many stacks, one after the other.
  struct Layout {
    std::uint64_t offset = 0, stack_bytes = 0, stacks = 0;
  };
  /// each_ns: they are due again so long after a measurement, or longer where that takes long.
  static Result<std::unique_ptr<StackFrames>> create(const Space&, Layout, std::uint64_t each_ns);

  /// Blocks to be charged: 0 if it was known.
  std::uint64_t note(StackId) noexcept;
  /// It has no frames any more. What it was charged for is found when all are measured.
  void forget(StackId) noexcept;
  /// Of a stack that is not known yet.
  [[nodiscard]] std::uint64_t presumed_of_one() const noexcept { return presumed_of_one_; }

  /// Those noted meanwhile stay as presumed. Empty: another thread measures.
  std::optional<Measured> measure() noexcept;
  /// Is much of it presumed? For who has noted one.
  [[nodiscard]] bool many_presumed() const noexcept { return presumed() >= std::max(kManyPresumed, measured() / 8); }
  /// How long until it is to be measured again for being long ago, in ns; 0: it is.
  [[nodiscard]] std::uint64_t ns_until_due() const noexcept;

  // relaxed, all of it: numbers
  [[nodiscard]] std::uint64_t known() const noexcept { return stacks_known_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t presumed() const noexcept { return presumed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t measured() const noexcept { return measured_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kLookBlocks = 4096;

  StackFrames(std::byte* first, Layout layout, Set<StackId> known, std::uint64_t each_ns) noexcept;
  [[nodiscard]] std::uint64_t frames() noexcept;
  [[nodiscard]] std::uint64_t frames_in(std::byte* begin, std::uint64_t blocks) noexcept;

  std::byte* const first_;
  const Layout layout_;
  const std::uint64_t presumed_of_one_;
  Set<StackId> known_;
  const std::uint64_t each_ns_;
  std::atomic<std::uint64_t> stacks_known_{0}, measured_{0}, presumed_{0}, next_ns_{0};
  std::atomic_flag measuring_;
  std::array<unsigned char, kLookBlocks> look_;   ///< by who measures
};

}  // namespace kasane::mem
