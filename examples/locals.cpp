// SPDX-License-Identifier: Apache-2.0
// local<T>: what thread_local is for OS threads. It goes where its thread goes.
#include <cstdio>
#include <kasane/kasane.hpp>

namespace {

int failures() {
  const kasane::local<long> depth;  // one for the job, a value for each thread
  depth.set(-1);
  const int bad = kasane::parallel_reduce(
      0, 64, 0,
      [&depth](int i) {
        kasane::thread t([&depth, i] {
          if (depth.get() != 0) throw i;  // a new thread starts with zero
          depth.set(i);
          kasane::this_thread::yield();
          if (depth.get() != i) throw i;
        });
        try {
          t.join();
        } catch (int) {
          return 1;
        }
        return 0;
      },
      [](int a, int b) { return a + b; }, 1);
  return bad + (depth.get() != -1);
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("locals: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
