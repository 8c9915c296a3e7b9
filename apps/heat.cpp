// SPDX-License-Identifier: Apache-2.0
// Heat in a plate, step by step: neighbours exchange rows, and where their rows meet they write the same
// memory blocks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <kasane/team.hpp>
#include <string>
#include <utility>

#include "common/command_line.h"
#include "common/parallel.h"
#include "common/pieces.h"
#include "common/private_array.h"
#include "common/progress.h"
#include "common/report.h"
#include "grid.h"

namespace {

/// What a member of a team does: sets its rows in both plates (and so owns them), or steps them from one
/// plate to the other and back.
struct SetRows {
  apps::Grid grid;
  double *a, *b;
  void operator()(kasane::member& me) const {
    const auto [first, last] = me.part(0, grid.rows + 2);
    grid.set_rows(a, first, last);
    grid.set_rows(b, first, last);
  }
};
struct StepRows {
  apps::Grid grid;
  double *a, *b;
  std::uint64_t steps;
  void operator()(kasane::member& me) const {
    const auto [first, last] = me.part(0, grid.rows + 2);
    double *from = a, *to = b;
    for (std::uint64_t s = 0; s < steps; ++s, std::swap(from, to)) {
      grid.step_rows(to, from, std::max<std::size_t>(first, 1), std::min(last, grid.rows + 1));
      me.wait();
    }
  }
  [[nodiscard]] double* result() const noexcept { return steps % 2 == 0 ? a : b; }
};

/// The largest difference to the mode after `steps` steps.
double error_of(apps::Grid grid, const double* plate, std::uint64_t steps) {
  struct Largest {
    double value = 0;
    Largest operator+(Largest other) const noexcept { return {std::max(value, other.value)}; }
  };
  const double left = std::pow(grid.decay(), static_cast<double>(steps));
  return kasane::run([=] {
           return apps::sum_pieces<apps::Parallel>(
               1, grid.rows + 1, 16, [=](std::size_t first, std::size_t last) {
                 Largest error;
                 for (std::size_t i = first; i < last; ++i)
                   for (std::size_t j = 1; j <= grid.columns; ++j)
                     error = error + Largest{std::abs(plate[i * grid.pitch() + j] - left * grid.mode(i, j))};
                 return error;
               });
         })
      .value;
}

int run(int argc, char** argv) {
  apps::CommandLine line(
      "heat",
      "Explicit steps of heat in a plate of ROWS x COLUMNS points, whose rows are not aligned to pages");
  std::uint64_t rows = 1000, columns = 1000, steps = 100;
  line.number("--rows", rows, "Rows inside of the rim", 1, 1 << 20);
  line.number("--columns", columns, "Points of a row inside of the rim", 1, 1 << 20);
  line.number("--steps", steps, "Steps", 0, 1'000'000);
  if (auto status = line.parse(argc, argv)) return *status;
  const apps::Grid grid{rows, columns};

  apps::Report report(line);
  report.parameter("rows", rows);
  report.parameter("columns", columns);
  report.parameter("steps", steps);
  const auto plate = [&] {
    return kasane::make_array<double>(grid.points(),
                                      kasane::placement::first_touch.in_pages(kasane::page_small));
  };
  const auto a = plate(), b = plate();
  const StepRows step{grid, a.get(), b.get(), steps};
  {
    apps::Progress progress("heat", 0, line.common().quiet);
    for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
      kasane::team(SetRows{grid, a.get(), b.get()});
      report.measure([&] { kasane::team(step); });
    }
  }
  const double error = error_of(grid, step.result(), steps);
  report.result("error", error);
  // A rounding is at most 1.1e-16 of a temperature of at most 1; a step has some.
  report.verify(error <= 1e-15 * static_cast<double>(steps + 1),
                "off the exact solution of the difference equation by " + std::to_string(error));

  if (line.common().serial) {
    apps::PrivateArray<double> c(grid.points()), d(grid.points());
    const StepRows serial{grid, c.get(), d.get(), steps};
    kasane::team_of_one(SetRows{grid, c.get(), d.get()});
    report.measure_serial([&] { kasane::team_of_one(serial); });
    report.verify(std::memcmp(step.result(), serial.result(), grid.points() * sizeof(double)) == 0,
                  "the plate is not what the sequential elision gives, bit for bit");
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("heat", [&] { return run(argc, argv); });
}
