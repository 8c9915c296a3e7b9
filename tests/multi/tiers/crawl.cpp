// SPDX-License-Identifier: Apache-2.0
// Two ranks change words of the same blocks again and again, which do not fit into the budget with the copies
// and twins that this takes. It goes on, every word is right, and a rank says why it is slow.
//
//   crawl SECONDS     at least so long, and each block often enough
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::size_t kBlocks = 2048, kWords = 512;  // of 8 bytes: 8 MiB

}  // namespace

int main(int argc, char** argv) {
  const std::chrono::seconds span(argc > 1 ? std::atoi(argv[1]) : 1);
  std::vector<std::uint64_t> rounds(2);
  const std::uint64_t wrong = kasane::run([&] {
    auto* const words = static_cast<std::uint64_t*>(
        kasane::allocate(kBlocks * kWords * 8, 64, kasane::placement::first_touch));
    std::uint64_t bad = 0;
    {
      std::vector<kasane::thread> threads;
      std::vector<std::uint64_t> bad_of(2);
      for (std::uint32_t r = 0; r < 2; ++r)
        threads.emplace_back(kasane::at{r % kasane::ranks()}, [=, &rounds, &bad_of] {
          std::uint64_t n = 0, seen = 0;
          const auto word = [=](std::size_t b) -> std::uint64_t& { return words[b * kWords + 8 * r]; };
          for (std::size_t b = 0; b < kBlocks; ++b) word(b) = 0;
          for (const auto end = std::chrono::steady_clock::now() + span;
               n < 4 || std::chrono::steady_clock::now() < end; ++n)
            for (std::size_t b = 0; b < kBlocks; ++b) seen += word(b)++ != n;
          rounds[r] = n;
          bad_of[r] = seen;
        });
      for (auto& t : threads) t.join();
      bad = bad_of[0] + bad_of[1];
    }
    for (std::size_t b = 0; b < kBlocks; ++b)
      for (std::size_t r = 0; r < 2; ++r) bad += words[b * kWords + 8 * r] != rounds[r];
    kasane::deallocate(words);
    return bad;
  });
  std::printf("%llu words wrong after %llu and %llu rounds\n", static_cast<unsigned long long>(wrong),
              static_cast<unsigned long long>(rounds[0]), static_cast<unsigned long long>(rounds[1]));
  return wrong == 0 ? 0 : 1;
}
