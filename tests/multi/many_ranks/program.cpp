// SPDX-License-Identifier: Apache-2.0
// A job of many ranks that says what each rank takes (its share of memory, page tables, mappings) when all
// have started, and what it computed.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <kasane/kasane.hpp>
#include <string>
#include <vector>

namespace {

std::uint64_t kib_of(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) == 0) return std::stoull(line.substr(name.size()));
  }
  return 0;
}

/// A quarter of a KiB each: what the kernel keeps of a mapping.
std::uint64_t kib_of_mappings(const std::string& pid) {
  std::ifstream maps("/proc/" + pid + "/maps");
  return static_cast<std::uint64_t>(
             std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n')) /
         4;
}

/// The ranks are the supervisor's children.
std::uint64_t kib_of_all_ranks() {
  const std::string parent = std::to_string(::getppid());
  std::ifstream children("/proc/" + parent + "/task/" + parent + "/children");
  std::uint64_t kib = 0;
  for (std::string pid; children >> pid;) {
    kib += kib_of("/proc/" + pid + "/smaps_rollup", "Pss:") + kib_of("/proc/" + pid + "/status", "VmPTE:") +
           kib_of_mappings(pid);
  }
  return kib;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t sum = 0, ranks = 0;
  kasane::run([&] { ranks = kasane::ranks(); });
  if (argc > 1 && std::string(argv[1]) == "memory") {
    std::printf("%llu KiB a rank\n", static_cast<unsigned long long>(kib_of_all_ranks() / ranks));
  }
  kasane::run([&] {
    const std::uint64_t threads = 64;
    std::vector<std::uint64_t> parts(threads);
    std::vector<kasane::thread> all;
    for (std::uint64_t i = 0; i < threads; ++i) all.emplace_back([&parts, i] { parts[i] = i + 1; });
    for (auto& thread : all) thread.join();
    for (const std::uint64_t part : parts) sum += part;
  });
  std::printf("%llu ranks: %llu\n", static_cast<unsigned long long>(ranks),
              static_cast<unsigned long long>(sum));
  return sum == 64 * 65 / 2 ? 0 : 1;
}
