// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/heap_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/language/program_memory.h"
#include "runtime/rank/job_counters.h"

namespace kasane::runtime {

std::string heap_table(std::span<gas::Heap* const> heaps, comm::Blocking& io, std::uint32_t ranks) {
  std::vector<gas::HeapStatistics> of;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    of.emplace_back();
    for (gas::Heap* heap : heaps) of.back() += heap->statistics(io, Rank{r});
  }
  std::string text;
  const auto row = [&](const char* name, Magnitude magnitude, const char* help, auto value) {
    std::vector<std::uint64_t> values;
    for (const auto& s : of) values.push_back(value(s));
    text += counter_row(name, values, magnitude, help);
  };
  using S = gas::HeapStatistics;
  row("heap_touched", Magnitude::bytes, "of the share that was handed out at some time",
      [](const S& s) { return s.touched_bytes; });
  row("heap_slabs", Magnitude::count, "slabs for small objects", [](const S& s) { return s.slabs; });
  row("heap_small_used", Magnitude::bytes, "in small objects that were not freed",
      [](const S& s) { return s.slab_bytes - s.slab_free_bytes; });
  row("heap_small_free", Magnitude::bytes, "in small objects that are free",
      [](const S& s) { return s.slab_free_bytes; });
  row("heap_runs", Magnitude::count, "large allocations that were not freed",
      [](const S& s) { return s.runs; });
  row("heap_run_bytes", Magnitude::bytes, "in them", [](const S& s) { return s.run_bytes; });
  row("heap_free_runs", Magnitude::count, "runs of pages that are free again",
      [](const S& s) { return s.free_runs; });
  row("heap_free_bytes", Magnitude::bytes, "in them", [](const S& s) { return s.free_run_bytes; });
  return text;
}

std::string leak_report(std::span<gas::Heap* const> heaps, comm::Blocking& io, gas::DirectAccess& access,
                        const mem::Space& space, Rank rank) {
  struct Sum {
    std::uint64_t allocations = 0, bytes = 0;
  };
  std::map<const void*, Sum> by_site;
  Sum all;
  const auto live = [&](std::uint64_t offset, std::size_t bytes) {
    alignas(8) std::byte start[16], record[kRecordBytes];
    if (!gas::get(io, access, start, offset, sizeof start)) return;
    const std::uint64_t at = record_offset(reinterpret_cast<std::uintptr_t>(space.v(offset)), start);
    if (at + kRecordBytes > bytes || !gas::get(io, access, record, offset + at, kRecordBytes)) return;
    const auto found = record_of(reinterpret_cast<std::uintptr_t>(space.v(offset + at)), record);
    Sum& sum = by_site[found ? found->site : nullptr];
    for (Sum* s : {&sum, &all}) {
      ++s->allocations;
      s->bytes += found ? found->bytes : bytes;
    }
  };
  for (gas::Heap* heap : heaps) heap->for_each_live(io, live);
  if (all.allocations == 0)
    return fmt::format("kasane: rank {}: heap check: everything was freed\n", raw(rank));
  std::vector<std::pair<const void*, Sum>> sorted(by_site.begin(), by_site.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text = fmt::format("kasane: rank {}: heap check: {} bytes in {} allocations were not freed\n",
                                 raw(rank), all.bytes, all.allocations);
  constexpr std::size_t kMostSites = 20;
  for (std::size_t i = 0; i < sorted.size() && i < kMostSites; ++i) {
    text += fmt::format("kasane:   {:>12} bytes in {:>8}, allocated at {}\n", sorted[i].second.bytes,
                        sorted[i].second.allocations, site_text(sorted[i].first));
  }
  if (sorted.size() > kMostSites)
    text += fmt::format("kasane:   … and at {} other places\n", sorted.size() - kMostSites);
  return text;
}

}  // namespace kasane::runtime
