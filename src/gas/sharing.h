// SPDX-License-Identifier: Apache-2.0
// Who has copies of a page, and who must handle that it has changed: the classification of pages (the P/S classes of Endo's thesis §2.6.4, after Argo's Carina),
// from one-sided updates of the directory. docs/design/dsm.md has the table and the walk.
//
//   a reader                              who changed a page                     a reader that was told, at its acquire
//   its bit into word 1                   puts, completed; or stores (owner)     keeps copies of other blocks: stays; else leaves word 1
//   the owner's mark: look at this page   its own mark                           drops the blocks that it was told of
//   reads the data                        at its release: reads word 1,
//                                         tells every reader but itself,
//                                         which blocks may have changed
//
// Invariants: a copy that an acquire leaves valid has its rank's bit in word 1, or a notice for its block is in that rank's set. Of a page of ours, a block that others have
// copies of is marked here, or protected in V (a store to it marks the page), or whoever has a copy was told of it since our last store.
//
// Thread safety: every call from any thread, given its own Blocking; tell() and what lies between begin_drop() and end_drop() by one thread at a time. Nothing
// allocates after create().
#pragma once

#include <array>
#include <memory>
#include <span>

#include "base/counters.h"
#include "gas/directory.h"
#include "gas/page_notices.h"
#include "gas/reader_state.h"
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

  /// Before this rank reads bytes of the page from its owner. Nothing is to be done where it is known to be among the readers and to have asked: the owner either looks at the
  /// page at its next release, or has told this rank, which has not taken yet, or sees its own stores.
  /// What is returned goes to joined() when the page was found to have stood; else the mark may be with a former owner.
  [[nodiscard]] ReaderState join(comm::Blocking& io, PageId page, Rank owner) const {
    Joining one{page, owner, {}};
    join(io, {&one, 1});
    return one.state;
  }
  /// Of many pages at once, kTogether at most.
  struct Joining {
    PageId page;
    Rank owner;
    ReaderState state;   ///< out
  };
  static constexpr std::size_t kTogether = PageMarks::kMostNotices;
  void join(comm::Blocking&, std::span<Joining>) const;
  void joined(PageId page, ReaderState state) const noexcept {
    std::uint32_t before = state.word();
    if (!state.complete()) reader_states_[page].compare_exchange_strong(before, state.after_joining().word());   // else it has taken of the page meanwhile
  }

  // ---- what this rank has to release ----
  /// A block has a twin from now on: before any store can land.
  void add_dirty() const noexcept { unreleased_.begin(); }
  /// Its bytes have arrived, and the page is noted as changed.
  void remove_dirty() const noexcept { unreleased_.end(); }
  /// Threads of this rank store to the page unseen from now on: after the directory names this rank, before any store can land.
  void mark(PageId page) noexcept {
    if (!on_) return;
    ours_.insert(page);   // before the mark: who looks at the page for its sake finds that there may be stores
    unreleased_.add_here(page);
  }
  /// Changes of this rank to these parts have arrived at the page's owner.
  void changed(PageId page, PartMask parts) noexcept {
    if (!on_) return;
    std::atomic<PartMask>& word = changed_[page];
    if ((word.load() & parts) != parts) word.fetch_or(parts);   // who takes them after this look reads word 1 afterwards, too
    unreleased_.add_here(page);
  }
  /// Direct puts or atomics have arrived: this rank's own copies, if it has any, are as old as everybody's.
  void changed_directly(PageId page, PartMask parts) noexcept {
    if (!on_) return;
    notices_.add_here(page, parts);
    changed(page, parts);
  }
  [[nodiscard]] bool nothing_to_release() const noexcept { return unreleased_.idle_after_stores(); }
  [[nodiscard]] bool nothing_to_release(comm::Blocking& io, Rank rank) const { return unreleased_.idle(io, rank); }

  /// What a look at the blocks of a page says.
  struct Look {
    PartMask open = 0;      ///< this rank's threads may have stored to them unseen
    bool ours = false;   ///< a block may be ours: there may be such stores later
  };
  /// Tells of what has changed in every marked page that others have copies of: what was put, and what look(page, watch) finds where this rank's threads may have stored; watch: the page is read
  /// again and again, so its later stores should be noticed. Returns when all have been told.
  template <class F>
  void send_notices(comm::Blocking& io, Counters& counters, const F& look) {
    if (!on_) return;
    unreleased_.begin();
    Pages marked;
    const auto look_at = [&] {
      for (std::size_t i = 0; i < marked.count; ++i) {   // before its readers are read: a put that ends later notes it again
        std::atomic<PartMask>& put = changed_[marked.page[i]];
        marked.parts[i] = put.load() == 0 ? 0 : put.exchange(0);
      }
      read_readers(io, marked);
      Pages changes;
      for (std::size_t i = 0; i < marked.count; ++i) {
        const PageId page = marked.page[i];
        if (marked.readers[i] == 0) continue;   // who comes now finds what we have put, and has us look again at what is ours
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
      if (changes.watched) read_readers(io, changes);   // those who came until V was protected
      post_notices(io, counters, changes);
      marked.count = 0;
    };
    unreleased_.take([&](PageId page) {
      marked.page[marked.count++] = page;
      if (marked.count == kTogether) look_at();
    });
    look_at();
    unreleased_.end();
  }

  // ---- what this rank was told ----
  [[nodiscard]] bool no_notices() const noexcept { return notices_.idle(); }
  /// Has this rank been told of the page, so that its copy must go? True too while somebody is dropping what it was told, and where nobody is ever told.
  [[nodiscard]] bool may_have_notice(PageId page) const noexcept { return !on_ || notices_.may_hold(page); }
  void begin_drop() const noexcept { notices_.begin(); }
  /// drop(page, parts) for every page of which this rank was told, with all parts where it has left the page's readers before. keeps(page, parts): has it copies of other parts? A guess:
  /// if it says so, and has none any more, it goes on being told. Between begin_drop() and end_drop().
  template <class Keeps, class Drop>
  void take_notices(comm::Blocking& io, const Keeps& keeps, const Drop& drop) const {
    Pages taken;
    notices_.take([&](PageId page) {
      taken.page[taken.count++] = page;
      if (taken.count == kTogether) handle(io, taken, keeps, drop);
    });
    handle(io, taken, keeps, drop);
  }
  /// These parts of the page are to be dropped by a later take_notices().
  void add_own_notice(PageId page, PartMask parts) const noexcept { notices_.add_here(page, parts); }
  void end_drop() const noexcept { notices_.end(); }

 private:
  struct Pages {
    std::array<PageId, kTogether> page;
    std::array<PartMask, kTogether> parts;
    std::array<std::uint64_t, kTogether> readers;   ///< without this rank
    std::size_t count = 0;
    bool watched = false;
  };
  /// What is kept of each page.
  struct Tables {
    mem::WordTable<PartMask, PageId> changed;
    mem::PageSet ours, reread;
    mem::WordTable<std::uint32_t, PageId> reader_states;
  };

  Sharing(comm::Transport&, const Directory&, const Config&, Tables&&) noexcept;
  void read_readers(comm::Blocking&, Pages&) const;
  void post_notices(comm::Blocking&, Counters&, const Pages&);
  /// Every second time that readers come back.
  [[nodiscard]] bool watches(PageId) noexcept;
  /// A page of which nothing is ours any more is looked at once more when that is noted: what has become ours until then is seen, what does so later notes it again.
  template <class F>
  PartMask look_at_ours(PageId page, bool watch, const F& look) {
    const Look first = look(page, watch);
    if (first.ours) return first.open;
    ours_.erase(page);
    const Look again = look(page, false);
    if (again.ours) ours_.insert(page);
    return first.open | again.open;
  }
  void leave_readers(comm::Blocking&, std::span<const PageId>) const;
  void note_taken(PageId page, bool keeps) const noexcept {
    std::atomic<std::uint32_t>& state = reader_states_[page];
    state.store(ReaderState::of(state.load()).after_notice(keeps).word());   // whatever joined() does in between
  }
  template <class Keeps, class Drop>
  void handle(comm::Blocking& io, Pages& taken, const Keeps& keeps, const Drop& drop) const {
    std::array<PageId, kTogether> leaving;
    std::size_t leave = 0;
    for (std::size_t i = 0; i < taken.count; ++i) {
      PartMask& parts = taken.parts[i] = notices_.take_parts(taken.page[i]);
      if (parts == 0) continue;   // taken already, with another notice
      if (keeps(taken.page[i], parts)) {
        note_taken(taken.page[i], true);   // before the blocks are looked at: a fetch whose block is not seen there asks the owner after this
      } else {
        leaving[leave++] = taken.page[i];
        parts = kAllParts;   // whatever comes until it has left
      }
    }
    leave_readers(io, {leaving.data(), leave});
    for (std::size_t i = 0; i < taken.count; ++i) {
      if (taken.parts[i] != 0) drop(taken.page[i], taken.parts[i]);
    }
    taken.count = 0;
  }
  [[nodiscard]] bool watchable(PageId page) const noexcept { return directory_.pages().offset_of(page) - config_.offset < config_.bytes; }

  const Directory& directory_;
  Config config_;
  Rank me_;
  std::uint32_t ranks_;
  bool on_;
  PageMarks unreleased_;
  PageNotices notices_;
  mem::WordTable<PartMask, PageId> changed_;   ///< what this rank has put to since it last looked at the page
  mem::PageSet ours_;              ///< pages that its threads may have stored to unseen
  mem::PageSet reread_;            ///< pages of ours whose readers were told once without need to know
  /// Of each page a ReaderState. seq_cst: a fetch has its block among the cached ones before it looks here, a drop looks at them afterwards.
  mutable mem::WordTable<std::uint32_t, PageId> reader_states_;
};

}  // namespace kasane::gas
