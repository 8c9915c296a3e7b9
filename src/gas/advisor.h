// SPDX-License-Identifier: Apache-2.0
// Tells every rank what the program has said of pages, since any of them may have bytes of them, now or later (kasane_advise, kasane_pin, kasane_evict).
//
//   who says it                    each rank's handler                       its pager
//   request {pages, what} ───────▶ hints: into the table, answered at once
//                                  leave: noted, the pager is rung ───────▶ lets go what can leave, answers
//
// Who waits for what: the program's thread waits for handlers and pagers, holding nothing; no pager waits for it.
//
// Thread safety: tell() from any thread; take() and left() by the pager. Handlers run in progress().
#pragma once

#include "base/notes.h"
#include "comm/blocking.h"
#include "gas/regions.h"
#include "mem/advice.h"
#include "mem/residency.h"

namespace kasane::gas {

class Advisor {
 public:
  enum class What : std::uint64_t { normal, sequential, random, once, hold, end_hold, leave };

  /// Sets kAdviceHandler.
  Advisor(comm::Transport&, mem::AdviceTable&, mem::Residency&);

  /// Returns when every rank has taken note, and, of `leave`, let go of what could leave at that moment.
  void tell(comm::Blocking&, mem::PageRange, What);

  /// Pages that are to leave, if there are such. Then left(), once.
  struct Leaving {
    mem::PageRange pages;
    comm::ReplyToken token{};
  };
  bool take(Leaving& leaving) noexcept { return leaving_.take(leaving); }
  [[nodiscard]] bool asked() const noexcept { return leaving_.any(); }
  void left(const Leaving&) noexcept;

  [[nodiscard]] const mem::AdviceTable& table() const noexcept { return table_; }

 private:
  static constexpr std::uint32_t kMost = 64;
  struct Said {
    mem::PageRange pages;
    What what;
  };

  static void on_advice(void* self, const comm::Message&) noexcept;
  void take_note(const Said&) noexcept;

  comm::Transport& transport_;
  mem::AdviceTable& table_;
  mem::Residency& residency_;
  Notes<Leaving, kMost> leaving_;
};

}  // namespace kasane::gas
