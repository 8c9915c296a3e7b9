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
/// Sums of equal keys are combined before they leave, in a table of some thousand keys. Those of one rank
/// leave together, so that the owner's misses of its cache overlap; those of the thread's own rank it adds
/// itself.
#pragma once

#include <kasane/containers/unordered_map.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace kasane {

/// Changes come into effect at some time before the group's wait() returns, in no order, also those of one
/// key. Each is one operation of the map. Thread safety: an object by one thread at a time, which may move.
/// Errors: as post_group::post; those of the map come from wait(), or, where a sum's key lies at the calling
/// thread's rank, from the call that sends it.
template <class K, class V, class Hash = detail::containers::KeyHash<K>>
class updates {
  using Handle = detail::containers::Map<K, V, Hash>;

 public:
  /// Both outlive it.
  updates(const Handle& map, post_group& group)
      : map_(map), group_(group), kept_(kKept), batches_(kasane::ranks()) {}
  updates(const updates&) = delete;
  updates& operator=(const updates&) = delete;
  /// Sends what is kept; ends the program if that fails. flush() throws instead. Where an exception ends its
  /// scope, what is kept is lost.
  ~updates() noexcept {
    if (std::uncaught_exceptions() == exceptions_) flush();
  }

  /// As the map's add, without the value before.
  void add(const K& key, const V& n) {
    Sum& sum = kept_[Hash{}(key) & (kKept - 1)];
    if (sum.used && sum.entry.key == key) {
      sum.entry.value = static_cast<V>(sum.entry.value + n);
      return;
    }
    if (sum.used) send(sum);
    sum = {{key, n}, true};
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
    for (std::uint32_t r = 0; r < batches_.size(); ++r) deliver(r);
  }

 private:
  using Entry = detail::containers::Entry<K, V>;
  static constexpr std::size_t kKept = 2048;
  struct Sum {
    Entry entry;
    bool used = false;
  };
  /// Sums for one rank, which the owner adds together: a post.
  struct Batch {
    static constexpr std::size_t kMost = (1024 - 64) / sizeof(Entry);
    std::uint32_t n;
    Entry entry[kMost];
  };

  void send(Sum& sum) {
    sum.used = false;
    const std::uint32_t rank = map_.rank_of(sum.entry.key);
    Batch& batch = batches_[rank];
    batch.entry[batch.n] = sum.entry;
    if (++batch.n == Batch::kMost) deliver(rank);
  }
  void deliver(std::uint32_t rank) {
    Batch& batch = batches_[rank];
    const std::span<const Entry> sums(batch.entry, std::exchange(batch.n, 0));
    if (sums.empty()) return;
    if (kasane::rank() == rank) return map_.add_each(sums);
    batch.n = static_cast<std::uint32_t>(sums.size());
    group_.post(rank, [map = map_](const Batch& b) { map.add_each({b.entry, b.n}); }, batch);
    batch.n = 0;
  }

  const Handle map_;
  post_group& group_;
  const int exceptions_ = std::uncaught_exceptions();
  std::vector<Sum> kept_;
  std::vector<Batch> batches_;  ///< of each rank
};
template <class K, class V, class Hash>
updates(const unordered_map<K, V, Hash>&, post_group&) -> updates<K, V, Hash>;
template <class K, class V, class Hash>
updates(const detail::containers::Map<K, V, Hash>&, post_group&) -> updates<K, V, Hash>;

}  // namespace kasane
