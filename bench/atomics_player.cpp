// SPDX-License-Identifier: Apache-2.0
// What an operation of std::atomic costs: in memory that this rank owns, used by no other; by the CPU's
// instruction inline; or where threads of two ranks add to one object at the same time.
//   kasane run -n 2 --workers 1 -- player-atomics alone|inline|both add|load|compare|count
// Prints one JSON object: the mean time of an operation in each of ten rounds, in ns; of alone and inline the
// least of many short runs in each round, since a thread may be interrupted.
#include <kasane/kasane.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Object = std::atomic<std::uint32_t>;

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

template <class F>
double least(const F& operation) {
  constexpr int kTimes = 1000;
  double best = 1e9;
  for (int run = 0; run < 200; ++run) {
    const auto begin = Clock::now();
    for (int i = 0; i < kTimes; ++i) operation();
    best = std::min(best, ns_since(begin) / kTimes);
  }
  return best;
}

double call(Object& object, const std::string& what) {
  if (what == "load") return least([&] { (void)object.load(std::memory_order_acquire); });
  if (what == "add") return least([&] { object.fetch_add(1); });
  return least([&] {
    std::uint32_t expected = 1;
    object.compare_exchange_strong(expected, 1);
  });
}

/// What the compiler makes of it without -fno-inline-atomics.
double inlined(Object& object, const std::string& what) {
  auto& word = reinterpret_cast<std::uint32_t&>(object);
  std::uint32_t value = 1;
  if (what == "load") return least([&] { asm volatile("mov %1, %0" : "=r"(value) : "m"(word) : "memory"); });
  if (what == "add")
    return least([&] { asm volatile("lock xadd %0, %1" : "+r"(value), "+m"(word)::"memory"); });
  return least([&] {
    std::uint32_t expected = 1;
    asm volatile("lock cmpxchg %2, %1" : "+a"(expected), "+m"(word) : "r"(1u) : "memory");
  });
}

/// Both ranks at once; count: relaxed, else with the order of a shared_ptr's count.
double both(Object& object, const std::string& what) {
  constexpr std::uint32_t kTimes = 2000;
  const auto order = what == "count" ? std::memory_order_relaxed : std::memory_order_acq_rel;
  auto* const places = static_cast<char*>(kasane::allocate(2 * 65536, 65536, kasane::placement::cyclic));
  places[0] = places[65536] = 0;
  const auto begin = Clock::now();
  std::vector<kasane::thread> threads;
  for (std::uint32_t r = 0; r < 2; ++r)
    threads.emplace_back(kasane::near{places + r * 65536}, [&object, order] {
      for (std::uint32_t i = 0; i < kTimes; ++i) object.fetch_add(1, order);
    });
  for (auto& t : threads) t.join();
  const double each = ns_since(begin) / (2 * kTimes);
  kasane::deallocate(places);
  return each;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string where = argc > 1 ? argv[1] : "alone", what = argc > 2 ? argv[2] : "add";
  std::vector<double> ns;
  for (int round = 0; round <= 10; ++round) {
    const double each = kasane::run([&] {
      const auto object = std::make_unique<Object>(0);
      return where == "both"     ? both(*object, what)
             : where == "inline" ? inlined(*object, what)
                                 : call(*object, what);
    });
    if (round > 0) ns.push_back(each);  // the first one warms up
  }
  std::printf("{\"verified\": true, \"ns\": [");
  for (std::size_t i = 0; i < ns.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", ns[i]);
  std::puts("]}");
}
