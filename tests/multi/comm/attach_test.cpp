// SPDX-License-Identifier: Apache-2.0
// How ranks of one host come to reach each other's memory: many ranks, many regions, huge ones, and
// disagreement.
#include <algorithm>
#include <fstream>
#include <iterator>

#include "every_transport.h"

namespace kasane::comm::test {
namespace {

std::byte* map(int fd, std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  EXPECT_NE(p, MAP_FAILED);
  return static_cast<std::byte*>(p);
}

/// Marks region id of this rank, attaches it, and returns once all ranks can check each other's mark. fd < 0:
/// the transport made the memory.
void attach_and_look(Transport& t, RegionId id, int fd, std::byte* local, std::size_t bytes) {
  const std::uint64_t mark = raw(t.rank()) * 100 + raw(id) + 1;
  std::memcpy(local + bytes - 8, &mark, 8);
  const auto attached = t.attach(id, fd, local, bytes);
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(t.mapped(t.rank(), id), local);
  for (std::uint32_t r = 0; r < t.ranks(); ++r) {
    std::uint64_t found = 0;
    EXPECT_EQ(t.read({Rank{r}, id, bytes - 8}, &found, 8, nullptr), Post::done);
    EXPECT_EQ(found, r * 100 + raw(id) + 1) << "region " << raw(id) << " of rank " << r;
  }
}

/// Of a file of its own.
void attach_marked(Transport& t, RegionId id, std::size_t bytes) {
  const int fd = make_memfd(bytes);
  std::byte* local = map(fd, bytes);
  attach_and_look(t, id, fd, local, bytes);
  ::close(fd);  // the mappings keep the memory
}

/// Of memory that the transport makes.
void attach_made(Transport& t, RegionId id, std::size_t bytes) {
  const auto made = t.make_memory(id, bytes);
  ASSERT_TRUE(made) << made.error().message;
  for (std::size_t i = 0; i < std::min<std::size_t>(bytes, 4096); ++i) ASSERT_EQ((*made)[i], std::byte{0});
  attach_and_look(t, id, -1, *made, bytes);
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

TEST(Attach, SeveralRegionsOneAfterTheOther) {
  kasane::test::run_ranks(ranks_wanted(), [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    EXPECT_EQ((*t)->mapped(Rank{0}, RegionId{3}), nullptr);
    for (std::uint32_t id = 0; id < kMaxRegions; ++id) attach_marked(**t, RegionId{id}, 4096 * (id + 1));
  });
}

// More ranks than a datagram queue holds offers (net.unix.max_dgram_qlen, 10 by default).
TEST(Attach, SixtyFourRanks) {
  kasane::test::run_ranks(
      64,
      [](const Job& job) {
        auto t = shm::create(job);
        ASSERT_TRUE(t) << t.error().message;
        PollWaiter waiter(**t);
        Collectives all(**t, waiter);
        for (std::uint32_t id = 0; id < 3; ++id) attach_marked(**t, RegionId{id}, 8192);
        std::uint64_t one[1] = {1};
        all.allreduce(Collectives::Reduce::sum, one);
        EXPECT_EQ(one[0], 64u);
        all.barrier();
      },
      std::chrono::seconds(120));
}

// More than the descriptors of one message (250): the table of them comes in two.
TEST(Attach, TwoHundredAndSixtyRanks) {
  kasane::test::run_ranks(
      260,
      [](const Job& job) {
        auto t = shm::create(job);
        ASSERT_TRUE(t) << t.error().message;
        attach_marked(**t, RegionId{0}, 8192);
      },
      std::chrono::seconds(120));
}

// Sizes that are no whole pages, and made regions between those with files; one mapping shows the memory of
// all ranks.
TEST(Attach, MemoryThatTheTransportMakes) {
  kasane::test::run_ranks(ranks_wanted(), [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    attach_made(**t, RegionId{0}, 4096);
    attach_marked(**t, RegionId{1}, 8192);
    attach_made(**t, RegionId{2}, 5000);
    attach_made(**t, RegionId{3}, std::size_t{1} << 34);
    std::byte* const first = (*t)->mapped(Rank{0}, RegionId{2});
    for (std::uint32_t r = 0; r < job.ranks; ++r)
      EXPECT_EQ((*t)->mapped(Rank{r}, RegionId{2}), first + r * 8192);
    const std::size_t before = mappings();
    attach_made(**t, RegionId{4}, 64 * 1024);
    EXPECT_LE(mappings(), before + 2);
    EXPECT_FALSE((*t)->make_memory(RegionId{4}, 4096)) << "once";
    EXPECT_FALSE((*t)->make_memory(RegionId{kMaxRegions}, 4096));
  });
}

TEST(Attach, WithoutADescriptorOnlyMadeMemoryIsTaken) {
  kasane::test::run_ranks(ranks_wanted(), [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    const int fd = make_memfd(4096);
    EXPECT_FALSE((*t)->attach(RegionId{0}, -1, map(fd, 4096), 4096));
  });
}

TEST(Attach, MadeMemoryOnOneRankAloneIsAnErrorOnEveryRank) {
  if (ranks_wanted() == 1) GTEST_SKIP() << "nobody to disagree with";
  kasane::test::run_ranks(ranks_wanted(), [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    if (job.rank == Rank{1}) {
      EXPECT_FALSE((*t)->attach(RegionId{0}, -1, (*t)->make_memory(RegionId{0}, 4096).value(), 4096));
    } else {
      const int fd = make_memfd(4096);
      EXPECT_FALSE((*t)->attach(RegionId{0}, fd, map(fd, 4096), 4096));
    }
  });
}

#if !defined(KASANE_SANITIZER_THREAD)  // its address layout has no room
TEST(Attach, ARegionOfOneTebibyte) {
  kasane::test::run_ranks(ranks_wanted(), [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    attach_marked(**t, RegionId{0}, std::size_t{1} << 40);
  });
}
#endif

TEST(Attach, DifferentSizesAreAnErrorOnEveryRank) {
  if (ranks_wanted() == 1) GTEST_SKIP() << "nobody to disagree with";
  kasane::test::run_ranks(ranks_wanted(), [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    const std::size_t bytes = job.rank == Rank{1} ? 8192 : 4096;
    const int fd = make_memfd(bytes);
    EXPECT_FALSE((*t)->attach(RegionId{0}, fd, map(fd, bytes), bytes));
  });
}

TEST(Attach, AFileThatIsTooShortIsAnErrorOnEveryRank) {
  if (ranks_wanted() == 1) GTEST_SKIP() << "nobody maps it";
  kasane::test::run_ranks(ranks_wanted(), [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    const int fd = make_memfd(job.rank == Rank{0} ? 4096 : 8192);
    EXPECT_FALSE((*t)->attach(RegionId{0}, fd, map(fd, 4096), 8192));
  });
}

}  // namespace
}  // namespace kasane::comm::test
