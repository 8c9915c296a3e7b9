// SPDX-License-Identifier: Apache-2.0
// What `kasane bench alloc` runs on two ranks: prints a line "case value unit" for each result.
//   player-alloc CASES [--quick]      CASES: pattern | busy | mixed
#include <kasane/kasane.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "alloc_pattern.h"

namespace {

using kasane::bench::kPatternAllocations;
using kasane::bench::PatternTimes;

struct RemoteOperations {
  std::uint64_t allocate, free;
};
RemoteOperations remote_operations() {
  return {kasane::counter("remote_operations_allocate"), kasane::counter("remote_operations_free")};
}

[[noreturn]] void wrong() {
  std::fputs("player-alloc: an allocation is null or was given out twice\n", stderr);
  std::abort();
}

void print(const std::string& name, double value, const char* unit) {
  std::printf("%s %.3f %s\n", name.c_str(), value, unit);
}

/// The pattern with memory of `rank`. The first rounds, which take new pages, are a part of it.
void pattern(const std::string& suffix, unsigned rounds, std::uint32_t rank) {
  const RemoteOperations before = remote_operations();
  const PatternTimes t = kasane::bench::run_pattern(
      rounds,
      [rank](std::size_t bytes) {
        return rank == kasane::rank() ? kasane_malloc(bytes) : kasane_allocate_at(bytes, 16, rank);
      },
      [](void* p) { kasane_free(p); }, wrong);
  const RemoteOperations after = remote_operations();
  const double operations = static_cast<double>(rounds) * kPatternAllocations;
  print("malloc-" + suffix, t.allocate_ns, "ns");
  print("free-" + suffix, t.free_ns, "ns");
  print("malloc-" + suffix, static_cast<double>(after.allocate - before.allocate) / operations, "operations");
  print("free-" + suffix, static_cast<double>(after.free - before.free) / operations, "operations");
}

/// So many objects of one size at another rank that what a worker keeps of them does not matter: groups of 64
/// come and go.
void flood(unsigned rounds, std::uint32_t rank) {
  constexpr std::size_t kObjects = 8192;
  std::vector<double> allocating, freeing;
  std::vector<void*> all(kObjects);
  std::mt19937_64 random(2);
  const RemoteOperations before = remote_operations();
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint64_t start = kasane::bench::now_ns();
    for (auto& p : all) p = kasane_allocate_at(1024, 16, rank);
    const std::uint64_t middle = kasane::bench::now_ns();
    std::shuffle(all.begin(), all.end(), random);
    const std::uint64_t again = kasane::bench::now_ns();
    for (void* p : all) kasane_free(p);
    allocating.push_back(static_cast<double>(middle - start) / kObjects);
    freeing.push_back(static_cast<double>(kasane::bench::now_ns() - again) / kObjects);
  }
  const RemoteOperations after = remote_operations();
  const double operations = static_cast<double>(rounds) * kObjects;
  print("malloc-remote-1024", kasane::bench::median(std::move(allocating)), "ns");
  print("free-remote-1024", kasane::bench::median(std::move(freeing)), "ns");
  print("malloc-remote-1024", static_cast<double>(after.allocate - before.allocate) / operations,
        "operations");
  print("free-remote-1024", static_cast<double>(after.free - before.free) / operations, "operations");
}

/// The target's only worker computes and does not call Kasane.
void busy(unsigned rounds, double seconds) {
  const std::uint32_t target = kasane::rank();
  // The child runs here at once; this thread goes on when another rank has taken it over.
  kasane::thread computing([seconds] {
    const std::uint64_t end = kasane::bench::now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
    while (kasane::bench::now_ns() < end) {
    }
  });
  if (kasane::rank() == target) {
    std::fputs("player-alloc: nobody took this thread over while the target computed\n", stderr);
  } else {
    pattern("remote-busy", rounds, target);
  }
  computing.join();
}

/// A thread on each rank allocates, half of it anywhere, and frees what its neighbour allocated.
void mixed(unsigned rounds) {
  const std::uint32_t ranks = kasane::ranks();
  std::vector<void*> slots(ranks * kasane::bench::kMixedAllocations);
  std::vector<double> each(ranks);
  std::vector<std::uint32_t> at(ranks);
  kasane::barrier barrier(ranks);
  const auto body = [&](std::uint32_t thread) {
    // The child runs here at once and holds the worker until another rank has taken its parent over.
    for (const std::uint64_t end = kasane::bench::now_ns() + 200'000'000; kasane::bench::now_ns() < end;) {
    }
    at[thread] = kasane::rank();
    each[thread] = kasane::bench::run_mixed(
        rounds, thread,
        [ranks](std::size_t bytes, std::uint64_t where) {
          void* p = where % 2 != 0
                        ? kasane_malloc(bytes)
                        : kasane_allocate_at(bytes, 16, static_cast<std::uint32_t>(where / 2 % ranks));
          if (p == nullptr) wrong();
          return p;
        },
        [](void* p) { kasane_free(p); },
        [&](std::vector<void*>& mine) {
          kasane::bench::hand_on(slots, thread, mine, [&barrier] { barrier.arrive_and_wait(); });
        });
  };
  std::vector<kasane::thread> threads;
  for (std::uint32_t t = 0; t < ranks; ++t) threads.emplace_back(body, t);
  for (auto& t : threads) t.join();
  std::sort(at.begin(), at.end());
  if (std::unique(at.begin(), at.end()) != at.end())
    std::fputs("player-alloc: the threads of the mixed workload did not begin on different ranks\n", stderr);
  print("mixed", std::accumulate(each.begin(), each.end(), 0.0) / ranks, "ns");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string cases = argc > 1 ? argv[1] : "";
  const bool quick = argc > 2 && std::strcmp(argv[2], "--quick") == 0;
  const unsigned rounds = quick ? 100 : 1000;
  kasane::run([&] {
    if (cases == "pattern") {
      pattern("local", rounds, kasane::rank());
      if (kasane::ranks() > 1) pattern("remote", rounds, kasane::ranks() - 1 - kasane::rank());
      if (kasane::ranks() > 1) flood(quick ? 3 : 20, kasane::ranks() - 1 - kasane::rank());
    } else if (cases == "busy") {
      busy(rounds, quick ? 1 : 3);
    } else {
      mixed(quick ? 50 : 400);
    }
  });
  return 0;
}
