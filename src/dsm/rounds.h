// SPDX-License-Identifier: Apache-2.0
// Combines concurrent requests for the same whole-rank work (release_all, acquire_all). A caller is served by
// any round that *began* after its request, so of many callers at once one leads and the others wait for it.
//
// Argument: a caller reads began_ = n when it asks. Every round numbered > n begins after that read (rounds
// begin one at a time, under the lock word). So finished_ > n means that a whole round lies behind the
// request. seq_cst: what the caller did before its request is visible to the round, and what the round did is
// visible to the caller.
// Thread safety: any thread. The leader holds nothing but the right to lead, so waiting for it is waiting for
// its work only.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/waiter.h"

namespace kasane::dsm {

class Rounds {
 public:
  /// Runs work() itself or waits for a round that began later than this call. True if it led.
  template <class Work>
  bool join(comm::Waiter& waiter, const Work& work) {
    const std::uint64_t asked = began_.load();
    for (;;) {
      if (finished_.load() > asked) return false;
      if (!leading_.exchange(true)) {
        if (finished_.load() > asked) {  // a round ended between the two looks
          leading_.store(false);
          return false;
        }
        const std::uint64_t round = began_.fetch_add(1) + 1;
        work();
        finished_.store(round);
        leading_.store(false);
        return true;
      }
      waiter.until([&] { return finished_.load() > asked || !leading_.load(); });
    }
  }

  /// The number of the round that began last. A round with a higher number begins after a look at it.
  [[nodiscard]] const std::atomic<std::uint64_t>& began() const noexcept { return began_; }
  static constexpr std::uint64_t kBeforeFirst = 1;  ///< 0 is no number

 private:
  std::atomic<std::uint64_t> began_{kBeforeFirst};
  std::atomic<std::uint64_t> finished_{kBeforeFirst};
  std::atomic<bool> leading_{false};
};

}  // namespace kasane::dsm
