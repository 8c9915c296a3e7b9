// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of the test process, joined by an OutOfBand: for what ranks do before they have a
// transport. Seen by the sanitizers as forked ranks are not.
//
//   run_thread_ranks(4, [](comm::OutOfBand& others) { … EXPECT_EQ(…) … });
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/out_of_band.h"

namespace kasane::test {

/// Where the threads meet. A round: everybody leaves its bytes, the last one opens the door, everybody takes
/// a copy.
class Meeting {
 public:
  explicit Meeting(std::uint32_t ranks) : bytes_(ranks) {}

  std::vector<std::string> allgather(std::uint32_t rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    bytes_[rank] = mine;
    if (++arrived_ == bytes_.size()) {
      arrived_ = 0;
      ++round_;
      result_ = bytes_;  // nobody can finish the next round before all have copied this one: all must arrive
                         // there first
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<std::string> bytes_, result_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
};

class ThreadExchange final : public comm::OutOfBand {
 public:
  ThreadExchange(Meeting& meeting, std::uint32_t rank, std::uint32_t ranks)
      : meeting_(meeting), rank_(rank), ranks_(ranks) {}
  [[nodiscard]] Rank rank() const noexcept override { return Rank{rank_}; }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return ranks_; }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    return meeting_.allgather(rank_, mine);
  }

 private:
  Meeting& meeting_;
  std::uint32_t rank_, ranks_;
};

inline void run_thread_ranks(std::uint32_t ranks, const std::function<void(comm::OutOfBand&)>& body) {
  Meeting meeting(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      ThreadExchange exchange(meeting, r, ranks);
      body(exchange);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace kasane::test
