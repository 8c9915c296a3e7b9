// SPDX-License-Identifier: Apache-2.0
// The executor's step into sleep under every interleaving of two producers, an arrival and the consumer:
// offload::nap over the ring that ships and a model of the doorbell. The claim: a consumer that sleeps for
// ever has nothing to do. Each rule of the protocol is also broken on purpose, and the walk must find the
// wake-up that is then lost; two orders that look as if they mattered do not.
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/mpsc_ring.h"
#include "comm/offload/idle.h"
#include "support/interleave.h"

namespace kasane::comm::offload {
namespace {

using kasane::test::explore;
using kasane::test::explore_random;
using kasane::test::InterleavedAtomics;
using kasane::test::Reduction;
using kasane::test::Schedule;
template <class T>
using Word = InterleavedAtomics::Atomic<T>;

enum class Broken {
  nothing,
  bit_without_recheck,  // the bit is set whatever tail has become
  no_bit,               // the consumer sleeps without saying so
  no_wake,              // a producer takes the bit away and does not ring
  // harmless: a producer rings, then publishes; the consumer cannot announce in between, since a cell is
  // claimed
  wake_before_publish,
  count_read_late,       // the consumer reads the bell's count after it has looked
  announce_before_look,  // harmless: a push after it takes the bit away and rings
  arrival_not_armed,     // the consumer sleeps although arming said that something may be there
};

/// A doorbell whose sleep ends the consumer's program: what it would have slept through is looked at when all
/// others have ended.
class ModelBell {
 public:
  std::uint32_t activity() { return events_.load(std::memory_order_seq_cst); }
  void ring() { events_.fetch_add(1, std::memory_order_seq_cst); }
  void sleep(std::uint32_t seen, std::int64_t) {
    // The kernel compares and queues in one step; what rings afterwards wakes (base/bell.h).
    slept_on_ = seen;
    asleep_ = events_.load(std::memory_order_seq_cst) == seen;
  }
  [[nodiscard]] bool sleeps_for_ever() { return asleep_ && activity() == slept_on_; }
  [[nodiscard]] bool asleep() const { return asleep_; }

 private:
  Word<std::uint32_t> events_{0};
  std::uint32_t slept_on_ = 0;
  bool asleep_ = false;
};

/// The ring that ships, or one with a rule broken.
template <Broken kBroken>
class Ring {
 public:
  explicit Ring(ModelBell& bell) : bell_(bell) {}
  Push try_push(int value) noexcept {
    if constexpr (kBroken != Broken::wake_before_publish) return ring_.try_push(value);
    return ring_.try_fill([&](int& cell) {
      cell = value;
      bell_.ring();  // told or not: an early ring is the only one there is
    }) == Push::full
               ? Push::full
               : Push::done;
  }
  int* front() noexcept { return ring_.front(); }
  void pop() noexcept { ring_.pop(); }
  bool announce_sleep() noexcept {
    if constexpr (kBroken == Broken::no_bit) return true;
    const bool announced = ring_.announce_sleep();
    return announced || kBroken == Broken::bit_without_recheck;
  }
  void retract_sleep() noexcept {
    if (!bell_.asleep()) ring_.retract_sleep();  // else it would be sleeping still
  }

 private:
  ModelBell& bell_;
  MpscRing<int, InterleavedAtomics> ring_{2};
};

/// What else the consumer waits for, from a peer that always rings (as over shared memory), or from a network
/// that rings once for each arm().
enum class Arriving { not_at_all, ringing, armed };

class Arrivals {
 public:
  Arrivals(ModelBell& bell, Arriving how) : bell_(bell), how_(how) {}
  void arrive() {
    here_.store(1, std::memory_order_seq_cst);
    if (how_ == Arriving::ringing || armed_.exchange(0, std::memory_order_seq_cst) != 0) bell_.ring();
  }
  bool poll() { return how_ != Arriving::not_at_all && here_.exchange(0, std::memory_order_seq_cst) != 0; }
  bool arm() {
    if (how_ != Arriving::armed) return true;
    armed_.store(1, std::memory_order_seq_cst);
    return here_.load(std::memory_order_seq_cst) == 0;
  }

 private:
  ModelBell& bell_;
  const Arriving how_;
  Word<int> here_{0}, armed_{0};
};

/// The transport's doorbell as the executor sees it: sleep() arms, as Transport::sleep does.
template <Broken kBroken>
struct ModelBed {
  ModelBell& bell;
  Arrivals& arrivals;
  void sleep(std::uint32_t seen, std::int64_t limit) {
    if (!arrivals.arm() && kBroken != Broken::arrival_not_armed) return;
    bell.sleep(seen, limit);
  }
};

template <Broken kBroken>
class Program {
 public:
  Program(Schedule& s, int producers, int each, Arriving how)
      : arrivals_(bell_, how), expected_(producers * each + (how == Arriving::not_at_all ? 0 : 1)) {
    for (int p = 0; p < producers; ++p)
      s.thread([this, each] {
        for (int i = 0; i < each; ++i) push(i);
      });
    if (how != Arriving::not_at_all) s.thread([this] { arrivals_.arrive(); });
    s.thread([this] { consume(); });
  }

  /// After the run: a wake-up was lost if the consumer sleeps for ever and something is there.
  [[nodiscard]] bool lost() {
    if (!bell_.sleeps_for_ever()) return false;
    return ring_.front() != nullptr || arrivals_.poll();
  }
  [[nodiscard]] bool slept() const { return bell_.asleep(); }

 private:
  void push(int value) {
    // Full: given up, so that the program ends under every schedule.
    if (ring_.try_push(value) == Push::wake && kBroken != Broken::no_wake) bell_.ring();
  }

  bool look() {
    bool moved = false;
    for (; ring_.front() != nullptr; ring_.pop(), moved = true) ++found_;
    return arrivals_.poll() ? ++found_, true : moved;
  }

  void consume() {
    ModelBed<kBroken> bed{bell_, arrivals_};
    for (int round = 0; round < 4 && found_ < expected_ && !bell_.asleep(); ++round) {
      std::uint32_t seen = bell_.activity();
      if (look()) continue;
      if constexpr (kBroken == Broken::count_read_late) seen = bell_.activity();
      if constexpr (kBroken == Broken::announce_before_look) {
        if (!ring_.announce_sleep()) continue;
        if (!look()) bed.sleep(seen, kNoLimit);
        ring_.retract_sleep();
      } else {
        (void)nap(ring_, bed, seen, kNoLimit);
      }
    }
  }

  ModelBell bell_;
  Ring<kBroken> ring_{bell_};
  Arrivals arrivals_;
  int expected_, found_ = 0;
};

struct Walked {
  std::uint64_t schedules = 0, slept = 0, lost = 0;
};

template <Broken kBroken>
Walked walk(int producers, int each, Arriving how) {
  Walked walked;
  walked.schedules = explore(Reduction::commuting, [&](Schedule& s) {
    Program<kBroken> program(s, producers, each, how);
    s.run();
    walked.slept += program.slept();
    walked.lost += program.lost();
  });
  return walked;
}

// The claim, and that the walk is not empty: there are schedules in which the consumer does sleep.
template <Broken kBroken>
void expect_nothing_lost(int producers, int each, Arriving how) {
  const Walked walked = walk<kBroken>(producers, each, how);
  EXPECT_EQ(walked.lost, 0u) << "of " << walked.schedules << " schedules";
  EXPECT_GT(walked.slept, 0u);
  ::testing::Test::RecordProperty("schedules", std::to_string(walked.schedules));
}

TEST(NapInterleaved, OneProducer) { expect_nothing_lost<Broken::nothing>(1, 2, Arriving::not_at_all); }
TEST(NapInterleaved, TwoProducers) { expect_nothing_lost<Broken::nothing>(2, 1, Arriving::not_at_all); }
TEST(NapInterleaved, AProducerAndAPeer) { expect_nothing_lost<Broken::nothing>(1, 1, Arriving::ringing); }
TEST(NapInterleaved, AProducerAndANetwork) { expect_nothing_lost<Broken::nothing>(1, 1, Arriving::armed); }

// With everything at once there are too many schedules to walk: thirty thousand of them.
TEST(NapInterleaved, RandomSchedulesOfAll) {
  std::uint64_t slept = 0;
  explore_random(1, 30'000, [&](Schedule& s) {
    Program<Broken::nothing> program(s, 2, 2, Arriving::armed);
    s.run();
    slept += program.slept();
    EXPECT_FALSE(program.lost());
  });
  EXPECT_GT(slept, 0u);
}

TEST(NapMutants, BitWithoutRecheck) {
  EXPECT_GT(walk<Broken::bit_without_recheck>(2, 1, Arriving::not_at_all).lost, 0u);
}
TEST(NapMutants, NoBit) { EXPECT_GT(walk<Broken::no_bit>(1, 1, Arriving::not_at_all).lost, 0u); }
TEST(NapMutants, BitTakenWithoutWake) {
  EXPECT_GT(walk<Broken::no_wake>(1, 1, Arriving::not_at_all).lost, 0u);
}
TEST(NapMutants, CountReadLate) {
  EXPECT_GT(walk<Broken::count_read_late>(1, 1, Arriving::ringing).lost, 0u);
}
TEST(NapMutants, ArmIgnored) { EXPECT_GT(walk<Broken::arrival_not_armed>(1, 1, Arriving::armed).lost, 0u); }
TEST(NapMutants, WakingFirstIsHarmless) {
  expect_nothing_lost<Broken::wake_before_publish>(2, 1, Arriving::not_at_all);
}
TEST(NapMutants, AnnouncingFirstIsHarmless) {
  expect_nothing_lost<Broken::announce_before_look>(1, 1, Arriving::armed);
}

}  // namespace
}  // namespace kasane::comm::offload
