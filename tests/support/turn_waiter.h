// SPDX-License-Identifier: Apache-2.0
// How threads of tests wait over the simulated network.
// Thread safety: none (as the simulator).
#pragma once

#include <cstdint>

#include "support/sim/sim.h"

namespace kasane::test {

/// Gives other threads a turn before each look: callers that only pause would otherwise spin where no other
/// thread can run.
class TurnWaiter final : public comm::Waiter {
 public:
  TurnWaiter(comm::sim::World& world, comm::Transport& transport) : world_(world), transport_(transport) {}
  std::uint32_t waits = 0;

 protected:
  void wait(bool (*ready)(const void*), const void* arg) override {
    ++waits;
    transport_.sleep(comm::Doorbell::messages, transport_.activity(comm::Doorbell::messages), 0);
    world_.waiter().until([ready, arg] { return ready(arg); });
  }

 private:
  comm::sim::World& world_;
  comm::Transport& transport_;
};

}  // namespace kasane::test
