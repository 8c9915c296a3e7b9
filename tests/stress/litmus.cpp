// SPDX-License-Identifier: Apache-2.0
// Litmus tests on the public API: what data-race-free programs may never see, however their threads are
// spread over ranks.
//
//   [STRESS_PAGE=4096] kasane run -n 4 --workers 2 -- stress_litmus [--rounds N] [CASE …]
//
// Threads are spread by force: a child waits until its parent's continuation has been taken over by another
// worker (the continuation says so by an uncached put), for a bounded time, so that a job of one worker ends
// too. The last line tells how often ranks really differed; a case that was never spread proves nothing and
// says so.
#include <kasane/kasane.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <new>

#include "stress/page_bytes.h"

namespace {

double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Tally {
  std::uint64_t wrong = 0;
  std::uint64_t spread = 0;  ///< rounds in which threads were on different ranks
};

/// A word that is only put and got: no fence comes with it, so it orders nothing.
class Signal {
 public:
  Signal()
      : word_(static_cast<std::uint64_t*>(
            kasane::allocate(4096, 4096, kasane::placement::local.in_pages(kasane::stress::page_bytes())))) {
    give(0);
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() { kasane::deallocate(word_); }
  void give(std::uint64_t value) { kasane::put(word_, &value); }
  [[nodiscard]] std::uint64_t get() const {
    std::uint64_t value = 0;
    kasane::get(&value, word_);
    return value;
  }
  /// Keeps this worker busy until the value comes, 20 ms at most.
  bool wait(std::uint64_t value) const {
    for (const double end = seconds() + 0.02; seconds() < end;)
      if (get() == value) return true;
    return false;
  }

 private:
  std::uint64_t* word_;
};

/// Runs bodies as threads, each started only when the continuation before it was taken over, so that they are
/// on different workers where there are enough. ranks[i]: where body i began.
template <std::size_t N>
void spread(std::array<std::function<void()>, N>& bodies, std::array<std::uint32_t, N>& ranks) {
  Signal moved;
  kasane::thread threads[N];
  for (std::size_t i = 0; i < N; ++i) {
    threads[i] = kasane::thread([&, i] {
      ranks[i] = kasane::rank();
      if (i + 1 < N) moved.wait(i + 1);
      bodies[i]();
    });
    moved.give(i + 1);
  }
  for (auto& t : threads) t.join();
}

template <std::size_t N>
bool differ(const std::array<std::uint32_t, N>& ranks) {
  for (std::uint32_t r : ranks)
    if (r != ranks[0]) return true;
  return false;
}

template <class T>
struct Global {
  explicit Global(kasane::placement where = kasane::placement::cyclic)
      : p(new(kasane::allocate(sizeof(T), 64, where.in_pages(kasane::stress::page_bytes()))) T()) {}
  Global(const Global&) = delete;
  Global& operator=(const Global&) = delete;
  ~Global() {
    std::destroy_at(p);
    kasane::deallocate(p);
  }
  T* operator->() const { return p; }
  T& operator*() const { return *p; }
  T* p;
};

// The thesis's listing 3.1: a child writes through a pointer to its parent's stack variable, while the parent
// goes on elsewhere with its stack. (The listing has a misprint; what is meant is &x.)
void parents_stack(Tally& tally) {
  Signal moved;
  int x = 0, other = 0;
  const std::uint32_t before = kasane::rank();
  int* p = &x;
  kasane::thread child([&moved, p] {
    moved.wait(1);
    *p = 42;
  });
  moved.give(1);
  other = 7;  // the same block, written by the parent where it is now
  tally.spread += kasane::rank() != before;
  child.join();
  tally.wrong += x != 42 || other != 7;
}

// As above, two children write neighbours in a parent's frame, and the parent a third.
void parents_frame_shared(Tally& tally) {
  Signal moved;
  volatile unsigned char cells[64] = {};
  const std::uint32_t before = kasane::rank();
  kasane::thread first([&] {
    moved.wait(1);
    for (int i = 0; i < 64; i += 3) cells[i] = 1;
  });
  moved.give(1);
  const bool once = kasane::rank() != before;
  kasane::thread second([&] {
    moved.wait(2);
    for (int i = 1; i < 64; i += 3) cells[i] = 2;
  });
  moved.give(2);
  for (int i = 2; i < 64; i += 3) cells[i] = 3;
  tally.spread += once || kasane::rank() != before;
  second.join();
  first.join();
  for (int i = 0; i < 64; ++i) tally.wrong += cells[i] != i % 3 + 1;
}

// Message passing: a thread that sees the flag under the lock sees the data, on another page.
void message_passing(Tally& tally) {
  struct Box {
    kasane::mutex lock;
    int flag = 0;
  };
  Global<Box> box;
  Global<std::array<int, 1024>> data;
  std::array<std::uint32_t, 2> ranks{};
  int wrong = 0;
  std::array<std::function<void()>, 2> bodies{[&] {
                                                for (int& d : *data) d = 5;
                                                const std::lock_guard hold(box->lock);
                                                box->flag = 1;
                                              },
                                              [&] {
                                                for (;;) {
                                                  {
                                                    const std::lock_guard hold(box->lock);
                                                    if (box->flag == 1) break;
                                                  }
                                                  kasane::this_thread::yield();
                                                }
                                                for (int d : *data) wrong += d != 5;
                                              }};
  spread(bodies, ranks);
  tally.wrong += wrong != 0;
  tally.spread += differ(ranks);
}

// Store buffering: each writes its own and reads the other's, under the variable's lock: not both may read 0.
void store_buffering(Tally& tally) {
  struct Cell {
    kasane::mutex lock;
    int value = 0;
  };
  Global<Cell> x, y;
  int seen[2] = {-1, -1};
  const auto side = [](Cell& mine, Cell& theirs, int& result) {
    {
      const std::lock_guard hold(mine.lock);
      mine.value = 1;
    }
    const std::lock_guard hold(theirs.lock);
    result = theirs.value;
  };
  std::array<std::uint32_t, 2> ranks{};
  std::array<std::function<void()>, 2> bodies{[&] { side(*x, *y, seen[0]); }, [&] { side(*y, *x, seen[1]); }};
  spread(bodies, ranks);
  tally.wrong += seen[0] == 0 && seen[1] == 0;
  tally.wrong += seen[0] < 0 || seen[1] < 0;
  tally.spread += differ(ranks);
}

// Independent reads of independent writes: two readers must not see the two writes in opposite orders.
void iriw(Tally& tally) {
  struct Cell {
    kasane::mutex lock;
    int value = 0;
    void write() {
      const std::lock_guard hold(lock);
      value = 1;
    }
    int read() {
      const std::lock_guard hold(lock);
      return value;
    }
  };
  Global<Cell> x, y;
  int a[2] = {-1, -1}, b[2] = {-1, -1};
  std::array<std::uint32_t, 4> ranks{};
  std::array<std::function<void()>, 4> bodies{[&] { x->write(); },
                                              [&] {
                                                a[0] = x->read();
                                                a[1] = y->read();
                                              },
                                              [&] {
                                                b[0] = y->read();
                                                b[1] = x->read();
                                              },
                                              [&] { y->write(); }};
  spread(bodies, ranks);
  tally.wrong += a[0] == 1 && a[1] == 0 && b[0] == 1 && b[1] == 0;
  tally.wrong += a[1] < 0 || b[1] < 0;
  tally.spread += differ(ranks);
}

// Four writers own every fourth byte of one page, and read each other's after a barrier, again and again.
void false_sharing(Tally& tally) {
  constexpr unsigned kWriters = 4, kPhases = 4, kBytes = 4096;
  auto* page = static_cast<volatile unsigned char*>(
      kasane::allocate(kBytes, 4096, kasane::placement::cyclic.in_pages(kasane::stress::page_bytes())));
  for (unsigned i = 0; i < kBytes; ++i) page[i] = 0;
  kasane::barrier barrier(kWriters);
  unsigned wrong[kWriters] = {};
  const auto writer = [&](unsigned me) {
    for (unsigned phase = 1; phase <= kPhases; ++phase) {
      for (unsigned i = me; i < kBytes; i += kWriters) page[i] = static_cast<unsigned char>(phase * 16 + me);
      barrier.arrive_and_wait();
      for (unsigned i = 0; i < kBytes; ++i) wrong[me] += page[i] != phase * 16 + i % kWriters;
      barrier.arrive_and_wait();
    }
  };
  std::array<std::uint32_t, kWriters> ranks{};
  std::array<std::function<void()>, kWriters> bodies{[&] { writer(0); }, [&] { writer(1); },
                                                     [&] { writer(2); }, [&] { writer(3); }};
  spread(bodies, ranks);
  for (unsigned w : wrong) tally.wrong += w != 0;
  tally.spread += differ(ranks);
  kasane::deallocate(const_cast<unsigned char*>(page));
}

// A block that two ranks free and allocate in turn: no old bytes come back.
void reuse(Tally& tally) {
  std::array<std::uint32_t, 2> ranks{};
  unsigned wrong[2] = {};
  const auto user = [&](unsigned me) {
    for (unsigned round = 0; round < 50; ++round) {
      auto* p = static_cast<volatile unsigned char*>(
          kasane::allocate(64, 16, kasane::placement::local.in_pages(kasane::stress::page_bytes())));
      for (unsigned i = 0; i < 64; ++i) p[i] = static_cast<unsigned char>(round % 3);
      kasane::thread child([&, p] {
        for (unsigned i = 0; i < 64; ++i) wrong[me] += p[i] != round % 3;
        kasane::deallocate(const_cast<unsigned char*>(p));
      });
      child.join();
    }
  };
  std::array<std::function<void()>, 2> bodies{[&] { user(0); }, [&] { user(1); }};
  spread(bodies, ranks);
  tally.wrong += wrong[0] + wrong[1] != 0;
  tally.spread += differ(ranks);
}

struct Case {
  const char* name;
  void (*run)(Tally&);
};
constexpr Case kCases[] = {{"parents-stack", parents_stack},
                           {"parents-frame-shared", parents_frame_shared},
                           {"message-passing", message_passing},
                           {"store-buffering", store_buffering},
                           {"iriw", iriw},
                           {"false-sharing", false_sharing},
                           {"reuse", reuse}};

bool wanted(int argc, char** argv, const char* name) {
  bool any = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0) {
      ++i;
      continue;
    }
    any = true;
    if (std::strcmp(argv[i], name) == 0) return true;
  }
  return !any;
}

}  // namespace

int main(int argc, char** argv) {
  unsigned long rounds = 50;
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::strtoul(argv[i + 1], nullptr, 10);
  bool good = true;
  for (const Case& c : kCases) {
    if (!wanted(argc, argv, c.name)) continue;
    Tally tally;
    kasane::run([&] {
      for (unsigned long i = 0; i < rounds; ++i) c.run(tally);
    });
    std::printf("%-22s %lu rounds, %llu wrong, %llu spread over ranks%s\n", c.name, rounds,
                static_cast<unsigned long long>(tally.wrong), static_cast<unsigned long long>(tally.spread),
                tally.spread == 0 && kasane::ranks() > 1 ? " (never spread: nothing was tested)" : "");
    good = good && tally.wrong == 0;
  }
  return good ? 0 : 1;
}
