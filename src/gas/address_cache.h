// SPDX-License-Identifier: Apache-2.0
// What this rank knows of the locations of pages, kept coherent with their moves
// (gas/address_cache_protocol.h; docs/design/gas.md). A get or put whose page's location is cached here costs
// one remote operation and no look at the directory.
//
// One word a page (never in V), reserved and not committed: only words that were touched cost DRAM. Ranks of
// a host map each other's words, and a mover changes them directly. Beside it each page has a place for the
// reply token of a recall by message. A page moves once at a time, and its mover awaits every answer, so one
// place is enough.
//
// Where the directory's words are mapped here, a look costs less than caching: reads do so, and leave no
// location behind that a move would have to recall. In a job of one rank whose pages stay in DRAM nothing
// moves, so nothing is cached.
//
// Thread safety: every call from any thread, given its own Blocking. Nothing allocates; usable in fault
// handlers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/requests.h"
#include "gas/address_cache_protocol.h"
#include "gas/directory.h"
#include "gas/sharing.h"

namespace kasane::gas {

/// Pages in pages that are on SSD.
class PageIn {
 public:
  struct Request {
    PageId page;
    Rank owner;
    /// in: word 0 as it was found; out: as its owner has left it
    std::uint64_t word = 0;
  };
  /// Returns when each page was paged in by its owner, or moves. The caller holds no
  /// use, and no bits: the owner may be waiting for a page of this rank, and so for these.
  virtual void page_in(comm::Blocking&, std::span<Request>) = 0;
  /// How many pages one caller may have paged in together; more would evict what has come. 0: probably none
  /// is on SSD.
  [[nodiscard]] virtual std::size_t most_together() noexcept = 0;
  /// Asks the page's owner, another rank, to page it in if there is room. A hint: does not wait.
  virtual void send_for(PageId, Rank owner) noexcept = 0;
  /// A put that replaces every byte of a page on SSD (hands_over()).
  struct HandOver {
    PageId page;
    Rank owner;
    const std::byte* bytes = nullptr;  ///< outside V
    std::uint64_t at = 0;              ///< of the same in region kPending of this rank, for another owner
    bool taken = false;                ///< out: they are the page's bytes; else nothing happened
  };
  /// Returns when each owner has answered. The caller holds nothing.
  virtual void hand_over(comm::Blocking&, std::span<HandOver>) = 0;
  /// Are the page's frames counted? Then no rank is made its owner with a frame that that rank has not
  /// counted.
  [[nodiscard]] virtual bool counts(PageId) const noexcept = 0;
  /// The contents of whole pages become undefined.
  virtual void forget(std::uint64_t offset, std::uint64_t bytes) noexcept = 0;

 protected:
  ~PageIn() = default;
};

class AddressCache {
 public:
  struct Parts {
    comm::Transport& transport;
    const Directory& directory;
    Sharing* sharing = nullptr;  ///< gets notices of pages that were put to directly; null: none are sent
    PageIn* page_in = nullptr;   ///< null: no page ever leaves DRAM
  };
  /// Sets kRecallHandler. Attaches kAddresses where peers are mapped: then it is collective.
  static Result<std::unique_ptr<AddressCache>> create(const Parts&);
  AddressCache(const AddressCache&) = delete;
  AddressCache& operator=(const AddressCache&) = delete;
  ~AddressCache();

  [[nodiscard]] const Directory& directory() const noexcept { return directory_; }
  /// Makes the page's owner page it in from SSD. word: word 0 as it was found; returns it as the owner has
  /// left it.
  std::uint64_t page_in(comm::Blocking& io, PageId page, Rank owner, std::uint64_t word = 0) const {
    PageIn::Request request{page, owner, word};
    page_in_->page_in(io, {&request, 1});
    return request.word;
  }

  /// The tier in which a page begins whose new owner took no part in the change.
  [[nodiscard]] Tier initial_tier(PageId page) const noexcept {
    return page_in_ != nullptr && page_in_->counts(page) ? Tier::ssd : Tier::dram;
  }
  /// Of a page that was found untouched, and not busy: its bytes matter from now on. Its provisional owner
  /// stays its owner, and has the bytes that it had, or those of its spill file. Whatever rank succeeds.
  void touch(comm::Blocking&, PageId, const Location& found) const;
  void forget(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (page_in_ != nullptr) page_in_->forget(offset, bytes);
  }

  /// Where a page was found by a thread that reads its frame next.
  struct Found {
    Rank owner = kNoRank;    ///< kNoRank: not allocated
    bool by_entry = false;   ///< through this rank's entry, else by word 0 of the directory
    std::uint64_t word = 0;  ///< of the entry, or word 0
  };
  /// Never waits for a move: a page that is moving is read where it was. A page on SSD is paged in first.
  Found find(comm::Blocking&, PageId);
  /// As find(), for callers that cannot wait for a page-in: is_on_ssd() says that there is nothing to read.
  Found look(comm::Blocking&, PageId);
  [[nodiscard]] static bool is_on_ssd(const Found& found) noexcept {
    return !found.by_entry && found.owner != kNoRank && !readable(Location::of(found.word));
  }
  /// No rank keeps the location of an untouched page.
  [[nodiscard]] static bool is_untouched(const Found& found) noexcept {
    return !found.by_entry && Location::of(found.word).untouched;
  }
  /// Call it when the bytes have arrived: were they the page's? False: find() and read again; they may be
  /// those of a punched frame (rule 9).
  ///
  ///   do { found = find(io, page); read from found.owner; } while (!stood(io, page, found));
  bool stood(comm::Blocking&, PageId, const Found&) const;

  /// As find(), if that needs no communication; else its owner is kNoRank.
  Found find_here(comm::Blocking&, PageId);
  /// As stood(), if that needs no communication; else false. May be called in a completion.
  [[nodiscard]] bool stood_here(PageId, const Found&) const noexcept;

  /// Asks for the locations of all these pages at once, at most kMostLearnt, so that later calls find them
  /// here: one round trip for all. A location of a page that moves or is recalled meanwhile is not kept.
  /// for_puts: also where word 0 is mapped here, since a put needs an entry. Pages on SSD are paged in
  /// together, all or none, or sent for: then those of other ranks are asked for, and not waited for. For all
  /// the caller holds nothing, as for page_in(). Returns how many pages other ranks have on SSD.
  enum class PagesIn : std::uint8_t { none, sent_for, all };
  static constexpr std::size_t kMostLearnt = 64;
  /// PageIn::most_together(), at most kMostLearnt
  [[nodiscard]] std::size_t most_together() const noexcept {
    return page_in_ == nullptr ? 0 : std::min(kMostLearnt, page_in_->most_together());
  }
  std::size_t learn(comm::Blocking&, std::span<const PageId>, bool for_puts, PagesIn);
  /// Need learn() not be asked for the page?
  [[nodiscard]] bool known_here(PageId, bool for_put) const noexcept;
  /// May pages leave DRAM?
  [[nodiscard]] bool pages_leave() const noexcept { return page_in_ != nullptr; }
  /// PageIn::hand_over(), of at most kMostLearnt. For those that were taken, the page has changed.
  void hand_over(comm::Blocking&, std::span<PageIn::HandOver>) const;

  /// What becomes of this rank's copies of what a put changes. renewed: the caller brings them up to date, so
  /// this rank needs no notice.
  enum class OwnCopies : std::uint8_t { outdated, renewed };

  struct OnlyHere {};
  static constexpr OnlyHere kOnlyHere{};

  /// A put under way, during the life of this object. The constructor waits while the page moves. A mover
  /// waits for the put: until this object is destroyed, its thread must wait for nothing but room in comm's
  /// queues and the completion of its own writes to owner(), and by polling. A write that completes by a
  /// callback takes the use with it (hand_over); then the thread is free.
  class [[nodiscard]] Put {
   public:
    Put(AddressCache& cache, comm::Blocking& io, PageId page)
        : cache_(cache), page_(page), owner_(cache.begin_put(io, page, counted_, nullptr)) {}
    /// For callers that hold bits, for which paging in may wait: a page that is not in DRAM is not paged in.
    /// Then there is no put under way, and `on_ssd` is where the page was found; else that stays unchanged.
    Put(AddressCache& cache, comm::Blocking& io, PageId page, Location& on_ssd)
        : cache_(cache), page_(page), owner_(cache.begin_put(io, page, counted_, &on_ssd)) {}
    /// Counts a put only if the page's location is known here and the page is not moving; else owner() is
    /// kNoRank.
    Put(AddressCache& cache, comm::Blocking& io, PageId page, OnlyHere)
        : cache_(cache), page_(page), owner_(cache.begin_put_here(io, page, counted_)) {}
    Put(const Put&) = delete;
    Put& operator=(const Put&) = delete;
    ~Put() {
      if (counted_) diff_ ? cache_.end_use(page_) : cache_.end_put(page_, parts_, copies_);
    }
    /// The put is a diff: dsm itself records which parts of the page have changed.
    void is_diff() noexcept { diff_ = true; }
    /// The put changes only these parts of the page.
    void within(PartMask parts, OwnCopies copies = OwnCopies::outdated) noexcept {
      parts_ = parts;
      copies_ = copies;
    }
    /// kNoRank: the page is not allocated.
    [[nodiscard]] Rank owner() const noexcept { return owner_; }
    /// The use outlives this object. True: end_put() must end it, once, on any thread. False: there is none.
    [[nodiscard]] bool hand_over() noexcept { return std::exchange(counted_, false); }

   private:
    AddressCache& cache_;
    PageId page_;
    bool counted_ = false, diff_ = false;
    OwnCopies copies_ = OwnCopies::outdated;
    PartMask parts_ = kAllParts;
    Rank owner_;
  };

  /// Ends a use that was handed over: its bytes have arrived, so these parts of the page have changed. May
  /// run in a completion.
  void end_put(PageId, PartMask, OwnCopies = OwnCopies::outdated) noexcept;

  /// Takes the location of a page, which the caller has locked, from the other ranks of `holders`, but those
  /// of `without`, which were asked before (Directory::holder_code() names both): directly where their words
  /// are mapped here, else by requests. When this was done for all holders that word 2 named after that, when
  /// they have answered, recall_own() was called and recalled() is true, then no put to the page is under way
  /// and none can begin before it is unlocked. A rank that does not know the location answers at once.
  void recall(comm::Blocking&, PageId, std::uint64_t holders, std::uint64_t without, comm::Requests&);
  void recall_own(PageId) noexcept;
  [[nodiscard]] bool recalled(PageId, std::uint64_t holders) const noexcept;

 private:
  using Word = std::atomic<std::uint64_t>;

  AddressCache(const Parts&, Word* words, comm::ReplyToken* reply_token);
  /// Pages stay where they are: nothing need be counted.
  [[nodiscard]] bool alone() const noexcept { return page_in_ == nullptr && transport_.ranks() == 1; }
  void end_use(PageId) noexcept;
  Rank begin_put(comm::Blocking&, PageId, bool& counted, Location* on_ssd);
  Rank begin_put_here(comm::Blocking&, PageId, bool& counted);
  /// What the directory answers when this rank sets its bit in word 2 and reads word 0, in one round trip.
  /// entry: this rank's entry before.
  struct DirectoryAnswer {
    std::uint64_t entry = 0, holders = 0, word = 0;
    bool registers = false;  ///< else only word 0 was read
  };
  void ask(comm::Blocking&, PageId, DirectoryAnswer&) const;
  /// Fills the entry (which is none), if the location may be kept.
  bool keep(PageId, const DirectoryAnswer&, AddressEvent wanted) const;
  /// As look(). Where an entry is used, `asked` stays unchanged.
  Found look(comm::Blocking&, PageId, DirectoryAnswer&);
  void page_in(comm::Blocking&, std::span<const PageId>, DirectoryAnswer*) const;
  [[nodiscard]] bool is_on_ssd(const Location&) const noexcept;
  [[nodiscard]] bool is_on_ssd_elsewhere(const Location&) const noexcept;
  static void take_back(Word&) noexcept;

  static void on_recall(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  const Directory& directory_;
  Word* words_;        ///< one a page
  const bool shared_;  ///< with peers: then the words live as long as the process
  Sharing* const sharing_;
  PageIn* const page_in_;
  std::vector<Word*> reach_;  ///< by rank: its words where they are mapped here, this rank's too; else null
  /// of each page: the reply token of a recall, valid while the entry is leaving
  comm::ReplyToken* reply_tokens_;
};

}  // namespace kasane::gas
