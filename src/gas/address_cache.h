// SPDX-License-Identifier: Apache-2.0
// What this rank knows of where pages live, kept coherent with their moves (gas/address_cache_protocol.h; docs/design/gas.md): a get or put whose
// page's location is cached here costs one RMA and no look at the directory.
//
// One word a page (never in V), reserved and not committed: only words that were touched cost DRAM. Ranks of a host map each other's, and take a location back by themselves.
// Beside it one place a page for the answer that a recall by message is reply_token: a page moves once at a time, and its mover awaits every answer, so one is enough.
//
// Where the directory's words are mapped here, looking costs less than caching would: reads do so, and leave no location behind that a move had to take
// back. In a job of one rank whose pages stay in DRAM nothing moves, so nothing is cached.
//
// Thread safety: every call from any thread, given its own Blocking. Nothing allocates; usable in fault handlers.
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

/// Who brings pages in that are on SSD.
class PageIn {
 public:
  struct Request {
    PageId page;
    Rank owner;
    std::uint64_t word = 0;   ///< word 0 as it was found; then what its owner has made of it, where that is another rank
    bool hint = false;        ///< it will be wanted soon: its owner is told, and nobody waits
  };
  /// Returns when each page was brought in by its owner, or moves, or is no more than hinted at. The caller holds no use; of blocks none but of a page that another rank owns.
  virtual void page_in(comm::Blocking&, std::span<Request>) = 0;
  /// Are the page's frames counted? Then nobody is made its owner with a frame that it does not know of.
  [[nodiscard]] virtual bool counts(PageId) const noexcept = 0;
  /// The bytes of whole pages do not matter any more.
  virtual void forget(std::uint64_t offset, std::uint64_t bytes) noexcept = 0;

 protected:
  ~PageIn() = default;
};

class AddressCache {
 public:
  struct Parts {
    comm::Transport& transport;
    const Directory& directory;
    Sharing* sharing = nullptr;   ///< is told of pages that were put to directly; null: nobody is
    PageIn* page_in = nullptr;     ///< null: no page ever leaves DRAM
  };
  /// Sets kRecallHandler. Attaches kAddresses where peers are mapped: then it is collective.
  static Result<std::unique_ptr<AddressCache>> create(const Parts&);
  AddressCache(const AddressCache&) = delete;
  AddressCache& operator=(const AddressCache&) = delete;
  ~AddressCache();

  [[nodiscard]] const Directory& directory() const noexcept { return directory_; }
  /// Has a page brought in that its owner has on SSD.
  void page_in(comm::Blocking& io, PageId page, Rank owner) const {
    PageIn::Request request{page, owner};
    page_in_->page_in(io, {&request, 1});
  }

  /// Where a page begins that a rank comes to own without its help.
  [[nodiscard]] Tier initial_tier(PageId page) const noexcept { return page_in_ != nullptr && page_in_->counts(page) ? Tier::ssd : Tier::dram; }
  void forget(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (page_in_ != nullptr) page_in_->forget(offset, bytes);
  }

  /// Where a page was found by somebody who reads its frame next.
  struct Found {
    Rank owner = kNoRank;         ///< kNoRank: not allocated
    bool by_entry = false;        ///< through this rank's entry, else by word 0 of the directory
    std::uint64_t word = 0;       ///< of the entry, or word 0
  };
  /// Never waits for a move: a page that is just moving is read where it was. One on SSD is brought in first.
  Found find(comm::Blocking&, PageId);
  /// The same where it cannot be waited for: is_on_ssd() says that there is nothing to read.
  Found look(comm::Blocking&, PageId);
  [[nodiscard]] static bool is_on_ssd(const Found& found) noexcept {
    return !found.by_entry && found.owner != kNoRank && !readable(Location::of(found.word));
  }
  /// When the bytes are here: were they the page's? False: find() and read again; they may be those of a punched frame (rule 9).
  ///
  ///   do { found = find(io, page); read from found.owner; } while (!stood(io, page, found));
  bool stood(comm::Blocking&, PageId, const Found&) const;

  /// As find(), if that needs no communication; else its owner is kNoRank.
  Found find_here(comm::Blocking&, PageId);
  /// As stood(), if that needs no communication; else false. May be called in a completion.
  [[nodiscard]] bool stood_here(PageId, const Found&) const noexcept;

  /// Asks for the locations of all these pages at once, so that the calls that need them find them here: one round trip for all instead of each. At most
  /// kMostLearnt. What moves or is recalled meanwhile is not kept, and asked for again by who needs it. for_puts: also where the entry is read here anyway, which
  /// a put cannot do without. Those that their owners have on SSD are brought in, together: none, all, or the first, the others being hinted at. Then nothing is held, as
  /// for page_in().
  enum class PagesIn : std::uint8_t { none, all, first };
  static constexpr std::size_t kMostLearnt = 64;
  void learn(comm::Blocking&, std::span<const PageId>, bool for_puts, PagesIn);

  struct OnlyHere {};
  static constexpr OnlyHere kOnlyHere{};

  /// A put under way, during the life of this object. The constructor waits while the page moves. A mover waits for it: until it is destroyed, its thread must wait for
  /// nothing but room in comm's queues and the completion of its own writes to owner(), and by polling. A write that completes by a callback takes the use
  /// with it (hand_over), and its thread is free.
  class [[nodiscard]] Put {
   public:
    Put(AddressCache& cache, comm::Blocking& io, PageId page) : cache_(cache), page_(page), owner_(cache.begin_put(io, page, counted_, nullptr)) {}
    /// For who holds bits of the page's blocks, for which whoever brings it in would wait: one of this rank's own that is not in DRAM is not brought in. Then there is no put under way, and
    /// `at_home` is where it was found; else that stays as it is.
    Put(AddressCache& cache, comm::Blocking& io, PageId page, Location& at_home) : cache_(cache), page_(page), owner_(cache.begin_put(io, page, counted_, &at_home)) {}
    /// Only if the page's location is known here and it is not moving; else owner() is kNoRank.
    Put(AddressCache& cache, comm::Blocking& io, PageId page, OnlyHere) : cache_(cache), page_(page), owner_(cache.begin_put_here(io, page, counted_)) {}
    Put(const Put&) = delete;
    Put& operator=(const Put&) = delete;
    ~Put() {
      if (counted_) diff_ ? cache_.end_use(page_) : cache_.end_put(page_, parts_);
    }
    /// What is put is a diff: dsm says itself what of the page has changed.
    void is_diff() noexcept { diff_ = true; }
    /// It is put to these parts of the page only.
    void within(PartMask parts) noexcept { parts_ = parts; }
    /// kNoRank: the page is not allocated.
    [[nodiscard]] Rank owner() const noexcept { return owner_; }
    /// The use outlives this object. True: it is ended by end_put(), once, on any thread; false: there is none.
    [[nodiscard]] bool hand_over() noexcept { return std::exchange(counted_, false); }

   private:
    AddressCache& cache_;
    PageId page_;
    bool counted_ = false, diff_ = false;
    PartMask parts_ = kAllParts;
    Rank owner_;
  };

  /// Ends a use that was handed over: its bytes have arrived, so these parts of the page have changed. May run in a completion.
  void end_put(PageId, PartMask) noexcept;

  /// Takes the location of a page, which the caller has marked busy, from the other ranks of `holders` (holder_bit() of each): by itself where it reaches their words, else by
  /// requests. When that was done with all that word 2 named after the mark, they have answered, recall_own() was called and recalled() is true of them, no put to the page
  /// is under way and none can begin before the mark is taken away. Who is asked without knowing the location answers at once.
  void recall(comm::Blocking&, PageId, std::uint64_t holders, comm::Requests&);
  void recall_own(PageId) noexcept;
  [[nodiscard]] bool recalled(PageId, std::uint64_t holders) const noexcept;

 private:
  using Word = std::atomic<std::uint64_t>;

  AddressCache(const Parts&, Word* words, comm::ReplyToken* reply_token);
  /// Pages stay where they are: nothing need be counted.
  [[nodiscard]] bool alone() const noexcept { return page_in_ == nullptr && transport_.ranks() == 1; }
  void end_use(PageId) noexcept;
  Rank begin_put(comm::Blocking&, PageId, bool& counted, Location* at_home);
  Rank begin_put_here(comm::Blocking&, PageId, bool& counted);
  /// What the directory answers who sets its bit in word 2 and reads word 0, in one round trip; entry: what this rank's was before.
  struct Asked {
    std::uint64_t entry = 0, holders = 0, word = 0;
    bool registers = false;   ///< else word 0 alone was read
  };
  void ask(comm::Blocking&, PageId, Asked&) const;
  /// Fills the entry (none) from it, if it may be kept.
  bool keep(PageId, const Asked&, AddressEvent wanted) const;
  /// As look(); by an entry, `asked` stays as it is.
  Found look(comm::Blocking&, PageId, Asked&);
  void page_in(comm::Blocking&, std::span<const PageId>, Asked*, PagesIn) const;
  [[nodiscard]] bool is_on_ssd_elsewhere(const Location&) const noexcept;
  /// Calls f(rank) for those of `holders`.
  template <class F>
  void each_of(std::uint64_t holders, const F& f) const;
  static void take_back(Word&) noexcept;

  static void on_recall(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  const Directory& directory_;
  Word* words_;                ///< one a page
  const bool shared_;                 ///< with peers: then the words live as long as the process
  Sharing* const sharing_;
  PageIn* const page_in_;
  std::vector<Word*> reach_;   ///< by rank, where they are mapped here, this rank's too; else null
  comm::ReplyToken* reply_tokens_;     ///< of page p: meaningful while its entry is leaving
};

}  // namespace kasane::gas
