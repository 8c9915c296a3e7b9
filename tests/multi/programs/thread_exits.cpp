// SPDX-License-Identifier: Apache-2.0
// pthread_exit() and thrd_exit() in main, on threads, and deep in calls: with each argument another program.
// The last line says whether all that had to happen before the end did.
#include <pthread.h>
#include <threads.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <kasane/kasane.hpp>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

/// In static memory of rank 0, and of the shared space.
std::atomic<int> g_steps{0};
int g_wanted = 0;
pthread_t g_main;
kasane::atomic<int>* g_shared = nullptr;

struct Step {
  ~Step() { ++g_steps; }
};

void wait_a_little() { ::usleep(50'000); }

void main_alone() {
  const Step destructor_runs;
  g_wanted = 1;
  ::pthread_exit(nullptr);
}

/// More than DRAM holds: the kernel has threads of its own in this process, which write.
void main_beyond_dram() {
  std::vector<char> data(64 << 20, 1);
  g_wanted = 1;
  g_steps = data[data.size() / 3];
  ::pthread_exit(nullptr);
}

void main_with_os_threads() {
  g_wanted = 2;
  for (int i = 0; i < 2; ++i) {
    std::thread([] {
      wait_a_little();
      ++g_steps;
      if (g_steps == 2) ::pthread_exit(nullptr);
    }).detach();
  }
  ::pthread_exit(nullptr);
}

void main_with_threads() {
  g_wanted = 0;
  kasane::run([] {
    g_shared = static_cast<kasane::atomic<int>*>(kasane_malloc(sizeof(kasane::atomic<int>)));
    new (g_shared) kasane::atomic<int>(0);
    auto* const shared = g_shared;
    for (unsigned r = 0; r < kasane_ranks(); ++r) {
      void* const there = kasane_allocate_at(8, 8, r);
      kasane::thread([there, shared] {
        kasane::this_thread::move_near(there);
        for (int i = 0; i < 20; ++i) {
          kasane::counting_semaphore never(0);
          (void)never.try_acquire_for(std::chrono::milliseconds(5));
        }
        shared->fetch_add(1);
      }).detach();
    }
  });
  ::pthread_exit(nullptr);
}

void on_threads() {
  kasane::run([] {
    auto* const shared = new kasane::atomic<int>(0);
    struct Counts {
      kasane::atomic<int>* n;
      ~Counts() { n->fetch_add(1); }
    };
    for (unsigned r = 0; r < kasane_ranks(); ++r) {
      void* const there = kasane_allocate_at(8, 8, r);
      kasane::thread([&, there] {
        const Counts outer{shared};
        kasane::this_thread::move_near(there);
        try {
          const Counts inner{shared};
          r % 2 == 0 ? ::pthread_exit(nullptr) : ::thrd_exit(3);
        } catch (const std::exception&) {
          std::abort();
        } catch (...) {
          shared->fetch_add(1);
          throw;
        }
      }).join();
    }
    g_steps = shared->load();
    g_wanted = static_cast<int>(3 * kasane_ranks());
  });
}

/// A destructor that moves the thread to another rank while it is unwound.
void moving_meanwhile() {
  kasane::run([] {
    auto* const shared = new kasane::atomic<int>(0);
    void* const there = kasane_allocate_at(8, 8, kasane_ranks() - 1);
    struct Moves {
      void* there;
      kasane::atomic<int>* n;
      ~Moves() {
        kasane::this_thread::move_near(there);
        n->fetch_add(1);
      }
    };
    kasane::thread([&] {
      const Moves last{shared, shared};
      const Moves first{there, shared};
      ::pthread_exit(nullptr);
    }).join();
    g_steps = shared->load();
    g_wanted = 2;
  });
}

/// A handler that does not rethrow would keep a thread alive that has to end.
void swallowed() {
  kasane::run([] {
    try {
      ::pthread_exit(nullptr);
    } catch (...) {
    }
  });
}

/// The first thread ends so; run() returns.
void first_thread() {
  kasane::run([] { ::pthread_exit(nullptr); });
  kasane::run([] {});
}

/// Who joins main hears that it cannot be: its OS thread lives until the end of the job.
void main_joined() {
  g_wanted = 1;
  g_main = ::pthread_self();
  std::thread([] {
    wait_a_little();
    if (::pthread_join(g_main, nullptr) == EINVAL) ++g_steps;
  }).detach();
  ::pthread_exit(nullptr);
}

void main_cancelled() {
  g_wanted = 2;
  g_main = ::pthread_self();
  const Step destructor_runs;
  std::thread([] {
    wait_a_little();
    if (::pthread_cancel(g_main) == 0) ++g_steps;
  }).detach();
  for (;;) ::pause();
}

const std::map<std::string, void (*)()> kDeeds = {
    {"main-alone", main_alone},
    {"main-beyond-dram", main_beyond_dram},
    {"main-with-os-threads", main_with_os_threads},
    {"main-with-threads", main_with_threads},
    {"main-joined", main_joined},
    {"main-cancelled", main_cancelled},
    {"on-threads", on_threads},
    {"moving", moving_meanwhile},
    {"first-thread", first_thread},
    {"swallowed", swallowed},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "on-threads";
  std::atexit([] {
    if (g_shared != nullptr) {
      kasane::acquire_all();
      g_wanted = static_cast<int>(kasane_ranks());
      g_steps = g_shared->load();
    }
    if (g_steps == g_wanted) return;
    std::fprintf(stderr, "%d of %d steps\n", g_steps.load(), g_wanted);
    std::_Exit(1);
  });
  kDeeds.at(how)();
}
