// SPDX-License-Identifier: Apache-2.0
// The allocator under several OS threads of one rank at once: workers with caches of their own and threads
// that share one. For ThreadSanitizer too.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "gas/heap.h"
#include "support/sim/sim.h"

namespace kasane::gas {
namespace {

/// One rank asks nothing of the network; waiting is for other threads of it.
class YieldingWaiter final : public comm::Waiter {
 protected:
  void wait(bool (*ready)(const void*), const void* arg) override {
    while (!ready(arg)) ::sched_yield();
  }
};

struct NoCoherence final : PageBlocks, HeapHooks {
  YieldAnswer yield(PageId) noexcept override { return YieldAnswer::yielded; }
  Claim claim(PageId, ClaimFor, comm::Blocking*) override { return Claim::ours; }
  void merge(comm::Blocking&, std::span<const Arrival>) override {}
  void settle(PageId, Settled, mem::BlockRange) override {}
  void arm_owned(comm::Blocking&, std::uint64_t, std::size_t) override {}
  void take(comm::Blocking&, std::uint64_t, std::size_t) override {}
  void discard(comm::Blocking&, std::uint64_t, std::size_t) override {}
};

struct Piece {
  std::uint64_t offset;
  std::size_t bytes;
};

TEST(HeapThreads, NothingIsHandedOutTwiceOrLost) {
  constexpr std::uint64_t kHeapBytes = 32 << 20;
  comm::sim::World world(1, 1);
  comm::Transport& transport = world.transport(Rank{0});
  const Heap::Config config{0, kHeapBytes, 2, 0};
  const mem::Pages pages = mem::Pages::uniform(kHeapBytes).value();
  std::vector<std::uint64_t> entries(Directory::region_bytes(pages, 1) / 8),
      words(Heap::region_bytes(config, 1) / 8);
  std::vector<unsigned char> memory(kHeapBytes);
  KASANE_CHECK(
      transport.attach(kDirectory, -1, reinterpret_cast<std::byte*>(entries.data()), entries.size() * 8)
          .has_value());
  KASANE_CHECK(
      transport.attach(kHeap, -1, reinterpret_cast<std::byte*>(words.data()), words.size() * 8).has_value());
  Directory directory(transport, pages);
  auto addresses = AddressCache::create({transport, directory}).value();
  NoCoherence hooks;
  Mover mover(transport, *addresses, hooks);
  Heap heap(transport, config, directory, mover, hooks);

  std::mutex mutex;
  std::vector<Piece> pool;
  std::uint64_t wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      YieldingWaiter waiter;
      comm::Blocking io(transport, waiter);
      const std::uint32_t cache = t < 2 ? t : Heap::kShared;
      std::mt19937_64 random(t);
      std::uint64_t seen_wrong = 0;
      for (int i = 0; i < 1500; ++i) {
        if (random() % 2 == 0) {
          const std::size_t bytes = random() % 16 != 0 ? 1 + random() % (std::size_t{16} << (random() % 12))
                                                       : 40'000 + random() % 400'000;
          const auto got = heap.allocate(io, cache, bytes, 16, Placement::local);
          if (!got) continue;
          std::memset(&memory[*got], static_cast<int>(*got >> 4 & 0xFF), bytes);
          const std::lock_guard lock(mutex);
          pool.push_back({*got, bytes});
        } else {
          Piece piece{};
          {
            const std::lock_guard lock(mutex);
            if (pool.empty()) continue;
            std::swap(pool[random() % pool.size()], pool.back());
            piece = pool.back();
            pool.pop_back();
          }
          for (std::size_t b = 0; b < piece.bytes; ++b)
            seen_wrong +=
                memory[piece.offset + b] != static_cast<unsigned char>(piece.offset >> 4 & 0xFF) ? 1 : 0;
          heap.free(io, cache, piece.offset);
        }
      }
      const std::lock_guard lock(mutex);
      wrong += seen_wrong;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);

  YieldingWaiter waiter;
  comm::Blocking io(transport, waiter);
  for (const Piece& piece : pool) heap.free(io, 0, piece.offset);
  for (const std::uint32_t cache : {0u, 1u, Heap::kShared}) heap.flush(io, cache);
  heap.for_each_live(io, [](std::uint64_t offset, std::size_t bytes) {
    ADD_FAILURE() << offset << " of " << bytes << " bytes is lost";
  });
}

}  // namespace
}  // namespace kasane::gas
