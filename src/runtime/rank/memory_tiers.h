// SPDX-License-Identifier: Apache-2.0
// Constructs what memory larger than DRAM needs: the host's budget, this rank's part of it, its spill file,
// its pager and its reader, and the program's advice on pages (docs/design/tiers.md).
// Thread safety: start(), stop() by the thread that builds the runtime; tell() from any.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "comm/collectives/collectives.h"
#include "dsm/pager.h"
#include "gas/advisor.h"
#include "gas/tiers.h"
#include "mem/advice.h"
#include "mem/residency.h"
#include "runtime/rank/binding.h"
#include "runtime/rank/options.h"

namespace kasane::runtime {

class MemoryTiers {
 public:
  struct Parts {
    comm::Transport& transport;
    comm::Collectives& collectives;
    const std::vector<Rank>& host_ranks;
    mem::Space& space;
    const gas::Directory& directory;
    mem::Residency::Range heaps;
    mem::StackFrames::Layout stacks;  ///< of all ranks
    std::uint32_t workers;
    std::byte* budget;  ///< region kBudget of this rank, budget_bytes() of it, zeros
  };
  [[nodiscard]] static std::size_t budget_bytes(const std::vector<Rank>& host_ranks) noexcept;
  /// Collective. Null: the options ask for no limit and no spill file.
  static Result<std::unique_ptr<MemoryTiers>> create(const Parts&, const Options&);
  /// Coherence and address cache have been made with tiers(). Makes the pager, which works with both: before
  /// any other rank can ring it.
  void connect(gas::AddressCache&, dsm::Coherence&);
  [[nodiscard]] gas::Tiers& tiers() noexcept { return *tiers_; }

  /// See gas/advisor.h. `leave` sends this rank's unreleased changes first, since pages with unreleased
  /// changes stay. `hold` returns when the pages are in DRAM.
  void tell(comm::Blocking&, mem::PageRange, gas::Advisor::What);

  /// This rank begins to use a stack whose frames lie in its memory. born_here: waits for room, for a bounded
  /// time, which is possible since the caller holds nothing; a thread that came from another rank has fences
  /// under way, so its stack does not wait.
  void use_stack(comm::Blocking&, StackId, bool born_here);
  /// The stack has given its frames back: its next use counts as the first.
  void forget_stack(StackId stack) noexcept { residency_->forget_stack(stack); }

  /// Whether so many bytes may be in DRAM at once. Where the options ask for a limit, a view of more would
  /// wait for ever. Else the limit is lifted.
  [[nodiscard]] bool holds_at_once(std::uint64_t bytes) noexcept;
  /// The limit, in bytes.
  [[nodiscard]] std::uint64_t most_at_once() const noexcept { return residency_->total() * mem::kBlockBytes; }
  /// The budget of all ranks of this host, of which this rank may have most_at_once().
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return pager_config_.host_bytes; }

  /// Bytes of it that this rank may always have.
  [[nodiscard]] std::uint64_t share() const noexcept { return residency_->fair() * mem::kBlockBytes; }

  /// Starts the pager and the reader. binding outlives the threads.
  Result<void> start(Counters&, const Binding&, dsm::Pager::Threads);
  void stop();

 private:
  MemoryTiers(mem::AdviceTable advice, const Parts& parts, dsm::Pager::Config pager)
      : advice_(std::move(advice)),
        transport_(parts.transport),
        directory_(parts.directory),
        pager_config_(std::move(pager)) {}

  mem::AdviceTable advice_;
  comm::Transport& transport_;
  const gas::Directory& directory_;
  const dsm::Pager::Config pager_config_;
  dsm::Coherence* coherence_ = nullptr;  ///< connect()
  gas::AddressCache* addresses_ = nullptr;
  std::unique_ptr<mem::Residency> residency_;
  std::unique_ptr<gas::Advisor> advisor_;
  std::unique_ptr<gas::Tiers> tiers_;
  std::unique_ptr<dsm::Pager> pager_;
  std::thread thread_, reader_;
};

}  // namespace kasane::runtime
