// SPDX-License-Identifier: Apache-2.0
// Runs one test body with an Engine on every rank of a job, over each transport and in each mode. The body
// uses only what EngineEnv gives it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "comm/engine/engine.h"
#include "multi/comm/every_transport.h"
#include "multi/comm_engine/awaited.h"
#include "multi/comm_engine/hidden_memory.h"

namespace kasane::comm::test {

/// shm: everything is mapped. hidden: nothing of the peers is (hidden_memory.h). The others: networks.
enum class Over { shm, hidden, sim, ucx, ucx_tcp, mpi };

struct Case {
  Over over;
  Mode mode;
};

inline std::string name_of(const Case& c) {
  constexpr const char* names[] = {"shm", "hidden", "sim", "ucx", "ucx_tcp", "mpi"};
  return std::string(names[static_cast<int>(c.over)]) + (c.mode == Mode::offload ? "_offload" : "");
}

struct EngineEnv;
using EngineBody = std::function<void(EngineEnv&)>;

/// As run_as_mpi_rank(): every body then runs in this process, as Over::mpi.
inline std::function<void(const EngineOptions&, const EngineBody&)>& run_engine_as_mpi_rank() {
  static std::function<void(const EngineOptions&, const EngineBody&)> run;
  return run;
}

inline std::vector<Case> every_case() {
  if (run_engine_as_mpi_rank()) return {{Over::mpi, Mode::direct}, {Over::mpi, Mode::offload}};
  std::vector<Case> cases;
  std::vector<Over> overs{Over::shm, Over::hidden};
  if (ucx::available()) overs.insert(overs.end(), {Over::ucx, Over::ucx_tcp});
  for (const Over o : overs) {
    cases.push_back({o, Mode::direct});
    if (o != Over::shm) cases.push_back({o, Mode::offload});  // mapped memory is never offloaded
  }
  cases.push_back({Over::sim, Mode::direct});  // its ranks share one OS thread
  return cases;
}

/// Handlers of the tests, set before any thread makes progress.
struct Inbox {
  std::atomic<std::uint64_t> messages{0}, sum{0};
  Transport* transport = nullptr;
};

struct EngineEnv : Env {
  Engine& engine;
  Inbox& inbox;
  Over over;

  [[nodiscard]] bool mapped() const { return over == Over::shm; }
  [[nodiscard]] Awaited io() const { return {engine, waiter}; }
  /// Posts until it is accepted.
  template <class Params>
  void post(bool (Engine::*call)(const Params&) noexcept, const Params& p, Waiter& w) const {
    bool accepted = false;
    w.until([&] { return accepted || (accepted = (engine.*call)(p)); });
  }
  [[nodiscard]] LocalAddr here(std::uint64_t offset) const { return {kRegion, offset}; }
  [[nodiscard]] static RemoteAddr at(Rank r, std::uint64_t offset) { return {r, kRegion, offset}; }
};

inline constexpr HandlerId kSum{8}, kEcho{9};

inline void set_handlers(Transport& t, Inbox& inbox) {
  inbox.transport = &t;
  t.set_handler(
      kSum,
      [](void* c, const Message& m) noexcept {
        auto& in = *static_cast<Inbox*>(c);
        std::uint64_t value = 0;
        std::memcpy(&value, m.payload.data(), std::min<std::size_t>(8, m.payload.size()));
        in.sum += value;
        in.messages += 1;
      },
      &inbox);
  t.set_handler(
      kEcho,
      [](void* c, const Message& m) noexcept {
        std::uint64_t value = 0;
        std::memcpy(&value, m.payload.data(), std::min<std::size_t>(8, m.payload.size()));
        static_cast<Inbox*>(c)->transport->reply(m.token, value + 1);
      },
      &inbox);
}

inline void run_engine_over(Transport& transport, Kind kind, Over over, const EngineOptions& options,
                            const EngineBody& body) {
  PollWaiter waiter(transport);
  Collectives all(transport, waiter);
  Inbox inbox;
  set_handlers(transport, inbox);
  auto engine = Engine::create(transport, options);
  ASSERT_TRUE(engine) << engine.error().message;
  const int fd = make_memfd(kRegionBytes);
  auto* memory =
      static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const auto attached = (*engine)->attach(kRegion, fd, memory, kRegionBytes);
  ASSERT_TRUE(attached) << attached.error().message;
  {
    const kasane::test::ServiceThread service(transport);
    EngineEnv env{{.kind = kind,
                   .transport = transport,
                   .waiter = waiter,
                   .all = all,
                   .memory = memory,
                   .world = nullptr},
                  **engine,
                  inbox,
                  over};
    all.barrier();  // the handlers of all ranks are set
    body(env);
    all.barrier();
  }
}

inline void run_engine_rank(const Job& job, const Case& c, const EngineOptions& options,
                            const EngineBody& body) {
  if (c.over == Over::shm || c.over == Over::hidden) {
    auto transport = shm::create(job);
    ASSERT_TRUE(transport) << transport.error().message;
    HiddenMemory hidden(**transport);
    run_engine_over(c.over == Over::shm ? **transport : static_cast<Transport&>(hidden), Kind::shm_service,
                    c.over, options, body);
    return;
  }
  const Kind kind = c.over == Over::ucx ? Kind::ucx : Kind::ucx_tcp;
  with_network(job, make_ucx(kind), Leave::together,
               [&](Transport& network) { run_engine_over(network, kind, c.over, options, body); });
}

inline void run_engine_sim(std::uint32_t ranks, std::uint64_t seed, const EngineOptions& options,
                           const sim::SimOptions& world_options, const EngineBody& body) {
  SCOPED_TRACE("sim seed " + std::to_string(seed));
  sim::World world(ranks, seed, world_options);
  std::vector<std::vector<std::uint64_t>> memory(ranks, std::vector<std::uint64_t>(kRegionBytes / 8));
  std::vector<std::unique_ptr<Collectives>> all;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::unique_ptr<Inbox>> inboxes;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    Transport& t = world.transport(Rank{r});
    auto* bytes = reinterpret_cast<std::byte*>(memory[r].data());
    all.push_back(std::make_unique<Collectives>(t, world.waiter()));
    inboxes.push_back(std::make_unique<Inbox>());
    set_handlers(t, *inboxes[r]);
    auto engine = Engine::create(t, options);
    ASSERT_TRUE(engine) << engine.error().message;
    ASSERT_TRUE((*engine)->attach(kRegion, -1, bytes, kRegionBytes));
    engines.push_back(std::move(*engine));
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    world.spawn(Rank{r}, [&, r] {
      EngineEnv env{{.kind = Kind::sim,
                     .transport = world.transport(Rank{r}),
                     .waiter = world.waiter(),
                     .all = *all[r],
                     .memory = reinterpret_cast<std::byte*>(memory[r].data()),
                     .world = &world},
                    *engines[r],
                    *inboxes[r],
                    Over::sim};
      body(env);
      all[r]->barrier();
    });
  }
  const auto ended = world.run();
  ASSERT_TRUE(ended) << ended.error().message;
}

inline void with_engines(const Case& c, EngineOptions options, const EngineBody& body, int sim_seeds = 6,
                         sim::SimOptions world = {}) {
  options.mode = c.mode;
  if (c.over == Over::mpi) return run_engine_as_mpi_rank()(options, body);
  if (c.over != Over::sim) {
    kasane::test::run_ranks(ranks_wanted(), [&](const Job& job) { run_engine_rank(job, c, options, body); });
    return;
  }
  for (std::uint64_t seed = 1;
       seed <= static_cast<std::uint64_t>(sim_seeds) && !::testing::Test::HasFailure(); ++seed) {
    world.reorder = seed % 4 != 0;
    run_engine_sim(ranks_wanted(), seed, options, world, body);
  }
}

class EngineTest : public ::testing::TestWithParam<Case> {};

}  // namespace kasane::comm::test
