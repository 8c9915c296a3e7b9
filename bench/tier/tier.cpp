// SPDX-License-Identifier: Apache-2.0
// kasane bench tier: programs whose data are four times as large as the DRAM that they may use, beside the
// kernel's mmap, UMap and the disk itself (fio).
//
// Claim: Kasane's tiers take from the disk what it gives (kBars of systems.h). Each run has a memory control
// group of its own, of the budget and some slack, and the most that was used there is shown beside the value;
// systems take turns within each repetition; a value is the median, a ratio the median of the ratios of each
// repetition. All results are verified by the players.
#include <fmt/format.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/text_table.h"
#include "command_line.h"
#include "guarded.h"
#include "median.h"
#include "mem/large_frames.h"
#include "mem/space.h"
#include "mem/spill_disk.h"
#include "memory_group.h"
#include "progress.h"
#include "rows.h"
#include "tier/systems.h"

namespace {

using kasane::bytes_text;
using kasane::bench::median;
using kasane::bench::MemoryGroup;
using kasane::bench::Row;
using namespace kasane::bench::tier;

constexpr char kName[] = "kasane bench tier";

std::string group_prefix(pid_t owner) { return "kasane-bench-tier." + std::to_string(owner); }

struct Measured {
  std::vector<double> values;  ///< a repetition each
  std::uint64_t peak = 0, limit = 0;
};
using Results = std::map<std::pair<std::string, std::string>, Measured>;  // (case, system)

/// False: a run failed; its system is then left out of these cases.
bool measure(std::vector<Job> jobs, unsigned repetitions, Results& results) {
  bool good = true;
  kasane::bench::Progress progress(jobs.size() * repetitions);
  for (unsigned r = 0; r < repetitions; ++r) {
    for (Job& job : jobs) {
      std::string what = job.system + ":";
      for (const std::string& name : job.cases) what += " " + name;
      progress.begin(what);
      if (!job.run) continue;
      try {
        const MemoryGroup group(group_prefix(::getppid()) + "." + std::to_string(::getpid()), job.limit);
        const Values values = job.run(group, r + 1);
        for (const std::string& name : job.cases) {
          if (values.count(name) == 0) throw std::runtime_error("it says nothing of " + name);
          Measured& m = results[{name, job.system}];
          m.values.push_back(values.at(name));
          m.peak = std::max(m.peak, group.peak().value_or(0));
          m.limit = job.limit;
        }
      } catch (const std::exception& e) {
        progress.pause();
        std::fprintf(stderr, "%s: %s failed: %s\n", kName, what.c_str(), e.what());
        for (const std::string& name : job.cases) results.erase({name, job.system});
        job.run = nullptr;
        good = false;
      }
    }
  }
  return good;
}

double ratio(const Results& results, const Bar& bar) {
  const auto one = results.find({bar.name, bar.system}), other = results.find({bar.name, bar.against});
  if (one == results.end() || other == results.end()) return 0;
  std::vector<double> ratios;
  for (std::size_t r = 0; r < one->second.values.size(); ++r)
    ratios.push_back(one->second.values[r] / other->second.values[r]);
  return median(ratios);
}

std::string mib_text(std::uint64_t bytes) { return bytes == 0 ? "-" : std::to_string(bytes >> 20); }

std::vector<Row> report(const Results& results, const Settings& settings, unsigned repetitions,
                        std::FILE* table) {
  std::vector<Row> rows;
  const kasane::TextTable lines({-12, -16, 12, -8, 16, 10});
  std::fputs(lines
                 .line(std::array<std::string, 6>{"case", "system", "median", "unit", "peak memory MiB",
                                                  "limit MiB"})
                 .c_str(),
             table);
  for (const Case& c : kCases) {
    for (const char* system : kSystems) {
      const auto found = results.find({c.name, system});
      if (found == results.end()) continue;
      const Measured& m = found->second;
      const double value = median(m.values);
      const std::array<std::string, 6> cells{
          c.name, system,           fmt::format("{:.{}f}", value, value < 100 ? 3 : 0),
          c.unit, mib_text(m.peak), mib_text(m.limit)};
      std::fputs(lines.line(cells).c_str(), table);
      const auto [low, high] = std::minmax_element(m.values.begin(), m.values.end());
      Row row{"tier",
              c.name,
              system,
              1,
              c.threads,
              settings.bytes,
              value,
              c.unit,
              repetitions,
              {{"low", *low},
               {"high", *high},
               {"budget_bytes", settings.budget},
               {"limit_bytes", m.limit},
               {"peak_bytes", m.peak}}};
      for (const Bar& bar : kBars) {
        const double r =
            std::string(c.name) == bar.name && std::string(system) == bar.system ? ratio(results, bar) : 0;
        if (r != 0)
          row.more.insert(row.more.end(), {{"against", bar.against}, {"ratio", r}, {"bar", bar.least}});
      }
      rows.push_back(std::move(row));
    }
  }
  for (const Bar& bar : kBars) {
    const double r = ratio(results, bar);
    if (r != 0)
      std::fprintf(table, "%-12s %s: %.2f x %s (bar: %.2f)\n", bar.name, bar.system, r, bar.against,
                   bar.least);
  }
  return rows;
}

std::string default_directory() {
  const char* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/var/tmp";
}

bool in_memory(const std::string& directory) {
  struct statfs s{};
  return ::statfs(directory.c_str(), &s) == 0 && s.f_type == TMPFS_MAGIC;
}

struct Sizes {
  std::string directory = default_directory(), size = "1G", slack = "32M", page = "64K", run;
  std::uint64_t reads = 40'000;
};

std::uint64_t bytes_of(const char* option, const std::string& text) {
  const auto bytes = kasane::parse_bytes(text);
  if (!bytes) throw std::runtime_error(std::string(option) + ": " + bytes.error().message);
  return *bytes;
}

int bench(const Sizes& sizes, const kasane::bench::CommandLine& line) {
  const std::string here = kasane::bench::own_folder();
  Settings settings{here,
                    sizes.directory,
                    sizes.run,
                    bytes_of("--size", line.quick() ? "64M" : sizes.size),
                    0,
                    bytes_of("--slack", line.quick() ? "16M" : sizes.slack),
                    bytes_of("--page", sizes.page),
                    line.quick() ? 2000 : sizes.reads};
  settings.budget = settings.bytes / 4;
  if (settings.bytes < 32 << 20 || settings.bytes % (1 << 20) != 0)
    throw std::runtime_error("--size is a multiple of 1M from 32M on");
  const unsigned repetitions = line.repetitions();
  const bool grouped =
      MemoryGroup(group_prefix(::getppid()) + ".try", settings.budget + settings.slack).good();

  std::vector<std::string> notes;
  if (!grouped)
    notes.emplace_back(
        "no memory control group can be made here (that needs root, or a delegated one): Kasane and umap "
        "keep to the budget by "
        "themselves, and peaks are not known");
  if (in_memory(settings.directory))
    notes.push_back(settings.directory + " is memory, no disk: name another with --dir");
  const auto all = jobs(settings, line.wanted("systems"), line.wanted("cases"), grouped, notes);
  Results results;
  const bool good = measure(all, repetitions, results);

  std::FILE* const table = kasane::bench::table_file(line.json());
  const auto disk = kasane::mem::spill_disk(settings.directory);
  const std::uint64_t frames =
      std::max<std::uint64_t>(kasane::mem::kBlockBytes, kasane::mem::large_frame_bytes());
  std::fprintf(
      table, "%s of data in %s%s, a budget of %s, Kasane's frames of %s, %s\n",
      bytes_text(settings.bytes).c_str(), settings.directory.c_str(),
      disk && disk->ends_where_asked ? " (rq_affinity 2)" : "", bytes_text(settings.budget).c_str(),
      bytes_text(frames).c_str(),
      grouped ? ("each run in a memory control group of the budget and " + bytes_text(settings.slack)).c_str()
              : "no control group");
  for (const std::string& note : notes) std::fprintf(table, "%s\n", note.c_str());
  write(line.json(), report(results, settings, repetitions, table));
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("tier", "one repetition, with 64M, a slack of 16M and few reads");
  std::vector<std::string> cases;
  for (const Case& c : kCases) cases.emplace_back(c.name);
  line.names("cases", cases);
  line.names("systems", {std::begin(kSystems), std::end(kSystems)});
  line.repetitions(3, 1);
  Sizes sizes;
  line.own().directory("--dir", sizes.directory,
                       "where all files are made: on the disk to be measured; nothing stays there");
  line.own().text("--size", sizes.size, "of the data; the budget is a quarter of it", "SIZE");
  line.own().text("--slack", sizes.slack, "what a run may use beyond the budget, for itself", "SIZE");
  line.own().choice("--page", sizes.page, {"4K", "64K", "2M"},
                    "pages of Kasane's data in seq-* and random-*");
  line.own().number("--reads", sizes.reads, "of random-8 and random-64; random-1 does a fourth", 1,
                    10'000'000);
  line.own().text("--run", sizes.run, "options for `kasane run` beside -n, --workers, --dram and --spill",
                  "TEXT");
  if (const auto status = line.parse(argc, argv)) return *status;
  const int status = kasane::bench::run_guarded(kName, [&] { return bench(sizes, line); });
  MemoryGroup::remove_left_behind(group_prefix(::getpid()));
  return status;
}
