// SPDX-License-Identifier: Apache-2.0
// The counters of a worker: the one table of their names and meanings, for --stats, kasane_counter and
// docs/guide/options.md. Each worker has a block of counters, and so has the service thread, in registered
// memory so that any rank can read them. Each has a single writer, so a relaxed load and store suffice. The
// unit of ns_ is a nanosecond, of bytes_ a byte.
#pragma once

#include <atomic>
#include <cstdint>

namespace kasane {

class TraceLog;
class PlaceTable;

// name, what it counts
#define KASANE_COUNTERS(X)                                                                         \
  X(threads, "threads that have ended")                                                            \
  X(forks, "threads forked")                                                                       \
  X(steals_local, "continuations stolen from a worker of the same rank")                           \
  X(steals_remote, "continuations stolen from another rank")                                       \
  X(steals_numa, "steals_remote from a rank of the same NUMA node")                                \
  X(steals_host, "steals_remote from another NUMA node of the host")                               \
  X(suspends, "times a thread blocked")                                                            \
  X(crossings, "edges between ranks: a release there and an acquire here")                         \
  X(releases_asked, "requests to other ranks to release")                                          \
  X(faults_read, "load faults in V")                                                               \
  X(faults_write, "store faults in V")                                                             \
  X(faults_left, "faults that waited for a network or SSD while their worker ran other threads")   \
  X(faults_waited, "faults that waited for a network or SSD, and their worker with them")          \
  X(faults_again, "faults after which the access faulted again, since the page was not here yet")  \
  X(blocks_fetched, "blocks fetched from their owners")                                            \
  X(bytes_fetched, "bytes fetched from other ranks")                                               \
  X(diffs, "blocks whose changed bytes were put to their owners")                                  \
  X(bytes_put, "changed bytes put to other ranks")                                                 \
  X(messages_put, "messages with short runs of changed bytes, to owners that are not mapped here") \
  X(releases, "release_all rounds")                                                                \
  X(acquires, "acquire_all rounds")                                                                \
  X(releases_combined, "release_all calls that another call's round served")                       \
  X(acquires_combined, "acquire_all calls that another call's round served")                       \
  X(notices_taken, "pages of which this rank was told that they have changed")                     \
  X(data_races, "words that two ranks changed with no fence between (--check races)")              \
  X(pages_moved, "pages that changed their owner to this rank")                                    \
  X(pages_auto_relocated, "pages that moved to this rank without a call: it alone used them")      \
  X(pages_misplaced, "OS pages that lie on other NUMA nodes than was asked for, at the end")       \
  X(pages_evicted, "pages of this rank that left DRAM for the spill file")                         \
  X(pages_brought_in, "pages of which blocks came back from the spill file")                       \
  X(pages_replaced, "pages on SSD of which a put replaced every byte: nothing was read")           \
  X(bytes_spilled, "bytes written to the spill file")                                              \
  X(bytes_read_back, "bytes read from the spill file")                                             \
  X(reads_together, "runs of blocks that were read from the spill file while others were")         \
  X(reads_polled, "reads from the spill file for which a thread polled instead of sleeping")       \
  X(pages_dropped, "pages of other ranks whose copies here were dropped to make room")             \
  X(faults_put_off, "faults that were postponed for lack of room (--faults uffd-thread)")          \
  X(bytes_of_tables, "largest part of the budget for page tables and entries for blocks")          \
  X(tables_given_back, "ranges of 4 MiB whose page tables were freed")                             \
  X(bytes_of_stacks, "largest part of the budget for frames of threads' stacks")                   \
  X(stacks_trimmed, "free stacks that gave back their frames for lack of room")                    \
  X(bytes_moved, "live bytes of stacks that moved")                                                \
  X(address_hits, "accesses to a page whose location was cached here")                             \
  X(address_misses, "accesses for which the directory was asked where a page is")                  \
  X(address_recalls, "ranks that a move asked to forget a page's location")                        \
  X(move_requests, "messages of moves to managers and owners that are not mapped here")            \
  X(reads_again, "gets that were repeated since their page moved meanwhile")                       \
  X(remote_operations_allocate, "operations of allocations on words of another rank's heap")       \
  X(remote_operations_free, "operations of frees on words of another rank's heap")                 \
  X(remote_operations, "one-sided operations on memory of ranks that is not mapped here")          \
  X(sleeps, "times an idle worker went to sleep")                                                  \
  X(ns_workers, "time of the workers, known when they have ended")                                 \
  X(ns_idle, "time in which workers had no thread to run, without ns_wait_…")                      \
  X(ns_steal, "time in steals from other ranks that succeeded, and in moves of threads to here")   \
  X(ns_load_faults, "time in load faults")                                                         \
  X(ns_store_faults, "time in store faults")                                                       \
  X(ns_views, "time in views that were not here yet")                                              \
  X(ns_fence_joins, "time in fences of joins")                                                     \
  X(ns_fence_locks, "time in fences of locks")                                                     \
  X(ns_fence_barriers, "time in fences of barriers")                                               \
  X(ns_fence_atomics, "time in fences of atomics")                                                 \
  X(ns_fence_others, "time in other fences")                                                       \
  X(ns_fence_asked, "time in releases for other ranks")                                            \
  X(ns_wait_locks, "time in which workers waited for locks; idle ones with --stats only")          \
  X(ns_wait_barriers, "idle time until a barrier let a thread through (--stats)")                  \
  X(ns_wait_joins, "idle time until a join was over (--stats)")                                    \
  X(ns_wait_network, "time in which they waited for the answer of a network (--stats)")            \
  X(ns_wait_others, "idle time until another wait was over (--stats)")

struct alignas(64) Counters {
#define X(name, help) std::atomic<std::uint64_t> name{0};
  KASANE_COUNTERS(X)
#undef X
  // of the same thread, in its own process:
  TraceLog* log = nullptr;                     ///< base/trace.h; null: nothing is traced
  PlaceTable* places = nullptr;                ///< base/time_spent.h; null: without --stats
  std::atomic<std::uint64_t> elsewhere_ns{0};  ///< what inner accounts have, for a Spent
};

/// Adds to a counter that only the calling thread writes.
inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  // Compilers make three instructions of a relaxed load and store, and a fork and join counts twice.
  asm("addq %1, %0" : "+m"(counter) : "er"(n) : "cc");
#else
  // relaxed: a single writer; readers need a number, not an order.
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
#endif
}

}  // namespace kasane
