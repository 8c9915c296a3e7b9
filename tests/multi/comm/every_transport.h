// SPDX-License-Identifier: Apache-2.0
// Runs one test body on every rank of a job: over shared memory (forked processes, with and without a service
// thread), over network transports between forked processes of this host (always with a service thread, since
// their targets must make progress), or in the simulator (many seeds). The body uses only what Env gives it,
// so it is the same program on all of them.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/blocking.h"
#include "comm/collectives/collectives.h"
#include "comm/collectives/over_transport.h"
#include "comm/out_of_band.h"
#include "comm/shm/shm_transport.h"
#include "comm/ucx/ucx_transport.h"
#include "support/multi_rank.h"
#include "support/service_thread.h"
#include "support/sim/sim.h"

namespace kasane::comm::test {

enum class Kind { shm, shm_service, sim, ucx, ucx_tcp, mpi };

inline std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::shm: return "shm";
    case Kind::shm_service: return "shm_service";
    case Kind::sim: return "sim";
    case Kind::ucx: return "ucx";
    case Kind::ucx_tcp: return "ucx_tcp";
    case Kind::mpi: return "mpi";
  }
  return "?";
}

struct Env;
using Body = std::function<void(Env&)>;

/// Set before GoogleTest starts by a program that an mpirun started as a rank: every test body then runs in
/// this process, as Kind::mpi.
inline std::function<void(const Body&)>& run_as_mpi_rank() {
  static std::function<void(const Body&)> run;
  return run;
}

/// The kinds that this build and machine have.
inline std::vector<Kind> every_kind() {
  if (run_as_mpi_rank()) return {Kind::mpi};
  std::vector<Kind> kinds{Kind::shm, Kind::shm_service, Kind::sim};
  if (ucx::available()) kinds.insert(kinds.end(), {Kind::ucx, Kind::ucx_tcp});
  return kinds;
}

inline constexpr RegionId kRegion{1};
inline constexpr std::size_t kRegionBytes = std::size_t{4} << 20;

/// How many ranks the test program was asked to use (--ranks N).
inline std::uint32_t& ranks_wanted() {
  static std::uint32_t ranks = 2;
  return ranks;
}

/// One rank's world.
struct Env {
  Kind kind;
  Transport& transport;
  Waiter& waiter;
  Collectives& all;
  std::byte* memory;  ///< this rank's region kRegion, kRegionBytes
  sim::World* world;  ///< null over shm

  [[nodiscard]] std::uint32_t me() const { return raw(transport.rank()); }
  [[nodiscard]] std::uint32_t ranks() const { return transport.ranks(); }
  [[nodiscard]] Rank next() const { return Rank{(me() + 1) % ranks()}; }
  [[nodiscard]] bool has_service() const { return kind != Kind::shm; }
  /// Does an operation towards another rank complete only while others run too?
  [[nodiscard]] bool over_network() const {
    return kind != Kind::shm && kind != Kind::shm_service && kind != Kind::sim;
  }
  [[nodiscard]] Blocking blocking() const { return {transport, waiter}; }
  [[nodiscard]] std::atomic<std::uint64_t>& word(std::size_t index) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(memory)[index];
  }
  /// A number that says how long loops should be: forked ranks are fast, simulated ones are many.
  [[nodiscard]] int rounds(int over_shm, int over_sim) const {
    return kind == Kind::sim ? over_sim : over_network() ? std::max(over_shm / 10, over_sim) : over_shm;
  }

  /// Runs body(0 … count-1, waiter) in threads of this rank, until all have ended.
  void in_parallel(int count, const std::function<void(int, Waiter&)>& body) const {
    if (world != nullptr) {
      int left = count;
      for (int i = 0; i < count; ++i) {
        world->spawn(transport.rank(), [&, i] {
          body(i, waiter);
          --left;
        });
      }
      waiter.until([&] { return left == 0; });
      return;
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        PollWaiter own(transport);
        body(i, own);
      });
    }
    for (auto& t : threads) t.join();
  }
};

inline int make_memfd(std::size_t bytes) {
  const int fd = ::memfd_create("kasane-test", MFD_CLOEXEC);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  return fd;
}

/// Attaches kRegion and runs body on this rank; service: beside a thread that serves messages.
inline void run_over(Transport& transport, Kind kind, bool service_wanted, const Body& body) {
  PollWaiter waiter(transport);
  Collectives all(transport, waiter);
  const int fd = make_memfd(kRegionBytes);
  auto* memory =
      static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const auto attached = transport.attach(kRegion, fd, memory, kRegionBytes);
  ASSERT_TRUE(attached) << attached.error().message;
  std::optional<kasane::test::ServiceThread> service;
  if (service_wanted) service.emplace(transport);
  Env env{
      .kind = kind, .transport = transport, .waiter = waiter, .all = all, .memory = memory, .world = nullptr};
  body(env);
  all.barrier();  // nobody leaves while others may still need an answer of its
}

inline void run_shm_rank(const Job& job, Kind kind, const Body& body) {
  auto transport = shm::create(job);
  ASSERT_TRUE(transport) << transport.error().message;
  run_over(**transport, kind, kind == Kind::shm_service, body);
}

/// Makes a network transport of this rank; what peers must know of each other goes through the OutOfBand.
using MakeNetwork = std::function<Result<std::unique_ptr<Transport>>(OutOfBand&, Bells&)>;

/// When a rank leaves: with all others, or, where some of them will be killed, by itself.
enum class Leave { together, alone };

/// Makes a network between ranks of this host, which meet over shared memory, and runs use on it.
inline void with_network(const Job& job, const MakeNetwork& make, Leave leave,
                         const std::function<void(Transport&)>& use) {
  auto host = shm::create(job);
  ASSERT_TRUE(host) << host.error().message;
  PollWaiter host_waiter(**host);
  Collectives host_all(**host, host_waiter);
  OverTransport exchange(**host, host_all);
  Bells bells{};
  {
    auto network = make(exchange, bells);
    ASSERT_TRUE(network) << network.error().message;
    use(**network);
  }
  if (leave == Leave::together)
    host_all.barrier();  // a rank that has closed its network stays until all have
}

inline MakeNetwork make_ucx(Kind kind) {
  return [kind](OutOfBand& exchange, Bells& bells) {
    ucx::Options options;
    if (kind == Kind::ucx_tcp) options.tls = "tcp,self";
    return ucx::create(exchange, bells, options);
  };
}

inline void run_rank(const Job& job, Kind kind, const Body& body) {
  switch (kind) {
    case Kind::shm:
    case Kind::shm_service: return run_shm_rank(job, kind, body);
    case Kind::ucx:
    case Kind::ucx_tcp:
      return with_network(job, make_ucx(kind), Leave::together,
                          [&](Transport& t) { run_over(t, kind, /*service_wanted=*/true, body); });
    case Kind::mpi:
    case Kind::sim: break;
  }
}

inline void run_sim(std::uint32_t ranks, std::uint64_t seed, const Body& body) {
  SCOPED_TRACE("sim seed " + std::to_string(seed));
  sim::SimOptions options;
  options.reorder = seed % 4 != 0;
  sim::World world(ranks, seed, options);
  std::vector<std::vector<std::uint64_t>> memory(ranks, std::vector<std::uint64_t>(kRegionBytes / 8));
  std::vector<std::unique_ptr<Collectives>> all;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    auto* bytes = reinterpret_cast<std::byte*>(memory[r].data());
    ASSERT_TRUE(world.transport(Rank{r}).attach(kRegion, -1, bytes, kRegionBytes));
    all.push_back(std::make_unique<Collectives>(world.transport(Rank{r}), world.waiter()));
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    world.spawn(Rank{r}, [&, r] {
      Env env{.kind = Kind::sim,
              .transport = world.transport(Rank{r}),
              .waiter = world.waiter(),
              .all = *all[r],
              .memory = reinterpret_cast<std::byte*>(memory[r].data()),
              .world = &world};
      body(env);
      all[r]->barrier();
    });
  }
  const auto ended = world.run();
  ASSERT_TRUE(ended) << ended.error().message;
}

inline void on_every_rank(Kind kind, const Body& body, int sim_seeds = 12) {
  if (kind == Kind::mpi) return run_as_mpi_rank()(body);
  if (kind != Kind::sim) {
    kasane::test::run_ranks(ranks_wanted(), [&](const Job& job) { run_rank(job, kind, body); });
    return;
  }
  for (std::uint64_t seed = 1;
       seed <= static_cast<std::uint64_t>(sim_seeds) && !::testing::Test::HasFailure(); ++seed) {
    run_sim(ranks_wanted(), seed, body);
  }
}

}  // namespace kasane::comm::test
