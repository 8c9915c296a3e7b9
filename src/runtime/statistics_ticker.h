// SPDX-License-Identifier: Apache-2.0
// --stats=TIME: a thread of rank 0 that says on standard error, at equal intervals, what the job has done since it said so last.
// Thread safety: made and destroyed by one thread. The destructor ends the thread: before what it reads is gone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/result.h"
#include "runtime/job_counters.h"

namespace kasane::runtime {

class StatisticsTicker {
 public:
  /// begin_ns: of the job, by now_ns(). totals: the job's counters; called by the ticker's thread alone.
  StatisticsTicker(std::uint64_t every_ns, std::uint64_t begin_ns, std::function<CounterSums()> totals);
  ~StatisticsTicker();
  Result<void> start();

 private:
  void run(const std::stop_token&);

  const std::uint64_t every_ns_, begin_ns_;
  const std::function<CounterSums()> totals_;
  std::mutex mutex_;
  std::condition_variable_any stopping_;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace kasane::runtime
