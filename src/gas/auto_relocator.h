// SPDX-License-Identifier: Apache-2.0
// Moves pages to the rank that uses them (gas/relocation_policy.h decides). A use is counted where it
// happens, by one addition. Every `threshold` uses (rounded down to a power of two) the page is queued; the
// rank's service thread then looks at word 3 and moves the page here if it should come. So no fault and no
// access takes an additional round trip, and none moves a page while its thread has an operation under way
// that a move waits for.
//
// Only pages of one range move (the heap: the owner of a stack is the scheduler's business), and none that is
// pinned or is moving at the moment.
//
// Thread safety: used() from any thread, also in a fault handler; serve() by one thread. Nothing allocates
// after create().
#pragma once

#include <atomic>
#include <memory>

#include "base/notes.h"
#include "gas/mover.h"
#include "gas/relocation_policy.h"

namespace kasane::gas {

class AutoRelocator {
 public:
  static std::uint32_t wall_second();
  struct Config {
    std::uint64_t offset = 0, bytes = 0;       ///< the pages that may move
    std::uint32_t threshold = kStreak;         ///< tests set others
    std::uint32_t (*second)() = &wall_second;  ///< the time, by about the same clock on all ranks
  };
  static Result<std::unique_ptr<AutoRelocator>> create(comm::Transport&, const Directory&, const Config&);
  AutoRelocator(const AutoRelocator&) = delete;
  AutoRelocator& operator=(const AutoRelocator&) = delete;
  ~AutoRelocator();

  /// This rank has used the page of another rank: fetched of it (dsm), got or put (gas::DirectAccess).
  /// others_wrote: the fetch brought bytes that this rank did not have.
  void used(PageId page, bool others_wrote = false) noexcept {
    const std::uint64_t i = raw(page) - first_;
    if (i >= pages_) return;
    // relaxed, and not one atomic step: only an estimate, on the path of every access. Threads that lose each
    // other's counts look a little later.
    set(page, counted(uses_[i].load(std::memory_order_relaxed), others_wrote), 1);
  }
  /// A release of this rank has sent changes of all blocks of the page to its owner.
  void released(PageId page) noexcept {
    const std::uint64_t i = raw(page) - first_;
    if (i < pages_)  // relaxed, as above
      set(page, counted_release(uses_[i].load(std::memory_order_relaxed)), kUsesOfARelease);
  }
  /// This rank was told that the page has changed.
  void others_changed(PageId page) noexcept {
    const std::uint64_t i = raw(page) - first_;
    if (i >= pages_) return;
    // relaxed, as above
    const std::uint32_t n = uses_[i].load(std::memory_order_relaxed);
    if (n != 0 && (n & kOthersChanged) == 0) uses_[i].store(n | kOthersChanged, std::memory_order_relaxed);
  }
  /// May other ranks move the page to themselves at any moment?
  [[nodiscard]] bool may_relocate(PageId page) const noexcept { return raw(page) - first_ < pages_; }
  /// Called by the service thread. True if there was something to do.
  bool serve(comm::Blocking&, Mover&);
  /// Stops moving pages; returns when serve() moves none, which may wait for any other rank. Called by
  /// another thread than serve()'s, before ranks leave.
  void close() noexcept;
  [[nodiscard]] bool asked() const noexcept { return noted_.any(); }

 private:
  using Count = std::atomic<std::uint32_t>;
  AutoRelocator(comm::Transport&, const Directory&, const Config&, Count*) noexcept;
  /// The count of a page's uses is n, at most `more` more than before.
  void set(PageId page, std::uint32_t n, std::uint32_t more) noexcept {
    uses_[raw(page) - first_].store(n, std::memory_order_relaxed);  // relaxed: an estimate
    if ((n & look_mask_) < more && ((n & kResting) == 0 || n % kRestingUses < more)) [[unlikely]]
      note(page);
  }
  void note(PageId) noexcept;
  void look_at(comm::Blocking&, Mover&, PageId);
  [[nodiscard]] bool near(Rank) const noexcept;

  comm::Transport& transport_;
  const Directory& directory_;
  std::uint64_t first_, pages_;
  std::uint32_t threshold_, look_mask_;
  std::uint32_t (*second_)();
  Count* uses_;  ///< one for each page: uses that count towards a streak (counted())
  Notes<PageId, 64> noted_;
  std::atomic<bool> serving_{false}, closed_{false};
};

}  // namespace kasane::gas
