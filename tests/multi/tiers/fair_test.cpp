// SPDX-License-Identifier: Apache-2.0
// A budget is shared fairly: a rank that needs its share gets it back from one that holds more, and one whose
// threads do nothing gives way below its share. On 2 ranks, with a budget of 32 MiB. A sweep over memory that
// fits reads nothing any more, once it has got its room; how soon is not asked.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <kasane/kasane.hpp>

namespace {

using kasane::placement;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A word of each block.
constexpr std::size_t kStep = 512;

struct Seen {
  bool got = false, elsewhere = false, right = true;
};

/// Rank 0 stores to so many bytes, and then does nothing; rank 1 goes over others again and again. Does a
/// round come that reads nothing back?
Seen gets_room(std::size_t idle, std::size_t busy) {
  return kasane::run([=] {
    Seen seen;
    auto* const there = static_cast<std::uint64_t*>(kasane::allocate(idle, 64, placement::on(0)));
    auto* const here = static_cast<std::uint64_t*>(kasane::allocate(busy, 64, placement::on(1)));
    const auto fill = [](std::uint64_t* data, std::size_t bytes) {
      for (std::size_t i = 0; i < bytes / 8; i += kStep) data[i] = i + 1;
    };
    kasane::thread(kasane::near{there}, [=] { fill(there, idle); }).join();
    kasane::thread(kasane::near{here}, [=, &seen] {
      fill(here, busy);
      bool got = false, right = true;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!got && std::chrono::steady_clock::now() < end) {
        const auto before = kasane::counter("bytes_read_back");
        for (std::size_t i = 0; i < busy / 8; i += kStep) right = right && here[i] == i + 1;
        got = kasane::counter("bytes_read_back") == before;
      }
      seen = {got, kasane::rank() == 1, right};
    }).join();
    kasane::thread(kasane::near{there}, [=, &seen] {
      bool right = true;
      for (std::size_t i = 0; i < idle / 8; i += kStep) right = right && there[i] == i + 1;
      seen.right = seen.right && right;
    }).join();
    kasane::deallocate(there);
    kasane::deallocate(here);
    return seen;
  });
}

void expect_room(std::size_t idle, std::size_t busy) {
  const Seen seen = gets_room(idle, busy);
  EXPECT_TRUE(seen.got) << "each round over " << busy / kMiB << " MiB reads some of them back";
  EXPECT_TRUE(seen.elsewhere);
  EXPECT_TRUE(seen.right);
}

TEST(Fair, ARankGetsItsShareBack) { expect_room(30 * kMiB, 8 * kMiB); }
TEST(Fair, ARankWithoutWorkGivesWay) { expect_room(16 * kMiB, 22 * kMiB); }

}  // namespace
