// SPDX-License-Identifier: Apache-2.0
// kasane bench alloc: what allocating and freeing global memory costs, at this rank and at another one, beside glibc's malloc and mimalloc in the same run,
// with the number of one-sided trips (docs/design/heap.md).
//   kasane-bench-alloc [--quick] [--json FILE] [--systems NAME,…]
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "alloc_pattern.h"
#include "base/json.h"
#include "command_output.h"
#include "row.h"

namespace {

using kasane::Json;
using kasane::bench::kPatternAllocations;
using kasane::bench::Row;

/// A malloc of this process. Called through pointers, as a shared library's is.
struct Allocator {
  void* (*allocate)(std::size_t);
  void (*free)(void*);
};

void same_process(std::vector<Row>& rows, const std::string& name, const Allocator& a, bool quick) {
  const unsigned rounds = quick ? 100 : 1000;
  const auto wrong = [] { throw std::runtime_error("an allocation is null or was given out twice"); };
  const auto t = kasane::bench::run_pattern(rounds, a.allocate, a.free, wrong);
  rows.push_back({"alloc", "malloc-local", name, 1, 1, 0, t.allocate_ns, "ns", rounds});
  rows.push_back({"alloc", "free-local", name, 1, 1, 0, t.free_ns, "ns", rounds});

  const unsigned mixed_rounds = quick ? 50 : 400;
  std::vector<void*> slots(2 * kasane::bench::kMixedAllocations);
  std::array<double, 2> each{};
  std::barrier<> barrier(2);
  const auto body = [&](std::size_t thread) {
    each[thread] = kasane::bench::run_mixed(
        mixed_rounds, thread, [&a](std::size_t bytes, std::uint64_t) { return a.allocate(bytes); }, a.free,
        [&](std::vector<void*>& mine) { kasane::bench::hand_on(slots, thread, mine, [&barrier] { barrier.arrive_and_wait(); }); });
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  rows.push_back({"alloc", "mixed", name, 1, 2, 0, (each[0] + each[1]) / 2, "ns", mixed_rounds});
}

/// Lines "case value unit" of the player.
void player(std::vector<Row>& rows, const std::string& system, const std::string& line, unsigned ranks, unsigned repetitions) {
  std::istringstream in(kasane::bench::command_output(line));
  for (std::string name, unit; ;) {
    double value = 0;
    if (!(in >> name >> value >> unit)) break;
    rows.push_back({"alloc", name, system, ranks, ranks, 0, value, unit, repetitions});
  }
}

Json to_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"suite", row.suite}, {"case", row.case_}, {"system", row.system}, {"ranks", row.ranks}, {"threads", row.threads},
                    {"bytes", row.bytes}, {"value", row.value}, {"unit", row.unit}, {"repetitions", row.repetitions}});
  }
  return list;
}

void print(std::vector<Row> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return std::tie(a.case_, a.unit) < std::tie(b.case_, b.unit); });
  std::printf("%-20s %-14s %5s %7s %12s %-5s\n", "case", "system", "ranks", "threads", "median", "unit");
  for (const Row& row : rows) {
    std::printf("%-20s %-14s %5u %7u %12.3f %-5s\n", row.case_.c_str(), row.system.c_str(), row.ranks, row.threads, row.value, row.unit.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What allocating global memory costs, here and at another rank, beside glibc and mimalloc", "kasane bench alloc");
  bool quick = false;
  std::string json;
  std::vector<std::string> systems;
  app.add_flag("--quick", quick, "fewer rounds: seconds");
  app.add_option("--json", json, "write the rows to FILE too (- for standard output)")->type_name("FILE");
  app.add_option("--systems", systems, "only these")->delimiter(',')->check(CLI::IsMember({"glibc", "mimalloc", "kasane-shm", "kasane-ucx"}));
  CLI11_PARSE(app, argc, argv);

  const auto wanted = [&](const char* name) { return systems.empty() || std::find(systems.begin(), systems.end(), name) != systems.end(); };
  try {
    std::vector<Row> rows;
    if (wanted("glibc")) same_process(rows, "glibc", {std::malloc, std::free}, quick);
    if (wanted("mimalloc")) {
      void* library = ::dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) library = ::dlopen("libmimalloc.so.2.0", RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) {
        same_process(rows, "mimalloc", {reinterpret_cast<void* (*)(std::size_t)>(::dlsym(library, "mi_malloc")), reinterpret_cast<void (*)(void*)>(::dlsym(library, "mi_free"))}, quick);
      } else {
        std::fputs("mimalloc is not here (Debian package libmimalloc2.0): left out\n", stderr);
      }
    }
    const auto here = std::filesystem::canonical("/proc/self/exe").parent_path();
    for (const char* transport : {"shm", "ucx"}) {
      const std::string system = std::string("kasane-") + transport;
      if (!wanted(system.c_str())) continue;
      for (const char* cases : {"pattern", "busy", "mixed"}) {
        std::fprintf(stderr, "%s: %s …\n", system.c_str(), cases);
        player(rows, system, (here / "kasane").string() + " run -n 2 --workers 1 --transport " + transport + " -- " + (here / "player-alloc").string() + " " + cases + (quick ? " --quick" : ""),
               2, quick ? 100 : 1000);
      }
    }
    if (json != "-") print(rows);
    if (!json.empty()) {
      if (const auto written = kasane::write_json_file(json, to_json(rows)); !written) {
        std::fprintf(stderr, "kasane bench alloc: %s\n", written.error().message.c_str());
        return 1;
      }
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kasane bench alloc: %s\n", e.what());
    return 1;
  }
}
