// SPDX-License-Identifier: Apache-2.0
// The communication layer by itself: every rank counts words of its own into a table that is spread over all
// ranks, by remote atomics that are outstanding together, and hands rank 0 its share by a write with
// notification.
//
//   kasane run -n 4 -- examples/comm_histogram      also with --transport ucx, or under mpirun
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <kasane/comm/collectives.hpp>
#include <kasane/comm/engine.hpp>
#include <kasane/comm/launch.hpp>

using namespace kasane;
using namespace kasane::comm;

namespace {

constexpr RegionId kTable{1};
constexpr std::uint64_t kBinsPerRank = 256, kSamples = 20000;
constexpr std::size_t kBytes = 1 << 16;
// The region: this rank's bins | where ranks put their shares, on rank 0 | a scratch word to send from.
constexpr std::uint64_t kShares = kBinsPerRank * 8, kScratch = kBytes - 64;

int run(Session& session) {
  Transport& transport = session.transport();
  PollWaiter waiter(transport);
  Collectives all(transport, waiter);
  const auto options = engine_options_from_environment();  // KASANE_ISSUE and others
  if (!options) return std::fprintf(stderr, "%s\n", options.error().message.c_str()), 1;
  auto engine = Engine::create(transport, *options);
  if (!engine) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;

  const int fd = ::memfd_create("histogram", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, kBytes) != 0) return std::perror("memfd_create"), 1;
  auto* memory = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  if (auto attached = (*engine)->attach(kTable, fd, memory, kBytes); !attached)
    return std::fprintf(stderr, "%s\n", attached.error().message.c_str()), 1;
  all.barrier();

  // Every sample is one addition somewhere; all are posted before any is waited for.
  const std::uint64_t bins = kBinsPerRank * transport.ranks();
  Counter counted;
  std::uint64_t state = 88172645463325252ull + raw(transport.rank());
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // Marsaglia's xorshift
    const std::uint64_t bin = state % bins;
    const AtomicParams add{
        .op = AtomicOp::fetch_add,
        .width = Width::eight,
        .at = {Rank{static_cast<std::uint32_t>(bin / kBinsPerRank)}, kTable, bin % kBinsPerRank * 8},
        .operand = 1,
        .on_complete = counted.callback()};
    // false: a queue is full, nothing happened
    while (!(*engine)->try_atomic_async(add)) transport.progress();
  }
  counted.wait(waiter, kSamples);
  all.barrier();

  // Each rank sums up its bins and tells rank 0: the share, and then the flag beside it.
  std::uint64_t share = 0;
  for (std::uint64_t i = 0; i < kBinsPerRank; ++i) share += reinterpret_cast<std::uint64_t*>(memory)[i];
  *reinterpret_cast<std::uint64_t*>(memory + kScratch) = share;
  const std::uint64_t slot = kShares + raw(transport.rank()) * 64;
  Flag told;
  const WriteNotifyParams tell{.to = {Rank{0}, kTable, slot},
                               .from = {kTable, kScratch},
                               .bytes = 8,
                               .flag_offset = slot + 8,
                               .value = 1,
                               .on_complete = told.callback()};
  while (!(*engine)->try_write_notify_async(tell)) transport.progress();
  told.wait(waiter);

  int status = 0;
  if (transport.rank() == Rank{0}) {
    std::uint64_t sum = 0;
    for (std::uint32_t r = 0; r < transport.ranks(); ++r) {
      auto* words = reinterpret_cast<std::uint64_t*>(memory + kShares + r * 64);
      // acquire: the share is there with its flag
      waiter.until([&] { return std::atomic_ref(words[1]).load(std::memory_order_acquire) == 1; });
      std::printf("rank %u holds %llu of the samples\n", r, static_cast<unsigned long long>(words[0]));
      sum += words[0];
    }
    status = sum == kSamples * transport.ranks() ? 0 : 1;
    std::printf("%llu samples in %llu bins on %u ranks: %s\n", static_cast<unsigned long long>(sum),
                static_cast<unsigned long long>(bins), transport.ranks(), status == 0 ? "correct" : "WRONG");
  }
  all.barrier();  // no rank leaves while others still need its memory
  return status;
}

}  // namespace

int main() {
  auto session = launch();
  if (!session) {
    std::fprintf(stderr, "comm_histogram: %s\n", session.error().message.c_str());
    return 1;
  }
  return run(**session);
}
