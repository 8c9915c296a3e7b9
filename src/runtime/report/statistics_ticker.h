// SPDX-License-Identifier: Apache-2.0
// --stats=TIME: a thread of rank 0 that prints on standard error, at equal intervals, what the job has done
// since the line before.
// Thread safety: made and destroyed by one thread. The destructor ends the thread, so it is called before
// what the thread reads is destroyed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/result.h"
#include "runtime/rank/job_counters.h"

namespace kasane::runtime {

class StatisticsTicker {
 public:
  /// begin_ns: the begin of the job, by now_ns(). totals: returns the job's counters; only the ticker's
  /// thread calls it.
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
