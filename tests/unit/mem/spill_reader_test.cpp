// SPDX-License-Identifier: Apache-2.0
// Reads that nobody waits for: each flight lands once, with its bytes, whoever launches it and whenever the reader is told to stop.
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

struct Counted : Flight {
  std::array<SpillRange, 2> range;
  std::atomic<int> landings{0};
};

class SpillReaderTest : public ::testing::Test {
 protected:
  SpillReaderTest() {
    for (std::uint64_t b = 0; b < kBlocks; ++b) std::memset(at(b), static_cast<int>(1 + b % 255), kBlockBytes);
    std::array<SpillRange, 1> all{{{0, kBlocks * kBlockBytes}}};
    auto queue = SpillQueue::create(file).value();
    SpillBatch batch(SpillOp::write, at(0), all);
    queue->run(batch);
    EXPECT_EQ(batch.error(), 0);
    std::memset(at(0), 0, kBlocks * kBlockBytes);
    for (std::uint64_t i = 0; i < flights.size(); ++i) {   // two blocks each, far from each other
      flights[i].range = {{{(kBlocks / 2 + i) * kBlockBytes, kBlockBytes}, {i * kBlockBytes, kBlockBytes}}};
      flights[i].ranges = flights[i].range;
      flights[i].landed = [](Flight& f) noexcept { static_cast<Counted&>(f).landings.fetch_add(1); };
    }
  }
  std::byte* at(std::uint64_t block) { return frames[block].bytes; }
  void expect_landed(std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t i = first; i < end; ++i) {
      EXPECT_EQ(flights[i].landings.load(), 1);
      for (const std::uint64_t b : {i, kBlocks / 2 + i}) EXPECT_EQ(at(b)[kBlockBytes - 1], std::byte(1 + b % 255));
    }
  }

  test::Folder folder;
  SpillFile file = SpillFile::create(folder.path(), std::uint64_t{1} << 40).value();
  struct alignas(kBlockBytes) Block { std::byte bytes[kBlockBytes]; };   // as direct transfers need it
  std::vector<Block> frames{kBlocks};
  std::unique_ptr<SpillReader> reader = SpillReader::create(file, at(0), nullptr, nullptr).value();
  std::array<Counted, kBlocks / 2> flights;
};

TEST_F(SpillReaderTest, LandsWhatSeveralThreadsLaunch) {
  std::thread reads([&] { reader->run(); });
  std::vector<std::thread> launchers;
  for (std::uint64_t t = 0; t < 4; ++t) {
    launchers.emplace_back([&, t] {
      for (std::uint64_t i = t; i < flights.size(); i += 4) {
        while (!reader->launch(flights[i])) std::this_thread::yield();   // there is room for so many at once
      }
    });
  }
  for (std::thread& t : launchers) t.join();
  reader->stop();   // what was taken lands all the same
  reads.join();
  reader->drain();
  expect_landed(0, flights.size());
}

TEST_F(SpillReaderTest, RefusesWhatComesAfterItsEndAndDrainsWhatCameBefore) {
  ASSERT_TRUE(reader->launch(flights[0]));
  ASSERT_TRUE(reader->launch(flights[1]));
  reader->stop();
  EXPECT_FALSE(reader->launch(flights[2]));
  reader->drain();
  expect_landed(0, 2);
  EXPECT_EQ(flights[2].landings.load(), 0);
}

TEST_F(SpillReaderTest, RefusesMoreThanThereIsRoomFor) {
  std::uint64_t taken = 0;
  while (taken < flights.size() && reader->launch(flights[taken])) ++taken;
  EXPECT_LT(taken, flights.size());
  reader->drain();
  expect_landed(0, taken);
  EXPECT_TRUE(reader->launch(flights[taken]));
  reader->drain();
  expect_landed(0, taken + 1);
}

}  // namespace
}  // namespace kasane::mem
