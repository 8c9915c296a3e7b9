// SPDX-License-Identifier: Apache-2.0
// The offloader over shared memory, with rings of 2 to 1024 commands: every command once, in whichever thread
// it completes; full rings and blocked peers are answered, never lost; idle threads sleep.
#include "comm/offload/offloader.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "three_ranks.h"

namespace kasane::comm {
namespace {

using test::make_add;
using test::make_atomic;
using test::make_transfer;
using test::TestIssuer;
using test::ThreeRanks;

std::unique_ptr<Offloader> start(ThreeRanks& job, Issuer& issuer, std::uint32_t ring_commands) {
  auto started = Offloader::start(job.transport(), issuer, ring_commands);
  EXPECT_TRUE(started) << started.error().message;
  return std::move(*started);
}

template <class Pred>
void wait_until(const Pred& ready) {
  while (!ready()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

Callback count_in(std::atomic<std::uint64_t>& counter) {
  return {[](void* c, Status) noexcept {
            static_cast<std::atomic<std::uint64_t>*>(c)->fetch_add(1, std::memory_order_release);
          },
          &counter};
}

constexpr std::uint32_t kRings[] = {2, 16, 1024};

std::string describe(std::uint32_t ring_commands) { return "ring of " + std::to_string(ring_commands); }

TEST(Offloader, RefusesWhatItCannotBe) {
  ThreeRanks job;
  TestIssuer issuer(job.transport(), job.memory(0));
  for (const std::uint32_t bad : {0u, 1u, 48u}) EXPECT_FALSE(Offloader::start(job.transport(), issuer, bad));
}

// ---- random programs against an oracle --------------------------------------------------------------------

/// One operation at a time on words of its own, so that what each must return is known; many lanes are in
/// flight at once.
class Lane {
 public:
  Lane(ThreeRanks& job, TestIssuer& issuer, std::uint32_t index, Random random)
      : job_(job), index_(index), random_(random) {
    issuer.answers[index] = &result_;
  }

  [[nodiscard]] bool busy() const { return !done_.load(std::memory_order_acquire); }

  /// Takes the result of the last operation, and tries to push a new one. False: the ring was full.
  bool advance(Offloader& offloader) {
    check();
    const Command command = next();
    done_.store(false, std::memory_order_relaxed);
    if (offloader.try_push(command)) return true;
    done_.store(true, std::memory_order_relaxed);
    expect_ = Expect::nothing;
    ++refused_;
    return false;
  }
  void check() {
    if (expect_ == Expect::result) {
      EXPECT_EQ(result_, expected_) << "lane " << index_;
    }
    if (expect_ == Expect::read) {
      EXPECT_EQ(job_.word(0, local()).load(std::memory_order_relaxed), expected_) << "lane " << index_;
    }
    if (expect_ != Expect::nothing) accept();
    expect_ = Expect::nothing;
  }
  void expect_final() {
    for (std::uint32_t peer = 1; peer < ThreeRanks::kRanks; ++peer)
      EXPECT_EQ(job_.word(peer, remote()).load(), model_[peer]) << "lane " << index_;
    EXPECT_EQ(calls_.load(), accepted_) << "each callback once";
  }
  [[nodiscard]] std::uint64_t shared_sum() const { return shared_sum_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  enum class Expect { nothing, completion, result, read };

  [[nodiscard]] std::uint64_t remote() const { return 64 + index_ * 8; }
  [[nodiscard]] std::uint64_t local() const { return 8192 + index_ * 8; }
  Callback callback() {
    return {[](void* self, Status status) noexcept {
              auto& lane = *static_cast<Lane*>(self);
              EXPECT_EQ(status, Status::ok);
              lane.calls_.fetch_add(1, std::memory_order_relaxed);
              lane.done_.store(true, std::memory_order_release);
            },
            this};
  }

  Command next() {
    peer_ = 1 + static_cast<std::uint32_t>(random_.below(ThreeRanks::kRanks - 1));
    value_ = random_.below(1u << 30);
    what_ = static_cast<int>(random_.below(5));
    expected_ = model_[peer_];
    expect_ = what_ < 2 ? Expect::result : what_ == 2 ? Expect::read : Expect::completion;
    switch (what_) {
      case 0: return make_add(peer_, remote(), value_, index_, callback());
      case 1: return make_atomic(AtomicOp::swap, peer_, remote(), value_, &result_, callback());
      case 2: return make_transfer(Command::Kind::read, peer_, remote(), local(), 8, callback());
      case 3:
        job_.word(0, local()).store(value_, std::memory_order_relaxed);
        return make_transfer(Command::Kind::write, peer_, remote(), local(), 8, callback());
      // a word that all lanes share
      default: return make_atomic(AtomicOp::fetch_add, 1, 0, value_, nullptr, callback());
    }
  }
  void accept() {
    ++accepted_;
    if (what_ == 0) model_[peer_] += value_;
    if (what_ == 1 || what_ == 3) model_[peer_] = value_;
    if (what_ == 4) shared_sum_ += value_;
  }

  ThreeRanks& job_;
  std::uint32_t index_;
  Random random_;
  std::array<std::uint64_t, ThreeRanks::kRanks> model_{};
  std::atomic<bool> done_{true};
  std::atomic<std::uint64_t> calls_{0};
  Expect expect_ = Expect::nothing;
  std::uint32_t peer_ = 1;
  std::uint64_t value_ = 0, expected_ = 0, result_ = 0, accepted_ = 0, shared_sum_ = 0, refused_ = 0;
  int what_ = 0;
};

void random_program(test::Over over, std::uint32_t ring_commands, std::uint64_t seed, int operations) {
  SCOPED_TRACE(describe(ring_commands) + ", seed " + std::to_string(seed));
  constexpr std::uint32_t kRequesters = 8, kLanes = 6;
  ThreeRanks job(over);
  TestIssuer issuer(job.transport(), job.memory(0));
  std::vector<std::unique_ptr<Lane>> lanes;
  for (std::uint32_t i = 0; i < kRequesters * kLanes; ++i)
    lanes.push_back(std::make_unique<Lane>(job, issuer, i, Random(seed * 1000 + i)));
  {
    auto offloader = start(job, issuer, ring_commands);
    std::vector<std::thread> requesters;
    for (std::uint32_t r = 0; r < kRequesters; ++r)
      requesters.emplace_back([&, r] {
        for (int left = operations; left > 0;) {
          bool pushed = false;
          for (std::uint32_t l = r * kLanes; l < (r + 1) * kLanes && left > 0; ++l)
            if (!lanes[l]->busy() && lanes[l]->advance(*offloader)) pushed = true, --left;
          if (!pushed) std::this_thread::yield();
        }
      });
    for (auto& thread : requesters) thread.join();
    wait_until([&] {
      return std::none_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane->busy(); });
    });
  }
  std::uint64_t shared = 0;
  for (const auto& lane : lanes) {
    lane->check();
    lane->expect_final();
    shared += lane->shared_sum();
  }
  EXPECT_EQ(job.word(1, 0).load(), shared);
}

TEST(OffloaderStress, RandomProgramsOverSharedMemory) {
  std::uint64_t seed = 1;
  for (const std::uint32_t ring_commands : kRings)
    random_program(test::Over::shm, ring_commands, seed++, 1000);
}

// Over a network nothing completes inline, and arrivals ring an armed doorbell only.
TEST(OffloaderStress, RandomProgramsOverANetwork) {
  if (const auto ucx = ucx::available(); !ucx) GTEST_SKIP() << ucx.error().message;
  std::uint64_t seed = 101;
  for (const std::uint32_t ring_commands : kRings)
    random_program(test::Over::ucx_tcp, ring_commands, seed++, 60);
}

// ---- back-pressure ----------------------------------------------------------------------------------------

// A peer that takes nothing is closed after some commands; the other goes on as if nothing were; then
// everything arrives.
TEST(Offloader, ABlockedPeerBlocksNoOtherPeer) {
  for (const std::uint32_t ring_commands : kRings) {
    SCOPED_TRACE(describe(ring_commands));
    ThreeRanks job;
    TestIssuer issuer(job.transport(), job.memory(0));
    auto offloader = start(job, issuer, ring_commands);
    std::atomic<std::uint64_t> blocked_done{0}, free_done{0};
    job.hold(1, true);
    // The issuer has 12 outstanding operations towards a peer; the rest is held.
    std::uint64_t blocked = 0, refused = 0;
    while (refused < 60) {
      if (offloader->try_push(make_add(1, 64, 1, 1, count_in(blocked_done)))) {
        ++blocked;
      } else {
        ++refused;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    EXPECT_EQ(blocked_done.load(), 0u);
    constexpr std::uint64_t kOthers = 500;
    for (std::uint64_t i = 0; i < kOthers;) {
      if (offloader->try_push(make_atomic(AtomicOp::fetch_add, 2, 64, 1, nullptr, count_in(free_done))))
        ++i;
      else
        std::this_thread::yield();
    }
    wait_until([&] { return free_done.load(std::memory_order_acquire) == kOthers; });
    EXPECT_EQ(blocked_done.load(), 0u);
    job.hold(1, false);
    wait_until([&] { return blocked_done.load(std::memory_order_acquire) == blocked; });
    EXPECT_EQ(job.word(1, 64).load(), blocked);
    EXPECT_EQ(job.word(2, 64).load(), kOthers);
  }
}

// ---- starting, issuing, stopping --------------------------------------------------------------------------

TEST(Offloader, IssuedEverythingMeansIssued) {
  for (const std::uint32_t ring_commands : kRings) {
    SCOPED_TRACE(describe(ring_commands));
    ThreeRanks job;
    TestIssuer issuer(job.transport(), job.memory(0));
    auto offloader = start(job, issuer, ring_commands);
    std::atomic<std::uint64_t> done{0};
    for (std::uint64_t round = 1; round <= 50; ++round) {
      std::uint64_t pushed = 0;
      for (int i = 0; i < 20; ++i)
        pushed += offloader->try_push(make_atomic(AtomicOp::fetch_add, 1, 64, 1, nullptr, count_in(done)));
      EXPECT_GT(pushed, 0u);
      wait_until([&] { return offloader->issued_everything(); });
      EXPECT_EQ(done.exchange(0, std::memory_order_acquire), pushed)
          << "over shared memory issued is completed";
    }
  }
}

// Destroyed with a full ring: what was accepted is issued all the same.
TEST(Offloader, EndsWithCommandsInFlight) {
  for (const std::uint32_t ring_commands : kRings) {
    SCOPED_TRACE(describe(ring_commands));
    ThreeRanks job;
    TestIssuer issuer(job.transport(), job.memory(0));
    std::atomic<std::uint64_t> done{0};
    std::uint64_t pushed = 0;
    {
      auto offloader = start(job, issuer, ring_commands);
      for (int i = 0; i < 3000; ++i)
        pushed += offloader->try_push(
            i % 3 == 0 ? make_add(1, 64, 1, 1, count_in(done))
                       : make_atomic(AtomicOp::fetch_add, 1, 64, 1, nullptr, count_in(done)));
    }
    wait_until([&] {
      (void)job.transport().progress();
      return done.load(std::memory_order_acquire) == pushed;
    });
    EXPECT_EQ(job.word(1, 64).load(), pushed);
  }
}

// A callback posts the next operation, as long as the ring takes it.
TEST(Offloader, CallbacksMayPost) {
  struct Chain {
    Offloader& offloader;
    std::atomic<int> left;
    std::atomic<bool> stuck{false};
    void post() {
      if (!offloader.try_push(make_atomic(AtomicOp::fetch_add, 2, 64, 1, nullptr, {&next, this})))
        stuck.store(true, std::memory_order_release);
    }
    static void next(void* self, Status) noexcept {
      auto& chain = *static_cast<Chain*>(self);
      if (chain.left.fetch_sub(1, std::memory_order_acq_rel) > 1) chain.post();
    }
  };
  for (const std::uint32_t ring_commands : kRings) {
    SCOPED_TRACE(describe(ring_commands));
    ThreeRanks job;
    TestIssuer issuer(job.transport(), job.memory(0));
    auto offloader = start(job, issuer, ring_commands);
    Chain chain{*offloader, {1000}};
    chain.post();
    // With two cells the consumer's own cell is one of them: the callback may find the ring full; then it is
    // our turn.
    wait_until([&] {
      if (chain.stuck.exchange(false, std::memory_order_acq_rel)) chain.post();
      return chain.left.load(std::memory_order_acquire) <= 0;
    });
    EXPECT_EQ(job.word(2, 64).load(), 1000u);
  }
}

// Each push finds the executor asleep: if a wake-up can be lost, one of these hangs.
void wake_every_time(test::Over over, int rounds) {
  for (const std::uint32_t ring_commands : kRings) {
    SCOPED_TRACE(describe(ring_commands));
    ThreeRanks job(over);
    TestIssuer issuer(job.transport(), job.memory(0));
    auto offloader = start(job, issuer, ring_commands);
    std::uint64_t answer = 0;
    issuer.answers[1] = &answer;
    Random random(7);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(rounds); ++i) {
      std::atomic<std::uint64_t> done{0};
      ASSERT_TRUE(offloader->try_push(make_add(1, 64, 1, 1, count_in(done))));
      while (done.load(std::memory_order_acquire) == 0) std::this_thread::yield();
      EXPECT_EQ(answer, i);
      // about as long as they poll before they sleep
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(240)));
    }
  }
}

TEST(Offloader, WakesFromSleepEveryTime) { wake_every_time(test::Over::shm, 200); }

TEST(Offloader, WakesFromSleepEveryTimeOverANetwork) {
  if (const auto ucx = ucx::available(); !ucx) GTEST_SKIP() << ucx.error().message;
  wake_every_time(test::Over::ucx_tcp, 50);
}

// ---- manners ----------------------------------------------------------------------------------------------

TEST(Offloader, AnIdleExecutorSleeps) {
  ThreeRanks job;
  TestIssuer issuer(job.transport(), job.memory(0));
  auto offloader = start(job, issuer, 64);
  std::atomic<std::uint64_t> done{0};
  ASSERT_TRUE(offloader->try_push(make_atomic(AtomicOp::fetch_add, 1, 64, 1, nullptr, count_in(done))));
  wait_until([&] { return done.load(std::memory_order_acquire) == 1; });
  const auto cpu_us = [] {
    rusage use;
    ::getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1'000'000 + use.ru_utime.tv_usec +
           use.ru_stime.tv_usec;
  };
  const auto before = cpu_us();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(cpu_us() - before, 200'000) << "a spinning thread would have used a second";
}

// What /proc says of each thread of this process whose name begins with prefix.
std::vector<std::string> blocked_signals_of(const std::string& prefix) {
  std::vector<std::string> masks;
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* task = ::readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    std::string name, line;
    std::getline(std::ifstream(folder + "/comm") >> std::ws, name);
    if (name.rfind(prefix, 0) != 0) continue;
    for (std::ifstream status(folder + "/status"); std::getline(status, line);)
      if (line.rfind("SigBlk:", 0) == 0) masks.push_back(line.substr(line.find_last_of(" \t") + 1));
  }
  ::closedir(tasks);
  return masks;
}

TEST(Offloader, ItsThreadIsNamedAndTakesNoSignals) {
  ThreeRanks job;
  TestIssuer issuer(job.transport(), job.memory(0));
  auto offloader = start(job, issuer, 64);
  // It names itself: that takes a moment.
  wait_until([] { return blocked_signals_of("offload").size() == 1; });
  const std::uint64_t blocked = std::stoull(blocked_signals_of("offload").front(), nullptr, 16);
  EXPECT_NE(blocked & (1u << (SIGINT - 1)), 0u);
  EXPECT_NE(blocked & (1u << (SIGTERM - 1)), 0u);
  EXPECT_EQ(blocked & (1u << (SIGSEGV - 1)), 0u) << "its own faults are reported";
}

}  // namespace
}  // namespace kasane::comm
