// SPDX-License-Identifier: Apache-2.0
// The executor's loop: look (retry, take, poll), and rest when a look finds nothing.
#include "comm/offload/executor.h"

#include <algorithm>

namespace kasane::comm::offload {

Executor::Executor(Transport& transport, Issuer& issuer, std::size_t ring_commands, bool polls, bool alone)
    : ring_(ring_commands),
      bed_(transport, polls),
      closed_(transport.ranks()),
      transport_(transport),
      issuer_(issuer),
      polls_(polls),
      alone_(alone),
      held_(most_held(ring_commands, transport.ranks()), transport.ranks()) {}

void Executor::run(const std::atomic<bool>& stop) noexcept {
  Idle idle(alone_);
  for (;;) {
    // Both before the look: what rings afterwards ends the sleep below, and what was pushed before stop was set is found.
    const std::uint32_t seen = bed_.activity();
    const bool stopping = stop.load(std::memory_order_acquire);   // acquire: pairs with the store in ~Offloader
    if (look()) {
      idle.moved();
      unpublished_ = 0;
    } else if (stopping && held_.empty() && taken_ == ring_.claimed()) {
      return;
    } else {
      rest(idle, seen);
    }
  }
}

bool Executor::look() noexcept {
  bool moved = retry_held();
  const std::uint32_t took = take();
  moved = took != 0 || moved;
  // An executor that does not poll still makes progress once behind a batch (what the engine packed goes out), and while it waits for room.
  if (polls_ || (took != 0 && took < kBatch) || !held_.empty()) moved = transport_.progress() || moved;
  settle();
  return moved;
}

bool Executor::retry_held() noexcept {
  if (held_.empty()) return false;
  return held_.retry(
      kBatch, [this](const Command& command) { return issuer_.issue(command) == Issued::done; },
      [this](Rank peer, std::uint32_t held) {
        // relaxed: a hint to requesters.
        if (held < kPeerQuota && closed_[raw(peer)].load(std::memory_order_relaxed)) closed_[raw(peer)].store(false, std::memory_order_relaxed);
      });
}

std::uint32_t Executor::take() noexcept {
  std::uint32_t took = 0;
  while (took < kBatch) {
    const Command* command = ring_.front();
    if (command == nullptr || !take_one(*command)) break;
    ring_.pop();
    ++taken_;
    ++took;
  }
  return took;
}

// False: it stays in the ring, since it can be neither issued nor held.
bool Executor::take_one(const Command& command) noexcept {
  // Behind its peer's older ones: no order is promised, but nobody shall be overtaken for ever.
  if (held_.held(command.remote.rank) == 0 && issuer_.issue(command) == Issued::done) return true;
  if (held_.full()) {
    ring_.hand_back();
    return false;
  }
  hold(command);
  return true;
}

void Executor::hold(const Command& command) noexcept {
  issuer_.hold(held_.hold(command, taken_));
  if (held_.held(command.remote.rank) >= kPeerQuota) {
    closed_[raw(command.remote.rank)].store(true, std::memory_order_relaxed);   // relaxed: a hint to requesters
  }
}

void Executor::settle() noexcept {
  const std::uint64_t before = std::min(taken_, held_.oldest());
  // relaxed: only this thread writes it.
  if (before == issued_before_.load(std::memory_order_relaxed)) return;
  issued_before_.store(before, std::memory_order_release);   // release: who sees the number sees what issuing did
}

void Executor::rest(Idle& idle, std::uint32_t seen) noexcept {
  if (idle.step() != Idle::Step::sleep) return;
  // Nobody announces that a blocked peer takes something again: then it sleeps for short, and looks.
  const std::int64_t limit_ns = held_.empty() ? kNoLimit : idle.next_nap_ns();
  if (nap(ring_, bed_, seen, limit_ns)) return;
  // Commands are there that cannot be taken (held_ is full), or a producer was interrupted between its claim and its publication.
  if (!held_.full() && unpublished_++ < kUnpublishedLooks) {
    ::sched_yield();
  } else {
    bed_.sleep(seen, idle.next_nap_ns());
  }
}

}  // namespace kasane::comm::offload
