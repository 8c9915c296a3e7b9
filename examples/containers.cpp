// SPDX-License-Identifier: Apache-2.0
// new and the standard containers on threads: their memory is global, so one rank can read and change a
// container that another one fills.
#include <cstdio>
#include <kasane/kasane.hpp>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace {

int failures() {
  int bad = 0;

  std::vector<std::string> words;
  kasane::thread fill([&] {
    for (int i = 0; i < 1000; ++i)
      words.push_back("a word too long for the small buffer: " + std::to_string(i));
  });
  fill.join();
  bad += words.size() != 1000 || words[999].back() != '9';

  std::map<std::string, int> index;
  kasane::thread count([&] {
    for (std::size_t i = 0; i < words.size(); ++i) index[words[i]] = static_cast<int>(i);
  });
  count.join();
  bad += index.size() != 1000 || index[words[500]] != 500;

  // With the allocator memory is global wherever the container is made, and may be placed over the ranks.
  std::vector<int, kasane::allocator<int, kasane::placement::cyclic>> numbers(100'000);
  std::iota(numbers.begin(), numbers.end(), 0);
  kasane::parallel_for(numbers, [](int& n) { n *= 2; });
  bad += std::accumulate(numbers.begin(), numbers.end(), 0LL) != 100'000LL * 99'999;
  return bad;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("containers: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
