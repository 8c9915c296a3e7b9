// SPDX-License-Identifier: Apache-2.0
// Parallel algorithms, as the standard library's: here to find how often each of some words was drawn, by
// sorting.
#include <cstdint>
#include <cstdio>
#include <kasane/algorithm.hpp>
#include <vector>

namespace {

using Numbers = std::vector<std::uint64_t, kasane::allocator<std::uint64_t, kasane::placement::block>>;

int failures() {
  constexpr std::uint64_t kDraws = 300'000, kWords = 1000;
  Numbers place(kDraws), drawn(kDraws);
  kasane::fill(place, std::uint64_t{1});
  // 0, 1, 2, …
  kasane::exclusive_scan(place.begin(), place.end(), place.begin(), std::uint64_t{0});
  kasane::transform(place.begin(), place.end(), drawn.begin(),
                    [](std::uint64_t i) { return (i * 2'654'435'761U >> 7) % kWords; });
  const auto sevens = kasane::count(drawn.begin(), drawn.end(), std::uint64_t{7});

  kasane::sort(drawn);
  const auto first = kasane::find(drawn.begin(), drawn.end(), std::uint64_t{7});
  const auto behind =
      kasane::find_if(drawn.begin(), drawn.end(), [](std::uint64_t word) { return word > 7; });
  int bad = behind - first != sevens;
  bad += kasane::reduce(place.begin(), place.end()) != kDraws * (kDraws - 1) / 2;
  bad += kasane::any_of(drawn.begin(), drawn.end(), [](std::uint64_t word) { return word >= kWords; });
  return bad;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("algorithm: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
