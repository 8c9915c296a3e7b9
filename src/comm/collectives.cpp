// SPDX-License-Identifier: Apache-2.0
#include "comm/collectives.h"

#include "comm/collective_core.h"

namespace kasane::comm {

Collectives::Collectives(Transport& transport, Waiter& waiter)
    : core_(std::make_unique<CollectiveCore>(transport, waiter)), world_(core_->make_world()) {}

Collectives::~Collectives() = default;

Result<void> Collectives::attach() { return core_->attach(*world_); }
void Collectives::progress() noexcept { core_->step(); }
void Collectives::peer_lost(Rank rank) noexcept { core_->peer_lost(rank); }

}  // namespace kasane::comm
