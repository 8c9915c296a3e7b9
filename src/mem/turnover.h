// SPDX-License-Identifier: Apache-2.0
// Do the same pages leave DRAM and come back again and again? Counts pages that come in, and how many
// different ones they are, over spans of some seconds.
//
// Thread safety: none; the pager's.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "mem/block_table.h"

namespace kasane::mem {

class Turnover {
 public:
  struct Crawl {
    std::uint64_t came, pages;  ///< in a span; so many different ones
    std::uint64_t ns;           ///< its length
  };
  /// Long enough for a warning that a program which goes on well need not read, short enough for a user who
  /// waits.
  static constexpr std::uint64_t kSpanNs = 5'000'000'000;
  /// So often on average each page has come in a span. What is swept through once from the disk comes less
  /// often, unless it is small.
  static constexpr std::uint64_t kOften = 16;

  explicit Turnover(PageSet none) noexcept : seen_(std::move(none)) {}

  void note(PageId page) noexcept {
    ++came_;
    pages_ += seen_.insert(page) ? 1 : 0;
  }
  /// Ends a span that is over, and says what came in it if that was often the same.
  std::optional<Crawl> look(std::uint64_t now_ns) noexcept {
    if (began_ns_ == 0) began_ns_ = now_ns;
    const Crawl span{came_, pages_, now_ns - began_ns_};
    if (span.ns < kSpanNs) return {};
    seen_.for_each([this](PageId page) { seen_.erase(page); });
    began_ns_ = now_ns;
    came_ = pages_ = 0;
    if (span.pages == 0 || span.came < kOften * span.pages) return {};
    return span;
  }

 private:
  PageSet seen_;
  std::uint64_t came_ = 0, pages_ = 0, began_ns_ = 0;
};

}  // namespace kasane::mem
