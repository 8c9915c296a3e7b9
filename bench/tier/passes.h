// SPDX-License-Identifier: Apache-2.0
// What the cases of kasane bench tier do to memory, the same for every system: one player passes memory of
// Kasane, another that of a mapped file.
//
//   seq-write   every word is stored, in order, for the first time
//   seq-read    every word is loaded, in order; the sum is checked. Before it an untimed pass, after which
//               nothing is left to be written
//   random-T    a word of a block of 4 KiB is loaded and checked; T threads, each one block after another.
//               The blocks are in no memory when that begins, and each is read once
//
// Figures go to standard output, a line a case: "case value".
// Thread safety: write() by one thread; reads by any thread.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/private_array.h"
#include "common/random.h"

namespace kasane::bench::tier {

inline constexpr std::size_t kBlockBytes = 4096, kBlockWords = kBlockBytes / 8;

struct RandomCase {
  const char* name;
  unsigned threads;
  /// One thread takes longer for a read.
  [[nodiscard]] std::size_t reads(std::size_t most) const noexcept { return threads == 1 ? most / 4 : most; }
};
inline constexpr RandomCase kRandomCases[] = {{"random-1", 1}, {"random-8", 8}, {"random-64", 64}};

[[nodiscard]] inline double seconds() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline void report(const char* name, double value) {
  std::printf("%s %.6g\n", name, value);
  std::fflush(stdout);
}

inline void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("wrong bytes: ") + what);
}

/// The words under test: word i holds i * kFactor + 1.
struct Data {
  std::uint64_t* words;
  std::size_t n;

  static constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15u;
  [[nodiscard]] static constexpr std::uint64_t word_at(std::uint64_t i) noexcept { return i * kFactor + 1; }
  [[nodiscard]] double mib() const noexcept { return static_cast<double>(n) * 8 / (1 << 20); }

  /// MiB/s.
  [[nodiscard]] double write() const {
    const double start = seconds();
    for (std::size_t i = 0; i < n; ++i) words[i] = word_at(i);
    return mib() / (seconds() - start);
  }
  [[nodiscard]] double read() const {
    const double start = seconds();
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += words[i];
    const double value = mib() / (seconds() - start);
    const std::uint64_t pairs = n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n;
    require(sum == pairs * kFactor + n, "the sum of a sweep");
    return value;
  }
};

/// Numbers of blocks that are in no memory now, `most` of them or as many as there are, in random order.
class AbsentBlocks {
 public:
  AbsentBlocks(const Data& data, std::size_t most, std::uint64_t seed) : numbers_(data.n / kBlockWords) {
    const std::size_t blocks = data.n / kBlockWords;
    apps::PrivateArray<unsigned char> in(blocks);
    if (::mincore(data.words, blocks * kBlockBytes, in.get()) != 0)
      throw std::runtime_error("mincore says nothing about the data");
    for (std::size_t b = 0; b < blocks; ++b) {
      if ((in.get()[b] & 1) == 0) numbers_.get()[size_++] = static_cast<std::uint32_t>(b);
    }
    for (std::size_t i = 0; i < std::min(most, size_); ++i)
      std::swap(numbers_.get()[i], numbers_.get()[i + apps::random_at(seed, i) % (size_ - i)]);
    size_ = std::min(most, size_);
    if (size_ == 0) throw std::runtime_error("all of the data is in memory");
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Reads blocks [first, last) of the list.
  void read(const Data& data, std::size_t first, std::size_t last) {
    std::uint64_t wrong = 0;
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t at = numbers_.get()[i] * kBlockWords + i % kBlockWords;
      wrong += const_cast<const volatile std::uint64_t*>(data.words)[at] != Data::word_at(at);
    }
    require(wrong == 0, "a random read");
  }

 private:
  apps::PrivateArray<std::uint32_t> numbers_;
  std::size_t size_ = 0;
};

}  // namespace kasane::bench::tier
