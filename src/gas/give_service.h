// SPDX-License-Identifier: Apache-2.0
// `give`: makes another rank the owner of pages, with their bytes. A page is always brought by the rank that
// takes it (gas/mover.h), so `give` is a request to that rank. The handler only queues it (rule 8); the
// rank's service thread brings the pages, some at a time, and answers when all are there.
//
//   giving rank                taker's handler           taker's service thread
//   request {first, pages} ──▶ queue it ────────────────▶ bring_all, kPagesPerTurn pages a turn
//        ◀──────────────────────────────────────────────── answer: 0, or why not and which page
//
// Waiting: the giving thread waits for the taker's service thread, holding nothing. That thread waits only
// for puts under way, for handlers, and for blocks that other threads of its rank hold, none of which waits
// for a service thread.
//
// Thread safety: give() from any thread; serve() by one thread; handlers run in progress().
#pragma once

#include "base/notes.h"
#include "gas/mover.h"

namespace kasane::gas {

class GiveService {
 public:
  /// Sets kGiveHandler.
  GiveService(comm::Transport&, Mover&);

  /// Returns when `to` owns the pages, or the first that it could not take.
  std::optional<MoveRefusal> give(comm::Blocking&, PageId first, std::uint64_t pages, Rank to);
  /// Called by the service thread: brings some pages of one request. True if there was something to do.
  bool serve(comm::Blocking&);

 private:
  /// Pages after which the service thread looks for other work.
  static constexpr std::uint64_t kPagesPerTurn = 32;
  static constexpr std::uint32_t kMost = 256;
  struct Request {
    PageId first;
    std::uint64_t pages;
  };
  struct Noted {
    Request request;
    comm::ReplyToken token;
  };

  static void on_give(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  Mover& mover_;
  Notes<Noted, kMost> noted_;
};

}  // namespace kasane::gas
