// SPDX-License-Identifier: Apache-2.0
// The engine over a transport that is slow to attach, loses a message, delivers one late, or says that puts
// do not need the target: two ranks over shared memory that hides, through a transport that does these things
// on purpose.
#include <array>
#include <memory>

#include "comm/engine/wire.h"
#include "multi/comm_engine/engine_env.h"

namespace kasane::comm::test {
namespace {

class Faulty final : public HiddenMemory {
 public:
  explicit Faulty(Transport& below) : HiddenMemory(below) {}

  Facts facts() const noexcept override {
    Facts f = HiddenMemory::facts();
    f.target_cpu_needed = true;
    f.puts_need_target = puts_need_target;
    return f;
  }
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override {
    auto attached = HiddenMemory::attach(id, fd, local, bytes);
    if (id == kRegion && after_attach) after_attach(local);
    return attached;
  }
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion* c) noexcept override {
    ++writes;
    return HiddenMemory::write(to, from, bytes, c);
  }
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                    std::uint64_t value, Completion* c) noexcept override {
    ++notifies;
    return HiddenMemory::write_notify(to, from, bytes, flag_offset, value, c);
  }

  Post send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept override {
    return id == wire::kReadData && loses_data ? Post::done : HiddenMemory::send(to, id, payload);
  }
  bool lost(Rank) const noexcept override { return peer_lost.load(); }

  bool puts_need_target = false;
  bool loses_data = false;
  std::atomic<bool> peer_lost{false};
  int notifies = 0, writes = 0;
  std::function<void(std::byte*)> after_attach;
};

using FaultyBody = std::function<void(EngineEnv&, Faulty&)>;

void over_faulty(const std::function<void(Faulty&)>& prepare, const FaultyBody& body) {
  kasane::test::run_ranks(2, [&](const Job& job) {
    auto transport = shm::create(job);
    ASSERT_TRUE(transport) << transport.error().message;
    Faulty faulty(**transport);
    prepare(faulty);
    run_engine_over(faulty, Kind::shm_service, Over::hidden, {.mode = Mode::direct},
                    [&](EngineEnv& env) { body(env, faulty); });
  });
}

/// count rows of 8 bytes, apart on the remote side: they always travel packed.
StridedParams rows(RemoteAddr remote, LocalAddr local, std::uint64_t count, Callback done = {}) {
  return {.remote = remote,
          .local = local,
          .shape = {.dimensions = 2, .count = {8, count}, .remote_stride = {16}, .local_stride = {8}},
          .on_complete = done};
}

// A lone write with notification stays one-sided where only atomics need the target, and is one message where
// puts do.
TEST(FaultyTransport, ANotificationTravelsAsPutsDo) {
  for (const bool needed : {false, true}) {
    over_faulty([&](Faulty& f) { f.puts_need_target = needed; },
                [&](EngineEnv& env, Faulty& faulty) {
                  EXPECT_TRUE(env.io().write_notify({.to = env.at(env.next(), 64),
                                                     .from = env.here(4096),
                                                     .bytes = 8,
                                                     .flag_offset = 128,
                                                     .value = 5,
                                                     .on_complete = {}}));
                  env.waiter.until([&] { return env.word(128 / 8).load(std::memory_order_acquire) == 5; });
                  EXPECT_EQ(faulty.notifies, needed ? 0 : 1);
                });
  }
}

// A lone word goes in a pack where puts are messages: the libraries below may store it twice, the second time
// over what its owner wrote when it had seen the first.
TEST(FaultyTransport, AWordIsStoredOnce) {
  struct Case {
    std::uint64_t offset;
    std::size_t bytes;
    bool word;
  };
  for (const bool needed : {false, true}) {
    over_faulty([&](Faulty& f) { f.puts_need_target = needed; },
                [&](EngineEnv& env, Faulty& faulty) {
                  for (const auto [offset, bytes, word] :
                       {Case{64, 8, true}, Case{68, 4, true}, Case{66, 2, true}, Case{65, 1, true},
                        Case{68, 8, false}, Case{66, 4, false}, Case{64, 3, false}, Case{64, 16, false}}) {
                    const int before = faulty.writes;
                    EXPECT_TRUE(env.io().write({.to = env.at(env.next(), offset),
                                                .from = env.here(4096),
                                                .bytes = bytes,
                                                .on_complete = {}}));
                    EXPECT_EQ(faulty.writes - before, needed && word ? 0 : 1) << bytes << " at " << offset;
                  }
                });
  }
}

// Data of an earlier use of a pack (here: forged) is not taken for that of the present one.
TEST(FaultyTransport, StaleDataClaimsNothing) {
  over_faulty([](Faulty&) {},
              [](EngineEnv& env, Faulty& transport) {
                constexpr std::uint64_t kRows = 400;  // several packs
                for (std::uint64_t i = 0; i < 2 * kRows; ++i) env.word(i).store(1000 * env.me() + i);
                env.all.barrier();
                const int rounds = 50;
                if (env.me() == 0) {
                  for (int n = 0; n < rounds; ++n) {
                    std::memset(env.memory + 65536, 0, kRows * 8);
                    ASSERT_TRUE(env.io().read(rows(env.at(Rank{1}, 0), env.here(65536), kRows)));
                    for (std::uint64_t i = 0; i < kRows; ++i)
                      ASSERT_EQ(env.word(65536 / 8 + i).load(), 1000 + 2 * i) << "round " << n;
                  }
                } else {
                  for (int n = 0; n < 50 * rounds; ++n) {
                    std::array<std::uint64_t, kMaxPayload / 8> data;
                    data.fill(0xBADBADBADull);
                    const wire::ReadDataHead head{.pack = static_cast<std::uint32_t>(n % 64), .stamp = 0};
                    std::memcpy(data.data(), &head, sizeof(head));
                    env.waiter.until([&] {
                      return transport.send(Rank{0}, wire::kReadData, std::as_bytes(std::span(data))) ==
                             Post::done;
                    });
                  }
                }
                env.all.barrier();
              });
}

// The answer of a read pack has come, its data died with the peer.
TEST(FaultyTransport, AnAnsweredReadWhoseDataIsLostEnds) {
  over_faulty(
      [](Faulty& f) { f.loses_data = f.rank() == Rank{1}; },
      [](EngineEnv& env, Faulty& transport) {
        if (env.me() == 1) return;
        Counter reads;
        Flag flushed;
        constexpr std::uint64_t kReads = 20;
        for (std::uint64_t i = 0; i < kReads; ++i) {
          env.post(&Engine::try_read_strided_async,
                   rows(env.at(Rank{1}, 0), env.here(65536), 2, reads.callback()), env.waiter);
        }
        env.post(&Engine::try_flush_async, {.rank = Rank{1}, .on_complete = flushed.callback()}, env.waiter);
        // Later answers of the same peer say that the first has come too.
        for (int i = 0; i < 100; ++i)
          ASSERT_TRUE(env.io().request(
              {.to = Rank{1}, .handler = kEcho, .payload = {}, .answer = nullptr, .on_complete = {}}));
        EXPECT_EQ(reads.completed(), 0u);
        EXPECT_FALSE(flushed.ready());
        transport.peer_lost = true;
        transport.wake(transport.rank(), Doorbell::messages);
        EXPECT_EQ(reads.wait(env.waiter, kReads), Status::peer_lost);
        EXPECT_EQ(flushed.wait(env.waiter), Status::ok);
        EXPECT_EQ(reads.completed(), kReads);
      });
}

// A peer that has returned from attach sends; here attach has not returned yet, but another thread makes
// progress.
TEST(FaultyTransport, APackMayComeBeforeAttachReturns) {
  kasane::test::run_ranks(2, [](const Job& job) {
    auto below = shm::create(job);
    ASSERT_TRUE(below) << below.error().message;
    Faulty transport(**below);
    PollWaiter waiter(transport);
    Collectives all(transport, waiter);  // sets its handlers
    auto engine = Engine::create(transport, {.mode = Mode::direct});
    ASSERT_TRUE(engine) << engine.error().message;
    if (transport.rank() == Rank{1}) {
      transport.after_attach = [&](std::byte* memory) {
        auto& word = *reinterpret_cast<std::atomic<std::uint64_t>*>(memory + 16);
        waiter.until([&] { return word.load(std::memory_order_acquire) == 7; });
      };
    }
    const int fd = make_memfd(kRegionBytes);
    auto* memory =
        static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_TRUE((*engine)->attach(kRegion, fd, memory, kRegionBytes));
    if (transport.rank() == Rank{0}) {
      auto* words = reinterpret_cast<std::uint64_t*>(memory + 4096);
      words[0] = 3;
      words[1] = 7;
      EXPECT_TRUE(Awaited(**engine, waiter).write(rows({Rank{1}, kRegion, 0}, {kRegion, 4096}, 2)));
    }
    all.barrier();
  });
}

}  // namespace
}  // namespace kasane::comm::test
