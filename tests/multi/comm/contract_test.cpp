// SPDX-License-Identifier: Apache-2.0
// What every transport promises (comm/transport.h), tested by one set of programs over all of them.
#include <algorithm>
#include <numeric>
#include <string>

#include "base/assert.h"
#include "comm/requests.h"
#include "every_transport.h"

namespace kasane::comm::test {
namespace {

constexpr HandlerId kEcho{1}, kCount{2};
constexpr std::byte kGuard{0xEE};
constexpr std::size_t kGuardBytes = 64;

class Contract : public ::testing::TestWithParam<Kind> {
 protected:
  static void on_every_rank(const Body& body, int sim_seeds = 12) {
    test::on_every_rank(GetParam(), body, sim_seeds);
  }
};

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  std::uint64_t x = seed * 2654435761u + 12345;
  for (auto& b : out) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(x >> 56);
  }
  return out;
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t h = bytes.size() + 1;
  for (const std::byte b : bytes) h = (h ^ static_cast<std::uint64_t>(b)) * 0x100000001B3u;
  return h;
}

TEST_P(Contract, FactsAgreeWithEachOther) {
  on_every_rank(
      [](Env& env) {
        const Facts f = env.transport.facts();
        EXPECT_TRUE(f.target_cpu_needed || !f.puts_need_target);
        EXPECT_TRUE(!f.completes_inline || !f.target_cpu_needed);
        // What UCX can do without a device it does by programs; a device takes puts by itself, but registers
        // memory.
        if (env.kind == Kind::ucx || env.kind == Kind::ucx_tcp) {
          EXPECT_EQ(f.puts_need_target, !f.pins_memory);
        }
        if (env.kind == Kind::ucx_tcp) {
          EXPECT_TRUE(f.puts_need_target);
        }
      },
      1);
}

// ---- one-sided --------------------------------------------------------------------------------------------

TEST_P(Contract, PutThenGetReturnsTheSameBytesAndNoByteBesideThemChanges) {
  on_every_rank(
      [](Env& env) {
        auto ops = env.blocking();
        const std::size_t sizes[] = {0,    1,    7,    8,    9,     63,      64,     65,
                                     3584, 4095, 4096, 4097, 65536, 100'003, 1 << 20};
        for (const std::size_t bytes : sizes) {
          for (const std::size_t offset : {std::size_t{0}, std::size_t{4091}}) {
            std::memset(env.memory, static_cast<int>(kGuard), bytes + offset + 2 * kGuardBytes);
            env.all.barrier();
            const RemoteAddr at{env.next(), kRegion, offset + kGuardBytes};
            const auto source = pattern(bytes, env.me() + bytes);
            std::vector<std::byte> back(bytes + 2 * kGuardBytes, kGuard);
            ops.write(at, source.data(), bytes);
            ops.read(at, back.data() + kGuardBytes, bytes);
            EXPECT_TRUE(std::equal(source.begin(), source.end(), back.begin() + kGuardBytes)) << bytes;
            EXPECT_TRUE(std::all_of(back.begin(), back.begin() + kGuardBytes,
                                    [](std::byte b) { return b == kGuard; }));
            EXPECT_TRUE(
                std::all_of(back.end() - kGuardBytes, back.end(), [](std::byte b) { return b == kGuard; }));
            env.all.barrier();
            // What the rank before us put here, as our own loads see it.
            const auto expected = pattern(bytes, (env.me() + env.ranks() - 1) % env.ranks() + bytes);
            const std::byte* here = env.memory + offset + kGuardBytes;
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), here)) << bytes;
            EXPECT_TRUE(std::all_of(here - kGuardBytes, here, [](std::byte b) { return b == kGuard; }))
                << bytes;
            EXPECT_TRUE(std::all_of(here + bytes, here + bytes + kGuardBytes, [](std::byte b) {
              return b == kGuard;
            })) << bytes;
            env.all.barrier();
          }
        }
      },
      /*sim_seeds=*/4);
}

TEST_P(Contract, TheLastByteOfARegionCanBeReached) {
  on_every_rank([](Env& env) {
    auto ops = env.blocking();
    const std::byte value{static_cast<unsigned char>(env.me() + 1)};
    ops.write({env.next(), kRegion, kRegionBytes - 1}, &value, 1);
    ops.write({env.next(), kRegion, kRegionBytes}, &value, 0);
    env.all.barrier();
    EXPECT_EQ(env.memory[kRegionBytes - 1],
              std::byte{static_cast<unsigned char>((env.me() + env.ranks() - 1) % env.ranks() + 1)});
  });
}

TEST_P(Contract, AtomicsOfAllThreadsOfAllRanksSumUp) {
  on_every_rank([](Env& env) {
    const int rounds = env.rounds(2000, 20);
    env.in_parallel(2, [&](int, Waiter& waiter) {
      Blocking ops(env.transport, waiter);
      for (int i = 0; i < rounds; ++i) {
        for (std::uint32_t r = 0; r < env.ranks(); ++r) {
          ops.fetch_add({Rank{r}, kRegion, 0}, r + 1);
          const RemoteAddr counter{Rank{r}, kRegion, 8};
          for (std::uint64_t old = ops.load(counter);;) {
            const std::uint64_t found = ops.compare_swap(counter, old, old + 1);
            if (found == old) break;
            old = found;
          }
          // The owner's own CPU takes part: atomics are coherent with it (rule 15).
          if (r == env.me() && env.transport.facts().atomics_coherent_with_cpu) env.word(1).fetch_add(1);
        }
      }
    });
    env.all.barrier();
    const auto total = static_cast<std::uint64_t>(rounds) * 2 * env.ranks();
    EXPECT_EQ(env.word(0).load(), total * (env.me() + 1));
    EXPECT_EQ(env.word(1).load(), total + static_cast<std::uint64_t>(rounds) * 2);
  });
}

TEST_P(Contract, EachAtomicDoesWhatItsNameSaysAndReturnsTheOldValue) {
  on_every_rank([](Env& env) {
    auto ops = env.blocking();
    const RemoteAddr at{env.next(), kRegion, 64 + 8 * env.me()};
    EXPECT_EQ(ops.swap(at, 0xF0), 0u);
    EXPECT_EQ(ops.fetch_add(at, 0x0F), 0xF0u);
    EXPECT_EQ(ops.fetch_and(at, 0x3C), 0xFFu);
    EXPECT_EQ(ops.fetch_or(at, 0x81), 0x3Cu);
    EXPECT_EQ(ops.compare_swap(at, 1, 2), 0xBDu);
    EXPECT_EQ(ops.compare_swap(at, 0xBD, 7), 0xBDu);
    EXPECT_EQ(ops.load(at), 7u);
    ops.store(at, 9);
    EXPECT_EQ(ops.load(at), 9u);
  });
}

struct Counted : Completion {
  std::atomic<int>* count;
  Counted() {
    fn = [](Completion* self) noexcept { static_cast<Counted*>(self)->count->fetch_add(1); };
  }
};

TEST_P(Contract, AFenceCompletesTheWritesAndAtomicsBeforeIt) {
  on_every_rank([](Env& env) {
    constexpr int kWrites = 20;
    for (std::uint64_t round = 1; round <= static_cast<std::uint64_t>(env.rounds(200, 5)); ++round) {
      std::vector<std::uint64_t> values(kWrites, round * 1000 + env.me());
      std::vector<Counted> done(kWrites + 2);
      std::atomic<int> writes{0}, fenced{0};
      for (auto& d : done) d.count = &writes;
      done.back().count = &fenced;
      int pending = 0;
      auto post = [&](auto&& operation) {
        Post p = Post::again;
        env.waiter.until([&] { return p != Post::again || (p = operation()) != Post::again; });
        return p == Post::pending ? 1 : 0;
      };
      for (int i = 0; i < kWrites; ++i) {
        const RemoteAddr at{env.next(), kRegion, 4096 + 8 * static_cast<std::uint64_t>(i)};
        pending += post([&] {
          return env.transport.write(at, &values[static_cast<std::size_t>(i)], 8,
                                     &done[static_cast<std::size_t>(i)]);
        });
      }
      pending += post([&] {
        return env.transport.atomic(AtomicOp::fetch_add, {env.next(), kRegion, 512}, 1, 0, nullptr,
                                    &done[kWrites]);
      });
      if (post([&] { return env.transport.fence(env.next(), &done.back()); }) != 0) {
        env.waiter.until([&] { return fenced.load() == 1; });
      }
      std::uint64_t flag_at = 1024;  // told by an operation of its own: what was fenced is there
      env.blocking().store({env.next(), kRegion, flag_at}, round);
      env.waiter.until([&] { return env.word(flag_at / 8).load() == round; });
      const std::uint64_t before = (env.me() + env.ranks() - 1) % env.ranks();
      for (std::size_t i = 0; i < kWrites; ++i) EXPECT_EQ(env.word(512 + i).load(), round * 1000 + before);
      EXPECT_EQ(env.word(64).load(), round);
      env.waiter.until([&] { return writes.load() == pending; });  // exactly once each, see the next line
      env.all.barrier();
      EXPECT_EQ(writes.load(), pending);
    }
  });
}

// ---- data and flag ----------------------------------------------------------------------------------------

/// Posts until it is accepted, and waits until it has completed.
template <class F>
void completed(Env& env, Waiter& waiter, const F& operation) {
  struct Flag : Completion {
    std::atomic<int> times{0};
  } flag;
  flag.fn = [](Completion* self) noexcept { static_cast<Flag*>(self)->times.fetch_add(1); };
  Post result = Post::again;
  waiter.until([&] { return result != Post::again || (result = operation(&flag)) != Post::again; });
  if (result == Post::pending) waiter.until([&] { return flag.times.load() != 0; });
  EXPECT_EQ(flag.times.load(), result == Post::pending ? 1 : 0);
  EXPECT_EQ(flag.status, Status::ok);
  (void)env;
}

TEST_P(Contract, WhoSeesTheFlagOfAWriteNotifySeesTheBytes) {
  on_every_rank(
      [](Env& env) {
        const std::size_t sizes[] = {0,    1,    7,    8,    55,   56,    57,     512,
                                     3584, 3585, 4095, 4096, 4097, 65536, 1 << 20};
        const std::size_t flag_at = 0, data_at = 4096 + kGuardBytes;
        std::uint64_t round = 0;
        for (const std::size_t bytes : sizes) {
          for (int again = 0; again < env.rounds(20, 2); ++again) {
            ++round;
            const auto source = pattern(bytes, env.me() * 1000 + round);
            std::memset(env.memory + data_at - kGuardBytes, static_cast<int>(kGuard),
                        bytes + 2 * kGuardBytes);
            env.all.barrier();
            completed(env, env.waiter, [&](Completion* done) {
              return env.transport.write_notify({env.next(), kRegion, data_at}, source.data(), bytes, flag_at,
                                                round, done);
            });
            // Our own flag, which the rank before us sets. Whatever it completes at, the bytes must be here
            // by now.
            env.waiter.until([&] { return env.word(flag_at / 8).load(std::memory_order_acquire) == round; });
            const auto expected = pattern(bytes, (env.me() + env.ranks() - 1) % env.ranks() * 1000 + round);
            const std::byte* here = env.memory + data_at;
            ASSERT_TRUE(std::equal(expected.begin(), expected.end(), here))
                << bytes << " bytes, round " << round;
            EXPECT_TRUE(std::all_of(here - kGuardBytes, here, [](std::byte b) { return b == kGuard; }))
                << bytes;
            EXPECT_TRUE(std::all_of(here + bytes, here + bytes + kGuardBytes, [](std::byte b) {
              return b == kGuard;
            })) << bytes;
            env.all.barrier();
          }
        }
      },
      /*sim_seeds=*/3);
}

// Threads pass numbers back and forth without any barrier between: a flag that overtakes its bytes is seen at
// once.
TEST_P(Contract, ManyPairsPassDataByWriteNotify) {
  on_every_rank(
      [](Env& env) {
        constexpr int kThreads = 2;
        const auto rounds = static_cast<std::uint64_t>(env.rounds(3000, 15));
        constexpr std::size_t kWords = 100, kPlace = 16384;
        env.in_parallel(kThreads, [&](int t, Waiter& waiter) {
          // The place of thread t of the rank before us. A number goes all the way round: nobody writes
          // before its reader has read.
          const std::size_t place = static_cast<std::size_t>(t + 1) * kPlace;
          const std::size_t words = t == 0 ? kWords : 1;
          std::vector<std::uint64_t> mine(words);
          std::uint64_t wrong = 0;
          auto pass_on = [&](std::uint64_t round) {
            for (std::size_t i = 0; i < words; ++i) mine[i] = round * 1000 + i;
            completed(env, waiter, [&](Completion* done) {
              return env.transport.write_notify({env.next(), kRegion, place + 8}, mine.data(), words * 8,
                                                place, round, done);
            });
          };
          auto take = [&](std::uint64_t round) {
            waiter.until([&] { return env.word(place / 8).load(std::memory_order_acquire) >= round; });
            for (std::size_t i = 0; i < words; ++i) {
              if (env.word(place / 8 + 1 + i).load(std::memory_order_relaxed) != round * 1000 + i) ++wrong;
            }
          };
          for (std::uint64_t round = 1; round <= rounds; ++round) {
            if (env.me() != 0) take(round);
            pass_on(round);
            if (env.me() == 0) take(round);
          }
          EXPECT_EQ(wrong, 0u);
        });
        env.all.barrier();
      },
      /*sim_seeds=*/6);
}

// ---- atomics of both widths -------------------------------------------------------------------------------

TEST_P(Contract, EachAtomicOfEitherWidthLeavesItsNeighboursAlone) {
  on_every_rank([](Env& env) {
    const std::size_t base = 4096 + 64 * env.me();  // one line a poster
    std::memset(env.memory + 4096, 0xEE, 64 * env.ranks());
    env.all.barrier();
    auto atomic = [&](AtomicOp op, Width width, std::size_t offset, std::uint64_t operand,
                      std::uint64_t compare = 0) {
      std::uint64_t old = ~std::uint64_t{0};
      completed(env, env.waiter, [&](Completion* done) {
        return env.transport.atomic(op, {env.next(), kRegion, base + offset}, operand, compare, &old, done,
                                    width);
      });
      return old;
    };
    for (const Width width : {Width::four, Width::eight}) {
      const std::uint64_t mask = width == Width::four ? 0xFFFF'FFFFu : ~std::uint64_t{0};
      const std::uint64_t guard = 0xEEEE'EEEE'EEEE'EEEEu & mask;
      const std::size_t at = width == Width::four ? 12 : 32;  // guards before and behind
      EXPECT_EQ(atomic(AtomicOp::swap, width, at, mask - 1), guard);
      EXPECT_EQ(atomic(AtomicOp::fetch_add, width, at, 3), mask - 1);  // wraps inside the word
      EXPECT_EQ(atomic(AtomicOp::fetch_or, width, at, 0xF0), 1u);
      EXPECT_EQ(atomic(AtomicOp::fetch_and, width, at, 0x3F), 0xF1u);
      EXPECT_EQ(atomic(AtomicOp::fetch_xor, width, at, 0xFF), 0x31u);
      EXPECT_EQ(atomic(AtomicOp::compare_swap, width, at, 7, 0xCF), 0xCEu);  // refused
      EXPECT_EQ(atomic(AtomicOp::compare_swap, width, at, mask, 0xCE), 0xCEu);
      EXPECT_EQ(atomic(AtomicOp::fetch_add, width, at, 1), mask);
      EXPECT_EQ(atomic(AtomicOp::fetch_add, width, at, 0), 0u);
    }
    env.all.barrier();
    const std::byte* here = env.memory + 4096 + 64 * ((env.me() + env.ranks() - 1) % env.ranks());
    for (std::size_t i = 0; i < 64; ++i) {
      const bool word = (i >= 12 && i < 16) || (i >= 32 && i < 40);
      EXPECT_EQ(here[i], word ? std::byte{0} : std::byte{0xEE}) << i;
    }
  });
}

TEST_P(Contract, AtomicsOfFourBytesWithoutResultSumUpUnderContention) {
  on_every_rank([](Env& env) {
    const int rounds = env.rounds(2000, 20);
    env.in_parallel(2, [&](int, Waiter& waiter) {
      for (int i = 0; i < rounds; ++i) {
        for (std::uint32_t r = 0; r < env.ranks(); ++r) {
          auto post = [&](AtomicOp op, std::size_t offset, std::uint64_t operand, Width width) {
            completed(env, waiter, [&](Completion* done) {
              return env.transport.atomic(op, {Rank{r}, kRegion, offset}, operand, 0, nullptr, done, width);
            });
          };
          post(AtomicOp::fetch_add, 4, 1, Width::four);
          post(AtomicOp::fetch_xor, 8, std::uint64_t{1} << (i % 64), Width::eight);
          post(AtomicOp::fetch_or, 16, 1u << (i % 32), Width::four);
          // The owner's CPU takes part in the same words (rule 15).
          if (r == env.me() && env.transport.facts().atomics_coherent_with_cpu) {
            std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(env.memory + 4)).fetch_add(1);
          }
        }
      }
    });
    env.all.barrier();
    const auto posted = static_cast<std::uint32_t>(rounds) * 2 * env.ranks();
    const auto own =
        env.transport.facts().atomics_coherent_with_cpu ? static_cast<std::uint32_t>(rounds) * 2 : 0u;
    std::uint32_t words[6];
    std::memcpy(words, env.memory, sizeof(words));
    EXPECT_EQ(words[0], 0u);
    EXPECT_EQ(words[1], posted + own);
    EXPECT_EQ(env.word(1).load(), 0u) << "every bit was flipped an even number of times";
    EXPECT_EQ(words[4], rounds >= 32 ? ~0u : (1u << rounds) - 1);
    EXPECT_EQ(words[5], 0u);
    env.all.barrier();
  });
}

// ---- everything at once -----------------------------------------------------------------------------------

// Threads mix operations on places of their own at every rank; each knows what must be there.
TEST_P(Contract, MixedOperationsOfManyThreadsAgreeWithAnOracle) {
  on_every_rank(
      [](Env& env) {
        constexpr int kThreads = 4;
        constexpr std::size_t kPlace = 16384;
        const int rounds = env.rounds(4000, 12);
        env.in_parallel(kThreads, [&](int t, Waiter& waiter) {
          std::uint64_t seed = env.me() * 100 + static_cast<std::uint64_t>(t) + 1;
          auto random = [&](std::uint64_t below) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            return (seed >> 33) % below;
          };
          const std::size_t place = 65536 + (env.me() * kThreads + static_cast<std::size_t>(t)) * kPlace;
          std::vector<std::vector<std::byte>> oracle(env.ranks(), std::vector<std::byte>(kPlace));
          std::uint64_t wrong = 0;
          for (int i = 0; i < rounds; ++i) {
            const auto r = static_cast<std::uint32_t>(random(env.ranks()));
            const std::size_t bytes = random(4) == 0 ? random(kPlace / 2) : random(64);
            const std::size_t offset = random(kPlace - bytes - 8);
            const RemoteAddr at{Rank{r}, kRegion, place + offset};
            std::byte* expected = oracle[r].data() + offset;
            const std::size_t word = offset / 8 * 8;
            switch (random(4)) {
              case 0: {
                const auto source = pattern(bytes, seed);
                completed(env, waiter, [&](Completion* done) {
                  return env.transport.write(at, source.data(), bytes, done);
                });
                std::copy(source.begin(), source.end(), expected);
                break;
              }
              case 1: {
                std::vector<std::byte> got(bytes);
                completed(env, waiter,
                          [&](Completion* done) { return env.transport.read(at, got.data(), bytes, done); });
                wrong += !std::equal(got.begin(), got.end(), expected);
                break;
              }
              case 2: {
                std::uint64_t old = 0, known = 0;
                std::memcpy(&known, oracle[r].data() + word, 8);
                completed(env, waiter, [&](Completion* done) {
                  return env.transport.atomic(AtomicOp::fetch_add, {Rank{r}, kRegion, place + word}, seed, 0,
                                              &old, done);
                });
                wrong += old != known;
                known += seed;
                std::memcpy(oracle[r].data() + word, &known, 8);
                break;
              }
              default: {
                const auto source = pattern(bytes, seed);
                const std::size_t flag = kPlace - 8;
                const std::uint64_t value = seed | 1;
                completed(env, waiter, [&](Completion* done) {
                  return env.transport.write_notify(at, source.data(), bytes, place + flag, value, done);
                });
                std::copy(source.begin(), source.end(), expected);
                std::memcpy(oracle[r].data() + flag, &value, 8);
              }
            }
          }
          for (std::uint32_t r = 0; r < env.ranks(); ++r) {
            std::vector<std::byte> got(kPlace);
            completed(env, waiter, [&](Completion* done) {
              return env.transport.read({Rank{r}, kRegion, place}, got.data(), kPlace, done);
            });
            wrong += got != oracle[r];
          }
          EXPECT_EQ(wrong, 0u);
        });
        env.all.barrier();
      },
      /*sim_seeds=*/4);
}

// ---- messages ---------------------------------------------------------------------------------------------

/// What a message must carry: where from, a number, and bytes that follow from both.
struct Head {
  std::uint32_t from;
  std::uint32_t number;
};

struct Received {
  std::vector<std::atomic<int>> times;  ///< by sender × count + number
  std::uint32_t count;
  std::atomic<std::uint64_t> total{0}, bad{0};
  Received(std::uint32_t ranks, std::uint32_t n) : times(std::size_t{ranks} * n), count(n) {}

  static void handle(void* context, const Message& m) noexcept {
    auto& self = *static_cast<Received*>(context);
    Head head{};
    std::memcpy(&head, m.payload.data(), sizeof(head));
    const auto bytes = m.payload.subspan(sizeof(head));
    const auto expected = pattern(bytes.size(), head.from * 7919 + head.number);
    const bool aligned = reinterpret_cast<std::uintptr_t>(m.payload.data()) % 8 == 0;
    if (raw(m.from) != head.from || !aligned || !std::equal(bytes.begin(), bytes.end(), expected.begin()))
      ++self.bad;
    self.times[std::size_t{head.from} * self.count + head.number].fetch_add(1);
    self.total.fetch_add(1);
  }
};

std::vector<std::byte> numbered(std::uint32_t from, std::uint32_t number, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  const Head head{.from = from, .number = number};
  std::memcpy(out.data(), &head, sizeof(head));
  const auto rest = pattern(bytes - sizeof(head), from * 7919 + number);
  std::copy(rest.begin(), rest.end(), out.begin() + sizeof(head));
  return out;
}

TEST_P(Contract, MessagesOfEverySizeArriveWholeAndOnce) {
  on_every_rank([](Env& env) {
    std::vector<std::size_t> sizes;
    for (std::size_t s = sizeof(Head); s < kMaxPayload; s += env.kind == Kind::sim ? 331 : 13)
      sizes.push_back(s);
    sizes.push_back(kMaxPayload);
    const auto count = static_cast<std::uint32_t>(sizes.size());
    Received received(env.ranks(), count);
    env.transport.set_handler(kCount, &Received::handle, &received);
    env.all.barrier();
    auto ops = env.blocking();
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto payload = numbered(env.me(), i, sizes[i]);
      for (std::uint32_t r = 0; r < env.ranks(); ++r) ops.send(Rank{r}, kCount, payload);
    }
    env.waiter.until([&] { return received.total.load() == std::uint64_t{count} * env.ranks(); });
    env.all.barrier();
    EXPECT_EQ(received.total.load(), std::uint64_t{count} * env.ranks());
    EXPECT_EQ(received.bad.load(), 0u);
    for (const auto& times : received.times) EXPECT_EQ(times.load(), 1);
  });
}

TEST_P(Contract, AnEmptyMessageArrives) {
  on_every_rank([](Env& env) {
    std::atomic<int> arrived{0}, bad{0};
    std::atomic<int>* both[] = {&arrived, &bad};
    env.transport.set_handler(
        kCount,
        [](void* c, const Message& m) noexcept {
          auto** counters = static_cast<std::atomic<int>**>(c);
          if (!m.payload.empty()) counters[1]->fetch_add(1);
          counters[0]->fetch_add(1);
        },
        both);
    env.all.barrier();
    env.blocking().send(env.next(), kCount, {});
    env.waiter.until([&] { return arrived.load() == 1; });
    EXPECT_EQ(bad.load(), 0);
    env.all.barrier();
  });
}

/// Answers a request with the checksum of its payload.
void echo(void* context, const Message& m) noexcept {
  static_cast<Transport*>(context)->reply(m.token, checksum(m.payload));
}

TEST_P(Contract, ARequestIsAnsweredOnce) {
  on_every_rank([](Env& env) {
    env.transport.set_handler(kEcho, &echo, &env.transport);
    env.all.barrier();
    auto ops = env.blocking();
    for (std::size_t bytes = 0; bytes <= kMaxPayload; bytes += env.kind == Kind::sim ? 512 : 32) {
      const auto payload = pattern(bytes, env.me() + bytes);
      for (std::uint32_t r = 0; r < env.ranks(); ++r)
        EXPECT_EQ(ops.request(Rank{r}, kEcho, payload), checksum(payload));
    }
    env.all.barrier();
  });
}

/// Answers a request for so many bytes with these and their checksum.
void bring(void* context, const Message& m) noexcept {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, m.payload.data(), sizeof bytes);
  const auto all = pattern(bytes, bytes);
  static_cast<Transport*>(context)->reply_with(m.token, checksum(all), all);
}

TEST_P(Contract, AnAnswerMayBringBytesAlong) {
  on_every_rank([](Env& env) {
    env.transport.set_handler(kEcho, &bring, &env.transport);
    env.all.barrier();
    auto ops = env.blocking();
    std::size_t came = 0, asked = 0;
    for (const std::uint64_t bytes : {0, 1, 7, 8, 100, 3584, 4095, 4096}) {
      for (const std::size_t room : {std::size_t{0}, std::size_t{bytes / 2}, std::size_t{4096}}) {
        for (std::uint32_t r = 0; r < env.ranks(); ++r) {
          std::vector<std::byte> into(room + 8, std::byte{0xEE});
          std::uint64_t sum = 0;
          std::size_t brought = 1;
          Requests requests(ops);
          requests.post(Rank{r}, kEcho, as_payload(bytes), {&sum, std::span(into).first(room), &brought});
          requests.await();
          const auto all = pattern(bytes, bytes);
          const std::size_t fits = std::min<std::size_t>(bytes, room);
          EXPECT_EQ(sum, checksum(all));
          EXPECT_TRUE(brought == 0 || brought == fits) << brought << " of " << fits;
          EXPECT_EQ(std::memcmp(into.data(), all.data(), brought), 0);
          for (std::size_t i = brought; i < into.size(); ++i) EXPECT_EQ(into[i], std::byte{0xEE});
          came += brought != 0 ? 1 : 0;
          asked += fits != 0 ? 1 : 0;
        }
      }
    }
    if (env.transport.facts().answers_bring) {
      EXPECT_GE(came * 2, asked);
    } else {
      EXPECT_EQ(came, 0u);
    }
    env.all.barrier();
  });
}

TEST_P(Contract, APatientRequestIsAnsweredOnce) {
  on_every_rank([](Env& env) {
    std::atomic<std::uint64_t> nudges{0};
    env.transport.set_nudge(
        [](void* c, Rank) noexcept { static_cast<std::atomic<std::uint64_t>*>(c)->fetch_add(1); }, &nudges);
    env.transport.set_handler(kEcho, &echo, &env.transport);
    env.all.barrier();
    auto ops = env.blocking();
    const auto payload = pattern(100, env.me());
    for (const std::uint32_t doorbell_delay_ns : {0u, 1u, kDoorbellDelayNs}) {
      for (std::uint32_t r = 0; r < env.ranks(); ++r)
        EXPECT_EQ(ops.request(Rank{r}, kEcho, payload, doorbell_delay_ns), checksum(payload));
    }
    if (env.kind == Kind::shm) {  // one for each that is patient with another rank; of the last two, the
                                  // second is not where the first was in vain
      EXPECT_GE(nudges.load(), env.ranks() - 1);
      EXPECT_LE(nudges.load(), 2 * (env.ranks() - 1));
    }
    env.all.barrier();
    env.transport.set_nudge(nullptr, nullptr);
  });
}

TEST_P(Contract, ATokenMayBeAnsweredLaterByAnotherThread) {
  struct Kept {
    ReplyToken token{};
    std::atomic<bool> here{false};
  };
  on_every_rank([](Env& env) {
    Kept kept;
    env.transport.set_handler(
        kEcho,
        [](void* c, const Message& m) noexcept {
          auto& k = *static_cast<Kept*>(c);
          k.token = m.token;
          k.here.store(true);
        },
        &kept);
    env.all.barrier();
    env.in_parallel(2, [&](int i, Waiter& waiter) {
      if (i == 0) {
        const std::uint64_t number = env.me() + 100;
        EXPECT_EQ(Blocking(env.transport, waiter).request(env.next(), kEcho, as_payload(number)),
                  raw(env.next()) + 7u);
      } else {
        waiter.until([&] { return kept.here.load(); });
        env.transport.reply(kept.token, env.me() + 7);
      }
    });
    env.all.barrier();
  });
}

TEST_P(Contract, AFullRingSaysAgainAndLosesNothing) {
  on_every_rank([](Env& env) {
    constexpr std::uint32_t kMany = 5000;
    Received received(env.ranks(), kMany);
    env.transport.set_handler(kCount, &Received::handle, &received);
    env.all.barrier();
    // To ourselves, without progress: nobody takes them out (unless a service thread does).
    std::uint32_t sent = 0;
    bool refused = false;
    while (sent < kMany && !refused) {
      refused =
          env.transport.send(env.transport.rank(), kCount, numbered(env.me(), sent, 100)) == Post::again;
      if (!refused) ++sent;
    }
    if (env.kind == Kind::shm || env.kind == Kind::sim) {
      EXPECT_TRUE(refused);
    }
    env.waiter.until([&] { return received.total.load() == sent; });
    // There is room again.
    if (sent < kMany) env.blocking().send(env.transport.rank(), kCount, numbered(env.me(), sent++, 100));
    env.waiter.until([&] { return received.total.load() == sent; });
    env.all.barrier();
    EXPECT_EQ(received.bad.load(), 0u);
    for (std::uint32_t i = 0; i < sent; ++i)
      EXPECT_EQ(received.times[std::size_t{env.me()} * kMany + i].load(), 1);
  });
}

TEST_P(Contract, RequestsBeyondTheReplySlotsSayAgainUntilOneIsTested) {
  on_every_rank([](Env& env) {
    env.transport.set_handler(kEcho, &echo, &env.transport);
    env.all.barrier();
    const std::uint64_t number = 5;
    std::vector<PendingReply> open;
    // The ring may be full before the slots are: make progress, and count until not even that helps.
    for (int idle = 0; idle < 100;) {
      PendingReply pending;
      if (env.transport.request(env.transport.rank(), kEcho, as_payload(number), pending) == Post::pending) {
        open.push_back(pending);
        idle = 0;
      } else if (!env.transport.progress()) {
        if (env.world != nullptr) env.world->step();
        ++idle;
      }
      ASSERT_LT(open.size(), 100'000u);
    }
    EXPECT_GT(open.size(), 1u);
    for (PendingReply& pending : open) {
      std::uint64_t value = 0;
      bool answered = false;
      env.waiter.until([&] { return answered || (answered = env.transport.test(pending, &value)); });
      EXPECT_EQ(value, checksum(as_payload(number)));
    }
    EXPECT_EQ(env.blocking().request(env.transport.rank(), kEcho, as_payload(number)),
              checksum(as_payload(number)));
    env.all.barrier();
  });
}

TEST_P(Contract, RanksThatFloodEachOtherWithRequestsAllGetTheirAnswers) {
  on_every_rank([](Env& env) {
    env.transport.set_handler(kEcho, &echo, &env.transport);
    env.all.barrier();
    const int per_thread = env.rounds(4000, 25);
    env.in_parallel(2, [&](int thread, Waiter& waiter) {
      // As many under way as there is room for; each thread floods every rank.
      constexpr std::size_t kOpen = 300;
      struct Open {
        PendingReply pending;
        std::uint64_t expected;
      };
      std::vector<Open> open;
      int posted = 0;
      std::uint64_t wrong = 0;
      auto pump = [&] {
        while (posted < per_thread && open.size() < kOpen) {
          const std::uint64_t words[3] = {env.me(), static_cast<std::uint64_t>(thread),
                                          static_cast<std::uint64_t>(posted)};
          const auto payload = std::as_bytes(std::span(words));
          PendingReply pending;
          const Rank to{static_cast<std::uint32_t>(posted) % env.ranks()};
          if (env.transport.request(to, kEcho, payload, pending) == Post::again) break;
          open.push_back({pending, checksum(payload)});
          ++posted;
        }
        std::erase_if(open, [&](Open& o) {
          std::uint64_t value = 0;
          if (!env.transport.test(o.pending, &value)) return false;
          if (value != o.expected) ++wrong;
          return true;
        });
        return posted == per_thread && open.empty();
      };
      waiter.until([&] { return pump(); });
      EXPECT_EQ(wrong, 0u);
    });
    env.all.barrier();
  });
}

TEST_P(Contract, AHandlerMaySendOn) {
  struct Relay {
    Transport* transport;
    std::atomic<int> refused{0}, ended{0};
  };
  on_every_rank([](Env& env) {
    Relay relay{.transport = &env.transport};
    env.transport.set_handler(
        kCount,
        [](void* c, const Message& m) noexcept {
          auto& r = *static_cast<Relay*>(c);
          std::uint64_t hops;
          std::memcpy(&hops, m.payload.data(), sizeof(hops));
          if (hops == 0) {
            r.ended.fetch_add(1);
            return;
          }
          --hops;
          const Rank next{(raw(r.transport->rank()) + 1) % r.transport->ranks()};
          // Must not wait. A refusal ends the journey early; with one message a rank under way shm never
          // refuses.
          if (r.transport->send(next, kCount, as_payload(hops)) == Post::again) {
            r.refused.fetch_add(1);
            r.ended.fetch_add(1);
          }
        },
        &relay);
    env.all.barrier();
    const std::uint64_t hops = env.ranks() * 50;  // a multiple: ends where it began
    env.blocking().send(env.transport.rank(), kCount, as_payload(hops));
    std::uint64_t ended[1] = {0};
    // Over sim a journey may end anywhere; so count them over all ranks.
    while (ended[0] < env.ranks()) {
      if (!env.transport.progress() && env.world != nullptr) env.world->step();
      ended[0] = static_cast<std::uint64_t>(relay.ended.load());
      env.all.allreduce(Collectives::Reduce::sum, ended);
    }
    EXPECT_EQ(ended[0], env.ranks());
    if (env.kind == Kind::shm || env.kind == Kind::shm_service) {
      EXPECT_EQ(relay.refused.load(), 0);
    }
  });
}

// ---- doorbells --------------------------------------------------------------------------------------------

TEST_P(Contract, NoWakeUpIsLost) {
  on_every_rank(
      [](Env& env) {
        const auto rounds = static_cast<std::uint64_t>(env.rounds(5000, 40));
        auto sleep_until = [&](std::size_t word, std::uint64_t value) {
          for (;;) {
            const std::uint32_t seen = env.transport.activity(Doorbell::work);
            if (env.word(word).load() >= value) return;
            env.transport.sleep(Doorbell::work, seen, -1);  // without limit: a lost wake-up is a hang
          }
        };
        // Two threads a rank; thread t of every rank hands a token round the ranks.
        env.in_parallel(2, [&](int t, Waiter& waiter) {
          const auto word = static_cast<std::size_t>(t) * 16;
          Blocking ops(env.transport, waiter);
          for (std::uint64_t round = 1; round <= rounds; ++round) {
            if (env.me() != 0) sleep_until(word, round);
            ops.fetch_add({env.next(), kRegion, word * 8}, 1);
            env.transport.wake(env.next(), Doorbell::work);
            if (env.me() == 0) sleep_until(word, round);
          }
        });
        EXPECT_EQ(env.word(0).load(), rounds);
      },
      /*sim_seeds=*/8);
}

// Over UCX the service thread may run what this one waits for, and may take the event of it off the
// descriptor.
TEST_P(Contract, WhoSleepsWithoutLimitHearsOfACompletionThatAnotherThreadRan) {
  if (GetParam() != Kind::ucx && GetParam() != Kind::ucx_tcp)
    GTEST_SKIP() << "operations complete at once, or in the poster's own progress()";
  on_every_rank([](Env& env) {
    struct Flag : Completion {
      std::atomic<bool> set{false};
    };
    for (int i = 0; i < 3000; ++i) {
      Flag done;
      done.fn = [](Completion* self) noexcept {
        static_cast<Flag*>(self)->set.store(true, std::memory_order_release);
      };
      std::uint64_t old = 0;
      Post posted = Post::again;
      env.waiter.until([&] {
        if (posted == Post::again)
          posted = env.transport.atomic(AtomicOp::fetch_add, {env.next(), kRegion, 0}, 1, 0, &old, &done);
        return posted != Post::again;
      });
      while (posted == Post::pending) {
        const std::uint32_t seen = env.transport.activity(Doorbell::messages);
        if (done.set.load(std::memory_order_acquire)) break;
        env.transport.sleep(Doorbell::messages, seen, -1);
      }
    }
  });
}

TEST_P(Contract, AServiceThreadThatSleepsWithoutLimitServesEveryMessage) {
  if (GetParam() == Kind::shm) GTEST_SKIP() << "needs a service thread";
  struct Token {
    Transport* transport;
    std::atomic<std::uint64_t> seen{0};
  };
  on_every_rank(
      [](Env& env) {
        Token token{.transport = &env.transport};
        env.transport.set_handler(
            kCount,
            [](void* c, const Message&) noexcept {
              auto& t = *static_cast<Token*>(c);
              t.seen.fetch_add(1);
              t.transport->wake(t.transport->rank(), Doorbell::work);
            },
            &token);
        env.all.barrier();
        const auto rounds = static_cast<std::uint64_t>(env.rounds(20'000, 30));
        auto sleep_until = [&](std::uint64_t count) {
          for (;;) {
            const std::uint32_t seen = env.transport.activity(Doorbell::work);
            if (token.seen.load() >= count) return;
            // Gets in the service thread's way once, and leaves it alone with whatever comes then.
            env.transport.progress();
            if (token.seen.load() >= count) return;
            env.transport.sleep(Doorbell::work, seen, -1);
          }
        };
        auto ops = env.blocking();
        for (std::uint64_t round = 1; round <= rounds; ++round) {
          if (env.me() != 0) sleep_until(round);
          ops.send(env.next(), kCount, as_payload(round));
          if (env.me() == 0) sleep_until(round);
        }
        EXPECT_EQ(token.seen.load(), rounds);
        env.all.barrier();
      },
      /*sim_seeds=*/8);
}

TEST_P(Contract, ASleepWithATimeoutEnds) {
  on_every_rank([](Env& env) {
    for (int i = 0; i < 3; ++i)
      env.transport.sleep(Doorbell::work, env.transport.activity(Doorbell::work), 100'000);
    env.transport.sleep(Doorbell::work, env.transport.activity(Doorbell::work) - 1,
                        -1);  // already rung: at once
  });
}

// ---- collectives ------------------------------------------------------------------------------------------

TEST_P(Contract, NobodyLeavesABarrierBeforeEverybodyHasEntered) {
  on_every_rank([](Env& env) {
    auto ops = env.blocking();
    const auto rounds = static_cast<std::uint64_t>(env.rounds(300, 20));
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      ops.fetch_add({Rank{0}, kRegion, 0}, 1);
      env.all.barrier();
      EXPECT_GE(ops.load({Rank{0}, kRegion, 0}), round * env.ranks());
    }
    env.all.barrier();
    EXPECT_EQ(ops.load({Rank{0}, kRegion, 0}), rounds * env.ranks());
  });
}

TEST_P(Contract, ABroadcastReachesEveryRankWhateverItsSize) {
  on_every_rank(
      [](Env& env) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{3568}, std::size_t{3569},
                                        std::size_t{20'000}, std::size_t{300'001}}) {
          for (std::uint32_t root = 0; root < env.ranks(); ++root) {
            const auto expected = pattern(bytes, root + bytes);
            auto data = env.me() == root ? expected : std::vector<std::byte>(bytes);
            env.all.broadcast(Rank{root}, data);
            EXPECT_EQ(data, expected) << bytes << " bytes from " << root;
          }
        }
      },
      /*sim_seeds=*/4);
}

TEST_P(Contract, ManyBroadcastsMayRunAheadOfASlowRank) {
  on_every_rank(
      [](Env& env) {
        // The root does not wait for anybody: its chunks pile up at the others until their windows are full.
        for (std::uint64_t i = 0; i < 200; ++i) {
          std::uint64_t value = env.me() == 0 ? i * 3 + 1 : 0;
          if (env.me() == env.ranks() - 1 && i % 50 == 0 && env.world == nullptr) ::usleep(1000);
          env.all.broadcast(Rank{0}, std::as_writable_bytes(std::span(&value, 1)));
          EXPECT_EQ(value, i * 3 + 1);
        }
      },
      /*sim_seeds=*/4);
}

TEST_P(Contract, AnAllreduceCombinesEveryRanksValues) {
  on_every_rank(
      [](Env& env) {
        using Reduce = Collectives::Reduce;
        const std::uint64_t n = env.ranks();
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2000}}) {
          auto reduced = [&](Reduce op, auto value_of) {
            std::vector<std::uint64_t> values(count);
            for (std::size_t i = 0; i < count; ++i) values[i] = value_of(env.me(), i);
            env.all.allreduce(op, values);
            return values;
          };
          const auto sum = reduced(Reduce::sum, [](std::uint64_t r, std::size_t i) { return r + i; });
          const auto min = reduced(Reduce::min, [](std::uint64_t r, std::size_t i) { return 1000 + i - r; });
          const auto max = reduced(Reduce::max, [](std::uint64_t r, std::size_t i) { return r * 10 + i; });
          for (std::size_t i = 0; i < count; ++i) {
            EXPECT_EQ(sum[i], n * (n - 1) / 2 + n * i);
            EXPECT_EQ(min[i], 1000 + i - (n - 1));
            EXPECT_EQ(max[i], (n - 1) * 10 + i);
          }
        }
      },
      /*sim_seeds=*/4);
}

TEST_P(Contract, AnAllgatherReturnsEveryRanksBlockInRankOrder) {
  on_every_rank(
      [](Env& env) {
        for (const std::size_t block :
             {std::size_t{0}, std::size_t{3}, std::size_t{8}, std::size_t{10'000}}) {
          const auto mine = pattern(block, env.me() + 1);
          std::vector<std::byte> out(block * env.ranks());
          env.all.allgather(mine, out);
          for (std::uint32_t r = 0; r < env.ranks(); ++r) {
            const auto expected = pattern(block, r + 1);
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                                   out.begin() + static_cast<std::ptrdiff_t>(r * block)));
          }
        }
      },
      /*sim_seeds=*/4);
}

INSTANTIATE_TEST_SUITE_P(Transports, Contract, ::testing::ValuesIn(every_kind()),
                         [](const auto& param) { return name_of(param.param); });

}  // namespace
}  // namespace kasane::comm::test
