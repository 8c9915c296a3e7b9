// SPDX-License-Identifier: Apache-2.0
// Blocks that are read through bounce buffers: which thread gets which buffer, which bytes reach which frame,
// and what happens when something fails.
#include "mem/bounce_buffers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/random.h"
#include "mem/large_frames.h"
#include "spill_fixtures.h"
#include "support/folder.h"
#include "support/sanitized.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kPieces = BounceBuffers::kBytes / BounceBuffers::kBufferBytes,
                        kAllButOne = BounceBuffers::kBytes - BounceBuffers::kBufferBytes;

TEST(BounceBuffers, GivesWhatIsAskedForUpToAPiece) {
  const Frames frames;
  const auto buffers = frames.make_buffers();
  for (const std::uint64_t bytes :
       {std::uint64_t{kBlockBytes}, 5 * kBlockBytes, std::uint64_t{BounceBuffers::kBufferBytes}}) {
    const auto taken = buffers->take(bytes);
    EXPECT_EQ(taken.size(), bytes);
    EXPECT_EQ(taken.data(), buffers->memory().data()) << "what was used last is in the cache";
    buffers->give_back(taken);
  }
  const auto taken = buffers->take(1u << 20);
  EXPECT_EQ(taken.size(), BounceBuffers::kBufferBytes);
  buffers->give_back(taken);
}

TEST(BounceBuffers, IsGivenUntilAllIsTaken) {
  const Frames frames;
  const auto buffers = frames.make_buffers();
  std::vector<std::span<std::byte>> all;
  for (std::uint64_t i = 0; i < kPieces; ++i) all.push_back(buffers->take(kBlockBytes));
  for (const auto& piece : all) EXPECT_EQ(piece.size(), kBlockBytes);
  EXPECT_TRUE(buffers->take(kBlockBytes).empty());
  for (const std::size_t i : {20, 7}) buffers->give_back(all[i]);
  for (const std::size_t i : {7, 20}) EXPECT_EQ(buffers->take(kBlockBytes).data(), all[i].data());
  EXPECT_TRUE(buffers->take(kBlockBytes).empty());
  for (const auto& piece : all) buffers->give_back(piece);
}

// A buffer belongs to one thread.
TEST(BounceBuffers, ThreadsNeverShareAPiece) {
  const Frames frames;
  const auto buffers = frames.make_buffers();
  std::atomic<int> nothing_left{0};
  const auto work = [&](int self) {
    Random random(static_cast<std::uint64_t>(self));
    const unsigned rounds = fewer_if_sanitized(3000u);
    // Few may have passed before the next thread begins
    for (unsigned i = 0; i < rounds || (nothing_left == 0 && i < 1000 * rounds); ++i) {
      std::vector<std::span<std::byte>> mine;
      for (std::uint64_t n = random.below(40); n-- != 0;) {
        const auto taken = buffers->take((1 + random.below(16)) * kBlockBytes);
        if (taken.empty())
          nothing_left.fetch_add(1);
        else
          mine.push_back(taken);
      }
      for (const auto& piece : mine)
        std::memset(piece.data(), self, kBlockBytes), piece.back() = std::byte(self);
      for (const auto& piece : mine) {
        ASSERT_TRUE(piece.front() == std::byte(self) && piece[kBlockBytes - 1] == std::byte(self) &&
                    piece.back() == std::byte(self));
        buffers->give_back(piece);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t) threads.emplace_back(work, t);
  for (std::thread& t : threads) t.join();
  EXPECT_GT(nothing_left, 0) << "the threads never met";
}

// Where the kernel makes large frames, those that a run covers are made in place. A part of one would make
// all of it.
TEST(BounceBuffers, WholeLargeFramesAreMadeInPlace) {
  constexpr std::uint64_t kLarge = 64u << 10;
  const Frames frames;
  const auto part = [&](const BounceBuffers& s, std::uint64_t offset, std::uint64_t bytes) {
    const BounceBuffers::FirstRead p = s.first_read(frames.base(), offset, bytes);
    return std::pair(p.bytes, p.staged);
  };
  const auto without = frames.make_buffers();
  EXPECT_EQ(part(*without, kLarge, kLarge), std::pair(kLarge, true));
  const auto with = frames.make_buffers(kLarge, kLarge);
  EXPECT_EQ(part(*with, kLarge, kLarge), std::pair(kLarge, false));
  EXPECT_EQ(part(*with, kLarge, 3 * kLarge + kBlockBytes), std::pair(3 * kLarge, false));
  EXPECT_EQ(part(*with, 4 * kLarge, kBlockBytes), std::pair(std::uint64_t{kBlockBytes}, true));
  EXPECT_EQ(part(*with, kLarge - 2 * kBlockBytes, 2 * kLarge),
            std::pair(std::uint64_t{2 * kBlockBytes}, true));
  // They are punched one by one, so large frames were not advised
  const auto small_pages = frames.make_buffers(kBlockBytes, kLarge);
  EXPECT_EQ(part(*small_pages, kLarge, kLarge), std::pair(kLarge, true));
}

// The blocks of a part, and no others, get frames: through a buffer, or in place where no buffer is free.
TEST(BounceBuffers, APartOfALargeFrameMakesItsOwnBlocksOnly) {
  const std::uint64_t large = large_frame_bytes();
  if (large == 0 || large > kPageBytes)
    GTEST_SKIP() << "this machine gives shared memory no large frames "
                    "(transparent_hugepage/hugepages-64kB/shmem_enabled)";
  const Frames frames;
  ask_for_large_frames(frames.base(), 0, kFramesBytes, kPageBytes, large);
  const auto of = [&](std::uint64_t frame) {
    return SpillRange{frame * large + kBlockBytes, 2 * kBlockBytes};
  };
  const auto just = [&](SpillRange r) {
    return frames.full(r) && frames.empty({r.offset / large * large, r.offset % large}) &&
           frames.empty({r.offset + r.bytes, large - r.offset % large - r.bytes});
  };
  frames.fill({of(0).offset, 1}, 1);
  ASSERT_TRUE(frames.full({0, large})) << "a store does not make a large frame here";
  const auto buffers = frames.make_buffers(kPageBytes, large);
  const std::vector<std::byte> bytes(of(1).bytes, std::byte{7});
  ASSERT_EQ(buffers->deliver(of(1).offset, bytes), 0);
  EXPECT_TRUE(just(of(1)) && frames.holds(of(1), 7));
  buffers->make_small(of(2).offset, of(2).bytes);
  frames.fill(of(2), 8);
  EXPECT_TRUE(just(of(2)) && frames.holds(of(2), 8));
  frames.fill({of(2).offset + of(2).bytes, 1}, 9);  // the frames around the small ones exist
  EXPECT_TRUE(frames.empty({2 * large, kBlockBytes}) &&
              frames.empty({of(2).offset + of(2).bytes + kBlockBytes, kBlockBytes}));
}

TEST(BounceBuffers, OtherMemoryIsReadInPlace) {
  const Frames frames;
  const auto buffers = frames.make_buffers();
  EXPECT_FALSE(buffers->first_read(frames.base() + kBlockBytes, 0, kBlockBytes).staged);
}

class StagedReadTest : public SpillTest {};
std::vector<Way> staged_ways() {
  auto ways = ways_here();
  std::erase_if(ways, [](const Way& w) { return !w.staged; });
  return ways;
}
INSTANTIATE_TEST_SUITE_P(Ways, StagedReadTest, ::testing::ValuesIn(staged_ways()), way_name);

int value_of(std::uint64_t block) { return static_cast<int>(block % 250 + 1); }

// Runs of every length and place within a buffer and around its end: their bytes, their frames and no others.
TEST_P(StagedReadTest, EveryLengthMakesItsFramesAndNoOthers) {
  for (std::uint64_t b = 0; b < 80; ++b) frames.fill(blocks(b), value_of(b));
  ASSERT_EQ(write({blocks(0, 80)}), 0);
  for (std::uint64_t first : {1, 2, 7, 8, 9, 15, 16, 17}) {
    for (std::uint64_t n = 1; n <= 40; n += n < 20 ? 1 : 5) {
      frames.punch({0, kFramesBytes});
      const std::uint64_t before = file.counts().bytes_staged;
      ASSERT_EQ(read({blocks(first, n)}), 0);
      ASSERT_EQ(file.counts().bytes_staged - before, n * kBlockBytes);
      ASSERT_TRUE(frames.empty(blocks(0, first)) && frames.full(blocks(first, n)) &&
                  frames.empty(blocks(first + n, 100)))
          << first << ", " << n;
      for (std::uint64_t b = first; b < first + n; ++b)
        ASSERT_TRUE(frames.holds(blocks(b), value_of(b))) << first << ", " << n << ": " << b;
    }
  }
}

/// Fills every second block, and notes the blocks that it was asked for.
class EverySecond final : public FaultEngine {
 public:
  explicit EverySecond(const Frames& frames) : frames_(frames) {}
  std::string_view name() const noexcept override { return "every second"; }
  Result<void> start(FaultHandler, void*) override { return {}; }
  void stop() noexcept override {}
  Result<void> leave_open(BlockRange) override { return {}; }
  bool protect(BlockRange, Access) noexcept override { return true; }
  bool crowded() const noexcept override { return false; }
  std::uint64_t fill(BlockRange run, const std::byte* bytes, Access right) noexcept override {
    others += right != wanted;
    for (std::uint64_t b = raw(run.first); b < raw(run.first) + run.count; ++b) asked.push_back(b);
    if (raw(run.first) % 2 != 0) return 0;
    std::memcpy(frames_.base() + offset_of(run.first), bytes, kBlockBytes);
    return 1;
  }
  std::vector<std::uint64_t> asked;
  Access wanted = Access::read;
  std::uint64_t others = 0;  ///< requests for other blocks

 private:
  const Frames& frames_;
};

// The engine fills the blocks that may be shown, and no others; what it leaves is copied as usual.
TEST_P(StagedReadTest, TheEngineFillsWhatMayBeSeen) {
  for (std::uint64_t b = 0; b < 80; ++b) frames.fill(blocks(b), value_of(b));
  ASSERT_EQ(write({blocks(0, 80)}), 0);
  for (const auto& [hidden, count] : {std::pair<std::uint64_t, std::uint64_t>{0, 0},
                                      {0, 80},
                                      {10, 1},
                                      {30, 16},
                                      {78, 20},
                                      {std::uint64_t{1} << 63, 16}}) {
    frames.punch({0, kFramesBytes});
    EverySecond second(frames);
    if (hidden % 20 == 10) second.wanted = Access::write;
    std::vector<SpillRange> ranges{blocks(8, 40), blocks(60, 20)};
    SpillBatch batch(frames.base(), ranges, {&second, {BlockId{hidden}, count}, second.wanted});
    queue->run(batch);
    ASSERT_EQ(batch.error(), 0);
    EXPECT_EQ(second.others, 0u);
    std::sort(second.asked.begin(), second.asked.end());
    std::vector<std::uint64_t> seen;
    for (std::uint64_t b = 8; b < 80; ++b) {
      if (b >= 48 && b < 60) continue;
      EXPECT_TRUE(frames.holds(blocks(b), value_of(b))) << b;
      if (b - hidden >= count) seen.push_back(b);
    }
    EXPECT_EQ(second.asked, seen) << hidden << ", " << count;
  }
}

// A frame that exists is overwritten.
TEST_P(StagedReadTest, FramesMayBeThere) {
  frames.fill(blocks(0, 32), 5);
  ASSERT_EQ(write({blocks(0, 32)}), 0);
  for (std::uint64_t b = 0; b < 32; ++b) {
    if (b % 3 == 0)
      frames.punch(blocks(b));
    else
      frames.fill(blocks(b), 9);
  }
  ASSERT_EQ(read({blocks(0, 32)}), 0);
  EXPECT_TRUE(frames.holds(blocks(0, 32), 5));
}

// More at once than the buffers hold: what finds no buffer is read in place; no read waits.
TEST_P(StagedReadTest, MoreThanThereIsStagingFor) {
  for (std::uint64_t b = 0; b < kFramesBytes / kBlockBytes; ++b) frames.fill(blocks(b), value_of(b));
  ASSERT_EQ(write({{0, kFramesBytes}}), 0);
  frames.punch({0, kFramesBytes});
  // A queue has as many slots as there are buffers: one buffer stays free.
  const auto other = make_queue(file);
  std::vector<SpillRange> all[2]{{{0, kAllButOne}}, {{kAllButOne, kFramesBytes - kAllButOne}}};
  SpillBatch first{SpillOp::read, frames.base(), all[0]}, second{SpillOp::read, frames.base(), all[1]};
  ASSERT_TRUE(queue->submit(first));
  ASSERT_TRUE(other->submit(second)) << "it has fewer runs than there are slots";
  queue->wait(first), other->wait(second);
  ASSERT_EQ(first.error(), 0);
  ASSERT_EQ(second.error(), 0);
  EXPECT_EQ(file.counts().bytes_staged, BounceBuffers::kBytes);
  for (std::uint64_t b = 0; b < kFramesBytes / kBlockBytes; ++b)
    ASSERT_TRUE(frames.holds(blocks(b), value_of(b))) << b;
}

// One queue has all buffers but one, and no thread completes its reads: other queues go on.
TEST_P(StagedReadTest, AQueueThatIsNotPolledHoldsUpNoOther) {
  frames.fill({0, kFramesBytes}, 6);
  ASSERT_EQ(write({{0, kFramesBytes}}), 0);
  frames.punch({0, kFramesBytes});
  std::vector<SpillRange> ranges{{0, kAllButOne}};
  SpillBatch forgotten{SpillOp::read, frames.base(), ranges};
  ASSERT_TRUE(queue->submit(forgotten));
  const auto other = make_queue(file);
  std::vector<SpillRange> rest{{kAllButOne, BounceBuffers::kBytes}};
  SpillBatch batch{SpillOp::read, frames.base(), rest};
  other->run(batch);
  EXPECT_EQ(batch.error(), 0);
  EXPECT_EQ(file.counts().bytes_staged, BounceBuffers::kBufferBytes);
  queue->wait(forgotten);
  EXPECT_EQ(forgotten.error(), 0);
  EXPECT_EQ(file.counts().bytes_staged, BounceBuffers::kBytes);
  EXPECT_TRUE(frames.holds({0, kAllButOne + BounceBuffers::kBytes}, 6));
}

// No effect is visible: no frame is made.
TEST_P(StagedReadTest, AFailedReadMakesNoFrame) {
  frames.fill(blocks(0, 8), 3);
  ASSERT_EQ(write({blocks(0, 8)}), 0);
  frames.punch({0, kFramesBytes});
  engine->fail(1, -EIO);
  EXPECT_EQ(read({blocks(0, 8)}), EIO);
  EXPECT_TRUE(frames.empty({0, kFramesBytes}));
  // The transfer is short, and the rest cannot be read: the device has lost the end of the file.
  ASSERT_EQ(::ftruncate(file.fd(0), static_cast<off_t>(4 * kBlockBytes)), 0);
  EXPECT_EQ(read({blocks(0, 8)}), EIO);
  EXPECT_TRUE(frames.empty({0, kFramesBytes}));
  EXPECT_EQ(file.counts().failures, 2u);
  EXPECT_EQ(read({blocks(0, 4)}), 0) << "the piece is to be had again";
  EXPECT_TRUE(frames.holds(blocks(0, 4), 3));
}

// Memory that takes no frame: reported like every failed read.
TEST_P(StagedReadTest, AMemoryFileThatFailsIsTold) {
  frames.fill(blocks(0, 8), 3);
  ASSERT_EQ(write({blocks(0, 8)}), 0);
  const int read_only =
      ::open(("/proc/self/fd/" + std::to_string(frames.fd())).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(read_only, 0);
  {
    const auto refusing = *BounceBuffers::create({read_only, frames.base(), *Pages::uniform(kSpaceBytes), 0});
    const auto other = *SpillQueue::create(file, GetParam().engine, refusing.get());
    std::vector<SpillRange> ranges{blocks(0, 8)};
    SpillBatch batch{SpillOp::read, frames.base(), ranges};
    other->run(batch);
    EXPECT_EQ(batch.error(), EBADF);
    EXPECT_EQ(batch.failed().bytes, blocks(0, 8).bytes);
  }
  ::close(read_only);
  EXPECT_EQ(file.counts().failures, 1u);
  EXPECT_EQ(file.counts().reads, 0u);
}

// Where this user may lock less memory, the kernel refuses to register the buffers; transfers work all the
// same.
TEST(StagingUnregistered, LessMemoryMayBeLocked) {
  const auto engines = spill_engines_here();
  if (std::find(engines.begin(), engines.end(), "io_uring") == engines.end())
    GTEST_SKIP() << "there is no io_uring here";
  const test::Folder folder;
  const Frames frames;
  SpillFile file = make_file(folder.path());
  const pid_t child = ::fork();
  if (child == 0) {
    // Enough for a ring, which is locked memory, too
    const rlimit less{BounceBuffers::kBytes / 2, BounceBuffers::kBytes / 2};
    ::setrlimit(RLIMIT_MEMLOCK, &less);
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(2);  // root is not limited
    const auto buffers = frames.make_buffers();
    auto engine = make_spill_engine("io_uring", SpillQueue::kDepth);
    if (!engine) ::_exit(77);  // this user has other locked memory
    if ((*engine)->register_memory(buffers->memory())) ::_exit(3);
    SpillQueue queue(file, std::move(*engine), buffers.get());
    frames.fill(blocks(0, 40), 4);
    std::vector<SpillRange> ranges{blocks(0, 40)};
    SpillBatch out{SpillOp::write, frames.base(), ranges};
    queue.run(out);
    frames.punch(blocks(0, 40));
    SpillBatch in{SpillOp::read, frames.base(), ranges};
    queue.run(in);
    ::_exit(out.error() == 0 && in.error() == 0 && frames.holds(blocks(0, 40), 4) &&
                    file.counts().bytes_staged == blocks(0, 40).bytes
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this user can have no more rings";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace kasane::mem
