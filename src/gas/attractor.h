// SPDX-License-Identifier: Apache-2.0
// Draws pages to the rank that uses them (gas/attraction.h decides). A use is counted where it happens, by one addition; every `threshold` of them
// (a power of two, not more) the page is noted, and the rank's service thread looks at word 3 and brings the page if it should come. So neither a fault nor an access takes a trip more, and none
// moves a page while its thread has something under way that a move waits for.
//
// Only pages of one range are drawn (the heap: the owner of a stack is the scheduler's business), and none that is pinned or moves at the moment.
//
// Thread safety: used() from any thread, also in a fault handler; serve() by one thread. Nothing allocates after create().
#pragma once

#include <atomic>
#include <memory>

#include "base/notes.h"
#include "gas/attraction.h"
#include "gas/mover.h"

namespace kasane::gas {

class Attractor {
 public:
  static std::uint32_t wall_second();
  struct Config {
    std::uint64_t offset = 0, bytes = 0;   ///< the pages that may be drawn
    std::uint32_t threshold = kStreak;     ///< tests take others
    std::uint32_t (*second)() = &wall_second;   ///< the time, on about the same clock everywhere
  };
  static Result<std::unique_ptr<Attractor>> create(comm::Transport&, const Directory&, Mover&, const Config&);
  Attractor(const Attractor&) = delete;
  Attractor& operator=(const Attractor&) = delete;
  ~Attractor();

  /// This rank has used the page at another rank: fetched of it (dsm), got or put (gas::Access). others_wrote: what it fetched was not what it had.
  void used(PageId page, bool others_wrote = false) noexcept {
    const std::uint64_t i = raw(page) - first_;
    if (i >= pages_) return;
    // relaxed, and not one atomic step: an estimate that nothing hangs on, on the way of every access. Threads that lose each other's counts look a little later.
    const std::uint32_t n = counted(uses_[i].load(std::memory_order_relaxed), others_wrote);
    uses_[i].store(n, std::memory_order_relaxed);
    if ((n & look_mask_) == 0) [[unlikely]]
      note(page);
  }
  /// May others draw the page away at any moment?
  [[nodiscard]] bool draws(PageId page) const noexcept { return raw(page) - first_ < pages_; }
  /// The service thread's part. True if there was something to do.
  bool serve(comm::Blocking&);
  /// Draws nothing any more; returns when serve() is in no draw, which may wait for any other rank. By another thread than serve()'s, before ranks leave.
  void close() noexcept;
  [[nodiscard]] bool asked() const noexcept { return noted_.any(); }

 private:
  using Count = std::atomic<std::uint32_t>;
  Attractor(comm::Transport&, const Directory&, Mover&, const Config&, Count*) noexcept;
  void note(PageId) noexcept;
  void look_at(comm::Blocking&, PageId);
  [[nodiscard]] bool near(Rank) const noexcept;

  comm::Transport& transport_;
  const Directory& directory_;
  Mover& mover_;
  std::uint64_t first_, pages_;
  std::uint32_t threshold_, look_mask_;
  std::uint32_t (*second_)();
  Count* uses_;             ///< one a page: uses that count towards a streak (counted())
  Notes<PageId, 64> noted_;
  std::atomic<bool> serving_{false}, closed_{false};
};

}  // namespace kasane::gas
