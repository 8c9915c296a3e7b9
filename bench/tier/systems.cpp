// SPDX-License-Identifier: Apache-2.0
#include "tier/systems.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "command_output.h"
#include "rows.h"
#include "run_app.h"
#include "scratch_file.h"
#include "tier/passes.h"

namespace kasane::bench::tier {
namespace {

constexpr unsigned kDeadlineSeconds = 1800;  ///< a hang ends the benchmark

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& w : list) text += " " + w;
  return text;
}

/// Runs in the foreground group, so that an interrupt reaches all processes.
std::string guarded(const MemoryGroup& group, const std::string& command) {
  return group.around(fmt::format("timeout --foreground -k 5 {} {}", kDeadlineSeconds, command));
}

/// Lines "case value"; others are a library's (UMap logs there).
Values parse(const std::string& text) {
  Values values;
  std::istringstream in(text);
  for (std::string line, name, more; std::getline(in, line);) {
    std::istringstream words_in(line);
    double value = 0;
    if (words_in >> name >> value && !(words_in >> more)) values[name] = value;
  }
  return values;
}

class Plan {
 public:
  Plan(const Settings& s, const std::vector<std::string>& cases) : s_(s), cases_(cases) {}

  void kasane(const std::string& system, const std::string& memory, std::uint64_t limit, bool sweeps) {
    const auto begin = fmt::format("'{}' run -n 1 --workers 1 {} {} --", kasane_command(), memory, s_.run);
    if (const auto some = sweeps ? wanted({"seq-write", "seq-read", "random-1", "random-8", "random-64"})
                                 : std::vector<std::string>{};
        !some.empty()) {
      add(system, some, limit, [=, s = s_](const MemoryGroup& group, unsigned seed) {
        const auto line = fmt::format("{} '{}/player-tier' {} {} {} {}{}", begin, s.here, s.bytes, s.page,
                                      s.reads, seed, words(some));
        return parse(command_output(guarded(group, line)));
      });
    }
    for (const auto& [name, together, steps] :
         {std::tuple{"stencil", 1, 2}, std::tuple{"stencil-tb", 10, 20}}) {
      if (wanted({name}).empty()) continue;
      // two grids, or one
      const auto n =
          static_cast<std::uint64_t>(std::sqrt(static_cast<double>(s_.bytes) / (together == 1 ? 16 : 8))) - 2;
      add(system, {name}, limit,
          [=, s = s_, name = std::string(name), together = together, steps = steps](const MemoryGroup& group,
                                                                                    unsigned) {
            const auto line = fmt::format("{} '{}/stencil' -n {} -k {} --steps {} --quiet --json -", begin,
                                          apps_folder(), n, together, steps);
            return Values{{name, run_app(guarded(group, line), {"/result/gigaflops"}).at(0)}};
          });
    }
    if (!wanted({"sort"}).empty()) {
      add(system, {"sort"}, limit, [=, s = s_](const MemoryGroup& group, unsigned seed) {
        const auto line = fmt::format("{} '{}/cilksort' --count {} --seed {} --quiet --json -", begin,
                                      apps_folder(), s.bytes / 16, seed);
        return Values{{"sort", 1e-6 * static_cast<double>(s.bytes / 16) /
                                   run_app(guarded(group, line), {"/seconds"}).at(0)}};
      });
    }
  }

  void mapped(const std::string& system, std::initializer_list<const char*> names) {
    const auto player = [=, this](const std::vector<std::string>& some) {
      if (some.empty()) return;
      add(system, some, s_.budget + s_.slack, [=, s = s_](const MemoryGroup& group, unsigned seed) {
        return parse(command_output(
            guarded(group, fmt::format("'{}/player-tier-mapped' {} '{}' {} {} {} {}{}", s.here, system,
                                       s.directory, s.bytes, s.budget, s.reads, seed, words(some)))));
      });
    };
    // The sweeps share one run, each application has one.
    std::vector<std::string> together;
    for (const std::string& name : wanted(names))
      name[0] == 's' && name != "seq-read" && name != "seq-write" ? player({name}) : together.push_back(name);
    player(together);
  }

  void fio() {
    const auto some = wanted({"seq-write", "seq-read", "random-1", "random-8", "random-64"});
    if (some.empty()) return;
    add("fio", some, s_.budget + s_.slack, [=, s = s_](const MemoryGroup& group, unsigned seed) {
      const ScratchFile file(s.directory, s.bytes);
      const auto fio = [&](const std::string& arguments, const char* side) {
        const auto line = fmt::format(
            "fio --name=x --filename={} --size={} --ioengine=io_uring --direct=1 --randseed={} "
            "--output-format=json {}",
            file.path(), s.bytes, seed, arguments);
        const auto text = command_output(guarded(group, line));
        return nlohmann::json::parse(text.substr(text.find('{'))).at("jobs").at(0).at(side);
      };
      Values values{
          {"seq-write",
           fio("--rw=write --bs=1m --iodepth=8 --fallocate=none", "write").at("bw_bytes").get<double>() /
               (1 << 20)}};
      for (const std::string& name : some) {
        if (name == "seq-read")
          values[name] =
              fio("--rw=read --bs=1m --iodepth=8", "read").at("bw_bytes").get<double>() / (1 << 20);
      }
      for (const RandomCase& c : kRandomCases) {
        if (std::find(some.begin(), some.end(), c.name) == some.end()) continue;
        values[c.name] = fio(fmt::format("--rw=randread --bs=4k --iodepth={} --number_ios={}", c.threads,
                                         c.reads(s.reads)),
                             "read")
                             .at("iops")
                             .get<double>();
      }
      return values;
    });
  }

  std::vector<Job> all;

 private:
  [[nodiscard]] std::vector<std::string> wanted(std::initializer_list<const char*> names) const {
    std::vector<std::string> some;
    const auto is_wanted = [this](const char* name) {
      return std::find(cases_.begin(), cases_.end(), name) != cases_.end();
    };
    std::copy_if(names.begin(), names.end(), std::back_inserter(some), is_wanted);
    return some;
  }
  void add(const std::string& system, std::vector<std::string> cases, std::uint64_t limit,
           std::function<Values(const MemoryGroup&, unsigned)> run) {
    all.push_back({system, std::move(cases), limit, std::move(run)});
  }

  const Settings s_;
  const std::vector<std::string> cases_;
};

bool has_fio() { return std::system("command -v fio >/dev/null 2>&1") == 0; }
bool has_umap() {
  void* const library = ::dlopen("libumap.so", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

}  // namespace

std::vector<Job> jobs(const Settings& s, const std::vector<std::string>& systems,
                      const std::vector<std::string>& cases, bool grouped, std::vector<std::string>& notes) {
  Plan plan(s, cases);
  for (const std::string& system : systems) {
    const bool kernel = system.rfind("mmap", 0) == 0;
    if (kernel && !grouped) {
      notes.push_back(system + ": left out: without a memory control group nothing bounds the page cache");
    } else if (system == "fio" && !has_fio()) {
      notes.push_back("fio: not installed (Debian package fio): left out");
    } else if (system == "umap" && !has_umap()) {
      notes.push_back("umap: not installed (no libumap.so): left out");
    } else if (system == "kasane") {
      plan.kasane(system, fmt::format("--dram {} --spill '{}'", s.budget, s.directory), s.budget + s.slack,
                  true);
    } else if (system == "kasane-ample") {
      plan.kasane(system, fmt::format("--dram {} --spill '{}'", s.bytes + s.budget, s.directory),
                  s.bytes + s.budget + s.slack, false);
    } else if (system == "kasane-in-core") {
      plan.kasane(system, "--dram 0 --spill none", MemoryGroup::kNoLimit, false);
    } else if (system == "mmap-sequential") {
      plan.mapped(system, {"seq-read", "seq-write"});
    } else if (system == "mmap-random") {
      plan.mapped(system, {"random-1", "random-8", "random-64"});
    } else if (system == "fio") {
      plan.fio();
    } else {
      plan.mapped(system, {"seq-read", "seq-write", "random-1", "random-8", "random-64", "stencil",
                           "stencil-tb", "sort"});
    }
  }
  return std::move(plan.all);
}

}  // namespace kasane::bench::tier
