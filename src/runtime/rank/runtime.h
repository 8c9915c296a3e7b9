// SPDX-License-Identifier: Apache-2.0
// One rank of a running job, and the only singleton of Kasane: Runtime::current(). What the rest of the
// runtime asks of the rank is defined in rank/runtime.cpp. What builds every layer from Options, joins sched
// and dsm by hooks, starts the workers and the service thread, and ends and destroys them, is in
// job/runtime.cpp: create() to shut_down(), and the destructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "comm/bootstrap/job.h"
#include "dsm/protocol.h"
#include "gas/advisor.h"
#include "gas/placement.h"
#include "mem/space.h"
#include "runtime/rank/job_counters.h"
#include "runtime/rank/numa_memory.h"
#include "runtime/rank/one_rank_variables.h"
#include "runtime/rank/options.h"

namespace kasane::comm {
class Collectives;
namespace mpi {
class Library;
}
}  // namespace kasane::comm
namespace kasane::ult {
class Pool;
}

namespace kasane::runtime {

using gas::Placement;

class CallMemory;
class Direct;

/// Of an allocation.
enum class InitialBytes : std::uint8_t { unspecified, zero };

class Runtime {
 public:
  /// Collective over the job's ranks. space_base: reserved by mem::reserve_space before the fork. variables:
  /// of the program, not placed; they become global memory, with rank 0's bytes, where the options say so.
  /// After an error this process can only end (_exit), and so does the job: other ranks may already wait for
  /// this one.
  static Result<std::unique_ptr<Runtime>> create(const Options&, comm::Job, std::byte* space_base,
                                                 std::vector<mem::ViewPart> variables);
  /// A rank of a program that had its start and its main without us (attach/attach.h): global memory, without
  /// user-level threads, workers and variables. mpi: the program's, null: one rank. Collective over the ranks
  /// of the MPI. After an error the ranks that have none may wait for this one.
  static Result<std::unique_ptr<Runtime>> attach(const Options&, comm::Job,
                                                 std::shared_ptr<comm::mpi::Library> mpi);
  /// Made by attach(): the end, by the thread that attached, while no other thread of any rank uses global
  /// memory. Collective; the object is destroyed afterwards.
  void detach() noexcept;
  ~Runtime();

  /// The runtime of this process, or null before create() and after the destructor.
  [[nodiscard]] static Runtime* current() noexcept;
  /// The process's rank, or 0 without a runtime. In few instructions: containers ask in each operation.
  [[nodiscard]] static Rank here() noexcept;

  /// Ranks other than 0: runs threads until rank 0's main has ended.
  void serve();
  /// Calls main, which ends by exit(): on rank 0 on a stack in the space, as worker 0.
  [[noreturn]] void run_main(int (*main)(int, char**, char**), int argc, char** argv, char** envp);
  /// Ends the job from exit(): tells the other ranks to stop. Rank 0 only; idempotent.
  void shut_down() noexcept;
  /// On a rank that does not run main: rank 0 calls exit(code), on an OS thread of its own.
  void ask_exit(int code) noexcept;
  /// True between the call of main (or serve) and its return: on ranks other than 0 an exit() of this process
  /// is then too early.
  [[nodiscard]] bool running() const noexcept;
  /// The job has ended, but threads still run: on this rank, or over a network on any rank. This
  /// object is not destroyed then, and the process ends while they run.
  [[nodiscard]] bool threads_remain() const noexcept;
  /// --check races, on rank 0 after the end: a rank has reported a race.
  [[nodiscard]] bool found_races() const noexcept;
  /// --trace could not be written.
  [[nodiscard]] bool lost_trace() const noexcept;

  /// Made by attach(): there are no user-level threads, and no pool().
  [[nodiscard]] bool attached() const noexcept;
  /// How this rank learns of accesses to absent memory (mem/engines.h).
  [[nodiscard]] std::string_view fault_engine() const noexcept;
  /// For one thread of each rank at a time.
  [[nodiscard]] comm::Collectives& collectives() noexcept;

  /// The caller is main on rank 0, or a constructor or destructor of the program there, and not in run().
  [[nodiscard]] bool at_main() const noexcept;
  /// From main on rank 0: runs entry(arg) as the root thread, returns when it has ended; its exception is
  /// rethrown.
  void run_root(void (*entry)(void*), void* arg);
  /// How many root threads have been started.
  [[nodiscard]] std::uint64_t roots() const noexcept;

  [[nodiscard]] Rank rank() const noexcept;
  [[nodiscard]] std::uint32_t ranks() const noexcept;
  /// All ranks are on this host.
  [[nodiscard]] bool one_host() const noexcept;
  [[nodiscard]] std::uint32_t workers() const noexcept;
  [[nodiscard]] const Options& options() const noexcept;
  /// Whether the address lies in global memory.
  [[nodiscard]] bool contains(const void*) const noexcept;
  /// The program's variables where they are not in V: in a job of one rank.
  [[nodiscard]] const OneRankVariables& one_rank_variables() const noexcept;
  /// Whether an allocation may lie there.
  [[nodiscard]] bool in_heap(const void*) const noexcept;
  [[nodiscard]] const mem::Space& space() const noexcept;
  /// The program's variables are global memory.
  [[nodiscard]] bool shares_variables() const noexcept;
  /// The reserved space [base, base + bytes), without the program's variables.
  [[nodiscard]] std::byte* space_base() const noexcept;

  /// Global memory. align: a power of two up to 64 KiB. Any thread of any rank (also OS threads of the
  /// user's).
  /// Zeros are in both views; pages that were never used are not written.
  Result<void*> allocate(std::size_t bytes, std::size_t align, Placement,
                         InitialBytes = InitialBytes::unspecified);
  void deallocate(void*);
  /// Bytes that may be used at p; p from allocate().
  [[nodiscard]] std::size_t usable_size(const void* p) const;
  /// Changes the size of an allocation in place; false if that is not possible, or wastes memory.
  bool resize(void* p, std::size_t bytes);
  /// For memory that takes the place of p, from allocate(): at the same rank, of the same NUMA nodes.
  [[nodiscard]] Placement placement_like(const void* p) const noexcept;

  /// A stack for an OS thread of the program on this rank, a multiple of 64 KiB. Its memory stays here and in
  /// DRAM, as main's: the runtime itself runs there. Null: none is left. It is not given back.
  std::byte* make_stack(std::size_t bytes);

  /// The job's clock (ult::Pool::clock_ns).
  [[nodiscard]] std::uint64_t clock_ns() const noexcept;

  void release_all();
  void acquire_all();
  /// Makes [p, p + bytes) present (and writable) until unpin, e.g. for a system call.
  Result<void> pin(const void* p, std::size_t bytes, dsm::Use);
  void unpin(const void* p, std::size_t bytes);
  /// Pins for the program's system calls.
  [[nodiscard]] CallMemory& call_memory() noexcept;
  /// Bytes of DRAM that this rank may always have; the largest number: there is no limit.
  [[nodiscard]] std::uint64_t dram_share() const noexcept;
  /// The stack of main or of a thread that holds the address; empty: it lies in none.
  [[nodiscard]] std::span<std::byte> stack_at(const void*) const noexcept;
  /// In a child of fork(): current() is null from now on.
  static void forget_process() noexcept;
  /// As pin() and unpin() of a piece at a time, for at most as much as DRAM holds at once; ends at the first
  /// page that is not allocated.
  void prefetch(const void* p, std::size_t bytes, dsm::Use);
  /// Sends for what of a patch is on SSD, at this rank or another; returns how many pages, or parts of own
  /// ones, that are.
  std::size_t send_for(const void* global, const comm::Cursor&, dsm::Use);
  Result<void> discard(const void* p, std::size_t bytes);
  /// Passes the program's advice on memory to the tiers, if there are any.
  Result<void> tell(const void* p, std::size_t bytes, gas::Advisor::What, const char* call);
  /// The pool for Placement::pool.
  Result<std::uint32_t> numa_pool(NumaRequest&);
  /// Memory of a request of blocks was allocated.
  Result<void> numa_blocks(void* p, std::size_t bytes, const topo::NodeSet&);
  Result<void> numa_bind(void* p, std::size_t bytes, const NumaRequest&);
  Result<topo::NumaPages> numa_where(const void* p, std::size_t bytes);
  [[nodiscard]] const topo::NodeSet& numa_nodes() const noexcept;
  /// Whether global memory may leave DRAM.
  [[nodiscard]] bool has_tiers() const noexcept;
  [[nodiscard]] ult::Pool& pool() noexcept;
  /// Direct, uncached access to the owners' copies.
  [[nodiscard]] Direct& direct() noexcept { return *direct_; }
  /// Makes this rank the owner of the pages that hold the range, with their bytes; several move at once.
  Result<void> own(const void* global, std::size_t bytes);
  /// Makes `to` their owner.
  Result<void> give(const void* global, std::size_t bytes, Rank to);
  /// The owner of the page that holds the byte. The page may move at any time, so the answer may be old.
  Result<Rank> where(const void* global);

  /// Sum over the rank's workers and service thread.
  [[nodiscard]] CounterSums counters(Rank) const;

 private:
  struct Layers;
  struct Job;
  explicit Runtime(std::unique_ptr<Job>);
  void make_current() noexcept;
  [[nodiscard]] Job& job() noexcept;
  std::unique_ptr<Layers> layers_;  ///< a Job
  Direct* direct_;                  ///< layers_'s
};

}  // namespace kasane::runtime
