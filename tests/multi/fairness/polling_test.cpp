// SPDX-License-Identifier: Apache-2.0
// A thread that polls by calls of any kind lets the thread run that it polls for, also where this one is
// ready on the same worker: a fork runs the child first, so on one worker each child here polls before its
// creator can give it what it waits for.
#include <pthread.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <memory>
#include <vector>

namespace {

using namespace std::chrono_literals;

/// What threads poll for, in each way.
struct Meeting {
  kasane::mutex held, guard;
  kasane::shared_mutex shared;
  kasane::counting_semaphore permits{0};
  kasane::latch latch{1};
  kasane::atomic<std::uint32_t> word{0};
  std::uint32_t plain = 0;
  std::uint64_t direct;

  Meeting() {
    kasane::put(kasane::global_ptr<std::uint64_t>(&direct), std::uint64_t{0});
    held.lock();
    shared.lock();
  }
  void give() {
    held.unlock();
    shared.unlock();
    permits.release(1);
    latch.count_down();
    word.store(1);
    {
      guard.lock();
      plain = 1;
      guard.unlock();
    }
    kasane::put(kasane::global_ptr<std::uint64_t>(&direct), std::uint64_t{1});
  }
  std::uint64_t get() { return kasane::get(kasane::global_ptr<std::uint64_t>(&direct)); }
};

/// poll(meeting): is it there?
template <class F>
void child_polls(const char* how, F poll) {
  kasane::run([&] {
    auto meeting = std::make_unique<Meeting>();
    kasane::thread child([&, poll] {
      while (!poll(*meeting)) {
      }
    });
    meeting->give();
    child.join();
  });
  std::printf("%s\n", how);
}

/// Two threads that run in turn, each lets the other run, and one that both wait for.
void two_poll_for_a_third() {
  kasane::run([] {
    auto meeting = std::make_unique<Meeting>();
    const auto poll = [&] {
      while (meeting->word.load() == 0) kasane::this_thread::yield();
    };
    kasane::thread a(poll), b(poll);
    meeting->give();
    a.join();
    b.join();
  });
  std::printf("two that yield\n");
}

/// A mutex of private memory is libc's: who waits for it keeps the worker, so who holds it keeps its turn.
void holder_of_libcs_mutex_stays() {
  if (kasane::ranks() > 1) return;  // the memory is one rank's
  auto* const mutex = static_cast<pthread_mutex_t*>(std::malloc(sizeof(pthread_mutex_t)));
  pthread_mutex_init(mutex, nullptr);
  kasane::run([&] {
    auto meeting = std::make_unique<Meeting>();
    kasane::thread child([&] {
      pthread_mutex_lock(mutex);
      const auto end = std::chrono::steady_clock::now() + 100ms;
      while (std::chrono::steady_clock::now() < end) static_cast<void>(meeting->get());
      pthread_mutex_unlock(mutex);
    });
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    child.join();
    meeting->give();
  });
  pthread_mutex_destroy(mutex);
  std::free(mutex);
  std::printf("a holder of a mutex of libc's\n");
}

/// A thread for each worker of the job, which waits by direct reads, and sleeps meanwhile with its worker,
/// until all are there.
void all_workers_meet() {
  kasane::run([] {
    const std::uint32_t size = kasane::ranks() * kasane::workers();
    const auto count = kasane::make_array<std::uint32_t>(1);
    const kasane::global_ptr<std::uint32_t> at(count.get());
    kasane::put(at, std::uint32_t{0});
    const auto member = [=] {
      kasane::fetch_add(at, std::uint32_t{1});
      while (kasane::get(at) != size) {
        const timespec moment{0, 50'000};
        ::nanosleep(&moment, nullptr);
      }
    };
    std::vector<kasane::thread> others;
    for (std::uint32_t i = 0; i + 1 < size; ++i) others.emplace_back(member);
    member();
    for (auto& t : others) t.join();
  });
}

}  // namespace

int main() {
  child_polls("get", [](Meeting& m) { return m.get() != 0; });
  child_polls("swap", [](Meeting& m) {
    return kasane::swap(kasane::global_ptr<std::uint64_t>(&m.direct), m.get()) != 0;
  });
  child_polls("atomic", [](Meeting& m) { return m.word.load() != 0; });
  child_polls("mutex, tried", [](Meeting& m) { return m.held.try_lock() && (m.held.unlock(), true); });
  child_polls("plain word under a mutex", [](Meeting& m) {
    m.guard.lock();
    const bool there = m.plain != 0;
    m.guard.unlock();
    return there;
  });
  child_polls("shared mutex, tried",
              [](Meeting& m) { return m.shared.try_lock_shared() && (m.shared.unlock_shared(), true); });
  child_polls("semaphore, tried", [](Meeting& m) { return m.permits.try_acquire(); });
  child_polls("semaphore, with a deadline", [](Meeting& m) { return m.permits.try_acquire_for(1us); });
  child_polls("latch, tried", [](Meeting& m) { return m.latch.try_wait(); });
  two_poll_for_a_third();
  holder_of_libcs_mutex_stays();
  for (int i = 0; i < 50; ++i) all_workers_meet();
  std::printf("all workers\n");
  return 0;
}
