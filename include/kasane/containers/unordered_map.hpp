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
/// **Keys and values** are trivially copyable, of 256 bytes together. No references into the map are given
/// out. When keys are the same one: kasane/containers/keys.hpp.
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
#include <kasane/containers/bytes.hpp>
#include <kasane/containers/keys.hpp>
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

struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) noexcept = default;
};

template <class Key, class Value>
struct Entry {
  Key key;
  [[no_unique_address]] Value value;
};

template <class Key, class Value>
inline constexpr bool kFull<Entry<Key, Value>> =
    kFull<Key> &&
    (std::is_empty_v<Value> ? sizeof(Entry<Key, Value>) == sizeof(Key)
                            : kFull<Value> && sizeof(Entry<Key, Value>) == sizeof(Key) + sizeof(Value));

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
template <class Key, class Value, class Hash>
class Map : public Parts<Shard> {
  using Item = Entry<Key, Value>;
  using ItemBytes = Bytes<Item>;
  static constexpr std::size_t kAlign = std::max(Holds<Key>::kAlign, Holds<Value>::kAlign);
  static_assert(sizeof(Item) <= 256, "key and value have 256 bytes; keep a pointer instead");
  static_assert(sizeof(Holds<Key>) + sizeof(Holds<Value>) + sizeof(TakesKeys<Key, Hash>) != 0);
  /// Large enough that the directory, which grows with n^(1 + 1/entries), stays small beside the buckets.
  static constexpr std::size_t kBucketBytes = sizeof(Item) <= 64 ? 256 : 512;
  static constexpr unsigned kEntries =
      std::clamp<unsigned>((kBucketBytes - 32) / sizeof(Item), 4, bucket::kMostEntries);

  struct Bucket {
    Word word;
    bucket::Place place;
    bucket::Tags tags;
    ItemBytes entry[kEntries];
  };
  static constexpr const char* kContainer = "kasane::unordered_map";

 protected:
  class Exclusive;
  void make(const std::vector<std::uint32_t>& ranks);
  void destroy();

 public:
  using key_type = Key;
  using mapped_type = Value;

  /// A copy of the value; empty: there is none.
  [[nodiscard]] std::optional<Value> find(const Key& key) const;
  [[nodiscard]] bool contains(const Key& key) const { return find(key).has_value(); }
  /// Copies of the values of many keys, whose trips are made together; answers[i] is that of keys[i]. Each is
  /// a find by itself.
  [[nodiscard]] std::vector<std::optional<Value>> find_many(std::span<const Key> keys) const;
  /// insert(keys[i], values[i]) for all i, whose trips are made together. Each is an insert by itself, in no
  /// order. True at i: it is new. Throws error EINVAL: there are not as many values as keys.
  std::vector<bool> insert_many(std::span<const Key> keys, std::span<const Value> values) const;
  /// False: the key has a value already, which stays.
  bool insert(const Key& key, const Value& value) const {
    return change(
        key, [](bool found) { return !found; },
        [&](const Value* now, Draft& next) { return now != nullptr ? Then::keep : next.store(value); });
  }
  /// True: the key is new.
  bool insert_or_assign(const Key& key, const Value& value) const {
    bool fresh = false;
    change(
        key, [](bool) { return true; },
        [&](const Value* now, Draft& next) {
          fresh = now == nullptr;
          return next.store(value);
        });
    return fresh;
  }
  /// False: there was none.
  bool erase(const Key& key) const {
    return change(
        key, [](bool found) { return found; },
        [](const Value* now, Draft&) { return now != nullptr ? Then::erase : Then::keep; });
  }
  /// Erases, and returns the value that it had; empty: there was none.
  std::optional<Value> take(const Key& key) const {
    std::optional<Value> old;
    change(
        key, [](bool found) { return found; },
        [&](const Value* now, Draft&) {
          if (now == nullptr) return Then::keep;
          old.emplace(*now);
          return Then::erase;
        });
    return old;
  }
  /// Adds to the value; a key without one begins at Value(). Returns the value before.
  Value add(const Key& key, const Value& n) const {
    static_assert(std::is_default_constructible_v<Value>, "add begins at a value without arguments");
    Bytes<Value> before;
    change(
        key, [](bool) { return true; },
        [&](const Value* now, Draft& next) {
          before = Bytes<Value>(now != nullptr ? *now : Value{});
          return next.store(static_cast<Value>(before.object() + n));
        });
    return before.object();
  }
  /// add(e.key, e.value) for each, by which the misses of several overlap at the owner. Throws the first
  /// exception, when all have been tried.
  void add_each(std::span<const Entry<Key, Value>> entries) const;
  /// True: the value was `expected` and is `desired`. Else expected is what it is, if there is one.
  bool compare_exchange(const Key& key, Value& expected, const Value& desired) const {
    const Bytes<Value> wanted(expected);
    return change(
        key, [](bool found) { return found; },
        [&](const Value* now, Draft& next) {
          if (now == nullptr) return Then::keep;
          std::construct_at(&expected, *now);
          return *now == wanted.object() ? next.store(desired) : Then::keep;
        });
  }
  /// Calls f(value) with a copy under the bucket's lock, and stores it. False: there is none. f makes no
  /// calls of Kasane; if it throws, nothing has changed.
  template <class Function>
  bool visit(const Key& key, Function&& f) const {
    return change(
        key, [](bool found) { return found; },
        [&](const Value* now, Draft& next) {
          if (now == nullptr) return Then::keep;
          Value copy = *now;
          std::invoke(f, copy);
          return next.store(copy);
        });
  }
  /// The same; a key without a value gets `init` first. True: it was new.
  template <class Function>
  bool visit_or_insert(const Key& key, const Value& init, Function&& f) const {
    bool fresh = false;
    change(
        key, [](bool) { return true; },
        [&](const Value* now, Draft& next) {
          fresh = now == nullptr;
          Value copy = fresh ? init : *now;
          std::invoke(f, copy);
          return next.store(copy);
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
  template <class Function>
  void for_each_of(std::uint32_t shard, Function&& f) const {
    walk(shard, [&](const Bucket& b) {
      for (unsigned i = 0; i < kEntries; ++i)
        if (bucket::occupancy(b.word) >> i & 1)
          std::invoke(f, b.entry[i].object().key, b.entry[i].object().value);
    });
  }
  /// Calls f(key, value) for each entry of one of the ranks, by visit's rules.
  template <class Function>
  void visit_all_of(std::uint32_t shard, Function&& f) const {
    for_each_of(shard,
                [&](const Key& key, const Value&) { visit(key, [&](Value& v) { std::invoke(f, key, v); }); });
  }

  /// Over copies of all entries {key, value}: `for (const auto& [key, value] : map)`. What is there
  /// throughout is met exactly once, whatever others change.
  class iterator {
   public:
    using value_type = Item;
    using difference_type = std::ptrdiff_t;
    explicit iterator(const Map& m) : map_(m) { settle(); }
    [[nodiscard]] const Item& operator*() const noexcept {
      return copy_.entry[std::countr_zero(left_ | 1u << (kEntries - 1))].object();
    }
    [[nodiscard]] const Item* operator->() const noexcept { return &**this; }
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
        map_.cover(shard_, place_, copy_, more_);
        left_ = bucket::occupancy(copy_.word);
      } while (left_ == 0 && next_place());
    }
    bool next_place() {
      more_ = has_more(copy_);
      return more_ || place_.advance() || ++shard_ != map_.parts();
    }
    Map map_;
    std::uint32_t shard_ = 0, left_ = 0;
    bucket::Place place_;
    bool more_ = false;
    Bucket copy_;
  };
  [[nodiscard]] iterator begin() const { return iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  /// The rank where the key's entry lies, or would lie.
  [[nodiscard]] std::uint32_t rank_of(const Key& key) const {
    return where(shard_of(hash_of<Hash>(key))).rank;
  }
  /// Exclusive: no other operation of the map is under way.
  void clear();

 private:
  enum class Then : std::uint8_t { keep, store, erase };
  /// The entry that a change writes.
  struct Draft {
    const Key& key;
    ItemBytes entry;
    explicit Draft(const Key& k) noexcept : key(k) {}
    Then store(const Value& value) noexcept {
      entry = ItemBytes(Item{key, value});
      return Then::store;
    }
  };

  [[nodiscard]] std::uint32_t shard_of(std::uint64_t hash) const noexcept {
    return static_cast<std::uint32_t>((hash >> 48) * parts_ >> 16);
  }
  /// Of entry i of the bucket with this number (0: the first of its chain).
  [[nodiscard]] static std::uint32_t sum_of(Word number, unsigned i, const ItemBytes& e) noexcept {
    return bucket::folded(bucket::mix(number * 32 + i + 1, e.of, sizeof e));
  }
  [[nodiscard]] static std::uint32_t sum_of(bucket::Place p) noexcept {
    return bucket::folded(bucket::mix(0, &p, sizeof p));
  }
  [[nodiscard]] static std::uint32_t sum_of(const Bucket& b, Word number, std::uint32_t occupied) noexcept {
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < kEntries; ++i)  // without branches: which are occupied is random
      sum ^= sum_of(number, i, b.entry[i]) & -(occupied >> i & 1);
    return sum;
  }
  /// What a copy of a bucket is worth that has none behind it; of another one: again.
  [[nodiscard]] static bucket::Look judge_alone(const Bucket& b, std::uint64_t hash) noexcept {
    if (b.place.link() != 0) return bucket::Look::again;
    const std::uint32_t sum = sum_of(b.place) ^ sum_of(b, 0, bucket::occupancy(b.word));
    return bucket::judge(b.word, b.place, sum, hash);
  }
  /// kEntries: there is none. At the owner tags say what to look at: a bucket is many lines of the cache. In
  /// a copy keys alone count, since the checksum covers no tags.
  template <class Access>
  [[nodiscard]] static unsigned index_of(const Bucket& b, std::uint32_t occupied, std::uint64_t hash,
                                         const Key& key) {
    if constexpr (std::is_same_v<Access, Near>) occupied &= b.tags.with(bucket::tag_of(hash));
    for (; occupied != 0; occupied &= occupied - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(occupied));
      if (same_key(b.entry[i].object().key, key)) return i;
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
  [[nodiscard]] static unsigned free_entry(std::uint32_t occupied, std::uint64_t hash) noexcept {
    const std::uint32_t free = ~occupied & ((1u << kEntries) - 1);
    if (free == 0) return kEntries;
    constexpr std::size_t head = offsetof(Bucket, entry);
    const std::size_t line = (head + home_of(hash) * sizeof(Item)) / 64 * 64;
    const std::size_t first = line <= head ? 0 : (line - head + sizeof(Item) - 1) / sizeof(Item);
    const std::uint32_t behind = free >> first << first;
    return static_cast<unsigned>(std::countr_zero(behind != 0 ? behind : free));
  }

  static void start(Shard*, std::uint32_t rank);
  void empty_shard(std::uint32_t s, Shard*);
  static void drop_chain(Word array) noexcept;
  struct Taken {
    Word number;
    Bucket* bucket;
  };
  template <class Access>
  static Taken take_bucket(Shard*, std::uint32_t rank);
  [[nodiscard]] static unsigned segment_of(Word number) noexcept {
    return static_cast<unsigned>(std::bit_width(number / kFirstSegment + 1)) - 1;
  }
  [[nodiscard]] static Bucket* in_segment(Word base, Word number) noexcept {
    return reinterpret_cast<Bucket*>(base) + (number - kFirstSegment * ((Word{1} << segment_of(number)) - 1));
  }
  template <class Access>
  [[nodiscard]] static Bucket* bucket_at(const Shard* shard, Word number) {
    return in_segment(Access::load(&shard->segment[segment_of(number)]), number);
  }
  [[nodiscard]] static Bucket* locate_near(const Shard* shard, std::uint64_t hash) noexcept {
    const Table directory{Near::load(&shard->directory)};
    return reinterpret_cast<Bucket*>(Near::load(directory.at(hash)));
  }
  template <class Access>
  Bucket* locate(std::uint32_t s, std::uint64_t hash) const;
  static bool find_near(Shard*, std::uint64_t hash, const Key&, std::optional<Value>&);
  std::optional<Value> find_slowly(std::uint32_t s, std::uint64_t hash, const Key&) const;
  Bucket* renew(std::uint32_t s, std::uint64_t hash) const;

  /// What a look for a key has found.
  struct Seen {
    Word word = 0;             ///< of the first bucket of the chain
    Bucket* bucket = nullptr;  ///< that has the key's entry, or else the first with a free one
    Word number = 0;           ///< of that bucket; 0: it is the first
    bucket::Place place;       ///< of that bucket
    std::uint32_t occupied = 0;
    unsigned i = kEntries;  ///< of the entry; kEntries: there is no free one
    bool found = false;
    ItemBytes entry;  ///< if it was found
  };
  template <class Access>
  static void look_in(const Bucket& b, Bucket* at, Word number, bucket::Place, std::uint32_t occupied,
                      std::uint64_t hash, const Key&, Seen&);
  static void look_behind(const Shard*, Word link, std::uint64_t hash, const Key&, Seen&);
  template <class Access, class Function>
  static bucket::Look read_chain(const Shard*, Bucket* first, std::uint64_t hash, Bucket& copy,
                                 const Function&);
  template <class Access>
  static bucket::Look seek(const Shard*, Bucket* first, std::uint64_t hash, const Key&, Seen&);
  template <class Access, class Wants, class Apply>
  int try_change(const typename Map::Where&, std::uint32_t s, std::uint64_t hash, const Key&, const Wants&,
                 const Apply&) const;
  template <class Access, class Apply>
  static Word change_entry(Bucket* first, const Seen&, std::uint8_t tag, const Key&, const Apply&);
  template <class Wants, class Apply>
  bool change(const Key&, const Wants&, const Apply&) const;
  template <class Access>
  static void split(const typename Map::Where&, Bucket* full, Word word);
  /// Of the occupied entries those that a place covers.
  [[nodiscard]] static std::uint32_t covered(bucket::Place place, const Bucket& b, std::uint32_t occupied) {
    std::uint32_t those = 0;
    for (unsigned i = 0; i < kEntries; ++i)
      if ((occupied >> i & 1) != 0 && place.covers(hash_of<Hash>(b.entry[i].object().key))) those |= 1u << i;
    return those;
  }
  /// New buckets behind another one, which no rank knows yet.
  template <class Access>
  class Chain {
   public:
    std::uint32_t sum = 0;
    explicit Chain(const typename Map::Where& to) : to_(to) {}
    void add(const ItemBytes& e, std::uint8_t tag) {
      if (n_ == kEntries) write();
      if (n_ == 0) {
        last_ = take_behind<Access>(to_);
        std::memset(static_cast<void*>(&copy_), 0, sizeof copy_);
      }
      copy_.entry[n_] = e;
      copy_.tags.byte[n_] = tag;
      sum ^= sum_of(last_.number, n_++, e);
    }
    /// Returns the number of the first one; 0: there is none.
    Word write() {
      if (n_ == 0) return link_;
      copy_.place = bucket::Place::behind((1u << std::exchange(n_, 0)) - 1, link_);
      Access::write(last_.bucket, &copy_, sizeof copy_);
      return link_ = last_.number;
    }

   private:
    const typename Map::Where& to_;
    Bucket copy_;
    Taken last_{};
    unsigned n_ = 0;
    Word link_ = 0;
  };
  /// What of a chain changes in a split.
  struct Halves {
    Bucket old, fresh;
    std::vector<std::pair<Bucket*, bucket::Place>> behind;  ///< of the old one
  };
  template <class Access>
  static void divide(const typename Map::Where&, Halves&);
  template <class Access>
  static void lengthen(const typename Map::Where&, Bucket& first);
  template <class Access>
  static Taken take_behind(const typename Map::Where&);
  template <class Access>
  static Table grow(Shard*, std::uint32_t rank, Table);
  template <class Function>
  void walk(std::uint32_t s, const Function& f) const {
    walk_while(s, [&f](const Bucket& b) { return f(b), true; });
  }
  template <class Function>
  bool walk_while(std::uint32_t s, const Function&) const;
  void cover(std::uint32_t s, bucket::Place&, Bucket& copy, bool more) const;
  /// Whether `cover` has left entries of the chain for another time.
  [[nodiscard]] static bool has_more(const Bucket& copy) noexcept {
    return copy.place.link() != 0 && bucket::occupancy(copy.word) == (1u << kEntries) - 1;
  }
  class Selection;
  /// What many calls at a time have of one key.
  struct Task {
    std::size_t index;
    std::uint32_t shard;
    std::uint64_t hash;
    Bucket* bucket;
    Bucket copy;
    Word seen;
    ItemBytes entry;
    std::uint8_t tag;
  };
  static constexpr std::size_t kTogether = 32;
  void prefetch_near(std::span<const Item>) const;
  template <class Function>
  void far_reads(std::span<const Key> keys, std::size_t& i, std::vector<Task>&, const Function& near) const;
  void insert_together(std::vector<Task>&, std::span<const Key>, std::span<const Value>,
                       std::vector<bool>&) const;
};

// ---- looking ----------------------------------------------------------------------------------------------

/// Near: the directory itself. Far: what this rank knows of it.
template <class Key, class Value, class Hash>
template <class Access>
typename Map<Key, Value, Hash>::Bucket* Map<Key, Value, Hash>::locate(std::uint32_t s,
                                                                      std::uint64_t hash) const {
  if constexpr (std::is_same_v<Access, Near>) {
    return locate_near(where(s).part, hash);
  } else {
    const Table known{Near::load(local(kasane_rank()) + s)};
    if (known.bits != 0)
      if (const Word found = Near::load(known.at(hash)); found != 0) return reinterpret_cast<Bucket*>(found);
    return renew(s, hash);
  }
}

/// Asks the owner, and keeps the answer, in a larger table if the directory has grown.
template <class Key, class Value, class Hash>
typename Map<Key, Value, Hash>::Bucket* Map<Key, Value, Hash>::renew(std::uint32_t s,
                                                                     std::uint64_t hash) const {
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

/// Of one bucket of a chain; at: where it is.
template <class Key, class Value, class Hash>
template <class Access>
[[gnu::always_inline]] inline void Map<Key, Value, Hash>::look_in(const Bucket& b, Bucket* at, Word number,
                                                                  bucket::Place place, std::uint32_t occupied,
                                                                  std::uint64_t hash, const Key& key,
                                                                  Seen& seen) {
  if (seen.found) return;
  unsigned i = index_of<Access>(b, occupied, hash, key);
  seen.found = i != kEntries;
  if (seen.found) {
    Near::read(&seen.entry, &b.entry[i], sizeof(ItemBytes));
  } else {
    if (seen.i != kEntries) return;
    i = free_entry(occupied, hash);
  }
  seen.bucket = at;
  seen.number = number;
  seen.place = place;
  seen.occupied = occupied;
  seen.i = i;
}

/// At the owner, from this bucket on.
template <class Key, class Value, class Hash>
[[gnu::noinline]] void Map<Key, Value, Hash>::look_behind(const Shard* shard, Word link, std::uint64_t hash,
                                                          const Key& key, Seen& seen) {
  while (link != 0 && !seen.found) {
    Bucket* const b = bucket_at<Near>(shard, link);
    const bucket::Place place{Near::load(&b->place.bits)};
    look_in<Near>(*b, b, link, place, place.occupancy(), hash, key, seen);
    link = place.link();
  }
}

/// Calls f(where it is, number) for each bucket of a chain, while `copy` has it, and its occupancy in the
/// word.
template <class Key, class Value, class Hash>
template <class Access, class Function>
bucket::Look Map<Key, Value, Hash>::read_chain(const Shard* shard, Bucket* first, std::uint64_t hash,
                                               Bucket& copy, const Function& f) {
  constexpr bool near = std::is_same_v<Access, Near>;
  Word word = near ? Near::load(&first->word) : 0, number = 0;
  bucket::Place place;
  std::uint32_t sum = 0;
  for (Bucket* b = first; b != nullptr; b = number != 0 ? bucket_at<Access>(shard, number) : nullptr) {
    Access::read(&copy, b, sizeof copy);
    if (number == 0) {
      if (!near) word = copy.word;
      if (bucket::locked(word)) break;
      place = copy.place;
      sum = sum_of(place);
      copy.word = word;
    } else {
      copy.word = Word{copy.place.occupancy()} << 32;
    }
    if (!near) sum ^= sum_of(copy, number, bucket::occupancy(copy.word));
    f(b, number);
    number = copy.place.link();
  }
  // near: the word before and after says what the checksum would
  if (near) sum = Near::load(&first->word) == word ? bucket::checksum(word) : ~bucket::checksum(word);
  return bucket::judge(word, place, sum, hash);
}

/// What a change needs. At the owner nothing is read but the word and the key's entry: a bucket is many lines
/// of the cache.
template <class Key, class Value, class Hash>
template <class Access>
bucket::Look Map<Key, Value, Hash>::seek(const Shard* shard, Bucket* first, std::uint64_t hash,
                                         const Key& key, Seen& seen) {
  if constexpr (std::is_same_v<Access, Near>) {
    __builtin_prefetch(&first->entry[home_of(hash)]);
    seen.word = Near::load(&first->word);
    const bucket::Place place{Near::load(&first->place.bits)};
    look_in<Near>(*first, first, 0, place, bucket::occupancy(seen.word), hash, key, seen);
    if (place.link() != 0) [[unlikely]]
      look_behind(shard, place.link(), hash, key, seen);
    asm volatile("" ::: "memory");
    const bool stood = Near::load(&first->word) == seen.word;
    const std::uint32_t sum = bucket::checksum(seen.word);
    return bucket::judge(seen.word, place, stood ? sum : ~sum, hash);
  } else {
    Bucket copy;
    return read_chain<Access>(shard, first, hash, copy, [&](Bucket* at, Word number) {
      if (number == 0) seen.word = copy.word;
      look_in<Access>(copy, at, number, copy.place, bucket::occupancy(copy.word), hash, key, seen);
    });
  }
}

/// At the owner. False: a writer was there, or the bucket was split, or the key may be behind it.
template <class Key, class Value, class Hash>
inline bool Map<Key, Value, Hash>::find_near(Shard* shard, std::uint64_t hash, const Key& key,
                                             std::optional<Value>& value) {
  const Bucket* const b = locate_near(shard, hash);
  __builtin_prefetch(&b->entry[home_of(hash)]);
  const Word word = Near::load(&b->word);
  const bucket::Place place{Near::load(&b->place.bits)};
  const bool covers = place.covers(hash);
  const unsigned i = index_of<Near>(*b, bucket::occupancy(word), hash, key);
  const bool found = i != kEntries;
  if (found) value.emplace(b->entry[i].object().value);
  asm volatile("" ::: "memory");
  return !bucket::locked(word) && covers && (found || place.link() == 0) && Near::load(&b->word) == word;
}

/// Few instructions, so that a processor has several finds under way.
template <class Key, class Value, class Hash>
inline std::optional<Value> Map<Key, Value, Hash>::find(const Key& key) const {
  const std::uint64_t hash = hash_of<Hash>(key);
  const std::uint32_t s = shard_of(hash);
  const Where to = where(s);
  std::optional<Value> value;
  if (kasane_rank() == to.rank && find_near(to.part, hash, key, value)) [[likely]]
    return value;
  return find_slowly(s, hash, key);
}

template <class Key, class Value, class Hash>
[[gnu::noinline]] std::optional<Value> Map<Key, Value, Hash>::find_slowly(std::uint32_t s, std::uint64_t hash,
                                                                          const Key& key) const {
  for (Backoff wait;; wait.pause()) {
    const Where to = where(s);
    const bool near = kasane_rank() == to.rank;
    Seen seen;
    const bucket::Look look = near ? seek<Near>(to.part, locate_near(to.part, hash), hash, key, seen)
                                   : seek<Far>(to.part, locate<Far>(s, hash), hash, key, seen);
    if (look == bucket::Look::moved && !near) renew(s, hash);
    if (look == bucket::Look::busy) busy(kContainer);
    if (look != bucket::Look::good) continue;
    return seen.found ? std::optional<Value>(seen.entry.object().value) : std::nullopt;
  }
}

// ---- changing ---------------------------------------------------------------------------------------------

/// One try. 1: changed, 0: not changed, -1: again.
template <class Key, class Value, class Hash>
template <class Access, class Wants, class Apply>
int Map<Key, Value, Hash>::try_change(const typename Map::Where& to, std::uint32_t s, std::uint64_t hash,
                                      const Key& key, const Wants& wants, const Apply& apply) const {
  using bucket::Change;
  Bucket* const b = locate<Access>(s, hash);
  Seen seen;
  const bucket::Look look = seek<Access>(to.part, b, hash, key, seen);
  if (look != bucket::Look::good) [[unlikely]] {
    if (look == bucket::Look::busy) busy(kContainer);
    if (look == bucket::Look::moved && std::is_same_v<Access, Far>) renew(s, hash);
    return -1;
  }
  if (!wants(seen.found)) return 0;
  if (seen.i == kEntries) return split<Access>(to, b, seen.word), -1;
  std::conditional_t<std::is_same_v<Access, Far>, polling_scope, Unscoped> keep;
  Word after = seen.word;
  bool ok = true;
  for (Change step = Change::lock; step != Change::done; step = bucket::next(step, ok)) {
    if (step == Change::read) return -1;  // the word was not what it had been
    if (step == Change::lock) ok = Access::compare_swap(&b->word, seen.word, seen.word | bucket::kLocked);
    if (step == Change::entries) after = change_entry<Access>(b, seen, bucket::tag_of(hash), key, apply);
    if (step == Change::publish) Access::store(&b->word, after);
  }
  return after == seen.word ? 0 : 1;
}

/// In a locked chain; returns the next word of its first bucket.
template <class Key, class Value, class Hash>
template <class Access, class Apply>
Word Map<Key, Value, Hash>::change_entry(Bucket* first, const Seen& seen, std::uint8_t tag, const Key& key,
                                         const Apply& apply) {
  Draft next(seen.found ? seen.entry.object().key : key);
  Then then = Then::keep;
  try {
    then = apply(seen.found ? &seen.entry.object().value : nullptr, next);
  } catch (...) {
    Access::store(&first->word, seen.word);
    throw;
  }
  if (then == Then::keep) return seen.word;
  if constexpr (!kFull<Key>)  // the key's padding stays as it is: walks go by its bytes
    if (seen.found) std::memcpy(next.entry.of, seen.entry.of, sizeof(Key));
  std::uint32_t occupied = seen.occupied, sum = bucket::checksum(seen.word);
  if (seen.found) sum ^= sum_of(seen.number, seen.i, seen.entry);
  if (then == Then::store) {
    sum ^= sum_of(seen.number, seen.i, next.entry);
    occupied |= 1u << seen.i;
    ItemBytes* const to = &seen.bucket->entry[seen.i];
    if (seen.found)
      Access::write(to, &next.entry, sizeof next.entry);
    else
      Access::write_two(to, &next.entry, sizeof next.entry, &seen.bucket->tags.byte[seen.i], &tag,
                        sizeof tag);
  } else {
    occupied &= ~(1u << seen.i);
  }
  if (seen.number == 0) [[likely]]
    return bucket::changed(seen.word, occupied, sum);
  Access::store(&seen.bucket->place.bits, bucket::Place::behind(occupied, seen.place.link()).bits);
  return bucket::changed(seen.word, bucket::occupancy(seen.word), sum);
}

template <class Key, class Value, class Hash>
template <class Wants, class Apply>
bool Map<Key, Value, Hash>::change(const Key& key, const Wants& wants, const Apply& apply) const {
  const std::uint64_t hash = hash_of<Hash>(key);
  const std::uint32_t s = shard_of(hash);
  for (Backoff wait;; wait.pause()) {
    const Where to = where(s);  // may wait: before the rank is asked
    const int done = kasane_rank() == to.rank ? try_change<Near>(to, s, hash, key, wants, apply)
                                              : try_change<Far>(to, s, hash, key, wants, apply);
    if (done >= 0) return done != 0;
  }
}

// ---- many at a time ---------------------------------------------------------------------------------------

/// From keys[i] on: near(i) for those that are at this rank, and reads of the buckets of some others,
/// together.
template <class Key, class Value, class Hash>
template <class Function>
void Map<Key, Value, Hash>::far_reads(std::span<const Key> keys, std::size_t& i, std::vector<Task>& tasks,
                                      const Function& near) const {
  tasks.clear();
  for (; i < keys.size() && tasks.size() < kTogether; ++i) {
    const std::uint64_t hash = hash_of<Hash>(keys[i]);
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

template <class Key, class Value, class Hash>
std::vector<std::optional<Value>> Map<Key, Value, Hash>::find_many(std::span<const Key> keys) const {
  std::vector<std::optional<Value>> answers(keys.size());
  std::vector<Task> tasks;
  tasks.reserve(kTogether);
  const auto alone = [&](std::size_t i) {
    if (const std::optional<Value> found = find(keys[i])) answers[i].emplace(*found);
  };
  for (std::size_t i = 0; i < keys.size();) {
    far_reads(keys, i, tasks, alone);
    for (const Task& t : tasks) {
      if (judge_alone(t.copy, t.hash) != bucket::Look::good) {
        alone(t.index);
        continue;
      }
      const unsigned at = index_of<Far>(t.copy, bucket::occupancy(t.copy.word), t.hash, keys[t.index]);
      if (at != kEntries) answers[t.index].emplace(t.copy.entry[at].object().value);
    }
  }
  return answers;
}

/// Each step of all changes before the next step. A lock that is not free is not waited for: that key is
/// inserted by itself, when none is held.
template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::insert_together(std::vector<Task>& tasks, std::span<const Key> keys,
                                            std::span<const Value> values, std::vector<bool>& fresh) const {
  const polling_scope keep;
  pending_group locks, changes;
  for (Task& t : tasks)
    compare_swap_async(global_ptr<Word>(&t.bucket->word), t.copy.word, t.copy.word | bucket::kLocked, &t.seen,
                       locks);
  locks.wait();
  std::erase_if(tasks, [](const Task& t) { return t.seen != t.copy.word; });
  for (Task& t : tasks) {
    const std::uint32_t occupied = bucket::occupancy(t.copy.word);
    const unsigned at = free_entry(occupied, t.hash);
    t.entry = ItemBytes(Item{keys[t.index], values[t.index]});
    t.seen = bucket::changed(t.copy.word, occupied | 1u << at,
                             bucket::checksum(t.copy.word) ^ sum_of(0, at, t.entry));
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

template <class Key, class Value, class Hash>
std::vector<bool> Map<Key, Value, Hash>::insert_many(std::span<const Key> keys,
                                                     std::span<const Value> values) const {
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
      const std::uint32_t occupied = bucket::occupancy(t.copy.word);
      if (judge_alone(t.copy, t.hash) == bucket::Look::good) {
        if (index_of<Far>(t.copy, occupied, t.hash, keys[t.index]) != kEntries) return true;  // it is there
        if (free_entry(occupied, t.hash) != kEntries) return rest.push_back(t.index), false;
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
template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::prefetch_near(std::span<const Item> entries) const {
  const Word* in_directory[kTogether];
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t hash = hash_of<Hash>(entries[i].key);
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

template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::add_each(std::span<const Item> entries) const {
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

/// Under the directory's lock. It is all zero.
template <class Key, class Value, class Hash>
template <class Access>
typename Map<Key, Value, Hash>::Taken Map<Key, Value, Hash>::take_bucket(Shard* shard, std::uint32_t rank) {
  const Word n = Access::load(&shard->buckets);
  Word* const segment = &shard->segment[segment_of(n)];
  Word base = Access::load(segment);
  if (base == 0) {
    base = reinterpret_cast<std::uintptr_t>(allocate_zeroed((kFirstSegment << segment_of(n)) * sizeof(Bucket),
                                                            kAlign, placement::on(rank).fixed()));
    Access::store(segment, base);
  }
  Access::store(&shard->buckets, n + 1);
  return {n, in_segment(base, n)};
}

/// The directory with twice as many entries; the old one stays until clear().
template <class Key, class Value, class Hash>
template <class Access>
Table Map<Key, Value, Hash>::grow(Shard* shard, std::uint32_t rank, Table old) {
  Word* const array = Table::allocate(old.depth() + 1, rank);
  std::vector<Word> entries(old.size());
  Access::read(entries.data(), old.array() + 1, old.size() * sizeof(Word));
  Access::write(array + 1, entries.data(), old.size() * sizeof(Word));
  Access::write(array + 1 + old.size(), entries.data(), old.size() * sizeof(Word));
  Access::store(array, reinterpret_cast<std::uintptr_t>(old.array()));
  const Table larger = Table::of(array, old.depth() + 1);
  Access::store(&shard->directory, larger.bits);
  return larger;
}

/// Divides what the old chain has between it and a new one. What stays does so where it is.
template <class Key, class Value, class Hash>
template <class Access>
void Map<Key, Value, Hash>::divide(const typename Map::Where& to, Halves& halves) {
  Bucket &old = halves.old, &fresh = halves.fresh;
  const bucket::Place half = old.place.half(1);
  std::memcpy(static_cast<void*>(&fresh), &old, sizeof fresh);
  std::uint32_t there = covered(half, old, bucket::occupancy(old.word));
  const std::uint32_t stay = bucket::occupancy(old.word) & ~there;
  std::uint32_t left = sum_of(old, 0, stay);
  Chain<Access> behind(to);
  Bucket copy;
  for (Word n = old.place.link(); n != 0; n = copy.place.link()) {
    Bucket* const b = bucket_at<Access>(to.part, n);
    Access::read(&copy, b, sizeof copy);
    const std::uint32_t occupied = copy.place.occupancy(), moves = covered(half, copy, occupied);
    left ^= sum_of(copy, n, occupied & ~moves);
    halves.behind.emplace_back(b, bucket::Place::behind(occupied & ~moves, copy.place.link()));
    for (std::uint32_t m = moves; m != 0; m &= m - 1) {
      const ItemBytes& e = copy.entry[std::countr_zero(m)];
      const std::uint64_t hash = hash_of<Hash>(e.object().key);
      const unsigned at = free_entry(there, hash);
      if (at >= kEntries) {
        behind.add(e, bucket::tag_of(hash));
        continue;
      }
      fresh.entry[at] = e;
      fresh.tags.byte[at] = bucket::tag_of(hash);
      there |= 1u << at;
    }
  }
  fresh.place = half.linked(behind.write());
  fresh.word = bucket::changed(0, there, behind.sum ^ sum_of(fresh.place) ^ sum_of(fresh, 0, there));
  old.place = old.place.half(0).linked(old.place.link());
  old.word = bucket::changed(old.word, stay, left ^ sum_of(old.place));
}

/// Nothing happens if the bucket has changed since it was read.
template <class Key, class Value, class Hash>
template <class Access>
void Map<Key, Value, Hash>::split(const typename Map::Where& to, Bucket* full, Word word) {
  using bucket::Split;
  const polling_scope keep;
  const DirectoryLock<Access> lock(to.part);
  Table directory{Access::load(&to.part->directory)};
  Halves halves;
  Bucket &old = halves.old, &fresh = halves.fresh;
  Bucket* other = nullptr;
  bool ok = true;
  for (Split step = Split::lock; step != Split::done; step = bucket::next(step, ok)) {
    switch (step) {
      case Split::lock: ok = Access::compare_swap(&full->word, word, word | bucket::kLocked); break;
      case Split::fill_new:
        try {
          Access::read(&old, full, sizeof old);
          old.word = word;
          const bool largest = old.place.depth() == directory.depth();
          ok =
              !largest || bucket::may_grow(directory.size(), Access::load(&to.part->buckets), sizeof(Bucket));
          if (ok && largest) directory = grow<Access>(to.part, to.rank, directory);
          if (ok) {
            other = take_bucket<Access>(to.part, to.rank).bucket;
            divide<Access>(to, halves);
            Access::write(other, &fresh, sizeof fresh);
          } else {
            lengthen<Access>(to, old);
          }
        } catch (...) {
          Access::store(&full->word, word);
          throw;
        }
        break;
      case Split::name_new:
        for (std::uint64_t i = fresh.place.prefix(); i < directory.size(); i += 1ull << fresh.place.depth())
          Access::store(directory.at(i), reinterpret_cast<std::uintptr_t>(other));
        break;
      case Split::publish_old:
        for (const auto& [behind, place] : halves.behind) Access::store(&behind->place.bits, place.bits);
        Access::store(&full->place.bits, old.place.bits);
        Access::store(&full->word, old.word);
        break;
      case Split::given_up:
      case Split::done: return;
    }
  }
}

/// A bucket to be behind another one.
template <class Key, class Value, class Hash>
template <class Access>
typename Map<Key, Value, Hash>::Taken Map<Key, Value, Hash>::take_behind(const typename Map::Where& to) {
  const Taken taken = take_bucket<Access>(to.part, to.rank);
  if (taken.number >= bucket::kMostBuckets) fail(EINVAL, "kasane::unordered_map: it has too many entries");
  return taken;
}

/// Puts an empty bucket behind the first one.
template <class Key, class Value, class Hash>
template <class Access>
void Map<Key, Value, Hash>::lengthen(const typename Map::Where& to, Bucket& first) {
  const auto [number, b] = take_behind<Access>(to);
  Access::store(&b->place.bits, bucket::Place::behind(0, first.place.link()).bits);
  std::uint32_t sum = bucket::checksum(first.word) ^ sum_of(first.place);
  first.place = first.place.linked(number);
  sum ^= sum_of(first.place);
  first.word = bucket::changed(first.word, bucket::occupancy(first.word), sum);
}

// ---- all entries ------------------------------------------------------------------------------------------

/// Of a chain's entries the first, behind one of them, in an order in which places are walked, too, and which
/// neither splits nor changes of values disturb: that of the lowest bit in which hashes differ, then of the
/// keys' bytes.
template <class Key, class Value, class Hash>
class Map<Key, Value, Hash>::Selection {
 public:
  /// behind: of the last one, if there is one.
  explicit Selection(const ItemBytes* behind) {
    if (behind != nullptr) last_ = *behind, last_hash_ = hash_of<Hash>(last_.object().key), begins_ = false;
  }
  void clear() noexcept { n_ = 0; }
  void add(const ItemBytes& e) {
    const std::uint64_t hash = hash_of<Hash>(e.object().key);
    if (!begins_ && !before(last_hash_, last_, hash, e)) return;
    unsigned i = n_;
    for (; i != 0 && before(hash, e, hash_[i - 1], entry_[i - 1]); --i) {
      if (i == kEntries) continue;
      entry_[i] = entry_[i - 1];
      hash_[i] = hash_[i - 1];
    }
    if (i == kEntries) return;
    entry_[i] = e;
    hash_[i] = hash;
    n_ += n_ != kEntries;
  }
  void write(Bucket& to) const noexcept {
    for (unsigned i = 0; i < n_; ++i) to.entry[i] = entry_[i];
    to.word = Word{(1u << n_) - 1} << 32;
  }

 private:
  [[nodiscard]] static bool before(std::uint64_t a_hash, const ItemBytes& a, std::uint64_t b_hash,
                                   const ItemBytes& b) noexcept {
    const std::uint64_t differ = a_hash ^ b_hash;
    return differ != 0 ? (b_hash & differ & -differ) != 0 : std::memcmp(a.of, b.of, sizeof(Key)) < 0;
  }
  unsigned n_ = 0;
  bool begins_ = true;
  std::uint64_t last_hash_ = 0;
  ItemBytes last_, entry_[kEntries];
  std::uint64_t hash_[kEntries];
};

/// What a walk comes to next: a copy of the bucket that covers the lowest hash of a place, which becomes the
/// bucket's if that is less. Of a chain so many entries as a bucket has; more: those behind the copy's.
template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::cover(std::uint32_t s, bucket::Place& place, Bucket& copy, bool more) const {
  const ItemBytes* const behind = more ? &copy.entry[kEntries - 1] : nullptr;
  const std::uint64_t hash = more ? hash_of<Hash>(behind->object().key) : place.prefix();
  Selection some(behind);
  bucket::Place found;
  const auto take = [&](Bucket*, Word number) {
    if (number == 0) {
      some.clear();
      found = copy.place;
    }
    if (found.link() == 0 && !more) return;
    for (std::uint32_t left = bucket::occupancy(copy.word); left != 0; left &= left - 1)
      some.add(copy.entry[std::countr_zero(left)]);
  };
  for (Backoff wait;; wait.pause()) {
    const Where to = where(s);
    const bool near = kasane_rank() == to.rank;
    const bucket::Look look = near ? read_chain<Near>(to.part, locate_near(to.part, hash), hash, copy, take)
                                   : read_chain<Far>(to.part, locate<Far>(s, hash), hash, copy, take);
    if (look == bucket::Look::good) break;
    if (look == bucket::Look::busy) busy(kContainer);
    if (look == bucket::Look::moved && !near) renew(s, hash);
  }
  copy.place = found;
  if (found.link() != 0 || more) some.write(copy);
  if (found.depth() > place.depth()) place = found.linked(0);
}

/// Calls f with copies of entries, once each, as buckets, until it returns false: an entry that stays is in
/// the chain that covers it whenever that is read, and splits only divide what is still to be visited.
template <class Key, class Value, class Hash>
template <class Function>
bool Map<Key, Value, Hash>::walk_while(std::uint32_t s, const Function& f) const {
  Bucket copy;
  bucket::Place place;
  do {
    bool more = false;
    do {
      cover(s, place, copy, more);
      if (!f(copy)) return false;
      more = has_more(copy);
    } while (more);
  } while (place.advance());
  return true;
}

// ---- making and clearing ----------------------------------------------------------------------------------

template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::start(Shard* shard, std::uint32_t rank) {
  Bucket* const first = take_bucket<Far>(shard, rank).bucket;
  Bucket empty;
  std::memset(static_cast<void*>(&empty), 0, sizeof empty);
  empty.word = bucket::changed(0, 0, sum_of(empty.place));
  Far::write(first, &empty, sizeof empty);
  Word* const array = Table::allocate(0, rank);
  Far::store(array + 1, reinterpret_cast<std::uintptr_t>(first));
  Far::store(&shard->directory, Table::of(array, 0).bits);
}

template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::make(const std::vector<std::uint32_t>& ranks) {
  const std::size_t words = ranks.empty() ? kasane::ranks() : ranks.size();
  make_parts(
      ranks, words, [](std::uint32_t, Shard* shard, std::uint32_t rank) { start(shard, rank); },
      [this] { destroy(); });
}

template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::drop_chain(Word array) noexcept {
  while (array != 0) {
    auto* const p = reinterpret_cast<Word*>(array);
    array = Far::load(p);
    deallocate(p);
  }
}

/// Frees what a shard has, and what ranks know of it.
template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::empty_shard(std::uint32_t s, Shard* shard) {
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
template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::destroy() {
  free_parts([this](std::uint32_t s, Shard* shard) { empty_shard(s, shard); });
}

/// Holds all directories, and all buckets if need be.
template <class Key, class Value, class Hash>
class Map<Key, Value, Hash>::Exclusive {
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

template <class Key, class Value, class Hash>
bool Map<Key, Value, Hash>::Exclusive::hold_buckets(Shard* shard) {
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
template <class Key, class Value, class Hash>
bool Map<Key, Value, Hash>::Exclusive::hold_some(Bucket* first, std::size_t n) {
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

template <class Key, class Value, class Hash>
void Map<Key, Value, Hash>::clear() {
  Exclusive alone(*this, true);
  alone.forget_buckets();
  for (std::uint32_t s = 0; s < parts_; ++s) {
    const Where w = where(s);
    empty_shard(s, w.part);
    start(w.part, w.rank);
  }
}

/// What is common to sets: a map without values.
template <class Key, class Hash>
class Set : private Map<Key, Nothing, Hash> {
  using Base = Map<Key, Nothing, Hash>;

 protected:
  using Base::make, Base::destroy;
  struct Exclusive : Base::Exclusive {
    explicit Exclusive(const Set& s) : Base::Exclusive(s) {}
  };

 public:
  using key_type = Key;
  using value_type = Key;
  using Base::clear, Base::contains, Base::empty, Base::erase, Base::parts, Base::rank_of, Base::rank_of_part,
      Base::size;

  /// False: it is there already.
  bool insert(const Key& key) const { return Base::insert(key, {}); }
  /// Of many keys, whose trips are made together. True at i: keys[i] is there; or it is new.
  [[nodiscard]] std::vector<bool> contains_many(std::span<const Key> keys) const {
    std::vector<bool> there;
    for (const auto& answer : Base::find_many(keys)) there.push_back(answer.has_value());
    return there;
  }
  std::vector<bool> insert_many(std::span<const Key> keys) const {
    return Base::insert_many(keys, std::vector<Nothing>(keys.size()));
  }
  /// Calls f(key) for those of one of the ranks given at construction, as of a map.
  template <class Function>
  void for_each_of(std::uint32_t shard, Function&& f) const {
    Base::for_each_of(shard, [&f](const Key& key, const Nothing&) { std::invoke(f, key); });
  }
  /// Over copies, as of a map.
  class iterator : private Base::iterator {
    using It = typename Base::iterator;

   public:
    using value_type = Key;
    using difference_type = std::ptrdiff_t;
    explicit iterator(const Base& set) : It(set) {}
    [[nodiscard]] const Key& operator*() const noexcept { return It::operator*().key; }
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
template <class Key, class Value, class Hash = detail::containers::KeyHash<Key>>
class unordered_map : public detail::containers::Owner<detail::containers::Map<Key, Value, Hash>> {
 public:
  /// Over these ranks; none: over all.
  explicit unordered_map(const std::vector<std::uint32_t>& ranks = {}) : unordered_map::Owner(ranks) {}
};

/// A set: the same without values.
template <class Key, class Hash = detail::containers::KeyHash<Key>>
class unordered_set : public detail::containers::Owner<detail::containers::Set<Key, Hash>> {
 public:
  explicit unordered_set(const std::vector<std::uint32_t>& ranks = {}) : unordered_set::Owner(ranks) {}
};

/// Calls f(key, value) with copies of all entries, each at the rank where it lies, by a thread for each rank;
/// f may post and fork. What is there throughout is visited exactly once, whatever others change. On a
/// thread.
template <class Key, class Value, class Hash, class Function>
void for_each(const detail::containers::Map<Key, Value, Hash>& map, Function f) {
  detail::containers::at_parts(map, [&map, &f](std::uint32_t s) { map.for_each_of(s, f); });
}

/// The same of a set: f(key).
template <class Key, class Hash, class Function>
void for_each(const detail::containers::Set<Key, Hash>& set, Function f) {
  detail::containers::at_parts(set, [&set, &f](std::uint32_t s) { set.for_each_of(s, f); });
}

/// Calls f(key, value) for all entries, by visit's rules, each at the rank where it lies: f changes a copy of
/// the value, which is stored. What is there throughout is visited exactly once. On a thread.
template <class Key, class Value, class Hash, class Function>
void visit_all(const detail::containers::Map<Key, Value, Hash>& map, Function f) {
  detail::containers::at_parts(map, [&map, &f](std::uint32_t s) { map.visit_all_of(s, f); });
}

/// combine() of map(key, value) over all entries, computed where they lie. combine is associative and
/// commutative, and leaves what it combines with `identity` as it is. What is there throughout counts exactly
/// once. On a thread.
template <class Key, class Value, class Hash, class Result, class Function, class Combine>
[[nodiscard]] Result reduce(const detail::containers::Map<Key, Value, Hash>& m, Result identity, Function map,
                            Combine combine) {
  return detail::containers::reduce_parts(m, std::move(identity), combine, [&](std::uint32_t s, Result& sum) {
    m.for_each_of(
        s, [&](const Key& k, const Value& v) { sum = combine(std::move(sum), std::invoke(map, k, v)); });
  });
}

/// The same of a set: map(key).
template <class Key, class Hash, class Result, class Function, class Combine>
[[nodiscard]] Result reduce(const detail::containers::Set<Key, Hash>& set, Result identity, Function map,
                            Combine combine) {
  return detail::containers::reduce_parts(
      set, std::move(identity), combine, [&](std::uint32_t s, Result& sum) {
        set.for_each_of(s, [&](const Key& k) { sum = combine(std::move(sum), std::invoke(map, k)); });
      });
}

}  // namespace kasane
