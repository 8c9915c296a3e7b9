// SPDX-License-Identifier: Apache-2.0
#include "common/progress.h"

#include <kasane/kasane.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>

namespace apps {
namespace {

constexpr double kBarEvery = 0.2, kLineEvery = 5.0;  // seconds

// One of the job; rank 0 shows it.
struct Shared {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  bool stop = false;
  const char* label = "";
  std::uint64_t expected = 0, threads_before = 0;
  bool counts_steps = false;
  std::atomic<std::uint64_t> steps{0};
  timespec start{};
  pthread_t thread{};
} shared;

double seconds_since(const timespec& start) {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec - start.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec - start.tv_nsec);
}

void show(bool terminal) {
  std::uint64_t all_threads = 0, steals = 0;
  if (kasane_counter_by_name("threads", KASANE_ALL_RANKS, &all_threads) != 0 ||
      kasane_counter_by_name("steals_remote", KASANE_ALL_RANKS, &steals) != 0)
    return;
  const double t = seconds_since(shared.start);
  const std::uint64_t threads = all_threads - std::min(all_threads, shared.threads_before);
  char text[200];
  int n = 0;
  if (shared.expected != 0) {
    // relaxed: a number to be shown.
    const std::uint64_t done = shared.counts_steps ? shared.steps.load(std::memory_order_relaxed) : threads;
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(shared.expected));
    char bar[25];
    const auto full = static_cast<std::size_t>(part * 24);
    std::fill(std::begin(bar), std::begin(bar) + full, '#');
    std::fill(std::begin(bar) + full, std::end(bar) - 1, '.');
    bar[24] = 0;
    n = std::snprintf(text, sizeof text, "%s [%s] %3.0f %%  %.1f s", shared.label, bar, 100 * part, t);
  } else {
    n = std::snprintf(text, sizeof text, "%s: %.1f s", shared.label, t);
  }
  if (n > 0 && static_cast<std::size_t>(n) < sizeof text)
    n += std::snprintf(text + n, sizeof text - static_cast<std::size_t>(n),
                       ", %llu threads, %llu steals between ranks", static_cast<unsigned long long>(threads),
                       static_cast<unsigned long long>(steals));
  std::fprintf(stderr, terminal ? "\r%s\033[K" : "%s\n", text);
}

bool wait_for_stop(double seconds) {
  timespec until;
  ::clock_gettime(CLOCK_REALTIME, &until);
  const auto ns = static_cast<long>(seconds * 1e9) + until.tv_nsec;
  until.tv_sec += ns / 1'000'000'000;
  until.tv_nsec = ns % 1'000'000'000;
  ::pthread_mutex_lock(&shared.lock);
  int rc = 0;
  while (!shared.stop && rc == 0) rc = ::pthread_cond_timedwait(&shared.changed, &shared.lock, &until);
  const bool stop = shared.stop;
  ::pthread_mutex_unlock(&shared.lock);
  return stop;
}

void* draw(void*) {
  const bool terminal = ::isatty(2) == 1;
  // A bar that would only flash is not shown at all.
  bool stop = wait_for_stop(terminal ? 1.0 : kLineEvery), shown = false;
  while (!stop) {
    show(terminal);
    shown = true;
    stop = wait_for_stop(terminal ? kBarEvery : kLineEvery);
  }
  if (shown && terminal) std::fputs("\r\033[K", stderr);
  return nullptr;
}

}  // namespace

Progress::Progress(const char* label, std::uint64_t expected_threads, bool quiet) {
  start(label, expected_threads, false, quiet);
}
Progress::Progress(const char* label, Steps steps, bool quiet) { start(label, steps.expected, true, quiet); }

// as where it is shown
void Progress::add(std::uint64_t steps) noexcept { shared.steps.fetch_add(steps, std::memory_order_relaxed); }

void Progress::start(const char* label, std::uint64_t expected, bool counts_steps, bool quiet) {
  if (quiet || kasane_counter_by_name("threads", KASANE_ALL_RANKS, &shared.threads_before) != 0) return;
  shared.stop = false;
  shared.label = label;
  shared.expected = expected;
  shared.counts_steps = counts_steps;
  shared.steps.store(0, std::memory_order_relaxed);
  ::clock_gettime(CLOCK_MONOTONIC, &shared.start);
  // No progress is better than no run.
  running_ = ::pthread_create(&shared.thread, nullptr, draw, nullptr) == 0;
}

Progress::~Progress() {
  if (!running_) return;
  ::pthread_mutex_lock(&shared.lock);
  shared.stop = true;
  ::pthread_cond_signal(&shared.changed);
  ::pthread_mutex_unlock(&shared.lock);
  ::pthread_join(shared.thread, nullptr);
}

}  // namespace apps
