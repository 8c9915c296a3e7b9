// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "gas/regions.h"
#include "runtime/table_row.h"

namespace kasane::runtime {

JobCounters::JobCounters(comm::Transport& transport, std::size_t threads) noexcept
    : transport_(transport), threads_(threads), own_(reinterpret_cast<Counters*>(transport.mapped(transport.rank(), gas::kStatistics))) {}

CounterSums JobCounters::of(comm::Blocking& io, Rank rank) const {
  if (const std::byte* mapped = transport_.mapped(rank, gas::kStatistics)) return sum(reinterpret_cast<const Counters*>(mapped));
  const std::unique_ptr<Counters[]> copy(new Counters[threads_]);
  io.read({rank, gas::kStatistics, 0}, copy.get(), bytes(threads_));
  return sum(copy.get());
}

CounterSums JobCounters::sum(const Counters* counters) const noexcept {
  CounterSums sums{};
  for (std::size_t t = 0; t < threads_; ++t) {
    // relaxed: numbers to be told, each exact by itself.
#define X(name, help) sums[row_##name] += counters[t].name.load(std::memory_order_relaxed);
    KASANE_COUNTERS(X)
#undef X
  }
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

std::string counter_table(std::span<const CounterSums> of_ranks, double seconds) {
  std::string text = fmt::format("{:<18}", "rank");
  for (std::size_t r = 0; r < of_ranks.size(); ++r) fmt::format_to(std::back_inserter(text), " {:>14}", r);
  text += "\n";
  std::vector<std::uint64_t> values(of_ranks.size());
  const auto print = [&](std::string_view name, CounterRow row, std::string_view help) {
    std::ranges::transform(of_ranks, values.begin(), [row](const CounterSums& sums) { return sums[row]; });
    text += table_row(name, values, name.starts_with("ns_") ? Unit::nanoseconds : name.starts_with("bytes_") ? Unit::bytes : Unit::count, help);
  };
#define X(name, help) print(#name, row_##name, help);
  KASANE_COUNTERS(X)
#undef X
  const auto rate = [&](const char* name, CounterRow row, const char* help) {
    if (std::ranges::all_of(of_ranks, [row](const CounterSums& sums) { return sums[row] == 0; })) return;
    text += fmt::format("{:<18}", name);
    for (const CounterSums& sums : of_ranks) fmt::format_to(std::back_inserter(text), " {:>14.1f}", static_cast<double>(sums[row]) / (1 << 20) / seconds);
    fmt::format_to(std::back_inserter(text), "  {}\n", help);
  };
  rate("spill_rate", row_bytes_spilled, "MiB/s written to the spill file, over the whole run");
  rate("unspill_rate", row_bytes_read_back, "MiB/s read from it");
  return text;
}

std::string progress_line(double seconds, double interval, const CounterSums& before, const CounterSums& now) {
  struct Item {
    std::initializer_list<CounterRow> rows;
    Unit unit;
    const char* what;
  };
  const Item items[] = {{{row_threads}, Unit::thousands, "threads"},
                        {{row_steals_remote}, Unit::thousands, "thefts between ranks"},
                        {{row_crossings}, Unit::thousands, "edges between ranks"},
                        {{row_faults_read, row_faults_write}, Unit::thousands, "faults"},
                        {{row_bytes_fetched}, Unit::bytes, "fetched"},
                        {{row_bytes_put}, Unit::bytes, "put"},
                        {{row_bytes_moved}, Unit::bytes, "moved"},
                        {{row_bytes_spilled}, Unit::bytes, "spilled"},
                        {{row_bytes_read_back}, Unit::bytes, "read back"}};
  std::string text;
  for (const Item& item : items) {
    std::uint64_t more = 0;
    for (const CounterRow row : item.rows) more += now[row] - before[row];
    const auto rate = static_cast<std::uint64_t>(static_cast<double>(more) / interval + 0.5);
    if (rate != 0) fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ", in_units(rate, item.unit), item.what);
  }
  return fmt::format("kasane: {:.1f} s; a second: {}\n", seconds, text.empty() ? "nothing" : text);
}

}  // namespace kasane::runtime
