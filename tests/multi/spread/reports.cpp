// SPDX-License-Identifier: Apache-2.0
// Threads that wait until standard input ends (reports.sh).
#include <unistd.h>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

namespace {

std::mutex g_mutex;
std::condition_variable g_condition;
bool g_goes_on;

[[gnu::noinline]] void wait_for_main() {
  std::unique_lock lock(g_mutex);
  g_condition.wait(lock, [] { return g_goes_on; });
}
[[gnu::noinline]] void sleep_for_long() {
  ::sleep(2);
  asm volatile("");  // its frame stays
}

}  // namespace

int main() {
  std::FILE* const opened = std::tmpfile();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i, opened] {
      std::fprintf(opened, "%d", i);
      i % 2 == 0 ? wait_for_main() : sleep_for_long();
    });
  std::puts("begun");
  std::fflush(stdout);
  std::getchar();
  {
    const std::scoped_lock lock(g_mutex);
    g_goes_on = true;
  }
  g_condition.notify_all();
  for (auto& t : threads) t.join();
}
