// SPDX-License-Identifier: Apache-2.0
#include "mem/pages.h"

#include <bit>
#include <string>

namespace kasane::mem {

Result<Pages> Pages::create(std::uint64_t space_bytes, std::span<const Segment> segments) {
  if (segments.empty() || segments.size() > kMostSegments || segments[0].offset != 0) {
    return fail(Errc::invalid_argument, "pages: " + std::to_string(segments.size()) + " segments; 1 to " +
                                            std::to_string(kMostSegments) +
                                            " are needed, the first at offset 0");
  }
  Pages pages;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto [offset, page_bytes] = segments[i];
    const std::uint64_t end = i + 1 < segments.size() ? segments[i + 1].offset : space_bytes;
    if (!std::has_single_bit(page_bytes) || page_bytes < kSmallestPageBytes ||
        page_bytes > kLargestPageBytes) {
      return fail(Errc::invalid_argument, "pages of " + std::to_string(page_bytes) +
                                              " bytes: a power of two from 4096 to 2097152 is needed");
    }
    if (end <= offset || offset % page_bytes != 0 || end % page_bytes != 0) {
      return fail(Errc::invalid_argument,
                  "a segment [" + std::to_string(offset) + ", " + std::to_string(end) + ") of pages of " +
                      std::to_string(page_bytes) +
                      " bytes: it must have some, and begin and end at a multiple of them");
    }
    pages.rows_[i] = {offset, pages.count_, static_cast<unsigned>(std::countr_zero(page_bytes))};
    pages.count_ += (end - offset) / page_bytes;
  }
  pages.rows_used_ = segments.size();
  return pages;
}

Result<Pages> Pages::uniform(std::uint64_t space_bytes, std::uint64_t page_bytes) {
  const Segment all{0, page_bytes};
  return create(space_bytes, {&all, 1});
}

}  // namespace kasane::mem
