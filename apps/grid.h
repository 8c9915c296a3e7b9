// SPDX-License-Identifier: Apache-2.0
// Heat in a plate whose rim is kept at zero: Jacobi's explicit steps on a grid of rows × columns inner
// points.
//
// Rows lie one after the other without padding, so few begin where a page or a block begins: where one
// thread's rows end and another's begin, both write the same block.
//
// The sine modes of the grid decay by a known factor a step, which makes every result checkable without
// another run.
// Thread safety: a call of step_rows writes its rows of `to` only.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>

namespace apps {

struct Grid {
  std::size_t rows, columns;  ///< inner points

  /// of the difference to each neighbour that a step evens out; stable below 0.25
  static constexpr double kShare = 0.2;
  /// Half waves of the mode along each side.
  static constexpr double kWavesDown = 3, kWavesAcross = 5;

  [[nodiscard]] std::size_t pitch() const noexcept { return columns + 2; }
  [[nodiscard]] std::size_t points() const noexcept { return (rows + 2) * pitch(); }

  [[nodiscard]] double mode(std::size_t row, std::size_t column) const noexcept {
    return wave(kWavesDown, row, rows) * wave(kWavesAcross, column, columns);
  }
  /// What is left of the mode after a step.
  [[nodiscard]] double decay() const noexcept {
    return 1 - kShare * (loss(kWavesDown, rows) + loss(kWavesAcross, columns));
  }

  /// Rows [first, last) of the plate, rim included, as they are at first.
  void set_rows(double* plate, std::size_t first, std::size_t last) const noexcept {
    for (std::size_t i = first; i < last; ++i)
      for (std::size_t j = 0; j < pitch(); ++j) plate[i * pitch() + j] = on_rim(i, j) ? 0 : mode(i, j);
  }
  /// Inner rows [first, last), counted from 1, one step on.
  void step_rows(double* to, const double* from, std::size_t first, std::size_t last) const noexcept {
    for (std::size_t i = first; i < last; ++i) {
      const double* const row = from + i * pitch();
      const double *const above = row - pitch(), *const below = row + pitch();
      double* const out = to + i * pitch();
      for (std::size_t j = 1; j <= columns; ++j)
        out[j] = row[j] + kShare * (above[j] + below[j] + row[j - 1] + row[j + 1] - 4 * row[j]);
    }
  }

 private:
  [[nodiscard]] bool on_rim(std::size_t i, std::size_t j) const noexcept {
    return i == 0 || i > rows || j == 0 || j > columns;
  }
  static double wave(double waves, std::size_t at, std::size_t of) noexcept {
    return std::sin(waves * std::numbers::pi * static_cast<double>(at) / static_cast<double>(of + 1));
  }
  static double loss(double waves, std::size_t of) noexcept {
    return 2 - 2 * std::cos(waves * std::numbers::pi / static_cast<double>(of + 1));
  }
};

}  // namespace apps
