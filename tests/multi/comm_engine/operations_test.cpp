// SPDX-License-Identifier: Apache-2.0
// Every operation of the engine keeps its promise over every transport and in every mode: at the sizes where
// implementations change their ways, with guards on both sides.
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "multi/comm_engine/engine_env.h"

namespace kasane::comm::test {
namespace {

// One region a rank: [0, 1.5 MiB) is written by the previous rank, [2 MiB, …) is the rank's own source, [3.5
// MiB …) words.
constexpr std::uint64_t kLanding = 4096 - 64, kSource = std::uint64_t{2} << 20,
                        kBack = std::uint64_t{3} << 20, kWords = (std::uint64_t{4} << 20) - 4096;
constexpr std::size_t kGuard = 64;
const std::vector<std::size_t> kSizes{0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, std::size_t{1} << 20};

void fill(std::byte* to, std::size_t bytes, std::uint32_t seed) {
  std::minstd_rand rng(seed + 1);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(rng());
}
std::vector<std::byte> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::byte> v(bytes);
  fill(v.data(), bytes, seed);
  return v;
}
bool all_are(const std::byte* at, std::size_t bytes, std::byte value) {
  return std::all_of(at, at + bytes, [value](std::byte b) { return b == value; });
}

#define ASSERT_DONE(expr)                                         \
  do {                                                            \
    const auto done_ = (expr);                                    \
    ASSERT_TRUE(done_) << #expr << ": " << done_.error().message; \
  } while (0)

TEST_P(EngineTest, BytesWrittenAreTheBytesRead) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        Awaited io = env.io();
        const Rank to = env.next();
        const std::uint32_t from = (env.me() + env.ranks() - 1) % env.ranks();
        for (const std::size_t bytes : kSizes) {
          std::memset(env.memory, 0x55, kLanding + bytes + kGuard + 64);
          fill(env.memory + kSource, bytes, static_cast<std::uint32_t>(bytes) + env.me());
          env.all.barrier();
          ASSERT_DONE(io.write(
              {.to = env.at(to, kLanding), .from = env.here(kSource), .bytes = bytes, .on_complete = {}}));
          env.all.barrier();
          const auto expected = pattern(bytes, static_cast<std::uint32_t>(bytes) + from);
          EXPECT_EQ(std::memcmp(env.memory + kLanding, expected.data(), bytes), 0) << bytes;
          EXPECT_TRUE(all_are(env.memory + kLanding - kGuard, kGuard, std::byte{0x55})) << bytes;
          EXPECT_TRUE(all_are(env.memory + kLanding + bytes, kGuard, std::byte{0x55})) << bytes;
          env.all.barrier();
          std::memset(env.memory + kBack - kGuard, 0x66, bytes / 2 + 2 * kGuard);
          const std::size_t part = std::min<std::size_t>(bytes, 500'000);
          std::memset(env.memory + kBack - kGuard, 0x66, part + 2 * kGuard);
          ASSERT_DONE(io.read(
              {.from = env.at(to, kLanding), .to = env.here(kBack), .bytes = part, .on_complete = {}}));
          EXPECT_EQ(std::memcmp(env.memory + kBack, env.memory + kSource, part), 0) << bytes;
          EXPECT_TRUE(all_are(env.memory + kBack - kGuard, kGuard, std::byte{0x66})) << bytes;
          EXPECT_TRUE(all_are(env.memory + kBack + part, kGuard, std::byte{0x66})) << bytes;
          env.all.barrier();
        }
      },
      3);
}

// Local memory that lies in no region: contiguous, in pieces, and added.
TEST_P(EngineTest, PrivateMemoryIsWrittenAndRead) {
  with_engines(GetParam(), {}, [](EngineEnv& env) {
    Awaited io = env.io();
    const Rank to = env.next();
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4097}, std::size_t{100'000}}) {
      std::memset(env.memory, 0, bytes + 16384);
      env.all.barrier();
      const auto mine = pattern(bytes, env.me());
      std::vector<std::byte> back(bytes + 2 * kGuard, std::byte{0x66});
      ASSERT_DONE(io.write(
          {.to = env.at(to, 0), .from = private_memory(mine.data()), .bytes = bytes, .on_complete = {}}));
      ASSERT_DONE(io.read({.from = env.at(to, 0),
                           .to = private_memory(back.data() + kGuard),
                           .bytes = bytes,
                           .on_complete = {}}));
      EXPECT_EQ(std::memcmp(back.data() + kGuard, mine.data(), bytes), 0) << bytes;
      EXPECT_TRUE(all_are(back.data(), kGuard, std::byte{0x66}) &&
                  all_are(back.data() + kGuard + bytes, kGuard, std::byte{0x66}))
          << bytes;

      const Strides every_second{
          .dimensions = 2, .count = {4, bytes / 8}, .remote_stride = {4}, .local_stride = {8}};
      Flag strided;
      env.post(&Engine::try_write_strided_async,
               {.remote = env.at(to, 0),
                .local = private_memory(mine.data()),
                .shape = every_second,
                .on_complete = strided.callback()},
               env.waiter);
      EXPECT_EQ(strided.wait(env.waiter), Status::ok);
      const auto address = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
      const Piece pieces[]{{0, address(back.data() + 8), 4}, {4, address(back.data()), 4}};
      Flag vector;
      env.post(&Engine::try_read_vector_async,
               {.rank = to,
                .remote_region = kRegion,
                .local_region = kPrivateMemory,
                .pieces = pieces,
                .on_complete = vector.callback()},
               env.waiter);
      EXPECT_EQ(vector.wait(env.waiter), Status::ok);
      EXPECT_EQ(std::memcmp(back.data() + 8, mine.data(), 4), 0) << bytes;
      if (bytes >= 16) {
        EXPECT_EQ(std::memcmp(back.data(), mine.data() + 8, 4), 0) << bytes;
      }
      env.all.barrier();
    }
    const std::array<std::int64_t, 2> ones{1, 2};
    std::memset(env.memory, 0, 64);
    env.all.barrier();
    Flag added;
    env.post(&Engine::try_accumulate_async,
             {.to = env.at(to, 0),
              .from = private_memory(ones.data()),
              .element = Element::int64,
              .shape = {.dimensions = 1, .count = {16}},
              .on_complete = added.callback()},
             env.waiter);
    EXPECT_EQ(added.wait(env.waiter), Status::ok);
    env.all.barrier();
    EXPECT_EQ(std::memcmp(env.memory, ones.data(), 16), 0);
    env.all.barrier();
  });
}

// Many at once, so that they share messages where the transport is a network.
TEST_P(EngineTest, ManySmallWritesAndReadsAtOnce) {
  with_engines(GetParam(), {}, [](EngineEnv& env) {
    constexpr std::size_t kEach = 24, kApart = 40;
    const auto count = static_cast<std::size_t>(env.rounds(2000, 150));
    std::memset(env.memory, 0, kApart * count);
    fill(env.memory + kSource, kEach * count, env.me());
    env.all.barrier();
    Counter writes;
    for (std::size_t i = 0; i < count; ++i) {
      env.post(&Engine::try_write_async,
               {.to = env.at(env.next(), i * kApart),
                .from = env.here(kSource + i * kEach),
                .bytes = kEach,
                .on_complete = writes.callback()},
               env.waiter);
    }
    EXPECT_EQ(writes.wait(env.waiter, count), Status::ok);
    env.all.barrier();
    const auto expected = pattern(kEach * count, (env.me() + env.ranks() - 1) % env.ranks());
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::memcmp(env.memory + i * kApart, expected.data() + i * kEach, kEach), 0) << i;
      ASSERT_TRUE(all_are(env.memory + i * kApart + kEach, kApart - kEach, std::byte{0})) << i;
    }
    Counter reads;
    for (std::size_t i = 0; i < count; ++i) {
      env.post(&Engine::try_read_async,
               {.from = env.at(env.next(), i * kApart),
                .to = env.here(kBack + i * kEach),
                .bytes = kEach,
                .on_complete = reads.callback()},
               env.waiter);
    }
    EXPECT_EQ(reads.wait(env.waiter, count), Status::ok);
    EXPECT_EQ(std::memcmp(env.memory + kBack, env.memory + kSource, kEach * count), 0);
    EXPECT_EQ(reads.completed(), count);
  });
}

TEST_P(EngineTest, WhoSeesTheFlagSeesTheBytes) {
  with_engines(GetParam(), {}, [](EngineEnv& env) {
    if (env.ranks() < 2 || env.me() > 1) return;
    const Rank peer{1 - env.me()};
    const int rounds = env.rounds(300, 30);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{56}, std::size_t{100},
                                    std::size_t{600}, std::size_t{20000}}) {
      const std::uint64_t flag = kLanding + (bytes <= 56 ? 56 : 64 * 1024);
      for (int n = 1; n <= rounds; ++n) {
        const auto value = static_cast<std::uint64_t>(n) + (std::uint64_t{bytes} << 32);
        if (env.me() == static_cast<std::uint32_t>(n) % 2) {
          std::memset(env.memory + kSource, n % 251, bytes);
          ASSERT_DONE(env.io().write_notify({.to = env.at(peer, kLanding),
                                             .from = env.here(kSource),
                                             .bytes = bytes,
                                             .flag_offset = flag,
                                             .value = value,
                                             .on_complete = {}}));
        } else {
          env.waiter.until([&] { return env.word(flag / 8).load(std::memory_order_acquire) == value; });
          ASSERT_TRUE(all_are(env.memory + kLanding, bytes, static_cast<std::byte>(n % 251)))
              << bytes << " bytes, round " << n;
        }
      }
    }
  });
}

TEST_P(EngineTest, PatchesAndLists) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        Awaited io = env.io();
        std::memset(env.memory, 0, std::size_t{1} << 20);
        for (std::size_t i = 0; i < 1 << 18; ++i)
          reinterpret_cast<std::uint32_t*>(env.memory + kSource)[i] =
              static_cast<std::uint32_t>(i) + env.me();
        env.all.barrier();
        // 3 planes of 5 rows of 12 bytes, spread differently on both sides; then one with long rows.
        for (const std::uint64_t row : {std::uint64_t{12}, std::uint64_t{700}}) {
          Strides shape{.dimensions = 3,
                        .count = {row, 5, 3},
                        .remote_stride = {row + 20, 6 * (row + 20)},
                        .local_stride = {row + 4, 7 * (row + 4)}};
          ASSERT_DONE(io.write(StridedParams{.remote = env.at(env.next(), 128),
                                             .local = env.here(kSource),
                                             .shape = shape,
                                             .on_complete = {}}));
          env.all.barrier();
          const std::uint32_t writer = (env.me() + env.ranks() - 1) % env.ranks();
          std::vector<std::byte> expected(128 + 3 * 6 * (row + 20), std::byte{0});
          for (std::size_t p = 0; p < 3; ++p) {
            for (std::size_t r = 0; r < 5; ++r) {
              for (std::size_t b = 0; b < row; b += 4) {
                const auto v =
                    static_cast<std::uint32_t>((p * 7 * (row + 4) + r * (row + 4) + b) / 4) + writer;
                std::memcpy(&expected[128 + p * 6 * (row + 20) + r * (row + 20) + b], &v, 4);
              }
            }
          }
          EXPECT_EQ(std::memcmp(env.memory, expected.data(), expected.size()), 0) << "rows of " << row;
          env.all.barrier();
          std::memset(env.memory + kBack, 0, 65536);
          ASSERT_DONE(io.read(StridedParams{.remote = env.at(env.next(), 128),
                                            .local = env.here(kBack),
                                            .shape = shape,
                                            .on_complete = {}}));
          for (std::size_t p = 0; p < 3; ++p) {
            for (std::size_t r = 0; r < 5; ++r) {
              const std::size_t o = p * 7 * (row + 4) + r * (row + 4);
              EXPECT_EQ(std::memcmp(env.memory + kBack + o, env.memory + kSource + o, row), 0);
              EXPECT_TRUE(all_are(env.memory + kBack + o + row, 4, std::byte{0}));
            }
          }
          env.all.barrier();
          std::memset(env.memory, 0, std::size_t{1} << 18);
          env.all.barrier();
        }
        // A list with empty, odd, large and many pieces: more than a parcel holds.
        std::vector<Piece> pieces;
        std::uint64_t there = 0, here = 0;
        for (std::uint64_t i = 0; i < 300; ++i) {
          const std::uint64_t bytes = i == 7 ? 5000 : i % 23;
          pieces.push_back({there, kSource + here, bytes});
          there += bytes + 3;
          here += bytes + 1;
        }
        Flag done;
        {
          const auto copy = pieces;  // the list may go when the call has returned
          env.post(&Engine::try_write_vector_async,
                   {.rank = env.next(),
                    .remote_region = kRegion,
                    .local_region = kRegion,
                    .pieces = copy,
                    .on_complete = done.callback()},
                   env.waiter);
        }
        EXPECT_EQ(done.wait(env.waiter), Status::ok);
        env.all.barrier();
        for (Piece& p : pieces) p.local_offset += kBack - kSource;
        ASSERT_DONE(io.read(VectorParams{.rank = env.next(),
                                         .remote_region = kRegion,
                                         .local_region = kRegion,
                                         .pieces = pieces,
                                         .on_complete = {}}));
        for (const Piece& p : pieces) {
          ASSERT_EQ(std::memcmp(env.memory + p.local_offset, env.memory + p.local_offset - (kBack - kSource),
                                p.bytes),
                    0);
        }
        env.all.barrier();
      },
      4);
}

TEST_P(EngineTest, CopyBetweenOthers) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        // with 2 ranks: to myself; with 3 or more: to a third
        const Rank source = env.next(), destination{(env.me() + 2) % env.ranks()};
        for (const std::size_t bytes :
             {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{200'000}}) {
          const std::uint64_t landing = 300'000 * std::uint64_t{env.me()};
          fill(env.memory + kSource, bytes, env.me() + 17);
          env.all.barrier();
          ASSERT_DONE(env.io().copy({.from = env.at(source, kSource),
                                     .to = env.at(destination, landing),
                                     .bytes = bytes,
                                     .on_complete = {}}));
          env.all.barrier();
          // Copied into this rank's memory by the rank two before it, from the rank one before it.
          const std::uint32_t by = (env.me() + 2 * env.ranks() - 2) % env.ranks(),
                              from = (by + 1) % env.ranks();
          EXPECT_EQ(
              std::memcmp(env.memory + 300'000 * std::uint64_t{by}, pattern(bytes, from + 17).data(), bytes),
              0)
              << bytes;
          env.all.barrier();
        }
        // Both ends at one other rank, overlapping.
        if (env.me() == 0) {
          ASSERT_DONE(env.io().copy({.from = env.at(env.next(), kSource),
                                     .to = env.at(env.next(), kSource + 100),
                                     .bytes = 1000,
                                     .on_complete = {}}));
        }
        env.all.barrier();
        if (env.me() == 1 % env.ranks()) {
          EXPECT_EQ(std::memcmp(env.memory + kSource + 100, pattern(200'000, env.me() + 17).data(), 1000), 0);
        }
        env.all.barrier();
      },
      4);
}

// Each atomic in each width, by all ranks at once on one word of rank 0.
TEST_P(EngineTest, AtomicsUnderContention) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        const int rounds = env.rounds(200, 10);
        constexpr int kThreads = 2;
        if (env.me() == 0) std::memset(env.memory + kWords, 0, 4096);
        env.all.barrier();
        env.in_parallel(kThreads, [&](int t, Waiter& waiter) {
          Awaited io(env.engine, waiter);
          const std::uint64_t id = env.me() * kThreads + static_cast<unsigned>(t);
          for (const Width w : {Width::four, Width::eight}) {
            const std::uint64_t base = kWords + (w == Width::four ? 0 : 512);
            const auto word = [&](int i) {
              return env.at(Rank{0}, base + static_cast<std::uint64_t>(i) * 64 + (w == Width::four ? 4 : 0));
            };
            const auto atomic = [&](AtomicOp op, int i, std::uint64_t operand, std::uint64_t compare = 0) {
              const auto old = io.atomic({.op = op,
                                          .width = w,
                                          .at = word(i),
                                          .operand = operand,
                                          .compare = compare,
                                          .on_complete = {}});
              EXPECT_TRUE(old);
              return old ? *old : 0;
            };
            for (int n = 0; n < rounds; ++n) {
              atomic(AtomicOp::fetch_add, 0, 3);
              atomic(AtomicOp::fetch_xor, 1, std::uint64_t{1} << id);
              atomic(AtomicOp::fetch_or, 2, std::uint64_t{1} << id);
              // only I clear my bit
              EXPECT_NE(atomic(AtomicOp::fetch_and, 2, ~(std::uint64_t{1} << id)) & std::uint64_t{1} << id,
                        0u);
              for (;;) {  // an increment by compare-swap
                const std::uint64_t seen = atomic(AtomicOp::fetch_add, 3, 0);
                if (atomic(AtomicOp::compare_swap, 3, seen + 1, seen) == seen) break;
              }
              const std::uint64_t got =
                  atomic(AtomicOp::swap, 4, id + 1);  // what I take out is counted by me
              atomic(AtomicOp::fetch_add, 5, got);
            }
            if (rounds % 2 != 0) atomic(AtomicOp::fetch_xor, 1, std::uint64_t{1} << id);
          }
        });
        env.all.barrier();
        if (env.me() == 0) {
          const std::uint64_t total =
              std::uint64_t{env.ranks()} * kThreads * static_cast<std::uint64_t>(rounds);
          const std::uint64_t ids = std::uint64_t{env.ranks()} * kThreads,
                              put_in = static_cast<std::uint64_t>(rounds) * ids * (ids + 1) / 2;
          for (const int w : {4, 8}) {
            const auto value = [&](int i) {
              std::uint64_t v = 0;
              std::memcpy(&v, env.memory + kWords + (w == 4 ? 4 : 512) + i * 64, static_cast<std::size_t>(w));
              return v;
            };
            EXPECT_EQ(value(0), 3 * total);
            EXPECT_EQ(value(1), 0u);
            EXPECT_EQ(value(2), 0u);
            EXPECT_EQ(value(3), total);
            EXPECT_EQ(value(5) + value(4), put_in);
          }
          EXPECT_TRUE(all_are(env.memory + kWords, 4, std::byte{0}));  // beside the 4-byte words
        }
        env.all.barrier();
      },
      4);
}

template <class T>
void accumulate_everywhere(EngineEnv& env, Element e, std::complex<double> scale, T factor) {
  // Small whole numbers, so that every order of additions gives the same sum. The odd start makes rows cross
  // stripes.
  constexpr std::uint64_t kTo = 4096 - sizeof(T);
  constexpr std::size_t kRow = 1500, kRows = 2;
  const int rounds = env.rounds(5, 1);
  auto* x = reinterpret_cast<T*>(env.memory + kSource);
  auto* y = reinterpret_cast<T*>(env.memory + kTo);
  for (std::size_t i = 0; i < 2 * kRow; ++i) x[i] = T(static_cast<int>(i % 7));
  if (env.me() == 0) std::fill(y, y + 2 * kRow + 8, T(5));
  env.all.barrier();
  env.in_parallel(2, [&](int, Waiter& waiter) {
    Awaited io(env.engine, waiter);
    const Strides shape{.dimensions = 2,
                        .count = {kRow * sizeof(T), kRows},
                        .remote_stride = {(kRow + 3) * sizeof(T)},
                        .local_stride = {kRow * sizeof(T)}};
    for (int n = 0; n < rounds; ++n) {
      ASSERT_DONE(io.accumulate({.to = env.at(Rank{0}, kTo),
                                 .from = env.here(kSource),
                                 .element = e,
                                 .scale = scale,
                                 .shape = shape,
                                 .on_complete = {}}));
    }
  });
  env.all.barrier();
  if (env.me() == 0) {
    const int times = static_cast<int>(env.ranks()) * 2 * rounds;
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t i = 0; i < kRow; ++i) {
        ASSERT_EQ(y[r * (kRow + 3) + i], T(5) + T(times) * factor * T(static_cast<int>((r * kRow + i) % 7)))
            << "row " << r << ", element " << i;
      }
      for (std::size_t i = 0; i < 3; ++i)
        ASSERT_EQ(y[r * (kRow + 3) + kRow + i], T(5)) << "gap after row " << r;
    }
  }
  env.all.barrier();
}

TEST_P(EngineTest, AccumulateUnderContention) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        accumulate_everywhere<std::int32_t>(env, Element::int32, 3.9, 3);  // truncated
        accumulate_everywhere<std::int64_t>(env, Element::int64, -2.0, -2);
        accumulate_everywhere<float>(env, Element::float32, 0.5, 0.5f);
        accumulate_everywhere<double>(env, Element::float64, 1.0, 1.0);
        accumulate_everywhere<std::complex<float>>(env, Element::complex64, {1.0, 2.0}, {1.0f, 2.0f});
        accumulate_everywhere<std::complex<double>>(env, Element::complex128, {0.0, -1.0}, {0.0, -1.0});
      },
      2);
}

TEST_P(EngineTest, MessagesAndAnswers) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        Awaited io = env.io();
        const auto rounds = static_cast<std::uint64_t>(env.rounds(300, 20));
        for (std::uint64_t n = 1; n <= rounds; ++n) {
          std::vector<std::uint64_t> payload(n % 5 == 0 ? kMaxPayload / 8 : 1 + n % 7, n);
          ASSERT_DONE(io.send({.to = env.next(),
                               .handler = kSum,
                               .payload = std::as_bytes(std::span(payload)),
                               .on_complete = {}}));
          const auto answer = io.request({.to = env.next(),
                                          .handler = kEcho,
                                          .payload = std::as_bytes(std::span(payload)),
                                          .answer = nullptr,
                                          .on_complete = {}});
          ASSERT_TRUE(answer);
          ASSERT_EQ(*answer, n + 1);
        }
        env.waiter.until([&] { return env.inbox.messages.load() == rounds; });
        EXPECT_EQ(env.inbox.sum.load(), rounds * (rounds + 1) / 2);
        env.all.barrier();
      },
      4);
}

TEST_P(EngineTest, FlushComesAfterEverythingBeforeIt) {
  with_engines(GetParam(), {}, [](EngineEnv& env) {
    const auto count = static_cast<std::uint64_t>(env.rounds(300, 40));
    for (std::uint64_t n = 0; n < count; ++n) {
      Counter writes;
      std::uint64_t posted = 0;
      for (std::uint32_t r = 0; r < env.ranks(); ++r) {
        const std::size_t bytes = n % 3 == 0 ? 3000 : 16;
        env.post(&Engine::try_write_async,
                 {.to = env.at(Rank{r}, 8192 * std::uint64_t{env.me()}),
                  .from = env.here(kSource),
                  .bytes = bytes,
                  .on_complete = writes.callback()},
                 env.waiter);
        ++posted;
      }
      ASSERT_DONE(env.io().flush(n % 2 == 0 ? kNoRank : env.next()));
      if (n % 2 == 0) {
        EXPECT_EQ(writes.completed(), posted);  // also the callbacks have run
      }
      EXPECT_EQ(writes.wait(env.waiter, posted), Status::ok);
    }
  });
}

// A flush goes through the ring behind what other threads posted, also where the ring is full.
TEST_P(EngineTest, FlushCountsWhatOtherThreadsPosted) {
  if (GetParam().over == Over::sim) GTEST_SKIP() << "its ranks share one thread";
  with_engines(GetParam(), {.ring_commands = 4}, [](EngineEnv& env) {
    constexpr std::uint64_t kThreads = 4, kEach = 12;
    for (int n = env.rounds(50, 10); n > 0; --n) {
      Counter writes;
      std::vector<std::thread> threads;
      for (std::uint64_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          PollWaiter waiter(env.transport);
          for (std::uint64_t i = 0; i < kEach; ++i) {
            env.post(&Engine::try_write_async,
                     {.to = env.at(env.next(), 8192 * t + 8 * i),
                      .from = env.here(kSource),
                      .bytes = 8,
                      .on_complete = writes.callback()},
                     waiter);
          }
        });
      }
      for (auto& thread : threads) thread.join();
      ASSERT_DONE(env.io().flush(n % 2 == 0 ? kNoRank : env.next()));
      EXPECT_EQ(writes.completed(), kThreads * kEach);
    }
  });
}

/// A chain of operations, each posted by the callback of the one before.
struct Chain {
  EngineEnv& env;
  std::uint64_t left;
  std::atomic<bool> over{false}, stuck{false};
  void post() noexcept {
    const bool accepted = env.engine.try_atomic_async({.op = AtomicOp::fetch_add,
                                                       .width = Width::eight,
                                                       .at = env.at(env.next(), kWords),
                                                       .operand = 1,
                                                       .compare = 0,
                                                       .result = nullptr,
                                                       .on_complete = {&Chain::next, this}});
    if (!accepted) stuck.store(true);  // again: the waiting thread posts it, since a callback must not wait
  }
  static void next(void* c, Status) noexcept {
    auto& self = *static_cast<Chain*>(c);
    if (--self.left == 0) {
      self.over.store(true);
    } else {
      self.post();
    }
  }
};

TEST_P(EngineTest, CallbacksPost) {
  with_engines(GetParam(), {}, [](EngineEnv& env) {
    const auto length = static_cast<std::uint64_t>(env.rounds(500, 50));
    env.word(kWords / 8).store(0);
    env.all.barrier();
    Chain chain{env, length};
    chain.post();
    env.waiter.until([&] {
      if (chain.stuck.exchange(false)) chain.post();
      return chain.over.load();
    });
    env.all.barrier();
    EXPECT_EQ(env.word(kWords / 8).load(), length);
    env.all.barrier();
  });
}

TEST_P(EngineTest, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        Engine& e = env.engine;
        std::memset(env.memory, 0x77, 8192);
        env.all.barrier();
        const auto refused = [](auto post, const char* why) {
          Flag done;
          EXPECT_TRUE(post(done.callback())) << why;
          ASSERT_TRUE(done.ready()) << why;  // at once
          EXPECT_EQ(done.status(), Status::refused) << why;
          EXPECT_NE(Engine::explain_refusal().find(why), std::string::npos) << Engine::explain_refusal();
        };
        const Rank r = env.next(), nobody{env.ranks()};
        const RemoteAddr good = env.at(r, 0), end = env.at(r, kRegionBytes - 4), odd = env.at(r, 12);
        const LocalAddr here = env.here(kSource);
        const LocalAddr there{RegionId{9}, 0};
        refused(
            [&](Callback c) {
              return e.try_read_async({.from = end, .to = here, .bytes = 8, .on_complete = c});
            },
            "with 8 bytes in region 1");
        refused(
            [&](Callback c) {
              return e.try_read_async({.from = good, .to = there, .bytes = 8, .on_complete = c});
            },
            "region 9 is not attached");
        refused(
            [&](Callback c) {
              return e.try_write_async(
                  {.to = {nobody, kRegion, 0}, .from = here, .bytes = 8, .on_complete = c});
            },
            "of a job of");
        refused(
            [&](Callback c) {
              return e.try_write_async(
                  {.to = {r, RegionId{77}, 0}, .from = here, .bytes = 0, .on_complete = c});
            },
            "region 77");
        refused(
            [&](Callback c) {
              return e.try_write_async(
                  {.to = env.at(r, ~std::uint64_t{0}), .from = here, .bytes = 2, .on_complete = c});
            },
            "offset");
        refused(
            [&](Callback c) {
              return e.try_write_notify_async(
                  {.to = good, .from = here, .bytes = 8, .flag_offset = 12, .value = 1, .on_complete = c});
            },
            "not a multiple of 8");
        refused(
            [&](Callback c) {
              return e.try_write_notify_async({.to = good,
                                               .from = here,
                                               .bytes = 8,
                                               .flag_offset = kRegionBytes,
                                               .value = 1,
                                               .on_complete = c});
            },
            "offset");
        refused(
            [&](Callback c) {
              return e.try_atomic_async(
                  {.op = AtomicOp::swap, .width = Width::eight, .at = odd, .operand = 1, .on_complete = c});
            },
            "multiple of 8");
        refused(
            [&](Callback c) {
              return e.try_atomic_async(
                  {.op = AtomicOp::swap, .width = Width{3}, .at = good, .operand = 1, .on_complete = c});
            },
            "4 or 8");
        const Strides huge{.dimensions = 2,
                           .count = {8, 1u << 20},
                           .remote_stride = {std::uint64_t{1} << 60},
                           .local_stride = {8}};
        refused(
            [&](Callback c) {
              return e.try_write_strided_async(
                  {.remote = good, .local = here, .shape = huge, .on_complete = c});
            },
            "beyond 64 bits");
        refused(
            [&](Callback c) {
              return e.try_read_strided_async(
                  {.remote = good, .local = here, .shape = {.dimensions = 9}, .on_complete = c});
            },
            "dimensions");
        const Piece pieces[]{{0, 0, 8}, {kRegionBytes, 0, 1}};
        refused(
            [&](Callback c) {
              return e.try_write_vector_async({.rank = r,
                                               .remote_region = kRegion,
                                               .local_region = kRegion,
                                               .pieces = pieces,
                                               .on_complete = c});
            },
            "offset");
        refused(
            [&](Callback c) {
              return e.try_copy_async({.from = good, .to = end, .bytes = 8, .on_complete = c});
            },
            "offset");
        refused(
            [&](Callback c) {
              return e.try_accumulate_async({.to = env.at(r, 4),
                                             .from = here,
                                             .element = Element::float64,
                                             .shape = {.dimensions = 1, .count = {8}},
                                             .on_complete = c});
            },
            "multiple of 8");
        refused(
            [&](Callback c) {
              return e.try_accumulate_async({.to = good,
                                             .from = here,
                                             .element = Element::complex128,
                                             .shape = {.dimensions = 1, .count = {8}},
                                             .on_complete = c});
            },
            "element");
        for (const double scale :
             {std::nan(""), std::numeric_limits<double>::infinity(), 0x1p63, -0x1.0000000000001p63}) {
          for (const Element element : {Element::int32, Element::int64}) {
            refused(
                [&](Callback c) {
                  return e.try_accumulate_async({.to = good,
                                                 .from = here,
                                                 .element = element,
                                                 .scale = {scale, 0.0},
                                                 .shape = {.dimensions = 1, .count = {8}},
                                                 .on_complete = c});
                },
                "scale");
          }
        }
        // Private memory is local only, and has no place at null.
        refused(
            [&](Callback c) {
              return e.try_read_async(
                  {.from = {r, kPrivateMemory, 4096}, .to = here, .bytes = 8, .on_complete = c});
            },
            "is not attached");
        refused(
            [&](Callback c) {
              return e.try_write_async(
                  {.to = {Rank{env.me()}, kPrivateMemory, 4096}, .from = here, .bytes = 8, .on_complete = c});
            },
            "is not attached");
        refused(
            [&](Callback c) {
              return e.try_write_async(
                  {.to = good, .from = private_memory(nullptr), .bytes = 8, .on_complete = c});
            },
            "8 bytes at address 0");
        const std::vector<std::byte> large(kMaxPayload + 1);
        refused(
            [&](Callback c) {
              return e.try_send_async({.to = r, .handler = kSum, .payload = large, .on_complete = c});
            },
            "payload");
        refused(
            [&](Callback c) {
              return e.try_request_async(
                  {.to = r, .handler = HandlerId{63}, .payload = {}, .answer = nullptr, .on_complete = c});
            },
            "handler 63");
        refused([&](Callback c) { return e.try_flush_async({.rank = nobody, .on_complete = c}); },
                "of a job of");
        // The engine's own region, of others and of this rank.
        for (const Rank whose : {r, Rank{env.me()}}) {
          const RemoteAddr locks{whose, kLockRegion, 0};
          refused(
              [&](Callback c) {
                return e.try_read_async({.from = locks, .to = here, .bytes = 8, .on_complete = c});
              },
              "own");
          refused(
              [&](Callback c) {
                return e.try_write_async({.to = locks, .from = here, .bytes = 0, .on_complete = c});
              },
              "own");
          refused(
              [&](Callback c) {
                return e.try_write_async(
                    {.to = good, .from = {kLockRegion, 0}, .bytes = 8, .on_complete = c});
              },
              "own");
          refused(
              [&](Callback c) {
                return e.try_write_notify_async(
                    {.to = locks, .from = here, .bytes = 8, .flag_offset = 8, .value = 1, .on_complete = c});
              },
              "own");
          refused(
              [&](Callback c) {
                return e.try_atomic_async({.op = AtomicOp::swap,
                                           .width = Width::four,
                                           .at = locks,
                                           .operand = 1,
                                           .on_complete = c});
              },
              "own");
          refused(
              [&](Callback c) {
                return e.try_copy_async({.from = good, .to = locks, .bytes = 8, .on_complete = c});
              },
              "own");
          refused(
              [&](Callback c) {
                return e.try_accumulate_async({.to = locks,
                                               .from = here,
                                               .element = Element::float64,
                                               .shape = {.dimensions = 1, .count = {8}},
                                               .on_complete = c});
              },
              "own");
          refused(
              [&](Callback c) {
                return e.try_write_vector_async({.rank = whose,
                                                 .remote_region = kLockRegion,
                                                 .local_region = kRegion,
                                                 .pieces = {},
                                                 .on_complete = c});
              },
              "own");
        }
        EXPECT_FALSE(e.attach(kLockRegion, -1, env.memory, 4096));
        env.all.barrier();
        EXPECT_TRUE(all_are(env.memory, 8192, std::byte{0x77}));
        EXPECT_EQ(env.inbox.messages.load(), 0u);
        env.all.barrier();
      },
      1);
}

TEST_P(EngineTest, MoreThanCanBeCountedIsRefused) {
  with_engines(
      GetParam(), {},
      [](EngineEnv& env) {
        const auto ring = Engine::create(env.transport, {.mode = Mode::offload, .ring_commands = 65536});
        ASSERT_FALSE(ring);
        EXPECT_NE(ring.error().message.find("a ring of 65536 commands"), std::string::npos)
            << ring.error().message;
        EXPECT_NE(ring.error().message.find("57344"), std::string::npos) << ring.error().message;
      },
      1);
}

INSTANTIATE_TEST_SUITE_P(All, EngineTest, ::testing::ValuesIn(every_case()),
                         [](const auto& i) { return name_of(i.param); });

}  // namespace
}  // namespace kasane::comm::test
