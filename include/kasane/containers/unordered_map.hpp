// SPDX-License-Identifier: Apache-2.0
/// @file
/// A map over the memory of many ranks, changed by all of them at once:
///
///     kasane::unordered_map<std::uint64_t, std::uint64_t> counts;     // over all ranks
///     counts.add(key, 1);                                             // from any thread of any rank
///     if (auto n = counts.find(key)) …                                // a copy
///     kasane::unordered_map<…>::handle h = counts;                    // names it; trivially copyable
///
/// **Where.** An entry lies at a rank that its key's hash chooses, of those given at construction, in memory
/// that never moves. Operations work on it directly: they move no thread and keep no copies, and no processor
/// of another rank takes part. At the owner they cost what an ordinary map costs.
///
/// **Consistency.** Operations on entries are linearisable, and ordered like relaxed atomics: they are no
/// fences, so a pointer in a value does not make visible what it points to. clear and swap are exclusive:
/// callers order them with all others. Where such a call and another one see each other, one throws error
/// EBUSY, and has done nothing.
///
/// **Keys and values** are trivially copyable, of 240 bytes together. No references into the map are given
/// out.
///
/// **Thread safety**: any thread of any rank, and main. **Errors**: out_of_memory names rank and bytes, and
/// the map is as before; error EINVAL: there is no such rank; EBUSY, see above; EIO: a peer was lost.
///
/// Sources: extendible hashing (Fagin et al. 1979) over one-sided access, with the directory at every rank,
/// as in RACE (Zuo et al., USENIX ATC 2021); buckets that verify themselves as in Pilaf (Mitchell et al.,
/// USENIX ATC 2013). docs/design/containers.md says how.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/bucket.hpp>
#include <kasane/containers/parts.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane {

namespace detail::containers {

/// Bits of every part of the key count in every part of the result.
template <class K>
struct KeyHash {
  [[nodiscard]] std::uint64_t operator()(const K& key) const noexcept {
    static_assert(std::has_unique_object_representations_v<K>,
                  "equal keys have equal bytes; or give the map a hash function");
    std::uint64_t x = bucket::mix(0x243F6A8885A308D3u, &key, sizeof key);
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
  }
};

struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) noexcept = default;
};

template <class K, class V>
struct Entry {
  K key;
  [[no_unique_address]] V value;
};

inline constexpr unsigned kSegments = 32, kFirstSegment = 16;
/// One rank's part of a map, in its memory.
struct Shard {
  Word directory;           ///< a Table of buckets
  Word lock;                ///< of the directory; held during a split
  Word buckets;             ///< taken so far
  Word segment[kSegments];  ///< of kFirstSegment << i buckets
};

/// The lock of a shard's directory, held for a few accesses in a polling_scope. Throws error EBUSY: an
/// exclusive call has it.
template <class Access>
class DirectoryLock {
 public:
  explicit DirectoryLock(Shard* shard) : word_(&shard->lock) {
    for (unsigned turn = 0; !Access::compare_swap(word_, 0, bucket::kSplitting); ++turn) {
      if (Access::load(word_) == bucket::kAlone) busy("kasane::unordered_map");
      if (turn > 16) std::this_thread::yield();
    }
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock() { Access::store(word_, 0); }

 private:
  Word* word_;
};

/// What is common to maps and sets. It only names the map, so it is trivially copyable, and all its
/// operations are const.
template <class K, class V, class Hash>
class Map : public Parts<Shard> {
  static_assert(std::is_trivially_copyable_v<K> && std::is_trivially_copyable_v<V>,
                "keys and values go from rank to rank as bytes");
  using E = Entry<K, V>;
  static_assert(sizeof(E) <= 240, "key and value have 240 bytes; keep a pointer instead");
  /// Large enough that the directory, which grows with n^(1 + 1/entries), stays small beside the buckets.
  static constexpr std::size_t kBucketBytes = sizeof(E) <= 64 ? 256 : 512;
  static constexpr unsigned kEntries =
      std::clamp<unsigned>((kBucketBytes - 32) / sizeof(E), 4, bucket::kMostEntries);

  struct Bucket {
    Word word;
    bucket::Place place;
    bucket::Tags tags;
    E entry[kEntries];
  };
  static constexpr unsigned kMostDepth = 32;
  static constexpr const char* kContainer = "kasane::unordered_map";

 protected:
  class Exclusive;
  void make(const std::vector<std::uint32_t>& ranks);
  void destroy();

 public:
  using key_type = K;
  using mapped_type = V;

  /// A copy of the value; empty: there is none.
  [[nodiscard]] std::optional<V> find(const K& key) const;
  [[nodiscard]] bool contains(const K& key) const { return find(key).has_value(); }
  /// Copies of the values of many keys, whose trips are made together; answers[i] is that of keys[i]. Each is
  /// a find by itself.
  [[nodiscard]] std::vector<std::optional<V>> find_many(std::span<const K> keys) const;
  /// insert(keys[i], values[i]) for all i, whose trips are made together. Each is an insert by itself, in no
  /// order. True at i: it is new. Throws error EINVAL: there are not as many values as keys.
  std::vector<bool> insert_many(std::span<const K> keys, std::span<const V> values) const;
  /// False: the key has a value already, which stays.
  bool insert(const K& key, const V& value) const {
    return change(
        key, [](bool found) { return !found; },
        [&](bool found, V& v) {
          if (found) return Then::keep;
          v = value;
          return Then::store;
        });
  }
  /// True: the key is new.
  bool insert_or_assign(const K& key, const V& value) const {
    bool fresh = false;
    change(
        key, [](bool) { return true; },
        [&](bool found, V& v) {
          fresh = !found;
          v = value;
          return Then::store;
        });
    return fresh;
  }
  /// False: there was none.
  bool erase(const K& key) const {
    return change(
        key, [](bool found) { return found; },
        [](bool found, V&) { return found ? Then::erase : Then::keep; });
  }
  /// Erases, and returns the value that it had; empty: there was none.
  std::optional<V> take(const K& key) const {
    std::optional<V> old;
    change(
        key, [](bool found) { return found; },
        [&](bool found, V& v) {
          if (!found) return Then::keep;
          old = v;
          return Then::erase;
        });
    return old;
  }
  /// Adds to the value; a key without one begins at V(). Returns the value before.
  V add(const K& key, const V& n) const {
    V before{};
    change(
        key, [](bool) { return true; },
        [&](bool found, V& v) {
          before = found ? v : V{};
          v = static_cast<V>(before + n);
          return Then::store;
        });
    return before;
  }
  /// add(e.key, e.value) for each, by which the misses of several overlap at the owner. Throws the first
  /// exception, when all have been tried.
  void add_each(std::span<const Entry<K, V>> entries) const;
  /// True: the value was `expected` and is `desired`. Else expected is what it is, if there is one.
  bool compare_exchange(const K& key, V& expected, const V& desired) const {
    const V wanted = expected;
    return change(
        key, [](bool found) { return found; },
        [&](bool found, V& v) {
          if (!found) return Then::keep;
          expected = v;
          if (!(v == wanted)) return Then::keep;
          v = desired;
          return Then::store;
        });
  }
  /// Calls f(value) with a copy under the bucket's lock, and stores it. False: there is none. f makes no
  /// calls of Kasane; if it throws, nothing has changed.
  template <class F>
  bool visit(const K& key, F&& f) const {
    return change(
        key, [](bool found) { return found; },
        [&](bool found, V& v) {
          if (!found) return Then::keep;
          V copy = v;
          std::invoke(f, copy);
          v = copy;
          return Then::store;
        });
  }
  /// The same; a key without a value gets `init` first. True: it was new.
  template <class F>
  bool visit_or_insert(const K& key, const V& init, F&& f) const {
    bool fresh = false;
    change(
        key, [](bool) { return true; },
        [&](bool found, V& v) {
          V copy = found ? v : init;
          std::invoke(f, copy);
          fresh = !found;
          v = copy;
          return Then::store;
        });
    return fresh;
  }

  /// How many entries; exact while nothing changes.
  [[nodiscard]] std::size_t size() const {
    std::size_t n = 0;
    for (std::uint32_t s = 0; s < parts_; ++s)
      walk(s, [&](const Bucket& b) { n += static_cast<unsigned>(std::popcount(bucket::occupancy(b.word))); });
    return n;
  }
  [[nodiscard]] bool empty() const {
    for (std::uint32_t s = 0; s < parts_; ++s)
      if (!walk_while(s, [](const Bucket& b) { return bucket::occupancy(b.word) == 0; })) return false;
    return true;
  }

  /// Calls f(key, value) for the entries of one of the ranks given at construction, in no order. What is
  /// there throughout is visited exactly once, whatever others change.
  template <class F>
  void for_each_of(std::uint32_t shard, F&& f) const {
    walk(shard, [&](const Bucket& b) {
      for (unsigned i = 0; i < kEntries; ++i)
        if (bucket::occupancy(b.word) >> i & 1) std::invoke(f, b.entry[i].key, b.entry[i].value);
    });
  }
  /// Calls f(key, value) for each entry of one of the ranks, by visit's rules.
  template <class F>
  void visit_all_of(std::uint32_t shard, F&& f) const {
    for_each_of(shard, [&](const K& key, const V&) { visit(key, [&](V& v) { std::invoke(f, key, v); }); });
  }

  /// Over copies of all entries {key, value}: `for (const auto& [key, value] : map)`. What is there
  /// throughout is met exactly once, whatever others change.
  class iterator {
   public:
    using value_type = E;
    using difference_type = std::ptrdiff_t;
    explicit iterator(const Map& m) : map_(m) { settle(); }
    [[nodiscard]] const E& operator*() const noexcept {
      return copy_.entry[std::countr_zero(left_ | 1u << (kEntries - 1))];
    }
    [[nodiscard]] const E* operator->() const noexcept { return &**this; }
    iterator& operator++() {
      left_ &= left_ - 1;
      if (left_ == 0 && next_place()) settle();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& a, std::default_sentinel_t) noexcept {
      return a.shard_ == a.map_.parts();
    }

   private:
    /// The first entry from this place on.
    void settle() {
      do {
        map_.cover(shard_, place_, copy_);
        left_ = bucket::occupancy(copy_.word);
      } while (left_ == 0 && next_place());
    }
    bool next_place() { return place_.advance() || ++shard_ != map_.parts(); }
    Map map_;
    std::uint32_t shard_ = 0, left_ = 0;
    bucket::Place place_;
    Bucket copy_;
  };
  [[nodiscard]] iterator begin() const { return iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  /// The rank where the key's entry lies, or would lie.
  [[nodiscard]] std::uint32_t rank_of(const K& key) const { return where(shard_of(Hash{}(key))).rank; }
  /// Exclusive: no other operation of the map is under way.
  void clear();

 private:
  enum class Then : std::uint8_t { keep, store, erase };

  [[nodiscard]] std::uint32_t shard_of(std::uint64_t hash) const noexcept {
    return static_cast<std::uint32_t>((hash >> 48) * parts_ >> 16);
  }
  [[nodiscard]] static std::uint32_t sum_of(unsigned i, const E& e) noexcept {
    return bucket::folded(bucket::mix(i + 1, &e, sizeof e));
  }
  [[nodiscard]] static std::uint32_t sum_of(bucket::Place p) noexcept {
    return bucket::folded(bucket::mix(0, &p, sizeof p));
  }
  [[nodiscard]] static std::uint32_t sum_of(const Bucket& b) noexcept {
    std::uint32_t sum = sum_of(b.place);
    for (unsigned i = 0; i < kEntries; ++i)  // without branches: which are occupied is random
      sum ^= sum_of(i, b.entry[i]) & -(bucket::occupancy(b.word) >> i & 1);
    return sum;
  }
  /// kEntries: there is none. At the owner tags say what to look at: a bucket is many lines of the cache. In
  /// a copy keys alone count, since the checksum covers no tags.
  template <class A>
  [[nodiscard]] static unsigned index_of(const Bucket& b, Word word, std::uint64_t hash,
                                         const K& key) noexcept {
    std::uint32_t left = bucket::occupancy(word);
    if constexpr (std::is_same_v<A, Near>) left &= b.tags.with(bucket::tag_of(hash));
    for (; left != 0; left &= left - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(left));
      if (b.entry[i].key == key) return i;
    }
    return kEntries;
  }

  /// Where an entry with this hash is looked for first, before its tag is known: what lies there arrives
  /// while the bucket's word does.
  [[nodiscard]] static constexpr unsigned home_of(std::uint64_t hash) noexcept {
    return static_cast<unsigned>((hash >> 32 & 0xFF) * kEntries >> 8);
  }
  /// Of the entries that are free, the first in the line of the cache where its home is, or behind it.
  /// kEntries: there is none.
  [[nodiscard]] static unsigned free_entry(Word word, std::uint64_t hash) noexcept {
    const std::uint32_t free = ~bucket::occupancy(word) & ((1u << kEntries) - 1);
    if (free == 0) return kEntries;
    constexpr std::size_t head = offsetof(Bucket, entry);
    const std::size_t line = (head + home_of(hash) * sizeof(E)) / 64 * 64;
    const std::size_t first = line <= head ? 0 : (line - head + sizeof(E) - 1) / sizeof(E);
    const std::uint32_t behind = free >> first << first;
    return static_cast<unsigned>(std::countr_zero(behind != 0 ? behind : free));
  }

  static void start(Shard*, std::uint32_t rank);
  void empty_shard(std::uint32_t s, Shard*);
  static void drop_chain(Word array) noexcept;
  template <class A>
  static Bucket* take_bucket(Shard*, std::uint32_t rank);
  [[nodiscard]] static Bucket* locate_near(const Shard* shard, std::uint64_t hash) noexcept {
    const Table directory{Near::load(&shard->directory)};
    return reinterpret_cast<Bucket*>(Near::load(directory.at(hash)));
  }
  template <class A>
  Bucket* locate(std::uint32_t s, std::uint64_t hash) const;
  static bool find_near(Shard*, std::uint64_t hash, const K&, std::optional<V>&);
  std::optional<V> find_slowly(std::uint32_t s, std::uint64_t hash, const K&) const;
  Bucket* renew(std::uint32_t s, std::uint64_t hash) const;
  template <class A>
  static bucket::Look read(Bucket* b, Bucket& copy, std::uint64_t hash);
  template <class A>
  static bucket::Look seek(Bucket* b, Bucket& copy, std::uint64_t hash, const K&, unsigned& i);
  template <class A, class Wants, class Apply>
  int try_change(std::uint32_t s, std::uint64_t hash, const K&, const Wants&, const Apply&) const;
  template <class A, class Apply>
  static Word change_entry(Bucket&, const Bucket& seen, unsigned i, std::uint8_t tag, bool found, const K&,
                           const Apply&);
  template <class Wants, class Apply>
  bool change(const K&, const Wants&, const Apply&) const;
  template <class A>
  void split(std::uint32_t s, Bucket* full, Word word) const;
  static void divide(Bucket& old, Bucket& fresh);
  template <class A>
  static Table grow(Shard*, std::uint32_t rank, Table);
  template <class F>
  void walk(std::uint32_t s, const F& f) const {
    walk_while(s, [&f](const Bucket& b) { return f(b), true; });
  }
  template <class F>
  bool walk_while(std::uint32_t s, const F&) const;
  void cover(std::uint32_t s, bucket::Place&, Bucket&) const;
  /// What many calls at a time have of one key.
  struct Task {
    std::size_t index;
    std::uint32_t shard;
    std::uint64_t hash;
    Bucket* bucket;
    Bucket copy;
    Word seen;
    E entry;
    std::uint8_t tag;
  };
  static constexpr std::size_t kTogether = 32;
  void prefetch_near(std::span<const E>) const;
  template <class F>
  void far_reads(std::span<const K> keys, std::size_t& i, std::vector<Task>&, const F& near) const;
  void insert_together(std::vector<Task>&, std::span<const K>, std::span<const V>, std::vector<bool>&) const;
};

// ---- looking ----------------------------------------------------------------------------------------------

/// Near: the directory itself. Far: what this rank knows of it.
template <class K, class V, class H>
template <class A>
typename Map<K, V, H>::Bucket* Map<K, V, H>::locate(std::uint32_t s, std::uint64_t hash) const {
  if constexpr (std::is_same_v<A, Near>) {
    return locate_near(where(s).part, hash);
  } else {
    const Table known{Near::load(local(kasane_rank()) + s)};
    if (known.bits != 0)
      if (const Word found = Near::load(known.at(hash)); found != 0) return reinterpret_cast<Bucket*>(found);
    return renew(s, hash);
  }
}

/// Asks the owner, and keeps the answer, in a larger table if the directory has grown.
template <class K, class V, class H>
typename Map<K, V, H>::Bucket* Map<K, V, H>::renew(std::uint32_t s, std::uint64_t hash) const {
  const std::uint32_t rank = kasane_rank();
  const Table directory{Far::load(&where(s).part->directory)};
  const Word found = Far::load(directory.at(hash));
  Word* const place = local(rank) + s;
  for (;;) {
    const Table known{Near::load(place)};
    if (known.bits != 0 && known.depth() >= directory.depth()) {
      Near::store(known.at(hash), found);
      return reinterpret_cast<Bucket*>(found);
    }
    Word* const array = Table::allocate(directory.depth(), rank);
    for (std::size_t i = 0; known.bits != 0 && i < directory.size(); ++i)
      array[1 + i] = Near::load(known.at(i));
    array[0] = reinterpret_cast<std::uintptr_t>(known.array());
    if (!Near::compare_swap(place, known.bits, Table::of(array, directory.depth()).bits)) deallocate(array);
  }
}

template <class K, class V, class H>
template <class A>
bucket::Look Map<K, V, H>::read(Bucket* b, Bucket& copy, std::uint64_t hash) {
  if constexpr (std::is_same_v<A, Near>) {  // the word before and after says what the checksum would
    const Word word = Near::load(&b->word);
    Near::read(&copy, b, sizeof copy);
    copy.word = word;
    const bool stood = Near::load(&b->word) == word;
    return bucket::judge(word, copy.place, stood ? bucket::checksum(word) : ~bucket::checksum(word), hash);
  } else {
    A::read(&copy, b, sizeof copy);
    return bucket::judge(copy.word, copy.place, sum_of(copy), hash);
  }
}

/// What a change needs of a bucket: in `copy` the word and the key's entry, whose index is i (kEntries: there
/// is none). At the owner nothing else is read: a bucket is many lines of the cache.
template <class K, class V, class H>
template <class A>
bucket::Look Map<K, V, H>::seek(Bucket* b, Bucket& copy, std::uint64_t hash, const K& key, unsigned& i) {
  if constexpr (std::is_same_v<A, Near>) {
    __builtin_prefetch(&b->entry[home_of(hash)]);
    copy.word = Near::load(&b->word);
    copy.place.bits = Near::load(&b->place.bits);
    i = index_of<Near>(*b, copy.word, hash, key);
    if (i != kEntries) Near::read(&copy.entry[i], &b->entry[i], sizeof(E));
    asm volatile("" ::: "memory");
    const bool stood = Near::load(&b->word) == copy.word;
    const std::uint32_t sum = bucket::checksum(copy.word);
    return bucket::judge(copy.word, copy.place, stood ? sum : ~sum, hash);
  } else {
    const bucket::Look look = read<A>(b, copy, hash);
    if (look == bucket::Look::good) i = index_of<A>(copy, copy.word, hash, key);
    return look;
  }
}

/// At the owner. False: a writer was there, or the bucket was split.
template <class K, class V, class H>
inline bool Map<K, V, H>::find_near(Shard* shard, std::uint64_t hash, const K& key, std::optional<V>& value) {
  const Bucket* const b = locate_near(shard, hash);
  __builtin_prefetch(&b->entry[home_of(hash)]);
  const Word word = Near::load(&b->word);
  const bool covers = bucket::Place{Near::load(&b->place.bits)}.covers(hash);
  const unsigned i = index_of<Near>(*b, word, hash, key);
  if (i != kEntries) value = b->entry[i].value;
  asm volatile("" ::: "memory");
  return !bucket::locked(word) && covers && Near::load(&b->word) == word;
}

/// Few instructions, so that a processor has several finds under way.
template <class K, class V, class H>
inline std::optional<V> Map<K, V, H>::find(const K& key) const {
  const std::uint64_t hash = H{}(key);
  const std::uint32_t s = shard_of(hash);
  const Where to = where(s);
  std::optional<V> value;
  if (kasane_rank() == to.rank && find_near(to.part, hash, key, value)) [[likely]]
    return value;
  return find_slowly(s, hash, key);
}

template <class K, class V, class H>
[[gnu::noinline]] std::optional<V> Map<K, V, H>::find_slowly(std::uint32_t s, std::uint64_t hash,
                                                             const K& key) const {
  for (Backoff wait;; wait.pause()) {
    if (const Where to = where(s); kasane_rank() == to.rank) {
      std::optional<V> value;
      if (find_near(to.part, hash, key, value)) return value;
      if (bucket::exclusive(Near::load(&locate_near(to.part, hash)->word))) busy(kContainer);
      continue;
    }
    Bucket copy;
    const bucket::Look look = read<Far>(locate<Far>(s, hash), copy, hash);
    if (look == bucket::Look::moved) renew(s, hash);
    if (look == bucket::Look::busy) busy(kContainer);
    if (look != bucket::Look::good) continue;
    const unsigned i = index_of<Far>(copy, copy.word, hash, key);
    return i != kEntries ? std::optional<V>(copy.entry[i].value) : std::nullopt;
  }
}

// ---- changing ---------------------------------------------------------------------------------------------

/// One try. 1: changed, 0: not changed, -1: again.
template <class K, class V, class H>
template <class A, class Wants, class Apply>
int Map<K, V, H>::try_change(std::uint32_t s, std::uint64_t hash, const K& key, const Wants& wants,
                             const Apply& apply) const {
  using bucket::Change;
  Bucket* const b = locate<A>(s, hash);
  Bucket copy;
  unsigned i = kEntries;
  const bucket::Look look = seek<A>(b, copy, hash, key, i);
  if (look != bucket::Look::good) [[unlikely]] {
    if (look == bucket::Look::busy) busy(kContainer);
    if (look == bucket::Look::moved && std::is_same_v<A, Far>) renew(s, hash);
    return -1;
  }
  const bool found = i != kEntries;
  if (!wants(found)) return 0;
  if (!found) {
    i = free_entry(copy.word, hash);
    if (i == kEntries) return split<A>(s, b, copy.word), -1;
  }
  std::conditional_t<std::is_same_v<A, Far>, polling_scope, Unscoped> keep;
  Word after = copy.word;
  bool ok = true;
  for (Change step = Change::lock; step != Change::done; step = bucket::next(step, ok)) {
    if (step == Change::read) return -1;  // the word was not what it had been
    if (step == Change::lock) ok = A::compare_swap(&b->word, copy.word, copy.word | bucket::kLocked);
    if (step == Change::entries)
      after = change_entry<A>(*b, copy, i, bucket::tag_of(hash), found, key, apply);
    if (step == Change::publish) A::store(&b->word, after);
  }
  return after == copy.word ? 0 : 1;
}

/// In a locked bucket; returns its next word.
template <class K, class V, class H>
template <class A, class Apply>
Word Map<K, V, H>::change_entry(Bucket& b, const Bucket& seen, unsigned i, std::uint8_t tag, bool found,
                                const K& key, const Apply& apply) {
  E entry;
  if (found) {
    entry = seen.entry[i];
  } else {
    std::memset(static_cast<void*>(&entry), 0, sizeof entry);  // padding, too
    entry.key = key;
  }
  Then then = Then::keep;
  try {
    then = apply(found, entry.value);
  } catch (...) {
    A::store(&b.word, seen.word);
    throw;
  }
  if (then == Then::keep) return seen.word;
  std::uint32_t occupied = bucket::occupancy(seen.word), sum = bucket::checksum(seen.word);
  if (found) sum ^= sum_of(i, seen.entry[i]);
  if (then == Then::store) {
    sum ^= sum_of(i, entry);
    occupied |= 1u << i;
    if (found)
      A::write(&b.entry[i], &entry, sizeof entry);
    else
      A::write_two(&b.entry[i], &entry, sizeof entry, &b.tags.byte[i], &tag, sizeof tag);
  } else {
    occupied &= ~(1u << i);
  }
  return bucket::changed(seen.word, occupied, sum);
}

template <class K, class V, class H>
template <class Wants, class Apply>
bool Map<K, V, H>::change(const K& key, const Wants& wants, const Apply& apply) const {
  const std::uint64_t hash = H{}(key);
  const std::uint32_t s = shard_of(hash);
  for (Backoff wait;; wait.pause()) {
    const Where to = where(s);  // may wait: before the rank is asked
    const int done = kasane_rank() == to.rank ? try_change<Near>(s, hash, key, wants, apply)
                                              : try_change<Far>(s, hash, key, wants, apply);
    if (done >= 0) return done != 0;
  }
}

// ---- many at a time ---------------------------------------------------------------------------------------

/// From keys[i] on: near(i) for those that are at this rank, and reads of the buckets of some others,
/// together.
template <class K, class V, class H>
template <class F>
void Map<K, V, H>::far_reads(std::span<const K> keys, std::size_t& i, std::vector<Task>& tasks,
                             const F& near) const {
  tasks.clear();
  for (; i < keys.size() && tasks.size() < kTogether; ++i) {
    const std::uint64_t hash = H{}(keys[i]);
    const std::uint32_t s = shard_of(hash);
    if (is_here(s)) {
      near(i);
      continue;
    }
    Task& t = tasks.emplace_back();
    t.index = i, t.shard = s, t.hash = hash;
    t.bucket = locate<Far>(s, hash);
  }
  pending_group reads;
  for (Task& t : tasks) {
    kasane_pending_t one{};
    check(kasane_get_async(&t.copy, t.bucket, sizeof t.copy, &one));
    reads.add_read(one);
  }
  reads.wait();
}

template <class K, class V, class H>
std::vector<std::optional<V>> Map<K, V, H>::find_many(std::span<const K> keys) const {
  std::vector<std::optional<V>> answers(keys.size());
  std::vector<Task> tasks;
  tasks.reserve(kTogether);
  const auto alone = [&](std::size_t i) { answers[i] = find(keys[i]); };
  for (std::size_t i = 0; i < keys.size();) {
    far_reads(keys, i, tasks, alone);
    for (const Task& t : tasks) {
      if (bucket::judge(t.copy.word, t.copy.place, sum_of(t.copy), t.hash) != bucket::Look::good) {
        alone(t.index);
        continue;
      }
      const unsigned at = index_of<Far>(t.copy, t.copy.word, t.hash, keys[t.index]);
      if (at != kEntries) answers[t.index] = t.copy.entry[at].value;
    }
  }
  return answers;
}

/// Each step of all changes before the next step. A lock that is not free is not waited for: that key is
/// inserted by itself, when none is held.
template <class K, class V, class H>
void Map<K, V, H>::insert_together(std::vector<Task>& tasks, std::span<const K> keys,
                                   std::span<const V> values, std::vector<bool>& fresh) const {
  const polling_scope keep;
  pending_group locks, changes;
  for (Task& t : tasks)
    compare_swap_async(global_ptr<Word>(&t.bucket->word), t.copy.word, t.copy.word | bucket::kLocked, &t.seen,
                       locks);
  locks.wait();
  std::erase_if(tasks, [](const Task& t) { return t.seen != t.copy.word; });
  for (Task& t : tasks) {
    const unsigned at = free_entry(t.copy.word, t.hash);
    std::memset(static_cast<void*>(&t.entry), 0, sizeof t.entry);
    t.entry.key = keys[t.index];
    t.entry.value = values[t.index];
    t.seen = bucket::changed(t.copy.word, bucket::occupancy(t.copy.word) | 1u << at,
                             bucket::checksum(t.copy.word) ^ sum_of(at, t.entry));
    t.tag = bucket::tag_of(t.hash);
    check(kasane_put_async(&t.bucket->entry[at], &t.entry, sizeof t.entry, changes.changes()));
    check(kasane_put_async(&t.bucket->tags.byte[at], &t.tag, sizeof t.tag, changes.changes()));
  }
  changes.wait();
  for (Task& t : tasks) {
    put_async(global_ptr<Word>(&t.bucket->word), &t.seen, 1, changes);
    fresh[t.index] = true;
  }
  changes.wait();
}

template <class K, class V, class H>
std::vector<bool> Map<K, V, H>::insert_many(std::span<const K> keys, std::span<const V> values) const {
  if (keys.size() != values.size())
    fail(EINVAL, "kasane::unordered_map: " + std::to_string(values.size()) + " values for " +
                     std::to_string(keys.size()) + " keys");
  std::vector<bool> fresh(keys.size());
  std::vector<Task> tasks;
  tasks.reserve(kTogether);
  std::vector<std::size_t> rest;
  const auto alone = [&](std::size_t i) { fresh[i] = insert(keys[i], values[i]); };
  for (std::size_t i = 0; i < keys.size();) {
    far_reads(keys, i, tasks, alone);
    rest.clear();
    std::erase_if(tasks, [&](const Task& t) {
      const Word word = t.copy.word;
      if (bucket::judge(word, t.copy.place, sum_of(t.copy), t.hash) == bucket::Look::good) {
        if (index_of<Far>(t.copy, word, t.hash, keys[t.index]) != kEntries) return true;  // it is there
        if (free_entry(word, t.hash) != kEntries) return rest.push_back(t.index), false;
      }
      return rest.push_back(t.index), true;
    });
    if (!tasks.empty()) insert_together(tasks, keys, values, fresh);
    for (const std::size_t k : rest)
      if (!fresh[k]) alone(k);
  }
  return fresh;
}

/// Of at most kTogether entries.
template <class K, class V, class H>
void Map<K, V, H>::prefetch_near(std::span<const E> entries) const {
  const Word* in_directory[kTogether];
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t hash = H{}(entries[i].key);
    const Where to = where(shard_of(hash));
    if (kasane_rank() != to.rank) return;
    in_directory[i] = Table{Near::load(&to.part->directory)}.at(hash);
    __builtin_prefetch(in_directory[i]);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto* const bucket = reinterpret_cast<const char*>(Near::load(in_directory[i]));
    for (std::size_t at = 0; at < sizeof(Bucket); at += 64) __builtin_prefetch(bucket + at, 1);
  }
}

template <class K, class V, class H>
void Map<K, V, H>::add_each(std::span<const E> entries) const {
  std::exception_ptr failure;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i % kTogether == 0) prefetch_near(entries.subspan(i, std::min(kTogether, entries.size() - i)));
    try {
      add(entries[i].key, entries[i].value);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(std::move(failure));
}

// ---- growing ----------------------------------------------------------------------------------------------

/// Under the directory's lock.
template <class K, class V, class H>
template <class A>
typename Map<K, V, H>::Bucket* Map<K, V, H>::take_bucket(Shard* shard, std::uint32_t rank) {
  const Word n = A::load(&shard->buckets);
  const auto i = static_cast<unsigned>(std::bit_width(n / kFirstSegment + 1)) - 1;
  Word* const segment = &shard->segment[i];
  const Word first = kFirstSegment * ((Word{1} << i) - 1);
  Word base = A::load(segment);
  if (base == 0) {
    base = reinterpret_cast<std::uintptr_t>(
        allocate_zeroed((kFirstSegment << i) * sizeof(Bucket), 64, placement::on(rank).fixed()));
    A::store(segment, base);
  }
  A::store(&shard->buckets, n + 1);
  return reinterpret_cast<Bucket*>(base) + (n - first);
}

/// The directory with twice as many entries; the old one stays until clear().
template <class K, class V, class H>
template <class A>
Table Map<K, V, H>::grow(Shard* shard, std::uint32_t rank, Table old) {
  if (old.depth() >= kMostDepth)
    throw error(EINVAL,
                "kasane::unordered_map: too many keys have hashes that end alike; give it another hash");
  Word* const array = Table::allocate(old.depth() + 1, rank);
  std::vector<Word> entries(old.size());
  A::read(entries.data(), old.array() + 1, old.size() * sizeof(Word));
  A::write(array + 1, entries.data(), old.size() * sizeof(Word));
  A::write(array + 1 + old.size(), entries.data(), old.size() * sizeof(Word));
  A::store(array, reinterpret_cast<std::uintptr_t>(old.array()));
  const Table larger = Table::of(array, old.depth() + 1);
  A::store(&shard->directory, larger.bits);
  return larger;
}

/// Divides what `old` has between it and a new bucket.
template <class K, class V, class H>
void Map<K, V, H>::divide(Bucket& old, Bucket& fresh) {
  const Word word = old.word;
  std::memcpy(static_cast<void*>(&fresh), &old, sizeof fresh);
  fresh.place = old.place.half(1);
  std::uint32_t moved = 0;
  for (unsigned i = 0; i < kEntries; ++i)
    if ((bucket::occupancy(word) >> i & 1) != 0 && fresh.place.covers(H{}(old.entry[i].key)))
      moved |= 1u << i;
  const std::uint32_t stay = bucket::occupancy(word) & ~moved;
  old.place = old.place.half(0);
  old.word = Word{stay} << 32;
  old.word = bucket::changed(word, stay, sum_of(old));
  fresh.word = Word{moved} << 32;
  fresh.word = bucket::changed(0, moved, sum_of(fresh));
}

/// Nothing happens if the bucket has changed since it was read.
template <class K, class V, class H>
template <class A>
void Map<K, V, H>::split(std::uint32_t s, Bucket* full, Word word) const {
  using bucket::Split;
  const Where to = where(s);
  const polling_scope keep;
  const DirectoryLock<A> lock(to.part);
  Table directory{A::load(&to.part->directory)};
  Bucket old, fresh;
  Bucket* other = nullptr;
  bool ok = true;
  for (Split step = Split::lock; step != Split::done; step = bucket::next(step, ok)) {
    switch (step) {
      case Split::lock: ok = A::compare_swap(&full->word, word, word | bucket::kLocked); break;
      case Split::fill_new:
        try {
          A::read(&old, full, sizeof old);
          old.word = word;
          if (old.place.depth() == directory.depth()) directory = grow<A>(to.part, to.rank, directory);
          other = take_bucket<A>(to.part, to.rank);
        } catch (...) {
          A::store(&full->word, word);
          throw;
        }
        divide(old, fresh);
        A::write(other, &fresh, sizeof fresh);
        break;
      case Split::name_new:
        for (std::uint64_t i = fresh.place.prefix(); i < directory.size(); i += 1ull << fresh.place.depth())
          A::store(directory.at(i), reinterpret_cast<std::uintptr_t>(other));
        break;
      case Split::publish_old:
        A::store(&full->place.bits, old.place.bits);
        A::store(&full->word, old.word);
        break;
      case Split::given_up:
      case Split::done: return;
    }
  }
}

// ---- all entries ------------------------------------------------------------------------------------------

/// A copy of the bucket that covers the lowest hash of a place, which becomes the bucket's if that is less.
template <class K, class V, class H>
void Map<K, V, H>::cover(std::uint32_t s, bucket::Place& place, Bucket& copy) const {
  for (Backoff wait;; wait.pause()) {
    const bool near = is_here(s);
    const bucket::Look look = near ? read<Near>(locate<Near>(s, place.prefix()), copy, place.prefix())
                                   : read<Far>(locate<Far>(s, place.prefix()), copy, place.prefix());
    if (look == bucket::Look::good) break;
    if (look == bucket::Look::busy) busy(kContainer);
    if (look == bucket::Look::moved && !near) renew(s, place.prefix());
  }
  if (copy.place.depth() > place.depth()) place = copy.place;
}

/// Calls f with a copy of each bucket, once each, until it returns false: an entry that stays is in the
/// bucket that covers it whenever that is read, and splits only divide what is still to be visited.
template <class K, class V, class H>
template <class F>
bool Map<K, V, H>::walk_while(std::uint32_t s, const F& f) const {
  Bucket copy;
  bucket::Place place;
  do {
    cover(s, place, copy);
    if (!f(copy)) return false;
  } while (place.advance());
  return true;
}

// ---- making and clearing ----------------------------------------------------------------------------------

template <class K, class V, class H>
void Map<K, V, H>::start(Shard* shard, std::uint32_t rank) {
  Bucket* const first = take_bucket<Far>(shard, rank);
  Bucket empty;
  std::memset(static_cast<void*>(&empty), 0, sizeof empty);
  empty.word = bucket::changed(0, 0, sum_of(empty));
  Far::write(first, &empty, sizeof empty);
  Word* const array = Table::allocate(0, rank);
  Far::store(array + 1, reinterpret_cast<std::uintptr_t>(first));
  Far::store(&shard->directory, Table::of(array, 0).bits);
}

template <class K, class V, class H>
void Map<K, V, H>::make(const std::vector<std::uint32_t>& ranks) {
  const std::size_t words = ranks.empty() ? kasane::ranks() : ranks.size();
  make_parts(
      ranks, words, [](std::uint32_t, Shard* shard, std::uint32_t rank) { start(shard, rank); },
      [this] { destroy(); });
}

template <class K, class V, class H>
void Map<K, V, H>::drop_chain(Word array) noexcept {
  while (array != 0) {
    auto* const p = reinterpret_cast<Word*>(array);
    array = Far::load(p);
    deallocate(p);
  }
}

/// Frees what a shard has, and what ranks know of it.
template <class K, class V, class H>
void Map<K, V, H>::empty_shard(std::uint32_t s, Shard* shard) {
  drop_chain(reinterpret_cast<std::uintptr_t>(Table{Far::load(&shard->directory)}.array()));
  for (Word& segment : shard->segment) {
    deallocate(reinterpret_cast<void*>(Far::load(&segment)));
    Far::store(&segment, 0);
  }
  Far::store(&shard->buckets, 0);
  each_local([s](Word* tables) {
    drop_chain(reinterpret_cast<std::uintptr_t>(Table{Far::load(tables + s)}.array()));
    Far::store(tables + s, 0);
  });
}

/// Also of one that could not be made.
template <class K, class V, class H>
void Map<K, V, H>::destroy() {
  free_parts([this](std::uint32_t s, Shard* shard) { empty_shard(s, shard); });
}

/// Holds all directories, and all buckets if need be.
template <class K, class V, class H>
class Map<K, V, H>::Exclusive {
  using Step = bucket::Exclusive;

 public:
  /// Throws error EBUSY: another call is under way. Without buckets it sees only splits and exclusive calls.
  explicit Exclusive(const Map& m, bool with_buckets = false) : map_(m) {
    bool ok = true;
    while (ok && shards_ < m.parts_)
      if (ok = Far::compare_swap(&m.where(shards_).part->lock, 0, bucket::kAlone); ok) ++shards_;
    Step step = bucket::next(Step::directories, ok);
    if (step == Step::buckets && with_buckets) {
      for (std::uint32_t s = 0; ok && s < m.parts_; ++s) ok = hold_buckets(m.where(s).part);
      step = bucket::next(step, ok);
    }
    if (step != Step::give_back) return;
    give_back();
    busy(kContainer);
  }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;
  ~Exclusive() { give_back(); }
  /// The buckets that it holds are no more.
  void forget_buckets() noexcept { held_.clear(); }

 private:
  struct Held {
    Word* word;
    Word seen, was;
  };
  static constexpr std::size_t kAtOnce = 256;
  void give_back() {
    for (const Held& h : held_) Far::store(h.word, h.seen);
    while (shards_ != 0) Far::store(&map_.where(--shards_).part->lock, 0);
  }
  bool hold_buckets(Shard*);
  bool hold_some(Bucket* first, std::size_t n);

  const Map map_;  ///< since the object's may be swapped
  std::uint32_t shards_ = 0;
  std::vector<Held> held_;
};

template <class K, class V, class H>
bool Map<K, V, H>::Exclusive::hold_buckets(Shard* shard) {
  std::size_t left = Far::load(&shard->buckets);
  for (unsigned i = 0; left != 0; ++i) {
    auto* const segment = reinterpret_cast<Bucket*>(Far::load(&shard->segment[i]));
    const std::size_t n = std::min<std::size_t>(left, kFirstSegment << i);
    for (std::size_t k = 0; segment != nullptr && k < n; k += kAtOnce)
      if (!hold_some(segment + k, std::min(n - k, kAtOnce))) return false;
    left -= n;
  }
  return true;
}

/// False: one of them is locked.
template <class K, class V, class H>
bool Map<K, V, H>::Exclusive::hold_some(Bucket* first, std::size_t n) {
  Word words[kAtOnce];
  kasane::get_strided(words, global_ptr<const Word>(&first->word),
                      patch{1, n, sizeof(Bucket) / sizeof(Word), 1});
  for (std::size_t k = 0; k < n; ++k)
    if (bucket::locked(words[k])) return false;
  const std::size_t before = held_.size();
  for (std::size_t k = 0; k < n; ++k) held_.push_back({&first[k].word, words[k], 0});
  pending_group locks;
  for (Held& h : std::span(held_).subspan(before))
    compare_swap_async(global_ptr<Word>(h.word), h.seen, h.seen | bucket::kLocked | bucket::kExclusive,
                       &h.was, locks);
  locks.wait();
  const auto not_taken = std::remove_if(held_.begin() + static_cast<std::ptrdiff_t>(before), held_.end(),
                                        [](const Held& h) { return h.seen != h.was; });
  const bool all = not_taken == held_.end();
  held_.erase(not_taken, held_.end());
  return all;
}

template <class K, class V, class H>
void Map<K, V, H>::clear() {
  Exclusive alone(*this, true);
  alone.forget_buckets();
  for (std::uint32_t s = 0; s < parts_; ++s) {
    const Where w = where(s);
    empty_shard(s, w.part);
    start(w.part, w.rank);
  }
}

/// What is common to sets: a map without values.
template <class K, class Hash>
class Set : private Map<K, Nothing, Hash> {
  using Base = Map<K, Nothing, Hash>;

 protected:
  using Base::make, Base::destroy;
  struct Exclusive : Base::Exclusive {
    explicit Exclusive(const Set& s) : Base::Exclusive(s) {}
  };

 public:
  using key_type = K;
  using value_type = K;
  using Base::clear, Base::contains, Base::empty, Base::erase, Base::parts, Base::rank_of, Base::rank_of_part,
      Base::size;

  /// False: it is there already.
  bool insert(const K& key) const { return Base::insert(key, {}); }
  /// Of many keys, whose trips are made together. True at i: keys[i] is there; or it is new.
  [[nodiscard]] std::vector<bool> contains_many(std::span<const K> keys) const {
    std::vector<bool> there;
    for (const auto& answer : Base::find_many(keys)) there.push_back(answer.has_value());
    return there;
  }
  std::vector<bool> insert_many(std::span<const K> keys) const {
    return Base::insert_many(keys, std::vector<Nothing>(keys.size()));
  }
  /// Calls f(key) for those of one of the ranks given at construction, as of a map.
  template <class F>
  void for_each_of(std::uint32_t shard, F&& f) const {
    Base::for_each_of(shard, [&f](const K& key, const Nothing&) { std::invoke(f, key); });
  }
  /// Over copies, as of a map.
  class iterator : private Base::iterator {
    using It = typename Base::iterator;

   public:
    using value_type = K;
    using difference_type = std::ptrdiff_t;
    explicit iterator(const Base& set) : It(set) {}
    [[nodiscard]] const K& operator*() const noexcept { return It::operator*().key; }
    iterator& operator++() { return It::operator++(), *this; }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& a, std::default_sentinel_t end) noexcept {
      return static_cast<const It&>(a) == end;
    }
  };
  [[nodiscard]] iterator begin() const { return iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
};

}  // namespace detail::containers

/// See above. The object owns the map; a handle only names it. Hash: of all 64 bits of the result some low
/// and the 16 highest choose the place.
template <class K, class V, class Hash = detail::containers::KeyHash<K>>
class unordered_map : public detail::containers::Owner<detail::containers::Map<K, V, Hash>> {
 public:
  /// Over these ranks; none: over all.
  explicit unordered_map(const std::vector<std::uint32_t>& ranks = {}) : unordered_map::Owner(ranks) {}
};

/// A set: the same without values.
template <class K, class Hash = detail::containers::KeyHash<K>>
class unordered_set : public detail::containers::Owner<detail::containers::Set<K, Hash>> {
 public:
  explicit unordered_set(const std::vector<std::uint32_t>& ranks = {}) : unordered_set::Owner(ranks) {}
};

/// Calls f(key, value) with copies of all entries, each at the rank where it lies, by a thread for each rank;
/// f may post and fork. What is there throughout is visited exactly once, whatever others change. On a
/// thread.
template <class K, class V, class Hash, class F>
void for_each(const detail::containers::Map<K, V, Hash>& map, F f) {
  detail::containers::at_parts(map, [&map, &f](std::uint32_t s) { map.for_each_of(s, f); });
}

/// The same of a set: f(key).
template <class K, class Hash, class F>
void for_each(const detail::containers::Set<K, Hash>& set, F f) {
  detail::containers::at_parts(set, [&set, &f](std::uint32_t s) { set.for_each_of(s, f); });
}

/// Calls f(key, value) for all entries, by visit's rules, each at the rank where it lies: f changes a copy of
/// the value, which is stored. What is there throughout is visited exactly once. On a thread.
template <class K, class V, class Hash, class F>
void visit_all(const detail::containers::Map<K, V, Hash>& map, F f) {
  detail::containers::at_parts(map, [&map, &f](std::uint32_t s) { map.visit_all_of(s, f); });
}

/// combine() of map(key, value) over all entries, computed where they lie. combine is associative and
/// commutative, and leaves what it combines with `identity` as it is. What is there throughout counts exactly
/// once. On a thread.
template <class K, class V, class Hash, class R, class F, class Combine>
[[nodiscard]] R reduce(const detail::containers::Map<K, V, Hash>& m, R identity, F map, Combine combine) {
  return detail::containers::reduce_parts(m, std::move(identity), combine, [&](std::uint32_t s, R& sum) {
    m.for_each_of(s, [&](const K& k, const V& v) { sum = combine(std::move(sum), std::invoke(map, k, v)); });
  });
}

/// The same of a set: map(key).
template <class K, class Hash, class R, class F, class Combine>
[[nodiscard]] R reduce(const detail::containers::Set<K, Hash>& set, R identity, F map, Combine combine) {
  return detail::containers::reduce_parts(set, std::move(identity), combine, [&](std::uint32_t s, R& sum) {
    set.for_each_of(s, [&](const K& k) { sum = combine(std::move(sum), std::invoke(map, k)); });
  });
}

}  // namespace kasane
