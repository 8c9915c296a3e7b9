// SPDX-License-Identifier: Apache-2.0
/// @file
/// Many small changes of a kasane::unordered_map, made by posts at the ranks where the entries lie:
///
///     kasane::post_group g;
///     {
///       kasane::updates u(counts, g);        // one for each thread that counts
///       for (auto word : text) u.add(hash(word), 1);
///     }                                      // sends what it keeps
///     g.wait();                              // now all have been made
///
/// Sums of equal keys are combined before they leave, in a table of some thousand keys.
#pragma once

#include <kasane/containers/unordered_map.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane {

/// Changes come into effect at some time before the group's wait() returns, in no order, also those of one
/// key. Each is one operation of the map. Thread safety: an object by one thread at a time, which may move.
/// Errors: as post_group::post and the map's; those of the map come from wait().
template <class K, class V, class Hash = detail::containers::KeyHash<K>>
class updates {
  using Handle = detail::containers::Map<K, V, Hash>;

 public:
  /// Both outlive it.
  updates(const Handle& map, post_group& group) : map_(map), group_(group), kept_(kKept) {}
  updates(const updates&) = delete;
  updates& operator=(const updates&) = delete;
  /// Sends what is kept; ends the program if that fails. flush() throws instead.
  ~updates() noexcept { flush(); }

  /// As the map's add, without the value before.
  void add(const K& key, const V& n) {
    Sum& sum = kept_[Hash{}(key) & (kKept - 1)];
    if (sum.used && sum.key == key) {
      sum.value = static_cast<V>(sum.value + n);
      return;
    }
    if (sum.used) send(sum);
    sum = {key, n, true};
  }
  void insert_or_assign(const K& key, const V& value) {
    group_.post(
        map_.rank_of(key), [map = map_](const K& k, const V& v) { map.insert_or_assign(k, v); }, key, value);
  }
  /// f is trivially copyable.
  template <class F>
  void visit(const K& key, F f) {
    group_.post(map_.rank_of(key), [map = map_, f](const K& k) { map.visit(k, f); }, key);
  }
  /// Sends what is kept.
  void flush() {
    for (Sum& sum : kept_)
      if (sum.used) send(sum);
  }

 private:
  static constexpr std::size_t kKept = 2048;
  struct Sum {
    K key;
    V value;
    bool used = false;
  };

  void send(Sum& sum) {
    sum.used = false;
    group_.post(
        map_.rank_of(sum.key), [map = map_](const K& k, const V& n) { map.add(k, n); }, sum.key, sum.value);
  }

  const Handle map_;
  post_group& group_;
  std::vector<Sum> kept_;
};
template <class K, class V, class Hash>
updates(const unordered_map<K, V, Hash>&, post_group&) -> updates<K, V, Hash>;
template <class K, class V, class Hash>
updates(const detail::containers::Map<K, V, Hash>&, post_group&) -> updates<K, V, Hash>;

}  // namespace kasane
