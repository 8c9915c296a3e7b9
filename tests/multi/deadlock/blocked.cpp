// SPDX-License-Identifier: Apache-2.0
// Blocks all of its threads for ever, in the way that its argument names. tests/multi/deadlock/run.cmake
// looks at the report.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

namespace {

kasane::mutex* first_mutex;

[[gnu::noinline]] void lock_both(kasane::mutex& held, kasane::mutex& wanted, kasane::latch& both) {
  held.lock();
  both.arrive_and_wait();
  wanted.lock();
  std::puts("never");
}

void crosswise() {
  auto a = std::make_unique<kasane::mutex>(), b = std::make_unique<kasane::mutex>();
  first_mutex = a.get();
  kasane::latch both(2);
  kasane::thread one([&] { lock_both(*a, *b, both); });
  kasane::thread other([&] { lock_both(*b, *a, both); });
  one.join();
  other.join();
}

/// Each kind of object once.
void everything() {
  kasane::mutex mutex;
  kasane::condition_variable condition;
  kasane::barrier barrier(2);
  kasane::latch latch(1);
  kasane::counting_semaphore semaphore(0);
  kasane::shared_mutex shared;
  kasane::atomic<std::uint32_t> word{7};
  shared.lock();
  kasane::thread threads[] = {
      kasane::thread([&] {
        std::unique_lock lock(mutex);
        condition.wait(lock);
      }),
      kasane::thread([&] { barrier.arrive_and_wait(); }),
      kasane::thread([&] { latch.wait(); }),
      kasane::thread([&] { semaphore.acquire(); }),
      kasane::thread([&] { shared.lock_shared(); }),
      kasane::thread([&] { word.wait(7); }),
  };
  for (auto& t : threads) t.join();
}

/// A thread that computes.
[[gnu::noinline]] void compute_for_long(volatile int* sum) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  while (std::chrono::steady_clock::now() < end) *sum = *sum + 1;
}
void computes() {
  int sum = 0;
  kasane::thread one([&] { compute_for_long(&sum); });
  one.join();
  std::puts("computed");
}

/// Threads of rank 0 that load what is another rank's, again and again.
void misses() {
  constexpr std::size_t kBlock = 4096, kBlocks = 512;
  auto* const bytes = static_cast<char*>(
      kasane::allocate_zeroed(kBlocks * kBlock, kBlock, kasane::placement::on(kasane::ranks() - 1)));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  std::vector<kasane::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([=] {
      for (std::size_t n = t; std::chrono::steady_clock::now() < end; n += 37) {
        kasane::this_thread::move_to(0);
        (void)*const_cast<volatile char*>(bytes + n % kBlocks * kBlock);
        if (n % kBlocks == t) kasane::acquire_all();
      }
    });
  }
  for (kasane::thread& thread : threads) thread.join();
  kasane::deallocate(bytes);
  std::puts("missed");
}

/// Threads that wait, and one that ends it after some seconds.
void only_slow() {
  kasane::latch latch(1);
  kasane::thread waits([&] { latch.wait(); });
  kasane::mutex mutex;
  kasane::condition_variable condition;
  {
    std::unique_lock lock(mutex);
    condition.wait_for(lock, std::chrono::seconds(3));
  }
  latch.count_down(1);
  waits.join();
  std::puts("slow, but right");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (how == "handler") ::signal(SIGTERM, [](int) { ::_Exit(3); });
  if (how == "os-thread")
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      std::_Exit(4);
    }).detach();
  if (how == "alarm") ::alarm(3);
  if (how == "everything")
    kasane::run([] { everything(); });
  else if (how == "computes")
    kasane::run([] { computes(); });
  else if (how == "misses")
    kasane::run([] { misses(); });
  else if (how == "slow")
    kasane::run([] { only_slow(); });
  else
    kasane::run([] { crosswise(); });
  return 0;
}
