// SPDX-License-Identifier: Apache-2.0
// Memory larger than DRAM, put together: the host's budget, this rank's part of it, its spill file and its keeper (docs/design/tiers.md).
// Thread safety: start(), stop() by the thread that builds the runtime.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "comm/collectives.h"
#include "dsm/keeper.h"
#include "gas/tiers.h"
#include "mem/residency.h"
#include "runtime/options.h"

namespace kasane::runtime {

class MemoryTiers {
 public:
  struct Parts {
    comm::Transport& transport;
    comm::Collectives& collectives;
    const std::vector<Rank>& host_ranks;
    mem::Space& space;
    const gas::Directory& directory;
    gas::AddressCache& addresses;
    gas::Mover& mover;
    dsm::Coherence& coherence;
    mem::Residency::Range heaps;
    std::uint32_t workers;
    std::byte* budget;   ///< region kBudget of this rank, budget_bytes() of it, zeros
  };
  [[nodiscard]] static std::size_t budget_bytes(const std::vector<Rank>& host_ranks) noexcept;
  /// Collective. Null: the job asked for no limit and no spill file.
  static Result<std::unique_ptr<MemoryTiers>> create(const Parts&, const Options&);

  void start(comm::Transport&, Counters&);
  void stop();

 private:
  MemoryTiers() = default;
  std::unique_ptr<mem::Residency> residency_;
  std::unique_ptr<gas::Tiers> tiers_;
  std::unique_ptr<dsm::Keeper> keeper_;
  std::thread thread_;
};

}  // namespace kasane::runtime
