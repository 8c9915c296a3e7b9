// SPDX-License-Identifier: Apache-2.0
// Reads for which no thread waits: each completes once, with its bytes, from whichever thread it was
// submitted and whenever the reader is stopped.
#include "mem/spill_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "support/folder.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kBlocks = 256;

struct Counted : SpillRead {
  std::array<SpillRange, 2> range;
  std::atomic<int> completions{0};
};

class SpillReaderTest : public ::testing::Test {
 protected:
  SpillReaderTest() {
    for (std::uint64_t b = 0; b < kBlocks; ++b)
      std::memset(at(b), static_cast<int>(1 + b % 255), kBlockBytes);
    std::array<SpillRange, 1> all{{{0, kBlocks * kBlockBytes}}};
    auto queue = SpillQueue::create(file).value();
    SpillBatch batch(SpillOp::write, at(0), all);
    queue->run(batch);
    EXPECT_EQ(batch.error(), 0);
    std::memset(at(0), 0, kBlocks * kBlockBytes);
    for (std::uint64_t i = 0; i < reads.size(); ++i) {  // two blocks each, far from each other
      reads[i].range = {{{(kBlocks / 2 + i) * kBlockBytes, kBlockBytes}, {i * kBlockBytes, kBlockBytes}}};
      reads[i].ranges = reads[i].range;
      reads[i].completed = [](SpillRead& r) noexcept { static_cast<Counted&>(r).completions.fetch_add(1); };
    }
  }
  std::byte* at(std::uint64_t block) { return frames[block].bytes; }
  void expect_completed(std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t i = first; i < end; ++i) {
      EXPECT_EQ(reads[i].completions.load(), 1);
      for (const std::uint64_t b : {i, kBlocks / 2 + i})
        EXPECT_EQ(at(b)[kBlockBytes - 1], std::byte(1 + b % 255));
    }
  }

  test::Folder folder;
  SpillFile file = SpillFile::create(folder.path(), std::uint64_t{1} << 40).value();
  struct alignas(kBlockBytes) Block {
    std::byte bytes[kBlockBytes];
  };  // as direct transfers need them
  std::vector<Block> frames{kBlocks};
  std::unique_ptr<SpillReader> reader = SpillReader::create(file, at(0), nullptr, nullptr).value();
  std::array<Counted, kBlocks / 2> reads;
};

TEST_F(SpillReaderTest, CompletesWhatSeveralThreadsSubmit) {
  std::thread runner([&] { reader->run(); });
  std::vector<std::thread> submitters;
  for (std::uint64_t t = 0; t < 4; ++t) {
    submitters.emplace_back([&, t] {
      for (std::uint64_t i = t; i < reads.size(); i += 4) {
        while (!reader->submit(reads[i])) std::this_thread::yield();  // the number of noted reads is bounded
      }
    });
  }
  for (std::thread& t : submitters) t.join();
  reader->stop();  // reads that were taken complete all the same
  runner.join();
  reader->drain();
  expect_completed(0, reads.size());
}

TEST_F(SpillReaderTest, RefusesWhatComesAfterItsEndAndDrainsWhatCameBefore) {
  ASSERT_TRUE(reader->submit(reads[0]));
  ASSERT_TRUE(reader->submit(reads[1]));
  reader->stop();
  EXPECT_FALSE(reader->submit(reads[2]));
  reader->drain();
  expect_completed(0, 2);
  EXPECT_EQ(reads[2].completions.load(), 0);
}

TEST_F(SpillReaderTest, RefusesMoreThanThereIsRoomFor) {
  std::uint64_t taken = 0;
  while (taken < reads.size() && reader->submit(reads[taken])) ++taken;
  EXPECT_LT(taken, reads.size());
  reader->drain();
  expect_completed(0, taken);
  EXPECT_TRUE(reader->submit(reads[taken]));
  reader->drain();
  expect_completed(0, taken + 1);
}

}  // namespace
}  // namespace kasane::mem
