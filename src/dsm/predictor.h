// SPDX-License-Identifier: Apache-2.0
// Keeps a dsm::History for each page that this rank has had a copy of, and the blocks of copies that it has given up, to learn whether that was right:
// dsm/prediction.h guesses, dsm/self_invalidation.cpp acts. Nothing of coherence hangs on what is here.
//
// Thread safety: every call from any thread, also in a fault handler, but for look(), begin_age() and take_used(), which are of one thread at a time. Atomics are
// seq_cst: none is on a path that has no fault or fence. Nothing allocates after create().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "dsm/last_seen.h"
#include "dsm/prediction.h"
#include "mem/block_table.h"
#include "mem/pages.h"

namespace kasane::dsm {

class Predictor {
 public:
  struct Config {
    Prediction kind = Prediction::decay;
    std::uint64_t age = 0;   ///< decay: acquires
  };
  static Result<std::unique_ptr<Predictor>> create(const mem::Pages&, std::uint64_t blocks, Config);
  /// Of what --predict says: off, decay, last-touch.
  [[nodiscard]] static Prediction kind_of(std::string_view name) noexcept;

  /// Is there anything to guess at an acquire, the rank's `acquires`-th?
  [[nodiscard]] bool due(std::uint64_t acquires) const noexcept { return decays() ? acquires - age_began_.load() >= config_.age : any_used_.load(); }
  [[nodiscard]] bool due_at_release() const noexcept { return !decays() && any_used_.load(); }

  /// A use of the page that was seen.
  void used(PageId, std::uint64_t acquires) noexcept;
  /// Decay looks at all copies, once an age; a last touch is sought among pages that were used since the last fence.
  [[nodiscard]] bool decays() const noexcept { return config_.kind == Prediction::decay; }
  void begin_age(std::uint64_t acquires) noexcept { age_began_.store(acquires); }
  template <class F>
  void take_used(const F& f) {
    if (!any_used_.exchange(false)) return;   // before the set is looked at: what comes meanwhile says so again
    used_.for_each([&](BlockId page) {
      used_.erase(page);
      f(PageId{raw(page)});
    });
  }
  [[nodiscard]] Advice look(PageId page, std::uint64_t acquires) noexcept { return see(page, Seen::fence, acquires).advice; }
  /// Its copy is in use just now: it is looked at again.
  void in_use(PageId page, std::uint64_t acquires) noexcept {
    if (decays()) static_cast<void>(see(page, Seen::used, acquires));
    else note_used(page);
  }

  /// The copy is being dropped. True: since it was given up; then each of its blocks is to be noted.
  [[nodiscard]] bool dropped(PageId page) noexcept;
  void gave_up(BlockId b) noexcept { given_up_.insert(b); }

  /// What was given up, and is about to be fetched.
  struct Question {
    BlockId block;
    LastSeen last_seen;
  };
  /// One of these blocks of a page, if it was given up and nobody knows yet whether too early.
  [[nodiscard]] std::optional<BlockId> in_question(PageId page, BlockId first, std::uint64_t count) const noexcept;
  /// False: another thread was first.
  bool answer(PageId, bool changed) noexcept;

 private:
  Predictor(const mem::Pages&, Config, mem::BlockTable histories, mem::BlockSet used, mem::BlockSet given_up) noexcept;
  [[nodiscard]] static BlockId as_block(PageId page) noexcept { return BlockId{raw(page)}; }   // the table and a set are of pages
  [[nodiscard]] History history(PageId page) const noexcept { return History::of(histories_[as_block(page)].load()); }
  struct Change {
    History before;
    Advice advice;
  };
  Change see(PageId, Seen, std::uint64_t acquires = 0) noexcept;
  void note_used(PageId page) noexcept {
    used_.insert(as_block(page));
    any_used_.store(true);   // seq_cst: after the page is in the set
  }

  const mem::Pages& pages_;
  Config config_;
  mutable mem::BlockTable histories_;
  mem::BlockSet used_;       ///< last touch: pages used since the last fence
  mem::BlockSet given_up_;   ///< blocks whose copies were dropped since they were given up
  std::atomic<bool> any_used_{false};
  std::atomic<std::uint64_t> age_began_{0};
};

}  // namespace kasane::dsm
