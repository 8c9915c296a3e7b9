// SPDX-License-Identifier: Apache-2.0
// A library as some BLAS are: its constructor starts threads, before main, and its functions need them.
#include <condition_variable>
#include <mutex>
#include <thread>

namespace {

struct State {
  std::mutex mutex, one_at_a_time;
  std::condition_variable asked, answered;
  int question = 0, answer = 0;
  bool waiting = false, ready = false;
};
State* g_state = nullptr;  // never destroyed: the threads wait in it to the end

void serve() {
  State& s = *g_state;
  std::unique_lock lock(s.mutex);
  for (;;) {
    s.asked.wait(lock, [&] { return s.waiting; });
    s.waiting = false;
    s.answer = 2 * s.question;
    s.ready = true;
    s.answered.notify_all();
  }
}

[[gnu::constructor]] void start_threads() {
  g_state = new State;
  for (int i = 0; i < 2; ++i) std::thread(serve).detach();
}

}  // namespace

extern "C" int twice_by_another_thread(int question) {
  State& s = *g_state;
  const std::lock_guard one(s.one_at_a_time);
  std::unique_lock lock(s.mutex);
  s.question = question;
  s.ready = false;
  s.waiting = true;
  s.asked.notify_one();
  s.answered.wait(lock, [&] { return s.ready; });
  return s.answer;
}
