// SPDX-License-Identifier: Apache-2.0
// How many frames a first touch makes beside its own.
#include "dsm/windows.h"

#include <gtest/gtest.h>

#include <bitset>

namespace kasane::dsm {
namespace {

/// Fresh memory, of which a thread touches blocks.
class Memory {
 public:
  /// Returns how many frames the touch makes; 0: the block has one.
  unsigned touch(std::size_t b) {
    touched_[b] = true;
    if (frames_[b]) return 0;
    FramesAround around;
    for (std::size_t i = 0; i < around.frames.size(); ++i)
      around.frames[i] = frames_[b + i - kWindowBlocks] ? 1 : 0;
    const auto index = index_in_window(BlockId{b});
    const unsigned most = std::max(1u, around.used_with(index));
    unsigned made = 0;
    for (std::size_t i = b; i < b - index + kWindowBlocks && i < b + most; ++i) {
      made += frames_[i] ? 0 : 1;
      frames_[i] = true;
    }
    ++faults_;
    return made;
  }
  [[nodiscard]] std::size_t faults() const { return faults_; }
  [[nodiscard]] std::size_t touched() const { return touched_.count(); }
  [[nodiscard]] std::size_t made() const { return frames_.count(); }

 private:
  std::bitset<4096> frames_, touched_;
  std::size_t faults_ = 0;
};

TEST(FramesAround, OfScatteredTouchesOnlyTheirOwn) {
  Memory memory;
  for (std::size_t b = 32; b < 4000; b += 17) EXPECT_EQ(memory.touch(b), 1u);
  EXPECT_EQ(memory.made(), memory.touched());
}

TEST(FramesAround, ASweepIsFollowedByWindows) {
  Memory memory;
  for (std::size_t b = 32; b < 32 + 64 * kWindowBlocks; ++b) memory.touch(b);
  EXPECT_EQ(memory.made(), memory.touched());
  EXPECT_LE(memory.faults(), 64u + 5);
}

TEST(FramesAround, AboutTwiceWhatIsTouchedAtMost) {
  for (const std::size_t stride : {3, 5, 7, 11, 101}) {
    Memory memory;
    for (std::size_t n = 0, b = 0; n < 2000; ++n, b = (b + stride) % 1024) {
      memory.touch(32 + b);
      ASSERT_LE(memory.made(), memory.touched() * 9 / 4 + kWindowBlocks) << "stride " << stride;
    }
    EXPECT_LE(memory.faults(), 64u * 13) << "stride " << stride;
  }
}

}  // namespace
}  // namespace kasane::dsm
