// SPDX-License-Identifier: Apache-2.0
// Kasane's player of kasane bench tier: plain loads and stores to global memory, nothing else (passes.h).
//   player-tier BYTES PAGE READS SEED CASE…      random-T: T threads of one worker, which read READS blocks
//                                                in all; random-1 a fourth of that
#include <cstdlib>
#include <kasane/kasane.hpp>

#include "common/report.h"
#include "passes.h"

namespace {

using namespace kasane::bench::tier;

double random_reads(const Data& data, std::size_t reads, std::uint64_t seed, std::size_t threads) {
  AbsentBlocks blocks(data, reads, seed);
  return kasane::run([&] {
    const double start = seconds();
    std::vector<kasane::thread> all;
    for (std::size_t t = 0; t < threads; ++t) {
      all.emplace_back(
          [&, t] { blocks.read(data, blocks.size() * t / threads, blocks.size() * (t + 1) / threads); });
    }
    for (kasane::thread& thread : all) thread.join();
    return static_cast<double>(blocks.size()) / (seconds() - start);
  });
}

int play(int argc, char** argv) {
  if (argc < 6) throw std::runtime_error("usage: player-tier BYTES PAGE READS SEED CASE...");
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  const Data data{static_cast<std::uint64_t*>(
                      kasane::allocate(number(1), 64, kasane::placement::local.in_pages(number(2)))),
                  number(1) / 8};
  const auto wanted = [&](const char* name) {
    return std::any_of(argv + 5, argv + argc, [name](const char* c) { return std::string(c) == name; });
  };
  report("seq-write", kasane::run([&] { return data.write(); }));
  kasane::run([&] { return data.read(); });
  if (wanted("seq-read")) report("seq-read", kasane::run([&] { return data.read(); }));
  for (const RandomCase& c : kRandomCases)
    if (wanted(c.name))
      report(c.name, random_reads(data, c.reads(number(3)), number(4) + c.threads, c.threads));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("player-tier", [&] { return play(argc, argv); });
}
