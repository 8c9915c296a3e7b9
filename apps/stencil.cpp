// SPDX-License-Identifier: Apache-2.0
// A 9-point stencil, plain and with temporal blocking, after the out-of-core experiments with ComEx-PM
// (Global Arrays' communication layer, swapping to SSD), whose figure 6 shows Flop/s against N for one step
// and for ten steps a block.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <kasane/checkpoint.hpp>
#include <kasane/team.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/pieces.h"
#include "common/private_array.h"
#include "common/progress.h"
#include "common/report.h"
#include "stencil/nine_points.h"
#include "stencil/picture.h"

namespace {

/// The grid; plain steps go to another and back.
struct Grids {
  double *a, *b;  ///< b null: in place
  double* halos;  ///< then: of each member, as many rows as Halo::size says
};

struct SetRows {
  apps::Plate plate;
  Grids grids;
  /// For apps::Progress: rows that the first of so many members sets.
  [[nodiscard]] std::uint64_t steps(std::size_t members) const noexcept {
    return (grids.b != nullptr ? 2 : 1) * kasane::member(0, members).part(0, plate.pitch()).last;
  }
  void operator()(kasane::member& me) const {
    constexpr std::size_t kTogether = 256;  // rows, after which the progress shows
    const auto [first, last] = me.part(0, plate.pitch());
    for (double* const all : {grids.a, grids.b}) {
      if (all == nullptr) continue;
      for (std::size_t i = first; i < last; i += kTogether) {
        const std::size_t end = std::min(i + kTogether, last);
        plate.set_rows(all, i, end);
        if (me.index() == 0) apps::Progress::add(end - i);
      }
    }
  }
};

/// Steps from grid a on: to grid b and back, one a pass, or in place, `together` a pass.
struct Advance {
  apps::Plate plate;
  Grids grids;
  std::uint64_t steps, together;

  [[nodiscard]] double* result() const noexcept {
    return grids.b == nullptr || steps % 2 == 0 ? grids.a : grids.b;
  }

  template <class Pattern>
  void run(kasane::member& me) const {
    const auto [first, last] = me.part(0, plate.pitch());
    double *from = grids.a, *to = grids.b;
    const std::size_t halo_size = apps::Plate::Halo::size(plate, together) * plate.pitch();
    auto order = apps::Plate::kFirstOrder;
    for (std::uint64_t done = 0; done < steps; order = apps::Plate::opposite(order)) {
      const std::uint64_t now = to == nullptr ? std::min(together, steps - done) : 1;
      if (to == nullptr) {
        const apps::Plate::Halo halo(plate, first, last, now, grids.halos + me.index() * halo_size);
        halo.copy<Pattern>(from);
        me.wait();
        plate.advance_rows<Pattern>(from, halo, now, order);
      } else {
        plate.step_rows<Pattern>(to, from, first, last, order);
        std::swap(from, to);
      }
      me.wait();
      done += now;
      if (me.index() == 0) apps::Progress::add(now);
    }
  }
  void operator()(kasane::member& me) const { run<apps::Parallel>(me); }
};
struct AdvanceAlone : Advance {
  void operator()(kasane::member& me) const { run<apps::Serial>(me); }
};

constexpr std::size_t kCheckedTogether = 16;  // rows

/// The largest difference to the mode after `steps` steps.
double error_of(apps::Plate plate, const double* values, std::uint64_t steps) {
  struct Largest {
    double value = 0;
    Largest operator+(Largest other) const noexcept { return {std::max(value, other.value)}; }
  };
  const double left = std::pow(plate.decay(), static_cast<double>(steps));
  return kasane::run([=] {
           return apps::sum_pieces<apps::Parallel>(
               1, plate.n + 1, kCheckedTogether, [=](std::size_t first, std::size_t last) {
                 Largest error;
                 apps::PrivateArray<double> mode((last - first) * plate.pitch());
                 plate.set_rows(mode.get() - first * plate.pitch(), first, last);
                 apps::Parallel::reads(values + first * plate.pitch(), (last - first) * plate.pitch());
                 for (std::size_t i = 0; i < (last - first) * plate.pitch(); ++i)
                   error =
                       error + Largest{std::abs(values[first * plate.pitch() + i] - left * mode.get()[i])};
                 return error;
               });
         })
      .value;
}

struct Checkpoints {
  std::string file;
  std::uint64_t every = 0;
  double seconds = 0;  ///< in them
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// From step `done` on to step `steps`, with a checkpoint every so many. The grid with the result.
double* advance(const Advance& all, std::uint64_t done, Checkpoints& checkpoints) {
  Grids grids = all.grids;
  while (done < all.steps) {
    const std::uint64_t most =
        checkpoints.every != 0 ? checkpoints.every - done % checkpoints.every : all.steps;
    const Advance part{all.plate, grids, std::min(most, all.steps - done), all.together};
    kasane::team(part);
    done += part.steps;
    if (part.result() != grids.a) std::swap(grids.a, grids.b);
    if (checkpoints.every == 0) continue;
    const double start = now();
    kasane::persist(grids.a, all.plate.points(), checkpoints.file, done);
    checkpoints.seconds += now() - start;
  }
  return grids.a;
}

int run(int argc, char** argv) {
  apps::CommandLine line("stencil",
                         "Steps of a 9-point stencil on an N x N grid of doubles, one step a pass or several "
                         "(temporal blocking)");
  std::uint64_t n = 2000, steps = 20, together = 10, every = 0;
  std::string checkpoint, picture;
  line.number("-n,--n", n,
              "Rows and columns inside of the rim; the program keeps one such grid, for plain steps two", 1,
              1 << 20);
  line.number("--steps", steps, "Steps", 0, 1'000'000);
  line.number("-k,--together", together, "Steps a pass over memory, in place; 1: no temporal blocking", 1,
              1000);
  line.text("--checkpoint", checkpoint, "Go on from this file, if it is there, and save the grid to it");
  line.number("--every", every, "Save it after so many steps (0: at the end only)", 0, 1'000'000);
  line.text("--picture", picture, "Draw the result: a PGM file");
  line.needs("--every", "--checkpoint");
  line.exclusive("--checkpoint", "--repeat");
  if (auto status = line.parse(argc, argv)) return *status;
  const bool goes_on = !checkpoint.empty() && std::filesystem::exists(checkpoint);
  const std::uint64_t first = goes_on ? kasane::describe_checkpoint(checkpoint).note : 0;
  if (first > steps)
    throw std::runtime_error(checkpoint + " holds the grid after step " + std::to_string(first) +
                             ", beyond --steps " + std::to_string(steps) +
                             ": take at least as many steps, or another file");
  const apps::Plate plate{n};

  apps::Report report(line);
  report.parameter("n", n);
  report.parameter("steps", steps);
  report.parameter("together", together);
  const auto where = kasane::placement::first_touch;
  const auto a = kasane::make_array<double>(plate.points(), where),
             b = together == 1 ? kasane::make_array<double>(plate.points(), where) : nullptr;
  const auto halos = together == 1
                         ? nullptr
                         : kasane::make_array<double>(apps::Plate::Halo::size(plate, together) *
                                                          plate.pitch() * kasane::ranks() * kasane::workers(),
                                                      where);
  const Grids grids{a.get(), b.get(), halos.get()};
  const Advance all{plate, grids, steps, together};
  // Where more than fits is passed over in both directions, what came first is best evicted first: a pass
  // begins with what the last one brought in.
  for (double* const grid : {grids.a, grids.b}) {
    if (grid != nullptr) kasane::advise(grid, plate.points(), kasane::usage::once);
  }
  Checkpoints checkpoints{checkpoint, checkpoint.empty() ? 0
                                      : every != 0       ? every
                                                         : std::max<std::uint64_t>(steps, 1)};

  double* result = a.get();
  std::vector<double> seconds;
  for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
    {
      const SetRows set{plate, grids};
      const apps::Progress progress(
          "stencil: filling",
          apps::Progress::Steps{set.steps(std::size_t{kasane::ranks()} * kasane::workers())},
          line.common().quiet);
      kasane::team(set);
    }
    if (goes_on) kasane::restore(a.get(), plate.points(), checkpoint);
    const apps::Progress progress("stencil", apps::Progress::Steps{steps - first}, line.common().quiet);
    const double start = now();
    report.measure([&] { result = advance(all, first, checkpoints); });
    seconds.push_back(now() - start - checkpoints.seconds);
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  const double median = std::max(seconds[seconds.size() / 2], 1e-9);
  if (!checkpoint.empty()) {
    report.result("first_step", first);
    report.result("seconds_in_checkpoints", checkpoints.seconds);
  }
  report.result("gigaflops",
                1e-9 * static_cast<double>(apps::Plate::kFlops * n * n * (steps - first)) / median);

  double error = 0;
  {
    const apps::Progress progress("stencil: checking", apps::threads_of_pieces(n, kCheckedTogether),
                                  line.common().quiet);
    error = error_of(plate, result, steps);
  }
  report.result("error", error);
  // Each step adds a few roundings of values that are at most 1; the mode itself has some.
  report.verify(error <= 4e-16 * static_cast<double>(steps + 4),
                "off the exact solution of the difference equation by " + std::to_string(error));
  if (!picture.empty()) apps::write_picture(picture, result + plate.pitch() + 1, n, plate.pitch());

  if (line.common().serial) {  // plain steps, in private memory
    apps::PrivateArray<double> c(plate.points()), d(plate.points());
    const AdvanceAlone alone{{plate, {c.get(), d.get(), nullptr}, steps, 1}};
    kasane::team_of_one(SetRows{plate, {c.get(), d.get(), nullptr}});
    report.measure_serial([&] { kasane::team_of_one(alone); });
    report.verify(std::memcmp(result, alone.result(), plate.points() * sizeof(double)) == 0,
                  "the plate is not what plain steps in one thread give, bit for bit");
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("stencil", [&] { return run(argc, argv); });
}
