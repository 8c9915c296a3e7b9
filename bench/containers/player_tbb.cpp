// SPDX-License-Identifier: Apache-2.0
// oneTBB's concurrent containers.
#include <tbb/concurrent_hash_map.h>
#include <tbb/concurrent_queue.h>
#include <tbb/concurrent_vector.h>

#include <atomic>

#include "containers/peer.h"
#include "containers/sequential.h"

namespace {

using namespace kasane::bench::containers;

struct Map : SequentialMap<tbb::concurrent_hash_map<U64, U64>> {
  using M = tbb::concurrent_hash_map<U64, U64>;
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
};

struct Vector : SequentialVector<tbb::concurrent_vector<U64>> {
  void append(const U64* xs, std::size_t n) { v.grow_by(xs, xs + n); }
  U64 fetch_add(std::size_t i, U64 n) {
    return std::atomic_ref<U64>(v[i]).fetch_add(n, std::memory_order_relaxed);
  }
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

int main(int argc, char** argv) { return play<Map, None, Vector, Queue, None>(argc, argv); }
