// SPDX-License-Identifier: Apache-2.0
#include "common/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <kasane/kasane.hpp>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text_file.h"

namespace apps {
namespace {

using Json = nlohmann::ordered_json;

/// A rank's counters, in their order.
struct Counts {
  std::vector<std::pair<const char*, std::uint64_t>> items;

  [[nodiscard]] std::uint64_t operator[](std::string_view name) const {
    return std::find_if(items.begin(), items.end(), [name](const auto& item) { return item.first == name; })
        ->second;
  }
  /// Adds `sign` times the others.
  void add(const Counts& others, std::uint64_t sign) {
    for (std::size_t i = 0; i < items.size(); ++i) items[i].second += sign * others.items[i].second;
  }
};

Json to_json(const Counts& counts) {
  Json j;
  for (const auto& [name, value] : counts.items) j[name] = value;
  return j;
}

std::vector<Counts> read_all() {
  std::vector<Counts> all(kasane::ranks());
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
    kasane::for_each_counter(
        [&](const char* name, std::uint64_t value) { all[r].items.emplace_back(name, value); }, r);
  }
  return all;
}

void print_table(std::FILE* out, const std::vector<Counts>& ranks) {
  std::fprintf(out, "%6s %10s %9s %9s %9s %9s %11s %9s %11s %8s %8s\n", "rank", "threads", "steals", "remote",
               "loads", "stores", "fetched KB", "diffs", "put KB", "fault s", "idle s");
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto u = [&](const char* name, std::uint64_t unit = 1) {
      return static_cast<unsigned long long>(ranks[r][name] / unit);
    };
    const auto seconds = [](std::uint64_t ns) { return 1e-9 * static_cast<double>(ns); };
    std::fprintf(out, "%6zu %10llu %9llu %9llu %9llu %9llu %11llu %9llu %11llu %8.3f %8.3f\n", r,
                 u("threads"), u("steals_local"), u("steals_remote"), u("faults_read"), u("faults_write"),
                 u("bytes_fetched", 1024), u("diffs"), u("bytes_put", 1024),
                 seconds(ranks[r]["ns_load_faults"] + ranks[r]["ns_store_faults"]),
                 seconds(ranks[r]["ns_idle"]));
  }
}

}  // namespace

struct Report::State {
  std::string app, json_file, first_failure;
  std::FILE* out = stdout;
  Json parameters = Json::object(), results = Json::object(), parts = Json::object();
  std::vector<double> runs;
  double serial = -1, started = 0;
  std::uint64_t checks = 0;
  bool good = true;
  std::vector<Counts> before, sum;
};

Report::Report(const CommandLine& line) : state_(std::make_unique<State>()) {
  state_->app = line.name();
  state_->json_file = line.common().json;
  state_->sum = read_all();
  for (Counts& rank : state_->sum) rank.add(Counts(rank), ~std::uint64_t{0});
  parameter("repeat", line.common().repeat);
}
Report::~Report() = default;

void Report::parameter(const std::string& name, std::uint64_t value) { state_->parameters[name] = value; }
void Report::parameter(const std::string& name, const std::string& value) {
  state_->parameters[name] = value;
}
void Report::real_parameter(const std::string& name, double value) { state_->parameters[name] = value; }
void Report::real_result(const std::string& name, double value) { state_->results[name] = value; }
void Report::result(const std::string& name, std::uint64_t value) { state_->results[name] = value; }
void Report::result(const std::string& name, const std::string& value) { state_->results[name] = value; }

double Report::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Report::begin() {
  state_->before = read_all();
  state_->started = now();
}

void Report::end() {
  state_->runs.push_back(now() - state_->started);
  const auto after = read_all();
  for (std::size_t r = 0; r < after.size(); ++r) {
    state_->sum[r].add(after[r], 1);
    state_->sum[r].add(state_->before[r], ~std::uint64_t{0});  // minus them
  }
}

void Report::print_to(std::FILE* out) { state_->out = out; }
void Report::serial(double seconds) { state_->serial = seconds; }
void Report::part(const std::string& name, double seconds) { state_->parts["seconds_" + name] = seconds; }

bool Report::verify(bool good, const std::string& what) {
  ++state_->checks;
  if (!good && state_->good) {
    state_->good = false;
    state_->first_failure = what;
  }
  return good;
}

void Report::print(double median) const {
  const State& s = *state_;
  std::fprintf(s.out, "%s: %u ranks x %u workers, %.4f s", s.app.c_str(), kasane::ranks(), kasane::workers(),
               median);
  if (s.runs.size() > 1) std::fprintf(s.out, " (median of %zu)", s.runs.size());
  if (s.serial >= 0)
    std::fprintf(s.out, ", sequential elision %.4f s (speed-up %.2f)", s.serial,
                 median > 0 ? s.serial / median : 0.0);
  std::fprintf(s.out, "\n");
  for (const auto& [name, seconds] : s.parts.items())
    std::fprintf(s.out, "  %s: %.4f\n", name.c_str(), seconds.get<double>());
  for (const auto& [name, value] : s.results.items())
    std::fprintf(s.out, "  %s: %s\n", name.c_str(), value.dump().c_str());
  print_table(s.out, s.sum);
  if (s.good && s.checks > 0)
    std::fprintf(s.out, "verified\n");
  else
    std::fprintf(s.out, "NOT VERIFIED: %s\n",
                 s.checks == 0 ? "nothing was checked" : s.first_failure.c_str());
  std::fflush(s.out);
}

bool Report::write_json(double median) const {
  const State& s = *state_;
  Json j;
  j["app"] = s.app;
  j["parameters"] = s.parameters;
  j["ranks"] = kasane::ranks();
  j["workers"] = kasane::workers();
  j["seconds"] = median;
  j["seconds_all"] = s.runs;
  if (s.serial >= 0) j["seconds_serial"] = s.serial;
  for (const auto& [name, seconds] : s.parts.items()) j[name] = seconds;
  j["result"] = s.results;
  j["verified"] = s.good && s.checks > 0;
  if (!s.first_failure.empty()) j["failure"] = s.first_failure;
  Counts total = s.sum[0];
  for (std::size_t r = 1; r < s.sum.size(); ++r) total.add(s.sum[r], 1);
  j["stats"] = to_json(total);
  j["per_rank"] = Json::array();
  for (std::size_t r = 0; r < s.sum.size(); ++r) {
    Json row;
    row["rank"] = r;
    row.update(to_json(s.sum[r]));
    j["per_rank"].push_back(std::move(row));
  }
  // File names need not be UTF-8, JSON must be.
  const std::string text = j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const int fd = s.json_file == "-" ? STDOUT_FILENO : open_output(s.json_file);
  std::FILE* f = s.json_file == "-" ? stdout : fd >= 0 ? ::fdopen(fd, "w") : nullptr;
  bool good = f != nullptr && std::fwrite(text.data(), 1, text.size(), f) == text.size();
  if (f == stdout)
    good = std::fflush(f) == 0 && good;
  else if (f != nullptr)
    good = std::fclose(f) == 0 && good;
  if (!good)
    std::fprintf(stderr, "%s: cannot write the JSON file %s: %s\n", s.app.c_str(), s.json_file.c_str(),
                 std::strerror(errno));
  return good;
}

int Report::finish() {
  std::vector<double> sorted = state_->runs;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted.empty() ? 0.0 : sorted[sorted.size() / 2];
  // With JSON on standard output nothing else may go there.
  if (state_->json_file != "-") print(median);
  const bool written = state_->json_file.empty() || write_json(median);
  if (!state_->first_failure.empty())
    std::fprintf(stderr, "%s: not verified: %s\n", state_->app.c_str(), state_->first_failure.c_str());
  return written && state_->good && state_->checks > 0 ? 0 : 1;
}

void complain(const char* name, const char* what) noexcept { std::fprintf(stderr, "%s: %s\n", name, what); }

}  // namespace apps
