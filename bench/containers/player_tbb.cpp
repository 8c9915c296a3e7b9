// SPDX-License-Identifier: Apache-2.0
// oneTBB's concurrent containers.
#include <tbb/concurrent_hash_map.h>
#include <tbb/concurrent_queue.h>
#include <tbb/concurrent_vector.h>

#include <atomic>

#include "containers/peer.h"

namespace {

using U64 = std::uint64_t;

struct Map {
  using M = tbb::concurrent_hash_map<U64, U64>;
  M map;
  bool insert(U64 k, U64 v) { return map.emplace(k, v); }
  U64 find(U64 k) const {
    M::const_accessor at;
    return map.find(at, k) ? at->second : 0;
  }
  bool contains(U64 k) const { return map.count(k) != 0; }
  bool assign(U64 k, U64 v) {
    M::accessor at;
    const bool fresh = map.insert(at, k);
    at->second = v;
    return fresh;
  }
  U64 add(U64 k, U64 n) {
    M::accessor at;
    map.insert(at, k);
    return at->second += n;
  }
  bool visit(U64 k) {
    M::accessor at;
    if (!map.find(at, k)) return false;
    ++at->second;
    return true;
  }
  U64 sum() const {
    U64 s = 0;
    for (const auto& [k, v] : map) s += v;
    return s;
  }
  static std::size_t added() { return 0; }
  bool erase(U64 k) { return map.erase(k); }
};

struct Vector {
  tbb::concurrent_vector<U64> v;
  void push_back(U64 x) { v.push_back(x); }
  void append(const U64* xs, std::size_t n) { v.grow_by(xs, xs + n); }
  U64 get(std::size_t i) const { return v[i]; }
  void put(std::size_t i, U64 x) { v[i] = x; }
  U64 fetch_add(std::size_t i, U64 n) {
    return std::atomic_ref<U64>(v[i]).fetch_add(n, std::memory_order_relaxed);
  }
  U64 sum() const {
    U64 s = 0;
    for (const U64 x : v) s += x;
    return s;
  }
  void clear() { tbb::concurrent_vector<U64>().swap(v); }
};

struct Queue {
  tbb::concurrent_queue<U64> q;
  void push_back(U64 x) { q.push(x); }
  U64 pop_front() {
    U64 x = 0;
    q.try_pop(x);
    return x;
  }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace kasane::bench::containers;
  return play<Map, None, Vector, Queue, None>(argc, argv);
}
