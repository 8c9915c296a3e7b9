// SPDX-License-Identifier: Apache-2.0
#include "support/checked_engine.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "fixtures.h"

namespace kasane::mem {
namespace {

struct Report {
  std::uint64_t offset;
  Access wanted;
  friend bool operator==(const Report&, const Report&) = default;
};

class CheckedEngineTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(engine->start(on_fault, this)); }

  static bool on_fault(void* context, std::uint64_t offset, Access wanted, Served) {
    auto* self = static_cast<CheckedEngineTest*>(context);
    self->reports.push_back({offset, wanted});
    if (offset >= self->wild_from) return false;
    return self->engine->protect({block_of(offset), 1}, wanted);
  }

  Space space = make_space(4 * kPageBytes);
  std::unique_ptr<CheckedEngine> engine = CheckedEngine::create(space).value();
  std::vector<Report> reports;
  std::uint64_t wild_from = ~std::uint64_t{0};
};

TEST_F(CheckedEngineTest, ReportsTheFirstByteOfEachBlockThatIsNotAllowed) {
  std::vector<char> text(3 * kBlockBytes, 'x');
  ASSERT_TRUE(engine->write(kBlockBytes - 10, text.data(), kBlockBytes + 20));
  EXPECT_EQ(reports, (std::vector<Report>{{kBlockBytes - 10, Access::write},
                                          {kBlockBytes, Access::write},
                                          {2 * kBlockBytes, Access::write}}));
  reports.clear();
  std::vector<char> back(kBlockBytes + 22);
  ASSERT_TRUE(engine->read(kBlockBytes - 11, back.data(), back.size()));
  EXPECT_TRUE(reports.empty()) << "write includes read";
  EXPECT_EQ(back.front(), 0);
  EXPECT_EQ(back[1], 'x');
  EXPECT_EQ(back[back.size() - 2], 'x');
  EXPECT_EQ(back.back(), 0) << "not a byte beside";
}

TEST_F(CheckedEngineTest, ReadAccessDoesNotAllowStores) {
  char c;
  ASSERT_TRUE(engine->read(5, &c, 1));
  EXPECT_EQ(engine->access(0), Access::read);
  EXPECT_EQ(engine->access(kBlockBytes), Access::none);
  ASSERT_TRUE(engine->write(6, "k", 1));
  EXPECT_EQ(engine->access(0), Access::write);
  EXPECT_EQ(reports, (std::vector<Report>{{5, Access::read}, {6, Access::write}}));
  ASSERT_TRUE(engine->protect({BlockId{0}, 2}, Access::none));
  EXPECT_EQ(engine->access(6), Access::none);
  ASSERT_TRUE(engine->read(6, &c, 1));
  EXPECT_EQ(c, 'k') << "rights go, bytes stay";
}

TEST_F(CheckedEngineTest, ARefusedAccessIsAnErrorAndStoresNothing) {
  wild_from = kBlockBytes;
  auto refused = engine->write(kBlockBytes - 1, "ab", 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_range);
  EXPECT_NE(refused.error().message.find("4096"), std::string::npos) << refused.error().message;
  EXPECT_EQ(*space.a(kBlockBytes - 1), std::byte{'a'});
  EXPECT_EQ(*space.a(kBlockBytes), std::byte{0});
  char c;
  EXPECT_EQ(engine->read(space.bytes(), &c, 1).error().code, Errc::out_of_range);
  EXPECT_EQ(engine->read(1, &c, ~std::size_t{0}).error().code, Errc::out_of_range);
  engine->stop();
  EXPECT_FALSE(engine->read(3 * kPageBytes, &c, 1)) << "no handler";
}

// Between the answer to a fault and the access another script may run and take the rights away: the fault is
// reported once more.
TEST_F(CheckedEngineTest, AnAccessPreemptedAfterItsFaultFaultsAgain) {
  struct Thief {
    CheckedEngine* engine;
    int times;
  } thief{engine.get(), 3};
  engine->set_preemption(
      [](void* context) {
        auto* t = static_cast<Thief*>(context);
        if (t->times-- <= 0) return;
        EXPECT_TRUE(t->engine->protect({BlockId{0}, 1}, Access::none));
      },
      &thief);
  ASSERT_TRUE(engine->write(1, "z", 1));
  EXPECT_EQ(reports, std::vector<Report>(4, {1, Access::write}));
  EXPECT_EQ(*space.a(1), std::byte{'z'});
}

// After protect(read) has returned, no store under the old rights takes effect: what is then read through A
// stays.
TEST(CheckedEngine, ProtectWaitsForStoresUnderWay) {
  Space space = make_space(kPageBytes);
  auto engine = CheckedEngine::create(space).value();
  std::atomic<bool> open{true};
  auto wait_and_see = [](void* o, std::uint64_t, Access, Served) {
    std::this_thread::yield();  // the test's own thread gives the rights
    return static_cast<std::atomic<bool>*>(o)->load();
  };
  ASSERT_TRUE(engine->start(wait_and_see, &open));
  std::vector<std::thread> writers;
  for (std::uint64_t self = 0; self < 2; ++self)
    writers.emplace_back([&, self] {
      std::vector<char> bytes(kBlockBytes / 2);
      for (char c = 1;; c = static_cast<char>(c % 100 + 1)) {
        std::fill(bytes.begin(), bytes.end(), c);
        if (!engine->write(self * kBlockBytes / 2, bytes.data(), bytes.size())) return;
      }
    });
  for (int round = 0; round < (kSanitized ? 100 : 500); ++round) {
    ASSERT_TRUE(engine->protect({BlockId{0}, 1}, Access::write));
    std::this_thread::yield();
    ASSERT_TRUE(engine->protect({BlockId{0}, 1}, Access::read));
    for (std::uint64_t half = 0; half < 2; ++half) {
      const std::byte first = *space.a(half * kBlockBytes / 2);
      for (std::size_t i = 0; i < kBlockBytes / 2; ++i)
        ASSERT_EQ(*space.a(half * kBlockBytes / 2 + i), first);
    }
  }
  open = false;
  for (auto& writer : writers) writer.join();
}

}  // namespace
}  // namespace kasane::mem
