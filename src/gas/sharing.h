// SPDX-License-Identifier: Apache-2.0
// Which ranks have copies of a page, and which get notices of its changes: the classification of pages (the
// P/S classes of Endo's thesis §2.6.4, after Argo's Carina), by one-sided updates of the directory.
// docs/design/dsm.md has the table and the walk.
//
//   a reader                           a rank that changed the page       a reader with a notice, at its
//                                                                         acquire
//   sets its bits in word 1            puts, completed; or stores         has copies of other blocks: stays
//                                      (owner)                            a reader; else leaves word 1
//   adds the page to the owner's       adds the page to its own marks     drops the blocks that the notice
//   marks                                                                 names
//   reads the data                     at its release: reads word 1,
//                                      sends every other reader a notice
//                                      of the blocks that may have changed
//
// Invariants: a copy that an acquire leaves valid has its rank's bits in word 1, or a notice for its block is
// in that rank's set. If other ranks have copies of a block of an own page, then the page is marked here, or
// the block is protected in V (a store to it marks the page), or those ranks got a notice of it since the
// last store here.
//
// Thread safety: every call from any thread, given its own Blocking; send_notices(), and what lies between
// begin_drop() and end_drop(), by one thread at a time. Nothing allocates after create().
#pragma once

#include <array>
#include <memory>
#include <span>

#include "gas/directory.h"
#include "gas/page_notices.h"
#include "gas/reader_state.h"
#include "mem/block_table.h"

namespace kasane::gas {

class Sharing {
 public:
  struct Config {
    bool on = true;  ///< off: an acquire drops everything, and there are no notices
    /// pages that may be protected from their owner's stores (the heaps: a running stack never is)
    std::uint64_t offset = 0, bytes = 0;
  };
  static Result<std::unique_ptr<Sharing>> create(comm::Transport&, const Directory&, const Config&);

  /// False too in a job of one rank.
  [[nodiscard]] bool on() const noexcept { return on_; }

  /// Called before this rank reads bytes of the page from its owner. Nothing is to be done if it is known to
  /// be a reader that has asked: then the owner will examine the page at its next release, or has sent a
  /// notice that was not taken yet, or notices its own stores. The result is passed to joined() when the page
  /// was found to have stood; else the mark may be with a former owner.
  [[nodiscard]] ReaderState join(comm::Blocking& io, PageId page, Rank owner) const {
    Joining one{page, owner, {}};
    join(io, {&one, 1});
    return one.state;
  }
  /// What join() is given for each of many pages, at most kTogether, whose readers it joins at once.
  struct Joining {
    PageId page;
    Rank owner;
    ReaderState state;  ///< out
  };
  static constexpr std::size_t kTogether = PageMarks::kMostNotices;
  void join(comm::Blocking&, std::span<Joining>) const;
  /// Need join() do nothing?
  [[nodiscard]] bool is_reader(PageId page) const noexcept {
    return !on_ || ReaderState::of(reader_states_[page].load()).complete();
  }
  void joined(PageId page, ReaderState state) const noexcept {
    std::uint32_t before = state.word();
    // If this fails, a notice of the page was taken meanwhile.
    if (!state.complete()) reader_states_[page].compare_exchange_strong(before, state.after_joining().word());
  }

  // ---- what this rank has to release ----
  /// A block has changes from now on: called before any store can happen.
  void add_dirty() const noexcept { unreleased_.begin(); }
  /// Its bytes have arrived, and the page is recorded as changed.
  void remove_dirty() const noexcept { unreleased_.end(); }
  /// How many blocks have changes; threads that are just releasing count as one each.
  [[nodiscard]] std::uint32_t dirty() const noexcept { return unreleased_.begun(); }
  /// From now on threads of this rank store to the page without faults: called after the directory names this
  /// rank, before any store can happen.
  void mark(PageId page) noexcept {
    if (!on_) return;
    // before the mark: a thread that examines the page because of the mark then knows that there may be
    // stores
    ours_.insert(page);
    unreleased_.add_here(page);
  }
  /// Changes of this rank to these parts have arrived at the page's owner.
  void changed(PageId page, PartMask parts) noexcept {
    if (!on_) return;
    std::atomic<PartMask>& word = changed_[page];
    // a thread that takes them after this look reads word 1 afterwards, too
    if ((word.load() & parts) != parts) word.fetch_or(parts);
    unreleased_.add_here(page);
  }
  /// Direct puts or atomics have arrived: copies that this rank has of these parts are outdated like those of
  /// other ranks.
  void changed_directly(PageId page, PartMask parts) noexcept {
    if (!on_) return;
    notices_.add_here(page, parts);
    changed(page, parts);
  }
  [[nodiscard]] bool nothing_to_release() const noexcept { return unreleased_.idle_after_stores(); }
  /// How many releases have ended at that rank that began after the one numbered `since` (its lower bits; 0:
  /// none). At least 1 if it has nothing to release.
  [[nodiscard]] std::uint32_t releases(comm::Blocking& io, Rank rank, std::uint32_t since) const;
  /// This rank's release of that number has ended: its notices have arrived.
  void note_release(std::uint64_t number) const noexcept;
  /// The lower bits of the last one's.
  [[nodiscard]] std::uint32_t released() const noexcept;

  /// The result of examining the blocks of a page.
  struct Inspection {
    PartMask open = 0;  ///< threads of this rank may have stored to them without a fault
    bool ours = false;  ///< a block may be owned here: there may be such stores later
  };
  /// Sends notices of what has changed in every marked page that other ranks have copies of: what was put,
  /// and what look(page, watch) finds where threads of this rank may have stored. watch: the page is read
  /// again and again, so its later stores should fault. Returns when all notices have arrived.
  template <class F>
  void send_notices(comm::Blocking& io, const F& look) {
    if (!on_) return;
    unreleased_.begin();
    Pages marked;
    const auto look_at = [&] {
      // before its readers are read: a put that ends later records it again
      for (std::size_t i = 0; i < marked.count; ++i) {
        std::atomic<PartMask>& put = changed_[marked.page[i]];
        marked.parts[i] = put.load() == 0 ? 0 : put.exchange(0);
      }
      read_readers(io, marked);
      Pages changes;
      for (std::size_t i = 0; i < marked.count; ++i) {
        const PageId page = marked.page[i];
        // later readers find what was put, and add a mark for what is owned here
        if (marked.readers[i] == 0) continue;
        PartMask parts = marked.parts[i];
        if (ours_.contains(page)) {
          const bool watch = parts == 0 && watches(page);
          changes.watched |= watch;
          parts |= look_at_ours(page, watch, look);
        }
        if (parts == 0) continue;
        changes.readers[changes.count] = marked.readers[i];
        changes.parts[changes.count] = parts;
        changes.page[changes.count++] = page;
      }
      if (changes.watched) read_readers(io, changes);  // readers that came before V was protected
      post_notices(io, changes);
      marked.count = 0;
    };
    unreleased_.take([&](PageId page) {
      marked.page[marked.count++] = page;
      if (marked.count == kTogether) look_at();
    });
    look_at();
    unreleased_.end();
  }

  // ---- notices of this rank ----
  [[nodiscard]] bool no_notices() const noexcept { return notices_.idle(); }
  /// The word that is 0 while there are none.
  [[nodiscard]] const std::atomic<std::uint64_t>& notices_word() const noexcept { return notices_.word(); }
  /// May there be a notice of the page, so that a copy must be dropped? True too while a thread is dropping,
  /// and where there are no notices at all.
  [[nodiscard]] bool may_have_notice(PageId page) const noexcept { return !on_ || notices_.may_hold(page); }
  void begin_drop() const noexcept { notices_.begin(); }
  /// Calls drop(page, parts) for every page of which this rank has a notice; with all parts if it has left
  /// the page's readers before. keeps(page, parts): does it have copies of other parts? A guess: if it says
  /// so wrongly, the rank goes on getting notices. Between begin_drop() and end_drop().
  template <class Keeps, class Drop>
  void take_notices(comm::Blocking& io, const Keeps& keeps, const Drop& drop) const {
    Pages taken;
    notices_.take([&](PageId page) {
      taken.page[taken.count++] = page;
      if (taken.count == kTogether) handle(io, taken, keeps, drop);
    });
    handle(io, taken, keeps, drop);
  }
  /// Adds a notice to this rank's own set: these parts of the page will be dropped by a later take_notices().
  void add_own_notice(PageId page, PartMask parts) const noexcept { notices_.add_here(page, parts); }
  void end_drop() const noexcept { notices_.end(); }

 private:
  struct Pages {
    std::array<PageId, kTogether> page;
    std::array<PartMask, kTogether> parts;
    std::array<std::uint64_t, kTogether> readers;  ///< without this rank
    std::size_t count = 0;
    bool watched = false;
  };
  /// The tables of pages.
  struct Tables {
    mem::WordTable<PartMask, PageId> changed;
    mem::PageSet ours, reread;
    mem::WordTable<std::uint32_t, PageId> reader_states;
  };

  Sharing(comm::Transport&, const Directory&, const Config&, Tables&&) noexcept;
  void read_readers(comm::Blocking&, Pages&) const;
  void post_notices(comm::Blocking&, const Pages&);
  /// Should the page be watched from now on? Every second time that its readers come back.
  [[nodiscard]] bool watches(PageId) noexcept;
  /// When a page is recorded as having no own blocks any more, it is examined once more: a block that has
  /// become owned before that is seen, one that becomes owned later records it again.
  template <class F>
  PartMask look_at_ours(PageId page, bool watch, const F& look) {
    const Inspection first = look(page, watch);
    if (first.ours) return first.open;
    ours_.erase(page);
    const Inspection again = look(page, false);
    if (again.ours) ours_.insert(page);
    return first.open | again.open;
  }
  void leave_readers(comm::Blocking&, std::span<const PageId>) const;
  void note_taken(PageId page, bool keeps) const noexcept {
    std::atomic<std::uint32_t>& state = reader_states_[page];
    // whatever joined() does in between
    state.store(ReaderState::of(state.load()).after_notice(keeps).word());
  }
  template <class Keeps, class Drop>
  void handle(comm::Blocking& io, Pages& taken, const Keeps& keeps, const Drop& drop) const {
    std::array<PageId, kTogether> leaving;
    std::size_t leave = 0;
    for (std::size_t i = 0; i < taken.count; ++i) {
      PartMask& parts = taken.parts[i] = notices_.take_parts(taken.page[i]);
      if (parts == 0) continue;  // taken already, with another notice
      if (keeps(taken.page[i], parts)) {
        // before the blocks are examined: a fetch whose block is not seen there asks the owner after this
        note_taken(taken.page[i], true);
      } else {
        leaving[leave++] = taken.page[i];
        parts = kAllParts;  // all that comes until this rank has left
      }
    }
    leave_readers(io, {leaving.data(), leave});
    for (std::size_t i = 0; i < taken.count; ++i) {
      if (taken.parts[i] != 0) drop(taken.page[i], taken.parts[i]);
    }
    taken.count = 0;
  }
  [[nodiscard]] bool watchable(PageId page) const noexcept {
    return directory_.pages().offset_of(page) - config_.offset < config_.bytes;
  }

  const Directory& directory_;
  Config config_;
  Rank me_;
  bool on_;
  PageMarks unreleased_;
  PageNotices notices_;
  mem::WordTable<PartMask, PageId> changed_;  ///< what this rank has put to since it last examined the page
  mem::PageSet ours_;                         ///< pages to which its threads may have stored without a fault
  mem::PageSet reread_;                       ///< own pages whose readers got one notice without need
  /// A ReaderState of each page. seq_cst: a fetch adds its block to the cached ones before it looks here; a
  /// drop looks at them afterwards.
  mutable mem::WordTable<std::uint32_t, PageId> reader_states_;
};

}  // namespace kasane::gas
