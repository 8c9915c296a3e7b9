// SPDX-License-Identifier: Apache-2.0
// More OS threads of the program than a rank has room for at a time, one after the other: each uses global
// memory. os_threads COUNT
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kAtATime = 8;

/// Threads that add to the parts of a vector of main's.
bool run_threads(int count) {
  std::vector<long> sums(kAtATime * 1024);
  for (int begun = 0; begun < count; begun += kAtATime) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kAtATime; ++i) {
      threads.emplace_back([&sums, i] {
        const auto step = std::make_unique<long>(1);  // global memory
        sums[static_cast<std::size_t>(i) * 1024] += *step;
      });
    }
    for (std::thread& t : threads) t.join();
  }
  long sum = 0;
  for (const long part : sums) sum += part;
  return sum == count;
}

}  // namespace

int main(int, char** argv) {
  const int count = std::atoi(argv[1]);
  bool right = run_threads(count);
  kasane::run([&] { right = right && run_threads(count / 10 / kAtATime * kAtATime); });
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
