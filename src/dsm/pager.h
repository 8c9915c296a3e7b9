// SPDX-License-Identifier: Apache-2.0
// The pager: one thread of a rank that evicts pages before other threads run out of room, and pages in those
// of this rank that other ranks ask for.
//
//   woken ─▶ evict what the program named (gas/advisor.h) ─▶ page in what is asked for
//         ─▶ less than `low` free (or nearly twice that, where read-ahead is held back)?
//         ─▶ the policy names pages, 64 at a time, until twice that is free:
//              own pages are written to the spill file, together;
//              another rank's are dropped, if nothing of them is in use or unsent
//   now and then ─▶ page tables are measured; if they have grown, tables of ranges in which nothing is
//              visible are freed (mem/page_tables.h); stacks are measured too (mem/stack_frames.h)
//   pages that are used once are evicted before all others; pinned ones only if nothing else can be evicted
//   nothing could be evicted ─▶ threads that wait for room send their changes, then wake the pager again
//         ─▶ for kPatienceNs nothing could: the job ends with an error
//
// The policy is made when it is first needed. Until then the bits of mem/residency.h are the only cost.
//
// Thread safety: run() by one thread; stop() from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsm/coherence.h"
#include "gas/advisor.h"
#include "gas/tiers.h"
#include "mem/arming.h"
#include "mem/eviction_policy.h"
#include "mem/room.h"
#include "mem/turnover.h"

namespace kasane::dsm {

class Pager final : private mem::PageProbe {
 public:
  struct Config {
    /// the user asked for a limit; else a rank that cannot keep to it goes on without one
    bool limit_asked = false;
    std::vector<Rank> others;      ///< ranks of this host that share the budget
    std::uint64_t host_bytes = 0;  ///< the budget of all of its ranks, where they do not share it, too
    gas::Tiers::Fatal fatal = nullptr;
    void (*limit_lifted)(const char* why) = nullptr;  ///< called once
    void (*pins_break)() = nullptr;  ///< called once: pinned pages do not fit, so some of them are evicted
    /// called once: page tables and stacks take more than half of this rank's share
    void (*tables_crowd)(std::uint64_t tables, std::uint64_t stacks, std::uint64_t share) = nullptr;
    /// called once: the same pages leave and come back again and again
    void (*crawls)(const mem::Turnover::Crawl&, std::uint64_t share) = nullptr;
  };
  struct Threads {
    std::function<bool()> idle;  ///< are all threads of this rank idle?
    /// frees the frames of at most so many unused stacks; returns how many
    std::function<std::uint32_t(std::uint32_t most)> trim_stacks;
    std::function<void()> before_evictions;  ///< called once, before anything is evicted
  };
  struct Parts {
    comm::Transport& transport;
    Coherence& coherence;
    gas::Tiers& tiers;
    gas::Advisor& advisor;
    const gas::Directory& directory;
  };
  /// Sets kBudgetHandler.
  Pager(const Parts&, Config);

  void run(comm::Blocking&, const Threads&);
  void stop() noexcept;

 private:
  void arm(PageId page, std::uint32_t before) noexcept override;
  bool touched(PageId page) noexcept override;

  [[nodiscard]] bool ready();
  void take_entered();
  bool make_room(comm::Blocking&);
  /// Pages in the order in which they are evicted.
  struct Line {
    std::unique_ptr<mem::EvictionPolicy> policy;
    std::unique_ptr<mem::PageSet> known;  ///< pages that it holds
    std::uint32_t in = 0;                 ///< how many
  };
  enum class Pins : std::uint8_t { hold, break_them };
  void make(Line&, std::unique_ptr<mem::EvictionPolicy>);
  [[nodiscard]] mem::PageSet page_set() const;
  void enter(PageId, bool first);
  std::uint64_t evict(comm::Blocking&, std::uint64_t most, std::uint64_t urgent, Pins);
  struct Gone {
    std::uint64_t pages, young;  ///< young: blocks that stayed since they have just arrived
  };
  Gone evict(comm::Blocking&, Line&, std::uint64_t most, Pins);
  void evict_named(comm::Blocking&);
  void wake_others(comm::Blocking&);
  void finish(comm::Blocking&);
  static void forget(Line&, PageId) noexcept;
  void nothing_left();
  void lift_limit(const std::string& why);
  std::uint64_t note_need() noexcept;
  [[nodiscard]] std::uint64_t needed() const noexcept;
  void balance(comm::Blocking&);
  void note_idle(const Threads&);
  bool claims(comm::Blocking&, std::uint64_t wanted);
  void sleep(std::uint32_t rings);
  [[nodiscard]] bool pins_may_break() noexcept;
  void no_longer_short() noexcept;
  void serve(comm::Blocking&);
  bool serve_beside_pins(comm::Blocking&);
  void check_tables(Counters*);
  void note_tables(Counters*) const noexcept;
  void check_stacks(const Threads&, Counters*);
  void check_what_stays();
  void no_room_for_data();

  static void on_wake(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  Coherence& coherence_;
  gas::Tiers& tiers_;
  mem::Residency& residency_;
  gas::Advisor& advisor_;
  const gas::Directory& directory_;
  const Config config_;
  /// pages that are used once, and freed ones: they are evicted before all others. Made on demand
  Line first_;
  Line usual_;
  std::function<void()> before_evictions_;  ///< run()'s
  std::unique_ptr<mem::Arming> arming_;     ///< made with the usual line
  std::optional<mem::Turnover> turnover_;   ///< made with the usual line; none: a crawl was told
  std::uint32_t room_ = 0;                  ///< pages that a line can hold
  /// in this turn a page stayed since it has just arrived. The thread that waited for it is about to use it,
  /// so progress is made
  bool too_young_ = false;
  bool pins_hold_ = false;  ///< in this turn a page stayed only because it is pinned
  bool pins_broken_ = false, tables_crowd_ = false;
  std::uint64_t tables_most_ = 0;   ///< blocks: from so many on page tables are to be freed
  std::string why_;                 ///< why there is no spill file
  mem::Need need_;                  ///< what threads of this rank wait for
  std::uint64_t wanted_at_ns_ = 0;  ///< when one of them last asked
  /// blocks that other ranks are asked for since they belong to this rank's share, though no thread waits for
  /// them yet
  std::uint64_t claimed_ = 0;
  /// when that began, or when some were given; how much was held then
  std::uint64_t claimed_at_ns_ = 0, held_then_ = 0;
  /// when a thread last did something with this rank's pages, as far as is known
  std::uint64_t busy_at_ns_ = 0;
  std::uint64_t woken_others_ns_ = 0;  ///< when idle ranks were last asked to report it
  std::int64_t nap_ns_ = 0;            ///< length of the next nap, while something is unsettled
  /// since when room has been short without any being given; 0: it is not, or no thread waits
  std::uint64_t short_since_ns_ = 0;
  std::uint32_t tries_ = 0;  ///< attempts since then in which only pinned pages could have been evicted
  /// when another rank last asked for a pinned page for which there was no room
  std::uint64_t put_back_at_ns_ = 0;
  std::uint64_t stuck_since_ns_ = 0;  ///< since when nothing could be evicted; 0: something could
  std::atomic<bool> stop_{false};
};

}  // namespace kasane::dsm
