// SPDX-License-Identifier: Apache-2.0
// The pager of a rank's budget: one thread that lets pages leave DRAM before others run out of room, and brings in those of this rank's that other ranks ask for.
//
//   rung ─▶ let go of what the program says (gas/advisor.h) ─▶ bring in what is asked for ─▶ is less than `low` left (or nearly twice that, where a sweep is held back)? ─▶ the policy names pages, 64 at a time, until twice that is left:
//             ours: to the spill file, together          another rank's: dropped, if nothing of it is in use or unsent
//   now and then ─▶ page tables are measured; have they grown, those of ranges in which nothing is visible go back (mem/page_tables.h); so are stacks (mem/stack_frames.h)
//   pages that are used once go before all others; pinned ones only if nothing else can
//   nothing could leave ─▶ who waits for room sends its changes, then rings again ─▶ for kPatience nothing could: the job ends, with the numbers
//
// The policy is made when it is first needed; until then nothing costs anything but the bits of mem/residency.h.
//
// Thread safety: run() is a thread's; stop() from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dsm/coherence.h"
#include "gas/advisor.h"
#include "gas/tiers.h"
#include "mem/arming.h"
#include "mem/eviction.h"
#include "mem/room.h"

namespace kasane::dsm {

class Pager final : private mem::PageProbe {
 public:
  struct Config {
    bool limit_asked = false;              ///< by whoever started the job: else a rank that cannot keep to it goes on without a limit
    std::vector<Rank> others;              ///< of this host: who shares the budget
    gas::Tiers::Fatal fatal = nullptr;
    void (*limit_lifted)(const char* why) = nullptr;   ///< once
    void (*pins_break)() = nullptr;   ///< once: what is pinned does not fit, so pages of it leave
    void (*tables_crowd)(std::uint64_t tables, std::uint64_t stacks, std::uint64_t share) = nullptr;   ///< once: tables and stacks take more than half of this rank's share
  };
  struct Threads {
    std::function<bool()> idle;                                  ///< do this rank's threads do nothing?
    std::function<std::uint32_t(std::uint32_t most)> trim_stacks;   ///< gives back frames of so many free stacks; how many it were
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
  void arm(PageId page, std::uint32_t before) noexcept override { arming_->arm(page, before); }
  bool touched(PageId page) noexcept override;

  [[nodiscard]] bool ready();
  void take_entered();
  bool make_room(comm::Blocking&);
  /// Pages in the order in which they leave.
  struct Line {
    std::unique_ptr<mem::EvictionPolicy> policy;
    std::unique_ptr<mem::PageSet> known;   ///< pages that it holds
    std::uint32_t in = 0;                   ///< how many
  };
  enum class Pins : std::uint8_t { hold, break_them };
  void make(Line&, std::unique_ptr<mem::EvictionPolicy>);
  [[nodiscard]] mem::PageSet page_set() const;
  void enter(PageId);
  void enter(PageId, bool first);
  std::uint64_t evict(comm::Blocking&, std::uint64_t most, std::uint64_t urgent, Pins);
  struct Gone {
    std::uint64_t pages, young;   ///< young: blocks that stayed for being it
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
  Line first_;    ///< pages that are used once, and freed ones: they leave before all others. Made when there is one
  Line usual_;
  std::unique_ptr<mem::Arming> arming_;   ///< made with the usual line
  std::uint32_t room_ = 0;   ///< pages that a line can hold
  bool too_young_ = false;   ///< a page stayed for that, in this turn: whoever waited for it comes to use it, so somebody always gets on
  bool pins_hold_ = false;   ///< a page stayed for nothing else, in this turn
  bool pins_broken_ = false, tables_crowd_ = false;
  std::uint64_t tables_most_ = 0;     ///< blocks: from so many on page tables are to go back
  std::string why_;                   ///< there is no spill file
  mem::Need need_;                     ///< what threads of this rank wait for
  std::uint64_t wanted_at_ns_ = 0;     ///< when one of them last wanted it
  std::uint64_t claimed_ = 0;          ///< blocks that others are asked for since they are this rank's by right, though nobody waits for them yet
  std::uint64_t claimed_at_ns_ = 0, held_then_ = 0;   ///< when that began, or some came; and what was held
  std::uint64_t busy_at_ns_ = 0;       ///< when somebody last did something with this rank's pages, as far as is known
  std::uint64_t woken_others_ns_ = 0;  ///< when idle ranks were asked to say so
  std::int64_t nap_ns_ = 0;            ///< the next one, while something is unsettled
  std::uint64_t short_since_ns_ = 0;   ///< since when they have not been there, and nobody got any; 0: they are, or nobody waits
  std::uint32_t tries_ = 0;            ///< since then, in which nothing but pinned pages could have left
  std::uint64_t put_back_at_ns_ = 0;   ///< when another rank last asked for a pinned page for which there was no room
  std::uint64_t stuck_since_ns_ = 0;   ///< 0: it is not
  std::atomic<bool> stop_{false};
};

}  // namespace kasane::dsm
