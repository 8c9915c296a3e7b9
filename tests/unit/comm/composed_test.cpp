// SPDX-License-Identifier: Apache-2.0
// One transport from two. Ranks are threads, hosts are domains of the rendezvous, and the network is shared
// memory again, behind a mask that behaves as networks do: it maps no rank, completes in progress(), and
// rings the doorbells that it was given, or none.
#include "comm/composed/composed.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/random.h"
#include "comm/blocking.h"
#include "comm/bootstrap/rendezvous.h"
#include "comm/shm/shm_transport.h"
#include "support/service_thread.h"
#include "support/thread_ranks.h"

namespace kasane::comm::composed {
namespace {

constexpr RegionId kRegion{1};
constexpr std::size_t kRegionBytes = std::size_t{1} << 20;
constexpr HandlerId kEcho{1}, kToken{2}, kAgain{3};
constexpr std::uint32_t kRanks = 4;  ///< 0 and 2 on one host, 1 and 3 on the other

struct Mask {
  bool rings = true;     ///< else a rank must poll every poll_every_ns
  bool coherent = true;  ///< do its atomics agree with the CPU's?
};

class MaskedNetwork final : public Transport {
 public:
  MaskedNetwork(std::unique_ptr<Transport> inner, Bells& bells, Mask mask)
      : Transport(inner->rank(), inner->ranks()), inner_(std::move(inner)), bells_(bells), mask_(mask) {
    // Counted from here: a watcher that starts late must not take what came before for the beginning.
    if (mask.rings)
      watchers_.emplace_back(
          [this, seen = inner_->activity(Doorbell::messages)] { forward(Doorbell::messages, seen); });
    watchers_.emplace_back(
        [this, seen = inner_->activity(Doorbell::work)] { forward(Doorbell::work, seen); });
  }
  ~MaskedNetwork() override {
    stop_ = true;
    inner_->wake(rank(), Doorbell::messages);
    inner_->wake(rank(), Doorbell::work);
    for (auto& watcher : watchers_) watcher.join();
  }

  Facts facts() const noexcept override {
    return {.name = "masked",
            .target_cpu_needed = true,
            .puts_need_target = true,
            .atomics_coherent_with_cpu = mask_.coherent,
            .completes_inline = false,
            .poll_every_ns = mask_.rings ? 0 : 50'000,
            .detail = "a test"};
  }
  Result<std::byte*> make_memory(RegionId id, std::size_t bytes) override {
    return inner_->make_memory(id, bytes);
  }
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override {
    return inner_->attach(id, fd, local, bytes);
  }
  std::byte* mapped(Rank r, RegionId id) const noexcept override {
    return r == rank() ? inner_->mapped(r, id) : nullptr;
  }

  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion* c) noexcept override {
    (void)inner_->read(from, to, bytes, nullptr);
    return later(c);
  }
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion* c) noexcept override {
    (void)inner_->write(to, from, bytes, nullptr);
    return later(c);
  }
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag,
                    std::uint64_t value, Completion* c) noexcept override {
    (void)inner_->write_notify(to, from, bytes, flag, value, nullptr);
    return later(c);
  }
  Post atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
              Completion* c, Width width) noexcept override {
    (void)inner_->atomic(op, at, operand, compare, result, nullptr, width);
    return later(c);
  }
  Post fence(Rank target, Completion* c) noexcept override {
    (void)inner_->fence(target, nullptr);
    return later(c);
  }
  void set_handler(HandlerId id, Handler fn, void* context) noexcept override {
    inner_->set_handler(id, fn, context);
  }
  Post send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept override {
    ++operations;
    return inner_->send(to, id, payload);
  }
  Post request(Rank to, HandlerId id, std::span<const std::byte> payload, PendingReply& p) noexcept override {
    ++operations;
    return inner_->request(to, id, payload, p);
  }
  void reply(ReplyToken token, std::uint64_t value) noexcept override { inner_->reply(token, value); }
  bool test(PendingReply& p, std::uint64_t* value) noexcept override {
    const bool answered = inner_->test(p, value);
    if (answered && lose_answers) p.status = Status::peer_lost;
    return answered;
  }
  bool arm() noexcept override { return !refuse_arm; }
  std::uint32_t activity(Doorbell d) const noexcept override { return bells_[raw(d)].activity(); }
  void sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept override {
    if (d == Doorbell::messages && !arm()) return;
    const std::int64_t nap = d == Doorbell::messages ? facts().poll_every_ns : 0;
    bells_[raw(d)].sleep(seen, nap > 0 && (timeout_ns < 0 || timeout_ns > nap) ? nap : timeout_ns);
  }
  void wake(Rank to, Doorbell d) noexcept override { inner_->wake(to, d); }

  void lose(Rank peer) { report_lost(peer, "the cable is cut"); }

  std::atomic<int> operations{0};
  std::atomic<bool> refuse_arm{false}, lose_answers{false};

 private:
  Post later(Completion* c) noexcept {
    ++operations;
    const std::lock_guard lock(mutex_);
    completed_.push_back(c);
    bells_[raw(Doorbell::messages)].ring();
    return Post::pending;
  }
  bool poll() noexcept override {
    std::vector<Completion*> ready;
    {
      const std::lock_guard lock(mutex_);
      ready.swap(completed_);
    }
    for (Completion* c : ready) {
      if (c != nullptr) c->fn(c);
    }
    return inner_->progress() || !ready.empty();
  }
  void forward(Doorbell d, std::uint32_t seen) {
    while (!stop_) {
      inner_->sleep(d, seen, 20'000'000);
      const std::uint32_t now = inner_->activity(d);
      if (now != seen) bells_[raw(d)].ring();
      seen = now;
    }
  }

  std::unique_ptr<Transport> inner_;
  Bells& bells_;
  const Mask mask_;
  std::mutex mutex_;
  std::vector<Completion*> completed_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> watchers_;
};

/// One rank.
struct Env {
  Transport& transport;
  MaskedNetwork& network;
  OutOfBand& others;
  std::byte* memory;
  int fd;

  [[nodiscard]] std::uint32_t me() const { return raw(transport.rank()); }
  [[nodiscard]] Rank after(std::uint32_t k) const { return Rank{(me() + k) % kRanks}; }
  [[nodiscard]] static bool same_host(std::uint32_t a, std::uint32_t b) { return a % 2 == b % 2; }
  [[nodiscard]] std::uint64_t word(std::size_t i) const {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory)[i]).load();
  }
  /// All ranks; each goes on serving its own.
  void barrier() const { (void)others.allgather({}); }
};

void run_rank(const Job& network_job, OutOfBand& others, Mask mask, const std::function<void(Env&)>& body) {
  const std::uint32_t me = raw(others.rank());
  auto job = rendezvous(others, {.shared_bytes = shm::job_bytes, .domain = me % 2 == 0 ? "even" : "odd"});
  ASSERT_TRUE(job) << job.error().message;
  auto near = shm::create(*job);
  ASSERT_TRUE(near) << near.error().message;
  Job mine = network_job;
  mine.rank = others.rank();
  auto inner = shm::create(mine);
  ASSERT_TRUE(inner) << inner.error().message;
  auto far = std::make_unique<MaskedNetwork>(std::move(*inner), shm::bells(**near), mask);
  MaskedNetwork& network = *far;
  Parts parts{.near = std::move(*near), .far = std::move(far), .is_near = {}};
  for (std::uint32_t r = 0; r < kRanks; ++r) parts.is_near.push_back(job->on_this_host(Rank{r}));
  auto transport = create(std::move(parts), others);
  ASSERT_TRUE(transport) << transport.error().message;

  const int fd = ::memfd_create("kasane-test", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, kRegionBytes), 0);
  auto* memory =
      static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  const auto attached = (*transport)->attach(kRegion, fd, memory, kRegionBytes);
  EXPECT_TRUE(attached) << attached.error().message;
  if (attached) {
    Env env{.transport = **transport, .network = network, .others = others, .memory = memory, .fd = fd};
    body(env);
    env.barrier();
  }
  transport->reset();
  (void)others.allgather({});
  ::munmap(memory, kRegionBytes);
  ::close(fd);
  close_job(*job);
}

void on_every_rank(Mask mask, const std::function<void(Env&)>& body) {
  auto network_job = create_job(kRanks, shm::job_bytes(kRanks));
  ASSERT_TRUE(network_job) << network_job.error().message;
  kasane::test::run_thread_ranks(kRanks,
                                 [&](OutOfBand& others) { run_rank(*network_job, others, mask, body); });
  close_job(*network_job);
}

class Composed : public ::testing::TestWithParam<Mask> {};

TEST_P(Composed, EveryRankIsReachedByItsPath) {
  on_every_rank(GetParam(), [](Env& env) {
    PollWaiter waiter(env.transport);
    Blocking io(env.transport, waiter);
    for (std::uint32_t k = 0; k < kRanks; ++k) {
      const Rank to = env.after(k);
      const bool near = Env::same_host(env.me(), raw(to));
      EXPECT_EQ(env.transport.mapped(to, kRegion) != nullptr, near);
      const int before = env.network.operations;
      const std::uint64_t value = env.me() * 10 + raw(to);
      io.write({to, kRegion, 4096 + env.me() * 8}, &value, 8);
      std::uint64_t back = 0;
      io.read({to, kRegion, 4096 + env.me() * 8}, &back, 8);
      EXPECT_EQ(back, value);
      EXPECT_EQ(env.network.operations - before, near ? 0 : 2);
    }
    env.barrier();
    for (std::uint32_t r = 0; r < kRanks; ++r) EXPECT_EQ(env.word(512 + r), r * 10 + env.me());
  });
}

TEST_P(Composed, AtomicsOfNearAndFarRanksOnOneWordSumUp) {
  constexpr std::uint64_t kEach = 2000;
  on_every_rank(GetParam(), [](Env& env) {
    PollWaiter waiter(env.transport);
    Blocking io(env.transport, waiter);
    const int before = env.network.operations;
    for (std::uint64_t i = 0; i < kEach; ++i) io.fetch_add({Rank{0}, kRegion, 0}, 1);
    const bool by_network = !GetParam().coherent || env.me() % 2 != 0;
    EXPECT_EQ(env.network.operations - before, by_network ? static_cast<int>(kEach) : 0);
    EXPECT_EQ(env.transport.facts().atomics_coherent_with_cpu, GetParam().coherent);
    env.barrier();
    if (env.me() == 0) {
      EXPECT_EQ(env.word(0), kEach * kRanks);
    }
  });
}

TEST_P(Composed, AFenceAndANotificationWorkOnBothPaths) {
  on_every_rank(GetParam(), [](Env& env) {
    PollWaiter waiter(env.transport);
    struct Count : Completion {
      std::atomic<int> ended{0};
    } count;
    count.fn = [](Completion* c) noexcept { static_cast<Count*>(c)->ended.fetch_add(1); };
    int pending = 0;
    const std::array<std::uint64_t, 4> data{1, 2, 3, env.me()};
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      const std::uint64_t at = 8192 + env.me() * 64;
      pending += env.transport.write_notify({Rank{r}, kRegion, at}, data.data(), sizeof(data), at + 56, 7,
                                            &count) == Post::pending;
      const Post fenced = env.transport.fence(Rank{r}, &count);
      EXPECT_EQ(fenced == Post::done, Env::same_host(env.me(), r) && GetParam().coherent);
      pending += fenced == Post::pending;
    }
    waiter.until([&] { return count.ended.load() == pending; });
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      waiter.until([&] { return env.word(1024 + r * 8 + 7) == 7; });
      EXPECT_EQ(env.word(1024 + r * 8 + 3), r);
    }
    env.barrier();
  });
}

// More requests than there are slots, to all ranks at once, from two threads, answered in the handler.
TEST_P(Composed, RequestsToAllRanksAreAnsweredOnceEachByWhoWasAsked) {
  on_every_rank(GetParam(), [](Env& env) {
    env.transport.set_handler(
        kEcho,
        [](void* c, const Message& m) noexcept {
          auto& t = *static_cast<Transport*>(c);
          std::uint64_t x;
          std::memcpy(&x, m.payload.data(), 8);
          t.reply(m.token, x * 100 + raw(t.rank()) * 10 + raw(m.from));
        },
        &env.transport);
    env.barrier();
    {
      const kasane::test::ServiceThread service(env.transport);
      std::vector<std::thread> threads;
      for (std::uint64_t t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
          PollWaiter waiter(env.transport);
          struct Asked {
            PendingReply pending;
            std::uint64_t expected;
          };
          std::vector<Asked> asked;
          asked.reserve(1500);  // pending replies must not move
          Random random(env.me() * 2 + t);
          for (std::uint64_t i = 0; i < 1500; ++i) {
            const auto to = static_cast<std::uint32_t>(random() % kRanks);
            asked.push_back({{}, i * 100 + to * 10 + env.me()});
            waiter.until([&] {
              // Full slots are emptied by testing what was asked first.
              return asked.back().pending.stamp != 0 ||
                     env.transport.request(Rank{to}, kEcho, as_payload(i), asked.back().pending) ==
                         Post::pending ||
                     [&] {
                       for (auto& a : asked) {
                         std::uint64_t value = 0;
                         if (a.pending.stamp != 0 && env.transport.test(a.pending, &value)) {
                           EXPECT_EQ(value, a.expected);
                           a.expected = 0;
                         }
                       }
                       return false;
                     }();
            });
          }
          for (auto& a : asked) {
            if (a.pending.stamp == 0) continue;
            std::uint64_t value = 0;
            bool answered = false;
            waiter.until([&] { return answered || (answered = env.transport.test(a.pending, &value)); });
            EXPECT_EQ(value, a.expected);
          }
        });
      }
      for (auto& thread : threads) thread.join();
      env.barrier();
    }
  });
}

// A token goes round ranks of both hosts; every service thread sleeps without limit.
TEST_P(Composed, NoWakeUpIsLostWhicheverPathItTakes) {
  constexpr std::uint64_t kRounds = 300;
  struct Token {
    Transport* transport;
    std::atomic<std::uint64_t> seen{0};
  };
  on_every_rank(GetParam(), [&](Env& env) {
    Token token{.transport = &env.transport};
    env.transport.set_handler(
        kToken,
        [](void* c, const Message&) noexcept {
          auto& t = *static_cast<Token*>(c);
          t.seen.fetch_add(1);
          t.transport->wake(t.transport->rank(), Doorbell::work);
        },
        &token);
    env.barrier();
    const kasane::test::ServiceThread service(env.transport);
    auto sleep_until = [&](std::uint64_t count) {
      for (;;) {
        const std::uint32_t seen = env.transport.activity(Doorbell::work);
        if (token.seen.load() >= count) return;
        env.transport.sleep(Doorbell::work, seen, -1);
      }
    };
    PollWaiter waiter(env.transport);
    Blocking io(env.transport, waiter);
    // 0 → 2 near, 2 → 1 far, 1 → 3 near, 3 → 0 far.
    constexpr std::uint32_t kNext[kRanks] = {2, 3, 1, 0};
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      if (env.me() != 0) sleep_until(round);
      io.send(Rank{kNext[env.me()]}, kToken, {});
      if (env.me() == 0) sleep_until(round);
    }
    EXPECT_EQ(token.seen.load(), kRounds);
    env.barrier();
  });
}

TEST_P(Composed, AWakeReachesASleeperOfAnyRank) {
  on_every_rank(GetParam(), [](Env& env) {
    // Every rank wakes every rank's workers once; no rank makes progress.
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      const std::uint32_t before = env.transport.activity(Doorbell::work);
      env.barrier();
      if (env.me() == r) {
        for (std::uint32_t k = 1; k < kRanks; ++k) env.transport.wake(env.after(k), Doorbell::work);
      } else {
        while (env.transport.activity(Doorbell::work) == before)
          env.transport.sleep(Doorbell::work, before, -1);
      }
      env.barrier();
    }
    env.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Masks, Composed, ::testing::Values(Mask{}, Mask{.rings = false}, Mask{.coherent = false}),
    [](const auto& p) {
      return std::string(!p.param.rings ? "polled" : p.param.coherent ? "ringing" : "own_atomics");
    });

TEST(ComposedFacts, AreThoseOfTheWeakerPart) {
  on_every_rank({.rings = false}, [](Env& env) {
    const Facts facts = env.transport.facts();
    EXPECT_EQ(facts.name, "composed");
    EXPECT_TRUE(facts.target_cpu_needed);
    EXPECT_TRUE(facts.puts_need_target);
    EXPECT_FALSE(facts.completes_inline);
    EXPECT_FALSE(facts.ordered);
    EXPECT_EQ(facts.poll_every_ns, 50'000);
    EXPECT_EQ(facts.detail, "shm within, masked (a test) between");
  });
}

// While a rank talks to itself without end, messages of the network still run.
TEST(ComposedProgress, NearTrafficDoesNotStarveTheNetwork) {
  struct State {
    Transport* transport;
    std::atomic<bool> heard{false};
  };
  on_every_rank({}, [](Env& env) {
    State state{.transport = &env.transport};
    env.transport.set_handler(
        kAgain,
        [](void* c, const Message&) noexcept {
          auto& t = *static_cast<State*>(c)->transport;
          (void)t.send(t.rank(), kAgain, {});
        },
        &state);
    env.transport.set_handler(
        kToken, [](void* c, const Message&) noexcept { static_cast<State*>(c)->heard = true; }, &state);
    env.barrier();
    if (env.me() == 0) {
      ASSERT_EQ(env.transport.send(Rank{0}, kAgain, {}), Post::done);
      for (int i = 0; i < 40; ++i) env.transport.progress();  // the network is quiet, and known to be
    }
    env.barrier();
    if (env.me() == 1) {
      EXPECT_EQ(env.transport.send(Rank{0}, kToken, {}), Post::done);
    }
    env.barrier();
    if (env.me() == 0) {
      for (int i = 0; i < 16; ++i) EXPECT_TRUE(env.transport.progress());
      EXPECT_TRUE(state.heard.load());
    }
    env.barrier();
  });
}

TEST(ComposedSleep, DoesNotSleepWhileTheNetworkSaysThatSomethingMayBeThere) {
  on_every_rank({}, [](Env& env) {
    env.network.refuse_arm = true;
    // for ever, if it slept
    env.transport.sleep(Doorbell::messages, env.transport.activity(Doorbell::messages), -1);
    EXPECT_FALSE(env.transport.arm());
    env.network.refuse_arm = false;
    EXPECT_TRUE(env.transport.arm());
  });
}

TEST(ComposedLoss, APeerThatDisappearsIsReportedAndItsAnswersAreNot) {
  struct Lost {
    std::vector<std::uint32_t> ranks;
    std::string why;
  };
  on_every_rank({}, [](Env& env) {
    Lost lost;
    env.transport.set_peer_lost(
        [](void* c, Rank peer, std::string_view why) noexcept {
          static_cast<Lost*>(c)->ranks.push_back(raw(peer));
          static_cast<Lost*>(c)->why = why;
        },
        &lost);
    env.transport.set_handler(
        kEcho, [](void* c, const Message& m) noexcept { static_cast<Transport*>(c)->reply(m.token, 5); },
        &env.transport);
    env.barrier();
    env.network.lose(env.after(1));
    EXPECT_EQ(lost.ranks, std::vector<std::uint32_t>{raw(env.after(1))});
    EXPECT_EQ(lost.why, "the cable is cut");
    env.network.lose_answers = true;
    PollWaiter waiter(env.transport);
    for (const std::uint32_t k : {1u, 2u}) {  // a far rank, a near one
      PendingReply pending;
      ASSERT_EQ(env.transport.request(env.after(k), kEcho, {}, pending), Post::pending);
      bool ended = false;
      waiter.until([&] { return ended || (ended = env.transport.test(pending, nullptr)); });
      EXPECT_EQ(pending.status, k == 1 ? Status::peer_lost : Status::ok);
    }
    // Others may still ask.
    std::atomic<bool> all_done{false};
    std::thread server([&] {
      while (!all_done) env.transport.progress();
    });
    env.barrier();
    all_done = true;
    server.join();
  });
}

// The region of one rank is of another size: its host refuses, and the other host must hear of it instead of
// waiting on the network.
TEST(ComposedAttach, AFailureOnOneHostIsAnErrorOnEveryRank) {
  on_every_rank({}, [](Env& env) {
    const std::size_t bytes = env.me() == 2 ? kRegionBytes / 2 : kRegionBytes;
    const auto attached = env.transport.attach(RegionId{2}, env.fd, env.memory, bytes);
    ASSERT_FALSE(attached);
    if (env.me() % 2 != 0) {
      EXPECT_NE(attached.error().message.find("failed on rank "), std::string::npos)
          << attached.error().message;
    }
  });
}

TEST(ComposedCreate, PartsThatDisagreeAreRefused) {
  kasane::test::run_thread_ranks(1, [](OutOfBand& others) {
    auto one = create_job(1, shm::job_bytes(1));
    auto two = create_job(2, shm::job_bytes(2));
    ASSERT_TRUE(one && two);
    auto make = [&](const Job& near, const Job& far, std::vector<bool> is_near) {
      Parts parts{.near = std::move(*shm::create(near)),
                  .far = std::move(*shm::create(far)),
                  .is_near = std::move(is_near)};
      return create(std::move(parts), others);
    };
    EXPECT_TRUE(make(*one, *one, {true}));
    EXPECT_FALSE(make(*one, *two, {true}));
    EXPECT_FALSE(make(*one, *one, {true, true}));
    EXPECT_FALSE(make(*one, *one, {false}));
    close_job(*one);
    close_job(*two);
  });
}

}  // namespace
}  // namespace kasane::comm::composed
