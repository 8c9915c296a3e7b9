// SPDX-License-Identifier: Apache-2.0
// mutex and condition_variable: a bounded queue between producers and consumers on any ranks.
#include <cstdio>
#include <deque>
#include <kasane/kasane.hpp>
#include <mutex>
#include <vector>

namespace {

class Queue {
 public:
  void push(int value) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.size() < 8; });
    values_.push_back(value);
    changed_.notify_all();
  }
  int pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !values_.empty(); });
    const int value = values_.front();
    values_.pop_front();
    changed_.notify_all();
    return value;
  }

 private:
  kasane::mutex mutex_;
  kasane::condition_variable changed_;
  std::deque<int> values_;
};

int failures() {
  constexpr int kPairs = 4, kValues = 50;
  Queue queue;
  kasane::mutex sum_mutex;
  long sum = 0;
  std::vector<kasane::thread> threads;
  for (int p = 0; p < kPairs; ++p) {
    threads.emplace_back([&, p] {
      for (int i = 0; i < kValues; ++i) queue.push(p * kValues + i);
    });
    threads.emplace_back([&] {
      for (int i = 0; i < kValues; ++i) {
        const int value = queue.pop();
        std::lock_guard guard(sum_mutex);
        sum += value;
      }
    });
  }
  for (auto& t : threads) t.join();
  constexpr long n = kPairs * kValues;
  return sum != n * (n - 1) / 2;
}

}  // namespace

int main() {
  const int bad = kasane::run(failures);
  std::printf("mutex: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
