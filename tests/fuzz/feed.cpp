// SPDX-License-Identifier: Apache-2.0
// Feeds a fuzzer in place of libFuzzer: the files of a folder (what once went wrong stays right), then
// changed copies of them for some seconds. Each copy follows from its number, so from the last number that
// was printed the same ones come again.
// Usage: fuzz_NAME FOLDER [SECONDS [NUMBER]]
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz.h"

namespace {

using Seed = std::vector<std::uint8_t>;
constexpr std::size_t kMostBytes = 8192;

void feed_one(const Seed& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

Seed read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Seed changed_copy(const std::vector<Seed>& seeds, std::uint64_t number) {
  std::mt19937_64 random(number);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  Seed bytes = seeds[below(seeds.size())];
  for (std::size_t change = 0, changes = 1 + below(8); change < changes; ++change) {
    const std::size_t at = below(bytes.size() + 1),
                      length = below(std::min<std::size_t>(bytes.size() - at, 64) + 1);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto last = first + static_cast<std::ptrdiff_t>(length);
    switch (below(5)) {
      case 0: bytes.erase(first, last); break;
      case 1: {
        const Seed twice(first, last);
        bytes.insert(first, twice.begin(), twice.end());
        break;
      }
      case 2: bytes.insert(first, 1 + below(8), static_cast<std::uint8_t>(random())); break;
      case 3:
        if (length != 0) *first ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      default: {  // a number at the edge of what it can be
        constexpr std::uint64_t kEdges[] = {0,    1,          0x7f,       0x80,
                                            0xff, 0x7fffffff, 0xffffffff, ~std::uint64_t{0} >> 1};
        const std::uint64_t edge = kEdges[below(std::size(kEdges))] + below(3) - 1;
        const std::size_t wide = std::min<std::size_t>(std::size_t{1} << below(4), bytes.size() - at);
        for (std::size_t i = 0; i < wide; ++i) bytes[at + i] = static_cast<std::uint8_t>(edge >> 8 * i);
      }
    }
  }
  bytes.resize(std::min(bytes.size(), kMostBytes));
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::filesystem::path> files;
  if (count > 1)
    for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Seed> seeds;
  for (const auto& path : files) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    seeds.push_back(read(path));
    feed_one(seeds.back());
  }
  if (seeds.empty()) return std::fprintf(stderr, "fuzz: no seeds\n"), 1;
  std::uint64_t number = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 0;
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(count > 2 ? std::strtol(arguments[2], nullptr, 10) : 0);
  for (; std::chrono::steady_clock::now() < end; ++number) {
    if (number % 1000 == 0)
      std::printf("copy %llu\n", static_cast<unsigned long long>(number)), std::fflush(stdout);
    feed_one(changed_copy(seeds, number));
  }
  std::printf("%zu seeds, copies up to %llu\n", seeds.size(), static_cast<unsigned long long>(number));
  return 0;
}
