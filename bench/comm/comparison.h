// SPDX-License-Identifier: Apache-2.0
// The systems of one run, all started, and how every number of it is taken: each system is checked, then
// calibrated (iterations for one sample's time), then sampled in turn with all the others, repetition by
// repetition. Core-to-core latency has states that flip within minutes; what is compared was measured within
// milliseconds of each other.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pair.h"
#include "report.h"
#include "systems.h"

namespace kasane::bench {

struct Effort {
  unsigned repetitions = 7;
  double sample_seconds = 0.015;   ///< time that one sample should take
  std::chrono::seconds limit{20};  ///< for one order; then the system is given up
};

class Comparison {
 public:
  /// Starts all of them; those that do not start are noted in report and left out.
  Comparison(std::vector<System> systems, unsigned lanes, std::uint64_t max_bytes, Effort effort,
             Report& report);
  ~Comparison();
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  struct Entry {
    System system;
    std::unique_ptr<Pair> pair;
  };
  /// What one order of iterations costs on one system: the answer is in seconds an iteration.
  using Ask = std::function<Answer(Entry&, std::uint64_t iterations)>;
  /// Takes a sample: seconds an iteration.
  using Take = std::function<void(const System&, double seconds)>;

  /// check may be null; it runs once for each system before it is timed. what: for the notes.
  void sample(const std::string& what, const std::function<Answer(Entry&)>& check, const Ask& ask,
              const Take& take);

  [[nodiscard]] const Effort& effort() const noexcept { return effort_; }

 private:
  [[nodiscard]] bool keep(Entry&, const Answer&, const std::string& what);
  [[nodiscard]] std::uint64_t calibrate(Entry&, const Ask&, const std::string& what);

  Effort effort_;
  Report& report_;
  std::vector<Entry> entries_;
};

/// From here on SIGINT and SIGTERM end the sampling, not the program: what was measured until then is still
/// reported. A second one kills.
void stop_on_signals();

/// The roles of systems in a report.
[[nodiscard]] std::map<std::string, Role> roles_of(const std::vector<System>& systems);

}  // namespace kasane::bench
