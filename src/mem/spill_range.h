// SPDX-License-Identifier: Apache-2.0
// Ranges of bytes of the space that travel to or from the spill file. A caller that collects them block by
// block joins neighbours: fewer ranges need less room and sorting.
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kasane::mem {

/// Whole blocks.
struct SpillRange {
  std::uint64_t offset;
  std::uint64_t bytes;
};

/// At most kMost ranges, in place, for code that may not allocate.
template <std::size_t kMost>
class SpillRanges {
 public:
  [[nodiscard]] bool empty() const noexcept { return n_ == 0; }
  [[nodiscard]] std::span<SpillRange> all() noexcept { return {ranges_.data(), n_}; }
  [[nodiscard]] SpillRange& back() noexcept { return ranges_[n_ - 1]; }
  /// The caller knows that there is room.
  void push_back(SpillRange range) noexcept { ranges_[n_++] = range; }
  void clear() noexcept { n_ = 0; }

 private:
  std::array<SpillRange, kMost> ranges_;
  std::size_t n_ = 0;
};

[[nodiscard]] inline std::uint64_t bytes_of(std::span<const SpillRange> ranges) noexcept {
  std::uint64_t bytes = 0;
  for (const SpillRange& range : ranges) bytes += range.bytes;
  return bytes;
}

/// Makes the last range longer where `more` begins at its end; else adds it. ranges: SpillRanges or a vector.
template <class Ranges>
void append(Ranges& ranges, SpillRange more) {
  if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == more.offset)
    ranges.back().bytes += more.bytes;
  else
    ranges.push_back(more);
}

}  // namespace kasane::mem
