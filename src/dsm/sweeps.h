// SPDX-License-Identifier: Apache-2.0
// What comes along with a fault: recognises sweeps (ascending, descending, with a stride) among the blocks at which a thread
// faults, and says how far each deserves to go at once.
//
//   fault at 10 ─▶ 11 +12 ─▶ 13 +14…16 ─▶ 17 +18…24 ─▶ …    the second neighbour makes a sweep, up or down; twice as many each time
//            40 ─▶ 43 ─▶ 46 +49 ─▶ 52 +55,58,61 ─▶ …        a stride needs to be seen twice; a block elsewhere brings nothing but itself
//            10 +11…24 ─▶ …                                 where a sweep began it goes as far again at once: an epoch's faults
//                                                           are those of the epoch before
//            13 again +14…16                                a fault that comes again, since its page first had to be made present, goes on as it did
//
// It may leave its page from the third fault on, if the last one got blocks of another rank: two neighbours, or two blocks of an object, make no other page
// worth finding; and who touches pages first, or sweeps over its own, finds each by itself. Where it begins again it leaves its page for no more than it is
// known to have used, so that what came in vain at its end comes once.
//
// gas/read_ahead.h has what is sent for and not waited for, and keeps ahead of who asks. Here nothing is on its way: a fault waits
// once, for all that it takes, and says what it got; the next one is expected at the first block that it did not get.
//
// Eight at once, in place of the one that had no fault for longest: a merge reads two arrays and writes a third, and a stride takes
// two until it is known.
//
// An acquire of the rank begins an epoch. A block now and another then, one an epoch, is no stride: it is what others have changed,
// or what is stored to for them, and its neighbours would be told of in vain.
//
// Thread safety: none, each thread has its own. Pure: nothing but numbers goes in and out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace kasane::dsm {

class Sweeps {
 public:
  static constexpr std::uint32_t kMost = 16;          ///< blocks that a fault takes
  static constexpr std::int64_t kMostStride = 256;    ///< blocks: as many are half of the largest page

  class Sweep {
   public:
    /// Blocks that this fault is to take, its own among them, and from one to the next.
    [[nodiscard]] std::uint32_t blocks() const noexcept { return blocks_; }
    [[nodiscard]] std::int64_t stride() const noexcept { return young() ? 1 : stride_; }
    /// So many of them may lie in other pages, too, its own among them.
    [[nodiscard]] std::uint32_t beyond_page() const noexcept { return beyond_; }
    /// As though it had only begun with this fault.
    void shorten() noexcept {
      first_ = last_;
      stride_ = 0;
      blocks_ = 1;
    }
    /// The fault has taken so many; more than it was to take: they cost nothing.
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

    /// One fault, perhaps the first of a sweep.
    [[nodiscard]] bool young() const noexcept { return blocks_ == 1; }
    [[nodiscard]] bool meets(std::int64_t at, std::uint64_t epoch) const noexcept {
      if (used_ == 0) return false;
      if (again_ && at == last_) return true;
      return young() ? std::abs(at - last_) == 1 || (stride_ != 0 && at == last_ + stride_ && epoch_ == epoch) : at == expected_;
    }
    void go_on(std::int64_t at, std::uint32_t growth) noexcept {
      const bool leaves = std::exchange(served_, false) && (!young() || at == last_ + stride_), was_young = young();
      beyond_ = 0;
      if (std::exchange(again_, false) && at == last_) return;
      if (young() && at == last_ + stride_) first_ = last_ - stride_;
      else if (young()) stride_ = at - last_;
      blocks_ = std::min(blocks_ * growth, kMost);
      if (leaves) beyond_ = blocks_;
      if (was_young || (at - furthest_) / stride_ > 0) furthest_ = at;
    }
    void begin_again() noexcept {
      blocks_ = static_cast<std::uint32_t>(std::min<std::int64_t>(length(), kMost));
      // What the last fault took may not have been used.
      const std::int64_t sure = (furthest_ - first_) / stride_ + 1;
      beyond_ = std::exchange(served_, false) ? static_cast<std::uint32_t>(std::min<std::int64_t>(sure, blocks_)) : 0;
    }
    /// Blocks from its first one to where it is expected.
    [[nodiscard]] std::int64_t length() const noexcept { return young() ? 1 : (expected_ - first_) / stride_; }

    std::int64_t first_ = 0, last_ = 0, expected_ = 0;   ///< last: its last fault
    std::int64_t stride_ = 0;                            ///< young: how far before last another fault was; 0: there was none
    std::uint32_t blocks_ = 1;
    std::uint64_t used_ = 0;                             ///< 0: never
    std::uint64_t epoch_ = 0;                            ///< young: of its fault
    bool again_ = false;                                 ///< its last fault got nothing, and comes again
    std::int64_t furthest_ = 0;                          ///< of all its faults, also when it began again
    bool served_ = false;
    std::uint32_t beyond_ = 0;
  };

  /// The sweep that a fault at `block` goes on with, or begins. One that goes on is to take `growth` times as many blocks as before.
  /// epoch: how many acquires there were.
  [[nodiscard]] Sweep& meet(std::uint64_t block, std::uint32_t growth, std::uint64_t epoch) noexcept {
    const auto at = static_cast<std::int64_t>(block);
    // Several may be left of earlier sweeps over the same memory: the one that takes most, then the newest.
    Sweep* met = best([&](const Sweep& s) { return s.meets(at, epoch); },
                      [](const Sweep& x, const Sweep& y) { return std::pair{x.blocks_, x.used_} > std::pair{y.blocks_, y.used_}; });
    if (met != nullptr) {
      met->go_on(at, growth);
    } else {
      met = best([&](const Sweep& s) { return s.used_ != 0 && s.first_ == at; }, [](const Sweep& x, const Sweep& y) { return x.length() > y.length(); });
      if (met != nullptr && met->length() > 1) {
        met->begin_again();
      } else {
        if (met == nullptr) met = best([](const Sweep&) { return true; }, [](const Sweep& x, const Sweep& y) { return x.used_ < y.used_; });
        begin(*met, at, epoch);
      }
    }
    met->last_ = at;
    met->used_ = ++clock_;
    last_ = static_cast<std::size_t>(met - sweeps_.data());
    return *met;
  }

  /// The sweep of the last fault that was met.
  [[nodiscard]] Sweep& last() noexcept { return sweeps_[last_]; }
  /// That fault has not been served, and comes again.
  void comes_again() noexcept { last().again_ = true; }

 private:
  /// Perhaps it is the second fault of a sweep with a stride, after the nearest one; whose sweep stays, since it may be another.
  void begin(Sweep& sweep, std::int64_t at, std::uint64_t epoch) noexcept {
    const auto fits = [&](const Sweep& s) {
      return &s != &sweep && s.used_ != 0 && s.young() && s.epoch_ == epoch && std::abs(at - s.last_) <= kMostStride;
    };
    const Sweep* near = best(fits, [&](const Sweep& x, const Sweep& y) { return std::abs(at - x.last_) < std::abs(at - y.last_); });
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
  std::size_t last_ = 0;   ///< of sweeps_
  std::uint64_t clock_ = 0;
};

}  // namespace kasane::dsm
