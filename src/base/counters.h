// SPDX-License-Identifier: Apache-2.0
// What a worker counts. One block of counters a worker (and one for the service thread), in registered memory so that any rank can read
// them; each has a single writer, so a relaxed load and store suffice. Those named ns_ are nanoseconds, those named bytes_ bytes.
#pragma once

#include <atomic>
#include <cstdint>

namespace kasane {

class TraceLog;

// name, what it counts
#define KASANE_COUNTERS(X)                                                        \
  X(threads, "threads run to their end")                                          \
  X(forks, "threads forked")                                                      \
  X(steals_local, "continuations stolen inside the rank")                         \
  X(steals_remote, "continuations stolen from another rank")                      \
  X(steals_numa, "of these, from a rank of the same NUMA node")                   \
  X(steals_host, "of these, from another NUMA node of the host")                  \
  X(suspends, "threads that blocked")                                             \
  X(crossings, "edges between ranks: a release there and an acquire here")        \
  X(faults_read, "load faults in V")                                              \
  X(faults_write, "store faults in V")                                            \
  X(faults_again, "of all these, those whose page was on its way, or had to come first: the access faulted again") \
  X(blocks_fetched, "blocks fetched from their owner")                            \
  X(bytes_fetched, "bytes fetched from other ranks")                              \
  X(diffs, "blocks whose changed bytes were put to their owner")                  \
  X(bytes_put, "changed bytes put to other ranks")                                \
  X(messages_put, "messages with short runs of them, where the owner is not mapped here")  \
  X(blocks_sent_ahead, "of these blocks, sent ahead of a release (--debug write-buffer)") \
  X(blocks_sent_in_vain, "of these, stored to again before it")                       \
  X(releases, "release_all rounds")                                               \
  X(acquires, "acquire_all rounds")                                               \
  X(releases_combined, "release_all calls served by another's round")             \
  X(acquires_combined, "acquire_all calls served by another's round")             \
  X(blocks_dropped, "cached blocks dropped by acquires")                          \
  X(readers_told, "ranks told that a page they have copies of has changed")       \
  X(pages_heard, "pages of which this rank was told so")                          \
  X(data_races, "words that two ranks changed with no fence between (--check races)") \
  X(pages_moved, "pages that changed their owner to this rank")                   \
  X(pages_drawn, "pages that moved to this rank by themselves, since it alone used them") \
  X(pages_evicted, "pages of this rank that left DRAM for the spill file")        \
  X(pages_brought_in, "pages that came back from there, or the first blocks of one") \
  X(bytes_spilled, "bytes written to the spill file")                            \
  X(bytes_read_back, "bytes read from the spill file")                          \
  X(reads_polled, "reads from it that a thread waited for without sleeping")     \
  X(pages_dropped, "pages of other ranks whose copies here made room")            \
  X(faults_put_off, "faults for which there was no room yet, so that those behind them came first (--faults uffd-thread)") \
  X(bytes_of_tables, "bytes of page tables, and of entries for blocks, in the budget: the most at once") \
  X(tables_given_back, "ranges of 4 MiB whose page tables were given back")       \
  X(bytes_of_stacks, "bytes of frames of threads' stacks in the budget: the most at once") \
  X(stacks_trimmed, "free stacks that gave their frames back where room was short")  \
  X(bytes_moved, "live bytes that moved with them")                               \
  X(address_hits, "accesses to a page whose location was cached here")            \
  X(address_misses, "accesses that asked the directory where a page is")         \
  X(address_recalls, "ranks that a move asked to forget a page's location")       \
  X(move_requests, "messages of moves to managers and owners that are not mapped here") \
  X(reads_again, "gets whose page moved meanwhile, done again")                   \
  X(heap_trips_allocate, "operations of allocations on words of another rank's heap")  \
  X(heap_trips_free, "operations of frees on words of another rank's heap")       \
  X(trips, "one-sided operations sent to ranks that are not mapped here")         \
  X(sleeps, "times an idle worker went to sleep")                                 \
  X(ns_idle, "time without a thread to run, asleep or looking")                   \
  X(ns_steal, "time in remote steals that succeeded")                             \
  X(ns_fault, "time in faults")                                                   \
  X(ns_release, "time in release_all")                                            \
  X(ns_acquire, "time in acquire_all")                                            \
  X(ns_cross, "time in edges, fences included")

struct alignas(64) Counters {
#define X(name, help) std::atomic<std::uint64_t> name{0};
  KASANE_COUNTERS(X)
#undef X
  TraceLog* log = nullptr;   ///< of the same thread, in its own process: base/trace.h; null where nothing is traced
};

/// Adds to a counter that only the calling thread writes.
inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  // Of a relaxed load and store compilers make three instructions, of which a fork and join has two sets.
  asm("addq %1, %0" : "+m"(counter) : "er"(n) : "cc");
#else
  // relaxed: a single writer; readers want a number, not an order.
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
#endif
}

}  // namespace kasane
