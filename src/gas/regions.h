// SPDX-License-Identifier: Apache-2.0
// The ids of the regions that every rank registers, and of the handlers of messages. Each belongs to the
// layer that defines its layout.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/assert.h"
#include "comm/transport.h"

namespace kasane::gas {

inline constexpr comm::RegionId kFrames{0};            ///< M
inline constexpr comm::RegionId kDirectory{1};         ///< gas/directory.h
inline constexpr comm::RegionId kThreads{2};           ///< ult/layout.h
inline constexpr comm::RegionId kHeap{3};              ///< gas/heap.h
inline constexpr comm::RegionId kStatistics{4};        ///< base/counters.h, one a worker
inline constexpr comm::RegionId kPending{5};           ///< gas/pending.h
inline constexpr comm::RegionId kHeapOfSmallPages{6};  ///< as kHeap
inline constexpr comm::RegionId kHeapOfLargePages{7};
inline constexpr comm::RegionId kTrace{8};       ///< runtime/report/trace_file.h; only with --trace
inline constexpr comm::RegionId kAddresses{9};   ///< gas/address_cache.h; only where peers are mapped
inline constexpr comm::RegionId kBudget{10};     ///< mem/budget.h; the first rank of a host has it
inline constexpr comm::RegionId kAtomics{11};    ///< runtime/language/atomics.h; only with several ranks
inline constexpr comm::RegionId kNumaPools{12};  ///< as kHeap, one after the other; only with NUMA nodes
inline constexpr comm::RegionId kPlaces{13};     ///< base/time_spent.h, one a worker; only with --stats

// Active messages: 0 is comm's collectives.
inline constexpr comm::HandlerId kYieldHandler{1};
inline constexpr comm::HandlerId kReleaseHandler{2};
inline constexpr comm::HandlerId kStopHandler{3};
inline constexpr comm::HandlerId kRecallHandler{4};
inline constexpr comm::HandlerId kGiveHandler{5};
inline constexpr comm::HandlerId kChangesHandler{6};
inline constexpr comm::HandlerId kPageInHandler{7};
inline constexpr comm::HandlerId kBudgetHandler{8};
inline constexpr comm::HandlerId kAdviceHandler{9};
inline constexpr comm::HandlerId kTakeHandler{10};
inline constexpr comm::HandlerId kSignalHandler{11};       ///< runtime/process/signal_actions.h
inline constexpr comm::HandlerId kProcessCallHandler{12};  ///< runtime/process/process_calls.h
inline constexpr comm::HandlerId kRandomHandler{13};       ///< runtime/process/random_numbers.h
inline constexpr comm::HandlerId kSendForHandler{14};
inline constexpr comm::HandlerId kHandOverHandler{15};
inline constexpr comm::HandlerId kNumaHandler{16};    ///< runtime/rank/numa_memory.h
inline constexpr comm::HandlerId kWakeHandler{17};    ///< sched/scheduler.h
inline constexpr comm::HandlerId kThreadHandler{18};  ///< runtime/process/bound_threads.h

/// Answer of handlers that queue a request for their service thread: there was no room, ask again. They give
/// this answer in no other case.
inline constexpr std::uint64_t kAgain = ~std::uint64_t{0};

/// What comm::as_payload() made of a value.
template <class T>
[[nodiscard]] T value_of(const comm::Message& message) noexcept {
  T value;
  KASANE_CHECK_OP(message.payload.size(), ==, sizeof value);
  std::memcpy(&value, message.payload.data(), sizeof value);
  return value;
}

}  // namespace kasane::gas
