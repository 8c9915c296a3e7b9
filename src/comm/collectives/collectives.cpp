// SPDX-License-Identifier: Apache-2.0
#include "comm/collectives/collectives.h"

#include "base/assert.h"
#include "comm/collectives/state.h"

namespace kasane::comm {

Collectives::Collectives(Transport& transport, Waiter& waiter)
    : waiter_(waiter), state_(std::make_unique<CollectiveState>(transport)) {}

Collectives::~Collectives() { state_->close(waiter_); }

Result<void> Collectives::attach() { return state_->attach(); }
void Collectives::progress() noexcept { state_->step(); }
void Collectives::peer_lost(Rank rank) noexcept { state_->peer_lost(rank); }

void Collectives::barrier() { state_->run({.collective = Collective::barrier}, waiter_); }

void Collectives::broadcast(Rank root, std::span<std::byte> bytes) {
  state_->run(
      {.collective = Collective::broadcast, .root = raw(root), .out = bytes.data(), .bytes = bytes.size()},
      waiter_);
}

void Collectives::allreduce(const Reduction& reduction, std::span<std::byte> values) {
  state_->run({.collective = Collective::allreduce,
               .out = values.data(),
               .bytes = values.size(),
               .reduction = reduction},
              waiter_);
}

void Collectives::allgather(std::span<const std::byte> in, std::span<std::byte> out) {
  allgather(in, out, waiter_);
}

void Collectives::allgather(std::span<const std::byte> in, std::span<std::byte> out, Waiter& waiter) {
  KASANE_CHECK_OP(out.size(), ==, in.size() * state_->members());
  state_->run({.collective = Collective::allgather, .out = out.data(), .in = in.data(), .bytes = in.size()},
              waiter);
}

}  // namespace kasane::comm
