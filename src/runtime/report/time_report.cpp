// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/time_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "diagnostics/demangle.h"
#include "diagnostics/source_lines.h"
#include "gas/regions.h"
#include "runtime/report/crash_stack.h"
#include "runtime/report/places.h"

namespace kasane::runtime {
namespace {

constexpr std::size_t kNamed = 256, kShown = 3;  ///< places: of all accounts, of one
constexpr std::size_t kLongestName = 40;         ///< of a function with its parameters
constexpr std::size_t kLongestDemangled = 10'000;

constexpr std::string_view kNames[] = {
#define X(account, name) name,
    KASANE_ACCOUNTS(X)
#undef X
};

constexpr std::size_t index(Account account) noexcept { return static_cast<std::size_t>(account); }

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_header(std::string_view place) {
  const std::string_view file = place.substr(0, place.rfind(':'));
  return diagnostics::is_library(place) || file.ends_with(".h") || file.ends_with(".hpp") ||
         file.ends_with(".hh");
}

/// Without what tells namesakes in other files or copies of a function apart.
std::string short_name(const std::string& name) {
  std::string text = diagnostics::readable_name(name, kLongestDemangled);
  for (const std::string_view part : {"(anonymous namespace)::", "{anonymous}::"})
    for (std::size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
  text.resize(std::min(text.find(" [clone "), text.size()));
  return text.size() > kLongestName ? diagnostics::without_arguments(text) : text;
}

/// described: "function+0x12 (/path/of/object+0x1234)", which is enough where no line is known. Of code that
/// was inlined the innermost line in a file that is no header; else of one of the program's.
std::string name_of(std::string_view described, const std::vector<diagnostics::SourceLine>& lines) {
  const std::size_t object = described.rfind(" (");
  if (object == std::string_view::npos) return std::string(described);
  const std::string function(described.substr(0, std::min(object, described.rfind("+0x", object))));
  if (lines.empty())
    return function == "??"
               ? std::string(last_part(described.substr(object + 2, described.size() - object - 3)))
               : short_name(function);
  auto line = std::ranges::find_if_not(lines, is_header, &diagnostics::SourceLine::place);
  if (line == lines.end())
    line = std::ranges::find_if_not(lines, diagnostics::is_library, &diagnostics::SourceLine::place);
  if (line == lines.end()) line = lines.begin();
  const bool inlined = line != std::prev(lines.end()) || function == "??";
  return fmt::format("{} {}", short_name(inlined ? line->function : function), last_part(line->place));
}

/// In tenths of a percent, to the nearest.
std::uint64_t tenths(std::uint64_t ns, std::uint64_t all_ns) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(ns) / static_cast<double>(all_ns) * 1000 + 0.5);
}
std::string percent(std::uint64_t tenths) { return fmt::format("{}.{} %", tenths / 10, tenths % 10); }

}  // namespace

WorkersTime workers_time(const CounterSums& sums) noexcept {
  WorkersTime time{sums[row_ns_workers],
                   {
#define X(account, name) sums[row_ns_##account],
                       KASANE_ACCOUNTS(X)
#undef X
                   }};
  // Faults that a thread serves for others are not its workers' clocks'.
  time.all_ns = std::max(time.all_ns, std::accumulate(time.ns.begin(), time.ns.end(), std::uint64_t{0}));
  if (sums[row_ns_workers] == 0) time.all_ns = 0;
  return time;
}

PlaceTables::PlaceTables(std::byte* memory, Counters* counters, std::uint32_t workers) noexcept
    : workers_(workers) {
  for (std::uint32_t w = 0; w < workers; ++w) {
    counters[w].places = reinterpret_cast<PlaceTable*>(memory) + w;
    counters[w].places->open(place_in_program);
  }
}

PlaceTables::All PlaceTables::read(comm::Blocking& io, std::uint32_t ranks) const {
  std::map<std::pair<Account, std::uintptr_t>, std::uint64_t> sums;
  All all;
  const auto copy = std::make_unique<PlaceTable[]>(workers_);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    io.read({Rank{r}, gas::kPlaces, 0}, copy.get(), bytes(workers_));
    for (std::uint32_t w = 0; w < workers_; ++w) {
      all.lost_ns += copy[w].lost_ns();
      copy[w].for_each([&](Account a, std::uintptr_t code, std::uint64_t ns) { sums[{a, code}] += ns; });
    }
  }
  for (const auto& [key, ns] : sums) all.places.push_back({key.first, key.second, ns, {}});
  return all;
}

void name_places(std::vector<TimedPlace>& places) {
  std::erase_if(places, [](const TimedPlace& place) { return place.code == 0; });
  std::ranges::sort(places, std::greater<>(), &TimedPlace::ns);
  if (places.size() > kNamed) places.resize(kNamed);
  std::map<std::string, std::vector<std::uint64_t>> addresses;
  for (const TimedPlace& place : places)
    if (const auto at = code_in_file(place.code - 1)) addresses[at->file].push_back(at->address);
  std::map<std::string, std::map<std::uint64_t, std::vector<diagnostics::SourceLine>>> lines;
  for (const auto& [file, of] : addresses) lines[file] = diagnostics::source_lines(file, of);
  for (TimedPlace& place : places) {
    const auto at = code_in_file(place.code - 1);
    CrashText text;
    describe(text, {place.code, false, 1});
    place.name = name_of({text.data(), text.size()},
                         at ? lines[at->file][at->address] : std::vector<diagnostics::SourceLine>());
  }
}

std::string time_table(std::span<const WorkersTime> of_ranks, std::uint32_t workers,
                       std::span<const TimedPlace> places, std::uint64_t lost_ns) {
  WorkersTime all;
  for (const WorkersTime& one : of_ranks) {
    all.all_ns += one.all_ns;
    for (std::size_t a = 0; a < kAccounts; ++a) all.ns[a] += one.ns[a];
  }
  if (all.all_ns == 0) return {};
  std::array<std::map<std::string, std::uint64_t>, kAccounts> by_name;
  for (const TimedPlace& place : places) by_name[index(place.account)][place.name] += place.ns;

  std::string text = fmt::format("\nwhere the time of {} worker{} went\n", of_ranks.size() * workers,
                                 of_ranks.size() * workers == 1 ? "" : "s");
  const auto out = std::back_inserter(text);
  const auto print = [&](std::string_view name, std::uint64_t part, const auto& part_of_rank) {
    fmt::format_to(out, "{:>7}  {}", percent(part), name);
    if (of_ranks.size() > 1) {
      std::vector<std::uint64_t> parts;
      for (const WorkersTime& one : of_ranks) parts.push_back(one.all_ns == 0 ? 0 : part_of_rank(one));
      const auto most = std::ranges::max_element(parts);
      fmt::format_to(out, " (most: {}, rank {})", percent(*most), most - parts.begin());
    }
    text += '\n';
  };
  const auto rest = [](const WorkersTime& one) {
    std::uint64_t left = 1000;
    for (const std::uint64_t ns : one.ns) left -= std::min(left, tenths(ns, one.all_ns));
    return left;
  };
  print("compute", rest(all), rest);
  for (std::size_t a = 0; a < kAccounts; ++a) {
    const std::uint64_t part = tenths(all.ns[a], all.all_ns);
    if (part == 0) continue;
    print(kNames[a], part, [a](const WorkersTime& one) { return tenths(one.ns[a], one.all_ns); });
    std::vector<std::pair<std::uint64_t, std::string_view>> most;
    for (const auto& [name, ns] : by_name[a]) most.emplace_back(ns, name);
    std::ranges::sort(most, std::greater<>());
    for (std::size_t i = 0; i < std::min(kShown, most.size()); ++i)
      if (const std::uint64_t of_place = tenths(most[i].first, all.all_ns); of_place != 0)
        fmt::format_to(out, "{:>16}  {}\n", percent(of_place), most[i].second);
  }
  if (const std::uint64_t lost = tenths(lost_ns, all.all_ns); lost != 0)
    fmt::format_to(out, "the places of {} found no room in the workers' tables\n", percent(lost));
  return text;
}

}  // namespace kasane::runtime
