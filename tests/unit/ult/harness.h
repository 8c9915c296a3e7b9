// SPDX-License-Identifier: Apache-2.0
// A pool of one rank over plain memory, with worker 0 on the calling OS thread; and fork with a lambda, as
// the public API will have it.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/time_spent.h"
#include "support/sanitized.h"
#include "ult/layout.h"
#include "ult/pool.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace kasane::ult {

/// Zeroed memory that costs nothing until it is touched.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    // 64 KiB more, so that slots can begin on a 64 KiB boundary.
    void* p = ::mmap(nullptr, bytes_ + kSlack, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) std::abort();
    raw_ = static_cast<std::byte*>(p);
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(raw_, bytes_ + kSlack);  // stacks of a former pool lay there
#endif
  }
  ~Pages() { ::munmap(raw_, bytes_ + kSlack); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* data() const {
    return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(raw_) + kSlack - 1) &
                                        ~(kSlack - 1));
  }

 private:
  static constexpr std::uintptr_t kSlack = 64 * 1024;
  std::size_t bytes_;
  std::byte* raw_;
};

/// Workers 1 … n-1 run on OS threads of their own; run() makes the caller worker 0.
class TestPool {
 public:
  explicit TestPool(std::uint32_t workers, std::uint32_t slots = 4096) : TestPool(workers, slots, slots) {}
  /// nodes: Config::worker_nodes.
  TestPool(std::uint32_t workers, std::uint32_t slots, std::vector<std::uint32_t> nodes)
      : TestPool(workers, slots, slots, nullptr, std::move(nodes)) {}
  /// trim: Config::trim_stack, with the TestPool as its context. places: one a worker, as with --stats.
  TestPool(std::uint32_t workers, std::uint32_t slots, std::uint32_t stacks,
           void (*trim)(void*, StackId) = nullptr, std::vector<std::uint32_t> nodes = {},
           PlaceTable* places = nullptr)
      : region_(threads_region_bytes(workers, slots)),
        stacks_(std::size_t{stacks} * kSlotBytes),
        counters_(workers) {
    for (std::uint32_t w = 0; w < workers && places != nullptr; ++w) counters_[w].places = &places[w];
    Config config;
    config.workers = workers;
    config.slots_per_rank = slots;
    config.stacks_per_rank = stacks;
    config.stack_bytes = kSlotBytes;
    config.stacks = stacks_.data();
    config.region = region_.data();
    config.counters = counters_.data();
    config.trim_stack = trim;
    config.use_trimmed_stack = [](void* self, StackId) {
      static_cast<TestPool*>(self)->trimmed_used.fetch_add(1);
    };
    config.stack_context = this;
    config.worker_nodes = std::move(nodes);
    auto made = Pool::create(config);
    if (!made) std::abort();
    pool_ = std::move(*made);
    for (std::uint32_t i = 1; i < workers; ++i) others_.emplace_back([this, i] { pool_->run_worker(i); });
  }
  ~TestPool() {
    pool_->stop();
    for (auto& t : others_) t.join();
  }
  template <class F>
  void run(F f) {
    pool_->run_root(0, [](void* p) { (*static_cast<F*>(p))(); }, &f);
  }
  [[nodiscard]] std::byte* stack(StackId stack) const {
    return stacks_.data() + std::size_t{raw(stack)} * kSlotBytes;
  }
  [[nodiscard]] Pool& operator*() { return *pool_; }
  [[nodiscard]] Pool* operator->() { return pool_.get(); }
  [[nodiscard]] std::uint64_t total(std::atomic<std::uint64_t> Counters::* counter) const {
    std::uint64_t sum = 0;
    for (const auto& c : counters_) sum += (c.*counter).load();
    return sum;
  }

  static constexpr std::size_t kSlotBytes = 64 * 1024;
  std::atomic<std::uint32_t> trimmed_used{0};  ///< stacks used again after they had given their frames back

 private:
  Pages region_, stacks_;
  std::vector<Counters> counters_;
  std::unique_ptr<Pool> pool_;
  std::vector<std::thread> others_;
};

/// A new thread that runs a copy of f, which lies on its own stack.
template <class F>
ThreadId fork(F f) {
  const Pool::Allocated thread = Pool::allocate(alignof(F), sizeof(F));
  new (thread.argument) F(std::move(f));
  Pool::fork(thread, [](void* p) {
    F& function = *static_cast<F*>(p);
    struct Destroy {
      F& f;
      ~Destroy() { f.~F(); }
    } destroy{function};
    function();
  });
  return thread.id;
}

/// Yields until condition holds; fails the test after a time that only a hang takes.
template <class Condition>
bool yield_until(Condition condition) {
  const std::uint64_t deadline = now_ns() + 60'000'000'000u;
  while (!condition()) {
    if (now_ns() > deadline) {
      ADD_FAILURE() << "hangs";
      return false;
    }
    Pool::yield();
  }
  return true;
}

inline unsigned plain_fib(unsigned n) { return n < 2 ? n : plain_fib(n - 1) + plain_fib(n - 2); }

inline unsigned fib(unsigned n) {
  if (n < 2) return n;
  unsigned a = 0;
  const ThreadId child = fork([&a, n] { a = fib(n - 1); });
  const unsigned b = fib(n - 2);
  Pool::join(child);
  return a + b;
}

}  // namespace kasane::ult
