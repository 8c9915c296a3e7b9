// SPDX-License-Identifier: Apache-2.0
#include "ult/outside_waits.h"

#include <algorithm>

namespace kasane::ult {

bool OutsideWaits::ready() const noexcept {
  // acquire: as collect() will find it
  return delivered_.load(std::memory_order_acquire) != nullptr || handlers() != seen_ || limit_ns() == 0;
}

std::int64_t OutsideWaits::limit_ns() const noexcept {
  std::uint64_t at = sleeps_.empty() ? ~std::uint64_t{0} : sleeps_.begin()->first;
  if (signals_) at = std::min(at, again_ns_);
  if (at == ~std::uint64_t{0}) return kForever;
  const std::uint64_t now = now_ns();
  return at <= now ? 0 : static_cast<std::int64_t>(std::min<std::uint64_t>(at - now, kForever));
}

// What has run before the thread waits does not interrupt it.
void OutsideWaits::add(OutsideCaller& caller) noexcept {
  if (handlers() != seen_) interrupt();
  caller.waits = this;
  caller.interrupted = false;
  caller.before = nullptr;
  caller.after = calls_;
  if (calls_ != nullptr) calls_->before = &caller;
  calls_ = &caller;
  count(1);
  caller.ask();
}

void OutsideWaits::add(OutsideSleep& sleep) {
  if (handlers() != seen_) interrupt();
  sleeps_.insert({sleep.until_ns, &sleep});
  count(1);
}

void OutsideWaits::deliver(OutsideCaller& caller) noexcept {
  OutsideCaller* last = delivered_.load(std::memory_order_relaxed);
  do caller.delivered_before = last;
  // seq_cst: before the ring, and before the worker's last look if that comes later (ult/idle_workers.h).
  while (!delivered_.compare_exchange_weak(last, &caller, std::memory_order_seq_cst));
}

OutsideCaller* OutsideWaits::take_delivered() noexcept {
  return delivered_.exchange(nullptr, std::memory_order_acquire);  // acquire: the results
}

void OutsideWaits::remove(OutsideCaller& caller) noexcept {
  (caller.before != nullptr ? caller.before->after : calls_) = caller.after;
  if (caller.after != nullptr) caller.after->before = caller.before;
  count(-1);
}

void OutsideWaits::remove_first_sleep() {
  sleeps_.erase(sleeps_.begin());
  count(-1);
}

void OutsideWaits::count(int change) noexcept {
  // relaxed: only this OS thread writes it
  waiting_.store(waiting_.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(change),
                 std::memory_order_relaxed);
}

void OutsideWaits::interrupt() noexcept {
  const HandlersRun now = handlers();
  const bool any = now.all != seen_.all, any_without_restart = now.without_restart != seen_.without_restart;
  seen_ = now;
  signals_ = false;
  for (OutsideCaller* caller = calls_; caller != nullptr; caller = caller->after) {
    caller->interrupted = caller->interrupted || (caller->request.restarts ? any_without_restart : any);
    if (caller->interrupted && caller->interrupt()) signals_ = true;
  }
  again_ns_ = now_ns() + kAgainNs;
  if (!any || sleeps_.empty()) return;
  std::set<Sleeper, std::less<>, MallocAllocator<Sleeper>> due;
  for (const auto& [until, sleep] : sleeps_) {
    sleep->interrupted = true;
    due.insert({0, sleep});
  }
  sleeps_.swap(due);
}

}  // namespace kasane::ult
