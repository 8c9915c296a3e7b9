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
template <class Key, class Value, class Hash = detail::containers::KeyHash<Key>>
class updates {
  using Handle = detail::containers::Map<Key, Value, Hash>;

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
  void add(const Key& key, const Value& n) {
    static_assert(std::is_default_constructible_v<Value>, "add begins at a value without arguments");
    Sum& sum = kept_[detail::containers::hash_of<Hash>(key) & (kKept - 1)];
    if (sum.used) {
      const Entry& kept = sum.entry.object();
      if (detail::containers::same_key(kept.key, key)) {
        sum.entry = EntryBytes(Entry{kept.key, static_cast<Value>(kept.value + n)});
        return;
      }
      send(sum);
    }
    sum.entry = EntryBytes(Entry{key, n});
    sum.used = true;
  }
  void insert_or_assign(const Key& key, const Value& value) {
    group_.post(
        map_.rank_of(key), [map = map_](const Key& k, const Value& v) { map.insert_or_assign(k, v); }, key,
        value);
  }
  /// f is trivially copyable.
  template <class Function>
  void visit(const Key& key, Function f) {
    group_.post(map_.rank_of(key), [map = map_, f](const Key& k) { map.visit(k, f); }, key);
  }
  /// Sends what is kept.
  void flush() {
    for (Sum& sum : kept_)
      if (sum.used) send(sum);
    for (std::uint32_t r = 0; r < batches_.size(); ++r) deliver(r);
  }

 private:
  using Entry = detail::containers::Entry<Key, Value>;
  using EntryBytes = detail::containers::Bytes<Entry>;
  static constexpr std::size_t kKept = 2048;
  struct Sum {
    EntryBytes entry;
    bool used = false;
  };
  /// Sums for one rank, which the owner adds together: a post.
  struct Batch {
    static constexpr std::size_t kMost = (1024 - 64) / sizeof(Entry);
    std::uint32_t n;
    EntryBytes entry[kMost];
    [[nodiscard]] std::span<const Entry> entries() const noexcept { return {&entry[0].object(), n}; }
  };

  void send(Sum& sum) {
    sum.used = false;
    const std::uint32_t rank = map_.rank_of(sum.entry.object().key);
    Batch& batch = batches_[rank];
    batch.entry[batch.n] = sum.entry;
    if (++batch.n == Batch::kMost) deliver(rank);
  }
  void deliver(std::uint32_t rank) {
    Batch& batch = batches_[rank];
    const std::span<const Entry> sums = batch.entries();
    if (sums.empty()) return;
    if (kasane::rank() == rank) {
      batch.n = 0;
      return map_.add_each(sums);
    }
    group_.post(rank, [map = map_](const Batch& b) { map.add_each(b.entries()); }, batch);
    batch.n = 0;
  }

  const Handle map_;
  post_group& group_;
  const int exceptions_ = std::uncaught_exceptions();
  std::vector<Sum> kept_;
  std::vector<Batch> batches_;  ///< of each rank
};
template <class Key, class Value, class Hash>
updates(const unordered_map<Key, Value, Hash>&, post_group&) -> updates<Key, Value, Hash>;
template <class Key, class Value, class Hash>
updates(const detail::containers::Map<Key, Value, Hash>&, post_group&) -> updates<Key, Value, Hash>;

}  // namespace kasane
