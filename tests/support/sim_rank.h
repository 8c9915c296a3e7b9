// SPDX-License-Identifier: Apache-2.0
// One rank over the simulator: the shipping gas and dsm above the checked engine, which scripts' loads and
// stores go through. All ranks live in one OS thread; each has a space of its own at the same offsets.
//
// Thread safety: none (as the simulator).
// Invariant: `current` is the context of the scripted thread that runs in the engine just now.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/assert.h"
#include "dsm/coherence.h"
#include "gas/heap.h"
#include "gas/sharing.h"
#include "support/checked_engine.h"
#include "support/sim/sim.h"
#include "support/turn_waiter.h"

namespace kasane::test {

struct SimRankConfig {
  std::size_t space_bytes = 0;
  std::uint64_t heap_offset = 0;  ///< from here on pages are watched; stacks lie below
  std::uint32_t heap_caches = 0;  ///< 0: there is no heap, and no page moves by itself
  bool draws = false;             ///< every use of a page at another rank draws it there
  bool classification = true;
  std::uint8_t releases_until_open = 5;
  std::uint64_t fault_ns = 0;  ///< with times: of a processor
};

/// Where things lie in the space of a small job.
struct SimLayout {
  static constexpr std::size_t kSpaceBytes = 256 << 20;
  static constexpr std::uint64_t kSlotsPerRank = 64;      ///< stacks
  static constexpr std::uint64_t kSlotBytes = 64 * 1024;  ///< a page, or several smaller ones
  static constexpr std::uint64_t kHeapOffset = 32 << 20;
  static constexpr std::uint32_t kCaches = 128;  ///< one a scripted thread
  [[nodiscard]] static constexpr std::uint64_t slot_offset(std::uint64_t slot) { return slot * kSlotBytes; }
  /// The heap has pages of page_bytes, stacks too as far as that fits.
  [[nodiscard]] static mem::Pages pages(std::uint64_t page_bytes) {
    const std::array segments{mem::Pages::Segment{0, std::min(page_bytes, kSlotBytes)},
                              mem::Pages::Segment{kHeapOffset, page_bytes}};
    return mem::Pages::create(kSpaceBytes, segments).value();
  }
  [[nodiscard]] static SimRankConfig config(bool draws = false, bool classification = true,
                                            std::uint8_t releases_until_open = 3) {
    return {.space_bytes = kSpaceBytes,
            .heap_offset = kHeapOffset,
            .heap_caches = kCaches,
            .draws = draws,
            .classification = classification,
            .releases_until_open = releases_until_open};
  }
};

class SimRank {
 public:
  SimRank(comm::sim::World& world, Rank rank, std::uint32_t ranks, const mem::Pages& pages,
          const SimRankConfig& config)
      : world_(world),
        config_(config),
        transport(world.transport(rank)),
        waiter(world, transport),
        reservation_(mem::reserve_space(config.space_bytes).value()),
        space(mem::Space::create(reservation_, config.space_bytes).value()) {
    KASANE_CHECK(transport.attach(gas::kFrames, space.frames_fd(), space.a(0), space.bytes()).has_value());
    attach(gas::kDirectory, gas::Directory::region_bytes(pages, ranks), directory_memory_);
    directory.emplace(transport, pages);
    sharing = gas::Sharing::create(
                  transport, *directory,
                  {config.classification, config.heap_offset, config.space_bytes - config.heap_offset})
                  .value();
    addresses = gas::AddressCache::create({transport, *directory, sharing.get()}).value();
    table_.emplace(mem::BlockTable::create(space.blocks()).value());
    cached_.emplace(mem::BlockSet::create(space.blocks()).value());
    dirty_.emplace(mem::BlockSet::create(space.blocks()).value());
    engine = mem::CheckedEngine::create(space).value();
    if (config.heap_caches != 0) {
      attach(gas::kHeap, gas::Heap::region_bytes(heap_config(), ranks), heap_memory_);
      // Every use of a page at another rank draws it here.
      // a seed's history has no clock
      auto_relocator =
          gas::AutoRelocator::create(
              transport, *directory,
              {config.heap_offset, config.space_bytes - config.heap_offset, 1, [] { return 0u; }})
              .value();
    }
    coherence.emplace(dsm::Parts{space, *table_, *cached_, *dirty_, *engine, transport, *addresses, *sharing,
                                 config.draws ? &*auto_relocator : nullptr, nullptr, nullptr,
                                 config.releases_until_open});
    mover = &coherence->mover;
    if (config.heap_caches != 0) heap.emplace(transport, heap_config(), *directory, *mover, coherence->moves);
    KASANE_CHECK(engine->start(&SimRank::on_fault, this).has_value());
    engine->set_preemption(&SimRank::preempt, this);
  }
  SimRank(const SimRank&) = delete;
  SimRank& operator=(const SimRank&) = delete;
  ~SimRank() {
    engine->stop();
    ::munmap(reservation_, config_.space_bytes);
  }

  /// A load or store of a script's thread, with whatever faults it takes.
  void read(dsm::ThreadContext& context, std::uint64_t offset, void* to, std::size_t n) {
    current = &context;
    KASANE_CHECK(engine->read(offset, to, n).has_value(), "a script reads where nothing is allocated");
  }
  void write(dsm::ThreadContext& context, std::uint64_t offset, const void* from, std::size_t n) {
    current = &context;
    KASANE_CHECK(engine->write(offset, from, n).has_value(), "a script writes where nothing is allocated");
  }

  struct Memory {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    ~Memory() {
      if (at != nullptr) ::munmap(at, bytes);
    }
  };
  /// Makes a region of this rank, zeroed.
  std::byte* attach(comm::RegionId id, std::size_t bytes, Memory& memory) {
    void* p =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    KASANE_CHECK(p != MAP_FAILED);
    memory.at = static_cast<std::byte*>(p);
    memory.bytes = bytes;
    KASANE_CHECK(transport.attach(id, -1, memory.at, bytes).has_value());
    return memory.at;
  }

 private:
  // Others may run while a fault waits, and leave their own context in `current`.
  static bool on_fault(void* self, std::uint64_t offset, mem::Access wanted, mem::Served) {
    auto& rank = *static_cast<SimRank*>(self);
    dsm::ThreadContext* mine = rank.current;
    if (rank.config_.fault_ns != 0) rank.world_.compute(rank.config_.fault_ns);
    const bool good = rank.coherence->faults.serve(*mine, offset, wanted);
    rank.current = mine;
    return good;
  }
  static void preempt(void* self) {
    auto& rank = *static_cast<SimRank*>(self);
    dsm::ThreadContext* mine = rank.current;
    rank.world_.yield_point();
    rank.current = mine;
  }

  [[nodiscard]] gas::Heap::Config heap_config() const noexcept {
    return {config_.heap_offset, config_.space_bytes - config_.heap_offset, config_.heap_caches};
  }

  comm::sim::World& world_;
  const SimRankConfig config_;

 public:
  comm::Transport& transport;
  TurnWaiter waiter;

 private:
  std::byte* reservation_;
  Memory directory_memory_, heap_memory_;

 public:
  Memory threads_memory;  ///< for scripts that have a scheduler
  mem::Space space;
  std::optional<gas::Directory> directory;
  std::unique_ptr<gas::AddressCache> addresses;
  std::unique_ptr<gas::Sharing> sharing;

 private:
  std::optional<mem::BlockTable> table_;
  std::optional<mem::BlockSet> cached_, dirty_;

 public:
  std::unique_ptr<mem::CheckedEngine> engine;
  std::optional<dsm::Coherence> coherence;
  gas::Mover* mover = nullptr;  ///< of coherence
  std::unique_ptr<gas::AutoRelocator> auto_relocator;
  std::optional<gas::Heap> heap;
  dsm::ThreadContext* current = nullptr;
};

}  // namespace kasane::test
