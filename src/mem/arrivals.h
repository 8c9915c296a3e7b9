// SPDX-License-Identifier: Apache-2.0
// Pages that have come into DRAM since the pager last asked, and when they came: for the choice of what to
// evict.
//
//   a thread that fills a frame   note(page)        a bit, and 16 bits of a clock, set anew each time
//   the pager                    take(f)           f(page) in the order in which the pages came
//                                 just_came(page)   keep it for now: its reader needs time to use it
//
// Thread safety: note() and just_came() from any thread, fault handlers too; take() by one thread. A page
// that was never noted costs no memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "mem/block_table.h"

namespace kasane::mem {

class Arrivals {
 public:
  static Result<Arrivals> create(std::uint64_t pages);
  Arrivals(Arrivals&&) noexcept;
  Arrivals& operator=(Arrivals&&) = delete;
  ~Arrivals();

  /// The page, or a further part of it, has come into DRAM. A page that is noted already may have left
  /// meanwhile, so its time is always the last one.
  void note(PageId page) noexcept {
    ticks_[raw(page)].store(tick(), std::memory_order_relaxed);  // relaxed: a number
    if (!noted_.contains(page)) noted_.insert(page);
  }
  /// Calls f(page) for at most `most` pages that were noted since the last take(), in the order in which they
  /// came last, as far as a clock of kTickNs tells.
  template <class F>
  void take(const F& f, std::uint64_t most) {
    taken_.clear();
    const std::uint16_t now = tick();
    for (std::uint64_t p = noted_.next(0); p != ~std::uint64_t{0} && taken_.size() < most;
         p = noted_.next(p + 1)) {
      noted_.erase(PageId{p});
      taken_.push_back({age(PageId{p}, now), PageId{p}});
    }
    std::stable_sort(taken_.begin(), taken_.end(),
                     [](const Taken& x, const Taken& y) { return x.age > y.age; });
    for (const Taken& taken : taken_) f(taken.page);
  }
  /// Did it come less than about kYouthNs ago? Also true, by mistake, of a page that came a multiple of 17 s
  /// ago.
  [[nodiscard]] bool just_came(PageId page) const noexcept { return age(page, tick()) <= kYouthNs / kTickNs; }

 private:
  static constexpr std::uint64_t kTickNs = 1u << 18, kYouthNs = 1'000'000;
  using Tick = std::uint16_t;

  Arrivals(PageSet noted, std::atomic<Tick>* ticks, std::uint64_t pages) noexcept
      : noted_(std::move(noted)), ticks_(ticks), pages_(pages) {}
  [[nodiscard]] static Tick tick() noexcept { return static_cast<Tick>(now_ns() / kTickNs); }
  [[nodiscard]] Tick age(PageId page, Tick now) const noexcept {
    return static_cast<Tick>(now - ticks_[raw(page)].load(std::memory_order_relaxed));
  }

  struct Taken {
    Tick age;
    PageId page;
  };

  PageSet noted_;
  std::atomic<Tick>* ticks_;
  std::uint64_t pages_;
  std::vector<Taken> taken_;
};

}  // namespace kasane::mem
