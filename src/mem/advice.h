// SPDX-License-Identifier: Apache-2.0
// What a program has said of pages: how it uses them, and which are to stay in DRAM. Hints to read-ahead and to whoever makes room; nothing that is right or wrong depends on them.
// Thread safety: every call from any thread, fault handlers too. Nothing allocates after create(); a page of which nothing was said costs no memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "mem/pages.h"

namespace kasane::mem {

enum class Usage : std::uint8_t {
  normal = 0,
  sequential = 1,   ///< from its lower end to its upper one: much is read ahead, and what was used leaves first
  random = 2,       ///< nothing is read ahead
  once = 3,         ///< what was used leaves first
};
/// Does a page leave before all those that are used in another way?
[[nodiscard]] constexpr bool leaves_first(Usage usage) noexcept { return usage == Usage::sequential || usage == Usage::once; }

class AdviceTable {
 public:
  static constexpr std::uint32_t kMostHolds = (1u << 14) - 1;

  static Result<AdviceTable> create(std::uint64_t pages);
  AdviceTable(AdviceTable&&) noexcept;
  AdviceTable& operator=(AdviceTable&&) = delete;
  ~AdviceTable();

  void use(PageRange, Usage) noexcept;
  /// Pages stay as long as there were more holds than ends.
  void hold(PageRange) noexcept;
  void end_hold(PageRange) noexcept;

  // relaxed: a hint says nothing about other memory.
  [[nodiscard]] Usage usage(PageId page) const noexcept { return static_cast<Usage>(words_[raw(page)].load(std::memory_order_relaxed) & kUsage); }
  [[nodiscard]] bool held(PageId page) const noexcept { return words_[raw(page)].load(std::memory_order_relaxed) >= kHold; }

 private:
  using Word = std::atomic<std::uint16_t>;   ///< holds 14 | usage 2
  static constexpr std::uint16_t kUsage = 3, kHold = 4;

  AdviceTable(Word* words, std::uint64_t pages) noexcept : words_(words), pages_(pages) {}

  Word* words_;
  std::uint64_t pages_;
};

}  // namespace kasane::mem
