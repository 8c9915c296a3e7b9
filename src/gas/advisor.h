// SPDX-License-Identifier: Apache-2.0
// Tells every rank the program's advice on pages (kasane_advise, kasane_pin, kasane_evict), since any rank
// may have bytes of them, now or later.
//
//   the calling rank               each rank's handler                      its pager
//   request {pages, what} ───────▶ hints: into the table, answered at once
//                                  leave: queued, the pager is woken ─────▶ evicts what it can, answers
//
// Waiting: the program's thread waits for handlers and pagers, holding nothing; no pager waits for it.
//
// Thread safety: tell() from any thread; take() and report_evicted() by the pager. Handlers run in
// progress().
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

  /// Returns when every rank has stored the advice, and, for `leave`, has evicted what could be evicted at
  /// that moment.
  void tell(comm::Blocking&, mem::PageRange, What);

  /// Pages to be evicted, if there are any. Call report_evicted() once when it is done.
  struct EvictRequest {
    mem::PageRange pages;
    comm::ReplyToken token{};
  };
  bool take(EvictRequest& request) noexcept { return evict_requests_.take(request); }
  [[nodiscard]] bool asked() const noexcept { return evict_requests_.any(); }
  void report_evicted(const EvictRequest&) noexcept;

  [[nodiscard]] const mem::AdviceTable& table() const noexcept { return table_; }

 private:
  static constexpr std::uint32_t kMost = 64;
  struct Advice {
    mem::PageRange pages;
    What what;
  };

  static void on_advice(void* self, const comm::Message&) noexcept;
  void take_note(const Advice&) noexcept;

  comm::Transport& transport_;
  mem::AdviceTable& table_;
  mem::Residency& residency_;
  Notes<EvictRequest, kMost> evict_requests_;
};

}  // namespace kasane::gas
