// SPDX-License-Identifier: Apache-2.0
// Mistakes that end a program, one a run: what the message says is the test.
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace {

/// Without an end, but the compiler does not know that.
[[gnu::noinline]] int descend(int n) {
  volatile char frame[200];
  frame[0] = static_cast<char>(n);
  return n < 0 ? frame[0] : descend(n + 1) + frame[0];
}
[[gnu::noinline]] int descend_in_strides(int n) {
  volatile char frame[100'000];
  frame[0] = static_cast<char>(n);
  return n < 0 ? frame[0] : descend_in_strides(n + 1) + frame[0];
}

[[gnu::noinline]] void throw_it(int n) {
  if (n >= 0) throw std::runtime_error("the text of the exception");
}
[[gnu::noinline]] void call_thrower(int n) {
  throw_it(n);
  std::puts("not reached");
}

/// A pointer whose origin the compiler does not know.
template <class T>
T* hidden(T* p) {
  asm volatile("" : "+r"(p));
  return p;
}

void on_thread(std::string_view mistake) {
  kasane::mutex mutex;
  if (mistake == "lock_twice") {
    mutex.lock();
    mutex.lock();
  }
  if (mistake == "unlock") mutex.unlock();
  if (mistake == "free_of_malloc") kasane_free(hidden(std::malloc(100)));
  if (mistake == "delete_of_variable") {
    int variable = 0;
    delete hidden(&variable);
  }
  if (mistake == "delete_inside") delete[] (hidden(new char[100]) + 16);
  if (mistake == "throw_in_run") call_thrower(1);
  if (mistake == "throw_on_thread") kasane::thread([] { call_thrower(1); }).join();
}

}  // namespace

int main(int, char** argv) {
  const std::string_view mistake = argv[1];
  if (mistake == "recursion") return descend(0);
  if (mistake == "strides") return descend_in_strides(0);
  if (mistake == "recursion_on_os_thread") std::thread([] { descend(0); }).join();
  if (mistake == "throw_in_main") call_thrower(1);
  if (mistake == "throw_on_os_thread") std::thread([] { call_thrower(1); }).join();
  kasane::run([mistake] { on_thread(mistake); });
  return 0;
}
