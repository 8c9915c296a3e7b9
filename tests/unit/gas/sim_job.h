// SPDX-License-Identifier: Apache-2.0
// A job of ranks over the simulated network for tests of gas: frames, directory, address cache, mover,
// GiveService and direct access, without coherence.
// Thread safety: none (as the simulator).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "gas/direct_access.h"
#include "gas/give_service.h"
#include "support/sim/sim.h"
#include "support/turn_waiter.h"
#include "unit/gas/counting_transport.h"

namespace kasane::gas::test {

using kasane::test::CountingTransport, kasane::test::TurnWaiter;

inline constexpr std::uint64_t kPages = 20;

inline mem::Pages pages_of(std::uint64_t page_bytes) {
  return mem::Pages::uniform(kPages * page_bytes, page_bytes).value();
}
inline std::uint64_t offset_of(PageId page) { return raw(page) * mem::kPageBytes; }

/// A rank without coherence: frames, directory, address cache and mover. Blocks are never in use; a yield may
/// be refused.
struct SimRank final : PageBlocks {
  SimRank(comm::sim::World& world, Rank rank, std::uint32_t ranks, std::uint64_t page_bytes, PageIn* page_in)
      : transport(world.transport(rank)),
        waiter(world, transport),
        frames(kPages * page_bytes),
        entries(Directory::region_bytes(pages_of(page_bytes), ranks) / 8) {
    // The delivering thread makes progress below the counting: the engine's part of it must run there.
    world.transport(rank).set_poll_hook(
        [](void* t) noexcept { return static_cast<CountingTransport*>(t)->run_poll_hook(); }, &transport);
    engine = comm::Engine::create(transport, {.operations = 64, .packs = 8, .argument_buffers = 8}).value();
    KASANE_CHECK(engine->attach(kFrames, -1, frames.data(), frames.size()).has_value());
    KASANE_CHECK(
        engine->attach(kDirectory, -1, reinterpret_cast<std::byte*>(entries.data()), entries.size() * 8)
            .has_value());
    directory.emplace(transport, pages_of(page_bytes));
    addresses = AddressCache::create({transport, *directory, nullptr, page_in}).value();
    mover.emplace(transport, *addresses, *this);
    give_service.emplace(transport, *mover);
    access = DirectAccess::create(*engine, *addresses, nullptr, frames.size(), mem::AddressMap()).value();
  }
  comm::Blocking io() { return {transport, waiter, &counters}; }

  YieldAnswer yield(PageId) noexcept override {
    if (pinned) return YieldAnswer::pinned;
    return refusals != 0 ? (--refusals, YieldAnswer::retry) : YieldAnswer::yielded;
  }
  // one mover of a page and rank at a time, as the bits of its blocks have it
  Claim claim(PageId page, ClaimFor, comm::Blocking* waits) override {
    if (waits != nullptr) waits->waiter().until([&] { return !claimed[raw(page)]; });
    if (claimed[raw(page)]) return Claim::in_use;
    claimed[raw(page)] = true;
    return Claim::taken;
  }
  [[nodiscard]] BlocksHere blocks_here(PageId) const noexcept override {
    BlocksHere here;
    here.changed[0] = never_lands;
    return here;
  }
  void merge(comm::Blocking& blocking, std::span<const Arrival> arrivals) override {
    comm::Batch batch(blocking);
    for (const auto& [page, live, from] : arrivals)
      batch.read({from, kFrames, live.begin}, frames.data() + live.begin, live.end - live.begin);
  }
  void settle(PageId page, Settled, mem::BlockRange) override { claimed[raw(page)] = false; }
  void note(PageId, PageNews news) noexcept override {
    naming += news == PageNews::entry_under_way ? 1 : news == PageNews::entry_written ? -1 : 0;
  }

  CountingTransport transport;
  TurnWaiter waiter;
  Counters counters;
  std::vector<std::byte> frames;
  std::vector<std::uint64_t> entries;
  std::optional<Directory> directory;
  std::unique_ptr<AddressCache> addresses;
  std::optional<Mover> mover;
  std::optional<GiveService> give_service;
  std::unique_ptr<comm::Engine> engine;
  std::unique_ptr<DirectAccess> access;
  std::array<bool, kPages> claimed{};
  int refusals = 0;  ///< how many yields are answered retry
  bool pinned = false;
  bool never_lands = false;  ///< as if each block here had changes of this rank
  int naming = 0;            ///< entries on their way
};

struct Job {
  /// page_ins: of the first ranks; those that have none keep all pages in DRAM.
  Job(std::uint32_t ranks, std::uint64_t seed, const comm::sim::SimOptions& options = {},
      std::uint64_t page_bytes = mem::kPageBytes, const std::vector<PageIn*>& page_ins = {})
      : world(ranks, seed, options) {
    for (std::uint32_t r = 0; r < ranks; ++r)
      all.emplace_back(world, Rank{r}, ranks, page_bytes, r < page_ins.size() ? page_ins[r] : nullptr);
  }
  SimRank& operator[](std::uint32_t r) { return all[r]; }
  /// Runs body as a thread of the rank, alone.
  void on(std::uint32_t r, const std::function<void(SimRank&, comm::Blocking&)>& body) {
    world.spawn(Rank{r}, [this, r, body] {
      auto io = all[r].io();
      body(all[r], io);
    });
    const auto ended = world.run();
    ASSERT_TRUE(ended.has_value()) << ended.error().message;
  }
  void run() {
    const auto ended = world.run();
    ASSERT_TRUE(ended.has_value()) << ended.error().message;
  }
  comm::sim::World world;
  std::deque<SimRank> all;
};

/// What is live of a page here.
inline ByteRange page_range(PageId page, std::uint64_t page_bytes = mem::kPageBytes) {
  return {raw(page) * page_bytes, raw(page) * page_bytes + 64};
}

}  // namespace kasane::gas::test
