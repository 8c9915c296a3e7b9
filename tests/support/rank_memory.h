// SPDX-License-Identifier: Apache-2.0
// One rank's memory layers over shm with real faults, for tests of gas and dsm below the runtime: views,
// directory, coherence, relocation, heap, a service thread, and the fault handler of every thread that
// enters.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "base/assert.h"
#include "comm/collectives/collectives.h"
#include "comm/shm/shm_transport.h"
#include "dsm/coherence.h"
#include "gas/direct_access.h"
#include "gas/heap.h"
#include "gas/sharing.h"
#include "mem/engines.h"
#include "traps/alt_stack.h"

namespace kasane::test {

class RankMemory {
 public:
  static constexpr std::size_t kSpaceBytes = 64 << 20;
  static constexpr std::size_t kHeapOffset = 16 << 20;

  /// base: from mem::reserve_space before the fork. heap_page_bytes: of the heap's segment; the rest of the
  /// space has pages of 64 KiB. draw_after: uses after which a page moves to the rank that alone uses it; 0:
  /// never. faults: the fault engine's name.
  RankMemory(const comm::Job& job, std::byte* base, std::uint64_t heap_page_bytes = mem::kPageBytes,
             std::uint32_t draw_after = 0, std::string_view faults = faults_under_test(),
             bool classification = classification_under_test())
      : page_bytes(heap_page_bytes),
        transport(std::move(comm::shm::create(job).value())),
        start_waiter(*transport),
        collectives(*transport, start_waiter),
        space(mem::Space::create(base, kSpaceBytes).value()) {
    comm_engine = comm::Engine::create(*transport).value();
    KASANE_CHECK(comm_engine->attach(gas::kFrames, space.frames_fd(), space.a(0), space.bytes()).has_value());
    const std::array segments{mem::Pages::Segment{}, mem::Pages::Segment{kHeapOffset, heap_page_bytes}};
    const mem::Pages pages = mem::Pages::create(kSpaceBytes, segments).value();
    attach(gas::kDirectory, gas::Directory::region_bytes(pages, job.ranks));
    directory.emplace(*transport, pages);
    sharing =
        gas::Sharing::create(*transport, *directory, {classification, kHeapOffset, kSpaceBytes - kHeapOffset})
            .value();
    addresses = gas::AddressCache::create({*transport, *directory, sharing.get()}).value();
    table.emplace(mem::BlockTable::create(space.blocks()).value());
    cached.emplace(mem::BlockSet::create(space.blocks()).value());
    dirty.emplace(mem::BlockSet::create(space.blocks()).value());
    auto made_engine = mem::make_fault_engine(space, faults);
    if (!made_engine) std::fprintf(stderr, "%s\n", made_engine.error().message.c_str());
    engine = std::move(made_engine.value());
    const gas::Heap::Config config{kHeapOffset, kSpaceBytes - kHeapOffset, 2};
    attach(gas::kHeap, gas::Heap::region_bytes(config, job.ranks));
    if (draw_after != 0)
      auto_relocator =
          gas::AutoRelocator::create(*transport, *directory, {config.offset, config.bytes, draw_after})
              .value();
    coherence.emplace(dsm::Parts{space, *table, *cached, *dirty, *engine, *transport, *addresses, *sharing,
                                 auto_relocator.get(), nullptr, nullptr});
    mover = &coherence->mover;
    heap.emplace(*transport, config, *directory, *mover, coherence->moves);
    access = gas::DirectAccess::create(*comm_engine, *addresses, auto_relocator.get(), kSpaceBytes,
                                       space.addresses())
                 .value();
    enter();
    // The test's thread, which reads its counters, sleeps while its faults are served.
    for_others.emplace(*transport, start_waiter, context().counters, dsm::Serves::others);
    KASANE_CHECK(engine->start(&RankMemory::on_fault, this).has_value());
    service = std::thread([this] {
      enter();
      while (!stop.load()) {
        const auto seen = transport->activity(comm::Doorbell::messages);
        const bool busy = transport->progress() | coherence->fences.serve(context()) |
                          access->serve(context().io) |
                          (auto_relocator != nullptr && auto_relocator->serve(context().io, *mover));
        if (!busy && !stop.load()) transport->sleep(comm::Doorbell::messages, seen, 10'000'000);
      }
    });
    collectives.barrier();
  }
  ~RankMemory() {
    collectives.barrier();
    stop.store(true);
    transport->wake(transport->rank(), comm::Doorbell::messages);
    service.join();
    engine->stop();  // its thread may be on its way out of on_fault()
  }

  // What the variables say, as for a job.
  static std::string_view said_of(const char* variable, std::string_view otherwise) {
    const char* said = std::getenv(variable);
    return said != nullptr && *said != '\0' ? said : otherwise;
  }
  static std::string_view faults_under_test() { return said_of("KASANE_FAULTS", "auto"); }
  static bool classification_under_test() {
    return said_of("KASANE_DEBUG", "").find("classification=off") == std::string_view::npos;
  }

  /// The calling OS thread may use V and context() from now on. Its alternate stack and context live until
  /// the process ends.
  void enter() {
    static thread_local auto alternate = traps::AltStack::create().value();
    t_context = new dsm::ThreadContext(*transport, *new comm::PollWaiter(*transport), *new Counters());
  }
  dsm::ThreadContext& context() { return *t_context; }

  Rank rank() const { return transport->rank(); }
  const mem::Pages& pages() const { return directory->pages(); }
  template <class T>
  T* at(std::uint64_t offset) {
    return reinterpret_cast<T*>(space.v(offset));
  }
  /// An edge: what `source` wrote before becomes visible here.
  void cross(Rank source) {
    coherence->fences.ask_release(context(), source);
    coherence->fences.acquire_noticed(context());
  }
  std::uint64_t allocate(std::size_t bytes, gas::Placement placement = gas::Placement::local) {
    return heap->allocate(context().io, gas::Heap::kShared, bytes, 16, placement).value();
  }
  /// What the heap does before memory is given out again: what is cached of it here is dropped.
  void heap_take(std::uint64_t offset, std::size_t bytes) {
    coherence->moves.take(context().io, offset, bytes);
  }
  std::uint64_t broadcast(Rank root, std::uint64_t value) {
    collectives.broadcast(root, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  const std::uint64_t page_bytes;  ///< of the heap
  std::unique_ptr<comm::Transport> transport;
  std::unique_ptr<comm::Engine> comm_engine;  ///< of the transport
  comm::PollWaiter start_waiter;
  comm::Collectives collectives;
  mem::Space space;
  std::optional<gas::Directory> directory;
  std::unique_ptr<gas::AddressCache> addresses;
  std::unique_ptr<gas::Sharing> sharing;
  std::unique_ptr<gas::DirectAccess> access;
  std::optional<mem::BlockTable> table;
  std::optional<mem::BlockSet> cached, dirty;
  std::unique_ptr<mem::FaultEngine> engine;
  std::optional<dsm::Coherence> coherence;
  gas::Mover* mover = nullptr;  ///< of coherence
  std::unique_ptr<gas::AutoRelocator> auto_relocator;
  std::optional<gas::Heap> heap;

 private:
  static bool on_fault(void* self, std::uint64_t offset, mem::Access wanted, mem::Served served) {
    auto& memory = *static_cast<RankMemory*>(self);
    return memory.coherence->faults.serve(
        served == mem::Served::in_place ? memory.context() : *memory.for_others, offset, wanted);
  }
  std::byte* attach(comm::RegionId id, std::size_t bytes) {
    const int fd = ::memfd_create("region", MFD_CLOEXEC);
    KASANE_CHECK(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    auto* base = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    KASANE_CHECK(comm_engine->attach(id, fd, base, bytes).has_value());
    ::close(fd);
    return base;
  }

  static inline thread_local dsm::ThreadContext* t_context = nullptr;
  std::optional<dsm::ThreadContext> for_others;  // of the engine's thread, if it has one
  std::atomic<bool> stop{false};
  std::thread service;
};

}  // namespace kasane::test
