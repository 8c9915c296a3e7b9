// SPDX-License-Identifier: Apache-2.0
// Which bytes of the space travel to or from the spill file. Who collects them block by block joins neighbours as they come: the fewer ranges, the less room and sorting.
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

/// At most kMost ranges, in place: also where nothing may be allocated.
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

/// Makes the last range longer where `more` begins at its end; else adds it. ranges: SpillRanges or a vector.
template <class Ranges>
void append(Ranges& ranges, SpillRange more) {
  if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == more.offset) ranges.back().bytes += more.bytes;
  else ranges.push_back(more);
}

}  // namespace kasane::mem
