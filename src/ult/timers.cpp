// SPDX-License-Identifier: Apache-2.0
#include "ult/timers.h"

#include "ult/runtime_section.h"

namespace kasane::ult {

bool Timers::add(const Timer& timer) {
  const std::lock_guard lock(mutex_);
  const auto [at, added] = threads_.try_emplace(timer.slot, timer);
  if (!added) {
    if (at->second.round > timer.round) return false;
    order_.erase({at->second.at_ns, timer.slot});
    at->second = timer;
  }
  order_.insert({timer.at_ns, timer.slot});
  note_earliest();
  return *order_.begin() == Order{timer.at_ns, timer.slot};
}

void Timers::remove(SlotId slot) {
  RuntimeSection section;  // on a thread
  const std::lock_guard lock(mutex_);
  if (const auto at = threads_.find(slot); at != threads_.end()) erase(at);
}

bool Timers::take_due(std::uint64_t now, Timer& out) {
  const std::lock_guard lock(mutex_);
  if (order_.empty() || order_.begin()->first > now) return false;
  const auto at = threads_.find(order_.begin()->second);
  out = at->second;
  erase(at);
  return true;
}

void Timers::erase(Threads::iterator at) {
  order_.erase({at->second.at_ns, at->first});
  threads_.erase(at);
  note_earliest();
}

void Timers::note_earliest() noexcept {
  earliest_.store(order_.empty() ? kNever : order_.begin()->first, std::memory_order_relaxed);
}

}  // namespace kasane::ult
