// SPDX-License-Identifier: Apache-2.0
// What a program has said of pages: how it uses them, and which should stay in DRAM. These are hints to
// read-ahead and eviction; no result depends on them.
// Thread safety: every call from any thread, fault handlers too. Nothing allocates after create(). A page
// without advice costs no memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "mem/pages.h"

namespace kasane::mem {

enum class Usage : std::uint8_t {
  normal = 0,
  /// From its lower end to its upper one: read far ahead; pages that were used are evicted first
  sequential = 1,
  random = 2,  ///< not read ahead
  once = 3,    ///< pages that were used are evicted first
};
/// Are pages of this usage evicted before all others?
[[nodiscard]] constexpr bool leaves_first(Usage usage) noexcept {
  return usage == Usage::sequential || usage == Usage::once;
}

class AdviceTable {
 public:
  static constexpr std::uint32_t kMostHolds = (1u << 14) - 1;

  static Result<AdviceTable> create(std::uint64_t pages);
  AdviceTable(AdviceTable&&) noexcept;
  AdviceTable& operator=(AdviceTable&&) = delete;
  ~AdviceTable();

  void use(PageRange, Usage) noexcept;
  /// Pages stay in DRAM while there were more holds than ends.
  void hold(PageRange) noexcept;
  void end_hold(PageRange) noexcept;

  // relaxed: a hint says nothing about other memory.
  [[nodiscard]] Usage usage(PageId page) const noexcept {
    return static_cast<Usage>(words_[raw(page)].load(std::memory_order_relaxed) & kUsage);
  }
  [[nodiscard]] bool held(PageId page) const noexcept {
    return words_[raw(page)].load(std::memory_order_relaxed) >= kHold;
  }

 private:
  using Word = std::atomic<std::uint16_t>;  ///< holds 14 | usage 2
  static constexpr std::uint16_t kUsage = 3, kHold = 4;

  AdviceTable(Word* words, std::uint64_t pages) noexcept : words_(words), pages_(pages) {}

  Word* words_;
  std::uint64_t pages_;
};

}  // namespace kasane::mem
