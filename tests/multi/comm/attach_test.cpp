// SPDX-License-Identifier: Apache-2.0
// How ranks of one host come to reach each other's memory: many ranks, many regions, huge ones, and disagreement.
#include "every_transport.h"

namespace kasane::comm::test {
namespace {

std::byte* map(int fd, std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  EXPECT_NE(p, MAP_FAILED);
  return static_cast<std::byte*>(p);
}

/// Attaches region id, marks it, and returns once all ranks can check each other's mark.
void attach_marked(Transport& t, RegionId id, std::size_t bytes) {
  const int fd = make_memfd(bytes);
  std::byte* local = map(fd, bytes);
  const std::uint64_t mark = raw(t.rank()) * 100 + raw(id) + 1;
  std::memcpy(local + bytes - 8, &mark, 8);
  const auto attached = t.attach(id, fd, local, bytes);
  ::close(fd);  // the mappings keep the memory
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(t.mapped(t.rank(), id), local);
  for (std::uint32_t r = 0; r < t.ranks(); ++r) {
    std::uint64_t found = 0;
    EXPECT_EQ(t.read({Rank{r}, id, bytes - 8}, &found, 8, nullptr), Post::done);
    EXPECT_EQ(found, r * 100 + raw(id) + 1) << "region " << raw(id) << " of rank " << r;
  }
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
  kasane::test::run_ranks(64, [](const Job& job) {
    auto t = shm::create(job);
    ASSERT_TRUE(t) << t.error().message;
    PollWaiter waiter(**t);
    Collectives all(**t, waiter);
    for (std::uint32_t id = 0; id < 3; ++id) attach_marked(**t, RegionId{id}, 8192);
    std::uint64_t one[1] = {1};
    all.allreduce(Collectives::Reduce::sum, one);
    EXPECT_EQ(one[0], 64u);
    all.barrier();
  }, std::chrono::seconds(120));
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
