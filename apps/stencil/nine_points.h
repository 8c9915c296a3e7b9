// SPDX-License-Identifier: Apache-2.0
// A 9-point stencil on a square plate, and how several steps of it are done in one pass over memory.
//
// Temporal blocking (k steps a pass): a thread goes down its rows once. When row i has come in, row i-1 can go one step on, row i-2 two, … and row i-k all k:
//
//      from   ─▶ row i                       of each level in between only three rows are kept (3 k rows, in private memory); so k steps read the plate
//      level 1    row i-1                    once and write it once. Above and below its own rows the thread needs k rows of its neighbours, of which it
//      …             …                       computes k-1, k-2, … once more: the widened halo.
//      to            row i-k
//
// Every other pass goes up: what the last pass wrote last is read first, while it is still in the fastest memory. A row that has been read is not needed any more: the next
// pass overwrites it.
//
// The sine modes of the plate, whose rim is kept at zero, decay by a factor a step that is known exactly, which makes every result checkable.
// Thread safety: advance_rows writes its rows of `to` only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "common/in_order.h"
#include "common/private_array.h"

namespace apps {

struct Plate {
  std::size_t n;   ///< inner rows and columns

  // Shares of a point, of the four beside it and of the four at its corners. Powers of two and their sums add up without a rounding.
  static constexpr double kCentre = 0.5, kEdge = 0.09375, kCorner = 0.03125;
  static constexpr double kWavesDown = 3, kWavesAcross = 5;   ///< half waves of the mode
  static constexpr std::uint64_t kFlops = 11;                 ///< of a point and a step: 8 additions, 3 multiplications

  [[nodiscard]] std::size_t pitch() const noexcept { return n + 2; }
  [[nodiscard]] std::size_t points() const noexcept { return pitch() * pitch(); }
  [[nodiscard]] double mode(std::size_t row, std::size_t column) const noexcept { return wave(kWavesDown, row) * wave(kWavesAcross, column); }
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
  [[nodiscard]] static constexpr Order opposite(Order o) noexcept { return o == Order::down ? Order::up : Order::down; }
  /// Rows [first, last) of [0, n + 2), `steps` steps on, from plate `from` to plate `to`, in one pass. Pattern: patterns.h. halo: rows at both ends of its own that others read, too.
  template <class Pattern>
  void advance_rows(double* to, const double* from, std::size_t first, std::size_t last, std::size_t steps, Order order = Order::down, std::size_t halo = 0) const;

 private:
  [[nodiscard]] double angle(double waves) const noexcept { return waves * std::numbers::pi / static_cast<double>(n + 1); }
  [[nodiscard]] double wave(double waves, std::size_t at) const noexcept { return std::sin(angle(waves) * static_cast<double>(at)); }
  /// Row `row` one step on. The rim's rows stay.
  void advance_row(double* __restrict out, const double* __restrict above, const double* __restrict row, const double* __restrict below) const noexcept {
    out[0] = row[0];
    for (std::size_t j = 1; j <= n; ++j) {
      out[j] = kCentre * row[j] + kEdge * (above[j] + row[j - 1] + row[j + 1] + below[j]) +
               kCorner * (above[j - 1] + above[j + 1] + below[j - 1] + below[j + 1]);
    }
    out[n + 1] = row[n + 1];
  }
};

// In rows counted from where the pass begins: those of the plate, or of the plate upside down.
template <class Pattern>
void Plate::advance_rows(double* to, const double* from, std::size_t first, std::size_t last, std::size_t steps, Order order, std::size_t halo) const {
  if (first >= last || steps == 0) return;
  const bool up = order == Order::up;
  if (up) {
    const std::size_t begin = pitch() - last;
    last = pitch() - first;
    first = begin;
  }
  // The row, or the lowest address of several.
  const auto place = [&](std::size_t i, std::size_t rows = 1) { return (up ? pitch() - i - rows : i) * pitch(); };
  PrivateArray<double> kept((steps - 1) * 3 * pitch());   // of levels 1 … steps-1, row i in place i mod 3
  const auto kept_row = [&](std::size_t level, std::size_t i) { return kept.get() + ((level - 1) * 3 + i % 3) * pitch(); };
  const auto row_of = [&](std::size_t level, std::size_t i) { return level == 0 ? from + place(i) : kept_row(level, i); };
  // Rows that a level needs: `steps - level` more on each side than its own, as far as there are any.
  const auto begin_of = [&](std::size_t level) { return first - std::min(first, steps - level); };
  const auto end_of = [&](std::size_t level) { return std::min(pitch(), last + steps - level); };
  const auto in_order = [&](auto* plate, std::size_t begin, std::size_t end) {
    const std::size_t rows = end - std::min(begin, end);
    return InOrder(plate + place(begin, rows), rows * pitch(), up ? Direction::down : Direction::up);
  };
  auto reading = in_order(from, begin_of(0), end_of(0));
  auto writing = in_order(to, first, last);
  const std::size_t own = std::min(last, first + halo);   // rows of `from` that nobody else reads begin here
  auto leaving = in_order(from, own, last - std::min(last, halo));
  const auto reads = [](const double* p, std::size_t count) { Pattern::reads(p, count); };
  const auto overwrites = [](double* p, std::size_t count) { Pattern::overwrites(p, count); };
  const auto consumed = [](const double* p, std::size_t count) { Pattern::consumed(p, count); };

  for (std::size_t i = begin_of(0); i < last + steps; ++i) {
    if (i < end_of(0)) reading.reach((i + 1 - begin_of(0)) * pitch(), reads);
    if (i >= own + 2) leaving.pass((i - 2 - own) * pitch(), consumed);
    for (std::size_t level = 1; level <= steps && level <= i; ++level) {
      const std::size_t j = i - level;
      if (j < begin_of(level) || j >= end_of(level)) continue;
      if (level == steps) writing.reach((j + 1 - first) * pitch(), overwrites);
      double* const out = level == steps ? to + place(j) : kept_row(level, j);
      if (j == 0 || j > n)
        std::memcpy(out, row_of(level - 1, j), pitch() * sizeof(double));
      else if (up)
        advance_row(out, row_of(level - 1, j + 1), row_of(level - 1, j), row_of(level - 1, j - 1));
      else
        advance_row(out, row_of(level - 1, j - 1), row_of(level - 1, j), row_of(level - 1, j + 1));
    }
  }
  leaving.pass(points(), consumed);
}

}  // namespace apps
