// SPDX-License-Identifier: Apache-2.0
// Kasane's player of kasane bench tier: plain loads and stores to global memory, nothing else (passes.h).
//   player-tier BYTES PAGE READS SEED CASE…      the random cases read READS blocks a thread; random-8 uses
//                                                every worker
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <kasane/team.hpp>

#include "common/report.h"
#include "passes.h"

namespace {

using namespace kasane::bench::tier;

double random_reads(const Data& data, std::size_t reads, std::uint64_t seed, bool all_workers) {
  const std::size_t members = all_workers ? kasane::ranks() * kasane::workers() : 1;
  AbsentBlocks blocks(data, reads * members, seed);
  double start = 0, end = 0;
  const auto body = [&](kasane::member& me) {
    const auto [first, last] = me.part(0, blocks.size());
    me.wait();
    if (me.index() == 0) start = seconds();
    blocks.read(data, first, last);
    me.wait();
    if (me.index() == 0) end = seconds();
  };
  if (all_workers)
    kasane::team(body);
  else
    kasane::run([&] { kasane::team_of_one(body); });
  return static_cast<double>(blocks.size()) / (end - start);
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
  if (wanted("random-1")) report("random-1", random_reads(data, number(3), number(4), false));
  if (wanted("random-8")) report("random-8", random_reads(data, number(3), number(4) + 1, true));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("player-tier", [&] { return play(argc, argv); });
}
