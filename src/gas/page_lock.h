// SPDX-License-Identifier: Apache-2.0
// The lock of a page's directory entry: the bit *busy* of word 0. Whoever has it is alone to change where the
// page is, from the operation that sets the bit to the one that stores the page's next location. Nothing else
// sets or clears the bit: Directory leaves these operations to this class.
//
//   PageLock lock(directory, page);
//   lock.try_lock(batch), batch.await();        found(): word 0 as it was; held(): the lock is this thread's
//   lock.store(batch, end_move(lock.now(), me)), or lock.give_back(batch): word 0 as it was found
//
// Operations are posted: those of several pages at once, awaited together. A lock that is held passes on by a
// move, or ends: the destructor checks that, and that no other thread has changed word 0 meanwhile.
//
// Thread safety: an object belongs to one thread. It stays where it is until what it has posted was awaited.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "comm/batch.h"
#include "comm/requests.h"
#include "gas/address_cache.h"

namespace kasane::gas {

class PageLock {
 public:
  PageLock() = default;
  PageLock(const Directory& directory, PageId page) noexcept : directory_(&directory), page_(page) {}
  PageLock(PageLock&& from) noexcept : PageLock(from) { from.ended_ = true; }
  PageLock& operator=(PageLock&& from) noexcept {
    check();
    *this = std::as_const(from);
    from.ended_ = true;
    return *this;
  }
  ~PageLock() { check(); }

  [[nodiscard]] PageId page() const noexcept { return page_; }
  /// Word 0 as try_lock() found it: busy, if another thread had the lock.
  [[nodiscard]] Location found() const noexcept { return Location::of(found_); }
  /// Has try_lock() got the lock, and this object not given it up?
  [[nodiscard]] bool held() const noexcept { return !ended_ && (found_ & kBusyBit) == 0; }
  /// Word 0 as this thread knows it: with busy set, or as it has stored it.
  [[nodiscard]] Location now() const noexcept {
    return Location::of(word_ != kNotStored ? word_ : found_ | kBusyBit);
  }

  /// Sets busy, whatever rank owns the page. The result is known when the batch was awaited.
  void try_lock(comm::Batch& batch) { directory_->set_busy(batch, page_, &found_); }
  /// As above, awaited.
  bool try_lock(comm::Blocking& io) {
    comm::Batch batch(io);
    try_lock(batch);
    batch.await();
    return held();
  }
  /// Only if word 0 is still `found`, which is not busy.
  bool try_lock(comm::Blocking&, const Location& found);
  /// By a message to the program of the page's manager, which calls lock_for(). If its answer leaves the
  /// holders out, all ranks count as holders: one that does not know the location answers a recall at once.
  void try_lock(comm::Requests&);
  struct LockedFor {
    std::uint64_t found;                   ///< word 0
    std::optional<std::uint64_t> holders;  ///< word 2 as it was; empty: there is no page to move
  };
  /// At the manager: locks the page for a mover at rank `to`, and takes the holders of its location. Two
  /// steps are enough, since no other rank changes word 0 of a busy page.
  static LockedFor lock_for(const Directory&, PageId, Rank to) noexcept;
  /// Which ranks keep the location; posted with try_lock(), so that a Recall can ask them early.
  void look_at_holders(comm::Batch& batch) { directory_->look_at_holders(batch, page_, &seen_holders_); }

  /// Word 0 becomes `to`. The lock ends if that is not busy.
  void store(comm::Batch& batch, const Location& to) {
    expect_to_find(to);
    directory_->swap(batch, page_, to, &before_);
  }
  void store(comm::Blocking& io, const Location& to) {
    comm::Batch batch(io);
    store(batch, to);
  }
  /// Word 0 becomes what it was found to be, if the lock is held.
  void give_back(comm::Batch& batch) {
    if (held()) store(batch, found());
  }
  /// As store(), without waiting: nothing else may use this object until the completion has run. Done: it
  /// does not run. Again: nothing was posted, and the same call has to be repeated.
  comm::Post store(comm::Blocking& io, const Location& to, comm::Completion* completion) {
    expect_to_find(to);
    return directory_->swap(io, page_, to, &before_, completion);
  }

 private:
  friend class Recall;
  PageLock(const PageLock&) = default;
  PageLock& operator=(const PageLock&) = default;
  void check() const noexcept {
    KASANE_CHECK(!held() && before_ == expected_, "only who has a page's lock changes where the page is");
  }
  /// Called before word 0 is swapped for `to`.
  void expect_to_find(const Location& to) noexcept {
    if (!ended_) expected_ = now().word();
    before_ = expected_;  // stays so if a peer was lost
    word_ = to.word();
    ended_ = !to.busy;
  }

  static constexpr std::uint64_t kNotStored = ~std::uint64_t{0};  // of a rank that there is not

  const Directory* directory_ = nullptr;
  PageId page_{};
  std::uint64_t found_ = kBusyBit;
  std::uint64_t word_ = kNotStored;          ///< as it was stored last
  std::uint64_t before_ = 0, expected_ = 0;  ///< what the last swap has found, and had to find
  bool ended_ = false;
  std::uint64_t seen_holders_ = 0, taken_holders_ = 0;
  bool holders_taken_ = false;
};

/// Takes the locations of locked pages back from all ranks that keep them: when await() returns, no put to
/// the pages is under way, and none begins before they are unlocked. Even if a move is refused all must have
/// answered before the lock ends, since a rank has one place a page for whom to answer. The holders that word
/// 2 named together with the lock are asked before the swap has completed, which then names the others. (Such
/// a rank could be asked, set its bit again, and have it taken by the swap: then the stamp is not the version
/// that it reads.)
class Recall {
 public:
  Recall(AddressCache&, comm::Blocking&, std::span<PageLock* const>);
  /// Asks the ranks that are known to hold the location.
  void ask(const PageLock&);
  void await();
  /// What is posted here is awaited, too.
  [[nodiscard]] comm::Requests& requests() noexcept { return requests_; }

 private:
  AddressCache& addresses_;
  comm::Blocking& io_;
  const std::span<PageLock* const> locks_;
  comm::Batch batch_;
  comm::Requests requests_;
};

}  // namespace kasane::gas
