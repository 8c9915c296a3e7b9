// SPDX-License-Identifier: Apache-2.0
// Decides how many blocks a fault takes: recognises sweeps (ascending, descending, with a stride) among the
// blocks at which a thread faults, and says how far each should go at once.
//
//   fault at 10 ─▶ 11 +12 ─▶ 13 +14…16 ─▶ 17 +18…24 ─▶ …   the second neighbour makes a sweep, up or down;
//                                                          twice as many each time
//            40 ─▶ 43 ─▶ 46 +49 ─▶ 52 +55,58,61 ─▶ …       a stride must be seen twice; a block elsewhere is
//                                                          taken alone
//            10 +11…24 ─▶ …                                where a sweep began it goes as far again at once:
//                                                          an epoch's faults are those of the one before
//            13 again +14…16                               a fault that is repeated, since its page first
//                                                          had to be made present, goes on as before
//
// A sweep may leave its page from the third fault on, if its last fault got blocks of another rank. Two
// neighbours, or two blocks of an object, do not justify looking up another page; and a thread that touches
// pages first, or sweeps over its rank's own pages, finds each page without help. A sweep that begins again
// leaves its page for no more blocks than it is known to have used, so blocks that were fetched in vain at
// its end are fetched only once.
//
// gas/read_ahead.h decides what is read ahead without waiting. Here nothing is outstanding: a fault waits
// once for all blocks that it takes, and reports what it got. The next fault of the sweep is expected at the
// first block that it did not get.
//
// Eight sweeps are kept; a new one replaces the one that had no fault for longest. A merge reads two arrays
// and writes a third, and a stride takes two entries until it is recognised.
//
// An acquire of the rank begins an epoch. Blocks that fault once in each epoch are no stride: they hold what
// other ranks have changed, or what is stored to for them, and fetching their neighbours would cause useless
// notices.
//
// Thread safety: none, each thread has its own. Pure: only numbers go in and out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace kasane::dsm {

class Sweeps {
 public:
  static constexpr std::uint32_t kMost = 16;        ///< blocks that a fault takes
  static constexpr std::int64_t kMostStride = 256;  ///< blocks: as many are half of the largest page

  class Sweep {
   public:
    /// Blocks that this fault takes, its own included, and the distance between them.
    [[nodiscard]] std::uint32_t blocks() const noexcept { return blocks_; }
    [[nodiscard]] std::int64_t stride() const noexcept { return young() ? 1 : stride_; }
    /// How many of them, its own included, may lie in other pages too.
    [[nodiscard]] std::uint32_t beyond_page() const noexcept { return beyond_; }
    /// Treats the sweep as if it began with this fault.
    void shorten() noexcept {
      first_ = last_;
      stride_ = 0;
      blocks_ = 1;
    }
    /// The fault has taken so many blocks. It may be more than blocks(): then they cost nothing.
    void took(std::uint32_t blocks) noexcept {
      expected_ = last_ + blocks * stride();
      if (blocks <= blocks_) return;
      stride_ = stride();
      blocks_ = blocks;
    }
    /// The fault has got blocks of another rank.
    void served() noexcept { served_ = true; }

   private:
    friend Sweeps;

    /// It consists of one fault, perhaps the first of a sweep.
    [[nodiscard]] bool young() const noexcept { return blocks_ == 1; }
    [[nodiscard]] bool matches(std::int64_t at, std::uint64_t epoch) const noexcept {
      if (used_ == 0) return false;
      if (again_ && at == last_) return true;
      return young() ? std::abs(at - last_) == 1 || (stride_ != 0 && at == last_ + stride_ && epoch_ == epoch)
                     : at == expected_;
    }
    void go_on(std::int64_t at, std::uint32_t growth) noexcept {
      const bool leaves = std::exchange(served_, false) && (!young() || at == last_ + stride_),
                 was_young = young();
      beyond_ = 0;
      if (std::exchange(again_, false) && at == last_) return;
      if (young() && at == last_ + stride_)
        first_ = last_ - stride_;
      else if (young())
        stride_ = at - last_;
      blocks_ = std::min(blocks_ * growth, kMost);
      if (leaves) beyond_ = blocks_;
      if (was_young || (at - furthest_) / stride_ > 0) furthest_ = at;
    }
    void begin_again() noexcept {
      blocks_ = static_cast<std::uint32_t>(std::min<std::int64_t>(length(), kMost));
      // Not all that the last fault took may have been used.
      const std::int64_t sure = (furthest_ - first_) / stride_ + 1;
      beyond_ = std::exchange(served_, false)
                    ? static_cast<std::uint32_t>(std::min<std::int64_t>(sure, blocks_))
                    : 0;
    }
    /// Blocks from its first one to the expected one.
    [[nodiscard]] std::int64_t length() const noexcept {
      return young() ? 1 : (expected_ - first_) / stride_;
    }

    std::int64_t first_ = 0, last_ = 0, expected_ = 0;  ///< last: its last fault
    std::int64_t stride_ = 0;  ///< young: distance from the fault before to the last one; 0: there was none
    std::uint32_t blocks_ = 1;
    std::uint64_t used_ = 0;     ///< 0: never
    std::uint64_t epoch_ = 0;    ///< young: the epoch of its fault
    bool again_ = false;         ///< its last fault got nothing and will be repeated
    std::int64_t furthest_ = 0;  ///< of all its faults, also after it began again
    bool served_ = false;
    std::uint32_t beyond_ = 0;
  };

  /// The sweep that a fault at `block` continues or begins. A sweep that continues takes `growth` times as
  /// many blocks as before. epoch: the number of acquires so far.
  [[nodiscard]] Sweep& match(std::uint64_t block, std::uint32_t growth, std::uint64_t epoch) noexcept {
    const auto at = static_cast<std::int64_t>(block);
    // Several may be left of earlier sweeps over the same memory: prefer the one that takes most, then the
    // newest.
    Sweep* met = best([&](const Sweep& s) { return s.matches(at, epoch); },
                      [](const Sweep& x, const Sweep& y) {
                        return std::pair{x.blocks_, x.used_} > std::pair{y.blocks_, y.used_};
                      });
    if (met != nullptr) {
      met->go_on(at, growth);
    } else {
      met = best([&](const Sweep& s) { return s.used_ != 0 && s.first_ == at; },
                 [](const Sweep& x, const Sweep& y) { return x.length() > y.length(); });
      if (met != nullptr && met->length() > 1) {
        met->begin_again();
      } else {
        if (met == nullptr)
          met = best([](const Sweep&) { return true; },
                     [](const Sweep& x, const Sweep& y) { return x.used_ < y.used_; });
        begin(*met, at, epoch);
      }
    }
    met->last_ = at;
    met->used_ = ++clock_;
    last_ = static_cast<std::size_t>(met - sweeps_.data());
    return *met;
  }

  /// The sweep of the last fault.
  [[nodiscard]] Sweep& last() noexcept { return sweeps_[last_]; }
  /// The last fault has not been served and will be repeated.
  void will_repeat() noexcept { last().again_ = true; }

 private:
  /// The fault may be the second of a sweep with a stride, after the nearest one. The sweep of that one
  /// stays, since it may be another.
  void begin(Sweep& sweep, std::int64_t at, std::uint64_t epoch) noexcept {
    const auto fits = [&](const Sweep& s) {
      return &s != &sweep && s.used_ != 0 && s.young() && s.epoch_ == epoch &&
             std::abs(at - s.last_) <= kMostStride;
    };
    const Sweep* near = best(fits, [&](const Sweep& x, const Sweep& y) {
      return std::abs(at - x.last_) < std::abs(at - y.last_);
    });
    const std::int64_t stride = near != nullptr ? at - near->last_ : 0;
    sweep = {};
    sweep.first_ = sweep.furthest_ = at;
    sweep.stride_ = stride;
    sweep.epoch_ = epoch;
  }

  template <class Fits, class Better>
  [[nodiscard]] Sweep* best(const Fits& fits, const Better& better) noexcept {
    Sweep* found = nullptr;
    for (Sweep& s : sweeps_) {
      if (fits(s) && (found == nullptr || better(s, *found))) found = &s;
    }
    return found;
  }

  std::array<Sweep, 8> sweeps_;
  std::size_t last_ = 0;  ///< index in sweeps_
  std::uint64_t clock_ = 0;
};

}  // namespace kasane::dsm
