// SPDX-License-Identifier: Apache-2.0
// Memory larger than DRAM, put together: the host's budget, this rank's part of it, its spill file, its pager and its reader, and what the program says of pages (docs/design/tiers.md).
// Thread safety: start(), stop() by the thread that builds the runtime; tell() from any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "comm/collectives.h"
#include "dsm/pager.h"
#include "gas/advisor.h"
#include "gas/tiers.h"
#include "mem/advice.h"
#include "mem/residency.h"
#include "runtime/binding.h"
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
    mem::Residency::Range heaps;
    mem::StackFrames::Layout stacks;   ///< of all ranks
    std::uint32_t workers;
    std::byte* budget;   ///< region kBudget of this rank, budget_bytes() of it, zeros
  };
  [[nodiscard]] static std::size_t budget_bytes(const std::vector<Rank>& host_ranks) noexcept;
  /// Collective. Null: the job is to have no limit and no spill file.
  static Result<std::unique_ptr<MemoryTiers>> create(const Parts&, const Options&);
  /// Coherence and address cache have been made with tiers(). Makes the pager, which works with both: before any other rank can ring it.
  void connect(gas::AddressCache&, dsm::Coherence&);
  [[nodiscard]] gas::Tiers& tiers() noexcept { return *tiers_; }

  /// See gas/advisor.h. `leave` sends this rank's unreleased changes first, since what has such stays. `hold` returns when the pages are in DRAM.
  void tell(comm::Blocking&, mem::PageRange, gas::Advisor::What);

  /// A stack that has its frames in this rank's memory is used here for the first time. born_here: waits for room, though not for long, since nothing is held; a thread that came from another
  /// rank has its fences under way.
  void use_stack(comm::Blocking&, StackId, bool born_here);
  /// It has given its frames back: its next use is the first.
  void forget_stack(StackId stack) noexcept { residency_->forget_stack(stack); }

  /// May so many bytes be in DRAM at once here? Where somebody asked for a limit, a view of more than that would wait for ever. Else the limit is lifted.
  [[nodiscard]] bool holds_at_once(std::uint64_t bytes) noexcept;
  /// Bytes, as the limit is.
  [[nodiscard]] std::uint64_t most_at_once() const noexcept { return residency_->total() * mem::kBlockBytes; }

  /// binding outlives the threads.
  Result<void> start(Counters&, const Binding&, dsm::Pager::Threads);
  void stop();

 private:
  MemoryTiers(mem::AdviceTable advice, const Parts& parts, dsm::Pager::Config pager)
      : advice_(std::move(advice)), transport_(parts.transport), directory_(parts.directory), pager_config_(std::move(pager)) {}

  mem::AdviceTable advice_;
  comm::Transport& transport_;
  const gas::Directory& directory_;
  const dsm::Pager::Config pager_config_;
  dsm::Coherence* coherence_ = nullptr;   ///< connect()
  gas::AddressCache* addresses_ = nullptr;
  std::unique_ptr<mem::Residency> residency_;
  std::unique_ptr<gas::Advisor> advisor_;
  std::unique_ptr<gas::Tiers> tiers_;
  std::unique_ptr<dsm::Pager> pager_;
  std::thread thread_, reader_;
};

}  // namespace kasane::runtime
