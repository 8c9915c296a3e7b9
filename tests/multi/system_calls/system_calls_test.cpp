// SPDX-License-Identifier: Apache-2.0
// System calls on global memory that is not here: with --faults uffd-thread they wait for it, wherever it is
// (at other ranks; under a budget, on SSD), with no view and no private buffer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <memory>
#include <string>

namespace {

constexpr std::size_t kPage = kasane::page_default, kWords = kPage / 8;

/// Twice the budget of the host (KASANE_DRAM: so many K, M or G), or a little where there is none.
std::size_t pages_of_data() {
  const char* const text = std::getenv("KASANE_DRAM");
  char* unit = nullptr;
  const std::size_t n = text == nullptr ? 0 : std::strtoull(text, &unit, 10);
  return n == 0 ? 48 : 2 * (n << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : 10)) / kPage;
}

std::uint64_t value(std::size_t i, std::uint64_t round) { return (i + round) * 0x9E3779B97F4A7C15u; }

void fill(std::uint64_t* words, std::size_t first, std::size_t count, std::uint64_t round) {
  for (std::size_t i = 0; i < count; ++i) words[i] = value(first + i, round);
}
std::uint64_t wrong(const std::uint64_t* words, std::size_t first, std::size_t count, std::uint64_t round) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < count; ++i) n += words[i] != value(first + i, round);
  return n;
}

/// Each rank its part, mostly.
void fill_all(std::uint64_t* data, std::size_t pages, std::uint64_t round) {
  kasane::parallel_for(std::size_t{0}, pages,
                       [=](std::size_t p) { fill(data + p * kWords, p * kWords, kWords, round); });
}
std::uint64_t wrong_of_all(const std::uint64_t* data, std::size_t pages, std::uint64_t round) {
  return kasane::parallel_reduce(
      std::size_t{0}, pages, std::uint64_t{0},
      [=](std::size_t p) { return wrong(data + p * kWords, p * kWords, kWords, round); },
      [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

/// A file of one rank, open from begin to end of a scope without forks.
class File {
 public:
  File() : fd_(::memfd_create("file", MFD_CLOEXEC)) {}
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  /// Words that did not go.
  std::uint64_t write(const std::uint64_t* from, std::size_t count, std::size_t at) const {
    return went(::pwrite(fd_, from, count * 8, static_cast<off_t>(at * 8)), count);
  }
  std::uint64_t read(std::uint64_t* to, std::size_t count, std::size_t at) const {
    return went(::pread(fd_, to, count * 8, static_cast<off_t>(at * 8)), count);
  }

 private:
  static std::uint64_t went(ssize_t done, std::size_t count) {
    return done == static_cast<ssize_t>(count * 8) ? 0 : count;
  }
  int fd_;
};

// What is checked is checked outside of run(): the test's own records are no global memory.

TEST(SystemCalls, GoOverAllRanksPagesAtOnce) {
  const std::size_t pages = pages_of_data(), words = pages * kWords;
  std::uint64_t not_written = 1, bad_in_file = 1, not_read = 1, bad = 1;
  kasane::run([&] {
    const auto data = kasane::make_array<std::uint64_t>(words, kasane::placement::block);
    std::uint64_t* const d = data.get();
    fill_all(d, pages, 1);
    {
      const File file;
      not_written = file.write(d, words, 0);  // one call for all of it
      bad_in_file = 0;
      std::uint64_t mine[512];
      for (std::size_t i = 0; i < words; i += 512)
        bad_in_file += file.read(mine, 512, i) + wrong(mine, i, 512, 1);
      for (std::size_t i = 0; i < words; i += 512) {
        fill(mine, i, 512, 2);
        bad_in_file += file.write(mine, 512, i);
      }
      not_read = file.read(d, words, 0);
    }
    bad = wrong_of_all(d, pages, 2);
  });
  EXPECT_EQ(not_written, 0u);
  EXPECT_EQ(bad_in_file, 0u);
  EXPECT_EQ(not_read, 0u);
  EXPECT_EQ(bad, 0u);
}

TEST(SystemCalls, OfManyThreadsBesideFaults) {
  const std::size_t pages = pages_of_data(), words = pages * kWords;
  std::uint64_t bad = 1, bad_at_end = 1;
  kasane::run([&] {
    const auto data = kasane::make_array<std::uint64_t>(words, kasane::placement::cyclic);
    std::uint64_t* const d = data.get();
    fill_all(d, pages, 1);
    bad = 0;
    for (std::uint64_t round = 1; round <= 3; ++round) {
      // Every other page by system calls, those between by loads and stores; pieces do not end where blocks
      // do.
      bad += kasane::parallel_reduce(
          std::size_t{0}, pages, std::uint64_t{0},
          [=](std::size_t p) {
            std::uint64_t n = 0;
            std::uint64_t* const page = d + p * kWords;
            if (p % 2 != 0) {
              n = wrong(page, p * kWords, kWords, round);
              fill(page, p * kWords, kWords, round + 1);
              return n;
            }
            const File file;
            n += file.write(page + 3, kWords - 5, 0);
            std::uint64_t mine[256];
            for (std::size_t i = 3; i + 2 < kWords; i += 256) {
              const std::size_t count = std::min<std::size_t>(256, kWords - 2 - i);
              n += file.read(mine, count, i - 3) + wrong(mine, p * kWords + i, count, round);
              fill(mine, p * kWords + i, count, round + 1);
              n += file.write(mine, count, i - 3);
            }
            n += file.read(page + 3, kWords - 5, 0);
            for (const std::size_t i :
                 {std::size_t{0}, std::size_t{1}, std::size_t{2}, kWords - 2, kWords - 1})
              page[i] = value(p * kWords + i, round + 1);
            return n;
          },
          [](std::uint64_t a, std::uint64_t b) { return a + b; });
    }
    bad_at_end = wrong_of_all(d, pages, 4);
  });
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(bad_at_end, 0u);
}

TEST(SystemCalls, IntoNoMemoryFailAndTheProgramGoesOn) {
  int said = 0;
  std::uint64_t bad = 1;
  kasane::run([&] {
    const auto data = kasane::make_array<std::uint64_t>(kWords, kasane::placement::cyclic);
    auto* const wild = reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::uintptr_t>(data.get()) +
                                                        (std::uint64_t{8} << 30));
    const File file;
    said = file.write(wild, 8, 0) == 8 && errno == EFAULT ? 1 : 0;
    said += file.write(wild, 8, 0) == 8 && errno == EFAULT ? 1 : 0;
    fill(data.get(), 0, kWords, 1);
    bad = file.write(data.get(), kWords, 0) + wrong(data.get(), 0, kWords, 1);
  });
  EXPECT_EQ(said, 2);
  EXPECT_EQ(bad, 0u);
}

}  // namespace
