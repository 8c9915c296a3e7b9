// SPDX-License-Identifier: Apache-2.0
// Lanes of a track of --trace. In the trace event format the intervals of a track follow each other or are
// nested. Those of a thread that runs other threads while one waits for a page are not, nor are reads of SSD
// that are under way at once: what does not fit into a lane gets the next one. (Viewers would drop it, or
// move it and warn.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kasane::runtime {

class TraceLanes {
 public:
  /// The lane of an interval. They come by begin, and the longer one first.
  std::size_t place(std::uint64_t begin, std::uint64_t end) {
    for (std::size_t lane = 0; lane < open_.size(); ++lane) {
      std::vector<std::uint64_t>& ends = open_[lane];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && end > ends.back()) continue;
      ends.push_back(end);
      return lane;
    }
    open_.push_back({end});
    return open_.size() - 1;
  }

 private:
  std::vector<std::vector<std::uint64_t>> open_;  ///< of each lane the ends of the nested intervals
};

}  // namespace kasane::runtime
