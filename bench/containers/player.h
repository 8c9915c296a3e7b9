// SPDX-License-Identifier: Apache-2.0
// What the players of `kasane bench containers` share: the order in which they are called, the keys, the
// clock, and the cases of each structure. A player is a program that uses the structures of one system by its
// public interface, as a user of that system writes it:
//
//   player-containers-NAME map|set|vector|deque|list THREADS ENTRIES [OPERATIONS near|far|all]
//
// It prints one JSON object (figures.h): whether all results were right, and of each case the ns of an
// operation. A case is there if the structure has the operation.
//
// Time is the processor time of the thread; with several threads, or several ranks that take part, it is
// elapsed time. So what else a machine does moves single-threaded figures little.
//
// Thread safety: main alone calls play().
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "figures.h"

namespace kasane::bench::containers {

/// Another number for each i.
inline std::uint64_t key(std::uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15u;
  return (i ^ i >> 31) * 0xD6E8FEB86659FD93u;
}
/// Some order of 0 … n - 1, with repetitions.
inline std::uint64_t any(std::uint64_t i, std::uint64_t n) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(key(i ^ 0x5555555555u)) * n >> 64);
}
/// What an entry has first.
inline std::uint64_t value(std::uint64_t i) { return i + 1; }

inline constexpr std::size_t kSpan = 1024;  ///< elements of an append, keys of a find_many

struct Order {
  std::string group, place = "near";
  unsigned threads = 1;
  std::size_t entries = 0;     ///< of a structure
  std::size_t operations = 0;  ///< of a case: entries, or fewer over a network
};

/// Bytes of memory that this process uses; pages that it maps twice count once.
inline double bytes_used() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string word; in >> word;) {
    double kib = 0;
    if (word == "Pss:" && in >> kib) return kib * 1024;
  }
  return 0;
}

inline double clock_ns(clockid_t clock) {
  timespec t;
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/// Times cases. Threads: how the system runs f(0) … f(n - 1) at the same time: Threads{}(n, f). Where each
/// process runs one of them, Threads::total(sum) adds up those of all.
template <class Threads>
class Meter {
 public:
  Meter(const Order& of, bool elapsed)
      : order(of), clock_(elapsed || of.threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID) {}

  const Order order;
  const double bytes_before = bytes_used();  ///< there is no structure yet

  /// One case: f(i) for all i < n, divided between the threads. Returns the sum of what f returns.
  template <class F>
  std::uint64_t each(const char* name, std::size_t n, const F& f) {
    return all(name, n, [&f](std::size_t from, std::size_t to) {
      std::uint64_t sum = 0;
      for (std::size_t i = from; i < to; ++i) sum += static_cast<std::uint64_t>(f(i));
      return sum;
    });
  }
  /// The same, by f(from, to).
  template <class F>
  std::uint64_t all(const char* name, std::size_t n, const F& f, bool elapsed = false) {
    std::vector<std::uint64_t> sums(order.threads);
    const clockid_t clock = elapsed ? CLOCK_MONOTONIC : clock_;
    const double begin = clock_ns(clock);
    if (order.threads == 1)
      sums[0] = f(0, n);
    else
      Threads{}(order.threads, [&, threads = order.threads](unsigned t) {
        sums[t] = f(n * t / threads, n * (t + 1) / threads);
      });
    figures_[order.group + "-" + name].push_back((clock_ns(clock) - begin) / static_cast<double>(n));
    const std::uint64_t sum = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
    if constexpr (requires { Threads::total(sum); })
      return Threads::total(sum);
    else
      return sum;
  }
  void figure(const char* name, double value) { figures_[order.group + "-" + name].push_back(value); }
  void expect(const char* what, std::uint64_t is, std::uint64_t expected) {
    if (is == expected) return;
    verified_ = false;
    std::fprintf(stderr, "%s %s: %llu instead of %llu\n", order.group.c_str(), what,
                 static_cast<unsigned long long>(is), static_cast<unsigned long long>(expected));
  }
  int print() const { return print_figures(verified_, figures_), verified_ ? 0 : 1; }

 private:
  const clockid_t clock_;
  Figures figures_;
  bool verified_ = true;
};

// ---- cases: what a structure lacks is left out ------------------------------------------------------------

/// insert, find (0: none), contains, assign, add, visit (adds 1), erase; fill(from, to) inserts entries that
/// no case has inserted; sum of all values.
template <class Map, class Meter>
void play_map(Map& map, Meter& m) {
  const std::size_t n = m.order.entries, ops = m.order.operations;
  m.expect("insert", m.each("insert", ops, [&](std::size_t i) { return map.insert(key(i), value(i)); }), ops);
  if (m.order.place == "near" && m.order.threads == 1)
    m.figure("bytes", (bytes_used() - m.bytes_before) / static_cast<double>(n));
  if constexpr (requires { map.fill(ops, n); }) map.fill(ops, n);

  std::uint64_t found = 0;
  for (std::size_t i = 0; i < ops; ++i) found += value(any(i, n));
  m.expect("find", m.each("find", ops, [&](std::size_t i) { return map.find(key(any(i, n))); }), found);
  if constexpr (requires { map.contains(key(0)); })
    m.expect("absent",
             m.each("contains-absent", ops, [&](std::size_t i) { return map.contains(key(n + i)); }), 0);
  if constexpr (requires { map.find_many(&found, kSpan); }) {
    m.expect("find_many",
             m.all("find_many", ops,
                   [&](std::size_t from, std::size_t to) {
                     std::uint64_t keys[kSpan], sum = 0;
                     for (; from < to; from += kSpan) {
                       const std::size_t some = to - from < kSpan ? to - from : kSpan;
                       for (std::size_t i = 0; i < some; ++i) keys[i] = key(any(from + i, n));
                       sum += map.find_many(keys, some);
                     }
                     return sum;
                   }),
             found);
  }
  if constexpr (requires { map.assign(key(0), 1); })
    m.each("insert_or_assign", ops, [&](std::size_t i) { return map.assign(key(i), value(i)); });
  if constexpr (requires { map.add(key(0), 1); })
    m.each("add", ops, [&](std::size_t i) { return map.add(key(any(i, n)), 1); });
  if constexpr (requires { map.visit(key(0)); })
    m.each("visit", ops, [&](std::size_t i) { return map.visit(key(any(i, n))); });
  if constexpr (requires { map.more(m); }) map.more(m);
  if constexpr (requires { map.sum(); }) {
    if (m.order.threads == 1) {
      const std::size_t changed = ops * (2 + map.added());
      m.expect("iterate", m.all("iterate", n, [&](std::size_t, std::size_t) { return map.sum(); }),
               n * (n + 1) / 2 + changed);
    }
  }
  if constexpr (requires { map.erase(key(0)); })
    m.expect("erase", m.each("erase", ops, [&](std::size_t i) { return map.erase(key(i)); }), ops);
}

/// insert, contains, erase.
template <class Set, class Meter>
void play_set(Set& set, Meter& m) {
  const std::size_t n = m.order.operations;
  m.expect("insert", m.each("insert", n, [&](std::size_t i) { return set.insert(key(i)); }), n);
  m.expect("contains", m.each("contains", n, [&](std::size_t i) { return set.contains(key(any(i, n))); }), n);
  m.expect("erase", m.each("erase", n, [&](std::size_t i) { return set.erase(key(i)); }), n);
}

/// push_back, get, put, fetch_add, sum, append(xs, n), clear.
template <class Vector, class Meter>
void play_vector(Vector& v, Meter& m) {
  const std::size_t n = m.order.operations;
  m.each("push_back", n, [&](std::size_t i) { return v.push_back(value(i)), 0; });
  const std::uint64_t total = n * (n + 1) / 2;
  if (m.order.threads == 1)
    m.expect("iterate", m.all("iterate", n, [&](std::size_t, std::size_t) { return v.sum(); }), total);
  m.each("get", n, [&](std::size_t i) { return v.get(any(i, n)); });
  if constexpr (requires { v.fetch_add(0, 1); }) {
    m.each("fetch_add", n, [&](std::size_t i) { return v.fetch_add(any(i, n), 1); });
    m.expect("fetch_add", v.sum(), total + n);
  }
  m.each("put", n, [&](std::size_t i) { return v.put(i, value(i)), 0; });
  m.expect("put", v.sum(), total);
  v.clear();
  std::uint64_t xs[kSpan];
  for (std::size_t i = 0; i < kSpan; ++i) xs[i] = i;
  const std::size_t spans = n / kSpan;
  if (spans == 0) return;
  m.all("append", spans * kSpan, [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from / kSpan; i < to / kSpan; ++i) v.append(xs, kSpan);
    return 0;
  });
  m.expect("append", v.sum(), spans * (kSpan * (kSpan - 1) / 2));
}

/// push_back, push_front, pop_front, pop_back: the value.
template <class Deque, class Meter>
void play_deque(Deque& d, Meter& m) {
  const std::size_t n = m.order.operations;
  std::uint64_t pushed = 0, popped = 0;
  const auto sum_of = [n] { return n * (n + 1) / 2; };
  m.each("push_back", n, [&](std::size_t i) { return d.push_back(value(i)), 0; });
  pushed += sum_of();
  if constexpr (requires { d.push_front(1u); }) {
    m.each("push_front", n, [&](std::size_t i) { return d.push_front(value(i)), 0; });
    pushed += sum_of();
    popped += m.each("pop_back", n, [&](std::size_t) { return d.pop_back(); });
  }
  popped += m.each("pop_front", n, [&](std::size_t) { return d.pop_front(); });
  m.expect("pop", popped, pushed);
}

/// push_back and push_front return an iterator, insert(it, x) and erase(it) too; pop_front: the value; sum,
/// sort. Several threads push and pop.
template <class List, class Meter>
void play_list(List& l, Meter& m) {
  const std::size_t n = m.order.operations;
  const std::uint64_t total = n * (n + 1) / 2;
  if (m.order.threads > 1) {
    m.each("push_back", n, [&](std::size_t i) { return l.push_back(value(i)), 0; });
    m.expect("push_back", l.sum(), total);
    m.each("push_front", n, [&](std::size_t i) { return l.push_front(value(i)), 0; });
    m.expect("pop_front", m.each("pop_front", 2 * n, [&](std::size_t) { return l.pop_front(); }), 2 * total);
    return;
  }
  std::vector<decltype(l.push_back(1))> its(n);
  m.each("push_back", n, [&](std::size_t i) { return its[i] = l.push_back(key(i)), 0; });
  m.all("iterate", n, [&](std::size_t, std::size_t) { return l.sum(); });
  m.each("insert", n, [&](std::size_t i) { return its[i] = l.insert(its[any(i, n)], key(n + i)), 0; });
  m.each("erase", n, [&](std::size_t i) { return l.erase(its[i]), 0; });
  const std::uint64_t left = l.sum();
  if constexpr (requires { l.sort(); }) {
    m.all("sort", n, [&](std::size_t, std::size_t) { return l.sort(), 0; });
    m.expect("sort", l.sum(), left);
  }
  m.each("push_front", n, [&](std::size_t i) { return l.push_front(value(i)), 0; });
  m.expect("pop_front", m.each("pop_front", 2 * n, [&](std::size_t) { return l.pop_front(); }), left + total);
}

// ---- the command line -------------------------------------------------------------------------------------

/// False: it is wrong, and said so.
inline bool parse(int argc, char** argv, Order& order) {
  if (argc != 4 && argc != 6) {
    std::fprintf(stderr, "usage: %s map|set|vector|deque|list THREADS ENTRIES [OPERATIONS near|far|all]\n",
                 argv[0]);
    return false;
  }
  order.group = argv[1];
  order.threads = static_cast<unsigned>(std::atoi(argv[2]));
  order.entries = order.operations = std::strtoull(argv[3], nullptr, 10);
  if (argc == 6) order.operations = std::strtoull(argv[4], nullptr, 10), order.place = argv[5];
  return true;
}

}  // namespace kasane::bench::containers
