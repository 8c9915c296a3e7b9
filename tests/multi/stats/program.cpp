// SPDX-License-Identifier: Apache-2.0
// Spends its time in a known way at a known line, by its argument; stats.sh looks at what --stats says of it.
// Lines with "here:" are those to be named.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <mutex>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::size_t kPageBytes = 65536, kBlockBytes = 4096, kPages = 256;
constexpr microseconds kTime{600'000};

void spin(microseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

/// Accesses in an order that is no stream, one to each block.
template <class Access>
void scattered(char* pages, Access& access) {
  constexpr std::size_t kBlocks = kPages * kPageBytes / kBlockBytes;
  for (std::size_t i = 0; i < kBlocks; ++i) access(pages + i * 1021 % kBlocks * kBlockBytes);
}

[[gnu::noinline]] int load_far(const volatile char* from) {
  return *from;  // here: loads
}
[[gnu::noinline]] void store_far(volatile char* to, char value) {
  *to = value;  // here: stores
}
[[gnu::noinline]] void copy_far(char* to, const char* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);   // here: copies
  asm volatile("" ::: "memory");  // no jump to memcpy
}

[[gnu::noinline]] void take_turn(kasane::mutex& mutex) {
  const std::lock_guard lock(mutex);  // here: lock
  spin(microseconds(100));
}
[[gnu::noinline]] void meet(kasane::barrier& barrier) {
  barrier.arrive_and_wait();  // here: barrier
}

/// On two threads at least, of which each rank has one.
template <class F>
void on_all(const F& f) {
  const std::uint32_t n = std::max(kasane::ranks(), 2u);
  std::vector<kasane::thread> threads;
  for (std::uint32_t i = 1; i < n; ++i)
    threads.emplace_back(kasane::at{i % kasane::ranks()}, [&f, i, n] { f(i, n); });
  kasane::this_thread::move_to(0);  // perhaps another rank stole this thread meanwhile
  f(0, n);
  for (kasane::thread& thread : threads) thread.join();
}

template <class Access>
void use_far(Access access) {
  auto* const pages =
      static_cast<char*>(kasane::allocate(kPages * kPageBytes, kPageBytes, kasane::placement::local.fixed()));
  std::memset(pages, 1, kPages * kPageBytes);
  on_all([&](std::uint32_t i, std::uint32_t) {
    if (i != 1) return;
    const auto end = Clock::now() + kTime;
    while (Clock::now() < end) {
      scattered(pages, access);
      kasane::release_all();
      kasane::acquire_all();
    }
  });
}

int run(std::string_view what) {
  kasane::mutex mutex;
  kasane::barrier barrier(std::max(kasane::ranks(), 2u));
  if (what == "loads") {
    use_far([](char* at) { (void)load_far(at); });
  } else if (what == "stores") {
    use_far([value = char{0}](char* at) mutable { store_far(at, ++value); });
  } else if (what == "copies") {
    const auto bytes = static_cast<std::size_t>(std::atoi("256"));  // not known to the compiler
    use_far([bytes](char* at) {
      char here[256];
      copy_far(here, at, bytes);
    });
  } else if (what == "lock") {
    on_all([&](std::uint32_t, std::uint32_t) {
      const auto end = Clock::now() + kTime;
      while (Clock::now() < end) take_turn(mutex);
    });
  } else if (what == "barrier") {
    on_all([&](std::uint32_t i, std::uint32_t n) {
      for (int round = 0; round < 20; ++round) {
        if (i == static_cast<std::uint32_t>(round) % n) spin(kTime / 20);
        meet(barrier);
      }
    });
  } else if (what == "compute") {
    spin(5 * kTime);  // the two faults of a start and an end are to be no line
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return argc == 2 ? kasane::run([&] { return run(argv[1]); }) : 2;
}
