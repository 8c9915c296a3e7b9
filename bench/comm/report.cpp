// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/text_table.h"
#include "player_threads.h"

namespace kasane::bench {
namespace {

bool more_is_better(const std::string& unit) { return unit.find("/s") != std::string::npos; }

/// Three significant digits, whatever the size.
std::string digits(double value) {
  const int decimals =
      value == 0 ? 0 : std::clamp(2 - static_cast<int>(std::floor(std::log10(std::fabs(value)))), 0, 5);
  return fmt::format("{:.{}f}", value, decimals);
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

/// Value at share of the sorted samples, between neighbours.
double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {quantile(samples, .5), quantile(samples, .25), quantile(samples, .75),
          static_cast<unsigned>(samples.size())};
}

void Report::add(const std::string& case_name, const std::string& unit, const std::string& system,
                 Point point, double sample) {
  auto found = std::find_if(cases_.begin(), cases_.end(), [&](const Case& c) { return c.name == case_name; });
  if (found == cases_.end()) found = cases_.insert(cases_.end(), Case{case_name, unit, {}, {}});
  if (std::find(found->systems.begin(), found->systems.end(), system) == found->systems.end())
    found->systems.push_back(system);
  found->samples[point][system].push_back(sample);
}

void Report::note(const std::string& line) {
  if (std::find(notes_.begin(), notes_.end(), line) == notes_.end()) notes_.push_back(line);
}

Role Report::role(const std::string& system) const {
  const auto found = roles_.find(system);
  return found == roles_.end() ? Role::peer : found->second;
}

void Report::print() const {
  std::printf(
      "%u cores. Medians of interleaved repetitions; ± is half the distance of the quartiles; ratios are "
      "medians of each repetition's; * means more threads than cores.\n",
      usable_cores());
  for (const Case& c : cases_) {
    print(c);
    print_ratios(c);
  }
  for (const auto& line : notes_) std::printf("%s\n", line.c_str());
}

void Report::print(const Case& c) const {
  std::vector<int> widths{7, 9};
  for (const auto& system : c.systems) widths.push_back(std::max(11, static_cast<int>(system.size())));
  const TextTable table(std::move(widths));
  std::vector<std::string> cells{"threads", "size"};
  cells.insert(cells.end(), c.systems.begin(), c.systems.end());
  std::printf("\n%s (%s)\n%s", c.name.c_str(), c.unit.c_str(), table.line(cells).c_str());
  for (const auto& [point, by_system] : c.samples) {
    const char* crowded = 2 * point.threads > usable_cores() ? "*" : "";
    cells = {std::to_string(point.threads) + crowded, size_text(point.bytes)};
    for (const auto& system : c.systems) {
      const auto found = by_system.find(system);
      const Summary s = found == by_system.end() ? Summary{} : summarize(found->second);
      cells.push_back(found == by_system.end()
                          ? "-"
                          : fmt::format("{} ±{:2.0f}%", digits(s.median), std::min(99., 50 * s.spread())));
    }
    std::fputs(table.line(cells).c_str(), stdout);
  }
}

void Report::print_ratios(const Case& c) const {
  std::vector<std::string> ours;
  for (const auto& system : c.systems) {
    if (role(system) == Role::ours) ours.push_back(system);
  }
  if (ours.empty() || ours.size() == c.systems.size()) return;
  std::printf("%s as a ratio to the limit, and to the best peer (%s is better)\n", c.name.c_str(),
              more_is_better(c.unit) ? "more" : "less");
  for (const auto& [point, by_system] : c.samples) {
    std::printf("%7u %9s", point.threads, size_text(point.bytes).c_str());
    for (const auto& system : ours) {
      if (by_system.find(system) == by_system.end()) continue;
      const Ratios r = ratios(c, by_system, system);
      std::printf("  %s", system.c_str());
      if (r.to_limit != 0) std::printf(" %.2f × raw", r.to_limit);
      if (r.to_best != 0) std::printf(" %.2f × %s", r.to_best, r.best.c_str());
    }
    std::printf("\n");
  }
}

/// Of samples of one repetition, which were taken within moments of each other: what the machine does to both
/// (a core-to-core latency that changes within minutes, a neighbour) favours neither. The best peer is the
/// one with the worst ratio for us.
Report::Ratios Report::ratios(const Case& c, const std::map<std::string, std::vector<double>>& by_system,
                              const std::string& system) const {
  Ratios found;
  const auto& ours = by_system.at(system);
  for (const auto& [other, theirs] : by_system) {
    if (role(other) == Role::ours || (role(other) == Role::peer && !against_.empty() && other != against_))
      continue;
    std::vector<double> each;
    for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      if (theirs[i] != 0) each.push_back(ours[i] / theirs[i]);
    }
    if (each.empty()) continue;
    const double ratio = summarize(std::move(each)).median;
    if (role(other) == Role::limit) {
      found.to_limit = ratio;
    } else if (found.best.empty() ||
               (more_is_better(c.unit) ? ratio < found.to_best : ratio > found.to_best)) {
      found.to_best = ratio;
      found.best = other;
    }
  }
  return found;
}

std::vector<Row> Report::rows() const {
  std::vector<Row> list;
  for (const Case& c : cases_) {
    for (const auto& [point, by_system] : c.samples) {
      for (const auto& system : c.systems) {
        const auto found = by_system.find(system);
        if (found == by_system.end()) continue;
        const Summary s = summarize(found->second);
        Row row{suite_,        c.name,
                system,        2,
                point.threads, point.bytes,
                s.median,      c.unit,
                s.repetitions, {{"spread", s.spread()}, {"low", s.low}, {"high", s.high}}};
        if (role(system) == Role::ours) {
          const Ratios r = ratios(c, by_system, system);
          if (r.to_limit != 0) row.more.push_back({"ratio_to_limit", r.to_limit});
          if (r.to_best != 0)
            row.more.insert(row.more.end(), {{"ratio_to_best", r.to_best}, {"best", r.best}});
        }
        list.push_back(std::move(row));
      }
    }
  }
  return list;
}

}  // namespace kasane::bench
