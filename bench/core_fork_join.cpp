// SPDX-License-Identifier: Apache-2.0
#include "core_fork_join.h"

#include <omp.h>
#include <sys/mman.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <functional>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "base/counters.h"
#include "core_fork_join_peers.h"
#include "ult/layout.h"
#include "ult/pool.h"

namespace kasane::bench {
namespace {

// ---- the kernels: the same recursion on each system ----

[[gnu::noinline]] std::uint64_t call_fib(unsigned n) {
  if (n < 2) return n;
  const std::uint64_t a = call_fib(n - 1);
  asm volatile("");   // keeps the compiler from turning the recursion into loops
  return a + call_fib(n - 2);
}

std::uint64_t kasane_fib(unsigned n) {
  if (n < 2) return n;
  struct Child {
    unsigned n;
    std::uint64_t* result;
  };
  std::uint64_t a = 0;
  const ult::Pool::Allocated thread = ult::Pool::allocate(alignof(Child), sizeof(Child));
  new (thread.argument) Child{n - 1, &a};
  ult::Pool::fork(thread, [](void* p) {
    const auto& child = *static_cast<Child*>(p);
    *child.result = kasane_fib(child.n);
  });
  const std::uint64_t b = kasane_fib(n - 2);
  ult::Pool::join(thread.id);
  return a + b;
}

std::uint64_t tbb_fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0;
  tbb::task_group group;
  group.run([&a, n] { a = tbb_fib(n - 1); });
  const std::uint64_t b = tbb_fib(n - 2);
  group.wait();
  return a + b;
}

std::uint64_t omp_fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0;
#pragma omp task shared(a) firstprivate(n)
  a = omp_fib(n - 1);
  const std::uint64_t b = omp_fib(n - 2);
#pragma omp taskwait
  return a + b;
}

// ---- the machinery that one run needs ----

/// Memory for a pool of one rank.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(p);
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

/// Calls measure inside of a root thread on workers workers.
void with_pool(unsigned workers, const std::function<void()>& measure) {
  constexpr std::uint32_t kSlots = 4096;
  ult::Config config;
  const Pages region(ult::threads_region_bytes(workers, kSlots));
  const Pages stacks(kSlots * config.stack_bytes);
  std::vector<Counters> counters(workers);
  config.workers = workers;
  config.slots_per_rank = config.stacks_per_rank = kSlots;
  config.stacks = stacks.data();
  config.region = region.data();
  config.counters = counters.data();
  auto pool = ult::Pool::create(config);
  if (!pool) throw std::runtime_error(pool.error().message);
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < workers; ++i) others.emplace_back([&pool, i] { (*pool)->run_worker(i); });
  (*pool)->run_root(0, [](void* p) { (*static_cast<const std::function<void()>*>(p))(); }, const_cast<std::function<void()>*>(&measure));
  (*pool)->stop();
}

void with_tbb(unsigned workers, const std::function<void()>& measure) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, workers);
  tbb::task_arena arena(static_cast<int>(workers));
  arena.execute(measure);
}

void with_openmp(unsigned workers, const std::function<void()>& measure) {
#pragma omp parallel num_threads(static_cast<int>(workers))
#pragma omp single
  measure();
}

/// Median ns per inner node of the recursion: fib(n) has fib(n + 1) - 1 of them.
double measure_ns(std::uint64_t (*fib)(unsigned), unsigned n, unsigned repetitions) {
  const std::uint64_t expected = call_fib(n);
  const auto forks = static_cast<double>(call_fib(n + 1) - 1);
  std::vector<double> ns;
  for (unsigned i = 0; i <= repetitions; ++i) {
    const std::uint64_t begin = now_ns();
    const std::uint64_t result = fib(n);
    const auto took = static_cast<double>(now_ns() - begin);
    if (result != expected) throw std::runtime_error("fork-join: fib(" + std::to_string(n) + ") is wrong");
    if (i > 0) ns.push_back(took / forks);   // the first one warms up
  }
  std::nth_element(ns.begin(), ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / 2), ns.end());
  return ns[ns.size() / 2];
}

}  // namespace

std::vector<Row> core_fork_join(bool quick, std::optional<unsigned> asked) {
  const unsigned n = quick ? 24 : 32;
  const unsigned repetitions = asked.value_or(quick ? 3 : 9);
  std::vector<Row> rows;
  const auto add = [&](const char* system, unsigned workers, double value) {
    rows.push_back({"core", "fork-join", system, 1, workers, 0, value, "ns", repetitions});
  };
  add("call", 1, measure_ns(call_fib, n, repetitions));
  std::vector<ForkJoin> systems{{"kasane", kasane_fib, with_pool, false}, {"tbb", tbb_fib, with_tbb, true}, {"openmp", omp_fib, with_openmp, true}};
  systems.insert(systems.begin() + 1, fork_join_peers().begin(), fork_join_peers().end());
  for (const ForkJoin& s : systems) {
    for (const unsigned workers : {1u, 2u}) {
      const unsigned depth = s.slow ? n - 4 : n;
      double value = 0;
      s.with(workers, [&] { value = measure_ns(s.fib, depth, repetitions); });
      add(s.name, workers, value);
    }
  }
  return rows;
}

}  // namespace kasane::bench
