// SPDX-License-Identifier: Apache-2.0
// The tables behind caught system calls: what a call names, and whose descriptor a number is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <map>

#include "runtime/process/call_table.h"
#include "runtime/process/stream_ranks.h"
#include "runtime/rank/descriptors.h"

namespace kasane::runtime {
namespace {

TEST(CallTable, SaysWhatACallNames) {
  const CallEntry* const read = find_call(SYS_pread64);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->memory[0].argument, 1);
  EXPECT_EQ(read->memory[0].length, 2);
  EXPECT_EQ(read->memory[0].way, Way::out);
  EXPECT_EQ(read->offset, 3);
  EXPECT_EQ(read->pieces, Pieces::reads);
  EXPECT_EQ(find_call(SYS_getpid), nullptr);
  EXPECT_EQ(find_call(-1), nullptr);
  EXPECT_EQ(find_call(100000), nullptr);
  EXPECT_TRUE(manages_addresses(SYS_madvise));
  EXPECT_FALSE(manages_addresses(SYS_getpid));
}

// A call that is made in parts is cut in its first memory, whose length an argument says.
TEST(CallTable, WhatIsMadeInPartsCanBeCut) {
  for (long number = 0; number < 512; ++number) {
    const CallEntry* const entry = find_call(number);
    if (entry == nullptr || entry->pieces == Pieces::none) continue;
    const Shape shape = entry->memory[0].shape;
    EXPECT_TRUE(shape == Shape::items || shape == Shape::vectors || shape == Shape::header) << entry->name;
    if (shape == Shape::items) {
      EXPECT_EQ(entry->memory[0].item, 1) << entry->name;
    }
  }
}

TEST(CallTable, CommandsSayWhatTheyName) {
  EXPECT_EQ(argument_of_ioctl(_IOR('x', 1, char[24])).item, 24);
  EXPECT_EQ(argument_of_ioctl(_IOW('x', 1, char[24])).way, Way::in);
  EXPECT_GT(argument_of_ioctl(FIONREAD).item, 3);
  EXPECT_EQ(argument_of_fcntl(F_SETLK).item, sizeof(struct flock));
  EXPECT_EQ(argument_of_fcntl(F_GETFL).shape, Shape::none);
}

TEST(Descriptors, EachNumberIsOneRanks) {
  for (const std::uint32_t ranks : {2u, 4u, 7u, 40u, 300u}) {
    std::map<long, std::uint32_t> owner;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const Descriptors d(ranks, Rank{r}, 20000);
      for (const Descriptors::Numbers& part : d.own())
        for (std::uint32_t i = 0; i < part.count; ++i) {
          const long number = part.first + i;
          EXPECT_TRUE(owner.emplace(number, r).second);
          EXPECT_EQ(d.owner(number), Rank{r});
          EXPECT_FALSE(d.elsewhere(number));
        }
      for (const long number : {-1L, 0L, 2L, 255L, 20000L, 1L << 40}) EXPECT_EQ(d.owner(number), kNoRank);
    }
    EXPECT_EQ(owner.empty(), !Descriptors(ranks, Rank{0}, 20000).divided());
    EXPECT_EQ(owner.count(300), ranks <= 40 ? 1u : 0u);  // what select() can name, where there is enough
  }
  EXPECT_FALSE(Descriptors(1, Rank{0}, 20000).divided());
  EXPECT_FALSE(Descriptors(4, Rank{0}, 256).divided());
}

// However far apart an allocator places streams, each rank finds an address of its own soon.
TEST(StreamRanks, SpreadsEveryStrideOverTheRanks) {
  for (const std::uint32_t ranks : {2u, 3u, 4u, 64u, 1024u}) {
    for (const std::uint64_t stride : {16u, 480u, 544u, 4096u, 32816u}) {
      std::map<Rank, int> found;
      for (std::uint64_t i = 0; i < 32 * ranks; ++i)
        ++found[rank_of_stream(0x55d91f06d8b0 + i * stride, ranks)];
      EXPECT_EQ(found.size(), ranks) << stride;
      EXPECT_LT(raw(found.rbegin()->first), ranks);
    }
  }
}

}  // namespace
}  // namespace kasane::runtime
