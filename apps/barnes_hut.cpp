// SPDX-License-Identifier: Apache-2.0
// Bodies under gravity by Barnes and Hut's tree: an octree of nodes made with new, by threads of all ranks,
// and walked by threads of all ranks through plain pointers.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "barnes_hut/simulation.h"
#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/private_array.h"
#include "common/progress.h"
#include "common/report.h"

namespace {

constexpr std::size_t kSamples = 64;

int run(int argc, char** argv) {
  apps::CommandLine line("barnes_hut", "Bodies under gravity, their fields by walks of an octree");
  std::uint64_t n = 10'000, steps = 5;
  double theta = 0.5;
  line.number("-n,--bodies", n,
              "Bodies; in groups of fewer than 100 close encounters would want smaller steps", 100,
              std::uint64_t{1} << 30);
  line.number("--steps", steps, "Steps of 1/128 of time", 0, 1'000'000);
  line.real("--theta", theta,
            "A cell whose side over its distance is below this counts as one mass; 0: none does", 0, 1);
  if (auto status = line.parse(argc, argv)) return *status;
  const std::uint64_t seed = line.common().seed;

  apps::Report report(line);
  report.parameter("bodies", n);
  report.parameter("steps", steps);
  report.parameter("theta", theta);
  report.parameter("seed", seed);
  const auto bodies = kasane::make_array<apps::Body>(n, kasane::placement::block),
             spare = kasane::make_array<apps::Body>(n, kasane::placement::block);
  const auto fields = kasane::make_array<apps::Field>(n, kasane::placement::block);
  const auto order = kasane::make_array<apps::Keyed>(n, kasane::placement::block);
  const auto keys = kasane::make_array<std::uint64_t>(n, kasane::placement::block);
  apps::Simulation<apps::Parallel> simulation(
      {n, bodies.get(), spare.get(), fields.get(), order.get(), keys.get()}, theta);
  double before = 0;
  {
    apps::Progress progress("barnes_hut", 0, line.common().quiet);
    for (std::uint64_t r = 0; r < line.common().repeat; ++r) {
      kasane::run([&] {
        simulation.set(seed);
        before = simulation.energy();
      });
      report.measure([&] {
        kasane::run([&] {
          for (std::uint64_t s = 0; s < steps; ++s) simulation.step();
        });
      });
    }
  }
  const double drift = std::abs(kasane::run([&] { return simulation.energy(); }) / before - 1);
  const double error = apps::error_of_sample(simulation.bodies(), kSamples);
  report.result("energy_drift", drift);
  report.result("field_error", error);
  // Seen: 0.034 theta², and a drift of 0.004.
  report.verify(error <= 0.1 * theta * theta + 1e-12,
                "the fields of a sample are off their direct sums by " + std::to_string(error) + " of them");
  report.verify(drift <= 0.02, "the energy changed by " + std::to_string(drift) + " of it");

  if (line.common().serial) {
    apps::PrivateArray<apps::Body> a(n), b(n);
    apps::PrivateArray<apps::Field> f(n);
    apps::PrivateArray<apps::Keyed> o(n);
    apps::PrivateArray<std::uint64_t> k(n);
    apps::Simulation<apps::Serial> serial({n, a.get(), b.get(), f.get(), o.get(), k.get()}, theta);
    serial.set(seed);
    report.measure_serial([&] {
      for (std::uint64_t s = 0; s < steps; ++s) serial.step();
    });
    report.verify(
        std::memcmp(simulation.bodies().bodies, serial.bodies().bodies, n * sizeof(apps::Body)) == 0,
        "the bodies are not where the sequential elision puts them, bit for bit");
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("barnes_hut", [&] { return run(argc, argv); });
}
