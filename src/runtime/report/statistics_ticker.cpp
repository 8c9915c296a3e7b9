// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/statistics_ticker.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "topo/threads.h"

namespace kasane::runtime {

StatisticsTicker::StatisticsTicker(std::uint64_t every_ns, std::uint64_t begin_ns,
                                   std::function<CounterSums()> totals)
    : every_ns_(every_ns), begin_ns_(begin_ns), totals_(std::move(totals)) {}

Result<void> StatisticsTicker::start() {
  auto thread =
      topo::start_thread("the thread of --stats=TIME", [this, stop = stop_.get_token()] { run(stop); });
  KASANE_TRY(thread);
  thread_ = std::move(*thread);
  return {};
}

StatisticsTicker::~StatisticsTicker() {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void StatisticsTicker::run(const std::stop_token& stop) {
  topo::block_signals_of_program();
  CounterSums before = totals_();
  std::uint64_t then = now_ns();
  for (std::uint64_t next = then + every_ns_;; next += every_ns_) {
    std::unique_lock lock(mutex_);
    const auto left = std::chrono::nanoseconds(next - std::min(next, now_ns()));
    stopping_.wait_for(lock, stop, left, [] { return false; });
    if (stop.stop_requested()) return;
    const CounterSums now = totals_();
    const std::uint64_t at = now_ns();
    std::fputs(progress_line(static_cast<double>(at - begin_ns_) * 1e-9,
                             static_cast<double>(at - then) * 1e-9, before, now)
                   .c_str(),
               stderr);
    before = now;
    then = at;
    next = std::max(next, at);  // after a delay of more than an interval the missed lines are left out
  }
}

}  // namespace kasane::runtime
