// SPDX-License-Identifier: Apache-2.0
// The intervals of a thread's work, for --trace: a log beside its counters (base/counters.h), in registered
// memory so that rank 0 can read it.
//
//   { Traced traced(counters, TraceKind::fetch, bytes); … }                     // a branch without a log
//   { Spent spent(counters, Account::idle, TraceKind::idle); … }                // base/time_spent.h
//
// Thread safety: add() from any thread, wait-free, async-signal-safe. Other threads read a log while it
// grows: an entry counts once its kind is set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/counters.h"

namespace kasane {

// kind, its name, the track where it stands beside its thread, the meaning of its number
#define KASANE_TRACE_KINDS(X)                            \
  X(load_fault, "load fault", "faults", "address")       \
  X(store_fault, "store fault", "faults", "address")     \
  X(view, "view", "faults", "bytes")                     \
  X(fetch, "fetch", "faults", "bytes")                   \
  X(put_changes, "put changes", "fences", "blocks")      \
  X(move_pages, "move pages", "moves", "pages")          \
  X(release, "release", "fences", "")                    \
  X(acquire, "acquire", "fences", "")                    \
  X(cross, "edge from another rank", "fences", "rank")   \
  X(steal_here, "steal in the rank", "steals", "worker") \
  X(steal_rank, "steal from a rank", "steals", "rank")   \
  X(idle, "idle", "idle", "")                            \
  X(spill, "write to SSD", "spills", "bytes")            \
  X(read_back, "read from SSD", "spills", "bytes")

enum class TraceKind : std::uint32_t {
  none,  ///< not written yet
#define X(kind, name, category, number) kind,
  KASANE_TRACE_KINDS(X)
#undef X
};

class alignas(64) TraceLog {
 public:
  struct Event {
    std::uint64_t begin_ns, end_ns, number;
    std::atomic<TraceKind> kind;
  };

  /// Memory of a log, which begins as zeros.
  [[nodiscard]] static constexpr std::size_t bytes(std::uint64_t capacity) noexcept {
    return sizeof(TraceLog) + (capacity * sizeof(Event) + 63) / 64 * 64;
  }
  /// Before the first add().
  void open(std::uint64_t capacity) noexcept { capacity_ = capacity; }

  void add(TraceKind kind, std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t number) noexcept {
    // relaxed: only a place; the entry is published by its kind.
    const std::uint64_t i = used_.fetch_add(1, std::memory_order_relaxed);
    if (i >= capacity_) return;
    Event& e = events()[i];
    e.begin_ns = begin_ns;
    e.end_ns = end_ns;
    e.number = number;
    // release, with the acquire in for_each(): a reader that sees the kind sees the rest.
    e.kind.store(kind, std::memory_order_release);
  }

  [[nodiscard]] std::uint64_t kept() const noexcept {
    const std::uint64_t n = used_.load(std::memory_order_relaxed);  // a number
    return n < capacity_ ? n : capacity_;
  }
  /// Events for which there was no room.
  [[nodiscard]] std::uint64_t lost() const noexcept { return used_.load(std::memory_order_relaxed) - kept(); }
  template <class F>
  void for_each(const F& f) const {
    for (std::uint64_t i = 0, n = kept(); i < n; ++i) {
      // acquire: pairs with the release store of the kind, so the rest of the event is there
      const TraceKind kind = events()[i].kind.load(std::memory_order_acquire);
      if (kind != TraceKind::none) f(kind, events()[i].begin_ns, events()[i].end_ns, events()[i].number);
    }
  }

 private:
  [[nodiscard]] Event* events() noexcept { return reinterpret_cast<Event*>(this + 1); }
  [[nodiscard]] const Event* events() const noexcept { return reinterpret_cast<const Event*>(this + 1); }

  std::atomic<std::uint64_t> used_{0};
  std::uint64_t capacity_ = 0;
};
static_assert(sizeof(TraceLog) == 64 && sizeof(TraceLog::Event) == 32);

/// Records its own lifetime, where there is a log.
class Traced {
 public:
  Traced(const Counters* counters, TraceKind kind, std::uint64_t number = 0) noexcept
      : log_(counters != nullptr ? counters->log : nullptr),
        kind_(kind),
        number_(number),
        begin_(log_ != nullptr ? now_ns() : 0) {}
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;
  ~Traced() {
    if (log_ != nullptr) [[unlikely]]
      log_->add(kind_, begin_, now_ns(), number_);
  }
  void cancel() noexcept { log_ = nullptr; }

 private:
  TraceLog* log_;
  TraceKind kind_;
  std::uint64_t number_, begin_;
};

}  // namespace kasane
