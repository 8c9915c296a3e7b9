// SPDX-License-Identifier: Apache-2.0
// kasane bench alloc: what allocating and freeing global memory costs, at this rank and at another one,
// beside glibc's malloc and mimalloc in the same run, with the number of one-sided operations
// (docs/design/heap.md).
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "alloc_pattern.h"
#include "command_line.h"
#include "command_output.h"
#include "rows.h"

namespace {

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
        [&](std::vector<void*>& mine) {
          kasane::bench::hand_on(slots, thread, mine, [&barrier] { barrier.arrive_and_wait(); });
        });
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  rows.push_back({"alloc", "mixed", name, 1, 2, 0, (each[0] + each[1]) / 2, "ns", mixed_rounds});
}

/// Lines "case value unit" of the player.
void player(std::vector<Row>& rows, const std::string& system, const std::string& line, unsigned ranks,
            unsigned repetitions) {
  std::istringstream in(kasane::bench::command_output(line));
  for (std::string name, unit;;) {
    double value = 0;
    if (!(in >> name >> value >> unit)) break;
    rows.push_back({"alloc", name, system, ranks, ranks, 0, value, unit, repetitions});
  }
}

void measure(std::vector<Row>& rows, const kasane::bench::CommandLine& line) {
  const bool quick = line.quick();
  if (line.wants("glibc")) same_process(rows, "glibc", {std::malloc, std::free}, quick);
  if (line.wants("mimalloc")) {
    void* library = nullptr;
    for (const char* name : {"libmimalloc.so", "libmimalloc.so.2", "libmimalloc.so.2.0"}) {
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library != nullptr) {
      same_process(rows, "mimalloc",
                   {reinterpret_cast<void* (*)(std::size_t)>(::dlsym(library, "mi_malloc")),
                    reinterpret_cast<void (*)(void*)>(::dlsym(library, "mi_free"))},
                   quick);
    } else {
      std::fputs("mimalloc is not here (Debian package libmimalloc-dev): left out\n", stderr);
    }
  }
  const auto here = kasane::bench::own_folder();
  for (const char* transport : {"shm", "ucx"}) {
    const std::string system = std::string("kasane-") + transport;
    if (!line.wants(system)) continue;
    for (const char* cases : {"pattern", "busy", "mixed"}) {
      std::fprintf(stderr, "%s: %s …\n", system.c_str(), cases);
      player(rows, system,
             kasane::bench::kasane_command() + " run -n 2 --workers 1 --transport " + transport + " -- " +
                 here + "/player-alloc " + cases + (quick ? " --quick" : ""),
             2, quick ? 100 : 1000);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("alloc", "fewer rounds: seconds");
  line.names("systems", {"glibc", "mimalloc", "kasane-shm", "kasane-ucx"});
  line.repetitions(1, 1);
  if (const auto status = line.parse(argc, argv)) return *status;

  return kasane::bench::or_told("kasane bench alloc", [&] {
    std::vector<Row> rows;
    for (unsigned turn = 0; turn < line.repetitions(); ++turn) measure(rows, line);
    rows = kasane::bench::medians(rows);
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return std::tie(a.case_, a.unit) < std::tie(b.case_, b.unit);
    });
    if (line.json() != "-") print(rows);
    write(line.json(), rows);
    return 0;
  });
}
