// SPDX-License-Identifier: Apache-2.0
// What was measured: samples by case, system and point; medians and quartiles of them; rows; the tables on
// standard output, with each of Kasane's systems as a ratio to the limit and to the best peer of the same
// run.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rows.h"

namespace kasane::bench {

struct Point {
  unsigned threads = 1;
  std::uint64_t bytes = 0;
  auto operator<=>(const Point&) const = default;
};

struct Summary {
  double median = 0, low = 0, high = 0;  ///< quartiles
  unsigned repetitions = 0;
  [[nodiscard]] double spread() const noexcept { return median == 0 ? 0 : (high - low) / median; }
};
[[nodiscard]] Summary summarize(std::vector<double> samples);

/// What a system is, for ratios.
enum class Role { ours, limit, peer };

class Report {
 public:
  Report(std::string suite, std::map<std::string, Role> roles)
      : suite_(std::move(suite)), roles_(std::move(roles)) {}

  /// unit decides what is better: rates (a unit with "/s") grow, times shrink.
  void add(const std::string& case_name, const std::string& unit, const std::string& system, Point,
           double sample);
  /// The only peer that Kasane's systems are compared with, instead of the best one.
  void against(const std::string& system) { against_ = system; }
  /// A line for the end: what was left out, and why.
  void note(const std::string& line);

  void print() const;
  /// As any suite's (rows.h).
  [[nodiscard]] std::vector<Row> rows() const;

 private:
  struct Case {
    std::string name, unit;
    /// in the order of their first sample
    std::vector<std::string> systems;
    std::map<Point, std::map<std::string, std::vector<double>>> samples;
  };
  /// 0 where there is no peer to compare with.
  struct Ratios {
    double to_limit = 0, to_best = 0;
    std::string best;
  };
  [[nodiscard]] Ratios ratios(const Case&, const std::map<std::string, std::vector<double>>& by_system,
                              const std::string& system) const;
  void print(const Case&) const;
  void print_ratios(const Case&) const;
  [[nodiscard]] Role role(const std::string& system) const;

  std::string suite_, against_;
  std::map<std::string, Role> roles_;
  std::vector<Case> cases_;
  std::vector<std::string> notes_;
};

}  // namespace kasane::bench
