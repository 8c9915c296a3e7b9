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
  char c = 0;
  if (state == "calls") (void)!::read(g_pipe[0], &c, 1);  // the pipe is rank 0's
  if (state == "sleeps") ::sleep(100);
}

void end(const std::string& how) {
  if (how == "kill") ::kill(g_process, SIGKILL);
  if (how == "exit") std::exit(7);
  if (how == "there") std::thread([] { std::exit(7); }).join();  // on the rank where fewer run
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || ::pipe(g_pipe) != 0) return 2;
  const std::string state = argv[1], how = argv[2];
  std::thread thread([&] { be_in(state); });
  g_process.wait(0);
  ::usleep(20'000);
  end(how);
}
