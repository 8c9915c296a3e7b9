// SPDX-License-Identifier: Apache-2.0
// An exception that leaves a thread is thrown again where the thread is joined, also on another rank; and out
// of run().
#include <cstdio>
#include <kasane/kasane.hpp>
#include <mutex>
#include <stdexcept>
#include <string>

namespace {

int caught_at_join() {
  kasane::thread t([] { throw std::runtime_error("thrown in a thread: " + std::string(100, '!')); });
  try {
    t.join();
  } catch (const std::runtime_error& e) {
    return std::string(e.what()) != "thrown in a thread: " + std::string(100, '!');
  }
  return 1;
}

/// The first in the order of the program wins, and all pieces have ended by then.
int caught_from_loop() {
  kasane::mutex mutex;
  int ended = 0;
  try {
    kasane::parallel_for(
        0, 100,
        [&](int i) {
          {
            std::lock_guard guard(mutex);
            ++ended;
          }
          if (i >= 40) throw i;
        },
        1);
  } catch (int i) {
    return i != 40 || ended != 100;
  }
  return 1;
}

}  // namespace

int main() {
  int bad = kasane::run([] { return caught_at_join() + caught_from_loop(); });
  try {
    kasane::run([] { throw std::string("out of run"); });
    ++bad;
  } catch (const std::string& s) {
    bad += s != "out of run";
  }
  std::printf("exceptions: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
