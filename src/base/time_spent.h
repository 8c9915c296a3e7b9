// SPDX-License-Identifier: Apache-2.0
// Where the time of a worker goes: accounts, each a counter of nanoseconds (base/counters.h), that exclude
// each other, so what is in none of them is the program's own. And, with --stats, from which places in the
// program: a table of a thread's, in registered memory so that rank 0 can read it.
//
//   { Spent spent(counters, Account::fence_locks); … { Spent spent(counters, Account::fence_asked); … } }
//         └────────── what is left ──────────┘           └── is not the outer account's ──┘
//
// Thread safety: counters and a table belong to one thread, which must stay on its OS thread while a Spent
// lives; faults may interrupt it. Any thread reads them. Wait-free, async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/counters.h"
#include "base/trace.h"

namespace kasane {

// account, its name in the table. Those up to wait_others have places.
#define KASANE_ACCOUNTS(X)                 \
  X(load_faults, "load faults")            \
  X(store_faults, "store faults")          \
  X(views, "views")                        \
  X(fence_joins, "fences, joins")          \
  X(fence_locks, "fences, locks")          \
  X(fence_barriers, "fences, barriers")    \
  X(fence_atomics, "fences, atomics")      \
  X(fence_others, "fences, other")         \
  X(wait_locks, "waits for locks")         \
  X(wait_barriers, "waits at barriers")    \
  X(wait_joins, "waits in joins")          \
  X(wait_network, "waits for the network") \
  X(wait_others, "waits, other")           \
  X(fence_asked, "fences for other ranks") \
  X(steal, "steals, moves of threads")     \
  X(idle, "idle")

enum class Account : std::uint8_t {
#define X(account, name) account,
  KASANE_ACCOUNTS(X)
#undef X
};
inline constexpr std::size_t kAccounts = static_cast<std::size_t>(Account::idle) + 1;

[[nodiscard]] inline std::atomic<std::uint64_t>& counter_of(Counters& counters, Account account) noexcept {
  static constexpr std::atomic<std::uint64_t> Counters::* kOf[kAccounts] = {
#define X(account, name) &Counters::ns_##account,
      KASANE_ACCOUNTS(X)
#undef X
  };
  return counters.*kOf[static_cast<std::size_t>(account)];
}

/// Nanoseconds by account and place. Of fixed size: what finds no room is told as lost.
class alignas(64) PlaceTable {
 public:
  /// Of the calling thread's place: the address of an instruction in the program; 0: it is in none.
  using Find = std::uintptr_t (*)() noexcept;

  /// Once, before add(), in the process that adds.
  void open(Find find) noexcept { find_ = find; }

  void add(Account account, std::uint64_t ns) noexcept {
    const std::uint64_t key = std::uint64_t{find_()} << 8 | (static_cast<std::uint64_t>(account) + 1);
    // Knuth's multiplicative hash; relaxed, all: one writer, and readers read when it has ended.
    const std::uint64_t first = (key * 0x9E37'79B9'7F4A'7C15u) >> (64 - kBits);
    for (std::uint64_t i = 0; i < kProbes; ++i) {
      Entry& entry = entries_[(first + i) % kEntries];
      const std::uint64_t seen = entry.key.load(std::memory_order_relaxed);
      if (seen == 0) entry.key.store(key, std::memory_order_relaxed);
      if (seen == 0 || seen == key) return count(entry.ns, ns);
    }
    count(lost_ns_, ns);
  }

  [[nodiscard]] std::uint64_t lost_ns() const noexcept { return lost_ns_.load(std::memory_order_relaxed); }
  /// f(account, code, ns)
  template <class F>
  void for_each(const F& f) const {
    for (const Entry& entry : entries_) {
      const std::uint64_t key = entry.key.load(std::memory_order_relaxed);
      if (key != 0)
        f(static_cast<Account>((key & 0xFF) - 1), static_cast<std::uintptr_t>(key >> 8),
          entry.ns.load(std::memory_order_relaxed));
    }
  }

 private:
  static constexpr unsigned kBits = 11;
  static constexpr std::uint64_t kEntries = 1 << kBits, kProbes = 16;
  struct Entry {
    std::atomic<std::uint64_t> key{0}, ns{0};
  };
  Find find_ = nullptr;  ///< of the process of the writer
  std::atomic<std::uint64_t> lost_ns_{0};
  Entry entries_[kEntries];
};

/// Adds to an account, and to its place where there is a table.
inline void spend(Counters& counters, Account account, std::uint64_t ns) noexcept {
  count(counter_of(counters, account), ns);
  if (PlaceTable* const places = counters.places; places != nullptr && account <= Account::wait_others) {
    counters.places = nullptr;  // a fault in add() has no place of the program's
    places->add(account, ns);
    counters.places = places;
  }
}

/// Adds its lifetime to an account, without what another Spent of the thread adds meanwhile.
class Spent {
 public:
  /// kind: for --trace; none: it is not an event of its own
  Spent(Counters& counters, Account account, TraceKind kind = TraceKind::none,
        std::uint64_t number = 0) noexcept
      : counters_(counters),
        account_(account),
        kind_(kind),
        number_(number),
        // relaxed, as below: the thread's own
        outer_(counters.elsewhere_ns.load(std::memory_order_relaxed)),
        begin_(now_ns()) {
    counters.elsewhere_ns.store(0, std::memory_order_relaxed);
  }
  Spent(const Spent&) = delete;
  Spent& operator=(const Spent&) = delete;
  ~Spent() {
    if (open_) end();
  }

  /// Returns what was added.
  std::uint64_t end() noexcept {
    const std::uint64_t now = now_ns(), all = now - begin_;
    const std::uint64_t inner = counters_.elsewhere_ns.load(std::memory_order_relaxed);
    const std::uint64_t own = all > inner ? all - inner : 0;
    open_ = false;
    spend(counters_, account_, own);
    counters_.elsewhere_ns.store(outer_ + all, std::memory_order_relaxed);
    if (counters_.log != nullptr && kind_ != TraceKind::none) [[unlikely]]
      counters_.log->add(kind_, begin_, now, number_);
    return own;
  }
  /// Its time stays the outer account's. No inner one lives.
  void cancel() noexcept {
    open_ = false;
    counters_.elsewhere_ns.store(outer_ + counters_.elsewhere_ns.load(std::memory_order_relaxed),
                                 std::memory_order_relaxed);
  }

 private:
  Counters& counters_;
  const Account account_;
  const TraceKind kind_;
  bool open_ = true;
  const std::uint64_t number_, outer_, begin_;
};

}  // namespace kasane
