// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/job_counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "gas/regions.h"

namespace kasane::runtime {

namespace {

/// "name   value … help\n", a column a rank.
std::string table_row(std::string_view name, std::span<const std::string> of_ranks, std::string_view help) {
  std::vector<std::string> cells{std::string(name)};
  cells.insert(cells.end(), of_ranks.begin(), of_ranks.end());
  std::string line = TextTable({-18, 14}).line(cells);
  if (!help.empty()) line.insert(line.size() - 1, fmt::format("  {}", help));
  return line;
}

void add(CounterSums& sums, const Counters& counters) noexcept {
  // relaxed: numbers to be told, each exact by itself.
#define X(name, help) sums[row_##name] += counters.name.load(std::memory_order_relaxed);
  KASANE_COUNTERS(X)
#undef X
}

}  // namespace

JobCounters::JobCounters(comm::Transport& transport, std::size_t threads) noexcept
    : transport_(transport),
      threads_(threads),
      own_(reinterpret_cast<Counters*>(transport.mapped(transport.rank(), gas::kStatistics))) {}

std::unique_ptr<Counters[]> JobCounters::copy_of(comm::Blocking& io, Rank rank) const {
  std::unique_ptr<Counters[]> copy(new Counters[threads_]);
  io.read({rank, gas::kStatistics, 0}, copy.get(), bytes(threads_));
  return copy;
}

CounterSums JobCounters::of(comm::Blocking& io, Rank rank) const {
  if (const std::byte* mapped = transport_.mapped(rank, gas::kStatistics))
    return sum(reinterpret_cast<const Counters*>(mapped));
  return sum(copy_of(io, rank).get());
}

CounterSums JobCounters::of_workers(comm::Blocking& io, Rank rank, std::uint32_t workers) const {
  CounterSums sums{};
  const auto all = copy_of(io, rank);
  for (std::uint32_t t = 0; t < workers; ++t) add(sums, all[t]);
  add(sums, all[workers + 2]);  // of other threads (ThreadContexts)
  return sums;
}

CounterSums JobCounters::sum(const Counters* counters) const noexcept {
  CounterSums sums{};
  for (std::size_t t = 0; t < threads_; ++t) add(sums, counters[t]);
  return sums;
}

CounterSums JobCounters::total(comm::Blocking& io) const {
  CounterSums all{};
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
    const CounterSums one = of(io, Rank{r});
    std::transform(all.begin(), all.end(), one.begin(), all.begin(), std::plus<>());
  }
  return all;
}

std::string counter_row(std::string_view name, std::span<const std::uint64_t> of_ranks, Magnitude magnitude,
                        std::string_view help) {
  if (std::ranges::all_of(of_ranks, [](std::uint64_t v) { return v == 0; })) return {};
  std::vector<std::string> cells;
  for (const std::uint64_t v : of_ranks) cells.push_back(in_units(v, magnitude));
  return table_row(name.starts_with("ns_") ? fmt::format("time_{}", name.substr(3)) : std::string(name),
                   cells, help);
}

std::string counter_table(std::span<const CounterSums> of_ranks, double seconds) {
  std::vector<std::string> numbers;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) numbers.push_back(std::to_string(r));
  std::string text = table_row("rank", numbers, "");
  std::vector<std::uint64_t> values(of_ranks.size());
  const auto print = [&](std::string_view name, CounterRow row, std::string_view help) {
    std::ranges::transform(of_ranks, values.begin(), [row](const CounterSums& sums) { return sums[row]; });
    text += counter_row(name, values,
                        name.starts_with("ns_")      ? Magnitude::nanoseconds
                        : name.starts_with("bytes_") ? Magnitude::bytes
                                                     : Magnitude::count,
                        help);
  };
#define X(name, help) print(#name, row_##name, help);
  KASANE_COUNTERS(X)
#undef X
  const auto rate = [&](const char* name, CounterRow row, const char* help) {
    if (std::ranges::all_of(of_ranks, [row](const CounterSums& sums) { return sums[row] == 0; })) return;
    std::vector<std::string> rates;
    for (const CounterSums& sums : of_ranks)
      rates.push_back(fmt::format("{:.1f}", static_cast<double>(sums[row]) / (1 << 20) / seconds));
    text += table_row(name, rates, help);
  };
  rate("spill_rate", row_bytes_spilled, "MiB/s written to the spill file, over the whole run");
  rate("unspill_rate", row_bytes_read_back, "MiB/s read from it");
  return text;
}

std::string progress_line(double seconds, double interval, const CounterSums& before,
                          const CounterSums& now) {
  struct Item {
    std::initializer_list<CounterRow> rows;
    Magnitude magnitude;
    const char* what;
  };
  const Item items[] = {{{row_threads}, Magnitude::thousands, "threads"},
                        {{row_steals_remote}, Magnitude::thousands, "thefts between ranks"},
                        {{row_crossings}, Magnitude::thousands, "edges between ranks"},
                        {{row_faults_read, row_faults_write}, Magnitude::thousands, "faults"},
                        {{row_bytes_fetched}, Magnitude::bytes, "fetched"},
                        {{row_bytes_put}, Magnitude::bytes, "put"},
                        {{row_bytes_moved}, Magnitude::bytes, "moved"},
                        {{row_bytes_spilled}, Magnitude::bytes, "spilled"},
                        {{row_bytes_read_back}, Magnitude::bytes, "read back"}};
  std::string text;
  for (const Item& item : items) {
    std::uint64_t more = 0;
    for (const CounterRow row : item.rows) more += now[row] - before[row];
    const auto rate = static_cast<std::uint64_t>(static_cast<double>(more) / interval + 0.5);
    if (rate != 0)
      fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ",
                     in_units(rate, item.magnitude), item.what);
  }
  return fmt::format("kasane: {:.1f} s; a second: {}\n", seconds, text.empty() ? "nothing" : text);
}

}  // namespace kasane::runtime
