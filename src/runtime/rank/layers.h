// SPDX-License-Identifier: Apache-2.0
// What a rank is made of: what the functions of Runtime use. job/ builds it, with what it needs beside
// (Runtime::Job); nobody else sees it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/engine/engine.h"
#include "comm/session/session.h"
#include "dsm/coherence.h"
#include "gas/auto_relocator.h"
#include "gas/direct_access.h"
#include "gas/give_service.h"
#include "gas/heap.h"
#include "gas/sharing.h"
#include "mem/space.h"
#include "runtime/rank/call_memory.h"
#include "runtime/rank/job_counters.h"
#include "runtime/rank/memory_tiers.h"
#include "runtime/rank/numa_memory.h"
#include "runtime/rank/one_rank_variables.h"
#include "runtime/rank/options.h"
#include "runtime/rank/runtime.h"
#include "runtime/rank/segments.h"
#include "runtime/rank/thread_contexts.h"
#include "ult/pool.h"

namespace kasane::runtime {

struct Runtime::Layers : CallMemory {
  Options options;
  bool attached = false;  ///< no pool, scheduler, stacks and fences
  Rank rank{0};
  std::uint32_t ranks = 1, workers = 1;
  Segments segments;
  bool common_stacks = false;  ///< stacks of all ranks are never armed and never moved (stacks.h)

  std::unique_ptr<comm::Session> session;
  comm::Transport* transport = nullptr;       ///< the session's
  std::unique_ptr<comm::Engine> comm_engine;  ///< over it; all regions are attached through it
  std::optional<comm::PollWaiter> start_waiter;
  std::optional<comm::Collectives> collectives;
  std::optional<mem::Space> space;
  std::optional<mem::BlockTable> table;
  std::optional<mem::BlockSet> cached, dirty;
  std::unique_ptr<mem::FaultEngine> engine;
  std::optional<gas::Directory> directory;
  std::unique_ptr<gas::AddressCache> addresses;
  std::unique_ptr<gas::Sharing> sharing;
  std::unique_ptr<gas::DirectAccess> access;
  std::optional<dsm::Coherence> coherence;
  std::optional<gas::GiveService> give_service;
  /// in the order of Segments::heaps
  std::array<std::optional<gas::Heap>, std::tuple_size_v<decltype(Segments::heaps)>> heaps;
  std::vector<std::unique_ptr<gas::Heap>> pools;
  std::optional<NumaMemory> numa;
  std::unique_ptr<MemoryTiers> tiers;                  ///< null: global memory stays in DRAM
  std::unique_ptr<gas::AutoRelocator> auto_relocator;  ///< null: pages stay where they are
  std::optional<JobCounters> job_counters;
  std::optional<ThreadContexts> contexts;
  OneRankVariables own_variables;
  ult::Pool* pool = nullptr;          ///< the job's
  std::uint64_t clock_offset_ns = 0;  ///< the job's clock minus now_ns()

  std::atomic<bool> running{false};
  std::atomic<std::uint64_t> bound_stacks_used{0};  ///< bytes of this rank's share
  /// The room that they take may be what another thread waits for. Of the rank: a thread may end a view at
  /// another worker than where it began it.
  std::atomic<std::uint32_t> views_open{0};
  std::atomic<bool> threads_remain{false};  ///< detached threads still run and use this object
  /// the network is closed: memory of other ranks cannot be reached any more
  std::atomic<bool> network_closed{false};
  bool trace_lost = false;        ///< on rank 0 at the end: it could not be written
  std::uint64_t races_found = 0;  ///< by all ranks; set on rank 0 at the end
  const std::thread::id first_thread = std::this_thread::get_id();
  /// Held while a root thread runs, which has worker 0: threads of --threads spread take turns with main.
  std::mutex one_root;
  std::uint64_t roots = 0;  ///< root threads started; under one_root
  std::byte* main_stack_low = nullptr;

  Layers() = default;
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;
  virtual ~Layers() = default;

  [[nodiscard]] bool contains(const void* p) const noexcept override { return space->contains(p); }
  [[nodiscard]] bool in_open_stacks(const void* p) const noexcept override;
  std::size_t pin_allocated(const void* p, std::size_t bytes, bool write) noexcept override;
  void unpin(const void* p, std::size_t bytes) override;
  [[nodiscard]] bool has_budget() const noexcept override { return tiers != nullptr; }
  [[nodiscard]] bool can_pin(std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t part_of_calls() const noexcept override;
  [[nodiscard]] std::size_t room_of_calls() const noexcept override;

  virtual void begin_catching_on_one_rank() noexcept = 0;
  virtual void run_root(void (*entry)(void*), void* arg) = 0;

  CounterSums counters_of(Rank);
  Result<void> check_open(const char* what) const;
  /// Null: no heap has pages of this size, or holds the address.
  [[nodiscard]] gas::Heap* heap_of(std::uint64_t page_bytes) noexcept;
  [[nodiscard]] gas::Heap* heap_at(const void*) noexcept;
  /// Refuses ranges that do not lie wholly in a heap: programs may move the pages of heaps only.
  Result<void> check_movable(const void* p, std::size_t bytes, const char* what) const;
  /// The range was got or put directly: pages of other ranks may come here.
  Result<void> explain(const std::optional<gas::MoveRefusal>&, const char* what) const;
  Result<void*> allocate(std::size_t bytes, std::size_t align, Placement, bool* fresh);
  Result<void> put_zeros(std::uint64_t offset, std::size_t bytes);
  /// Whether the offset lies in stacks that all ranks share: memory that is always present.
  [[nodiscard]] bool in_common_stacks(std::uint64_t offset) const noexcept {
    return common_stacks && segments.in_stacks(offset, ranks);
  }
};

}  // namespace kasane::runtime
