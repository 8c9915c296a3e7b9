// SPDX-License-Identifier: Apache-2.0
// What the scheduler asks of coherence and relocation, joined here so that sched and dsm need not know each other.
// Thread safety: from any worker. Waiting is done by polling: no switch to another user-level thread happens inside.
#pragma once

#include "dsm/coherence.h"
#include "gas/mover.h"
#include "runtime/segments.h"
#include "runtime/thread_contexts.h"
#include "ult/edges.h"

namespace kasane::runtime {

class Fences final : public ult::Edges {
 public:
  Fences(dsm::Coherence& coherence, ThreadContexts& contexts) noexcept : coherence_(coherence), contexts_(contexts) {}
  void cross(Rank source) override;
  void ask_release(Rank source) override;
  void release() override;
  void acquire() override;
  void answer() override;

 private:
  dsm::Coherence& coherence_;
  ThreadContexts& contexts_;
};

class Stacks final : public ult::StackMover {
 public:
  Stacks(gas::Mover&, dsm::Coherence&, ThreadContexts&, mem::Space&, const mem::Pages&, const Segments&) noexcept;
  void adopt(StackId, std::uintptr_t live_lo, std::uintptr_t live_hi, Rank from) override;
  void surrender(StackId) override;
  void reclaim(StackId) override;
  /// Before this process uses a stack for the first time: guard; if it was born here also pages and access.
  void prepare(StackId, Rank me);

 private:
  void guard(StackId);
  void guard_again(StackId);
  [[nodiscard]] Rank birth_rank(StackId stack) const noexcept { return Rank{static_cast<std::uint32_t>(raw(stack) / segments_.stacks_per_rank)}; }

  gas::Mover& mover_;
  dsm::Coherence& coherence_;
  ThreadContexts& contexts_;
  mem::Space& space_;
  const mem::Pages& pages_;
  const Segments& segments_;
};

}  // namespace kasane::runtime
