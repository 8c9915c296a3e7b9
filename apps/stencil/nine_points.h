// SPDX-License-Identifier: Apache-2.0
// A 9-point stencil on a square plate, and how several steps of it are done in one pass over memory.
//
// Temporal blocking (k steps a pass): a thread goes down its rows once. When row i has come in, row i-1 can
// go one step on, row i-2 two, … and row i-k all k:
//
//      plate      ─▶ row i      of each level in between only three rows are kept (3 k rows, in private
//      level 1    row i-1       memory). So k steps read and write the plate once, and in place: nothing
//      …             …          needs row i-k any more when it is written (M. Wittmann, G. Hager et al.,
//      plate      row i-k       "Multicore-Aware Parallel Temporal Blocking of Stencil Codes for Shared and
//                               Distributed Memory": the compressed grid)
//
// Above and below its own rows a thread needs k rows of its neighbours as they were before the pass, of which
// it computes k-1, k-2, … once more: the widened halo. Each thread copies them, and begins when all have.
//
// Every other pass goes up: what the last pass wrote last is read first, while it is still in the fastest
// memory.
//
// Plain steps go from one plate to another: a row that has been read is not needed any more, and the next
// step overwrites it.
//
// The sine modes of the plate, whose rim is kept at zero, decay by a known factor a step, which makes every
// result checkable.
// Thread safety: a thread writes its own rows only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <utility>

#include "common/in_order.h"
#include "common/private_array.h"

namespace apps {

struct Plate {
  std::size_t n;  ///< inner rows and columns

  // Shares of a point, of the four beside it and of the four at its corners. Powers of two and their sums add
  // up without a rounding.
  static constexpr double kCentre = 0.5, kEdge = 0.09375, kCorner = 0.03125;
  static constexpr double kWavesDown = 3, kWavesAcross = 5;  ///< half waves of the mode
  /// of a point and a step: 8 additions, 3 multiplications
  static constexpr std::uint64_t kFlops = 11;

  [[nodiscard]] std::size_t pitch() const noexcept { return n + 2; }
  [[nodiscard]] std::size_t points() const noexcept { return pitch() * pitch(); }
  [[nodiscard]] double mode(std::size_t row, std::size_t column) const noexcept {
    return wave(kWavesDown, row) * wave(kWavesAcross, column);
  }
  /// What is left of the mode after a step.
  [[nodiscard]] double decay() const noexcept {
    const double down = std::cos(angle(kWavesDown)), across = std::cos(angle(kWavesAcross));
    return kCentre + 2 * kEdge * (down + across) + 4 * kCorner * down * across;
  }

  /// Rows [first, last), rim included, as they are at first.
  void set_rows(double* plate, std::size_t first, std::size_t last) const {
    PrivateArray<double> across(pitch());
    for (std::size_t j = 0; j < pitch(); ++j) across.get()[j] = j == 0 || j > n ? 0 : wave(kWavesAcross, j);
    for (std::size_t i = first; i < last; ++i) {
      const double down = i == 0 || i > n ? 0 : wave(kWavesDown, i);
      for (std::size_t j = 0; j < pitch(); ++j) plate[i * pitch() + j] = down * across.get()[j];
    }
  }

  enum class Order : bool { down, up };
  static constexpr Order kFirstOrder = Order::up;  ///< rows are set downwards, so the last ones are at hand
  [[nodiscard]] static constexpr Order opposite(Order o) noexcept {
    return o == Order::down ? Order::up : Order::down;
  }

  /// Rows [first, last) of [0, n + 2), one step on, from one plate to another. Pattern: patterns.h.
  template <class Pattern>
  void step_rows(double* to, const double* from, std::size_t first, std::size_t last, Order order) const;

  /// The rows of others that a thread needs to take its own, [first, last), some steps on: copies of their
  /// present values, in memory that moves with the thread.
  class Halo {
   public:
    /// Of a thread that has no neighbours.
    explicit Halo(const Plate& plate) noexcept : Halo(plate, 0, plate.pitch(), 0, nullptr) {}
    /// copies: of as many rows as size() says.
    Halo(const Plate& plate, std::size_t first, std::size_t last, std::size_t steps, double* copies) noexcept
        : pitch_(plate.pitch()),
          first_(first),
          last_(last),
          begin_(first - std::min(first, steps)),
          end_(std::min(pitch_, last + steps)),
          copies_(copies) {}
    [[nodiscard]] static std::size_t size(const Plate& plate, std::size_t steps) noexcept {
      return 2 * std::min(plate.pitch(), steps);
    }

    template <class Pattern>
    void copy(const double* rows) const {
      if (first_ >= last_) return;
      for (const auto& [begin, end] : {std::pair{begin_, first_}, std::pair{last_, end_}}) {
        if (begin == end) continue;
        Pattern::reads(rows + begin * pitch_, (end - begin) * pitch_);
        std::memcpy(row(begin), rows + begin * pitch_, (end - begin) * pitch_ * sizeof(double));
      }
    }

   private:
    friend struct Plate;
    [[nodiscard]] double* row(std::size_t i) const noexcept {
      return copies_ + (i < first_ ? i - begin_ : i - last_ + first_ - begin_) * pitch_;
    }
    std::size_t pitch_, first_, last_, begin_, end_;
    double* copies_;
  };
  /// The thread's own rows, `steps` steps on, in place and in one pass. No other thread copies a halo
  /// meanwhile.
  template <class Pattern>
  void advance_rows(double* rows, const Halo& halo, std::size_t steps, Order order) const;

 private:
  [[nodiscard]] double angle(double waves) const noexcept {
    return waves * std::numbers::pi / static_cast<double>(n + 1);
  }
  [[nodiscard]] double wave(double waves, std::size_t at) const noexcept {
    return std::sin(angle(waves) * static_cast<double>(at));
  }
  /// Row `row` one step on. The rim's rows stay.
  void advance_row(double* __restrict out, const double* __restrict above, const double* __restrict row,
                   const double* __restrict below) const noexcept {
    out[0] = row[0];
    for (std::size_t j = 1; j <= n; ++j) {
      out[j] = kCentre * row[j] + kEdge * (above[j] + row[j - 1] + row[j + 1] + below[j]) +
               kCorner * (above[j - 1] + above[j + 1] + below[j - 1] + below[j + 1]);
    }
    out[n + 1] = row[n + 1];
  }
};

template <class Pattern>
void Plate::step_rows(double* to, const double* from, std::size_t first, std::size_t last,
                      Order order) const {
  if (first >= last) return;
  const bool up = order == Order::up;
  const auto direction = up ? Direction::down : Direction::up;
  const std::size_t begin = first - std::min<std::size_t>(first, 1), end = std::min(pitch(), last + 1);
  // rows of `from` that no other thread reads
  const std::size_t own = std::min(last, first + 1), own_end = std::max(own, last - 1);
  InOrder reading(from + begin * pitch(), (end - begin) * pitch(), direction);
  InOrder writing(to + first * pitch(), (last - first) * pitch(), direction);
  InOrder leaving(from + own * pitch(), (own_end - own) * pitch(), direction);
  for (std::size_t done = 0; done < last - first; ++done) {
    const std::size_t i = up ? last - 1 - done : first + done;
    reading.reach((done + 3) * pitch(), [](const double* p, std::size_t count) { Pattern::reads(p, count); });
    writing.reach((done + 1) * pitch(), [](double* p, std::size_t count) { Pattern::overwrites(p, count); });
    if (i == 0 || i > n)
      std::memcpy(to + i * pitch(), from + i * pitch(), pitch() * sizeof(double));
    else
      advance_row(to + i * pitch(), from + (i - 1) * pitch(), from + i * pitch(), from + (i + 1) * pitch());
    if (done >= 2)
      leaving.pass((done - 2) * pitch(),
                   [](const double* p, std::size_t count) { Pattern::consumed(p, count); });
  }
  leaving.pass(points(), [](const double* p, std::size_t count) { Pattern::consumed(p, count); });
}

// In rows counted from where the pass begins: those of the plate, or of the plate upside down.
template <class Pattern>
void Plate::advance_rows(double* rows, const Halo& halo, std::size_t steps, Order order) const {
  if (halo.first_ >= halo.last_ || steps == 0) return;
  const bool up = order == Order::up;
  const std::size_t first = up ? pitch() - halo.last_ : halo.first_,
                    last = up ? pitch() - halo.first_ : halo.last_;
  const auto place = [&](std::size_t i) { return up ? pitch() - 1 - i : i; };
  // Of levels 1 … steps-1, row i in place i mod 3; of level 0, if it is the only one: the last step may not
  // overwrite what the next row needs.
  const std::size_t least = steps == 1 ? 0 : 1;
  PrivateArray<double> kept(std::max<std::size_t>(steps - 1, 1) * 3 * pitch());
  const auto kept_row = [&](std::size_t level, std::size_t i) {
    return kept.get() + ((level - least) * 3 + i % 3) * pitch();
  };
  const auto plate_row = [&](std::size_t i) -> const double* {
    return i < first || i >= last ? halo.row(place(i)) : rows + place(i) * pitch();
  };
  const auto row_of = [&](std::size_t level, std::size_t i) {
    return level < least ? plate_row(i) : kept_row(level, i);
  };
  // Rows that a level needs: `steps - level` more on each side than its own, as far as there are any.
  const auto begin_of = [&](std::size_t level) { return first - std::min(first, steps - level); };
  const auto end_of = [&](std::size_t level) { return std::min(pitch(), last + steps - level); };
  InOrder reaching(rows + halo.first_ * pitch(), (last - first) * pitch(),
                   up ? Direction::down : Direction::up);

  for (std::size_t i = begin_of(0); i < last + steps; ++i) {
    if (i >= first && i < last)
      reaching.reach((i + 1 - first) * pitch(),
                     [](double* p, std::size_t count) { Pattern::updates(p, count); });
    if (least == 0 && i < end_of(0)) std::memcpy(kept_row(0, i), plate_row(i), pitch() * sizeof(double));
    for (std::size_t level = 1; level <= steps && level <= i; ++level) {
      const std::size_t j = i - level;
      if (j < begin_of(level) || j >= end_of(level)) continue;
      double* const out = level == steps ? rows + place(j) * pitch() : kept_row(level, j);
      if (j == 0 || j > n)
        std::memcpy(out, row_of(level - 1, j), pitch() * sizeof(double));
      else
        advance_row(out, row_of(level - 1, up ? j + 1 : j - 1), row_of(level - 1, j),
                    row_of(level - 1, up ? j - 1 : j + 1));
    }
  }
}

}  // namespace apps
