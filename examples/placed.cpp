// SPDX-License-Identifier: Apache-2.0
// kasane::near: a step after a step over a large array, whose parts lie on different ranks. Each part's
// thread begins at its owner, so the parts stay where they are and only results travel.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::size_t kPart = 1 << 16;
constexpr std::uint64_t kSteps = 10;

/// The sum of all elements after kSteps steps.
std::uint64_t sum_of_steps() {
  const std::size_t parts = kasane::ranks();
  const auto array = kasane::make_array<std::uint64_t>(parts * kPart, kasane::placement::block);
  std::vector<std::uint64_t> sums(parts);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<kasane::thread> threads;
    threads.reserve(parts);
    for (std::size_t i = 0; i < parts; ++i) {
      std::uint64_t* const part = array.get() + i * kPart;
      threads.emplace_back(kasane::near{part}, [part, step, sum = &sums[i]] {
        std::uint64_t total = 0;
        for (std::size_t k = 0; k < kPart; ++k) total += part[k] = step == 0 ? k : part[k] + 1;
        *sum = total;
      });
    }
    for (auto& t : threads) t.join();
  }
  std::uint64_t all = 0;
  for (const std::uint64_t sum : sums) all += sum;
  return all;
}

}  // namespace

int main() {
  const std::uint64_t sum = kasane::run(sum_of_steps);
  const std::uint64_t expected = kasane::ranks() * (kPart * (kPart - 1) / 2 + (kSteps - 1) * kPart);
  std::printf("%u parts: sum %llu, %llu blocks fetched\n", kasane::ranks(),
              static_cast<unsigned long long>(sum),
              static_cast<unsigned long long>(kasane::counter("blocks_fetched")));
  return sum == expected ? 0 : 1;
}
