// SPDX-License-Identifier: Apache-2.0
#include "comm/crowd.h"

#include <algorithm>
#include <thread>

#include "base/futex.h"

namespace kasane::comm {
namespace {

constexpr std::int64_t kNapNs = 20'000;  ///< for each that waits: so often one of them looks

}  // namespace

Crowd::Crowd() noexcept : places_(std::max(4u, 2 * std::thread::hardware_concurrency())) {}

Crowd::Member::Member(Crowd& crowd) noexcept : crowd_(crowd) { crowd_.waiting_.fetch_add(1); }

Crowd::Member::~Member() {
  const std::uint32_t others = crowd_.waiting_.fetch_sub(1) - 1;
  const std::uint32_t taken = has_place_ ? crowd_.taken_.fetch_sub(1) - 1 : crowd_.taken_.load();
  // Also by one that has been woken, and had no need of the place. A thread that is about to sleep may miss
  // it, and looks after its time.
  if (taken < std::min(crowd_.places_, others)) futex_wake(crowd_.nobody_, 1, FutexOf::process);
}

bool Crowd::Member::has_place() noexcept {
  if (has_place_) return true;
  std::uint32_t taken = crowd_.taken_.load();
  while (taken < crowd_.places_ && !crowd_.taken_.compare_exchange_weak(taken, taken + 1)) {
  }
  return has_place_ = taken < crowd_.places_;
}

void Crowd::Member::sleep_without() const noexcept {
  futex_wait(crowd_.nobody_, 0, kNapNs * crowd_.waiting_.load(), FutexOf::process);
}

}  // namespace kasane::comm
