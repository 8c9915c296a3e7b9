// SPDX-License-Identifier: Apache-2.0
// Programs whose data do not fit into the budget (KASANE_DRAM: so many K, M or G): each word keeps what was
// stored, put or added, whatever leaves DRAM meanwhile; and as much leaves as must.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <kasane/kasane.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/counts.h"

namespace {

using kasane::placement;

/// Of the host.
std::size_t budget_bytes() {
  const char* const text = std::getenv("KASANE_DRAM");
  if (text == nullptr) return 0;
  char* unit = nullptr;
  const std::size_t n = std::strtoull(text, &unit, 10);
  return n << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : 10);
}

/// Beyond the budget there may be what threads have in hand: two pages for each of the two workers of a rank,
/// and for its pager (docs/design/tiers.md).
std::size_t slack_bytes(std::size_t page) { return kasane::ranks() * std::size_t{3} * 2 * page; }

std::size_t data_bytes(std::size_t page) {
  return (budget_bytes() + slack_bytes(page)) / page * page + kasane::ranks() * (std::size_t{4} << 20);
}

constexpr std::size_t kUncounted = std::size_t{2}
                                   << 20;  ///< stacks, and what the program and the runtime allocate

/// Each page of the data was in DRAM at some time, and all but this many left again, or for the first time.
std::uint64_t must_leave(std::size_t page) {
  return (data_bytes(page) - budget_bytes() - slack_bytes(page)) / page;
}

constexpr std::size_t kSizes[] = {kasane::page_small, kasane::page_default, kasane::page_large};
constexpr placement kPlacements[] = {placement::local, placement::block, placement::cyclic,
                                     placement::first_touch};

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

std::uint64_t* allocate(std::size_t words, placement where, std::size_t page) {
  return static_cast<std::uint64_t*>(kasane::allocate(words * 8, 64, where.in_pages(page)));
}

/// Words that are not what `right` says, by all ranks.
template <class Right>
std::uint64_t wrong(const std::uint64_t* data, std::size_t words, const Right& right) {
  return kasane::parallel_reduce(
      std::size_t{0}, words, std::uint64_t{0},
      [&](std::size_t i) { return std::uint64_t{data[i] != right(i)}; },
      [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

std::uint64_t evicted() {
  const kasane::test::Counts all;
  return all["pages_evicted"] + all["pages_dropped"];
}

/// The most that this rank had in its two files of frames and twins, looked at again and again.
class Watch {
 public:
  Watch() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
      if (name.starts_with("/memfd:kasane-M") || name.starts_with("/memfd:kasane-T"))
        fds_.push_back(std::stoi(entry.path().filename()));
    }
    looks_ = std::thread([this] {
      while (!stop_.load()) {
        most_ = std::max(most_, now());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // there are few cores
      }
    });
  }
  std::size_t most() {
    stop_.store(true);
    if (looks_.joinable()) looks_.join();
    return most_;
  }
  [[nodiscard]] std::size_t files() const { return fds_.size(); }
  [[nodiscard]] std::size_t now() const {
    std::size_t bytes = 0;
    for (const int fd : fds_) {
      struct stat s{};
      if (::fstat(fd, &s) == 0) bytes += static_cast<std::size_t>(s.st_blocks) * 512;
    }
    return bytes;
  }

 private:
  std::vector<int> fds_;
  std::atomic<bool> stop_{false};
  std::size_t most_ = 0;
  std::thread looks_;
};

class Tiers : public testing::TestWithParam<std::tuple<std::size_t, int>> {
 protected:
  [[nodiscard]] std::size_t page() const { return std::get<0>(GetParam()); }
  void stays_within_budget(Watch& watch) const {
    ASSERT_EQ(watch.files(), 2u);
    EXPECT_LE(watch.most(), budget_bytes() + slack_bytes(page()) / kasane::ranks() + kUncounted);
  }
  [[nodiscard]] placement where() const { return kPlacements[std::get<1>(GetParam())]; }
};

TEST_P(Tiers, SweepsKeepWhatTheyStore) {
  const std::uint64_t before = evicted();
  Watch watch;
  const std::uint64_t bad = kasane::run([this] {
    const std::size_t words = data_bytes(page()) / 8;
    std::uint64_t* data = allocate(words, where(), page());
    kasane::parallel_for(std::size_t{0}, words, [=](std::size_t i) { data[i] = mix(i); });
    std::uint64_t n = wrong(data, words, [](std::size_t i) { return mix(i); });
    for (std::uint64_t round = 1; round <= 2; ++round) {
      kasane::parallel_for(std::size_t{0}, words, [=](std::size_t i) {
        data[i] += i % 512 == round ? round : 0;
      });  // a word a block
      n += wrong(data, words, [round](std::size_t i) {
        return mix(i) + (i % 512 != 0 && i % 512 <= round ? i % 512 : 0);
      });
    }
    kasane::deallocate(data);
    return n;
  });
  EXPECT_EQ(bad, 0u);
  stays_within_budget(watch);
  EXPECT_GE(evicted() - before, must_leave(page()));
}

// Sweeps that say that they will store, so that pages come open for that, while others read words beside
// those from the same pages, for which a page comes in as a whole.
TEST_P(Tiers, HintedStoresAreSeenByAll) {
  constexpr std::size_t kTasks = 8, kPiece = 20'000,
                        kEach = 16;  // of 16 words one is stored to in a round, and the others are only read
  const std::uint64_t bad = kasane::run([this] {
    const std::size_t words = data_bytes(page()) / 8, looks = page() == kasane::page_large ? 4 : 60;
    std::uint64_t* data = allocate(words, where(), page());
    kasane::parallel_for(std::size_t{0}, words, [=](std::size_t i) { data[i] = mix(i); });
    std::uint64_t n = 0;
    for (std::size_t round = 0; round < 2; ++round) {
      const auto right = [round](std::size_t i) { return mix(i) + (i % kEach < round ? 1 : 0); };
      n += kasane::parallel_reduce(
          std::size_t{0}, 2 * kTasks, std::uint64_t{0},
          [=](std::size_t t) {
            std::uint64_t wrong_here = 0;
            if (t % 2 == 0) {  // goes through its part
              const std::size_t first = words / kTasks * (t / 2),
                                last = t / 2 + 1 == kTasks ? words : words / kTasks * (t / 2 + 1);
              for (std::size_t at = first; at < last; at += kPiece) {
                const std::size_t end = std::min(last, at + kPiece);
                kasane::prefetch(data + at, end - at, kasane::read_write);
                for (std::size_t i = at; i < end; ++i)
                  if (i % kEach == round) wrong_here += data[i]++ != mix(i);
              }
            } else {  // looks here and there
              for (std::size_t k = 0; k < looks; ++k) {
                const std::size_t i = mix(k * 100 + t) % (words / kEach) * kEach + 7;
                wrong_here += data[i] != mix(i);
              }
            }
            return wrong_here;
          },
          [](std::uint64_t a, std::uint64_t b) { return a + b; }, 1);
      n += wrong(data, words,
                 [right, round](std::size_t i) { return right(i) + (i % kEach == round ? 1 : 0); });
    }
    kasane::deallocate(data);
    return n;
  });
  EXPECT_EQ(bad, 0u);
}

TEST_P(Tiers, PutsGetsAndAtomicsFindWhereThePageIs) {
  Watch watch;
  const std::uint64_t bad = kasane::run([this] {
    const std::size_t words = data_bytes(page()) / 8, step = 512;
    std::uint64_t* data = allocate(words, where(), page());
    kasane::parallel_for(std::size_t{0}, words / step, [=](std::size_t b) {
      std::uint64_t row[step];
      for (std::size_t i = 0; i < step; ++i) row[i] = mix(b * step + i);
      kasane::put(data + b * step, row, step);
    });
    std::uint64_t n = kasane::parallel_reduce(
        std::size_t{0}, words / step, std::uint64_t{0},
        [=](std::size_t b) {
          std::uint64_t row[step], bad_here = 0;
          kasane::get(row, data + b * step, step);
          for (std::size_t i = 0; i < step; ++i) bad_here += row[i] != mix(b * step + i);
          return bad_here;
        },
        [](std::uint64_t a, std::uint64_t b) { return a + b; });
    kasane::parallel_for(std::size_t{0}, words / step, [=](std::size_t b) {
      kasane::atomic_ref<std::uint64_t>(data[(b * 37) % (words / step) * step]).fetch_add(1);
    });
    n += kasane::parallel_reduce(
        std::size_t{0}, words / step, std::uint64_t{0},
        [=](std::size_t b) {
          std::uint64_t got = 0;
          kasane::get(&got, data + b * step, 1);
          return std::uint64_t{got != mix(b * step) + 1};
        },
        [](std::uint64_t a, std::uint64_t b) { return a + b; });
    kasane::deallocate(data);
    return n;
  });
  EXPECT_EQ(bad, 0u);
  stays_within_budget(watch);
}

TEST_P(Tiers, RandomUpdatesByAllRanksAddUp) {
  Watch watch;
  const std::uint64_t bad = kasane::run([this] {
    constexpr std::size_t kTasks = 32, kRounds = 3;
    const std::size_t updates = page() == kasane::page_large ? 6 : 100;  // each may move a page to and fro
    const std::size_t words = data_bytes(page()) / 8;
    std::uint64_t* data = allocate(words, where(), page());
    kasane::parallel_for(std::size_t{0}, words, [=](std::size_t i) { data[i] = 0; });
    for (std::size_t round = 0; round < kRounds; ++round) {
      kasane::parallel_for(
          std::size_t{0}, kTasks,
          [=](std::size_t t) {  // each has words of its own, in blocks that all use
            for (std::size_t k = 0; k < updates; ++k) {
              const std::size_t i = mix(k * 1000 + round) % (words / kTasks) * kTasks + t;
              data[i] += k;
            }
          },
          1);
    }
    std::vector<std::uint64_t> sums(words / kTasks, 0);
    for (std::size_t round = 0; round < kRounds; ++round)
      for (std::size_t k = 0; k < updates; ++k) sums[mix(k * 1000 + round) % (words / kTasks)] += k;
    const std::uint64_t* right = sums.data();
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < words; ++i) n += data[i] != right[i / kTasks];
    kasane::deallocate(data);
    return n;
  });
  EXPECT_EQ(bad, 0u);
  stays_within_budget(watch);
}

INSTANTIATE_TEST_SUITE_P(PageAndPlacement, Tiers,
                         testing::Combine(testing::ValuesIn(kSizes), testing::Range(0, 4)));

TEST(TiersAlone, MemoryNeverTouchedCostsNothing) {
  const std::uint64_t before = evicted();
  kasane::run([] {
    std::uint64_t* data = allocate(data_bytes(kasane::page_default), placement::local,
                                   kasane::page_default);  // eight times as much
    data[0] = 1;
    kasane::deallocate(data);
  });
  EXPECT_LE(evicted() - before, 64u * kasane::ranks());
}

/// Data of which a word a block is stored to, so that all of it has been on SSD when the last is.
struct Blocks {
  static constexpr std::size_t kWords = 512;
  std::uint64_t* words;
  std::size_t count;

  explicit Blocks(std::size_t bytes)
      : words(allocate(bytes / 8, placement::local, kasane::page_default)), count(bytes / 8 / kWords) {
    for (std::size_t b = 0; b < count; ++b) words[b * kWords] = mix(b);
  }
  [[nodiscard]] std::uint64_t wrong(std::size_t b) const { return words[b * kWords] != mix(b); }
};

// What was only read since it came goes as it came: what is written in several sweeps is no more than what
// was changed, and still here, when they began.
TEST(TiersAlone, UnchangedBlocksAreNotWrittenAgain) {
  constexpr std::size_t kSweeps = 6;
  struct Seen {
    std::uint64_t bad, spilled, read;
  };
  const Seen seen = kasane::run([] {
    const Blocks data(data_bytes(kasane::page_default));
    const kasane::test::Counts before;
    std::uint64_t bad = 0;
    for (std::size_t sweep = 0; sweep < kSweeps; ++sweep)
      for (std::size_t b = 0; b < data.count; ++b) bad += data.wrong(b);
    const kasane::test::Counts after;
    kasane::deallocate(data.words);
    return Seen{bad, after["bytes_spilled"] - before["bytes_spilled"],
                after["bytes_read_back"] - before["bytes_read_back"]};
  });
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_LE(seen.spilled, budget_bytes() + slack_bytes(kasane::page_default));
  EXPECT_GE(seen.read, kSweeps * (data_bytes(kasane::page_default) - budget_bytes() -
                                  slack_bytes(kasane::page_default)));
}

// … and one that is changed is written alone.
TEST(TiersAlone, AChangedBlockIsWrittenAlone) {
  struct Seen {
    std::uint64_t bad, spilled, changed;
  };
  const Seen seen = kasane::run([] {
    const Blocks data(data_bytes(kasane::page_default));
    std::uint64_t bad = 0, changed = 0;
    for (std::size_t b = 0; b < data.count; ++b) bad += data.wrong(b);
    const kasane::test::Counts before;
    for (std::size_t b = 0; b < data.count; ++b) {
      bad += data.wrong(b);
      if (b % 64 != 0) continue;
      ++data.words[b * Blocks::kWords + 1];
      ++changed;
    }
    for (std::size_t b = 0; b < data.count; ++b)
      bad += data.wrong(b) + (data.words[b * Blocks::kWords + 1] != (b % 64 == 0 ? 1 : 0));
    const kasane::test::Counts after;
    kasane::deallocate(data.words);
    return Seen{bad, after["bytes_spilled"] - before["bytes_spilled"], changed * Blocks::kWords * 8};
  });
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_LE(seen.spilled, seen.changed + budget_bytes() +
                              slack_bytes(kasane::page_default));  // these were here, changed, when it began
}

// Blocks in no order, of 64 MiB: few of them look like a sweep.
TEST(TiersAlone, RandomReadsBringInBlocks) {
  constexpr std::uint64_t kReads = 1000;
  struct Seen {
    std::uint64_t bad, read;
  };
  const Seen seen = kasane::run([] {
    const Blocks data(std::size_t{64} << 20);
    const kasane::test::Counts before;
    std::uint64_t bad = 0;
    for (std::uint64_t i = 0; i < kReads; ++i) bad += data.wrong(mix(i) % data.count);
    const kasane::test::Counts after;
    kasane::deallocate(data.words);
    return Seen{bad, after["bytes_read_back"] - before["bytes_read_back"]};
  });
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_LE(seen.read, kReads * 4096 * 4);  // by pages it would be 16 times as much
}

// Blocks here and there, of which the policy lays many to rest with one call, beside views that are in the
// hands of the kernel: what a view shows stays shown.
TEST(TiersAlone, ViewsBetweenPagesAtRestAreGoodForSystemCalls) {
  constexpr std::uint64_t kViews = 40, kReads = 400, kMembers = 4;
  const std::uint64_t bad = kasane::run([] {
    const Blocks data(std::size_t{64} << 20);
    const std::uint64_t wrong = kasane::parallel_reduce(
        std::uint64_t{0}, kMembers, std::uint64_t{0},
        [&](std::uint64_t member) {
          std::uint64_t seen = 0, n = member << 32;
          const int file = ::memfd_create("views", MFD_CLOEXEC);
          for (std::uint64_t i = 0; i < kViews; ++i) {
            const std::size_t b = mix(n++) % data.count;
            const kasane::view shown(static_cast<const std::uint64_t*>(data.words) + b * Blocks::kWords,
                                     Blocks::kWords);
            for (std::uint64_t read = 0; read < kReads; ++read)
              seen += data.wrong(mix(n++) % data.count);  // room is made for them
            std::uint64_t word = 0;
            seen += ::pwrite(file, shown.data(), shown.size() * 8, 0) != 4096 ||
                    ::pread(file, &word, 8, 0) != 8 || word != mix(b);
          }
          ::close(file);
          return seen;
        },
        [](std::uint64_t a, std::uint64_t b) { return a + b; });
    kasane::deallocate(data.words);
    return wrong;
  });
  EXPECT_EQ(bad, 0u);
}

// Pieces that are stored to and given up at once, but for a few words at both ends: neither what they held
// nor what they hold goes to the disk, and those words stay.
TEST(TiersAlone, DiscardedBlocksAreNotWritten) {
  constexpr std::size_t kRounds = 4, kPiece = 32 << 10, kKept = 100;  // words
  struct Seen {
    std::uint64_t bad, spilled;
  };
  const Seen seen = kasane::run([] {
    const Blocks data(data_bytes(kasane::page_default));
    const std::size_t pieces = data.count * Blocks::kWords / kPiece;
    std::uint64_t bad = 0;
    for (std::size_t b = 0; b < data.count; ++b) bad += data.wrong(b);
    const kasane::test::Counts before;
    const auto is_kept = [](std::size_t i) { return i < kKept || i >= kPiece - kKept; };
    for (std::size_t k = 0; k < kRounds * pieces; ++k) {
      const std::size_t p = k % pieces;
      std::uint64_t* const piece = data.words + p * kPiece;
      for (std::size_t i = 0; i < kPiece; ++i) piece[i] = mix(p * kPiece + i);
      kasane::discard(piece + kKept, kPiece - 2 * kKept);
    }
    const kasane::test::Counts after;
    for (std::size_t p = 0; p < pieces; ++p) {
      std::uint64_t* const piece = data.words + p * kPiece;
      for (std::size_t i = 0; i < kPiece; ++i) {
        if (is_kept(i))
          bad += piece[i] != mix(p * kPiece + i);
        else if (p % 2 == 0)
          piece[i] = i;  // taken into use again
      }
    }
    for (std::size_t p = 0; p < pieces; ++p) {
      for (std::size_t i = 0; i < kPiece; ++i) {
        if (is_kept(i))
          bad += data.words[p * kPiece + i] != mix(p * kPiece + i);
        else if (p % 2 == 0)
          bad += data.words[p * kPiece + i] != i;
      }
    }
    kasane::deallocate(data.words);
    return Seen{bad, after["bytes_spilled"] - before["bytes_spilled"]};
  });
  EXPECT_EQ(seen.bad, 0u);
  // What was here and had changed when it began, and two blocks or so of the 64 of a piece.
  EXPECT_LE(seen.spilled, budget_bytes() + slack_bytes(kasane::page_default) +
                              kRounds * data_bytes(kasane::page_default) / 8);
}

// What is prefetched comes once, whichever way the program goes; and what is to be overwritten is not read.
TEST(TiersAlone, WhatIsPrefetchedComesOnce) {
  constexpr std::size_t kPiece = 20'000;  // words: neither blocks nor windows
  struct Seen {
    std::uint64_t bad, read, read_to_be_overwritten;
  };
  const Seen seen = kasane::run([] {
    const std::size_t words = data_bytes(kasane::page_default) / 8 / kPiece * kPiece;
    std::uint64_t* const data = allocate(words, placement::local, kasane::page_default);
    for (std::size_t i = 0; i < words; ++i) data[i] = mix(i);
    std::uint64_t bad = 0;
    const kasane::test::Counts before;
    for (std::size_t at = 0; at < words; at += kPiece) {
      kasane::prefetch(data + at, kPiece);
      for (std::size_t i = at; i < at + kPiece; ++i) bad += data[i] != mix(i);
    }
    for (std::size_t at = words; at > 0; at -= kPiece) {
      kasane::prefetch(data + at - kPiece, kPiece, kasane::read_write);
      for (std::size_t i = at - kPiece; i < at; ++i) bad += data[i]++ != mix(i);
    }
    const kasane::test::Counts middle;
    for (std::size_t at = 0; at < words; at += kPiece) {
      kasane::prefetch(data + at, kPiece, kasane::write_only);
      for (std::size_t i = at; i < at + kPiece; ++i) data[i] = i;
    }
    const kasane::test::Counts after;
    for (std::size_t i = 0; i < words; ++i) bad += data[i] != i;
    kasane::deallocate(data);
    return Seen{bad, middle["bytes_read_back"] - before["bytes_read_back"],
                after["bytes_read_back"] - middle["bytes_read_back"]};
  });
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_LE(seen.read, 2 * data_bytes(kasane::page_default) * 5 / 4);
  EXPECT_LE(seen.read_to_be_overwritten,
            data_bytes(kasane::page_default) / 24);  // the blocks at their ends, one in 39
}

TEST(TiersAlone, WhoComesToAPageThatLeavesWaits) {
  struct Seen {
    std::uint64_t bad, left, again;
  };
  const Seen seen = kasane::run([] {
    const std::size_t pages = data_bytes(kasane::page_default) / kasane::page_default,
                      words_of = kasane::page_default / 8;
    std::uint64_t* const data = allocate(pages * words_of, placement::local, kasane::page_default);
    std::fill_n(data, pages * words_of, 0);  // the memory may have been used before
    std::vector<std::uint64_t> added(pages);
    const kasane::test::Counts before;
    for (std::uint64_t n = 0; n < 40 * pages; ++n) {  // some of them are about to leave
      const std::size_t page = mix(n) % pages;
      for (std::size_t i = 0; i < words_of; ++i) data[page * words_of + i] += i;
      ++added[page];
    }
    const kasane::test::Counts after;
    std::uint64_t bad = 0;
    for (std::size_t p = 0; p < pages; ++p) {
      for (std::size_t i = 0; i < words_of; ++i) bad += data[p * words_of + i] != added[p] * i;
    }
    kasane::deallocate(data);
    return Seen{bad, after["pages_evicted"] - before["pages_evicted"],
                after["faults_again"] - before["faults_again"]};
  });
  EXPECT_EQ(seen.bad, 0u);
  EXPECT_LE(seen.again, seen.left);
}

TEST(TiersAlone, FreedMemoryIsTakenAgain) {
  EXPECT_EQ(kasane::run([] {
              std::uint64_t bad = 0;
              for (std::uint64_t round = 0; round < 4; ++round) {
                const std::size_t words = data_bytes(kasane::page_default) / 16;
                std::uint64_t* data = allocate(words, placement::local, kasane::page_default);
                for (std::size_t i = 0; i < words; i += 64) data[i] = mix(i + round);
                for (std::size_t i = 0; i < words; i += 64) bad += data[i] != mix(i + round);
                kasane::deallocate(data);
              }
              return bad;
            }),
            0u);
}

/// What a rank has written to its spill files in a directory, which have no names there.
std::size_t spilled_bytes(const std::filesystem::path& process, const std::string& directory) {
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(process / "fd")) {
    std::error_code gone;
    struct stat s{};
    if (!std::filesystem::read_symlink(entry.path(), gone).string().starts_with(directory + "/")) continue;
    if (::stat(entry.path().c_str(), &s) == 0 && S_ISREG(s.st_mode))
      bytes += static_cast<std::size_t>(s.st_blocks) * 512;
  }
  return bytes;
}

// With --spill A:B, which the environment has (directories.sh): every rank has stripes in both.
TEST(TiersDirectories, BothGetData) {
  const std::string both = std::getenv("KASANE_SPILL") != nullptr ? std::getenv("KASANE_SPILL") : "";
  const std::size_t colon = both.find(':');
  if (colon == std::string::npos) GTEST_SKIP() << "one directory";
  std::ifstream children("/proc/" + std::to_string(::getppid()) + "/task/" + std::to_string(::getppid()) +
                         "/children");
  std::vector<std::string> ranks;
  for (std::string pid; children >> pid;) ranks.push_back(pid);
  ASSERT_EQ(ranks.size(), kasane::ranks());
  const std::size_t words = 2 * data_bytes(kasane::page_default) / 8;
  std::uint64_t* const data = allocate(words, placement::block, kasane::page_default);
  EXPECT_EQ(kasane::run([=] {
              kasane::parallel_for(std::size_t{0}, words, [=](std::size_t i) { data[i] = mix(i); });
              return wrong(data, words, [](std::size_t i) { return mix(i); });
            }),
            0u);
  for (const std::string& rank : ranks)
    for (const std::string& directory : {both.substr(0, colon), both.substr(colon + 1)})
      EXPECT_GE(spilled_bytes("/proc/" + rank, directory), std::size_t{2} << 20)
          << "rank of process " << rank << " in " << directory;
  kasane::deallocate(data);
}

}  // namespace
