// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <kasane/comm/collectives.hpp>
#include <kasane/comm/launch.hpp>
#include <span>

int main() {
  auto session = kasane::comm::launch();
  if (!session) return std::fprintf(stderr, "%s\n", session.error().message.c_str()), 1;
  auto& transport = (*session)->transport();
  kasane::comm::PollWaiter waiter(transport);
  kasane::comm::Collectives all(transport, waiter);
  const std::uint32_t ranks = transport.ranks();
  std::uint64_t sum = raw(transport.rank()) + 1;
  all.allreduce(kasane::comm::Reduce::sum, std::span(&sum, 1));
  if (raw(transport.rank()) == 0)
    std::printf("1 + … + %u = %llu\n", ranks, static_cast<unsigned long long>(sum));
  all.barrier();
  return sum == std::uint64_t{ranks} * (ranks + 1) / 2 ? 0 : 1;
}
