// SPDX-License-Identifier: Apache-2.0
// Eight threads of each rank post whatever comes, against an oracle, with full and with starved queues. A
// seed replays the choices of every thread (over sim: everything).
#include <random>

#include "base/random.h"
#include "multi/comm_engine/engine_env.h"

namespace kasane::comm::test {
namespace {

// Each thread owns a slice of every rank's region: what lies there only it writes, so it knows the bytes.
// Sums are shared by all.
constexpr std::size_t kSlice = 8192, kThreads = 8;
constexpr std::uint64_t kScratch = std::uint64_t{1} << 20, kTotals = std::uint64_t{3} << 20;
constexpr std::uint64_t kAdded = kTotals, kAccumulated = kTotals + 64;

/// One thread's script and what it must find.
class Actor {
 public:
  Actor(EngineEnv& env, std::uint32_t thread, Waiter& waiter, std::uint64_t seed)
      : env_(env),
        waiter_(waiter),
        random_(seed * 1000 + env.me() * kThreads + thread),
        id_(env.me() * kThreads + thread),
        scratch_(kScratch + kSlice * 2 * thread),
        model_(env.ranks(), std::vector<std::byte>(kSlice)) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) step();
    EXPECT_TRUE(Awaited(env_.engine, waiter_).flush());
  }
  [[nodiscard]] std::uint64_t added() const { return added_; }

 private:
  [[nodiscard]] std::uint64_t slice() const { return kSlice * id_; }
  [[nodiscard]] std::byte* scratch() const { return env_.memory + scratch_; }

  void step() {
    const Rank to{static_cast<std::uint32_t>(random_.below(env_.ranks()))};
    switch (random_.below(9)) {
      case 0:
      case 1: return write(to, 1);
      case 2: return write(to, 1 + random_.below(20));
      case 3: return read(to);
      case 4: return vector(to);
      case 5: return add(to);
      case 6: return accumulate();
      case 7: return notify(to, random_.below(8) == 0 ? 100 : 1 + random_.below(4));
      default: return random_.below(2) == 0 ? copy(to) : echo(to);
    }
  }

  /// Pieces side by side, all outstanding at once.
  void write(Rank to, std::uint64_t pieces) {
    const std::uint64_t bytes = 1 + random_.below(random_.below(4) == 0 ? kSlice / pieces : 24);
    for (std::uint64_t i = 0; i < pieces * bytes; ++i)
      scratch()[i] = static_cast<std::byte>(random_.below(256));
    const std::uint64_t offset = random_.below(kSlice - pieces * bytes + 1);
    Counter done;
    for (std::uint64_t p = 0; p < pieces; ++p) {
      env_.post(&Engine::try_write_async,
                {.to = env_.at(to, slice() + offset + p * bytes),
                 .from = env_.here(scratch_ + p * bytes),
                 .bytes = bytes,
                 .on_complete = done.callback()},
                waiter_);
    }
    EXPECT_EQ(done.wait(waiter_, pieces), Status::ok);
    std::memcpy(&model_[raw(to)][offset], scratch(), pieces * bytes);
  }

  /// Bytes and a flag each, side by side, all outstanding at once.
  void notify(Rank to, std::uint64_t pieces) {
    const std::uint64_t words = random_.below(random_.below(4) == 0 ? kSlice / 8 / pieces - 1 : 9),
                        apart = 8 * words + 8;
    const std::uint64_t offset = random_.below((kSlice - pieces * apart) / 8 + 1) * 8;
    for (std::uint64_t i = 0; i < pieces * apart; ++i)
      scratch()[i] = static_cast<std::byte>(random_.below(256));
    Counter done;
    for (std::uint64_t p = 0; p < pieces; ++p) {
      std::uint64_t value = 0;
      std::memcpy(&value, scratch() + p * apart + 8 * words, 8);
      const std::uint64_t at = slice() + offset + p * apart;
      env_.post(&Engine::try_write_notify_async,
                {.to = env_.at(to, at),
                 .from = env_.here(scratch_ + p * apart),
                 .bytes = 8 * words,
                 .flag_offset = at + 8 * words,
                 .value = value,
                 .on_complete = done.callback()},
                waiter_);
    }
    EXPECT_EQ(done.wait(waiter_, pieces), Status::ok);
    std::memcpy(&model_[raw(to)][offset], scratch(), pieces * apart);
  }

  void read(Rank from) {
    const std::uint64_t bytes = random_.below(random_.below(4) == 0 ? kSlice : 40),
                        offset = random_.below(kSlice - bytes + 1);
    Awaited io(env_.engine, waiter_);
    EXPECT_TRUE(io.read({.from = env_.at(from, slice() + offset),
                         .to = env_.here(scratch_),
                         .bytes = bytes,
                         .on_complete = {}}));
    ASSERT_EQ(std::memcmp(scratch(), &model_[raw(from)][offset], bytes), 0)
        << "actor " << id_ << " reads " << bytes << " bytes from " << raw(from);
  }

  void vector(Rank to) {
    std::vector<Piece> pieces;
    for (std::uint64_t at = random_.below(50), here = 0; at < kSlice - 200 && pieces.size() < 60; at += 200) {
      const std::uint64_t bytes = random_.below(180);
      for (std::uint64_t i = 0; i < bytes; ++i)
        model_[raw(to)][at + i] = scratch()[here + i] = static_cast<std::byte>(random_.below(256));
      pieces.push_back({slice() + at, scratch_ + here, bytes});
      here += bytes;
    }
    Awaited io(env_.engine, waiter_);
    EXPECT_TRUE(io.write(VectorParams{
        .rank = to, .remote_region = kRegion, .local_region = kRegion, .pieces = pieces, .on_complete = {}}));
    std::memset(scratch(), 0, kSlice);
    EXPECT_TRUE(io.read(VectorParams{
        .rank = to, .remote_region = kRegion, .local_region = kRegion, .pieces = pieces, .on_complete = {}}));
    for (const Piece& p : pieces)
      ASSERT_EQ(
          std::memcmp(env_.memory + p.local_offset, &model_[raw(to)][p.remote_offset - slice()], p.bytes), 0);
  }

  void add(Rank to) {
    const std::uint64_t n = 1 + random_.below(9);
    Awaited io(env_.engine, waiter_);
    EXPECT_TRUE(io.atomic({.op = AtomicOp::fetch_add,
                           .width = Width::eight,
                           .at = env_.at(to, kAdded),
                           .operand = n,
                           .on_complete = {}}));
    added_ += n;
  }

  void accumulate() {
    auto* x = reinterpret_cast<double*>(scratch());
    const std::uint64_t count = 1 + random_.below(900);
    std::fill(x, x + count, 1.0);
    Awaited io(env_.engine, waiter_);
    EXPECT_TRUE(io.accumulate({.to = env_.at(Rank{0}, kAccumulated),
                               .from = env_.here(scratch_),
                               .element = Element::float64,
                               .scale = {2.0, 0.0},
                               .shape = {.dimensions = 1, .count = {count * 8}},
                               .on_complete = {}}));
    ++accumulates_;
    first_ += 2;
  }

  void copy(Rank to) {
    const Rank from{static_cast<std::uint32_t>(random_.below(env_.ranks()))};
    if (from == to) return;
    const std::uint64_t bytes = random_.below(3000), offset = random_.below(kSlice - bytes + 1);
    Awaited io(env_.engine, waiter_);
    EXPECT_TRUE(io.copy({.from = env_.at(from, slice() + offset),
                         .to = env_.at(to, slice() + offset),
                         .bytes = bytes,
                         .on_complete = {}}));
    std::memcpy(&model_[raw(to)][offset], &model_[raw(from)][offset], bytes);
  }

  void echo(Rank to) {
    const std::uint64_t n = random_.below(1000);
    Awaited io(env_.engine, waiter_);
    const auto answer = io.request(
        {.to = to, .handler = kEcho, .payload = as_payload(n), .answer = nullptr, .on_complete = {}});
    ASSERT_TRUE(answer);
    ASSERT_EQ(*answer, n + 1);
  }

 public:
  double first_ = 0;  ///< what this actor added to the first element
 private:
  EngineEnv& env_;
  Waiter& waiter_;
  Random random_;
  std::uint32_t id_;
  std::uint64_t scratch_;
  std::vector<std::vector<std::byte>> model_;  ///< my slice on each rank
  std::uint64_t added_ = 0, accumulates_ = 0;
};

void stress(EngineEnv& env, std::uint64_t seed, int steps) {
  std::memset(env.memory, 0, kRegionBytes);
  env.all.barrier();
  std::atomic<std::uint64_t> added{0}, first{0};
  env.in_parallel(kThreads, [&](int t, Waiter& waiter) {
    Actor actor(env, static_cast<std::uint32_t>(t), waiter, seed);
    actor.run(steps);
    added += actor.added();
    first += static_cast<std::uint64_t>(actor.first_);
  });
  std::uint64_t sums[2]{added.load(), first.load()};
  env.all.allreduce(Collectives::Reduce::sum, sums);
  std::uint64_t found[1]{env.word(kAdded / 8).load()};
  env.all.allreduce(Collectives::Reduce::sum, found);
  EXPECT_EQ(found[0], sums[0]) << "seed " << seed;
  if (env.me() == 0) {
    double value;
    std::memcpy(&value, env.memory + kAccumulated, 8);
    EXPECT_EQ(value, static_cast<double>(sums[1])) << "seed " << seed;
  }
  env.all.barrier();
}

class StressTest : public ::testing::TestWithParam<Case> {};

TEST_P(StressTest, MixedOperations) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        for (std::uint64_t seed = 1; seed <= 2; ++seed) stress(env, seed, env.rounds(200, 12));
      },
      8);
}

// With one or two of each resource: nothing is dropped, and no operation waits for ever.
TEST_P(StressTest, StarvedQueues) {
  EngineOptions options;
  options.operations = 2;
  options.packs = 1;
  options.argument_buffers = 1;
  options.ring_commands = 2;
  sim::SimOptions world;
  world.ring_capacity = 2;
  world.operation_capacity = 2;
  world.reply_slots = 2;
  world.again_permille = 300;
  with_engines(GetParam(), options, [](EngineEnv& env) { stress(env, 3, env.rounds(40, 6)); }, 10, world);
}

// More messages with flags than there are answers that can wait (64), so that some are answered at once.
TEST_P(StressTest, ManyNotificationsAtOnce) {
  EngineOptions options;
  options.packs = 256;
  with_engines(
      GetParam(), options,
      [](EngineEnv& env) {
        // a message each, where puts are messages
        constexpr std::uint64_t kEach = 3200, kCount = 200, kFrom = std::uint64_t{2} << 20;
        for (std::uint64_t round = 1; round <= static_cast<std::uint64_t>(env.rounds(10, 2)); ++round) {
          for (std::uint64_t i = 0; i < kCount * kEach / 8; ++i)
            env.word(kFrom / 8 + i).store(round << 32 | i);
          env.all.barrier();
          Counter done;
          for (std::uint64_t i = 0; i < kCount; ++i) {
            env.post(&Engine::try_write_notify_async,
                     {.to = env.at(env.next(), i * kEach),
                      .from = env.here(kFrom + i * kEach),
                      .bytes = kEach - 8,
                      .flag_offset = (i + 1) * kEach - 8,
                      .value = round,
                      .on_complete = done.callback()},
                     env.waiter);
          }
          for (std::uint64_t i = 0; i < kCount; ++i) {
            const std::uint64_t flag = ((i + 1) * kEach - 8) / 8;
            env.waiter.until([&] { return env.word(flag).load(std::memory_order_acquire) == round; });
            for (std::uint64_t w = i * kEach / 8; w < flag; ++w)
              ASSERT_EQ(env.word(w).load(std::memory_order_relaxed), round << 32 | w) << i;
          }
          EXPECT_EQ(done.wait(env.waiter, kCount), Status::ok);
          EXPECT_TRUE(env.io().flush());
          env.all.barrier();
        }
      },
      4);
}

INSTANTIATE_TEST_SUITE_P(All, StressTest, ::testing::ValuesIn(every_case()),
                         [](const auto& i) { return name_of(i.param); });

}  // namespace
}  // namespace kasane::comm::test
