// SPDX-License-Identifier: Apache-2.0
// Kasane's player of kasane bench collectives: the same cases and loop as peers/collectives_mpi.cpp, on
// kasane::comm as a user of the installed package writes it. Rank 0 prints "case bytes µs".
//   kasane run -n N -- player-collectives region|messages
//                                      region: by the collectives' region, which the ranks of a host map
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include <kasane/comm/collectives.hpp>
#include <kasane/comm/launch.hpp>

#include "collectives_cases.h"

namespace {

using namespace kasane::comm;
using kasane::bench::CollectiveCase;

void call(Collectives& all, std::uint32_t ranks, const CollectiveCase& c, std::vector<double>& a,
          std::vector<double>& b) {
  const std::size_t n = c.bytes / sizeof(double);
  const auto in = std::as_writable_bytes(std::span(a).first(std::max<std::size_t>(n, 1)));
  if (std::strcmp(c.name, "barrier") == 0)
    all.barrier();
  else if (std::strcmp(c.name, "broadcast") == 0)
    all.broadcast(kasane::Rank{0}, in);
  else if (std::strcmp(c.name, "allreduce") == 0)
    all.allreduce(Reduce::sum, std::span(b).first(n));
  else
    all.allgather(std::as_bytes(std::span(a).first(n)),
                  std::as_writable_bytes(std::span(b).first(n * ranks)));
}

void check(Collectives& all, std::uint32_t ranks, const CollectiveCase& c, std::vector<double>& a,
           std::vector<double>& b) {
  const bool sum = std::strcmp(c.name, "allreduce") == 0;
  std::fill(b.begin(), b.end(), sum ? 1.0 : 0.0);
  call(all, ranks, c, a, b);
  const double expected = sum ? ranks : std::strcmp(c.name, "allgather") == 0 ? 1.0 : 0.0;
  if (b[0] == expected) return;
  std::fprintf(stderr, "player-collectives: %s of %zu bytes gave %g, not %g\n", c.name, c.bytes, b[0],
               expected);
  std::abort();
}

double measure_us(Collectives& all, std::uint32_t ranks, const CollectiveCase& c) {
  const std::size_t n = std::max<std::size_t>(c.bytes / sizeof(double), 1) * ranks;
  std::vector<double> a(n, 1.0), b(n, 1.0);
  for (int i = 0; i < c.calls / 10 + 1; ++i) call(all, ranks, c, a, b);
  check(all, ranks, c, a, b);
  std::fill(b.begin(), b.end(), 0.0);
  all.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < c.calls; ++i) call(all, ranks, c, a, b);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / c.calls;
}

}  // namespace

int main(int argc, char** argv) {
  auto session = launch();
  if (!session) return std::fprintf(stderr, "player-collectives: %s\n", session.error().message.c_str()), 1;
  Transport& transport = (*session)->transport();
  PollWaiter waiter(transport);
  Collectives all(transport, waiter);
  if (argc > 1 && std::string_view(argv[1]) == "region") {
    if (const auto attached = all.attach(); !attached)
      return std::fprintf(stderr, "player-collectives: %s\n", attached.error().message.c_str()), 1;
  }
  for (const CollectiveCase& c : kasane::bench::kCollectiveCases) {
    const double us = measure_us(all, transport.ranks(), c);
    if (raw(transport.rank()) == 0) std::printf("%s %zu %.4f\n", c.name, c.bytes, us);
  }
  all.barrier();
  return 0;
}
