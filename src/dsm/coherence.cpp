// SPDX-License-Identifier: Apache-2.0
#include "dsm/coherence.h"

#include "base/assert.h"
#include "dsm/background_read.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;

Coherence::Coherence(const Parts& parts)
    : space_(parts.space),
      table_(parts.table),
      cached_(parts.cached),
      dirty_(parts.dirty),
      engine_(parts.engine),
      transport_(parts.transport),
      addresses_(parts.addresses),
      directory_(addresses_.directory()),
      mover_(transport_, addresses_, *this),
      pages_(directory_.pages()),
      auto_relocator_(parts.auto_relocator),
      sharing_(parts.sharing),
      races_(parts.races),
      tiers_(parts.tiers),
      residency_(tiers_ != nullptr ? &tiers_->residency() : nullptr),
      rewritten_(parts.releases_until_open) {
  if (tiers_ != nullptr) {
    tiers_->connect(*this, addresses_);
    make_background_reads();
    engine_.expect_punches(residency_->range().offset, residency_->range().bytes, residency_->frame_bytes());
  }
  transport_.set_handler(gas::kReleaseHandler, &Coherence::on_release, this);
  transport_.set_handler(gas::kChangesHandler, &Coherence::on_changes, this);
}

// ---- words of the block table ----------------------------------------------------------------------------

BlockState Coherence::state(BlockId b) const noexcept { return BlockState::of(table_[b].load()); }

bool Coherence::try_claim(BlockId b, BlockState before, const BlockStep& step) noexcept {
  std::uint32_t expected = before.word();
  // seq_cst: the busy bit orders this thread's later look at the directory against an acquire's walk over
  // cached_.
  return table_[b].compare_exchange_strong(expected, step.claimed.word());
}

BlockStep Coherence::claim_block(comm::Blocking& io, BlockId b, BlockEvent event) {
  for (;;) {
    const BlockState s = state(b);
    const BlockStep step = next(s, event);
    if (step.verdict == Verdict::wait) {
      wait_free(io, b);
    } else if (step.verdict != Verdict::proceed || try_claim(b, s, step)) {
      return step;
    }
  }
}

void Coherence::finish(BlockId b, BlockState after) noexcept {
  KASANE_ASSERT(after.check() && !after.busy);
  KASANE_ASSERT(state(b).busy);
  // release: the next holder of the bit sees M, T and the sets as this thread leaves them.
  table_[b].store(after.word(), std::memory_order_release);
}

void Coherence::wait_free(comm::Blocking& io, BlockId b) {
  await(io, [this, b] { return !state(b).busy; });
}

void Coherence::mark_dirty(BlockId b) noexcept {
  dirty_.insert(b);
  sharing_.add_dirty();  // before any store can happen: ask_release() of other ranks relies on it
}

void Coherence::mark_clean(BlockId b) noexcept {
  dirty_.erase(b);
  sharing_.remove_dirty();  // after remote completion
}

// ---- access rights in V ----------------------------------------------------------------------------------

void Coherence::protect(BlockRange run, Access access) noexcept {
  for (int attempt = 0; !engine_.protect(run, access); ++attempt) {
    KASANE_CHECK(attempt < 100, "the kernel allows no more mappings: raise vm.max_map_count");
    make_room();
  }
}

void Coherence::protect(const Stripe& blocks, Access access) noexcept {
  blocks.for_each_run([&](BlockRange run) { protect(run, access); });
}

/// Merges mappings: drops clean cached blocks that are neither claimed nor pinned. Never waits.
void Coherence::make_room() noexcept {
  cached_.for_each([&](BlockId b) {
    const BlockState s = state(b);
    const BlockStep step = next(s, BlockEvent::acquire);
    if (step.verdict != Verdict::proceed || s.dirty() || s.pins != 0 || !try_claim(b, s, step)) return;
    if (engine_.protect({b, 1}, Access::none)) {
      cached_.erase(b);
      finish(b, step.after);
    } else {
      finish(b, s);  // splitting a mapping was refused; dropping its neighbours will do
    }
  });
}

}  // namespace kasane::dsm
