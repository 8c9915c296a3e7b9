// SPDX-License-Identifier: Apache-2.0
// The fences that the scheduler calls, by dsm's coherence. They are joined here because sched and dsm do not
// include each other.
// Thread safety: from any worker. Waiting is done by polling: no switch to another user-level thread happens
// inside.
#pragma once

#include "dsm/coherence.h"
#include "runtime/rank/thread_contexts.h"
#include "ult/edges.h"

namespace kasane::runtime {

class Fences final : public ult::Edges {
 public:
  Fences(dsm::Coherence& coherence, ThreadContexts& contexts) noexcept
      : coherence_(coherence), contexts_(contexts) {}
  std::uint32_t cross(Rank source, Account, ult::ReleaseMark) override;
  void ask_release(Rank source) override;
  void release(Account) override;
  ult::ReleaseMark release_little(std::uint32_t blocks, Account) override;
  [[nodiscard]] const std::atomic<std::uint64_t>* releases_begun() const noexcept override {
    return &coherence_.fences.releases_begun();
  }
  void acquire(Account) override;
  void answer() override;

 private:
  dsm::Coherence& coherence_;
  ThreadContexts& contexts_;
};

}  // namespace kasane::runtime
