// SPDX-License-Identifier: Apache-2.0
// Structures with the interface of std's, for one thread, in the words of the cases (player.h).
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace kasane::bench::containers {

using U64 = std::uint64_t;

template <class M>
struct SequentialMap {
  M map;
  bool insert(U64 k, U64 v) { return map.emplace(k, v).second; }
  U64 find(U64 k) const {
    const auto at = map.find(k);
    return at != map.end() ? at->second : 0;
  }
  bool contains(U64 k) const { return map.find(k) != map.end(); }
  bool assign(U64 k, U64 v) { return map.insert_or_assign(k, v).second; }
  U64 add(U64 k, U64 n) {
    U64& v = map[k];
    return std::exchange(v, v + n);
  }
  bool visit(U64 k) {
    const auto at = map.find(k);
    if (at == map.end()) return false;
    ++at->second;
    return true;
  }
  U64 sum() const {
    U64 s = 0;
    for (const auto& [k, v] : map) s += v;
    return s;
  }
  static std::size_t added() { return 0; }
  bool erase(U64 k) { return map.erase(k) != 0; }
};

template <class S>
struct SequentialSet {
  S set;
  bool insert(U64 k) { return set.insert(k).second; }
  bool contains(U64 k) const { return set.find(k) != set.end(); }
  bool erase(U64 k) { return set.erase(k) != 0; }
};

template <class V>
struct SequentialVector {
  V v;
  void push_back(U64 x) { v.push_back(x); }
  void append(const U64* xs, std::size_t n) { v.insert(v.end(), xs, xs + n); }
  U64 get(std::size_t i) const { return v[i]; }
  void put(std::size_t i, U64 x) { v[i] = x; }
  U64 fetch_add(std::size_t i, U64 n) { return std::exchange(v[i], v[i] + n); }
  U64 sum() const {
    U64 s = 0;
    for (const U64 x : v) s += x;
    return s;
  }
  void clear() { V().swap(v); }
};

template <class D>
struct SequentialDeque {
  D d;
  void push_back(U64 x) { d.push_back(x); }
  void push_front(U64 x) { d.push_front(x); }
  U64 pop_back() {
    const U64 x = d.back();
    d.pop_back();
    return x;
  }
  U64 pop_front() {
    const U64 x = d.front();
    d.pop_front();
    return x;
  }
};

template <class L>
struct SequentialList {
  L l;
  auto push_back(U64 x) { return l.push_back(x), std::prev(l.end()); }
  auto push_front(U64 x) { return l.push_front(x), l.begin(); }
  auto insert(typename L::iterator it, U64 x) { return l.insert(it, x); }
  auto erase(typename L::iterator it) { return l.erase(it); }
  void sort() { l.sort(); }
  U64 pop_front() {
    const U64 x = l.front();
    l.pop_front();
    return x;
  }
  U64 sum() const {
    U64 s = 0;
    for (const U64 x : l) s += x;
    return s;
  }
};

}  // namespace kasane::bench::containers
