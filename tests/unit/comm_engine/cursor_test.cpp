// SPDX-License-Identifier: Apache-2.0
// A cursor visits exactly the bytes of the shape, in any steps; short copies move exactly their bytes.
#include "comm/engine/cursor.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "comm/copy.h"

namespace kasane::comm {
namespace {

/// remote byte → local byte, by nested loops.
std::map<std::uint64_t, std::uint64_t> expected(const Strides& s) {
  std::map<std::uint64_t, std::uint64_t> bytes;
  std::vector<std::uint64_t> index(s.dimensions, 0);
  for (bool more = true; more;) {
    std::uint64_t remote = index[0], local = index[0];
    for (std::uint32_t d = 1; d < s.dimensions; ++d) {
      remote += index[d] * s.remote_stride[d - 1];
      local += index[d] * s.local_stride[d - 1];
    }
    bytes[remote] = local;
    more = false;
    for (std::uint32_t d = 0; d < s.dimensions && !more; ++d) {
      more = ++index[d] < s.count[d];
      if (!more) index[d] = 0;
    }
  }
  return bytes;
}

TEST(Cursor, VisitsEachByteOfAPatchOnce) {
  std::minstd_rand rng(7);
  for (int n = 0; n < 300; ++n) {
    Strides s{.dimensions = 1 + static_cast<std::uint32_t>(rng() % 4)};
    std::uint64_t remote = s.count[0] = 1 + rng() % 6, local = remote;
    for (std::uint32_t d = 1; d < s.dimensions; ++d) {
      s.count[d] = 1 + rng() % 4;
      s.remote_stride[d - 1] = remote + rng() % 2 * 3;  // often end to end: rows fold
      s.local_stride[d - 1] = local + rng() % 2 * 5;
      remote = s.remote_stride[d - 1] * s.count[d];
      local = s.local_stride[d - 1] * s.count[d];
    }
    std::map<std::uint64_t, std::uint64_t> seen;
    for (Cursor c(s); !c.done();) {
      const Piece p = c.piece();
      ASSERT_GT(p.bytes, 0u);
      const std::uint64_t now = 1 + rng() % p.bytes;
      for (std::uint64_t i = 0; i < now; ++i)
        ASSERT_TRUE(seen.emplace(p.remote_offset + i, p.local_offset + i).second);
      c.consume(now);
    }
    ASSERT_EQ(seen, expected(s)) << "patch " << n;
  }
}

TEST(Cursor, NothingIsDoneAtOnce) {
  EXPECT_TRUE(Cursor().done());
  EXPECT_TRUE(
      Cursor(Strides{.dimensions = 2, .count = {0, 4}, .remote_stride = {8}, .local_stride = {8}}).done());
  EXPECT_TRUE(
      Cursor(Strides{.dimensions = 2, .count = {4, 0}, .remote_stride = {8}, .local_stride = {8}}).done());
  EXPECT_TRUE(Cursor(std::span<const Piece>{}).done());
  const Piece empty[]{{1, 2, 0}, {3, 4, 0}};
  EXPECT_TRUE(Cursor(empty).done());
}

TEST(Cursor, SkipsEmptyPiecesOfAList) {
  const Piece list[]{{0, 0, 0}, {10, 20, 5}, {0, 0, 0}, {30, 40, 1}, {0, 0, 0}};
  Cursor c(list);
  EXPECT_EQ(c.piece().remote_offset, 10u);
  c.consume(2);
  EXPECT_EQ(c.piece().remote_offset, 12u);
  EXPECT_EQ(c.piece().bytes, 3u);
  c.consume(3);
  EXPECT_EQ(c.piece().local_offset, 40u);
  c.consume(1);
  EXPECT_TRUE(c.done());
}

TEST(Copy, MovesExactlyItsBytes) {
  for (std::size_t bytes = 0; bytes <= 200; ++bytes) {
    for (const std::size_t shift : {0, 1, 5, 8}) {
      std::vector<std::byte> from(300), to(300, std::byte{0xEE});
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
      copy_bytes(to.data() + 40 + shift, from.data() + 32, bytes);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= 40 + shift && i < 40 + shift + bytes;
        ASSERT_EQ(to[i], inside ? from[32 + i - 40 - shift] : std::byte{0xEE}) << bytes << " bytes, at " << i;
      }
    }
  }
}

TEST(Copy, UpToALineBothEndsMayOverlap) {
  for (std::size_t bytes = 1; bytes <= 64; ++bytes) {
    std::vector<std::byte> memory(200), expected;
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
    expected = memory;
    std::memmove(expected.data() + 53, expected.data() + 50, bytes);
    copy_bytes(memory.data() + 53, memory.data() + 50, bytes);
    ASSERT_EQ(memory, expected) << bytes;
  }
}

}  // namespace
}  // namespace kasane::comm
