// SPDX-License-Identifier: Apache-2.0
// far_walk MIB: a walk over so much global memory for each rank, of which a page of 64 KiB in each 2 MiB is
// used: stored to, loaded, then got and put by the thread that comes to it. What such a walk leaves behind is
// page tables, far more than it has data at once. Says what the kernel holds of them at rank 0. Status 1: a
// word is wrong; 77 (skipped): this kernel keeps page tables, so they would use the budget up.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>

#include "mem/page_tables.h"

namespace {

constexpr std::size_t kStep = std::size_t{2} << 20, kUsed = kasane::page_default, kBlock = 4096;

std::uint64_t value(std::size_t i, std::uint64_t round) { return i * 0x9E3779B97F4A7C15u + round; }

}  // namespace

int main(int argc, char** argv) {
  const std::size_t mib = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (mib == 0) {
    std::fprintf(stderr, "usage: far_walk MIB\n");
    return 2;
  }
  if (!kasane::mem::page_tables_go_back()) {
    std::printf("skipped: this kernel keeps page tables\n");
    return 77;
  }
  const std::size_t bytes = kasane::ranks() * (mib << 20), steps = bytes / kStep, words = kUsed / kBlock;
  const std::uint64_t wrong = kasane::run([=] {
    auto* data = static_cast<std::byte*>(kasane::allocate(bytes, 64, kasane::placement::block));
    // The pages used lie at different places of their ranges.
    const auto at = [=](std::size_t i) {
      return reinterpret_cast<std::uint64_t*>(data + i * kStep + i % (kStep / kUsed) * kUsed);
    };
    kasane::parallel_for(std::size_t{0}, steps, [=](std::size_t i) {
      for (std::size_t w = 0; w < words; ++w) at(i)[w * (kBlock / 8)] = value(i + w, 0);
    });
    const auto sum = [](std::uint64_t a, std::uint64_t b) { return a + b; };
    std::uint64_t bad = kasane::parallel_reduce(
        std::size_t{0}, steps, std::uint64_t{0},
        [=](std::size_t i) {
          std::uint64_t n = 0;
          for (std::size_t w = 0; w < words; ++w) n += at(i)[w * (kBlock / 8)] != value(i + w, 0) ? 1 : 0;
          return n;
        },
        sum);
    bad += kasane::parallel_reduce(
        std::size_t{0}, steps, std::uint64_t{0},
        [=](std::size_t i) {
          const std::size_t other = steps - 1 - i;  // mostly another rank's
          std::uint64_t word = 0;
          kasane::get(&word, at(other), 1);
          const std::uint64_t put = value(other, 1);
          kasane::put(at(other), &put, 1);
          return std::uint64_t{word != value(other, 0)};
        },
        sum);
    bad += kasane::parallel_reduce(
        std::size_t{0}, steps, std::uint64_t{0},
        [=](std::size_t i) { return std::uint64_t{*at(i) != value(i, 1)}; }, sum);
    kasane::deallocate(data);
    return bad;
  });
  std::printf("%zu MiB walked, %llu words wrong; page tables at the end: %llu KiB\n", bytes >> 20,
              static_cast<unsigned long long>(wrong),
              static_cast<unsigned long long>(kasane::mem::page_table_bytes() >> 10));
  return wrong == 0 ? 0 : 1;
}
