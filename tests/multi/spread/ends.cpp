// SPDX-License-Identifier: Apache-2.0
// The job ends while a thread on another rank is in a state: ends STATE HOW (ends.sh).
#include <kasane/kasane.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace {

std::mutex g_mutex;
std::condition_variable g_condition;
std::atomic<int> g_process;  ///< of the thread's rank
std::atomic<bool> g_never;
int g_pipe[2];

struct SlowEnd {
  bool used = false;
  ~SlowEnd() {
    if (used) ::sleep(100);
  }
};
thread_local SlowEnd t_slow_end;

struct Far {
  alignas(65536) std::atomic<long> turns;
  long values[2];
} g_far;

void be_in(const std::string& state) {
  if (state == "ends") t_slow_end.used = true;
  g_process = ::getpid();
  g_process.notify_all();
  if (state == "computes")
    while (!g_never) continue;
  if (state == "waits") {
    std::unique_lock lock(g_mutex);
    g_condition.wait(lock, [] { return g_never.load(); });
  }
  if (state == "mutex") const std::scoped_lock waits(g_mutex);  // main has it
  if (state == "join") std::thread([] { ::pause(); }).join();
  if (state == "page")  // it goes back and forth between the ranks
    for (;; ++g_far.turns) ++g_far.values[1];
  char c = 0;
  if (state == "calls") (void)!::read(g_pipe[0], &c, 1);  // the pipe is rank 0's
  if (state == "sleeps") ::sleep(100);
}

void end(const std::string& state, const std::string& how) {
  if (state == "page")
    for (int i = 0; i < 200; ++i, ++g_far.turns) ++g_far.values[0];

  if (how == "kill") ::kill(g_process, SIGKILL);
  if (how == "exit") std::exit(7);
  if (how == "there") std::thread([] { std::exit(7); }).join();  // on the rank where fewer run
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || ::pipe(g_pipe) != 0) return 2;
  const std::string state = argv[1], how = argv[2];
  if (state == "mutex") g_mutex.lock();
  std::thread thread([&] { be_in(state); });
  g_process.wait(0);
  ::usleep(20'000);
  if (state == "created") std::thread([] { ::pause(); }).detach();  // it may not run yet
  end(state, how);
}
