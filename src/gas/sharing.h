// SPDX-License-Identifier: Apache-2.0
// Who has copies of a page, and who must hear that it has changed: the classification of pages (the P/S classes of Endo's thesis §2.6.4, after Argo's Carina),
// from one-sided updates of the directory. docs/design/dsm.md has the table and the walk.
//
//   a reader                              who changed a page                     a reader that was told, at its acquire
//   its bit into word 1                   puts, completed; or stores (owner)     leaves word 1
//   the owner's mark: look at this page   its own mark                           drops the page's blocks
//   reads the data                        at its release: reads word 1,
//                                         tells every reader but itself
//
// Invariants: a copy that an acquire leaves valid has its rank's bit in word 1, or a notice for it is in that rank's set. A page of ours that others have
// copies of is marked here, or each of its blocks here is protected in V (a store to it marks the page), or whoever has a copy was told since our last store.
//
// Thread safety: every call from any thread, given its own Blocking; tell() and what lies between begin_drop() and end_drop() by one thread at a time. Nothing
// allocates after create().
#pragma once

#include <array>
#include <memory>
#include <span>

#include "base/counters.h"
#include "gas/directory.h"
#include "gas/page_marks.h"
#include "mem/block_table.h"

namespace kasane::gas {

class Sharing {
 public:
  struct Config {
    bool on = true;                        ///< off: an acquire drops everything, and nobody is told anything
    std::uint64_t offset = 0, bytes = 0;   ///< pages that may be protected from their owner's stores (the heaps: a running stack is never)
  };
  static Result<std::unique_ptr<Sharing>> create(comm::Transport&, const Directory&, const Config&);

  /// False too in a job of one rank.
  [[nodiscard]] bool on() const noexcept { return on_; }

  /// Before this rank reads bytes of the page from its owner. Nothing is to be done where it is known to be among the readers: the owner was asked to look
  /// at the
  /// page, and either does so at its next release, or has told this rank, which has not heard yet, or sees its own stores.
  /// What is returned goes to joined() when the page was found to have stood; else the mark may be with a former owner.
  using Stay = std::uint32_t;
  [[nodiscard]] Stay join(comm::Blocking& io, PageId page, Rank owner) const {
    Joining one{page, owner, kJoined};
    join(io, {&one, 1});
    return one.stay;
  }
  /// Of many pages at once, kTogether at most.
  struct Joining {
    PageId page;
    Rank owner;
    Stay stay;   ///< out
  };
  static constexpr std::size_t kTogether = PageMarks::kMostNotices;
  void join(comm::Blocking&, std::span<Joining>) const;
  void joined(PageId page, Stay stay) const noexcept {
    if ((stay & kJoined) == 0) stays_[as_block(page)].compare_exchange_strong(stay, stay | kJoined);   // else it has left meanwhile
  }

  // ---- what this rank has to release ----
  /// A block has a twin from now on: before any store can land.
  void add_dirty() const noexcept { unreleased_.begin(); }
  /// Its bytes have arrived, and the page is noted as changed.
  void remove_dirty() const noexcept { unreleased_.end(); }
  /// Threads of this rank store to the page unseen from now on: after the directory names this rank, before any store can land.
  void mark(PageId page) const noexcept {
    if (on_) unreleased_.add_here(page);
  }
  /// A diff of this rank has arrived at the page's owner.
  void changed(PageId page) noexcept {
    if (!on_) return;
    changed_.insert(as_block(page));
    unreleased_.add_here(page);
  }
  /// A direct put or atomic has arrived: this rank's own copy, if it has one, is as old as everybody's.
  void changed_directly(PageId page) noexcept {
    if (!on_) return;
    told_.add_here(page);
    changed(page);
  }
  [[nodiscard]] bool nothing_to_release() const noexcept { return unreleased_.idle_after_stores(); }
  [[nodiscard]] bool nothing_to_release(comm::Blocking& io, Rank rank) const { return unreleased_.idle(io, rank); }

  /// Looks at every marked page that others have copies of: must(page, changed, watch) says whether they are to be told; watch: the page is read again and
  /// again, so its later stores should be noticed. Returns when all have been told.
  template <class Must>
  void tell(comm::Blocking& io, Counters& counters, const Must& must) {
    if (!on_) return;
    unreleased_.begin();
    Pages marked;
    const auto look = [&] {
      std::array<bool, kTogether> known;
      for (std::size_t i = 0; i < marked.count; ++i) {   // before its readers are read: a put that ends later inserts it again
        known[i] = changed_.contains(as_block(marked.page[i]));
        if (known[i]) changed_.erase(as_block(marked.page[i]));
      }
      read_readers(io, marked);
      Pages changes;
      for (std::size_t i = 0; i < marked.count; ++i) {
        const PageId page = marked.page[i];
        if (marked.readers[i] == 0) continue;   // who comes now finds what we have put, and has us look again at what is ours
        const bool watch = !known[i] && watches(page);
        if (!must(page, known[i], watch)) continue;
        changes.watched |= watch;
        changes.readers[changes.count] = marked.readers[i];
        changes.page[changes.count++] = page;
      }
      if (changes.watched) read_readers(io, changes);   // those who came until V was protected
      send(io, counters, changes);
      marked.count = 0;
    };
    unreleased_.take([&](PageId page) {
      marked.page[marked.count++] = page;
      if (marked.count == kTogether) look();
    });
    look();
    unreleased_.end();
  }

  // ---- what this rank was told ----
  [[nodiscard]] bool nothing_told() const noexcept { return told_.idle(); }
  /// Has this rank been told of the page, so that its copy must go? True too while somebody is dropping what it was told, and where nobody is ever told.
  [[nodiscard]] bool may_be_told(PageId page) const noexcept { return !on_ || told_.may_hold(page); }
  void begin_drop() const noexcept { told_.begin(); }
  /// drop(page) for every page of which this rank was told; it has left the page's readers before. Between begin_drop() and end_drop().
  template <class Drop>
  void take_told(comm::Blocking& io, const Drop& drop) const {
    Pages heard;
    told_.take([&](PageId page) {
      heard.page[heard.count++] = page;
      if (heard.count == kTogether) leave(io, heard, drop);
    });
    leave(io, heard, drop);
  }
  /// This page is to be dropped by a later take_told().
  void tell_myself(PageId page) const noexcept { told_.add_here(page); }
  void end_drop() const noexcept { told_.end(); }

 private:
  struct Pages {
    std::array<PageId, kTogether> page;
    std::array<std::uint64_t, kTogether> readers;   ///< without this rank
    std::size_t count = 0;
    bool watched = false;
  };

  Sharing(comm::Transport&, const Directory&, const Config&, mem::BlockSet changed, mem::BlockSet reread, mem::BlockTable stays) noexcept;
  void read_readers(comm::Blocking&, Pages&) const;
  void send(comm::Blocking&, Counters&, const Pages&);
  /// Every second time that readers come back.
  [[nodiscard]] bool watches(PageId) noexcept;
  void leave_readers(comm::Blocking&, const Pages&) const;
  template <class Drop>
  void leave(comm::Blocking& io, Pages& heard, const Drop& drop) const {
    leave_readers(io, heard);
    for (std::size_t i = 0; i < heard.count; ++i) drop(heard.page[i]);
    heard.count = 0;
  }
  [[nodiscard]] bool watchable(PageId page) const noexcept { return directory_.pages().offset_of(page) - config_.offset < config_.bytes; }
  [[nodiscard]] static BlockId as_block(PageId page) noexcept { return BlockId{raw(page)}; }   // the sets are of pages

  static constexpr Stay kJoined = 1;   ///< above it: how often this rank has left

  const Directory& directory_;
  Config config_;
  Rank me_;
  std::uint32_t ranks_;
  bool on_;
  PageMarks unreleased_, told_;
  mem::BlockSet changed_;   ///< marked since this rank has put to them
  mem::BlockSet reread_;    ///< pages of ours whose readers were told once without need to know
  /// Of each page a Stay. seq_cst: a fetch has its block among the cached ones before it looks here, a drop looks at them afterwards.
  mutable mem::BlockTable stays_;
};

}  // namespace kasane::gas
