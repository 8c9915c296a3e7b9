// SPDX-License-Identifier: Apache-2.0
// A rank has stored to memory of another and freed it, and not released since: its block keeps a twin. The
// other allocates the memory anew, a page for each rank; the first one's is on its SSD then, where it never
// was. Its next release, or acquire, finds that out holding the block's bit, and must not wait until the page
// was brought in: that waits for the bit (docs/design/tiers.md). On 2 or more ranks, with a budget.
#include <gtest/gtest.h>

#include <cstdint>
#include <kasane/kasane.hpp>
#include <thread>

namespace {

using kasane::placement;

constexpr std::size_t kPage = kasane::page_default, kWords = kPage / 8;
constexpr int kTested = 4, kMostRounds = 500;  ///< where a thread is, is up to the runtime

enum class Finds { release, acquire };

std::uint64_t value(std::size_t i) { return (i + 1) * 0x9E3779B97F4A7C15u; }

/// A page for each rank.
std::uint64_t* allocate(placement where) {
  return static_cast<std::uint64_t*>(kasane::allocate(kasane::ranks() * kPage, kPage, where));
}

void fill(std::uint64_t* data) {
  for (std::size_t i = 0; i < kWords; ++i) data[i] = value(i);
}
std::uint64_t wrong(const std::uint64_t* data) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < kWords; ++i) n += data[i] != value(i);
  return n;
}

/// Without a fence, and without letting this worker's other threads run, which could be one.
std::uint64_t await_other_than(std::uint64_t old, std::uint64_t& word) {
  for (;; std::this_thread::yield()) {
    const std::uint64_t now = kasane::atomic_ref(word).load();
    if (now != old) return now;
  }
}

struct Result {
  int tested =
      0;  ///< rounds in which the memory was what had been freed, and both threads were where they should be
  std::uint64_t bad = 0;  ///< words
};

Result run_rounds(Finds finds) {
  return kasane::run([finds] {
    Result result;
    std::uint64_t* const anchors = allocate(placement::block);
    std::uint64_t* const progress = anchors + 1;
    for (int round = 0; round < kMostRounds && result.tested < kTested; ++round) {
      const std::uint32_t me = kasane::rank(), there = (me + 1) % kasane::ranks();
      const std::size_t page = there * kWords;  // of each array, as words
      kasane::atomic_ref(*progress).store(0);
      std::uint64_t* const old = allocate(placement::local);
      for (std::size_t i = 0; i < kasane::ranks() * kWords; i += kWords / 16) old[i] = i;
      std::uint32_t other_was_at = me;
      kasane::thread other(kasane::near{anchors + page}, [=, &other_was_at] {
        const std::uint32_t at = kasane::rank();
        old[page + 8] = 2;
        kasane::deallocate(old);
        kasane::atomic_ref(*progress).store(1);
        auto* const fresh = reinterpret_cast<std::uint64_t*>(await_other_than(1, *progress));
        if (finds == Finds::acquire) {
          kasane::acquire_all();
          fill(fresh + page);
        }
        other_was_at = at;
      });
      await_other_than(0, *progress);
      std::uint64_t* const fresh = allocate(placement::block);
      const bool stayed = kasane::rank() == me;
      kasane::release_all();
      kasane::atomic_ref(*progress).store(reinterpret_cast<std::uint64_t>(fresh));
      other.join();
      if (finds == Finds::release) fill(fresh + page);
      result.tested += fresh == old && stayed && other_was_at == there;
      std::uint64_t bad_there = 0;
      kasane::thread look(kasane::near{fresh + page}, [=, &bad_there] { bad_there = wrong(fresh + page); });
      look.join();
      result.bad += bad_there + wrong(fresh + page);
      kasane::deallocate(fresh);
    }
    kasane::deallocate(anchors);
    return result;
  });
}

TEST(Handed, ToARankWhoseReleaseHasATwin) {
  const Result result = run_rounds(Finds::release);
  EXPECT_EQ(result.bad, 0u);
  EXPECT_GE(result.tested, 1) << "else nothing was tested";
}

TEST(Handed, ToARankWhoseAcquireHasATwin) {
  const Result result = run_rounds(Finds::acquire);
  EXPECT_EQ(result.bad, 0u);
  EXPECT_GE(result.tested, 1) << "else nothing was tested";
}

}  // namespace
