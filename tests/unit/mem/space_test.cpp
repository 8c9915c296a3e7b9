// SPDX-License-Identifier: Apache-2.0
#include "mem/space.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "fixtures.h"
#include "mem/engines.h"
#include "mem/populate.h"

namespace kasane::mem {
namespace {

constexpr std::size_t kTiB = std::size_t{1} << 40;

std::uint64_t frames_in_use(const Space& s) {
  struct stat st{};
  EXPECT_EQ(::fstat(s.frames_fd(), &st), 0);
  return static_cast<std::uint64_t>(st.st_blocks) * 512 / kBlockBytes;
}

TEST(Space, AByteStoredInOneViewIsSeenInTheOther) {
  Space s = make_space(16 * kPageBytes);
  std::strcpy(reinterpret_cast<char*>(s.a(3 * kPageBytes + 5)), "kasane");
  ASSERT_EQ(::mprotect(s.v(3 * kPageBytes), kBlockBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_STREQ(reinterpret_cast<char*>(s.v(3 * kPageBytes + 5)), "kasane");
  *s.v(3 * kPageBytes) = std::byte{7};
  EXPECT_EQ(*s.a(3 * kPageBytes), std::byte{7});
  EXPECT_EQ(*s.t(3 * kPageBytes), std::byte{0}) << "twins are another file";
}

TEST(Space, KnowsItsAddresses) {
  Space s = make_space(4 * kPageBytes);
  EXPECT_TRUE(s.contains(s.v(0)));
  EXPECT_TRUE(s.contains(s.v(0) + s.bytes() - 1));
  EXPECT_FALSE(s.contains(s.v(0) + s.bytes()));
  EXPECT_FALSE(s.contains(s.v(0) - 1));
  EXPECT_FALSE(s.contains(nullptr));
  EXPECT_FALSE(s.contains(s.a(0)));
  EXPECT_EQ(s.offset(s.v(12345)), 12345u);
  EXPECT_EQ(s.blocks(), 4 * kPageBytes / kBlockBytes);
}

TEST(Space, CostsNothingUntilTouched) {
  Space s = make_space(kThreadSanitized ? kTiB / 1024 : kTiB);
  EXPECT_EQ(frames_in_use(s), 0u);
  *s.a(s.bytes() - 1) = std::byte{1};
  EXPECT_EQ(frames_in_use(s), 1u);
}

TEST(Space, PopulatedFramesAreThereAndUnchanged) {
  Space s = make_space(4 * kPageBytes);
  *s.a(kPageBytes + 100) = std::byte{9};
  populate(s.a(kPageBytes + 1), kPageBytes - 1);
  EXPECT_EQ(frames_in_use(s), kPageBytes / kBlockBytes);
  EXPECT_EQ(*s.a(kPageBytes + 100), std::byte{9});
  populate(s.v(0), kPageBytes);  // not armed: makes no frame, and does no harm
  EXPECT_EQ(frames_in_use(s), kPageBytes / kBlockBytes);
}

TEST(Space, APartShowsTheFramesOfAnother) {
  Space mine = make_space(8 * kPageBytes), theirs = make_space(8 * kPageBytes);
  *mine.a(2 * kPageBytes) = std::byte{1};
  *theirs.a(2 * kPageBytes) = std::byte{2};
  ASSERT_TRUE(mine.show(2 * kPageBytes, kPageBytes, theirs.a(2 * kPageBytes)));
  EXPECT_EQ(*mine.a(2 * kPageBytes), std::byte{2});
  EXPECT_EQ(*mine.v(2 * kPageBytes), std::byte{2}) << "V is open there";
  *mine.v(3 * kPageBytes - 1) = std::byte{3};
  EXPECT_EQ(*theirs.a(3 * kPageBytes - 1), std::byte{3});
  *theirs.a(3 * kPageBytes) = std::byte{4};
  EXPECT_EQ(*mine.a(3 * kPageBytes), std::byte{0}) << "beside it everything is as before";
  EXPECT_FALSE(mine.show(0, kPageBytes, nullptr));
}

TEST(Space, MovesAndGivesItsAddressesBack) {
  std::byte* base;
  {
    Space first = make_space(4 * kPageBytes);
    base = first.v(0);
    *first.a(1) = std::byte{3};
    Space second = std::move(first);
    EXPECT_EQ(second.v(0), base);
    EXPECT_EQ(*second.a(1), std::byte{3});
  }
  auto again = reserve_space(4 * kPageBytes, reinterpret_cast<std::uintptr_t>(base));
  ASSERT_TRUE(again) << again.error().message;
  ::munmap(*again, 4 * kPageBytes);
}

TEST(Reservation, IsRefusedWithNumbersWhereItCannotBe) {
  EXPECT_EQ(reserve_space(0).error().code, Errc::invalid_argument);
  EXPECT_EQ(reserve_space(kPageBytes + 1).error().code, Errc::invalid_argument);
  EXPECT_EQ(reserve_space(kPageBytes, 4097).error().code, Errc::invalid_argument);
  auto too_big = reserve_space(std::size_t{1} << 50);
  ASSERT_FALSE(too_big);
  EXPECT_EQ(too_big.error().code, Errc::limit);
  EXPECT_NE(too_big.error().message.find("1125899906842624"), std::string::npos) << too_big.error().message;
  EXPECT_EQ(Space::create(nullptr, kPageBytes).error().code, Errc::invalid_argument);
}

TEST(Reservation, TwoDoNotOverlap) {
  auto one = reserve_space(kPageBytes), two = reserve_space(kPageBytes);
  ASSERT_TRUE(one && two);
  EXPECT_NE(*one, *two);
  auto taken = reserve_space(kPageBytes, reinterpret_cast<std::uintptr_t>(*one));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Errc::limit);
  ::munmap(*one, kPageBytes);
  ::munmap(*two, kPageBytes);
}

// The launcher reserves before it forks the ranks; each then makes its own space at that address.
TEST(Reservation, IsInheritedByForkAndEachProcessHasItsOwnSpaceThere) {
  const std::size_t bytes = 16 * kPageBytes;
  auto base = reserve_space(bytes);
  ASSERT_TRUE(base);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (reserve_space(bytes, reinterpret_cast<std::uintptr_t>(*base))) ::_exit(2);  // must be taken here too
    auto space = Space::create(*base, bytes);
    if (!space) ::_exit(3);
    *space->a(0) = std::byte{1};
    ::_exit(space->v(0) == *base ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  auto space = Space::create(*base, bytes);
  ASSERT_TRUE(space) << space.error().message;
  EXPECT_EQ(*space->a(0), std::byte{0}) << "another process's frames";
}

TEST(Engines, SayWhatIsThereAndWhyNot) {
  const auto all = engines();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "uffd");
  EXPECT_FALSE(all[0].reason.empty());
  EXPECT_EQ(all[1].name, "mprotect");
  EXPECT_TRUE(all[1].available);
  EXPECT_EQ(all[2].name, "uffd-thread") << "auto takes one of those before it";
  EXPECT_FALSE(all[2].reason.empty());
}

}  // namespace
}  // namespace kasane::mem
