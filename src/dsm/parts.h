// SPDX-License-Identifier: Apache-2.0
// What the classes of dsm are made of, and what a thread passes to their calls.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/counters.h"
#include "comm/blocking.h"
#include "dsm/race_check.h"
#include "dsm/sweeps.h"
#include "gas/address_cache.h"
#include "gas/auto_relocator.h"
#include "gas/sharing.h"
#include "gas/tiers.h"
#include "mem/block_table.h"
#include "mem/fault_engine.h"
#include "mem/space.h"

namespace kasane::dsm {

/// Which faults a thread serves: its own, or one after another those of other threads
/// (mem::Served::for_another). In the second case it never waits for what one of those threads may hold, that
/// is for room.
enum class Serves : bool { itself, others };

/// What an OS thread (or a scripted thread) passes to every call.
struct ThreadContext {
  ThreadContext(comm::Transport& transport, comm::Waiter& waiter, Counters& c,
                Serves s = Serves::itself) noexcept
      : io(transport, waiter, &c), counters(c), serves(s) {}
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  comm::Blocking io;
  Counters& counters;
  const Serves serves;
  Sweeps own_sweeps;
  Sweeps* sweeps = &own_sweeps;  ///< of the user-level thread that runs, where threads take turns in faults
  /// A fault that finds nothing to do has lost a race to another thread. If the same fault repeats
  /// Faults::kMaxIdle times, it cannot be served.
  std::uint64_t idle_fault = ~std::uint64_t{0};
  std::uint32_t idle_faults = 0;
  /// The thread's next fault waits in place: it has waited elsewhere in vain.
  bool waits_in_place = false;
};

struct Parts {
  mem::Space& space;
  mem::BlockTable& table;
  mem::BlockSet& cached;   ///< blocks of other ranks that may be visible
  mem::BlockSet& changed;  ///< blocks with changes that were not sent
  mem::FaultEngine& engine;
  comm::Transport& transport;
  gas::AddressCache& addresses;
  gas::Sharing& sharing;
  /// counts uses of other ranks' pages; null: pages do not move by themselves
  gas::AutoRelocator* auto_relocator = nullptr;
  gas::Tiers* tiers = nullptr;           ///< null: memory has no limit
  RaceListener* races = nullptr;         ///< is called for data races; null: they are not looked for
  std::uint8_t releases_until_open = 5;  ///< Rewritten
  /// Workers that sleep while threads wait there for blocks: the doorbell of work wakes them. Null: none
  std::atomic<std::uint32_t>* waits_asleep = nullptr;

  [[nodiscard]] Rank me() const noexcept { return transport.rank(); }
  [[nodiscard]] const gas::Directory& directory() const noexcept { return addresses.directory(); }
  [[nodiscard]] const mem::Pages& pages() const noexcept { return directory().pages(); }
};

}  // namespace kasane::dsm
