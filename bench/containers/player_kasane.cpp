// SPDX-License-Identifier: Apache-2.0
// Kasane's containers, in a job:
//
//   kasane run -n 1 --workers THREADS -- player-containers-kasane … near     at the thread's rank
//   kasane run -n 2 --workers 1 -- player-containers-kasane … far            at the other rank
//   kasane run -n 2 --workers 1 -- player-containers-kasane … all            over all, by a thread at each
#include <kasane/kasane.hpp>

#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/updates.hpp>
#include <kasane/containers/vector.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "containers/player.h"

namespace {

using namespace kasane::bench::containers;
using U64 = std::uint64_t;
using Map = kasane::unordered_map<U64, U64>;

/// One at each rank, where there are several; else on the workers of this one.
struct KasaneThreads {
  template <class F>
  void operator()(unsigned n, const F& f) const {
    std::vector<kasane::thread> threads;
    for (unsigned t = 0; t < n; ++t) {
      if (kasane::ranks() > 1)
        threads.emplace_back(kasane::at{t % kasane::ranks()}, [&f, t] { f(t); });
      else
        threads.emplace_back([&f, t] { f(t); });
    }
    for (auto& t : threads) t.join();
  }
};
using KasaneMeter = Meter<KasaneThreads>;

/// The ranks of a container, for its constructor.
std::vector<std::uint32_t> ranks_of(const Order& order) {
  if (order.place == "near") return {kasane::rank()};
  if (order.place == "far") return {kasane::ranks() - 1 - kasane::rank()};
  return {};
}

struct PlayedMap {
  Map::handle map;
  bool insert(U64 k, U64 v) const { return map.insert(k, v); }
  U64 find(U64 k) const { return map.find(k).value_or(0); }
  bool contains(U64 k) const { return map.contains(k); }
  bool assign(U64 k, U64 v) const { return map.insert_or_assign(k, v); }
  U64 add(U64 k, U64 n) const { return map.add(k, n); }
  bool visit(U64 k) const {
    return map.visit(k, [](U64& v) { ++v; });
  }
  bool erase(U64 k) const { return map.erase(k); }
  U64 find_many(const U64* keys, std::size_t n) const {
    U64 s = 0;
    for (const auto& v : map.find_many(std::span(keys, n))) s += v.value_or(0);
    return s;
  }
  U64 sum() const {
    U64 s = 0;
    for (const auto& [k, v] : map) s += v;
    return s;
  }
  /// By a thread where the entries lie.
  void fill(std::size_t from, std::size_t to) const {
    const std::uint32_t here = kasane::rank();
    if (from == to) return;
    kasane::thread(kasane::at{map.rank_of(key(from))}, [this, from, to] {
      for (std::size_t i = from; i < to; ++i) map.insert(key(i), value(i));
    }).join();
    kasane::this_thread::move_to(here);
  }
  /// more() adds one to as many values as there are operations, three times.
  static std::size_t added() { return 3; }
  void more(KasaneMeter& m) const;
};

template <class F>
void time_updates(KasaneMeter& m, const char* name, const Map::handle& map, const F& f) {
  const std::uint32_t here = kasane::rank();
  kasane::post_group group;
  m.all(
      name, m.order.operations,
      [&](std::size_t from, std::size_t to) {
        {
          kasane::updates u(map, group);
          for (std::size_t i = from; i < to; ++i) f(u, i);
        }
        group.wait();
        return 0;
      },
      true);
  kasane::this_thread::move_to(here);
}

/// Operations that others lack, and a get of a cache line beside a find.
void PlayedMap::more(KasaneMeter& m) const {
  const std::size_t n = m.order.entries, ops = m.order.operations;
  // Beside updates: by the same clock.
  m.all(
      "single-add", ops,
      [this, n](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) map.add(key(any(i, n)), 1);
        return 0;
      },
      true);
  time_updates(m, "updates-add", map, [n](auto& u, std::size_t i) { u.add(key(any(i, n)), 1); });
  time_updates(m, "updates-visit", map,
               [n](auto& u, std::size_t i) { u.visit(key(any(i, n)), [](U64& v) { ++v; }); });
  const Map other(ranks_of(m.order));
  time_updates(m, "updates-insert", other,
               [](auto& u, std::size_t i) { u.insert_or_assign(key(i), value(i)); });
  m.expect("updates-insert", other.size(), ops);
  if (m.order.threads > 1) return;

  const Map third(ranks_of(m.order));
  const auto insert_many = [&](std::size_t from, std::size_t to) {
    U64 keys[kSpan], values[kSpan], fresh = 0;
    for (; from < to; from += kSpan) {
      const std::size_t some = std::min(kSpan, to - from);
      for (std::size_t i = 0; i < some; ++i) keys[i] = key(from + i), values[i] = value(from + i);
      for (const bool is : third.insert_many({keys, some}, {values, some})) fresh += is;
    }
    return fresh;
  };
  m.expect("insert_many", m.all("insert_many", ops, insert_many), ops);
  const std::size_t lines = std::max<std::size_t>(n / 2, 1);  // about as much memory as the map's buckets
  auto* const memory = static_cast<char*>(
      kasane::allocate_zeroed(lines * 64, 64, kasane::placement::on(map.rank_of_part(0)).fixed()));
  m.each("get-64-bytes", ops, [&](std::size_t i) {
    U64 line[8];
    kasane::detail::check(kasane_get(line, memory + any(i, lines) * 64, 64));
    return line[0];
  });
  kasane::deallocate(memory);
}

struct PlayedSet {
  const kasane::unordered_set<U64>& set;
  bool insert(U64 k) const { return set.insert(k); }
  bool contains(U64 k) const { return set.contains(k); }
  bool erase(U64 k) const { return set.erase(k); }
};

struct PlayedVector {
  kasane::vector<U64>& v;
  void push_back(U64 x) const { v.push_back(x); }
  void append(const U64* xs, std::size_t n) const { v.append({xs, n}); }
  U64 get(std::size_t i) const { return v.get(i); }
  void put(std::size_t i, U64 x) const { v.put(i, x); }
  U64 fetch_add(std::size_t i, U64 n) const { return v.fetch_add(i, n); }
  U64 sum() const {
    U64 s = 0;
    for (const U64 x : v) s += x;
    return s;
  }
  void clear() { v.clear(); }
};

struct PlayedDeque {
  kasane::deque<U64>::handle d;
  void push_back(U64 x) const { d.push_back(x); }
  void push_front(U64 x) const { d.push_front(x); }
  U64 pop_back() const { return d.try_pop_back().value_or(0); }
  U64 pop_front() const { return d.try_pop_front().value_or(0); }
};

struct PlayedList {
  kasane::list<U64>& l;
  using It = kasane::list<U64>::handle::iterator;
  It push_back(U64 x) const { return l.push_back(x); }
  It push_front(U64 x) const { return l.push_front(x); }
  It insert(const It& it, U64 x) const { return l.insert(it, x, it.rank()); }
  void erase(const It& it) const { l.erase(it); }
  void sort() { l.sort(); }
  U64 pop_front() const { return l.pop_front().value_or(0); }
  U64 sum() const {
    U64 s = 0;
    for (const U64 x : l) s += x;
    return s;
  }
};

/// On a thread.
int play(const Order& order, bool elapsed) {
  KasaneMeter m(order, elapsed || order.place == "all");
  const auto ranks = ranks_of(order);
  if (order.group == "map") {
    const Map map(ranks);
    PlayedMap played{map};
    play_map(played, m);
  } else if (order.group == "set") {
    const kasane::unordered_set<U64> set(ranks);
    PlayedSet played{set};
    play_set(played, m);
  } else if (order.group == "vector") {
    kasane::vector<U64> v(ranks);
    PlayedVector played{v};
    play_vector(played, m);
  } else if (order.group == "deque") {
    const kasane::deque<U64> d(ranks.empty() ? 0 : ranks[0]);
    PlayedDeque played{d};
    play_deque(played, m);
  } else if (order.group == "list") {
    kasane::list<U64> l(ranks.empty() ? 0 : ranks[0]);
    PlayedList played{l};
    play_list(played, m);
  }
  return m.print();
}

}  // namespace

int main(int argc, char** argv) {
  Order order;
  if (!parse(argc, argv, order)) return 2;
  if (order.place != "near" && kasane::ranks() < 2) {
    std::fputs("player-containers-kasane: far and all are for two ranks\n", stderr);
    return 2;
  }
  // Waits for a network are no processor time.
  const bool elapsed = order.place != "near" && order.operations != order.entries;
  return kasane::run([&] { return play(order, elapsed); });
}
