// SPDX-License-Identifier: Apache-2.0
// The spill file and its queues, over every engine that this kernel allows, and over one that fails on
// request.
#include "mem/spill_queue.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "mem/spill_engine.h"
#include "mem/spill_file.h"
#include "spill_fixtures.h"
#include "support/folder.h"
#include "support/sanitized.h"

namespace kasane::mem {
namespace {

using test::Folder;

constexpr int kRandomSteps = fewer_if_sanitized(300);

INSTANTIATE_TEST_SUITE_P(Ways, SpillTest, ::testing::ValuesIn(ways_here()), way_name);

TEST_P(SpillTest, WhatWasWrittenIsRead) {
  frames.fill(blocks(3, 2), 7);
  ASSERT_EQ(write({blocks(3, 2)}), 0);
  frames.fill(blocks(0, 8), 1);
  ASSERT_EQ(read({blocks(3, 2)}), 0);
  EXPECT_TRUE(frames.holds(blocks(3, 2), 7));
  EXPECT_TRUE(frames.holds(blocks(0, 3), 1)) << "bytes before the range changed";
  EXPECT_TRUE(frames.holds(blocks(5, 3), 1)) << "bytes behind the range changed";
}

TEST_P(SpillTest, ZerosCostNoTransfer) {
  ASSERT_EQ(write({blocks(0, 100)}), 0);
  EXPECT_EQ(file.counts().writes, 0u);
  frames.fill(blocks(0, 100), 5);
  ASSERT_EQ(read({blocks(0, 100)}), 0);
  EXPECT_EQ(file.counts().reads, 0u);
  EXPECT_EQ(file.counts().blocks_of_zeros, 200u);
  EXPECT_TRUE(frames.holds(blocks(0, 100), 0));
}

// A block that is zero but for its last byte is stored; and zeros replace what was stored before.
TEST_P(SpillTest, ZerosThatReplaceBytesAreWritten) {
  frames.base()[blocks(9).offset + kBlockBytes - 1] = std::byte{1};
  ASSERT_EQ(write({blocks(9)}), 0);
  EXPECT_EQ(file.counts().writes, 1u);
  frames.fill(blocks(9), 0);
  ASSERT_EQ(write({blocks(9)}), 0);
  frames.fill(blocks(9), 3);
  ASSERT_EQ(read({blocks(9)}), 0);
  EXPECT_TRUE(frames.holds(blocks(9), 0));
}

TEST_P(SpillTest, ForgottenBlocksReadAsZeros) {
  frames.fill(blocks(0, 1024), 4);
  ASSERT_EQ(write({blocks(0, 1024)}), 0);
  file.forget(blocks(10).offset, blocks(10, 600).bytes);  // over the end of a stripe
  ASSERT_EQ(read({blocks(0, 1024)}), 0);
  EXPECT_TRUE(frames.holds(blocks(0, 10), 4));
  EXPECT_TRUE(frames.holds(blocks(10, 600), 0));
  EXPECT_TRUE(frames.holds(blocks(610, 414), 4));
}

TEST_P(SpillTest, NeighboursTravelTogether) {
  frames.fill(blocks(0, 64), 2);
  std::vector<SpillRange> ranges;
  // Every block once, in no order
  for (std::uint64_t b = 0; b < 64; ++b) ranges.push_back(blocks(b * 37 % 64));
  ASSERT_EQ(write(ranges), 0);
  EXPECT_EQ(file.counts().writes, 1u);
  EXPECT_EQ(file.counts().bytes_written, 64 * kBlockBytes);
  ASSERT_EQ(read({blocks(0, 16), blocks(17, 16)}), 0);
  EXPECT_EQ(file.counts().reads, 2u);
}

TEST_P(SpillTest, LongRunsAreCut) {
  frames.fill({0, 8u << 20}, 2);
  ASSERT_EQ(write({{0, 8u << 20}}), 0);
  EXPECT_EQ(file.counts().writes, (8u << 20) / SpillQueue::kMostRunBytes);
}

TEST_P(SpillTest, MoreRunsThanSlots) {
  std::vector<SpillRange> ranges;
  for (std::uint64_t b = 0; b < 20 * SpillQueue::kDepth; b += 2) {
    frames.fill(blocks(b), static_cast<int>(b % 251 + 1));
    ranges.push_back(blocks(b));
  }
  SpillBatch batch{SpillOp::write, frames.base(), ranges};
  EXPECT_FALSE(queue->submit(batch)) << "it has ten times as many runs as there are slots";
  queue->run(batch);
  ASSERT_EQ(batch.error(), 0);
  frames.fill({0, kFramesBytes}, 0);
  ASSERT_EQ(read(ranges), 0);
  for (const SpillRange& r : ranges)
    ASSERT_TRUE(frames.holds(r, static_cast<int>(r.offset / kBlockBytes % 251 + 1)))
        << r.offset / kBlockBytes;
}

// The submitting thread goes on with something else: another thread completes its batch.
TEST_P(SpillTest, AnyThreadCompletes) {
  frames.fill(blocks(0, 4), 9);
  std::vector<SpillRange> ranges{blocks(0, 4)};
  SpillBatch batch{SpillOp::write, frames.base(), ranges};
  ASSERT_TRUE(queue->submit(batch));
  std::thread([&] {
    while (!batch.finished()) queue->poll();
  }).join();
  EXPECT_EQ(queue->poll(), 0u);
  EXPECT_EQ(batch.error(), 0);
}

TEST_P(SpillTest, ABatchWithoutTransfersIsFinishedAtOnce) {
  std::vector<SpillRange> ranges{blocks(0, 4)};
  SpillBatch batch{SpillOp::read, frames.base(), ranges};
  EXPECT_TRUE(queue->submit(batch));
  EXPECT_TRUE(batch.finished());
}

// One leader sleeps for all; a thread whose batch is finished leaves.
TEST_P(SpillTest, ManyThreadsWaitOnOneQueue) {
  frames.fill({0, kFramesBytes}, 6);
  std::vector<SpillRange> everything{{0, kFramesBytes}};
  ASSERT_EQ(write(everything), 0);
  Random random(1);
  for (int round = 0; round < 50; ++round) {
    std::deque<std::vector<SpillRange>> ranges;
    std::deque<SpillBatch> batches;
    for (int i = 0; i < 8; ++i) {
      ranges.push_back({blocks(random.below(kFramesBytes / kBlockBytes / 8) * 8 + static_cast<unsigned>(i))});
      batches.emplace_back(SpillOp::read, frames.base(), ranges.back());
      ASSERT_TRUE(queue->submit(batches.back()));
    }
    std::vector<std::thread> waiters;
    waiters.reserve(batches.size());
    for (SpillBatch& b : batches) waiters.emplace_back([&] { queue->wait(b); });
    for (std::thread& t : waiters) t.join();
    for (const SpillBatch& b : batches) ASSERT_EQ(b.error(), 0);
  }
}

// Whether they poll or sleep, and for any time: each thread has its bytes when it goes on.
TEST_P(SpillTest, WhoLooksBeforeItSleepsGetsTheSame) {
  frames.fill({0, kFramesBytes}, 6);
  std::vector<SpillRange> everything{{0, kFramesBytes}};
  ASSERT_EQ(write(everything), 0);
  frames.fill({0, kFramesBytes}, 7);
  for (const std::uint32_t most : {0u, 1u, 4u}) {
    Polling polling(most);
    std::deque<std::vector<SpillRange>> ranges;
    std::deque<SpillBatch> batches;
    for (unsigned i = 0; i < 4; ++i) {
      ranges.push_back({blocks(16 * i), blocks(16 * i + 8, 2)});
      frames.fill(ranges.back()[0], 7), frames.fill(ranges.back()[1], 7);
      batches.emplace_back(SpillOp::read, frames.base(), ranges.back());
      ASSERT_TRUE(queue->submit(batches.back()));
    }
    std::vector<std::thread> waiters;
    waiters.reserve(batches.size());
    for (SpillBatch& b : batches) waiters.emplace_back([&] { queue->wait(b, polling); });
    for (std::thread& t : waiters) t.join();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      ASSERT_EQ(batches[i].error(), 0);
      for (const SpillRange& r : ranges[i]) ASSERT_TRUE(frames.holds(r, 6));
    }
    EXPECT_GT(polling.usual_ns(), 0u);
  }
}

// Random batches over three directories, two queues for each half of the blocks, against what the blocks
// should hold.
TEST_P(SpillTest, RandomBatchesMatchAnOracle) {
  const Folder second, third;
  SpillFile striped = make_file(folder.path() + ":" + second.path() + ":" + third.path());
  constexpr std::uint64_t kBlocks = kFramesBytes / kBlockBytes;
  const auto lane = [&](std::uint64_t seed, std::uint64_t first, std::uint64_t count) {
    const auto own = make_queue(striped);
    Random random(seed);
    std::vector<int> held(count, 0);  // in the file
    for (int step = 0; step < kRandomSteps; ++step) {
      std::vector<SpillRange> ranges;
      for (std::uint64_t b = random.below(40); b < count;) {
        const std::uint64_t n = std::min(1 + random.below(30), count - b);
        ranges.push_back(blocks(first + b, n));
        b += n + random.below(400);
      }
      std::reverse(ranges.begin(), ranges.end());
      const bool writes = random.one_in(2);
      const int value = random.one_in(4) ? 0 : static_cast<int>(1 + random.below(250));
      const bool fresh = !writes && random.one_in(2);  // without frames
      for (const SpillRange& r : ranges) fresh ? frames.punch(r) : frames.fill(r, writes ? value : 255);
      if (random.one_in(10)) {
        for (const SpillRange& r : ranges) {
          striped.forget(r.offset, r.bytes);
          for (std::uint64_t at = r.offset; at < r.offset + r.bytes; at += kBlockBytes)
            held[at / kBlockBytes - first] = 0;
        }
        continue;
      }
      SpillBatch batch{writes ? SpillOp::write : SpillOp::read, frames.base(), ranges};
      own->run(batch);
      ASSERT_EQ(batch.error(), 0);
      for (const SpillRange& r : ranges)
        for (std::uint64_t at = r.offset; at < r.offset + r.bytes; at += kBlockBytes) {
          int& h = held[at / kBlockBytes - first];
          if (writes) h = value;
          ASSERT_TRUE(frames.holds({at, kBlockBytes}, h)) << "step " << step << " block " << at / kBlockBytes;
        }
    }
  };
  std::thread other(lane, 2, kBlocks / 2, kBlocks / 2);
  lane(1, 0, kBlocks / 2);
  other.join();
}

TEST_P(SpillTest, NothingHasANameAndNothingStays) {
  EXPECT_TRUE(folder.empty());
  const pid_t child = ::fork();
  if (child == 0) {
    auto own = SpillFile::create(folder.path(), kSpaceBytes);
    if (own && ::pwrite(own->fd(0), frames.base(), kBlockBytes, 0) > 0) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(folder.empty());
}

// Failures, by an engine between the queue and a real one.

TEST_P(SpillTest, WhatIsShortOrInterruptedIsFinished) {
  frames.fill(blocks(0, 8), 3);
  for (const std::int32_t result :
       {-EINTR, -EAGAIN, static_cast<int>(kBlockBytes), static_cast<int>(5 * kBlockBytes)}) {
    engine->fail(1, result);
    ASSERT_EQ(write({blocks(0, 8)}), 0) << result;
    frames.fill(blocks(0, 8), 0);
    engine->fail(1, result);
    ASSERT_EQ(read({blocks(0, 8)}), 0) << result;
    ASSERT_TRUE(frames.holds(blocks(0, 8), 3)) << result;
  }
}

// One run of three fails. The others are stored. The failed one is not, and its frame is untouched, so
// nothing is lost.
TEST_P(SpillTest, AFailedWriteSaysWhichAndLosesNothing) {
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    file.forget(0, kFramesBytes);
    for (std::uint64_t b : {0, 10, 20}) frames.fill(blocks(b, 2), 8);
    std::vector<SpillRange> ranges{blocks(0, 2), blocks(10, 2), blocks(20, 2)};
    SpillBatch batch{SpillOp::write, frames.base(), ranges};
    engine->fail(2, -error);
    queue->run(batch);
    ASSERT_EQ(batch.error(), error);
    EXPECT_EQ(batch.failed().offset, blocks(10).offset);
    EXPECT_EQ(batch.failed().bytes, blocks(10, 2).bytes);
    EXPECT_TRUE(file.stored(BlockId{0}) && file.stored(BlockId{21}));
    EXPECT_FALSE(file.stored(BlockId{10}) || file.stored(BlockId{11}));
    EXPECT_TRUE(frames.holds(blocks(10, 2), 8));
    const Error said = file.error(batch.op, batch.error(), batch.failed().offset, batch.failed().bytes);
    EXPECT_EQ(said.code, Errc::io);
    for (const std::string& part :
         {folder.path(), std::string("writing 8K"), std::string(std::strerror(error))})
      EXPECT_NE(said.message.find(part), std::string::npos) << part << " is not in: " << said.message;
    ASSERT_EQ(write({blocks(10, 2)}), 0) << "once there is room again";
  }
  EXPECT_EQ(file.counts().failures, 3u);
}

TEST_P(SpillTest, AFailedReadIsToldAndTheRestArrives) {
  frames.fill(blocks(0, 30), 8);
  ASSERT_EQ(write({blocks(0, 30)}), 0);
  frames.fill(blocks(0, 30), 0);
  engine->fail(1, -EIO);
  ASSERT_EQ(read({blocks(0, 2), blocks(10, 2)}), EIO);
  EXPECT_TRUE(frames.holds(blocks(10, 2), 8));
}

// A limit of file sizes that is lowered later: a write beyond or across it is reported like any other error,
// instead of ending the process by SIGXFSZ. Reads, which make frames of a memory file, still work.
TEST_P(SpillTest, ALimitOfFileSizesThatIsLoweredLater) {
  for (const std::uint64_t b : {700, 720}) frames.fill(blocks(b, 8), 8);
  ASSERT_EQ(write({blocks(700, 8), blocks(720, 8)}), 0);
  for (const std::uint64_t b : {700, 720}) frames.punch(blocks(b, 8));
  for (const std::uint64_t b : {600, 800, 820}) frames.fill(blocks(b, 8), 9);
  queue.reset();  // its threads do not exist in the child
  const pid_t child = ::fork();
  if (child == 0) {
    queue = make_queue(file);
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = blocks(604).offset;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    if (write({blocks(600, 8)}) != EFBIG || file.stored(BlockId{600}) || !frames.holds(blocks(600, 8), 9))
      ::_exit(1);
    if (write({blocks(800, 8)}) != EFBIG || read({blocks(700, 8)}) != 0 || !frames.holds(blocks(700, 8), 8))
      ::_exit(2);
    sigset_t signal, before;  // blocked, as in a fault handler, and let through afterwards
    ::sigemptyset(&signal), ::sigaddset(&signal, SIGXFSZ);
    ::sigprocmask(SIG_BLOCK, &signal, &before);
    if (write({blocks(820, 8)}) != EFBIG || read({blocks(720, 8)}) != 0 || !frames.holds(blocks(720, 8), 8))
      ::_exit(3);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (file.error(SpillOp::write, EFBIG, blocks(800).offset, kBlockBytes).message.find("ulimit -f") ==
        std::string::npos)
      ::_exit(4);
    ::sigprocmask(SIG_BLOCK, nullptr, &before);  // the program's own mask must be unchanged
    ::_exit(::sigismember(&before, SIGXFSZ) == 0 ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << (WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "exit");
}

// Directories that cannot be used are reported at the start.

std::string refusal(const std::string& directories) {
  const auto file = SpillFile::create(directories, kSpaceBytes);
  return file ? "" : file.error().message;
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& w : words)
    EXPECT_NE(message.find(w), std::string::npos) << w << " is not in: " << message;
}

TEST(SpillDirectory, MissingOrNone) {
  const Folder folder;
  expect_words(refusal(folder.path() + "/nowhere"), {folder.path() + "/nowhere", "No such file"});
  expect_words(refusal(folder.path() + ":" + folder.path() + "/nowhere"), {"nowhere"});
  expect_words(refusal("/proc/self/exe"), {"/proc/self/exe"});
  expect_words(refusal(folder.path() + ":"), {"empty name"});
  // check() gives the error that create() would.
  for (const std::string& directories :
       {folder.path() + "/nowhere", folder.path() + ":" + folder.path() + "/nowhere",
        std::string("/proc/self/exe"), folder.path() + ":"}) {
    const auto looked = SpillFile::check(directories, kSpaceBytes);
    ASSERT_FALSE(looked.has_value()) << directories;
    EXPECT_EQ(looked.error().message, refusal(directories));
  }
  EXPECT_TRUE(SpillFile::check(folder.path() + ":" + folder.path(), kSpaceBytes).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SpillDirectory, LimitOfFileSizes) {
  const Folder folder;
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1u << 20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  expect_words(refusal(folder.path()), {folder.path(), "ulimit -f", "1T"});
  ::setrlimit(RLIMIT_FSIZE, &before);
}

/// Runs body(directory) in a child that has a tmpfs with these mount options there. Returns its exit status,
/// or nothing where mounting is not allowed.
constexpr int kNotAllowed = 77;
int on_small_file_system(const std::string& options, unsigned long flags,
                         const std::function<int(const std::string&)>& body) {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool apart = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const bool mounted = apart && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("none", folder.path().c_str(), "tmpfs", flags, options.c_str()) == 0;
    if (!mounted) ::_exit(kNotAllowed);
    ::_exit(body(folder.path()));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SpillDirectory, ReadOnly) {
  const int status = on_small_file_system("size=1m", MS_RDONLY, [](const std::string& path) {
    const std::string message = refusal(path);
    return message.find(path) != std::string::npos && message.find("Read-only") != std::string::npos ? 0 : 1;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 0);
}

TEST(SpillDirectory, FullFromTheStart) {
  const int status = on_small_file_system("size=64k", 0, [](const std::string& path) {
    for (int i = 0; i < 16; ++i) {
      std::FILE* f = std::fopen((path + "/" + std::to_string(i)).c_str(), "w");
      const std::vector<char> bytes(4096, 'x');
      if (f != nullptr) std::fwrite(bytes.data(), 1, bytes.size(), f), std::fclose(f);
    }
    const std::string message = refusal(path);
    return message.find(path) != std::string::npos && message.find("No space") != std::string::npos ? 0 : 1;
  });
  if (status == kNotAllowed) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 0);
}

// What fits is stored; what does not stays where it was; when space is given back, writing goes on.
TEST(SpillDirectory, FullInMidRun) {
  for (const std::string& engine : spill_engines_here()) {
    const int status = on_small_file_system("size=1m", 0, [&](const std::string& path) {
      const Frames frames;
      SpillFile file = make_file(path);
      const auto buffers = frames.make_buffers();
      const auto queue = *SpillQueue::create(file, engine, buffers.get());
      frames.fill(blocks(0, 1024), 5);
      // Blocks that are stored already are stored again in place. Of a batch of new blocks, the run that
      // comes first fits.
      std::vector<SpillRange> little{blocks(0, 64)}, all{blocks(0, 64), blocks(100, 512)};
      SpillBatch fits{SpillOp::write, frames.base(), little}, batch{SpillOp::write, frames.base(), all};
      queue->run(fits);
      queue->run(batch);
      if (fits.error() != 0 || batch.error() != ENOSPC) return 1;
      const Error said = file.error(batch.op, batch.error(), batch.failed().offset, batch.failed().bytes);
      if (said.message.find(path) == std::string::npos || said.message.find("No space") == std::string::npos)
        return 2;
      if (!file.stored(BlockId{0}) || file.stored(BlockId{100}) || !frames.holds(blocks(100, 512), 5))
        return 3;
      file.forget(0, kFramesBytes);
      std::vector<SpillRange> less{blocks(100, 128)};
      SpillBatch retry{SpillOp::write, frames.base(), less};
      queue->run(retry);
      return retry.error() == 0 ? 0 : 4;
    });
    if (status == kNotAllowed) GTEST_SKIP() << "mounting is not allowed here";
    EXPECT_EQ(status, 0) << engine;
  }
}

}  // namespace
}  // namespace kasane::mem
