// SPDX-License-Identifier: Apache-2.0
// --check polling: a thread that reads a plain word again and again until another rank changes it, without
// any call that acquires, waits for ever: its rank keeps the copy that it has.
//
//   service thread   a worker has run the same thread for 2 s, and the thread has made no call ─▶ acquires
//                    for it, as it may at any time: copies of blocks that others have changed are dropped
//   fault handler    the next load of that thread faults on one of these ─▶ is the word that it loads another
//                    one than before? Then the thread is reported, with the word and its frames
//
// A thread that computes is told apart by that: without a data race it reads no word that another rank
// changes meanwhile. It costs such a thread a few fetches. Not found: a thread that polls memory of its own
// rank, and one whose first load from the block is of another word. The loop ends then, since the check has
// acquired.
//
// Thread safety: look() by the service thread; before() and after() in fault handlers.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "mem/space.h"
#include "runtime/rank/reported_once.h"
#include "ult/pool.h"

namespace kasane::runtime {

class PollingCheck {
 public:
  PollingCheck(const ult::Pool& pool, const mem::Space& space);

  /// Called about every 0.1 s. True: acquire now.
  [[nodiscard]] bool look(std::uint64_t now_ns) noexcept;
  /// The word that a load by the calling worker is about to fetch, if the worker is watched; else 0 and
  /// nothing happens in after().
  struct Watched {
    bool yes = false;
    std::uint64_t before = 0;
  };
  [[nodiscard]] Watched before(std::uint64_t offset) const noexcept;
  /// The block has arrived.
  void after(std::uint64_t offset, Watched) noexcept;

 private:
  struct Seen {
    SlotId slot = kNoSlot;
    std::uint32_t calls_left = 0;
    std::uint64_t activity = 0, since_ns = 0;
  };
  [[nodiscard]] std::uint64_t word_at(std::uint64_t offset) const noexcept;

  const ult::Pool& pool_;
  const mem::Space& space_;
  std::vector<Seen> seen_;                  ///< of each worker
  std::vector<std::atomic<bool>> watched_;  ///< of each worker
  ReportedOnce<64> reported_;               ///< addresses of words
};

}  // namespace kasane::runtime
