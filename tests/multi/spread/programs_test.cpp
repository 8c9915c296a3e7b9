// SPDX-License-Identifier: Apache-2.0
// Ordinary programs with --threads spread: words are counted, a pipeline, a tree of tasks, and a thousand
// threads a rank at a time.
#include <gtest/gtest.h>
#include <pthread.h>
#include <kasane/kasane.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Counts = std::map<std::string, int>;

Counts count_words(const std::string& text) {
  Counts counts;
  std::istringstream in(text);
  for (std::string word; in >> word;) ++counts[word];
  return counts;
}

TEST(Programs, CountWords) {
  std::vector<std::string> lines;
  std::string all;
  for (int i = 0; i < 200; ++i) {
    std::string line;
    for (int k = 0; k < 20; ++k) line += "word-number-" + std::to_string(i * k % 37) + " ";
    lines.push_back(line);
    all += line;
  }
  Counts counts;
  std::mutex mutex;
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      Counts own;
      for (std::size_t i = next++; i < lines.size(); i = next++)
        for (const auto& [word, n] : count_words(lines[i])) own[word] += n;
      const std::scoped_lock lock(mutex);
      for (const auto& [word, n] : own) counts[word] += n;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(counts, count_words(all));
}

/// Of at most four.
class Channel {
 public:
  void put(std::string item) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return items_.size() < 4; });
    items_.push_back(std::move(item));
    changed_.notify_all();
  }
  std::string take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty(); });
    std::string item = std::move(items_.front());
    items_.pop_front();
    changed_.notify_all();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> items_;
};

TEST(Programs, APipeline) {
  constexpr int kStages = 4, kItems = 100;
  std::array<Channel, kStages + 1> channels;
  std::vector<std::jthread> stages;
  for (std::size_t s = 0; s < kStages; ++s)
    stages.emplace_back([&channels, s] {
      for (int i = 0; i < kItems; ++i) channels[s + 1].put(channels[s].take() + "+" + std::to_string(s));
    });
  stages.emplace_back([&channels] {
    for (int i = 0; i < kItems; ++i) channels[0].put(std::to_string(i));
  });
  for (int i = 0; i < kItems; ++i) ASSERT_EQ(channels[kStages].take(), std::to_string(i) + "+0+1+2+3");
}

long sum_of(const std::vector<long>& values, std::size_t first, std::size_t last, int depth) {
  if (depth == 0) return std::accumulate(values.data() + first, values.data() + last, 0L);
  const std::size_t middle = (first + last) / 2;
  auto left = std::async(std::launch::async, sum_of, std::cref(values), first, middle, depth - 1);
  const long right = sum_of(values, middle, last, depth - 1);
  return left.get() + right;
}

TEST(Programs, ATreeOfTasks) {
  std::vector<long> values(10'000);
  std::iota(values.begin(), values.end(), 1);
  EXPECT_EQ(sum_of(values, 0, values.size(), 5), 50'005'000);
}

TEST(Programs, AThousandThreadsARankAtATime) {
  static std::latch* all = nullptr;
  static std::atomic<long> sum = 0;
  const long count = 1000L * kasane::ranks();
  all = new std::latch(count + 1);
  pthread_attr_t small;
  ::pthread_attr_init(&small);
  ::pthread_attr_setstacksize(&small, 64 * 1024);
  std::vector<pthread_t> threads(static_cast<std::size_t>(count));
  for (long i = 0; i < count; ++i)
    ASSERT_EQ(::pthread_create(
                  &threads[static_cast<std::size_t>(i)], &small,
                  [](void* p) -> void* {
                    sum += reinterpret_cast<long>(p);
                    all->arrive_and_wait();
                    return p;
                  },
                  reinterpret_cast<void*>(i)),
              0)
        << i;
  all->arrive_and_wait();
  for (long i = 0; i < count; ++i) {
    void* value = nullptr;
    ASSERT_EQ(::pthread_join(threads[static_cast<std::size_t>(i)], &value), 0);
    ASSERT_EQ(value, reinterpret_cast<void*>(i));
  }
  EXPECT_EQ(sum, count * (count - 1) / 2);
}

}  // namespace
