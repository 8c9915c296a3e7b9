// SPDX-License-Identifier: Apache-2.0
/// @file
/// A vector over the memory of one rank or many, to which all ranks append at once:
///
///     kasane::vector<std::uint64_t> found;                  // over all ranks, in chunks of 4 KiB in turn
///     std::size_t i = found.push_back(x);                   // from any thread of any rank
///     found.get(i);                                         // a copy
///     kasane::vector<std::uint64_t>::handle h = found;      // names it; trivially copyable
///     for (std::uint64_t x : found) …
///
/// **Where.** Elements lie at the ranks that were given at construction, in segments that never move, so an
/// index stays valid. Operations work on them directly: they move no thread and keep no copies, and no
/// processor of another rank takes part.
///
/// **Consistency.** push_back, append, get, put and fetch_add are linearisable, each element by itself (an
/// append is as many push_backs that get consecutive indices), and ordered like relaxed atomics. size() is
/// the readable prefix: all elements below it have been written. An element whose push_back has returned can
/// be read, also beyond that prefix. Exclusive calls are those that callers order with all others; where one
/// overlaps another exclusive call or an append, and sees it, either throws error EBUSY.
///
/// **Thread safety**: any thread of any rank, and main. **Errors**: out_of_memory names rank and bytes, and
/// the vector is as before; error EINVAL: there is no such rank or element (the text has index and size);
/// EBUSY, see above; EIO: a peer was lost.
///
/// docs/design/containers.md says how.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/bytes.hpp>
#include <kasane/containers/elements.hpp>
#include <kasane/containers/parts.hpp>
#include <kasane/containers/tail.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane {

namespace detail::containers {

inline constexpr unsigned kRounds = 44;
/// One rank's part of a vector, in its memory.
struct VectorPart {
  Word tail;              ///< of the first part: kasane/containers/tail.hpp
  Word segment[kRounds];  ///< where each round's elements of this rank are
};

/// It only names the vector, so it is trivially copyable, and its concurrent operations are const.
template <class Type>
class Vector : public Parts<VectorPart> {
  static_assert(sizeof(Holds<Type>) != 0);
  static constexpr std::size_t kAlign = Holds<Type>::kAlign;
  using Slots = Elements<Type>;
  static constexpr const char* kContainer = "kasane::vector";
  /// Elements that lie together before the next rank's turn comes.
  static constexpr std::size_t kChunk = std::bit_floor(std::max<std::size_t>(16, 4096 / Slots::kSlot));

  struct Place {
    std::uint32_t part;
    unsigned round;
    std::size_t position, left;  ///< left: elements from there on that lie behind it
  };

 protected:
  void make(const std::vector<std::uint32_t>& ranks);
  void destroy();

 public:
  using value_type = Type;

  /// Returns its index.
  std::size_t push_back(const Type& x) const {
    const Bytes<Type> bytes(x);
    return push(&bytes, 1);
  }
  /// They get consecutive indices; returns the first.
  std::size_t append(std::span<const Type> xs) const {
    return push(AllBytes(xs.data(), xs.size()).data(), xs.size());
  }
  [[nodiscard]] Type get(std::size_t i) const {
    Bytes<Type> x;
    if (!at_element(i, [&](auto a, const Spot& s, bool known) {
          return Slots::template read<decltype(a)>(s, x, known);
        }))
      no_element(i);
    return x.object();
  }
  void put(std::size_t i, const Type& object) const { put_bytes(i, Bytes<Type>(object)); }
  /// Returns the value before.
  Type fetch_add(std::size_t i, Type n) const
    requires(std::integral<Type> && (sizeof(Type) == 4 || sizeof(Type) == 8))
  {
    Type before;
    const bool found = at_element(i, [&]<class Access>(Access, const Spot& s, bool known) {
      if (!known && !Slots::template is_ready<Access>(s)) return false;
      if constexpr (std::same_as<Access, Near>)
        before = __sync_fetch_and_add(Slots::value(s), n);
      else
        before = kasane::fetch_add(global_ptr<Type>(Slots::value(s)), n);
      return true;
    });
    if (!found) no_element(i);
    return before;
  }
  /// The readable prefix.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Copies of the n elements from i on, all of which lie below size().
  void read(std::size_t i, std::span<Type> to) const {
    const std::size_t end = i + to.size();
    if (end < i || (end > known() && end > size())) no_element(end - 1);
    read_all(i, reinterpret_cast<Bytes<Type>*>(to.data()), to.size());
  }

  /// Exclusive. Removes the last element, and returns it.
  Type pop_back();
  /// Exclusive. Before element i, which and whose followers move on.
  void insert(std::size_t i, const Type& x);
  /// Exclusive. Removes n elements; what follows moves up.
  void erase(std::size_t i, std::size_t n = 1);
  /// Exclusive.
  void assign(std::span<const Type> xs) {
    Exclusive alone(*this);
    alone.reserve(xs.size());
    alone.truncate(0);
    alone.extend(AllBytes(xs.data(), xs.size()).data(), xs.size());
  }
  /// Exclusive. New elements are copies of x, or Type().
  void resize(std::size_t n, const Type& x);
  void resize(std::size_t n)
    requires std::default_initializable<Type>
  {
    resize(n, Type());
  }
  /// Exclusive. Gives the memory back.
  void clear();

  /// The rank at which element i lies, or would lie.
  [[nodiscard]] std::uint32_t rank_of(std::size_t i) const { return where(place(i).part).rank; }
  /// Calls f(x) with copies of those of the first n elements that lie at one of the ranks given at
  /// construction; all are below size().
  template <class Function>
  void for_each_of(std::uint32_t part, std::size_t n, Function&& f) const {
    std::vector<Bytes<Type>> block(kChunk);
    for (std::size_t i = part * kChunk; i < n; i += parts_ * kChunk) {
      const std::size_t count = std::min(kChunk, n - i);
      read_all(i, block.data(), count);
      for (std::size_t k = 0; k < count; ++k) std::invoke(f, block[k].object());
    }
  }

  /// Over copies of the elements that are readable when it begins.
  class iterator {
   public:
    using value_type = Type;
    using difference_type = std::ptrdiff_t;
    iterator(const Vector& v, std::size_t end) : v_(v), end_(end) { refill(); }
    [[nodiscard]] const Type& operator*() const noexcept { return block_[i_ % kChunk].object(); }
    iterator& operator++() {
      if (++i_ % kChunk == 0) refill();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& a, std::default_sentinel_t) noexcept { return a.i_ == a.end_; }

   private:
    void refill() {
      block_.resize(std::min(kChunk, end_ - i_));
      v_.read_all(i_, block_.data(), block_.size());
    }
    Vector v_;
    std::size_t i_ = 0, end_;
    std::vector<Bytes<Type>> block_;
  };
  [[nodiscard]] iterator begin() const { return iterator(*this, size()); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 protected:
  void read_all(std::size_t i, Bytes<Type>* to, std::size_t n) const;
  /// Holds others off as far as they look; ends with the index that it was given.
  class Exclusive {
   public:
    explicit Exclusive(const Vector& v);
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;
    ~Exclusive() { Far::store(v_.tail(), word_); }
    [[nodiscard]] std::size_t size() const noexcept { return tail::index(word_); }
    void reserve(std::size_t n);
    void truncate(std::size_t n);
    void extend(const Bytes<Type>* xs, std::size_t n);
    void forget() noexcept { word_ = 0; }

   private:
    const Vector v_;  ///< since the object's may be swapped
    Word word_ = 0;
  };

 private:
  [[nodiscard]] Word first() const noexcept { return Word{parts_} * kChunk; }
  [[nodiscard]] Word* tail() const { return &where(0).part->tail; }
  [[nodiscard]] bool home() const { return is_here(0); }
  [[nodiscard]] Word known() const { return Near::load(local(kasane_rank())); }
  [[nodiscard]] Place place(std::size_t i) const noexcept;
  [[nodiscard]] Word far_segment(const Place&) const;
  template <class Function>
  decltype(auto) at_place(const Place&, const Function& f) const;
  template <class Function>
  bool at_element(std::size_t i, const Function& f) const;
  [[noreturn, gnu::cold, gnu::noinline]] void no_element(std::size_t i) const {
    fail(EINVAL, "kasane::vector: there is no element " + std::to_string(i) + "; the size is " +
                     std::to_string(size()));
  }
  std::size_t push(const Bytes<Type>* xs, std::size_t n) const;
  [[gnu::noinline]] Word take_late(Word ticket, std::size_t n) const;
  void add_rounds(unsigned& rounds, std::size_t end) const;
  template <class Function>
  void each_piece(std::size_t i, std::size_t n, const Function& f) const;
  void store(std::size_t i, const Bytes<Type>* xs, std::size_t n) const;
  void unmark(std::size_t i, std::size_t n) const;
  void overwrite(std::size_t i, const Bytes<Type>* xs, std::size_t n) const;
  void put_bytes(std::size_t i, const Bytes<Type>& x) const;
  [[nodiscard]] std::size_t words() const noexcept { return 1 + kRounds * parts_; }
  static void drop_segments(VectorPart* part) {
    for (Word& segment : part->segment) {
      deallocate(reinterpret_cast<void*>(Far::load(&segment)));
      Far::store(&segment, 0);
    }
  }
};

// ---- where an element is ----------------------------------------------------------------------------------

template <class Type>
typename Vector<Type>::Place Vector<Type>::place(std::size_t i) const noexcept {
  if (parts_ == 1) {
    const auto round = static_cast<unsigned>(std::bit_width(i / kChunk + 1)) - 1;
    const std::size_t position = i - tail::capacity(round, kChunk);
    return {0, round, position, (kChunk << round) - position};
  }
  const auto round = static_cast<unsigned>(std::bit_width(i / first() + 1)) - 1;
  const std::size_t offset = i - tail::capacity(round, first()), chunk = offset / kChunk,
                    in = offset % kChunk;
  return {static_cast<std::uint32_t>(chunk % parts_), round, chunk / parts_ * kChunk + in, kChunk - in};
}

/// As this rank knows it, or its owner says; 0: there is none.
template <class Type>
Word Vector<Type>::far_segment(const Place& p) const {
  const std::size_t entry = 1 + p.round * parts_ + p.part;
  if (const Word known = Near::load(local(kasane_rank()) + entry); known != 0) return known;
  const Word segment = Far::load(&where(p.part).part->segment[p.round]);
  Near::store(local(kasane_rank()) + entry, segment);
  return segment;
}

/// f(Near{} or Far{}, spot).
template <class Type>
template <class Function>
decltype(auto) Vector<Type>::at_place(const Place& p, const Function& f) const {
  const Where w = where(p.part);
  if (w.rank != kasane_rank()) {
    const Word base = far_segment(p);
    if (w.rank != kasane_rank()) return f(Far{}, Spot{base, kChunk << p.round, p.position});
  }
  return f(Near{}, Spot{Near::load(&w.part->segment[p.round]), kChunk << p.round, p.position});
}

/// f(Near{} or Far{}, spot, whether it is known to be ready). False: there is no element, or f says so.
template <class Type>
template <class Function>
bool Vector<Type>::at_element(std::size_t i, const Function& f) const {
  if (i >= tail::capacity(kRounds, first())) return false;
  const Place p = place(i);
  if (Slots::kMarksApart && !is_here(p.part) && i >= known()) static_cast<void>(size());
  return at_place(p, [&](auto a, const Spot& s) {
    return s.base != 0 && f(a, s, Slots::kMarksApart && std::same_as<decltype(a), Far> && i < known());
  });
}

// ---- appending --------------------------------------------------------------------------------------------

template <class Type>
std::size_t Vector<Type>::push(const Bytes<Type>* xs, std::size_t n) const {
  using tail::Push;
  const Where h = where(0);
  const bool near = h.rank == kasane_rank();
  Word ticket = near ? Near::fetch_add(&h.part->tail, n) : Far::fetch_add(&h.part->tail, n);
  if (tail::next(tail::judge(ticket, n, first())) != Push::values) [[unlikely]]
    ticket = take_late(ticket, n);
  const std::size_t i = tail::index(ticket);
  if (near && n == 1 && parts_ == 1) [[likely]] {
    const Place p = place(i);
    if (h.rank == kasane_rank()) {
      const Spot s{Near::load(&h.part->segment[p.round]), kChunk << p.round, p.position};
      Slots::template fill<Near>(s, xs, 1);
      Slots::template set<Near>(s, 1, xs);
      return i;
    }
  }
  store(i, xs, n);
  return i;
}

/// With a ticket that does not fit: until the thread has elements.
template <class Type>
Word Vector<Type>::take_late(Word ticket, std::size_t n) const {
  using tail::Push;
  Backoff wait;
  Push step = tail::next(tail::judge(ticket, n, first()));
  while (step != Push::values) {
    bool ok = true;
    if (step == Push::take) {
      ticket = Far::fetch_add(tail(), n);
      step = tail::next(tail::judge(ticket, n, first()));
      continue;
    }
    if (step == Push::refused) busy(kContainer);
    if (step == Push::wait) {
      wait.pause();
      ok = tail::settled(Far::load(tail()), first());
    }
    if (step == Push::grow) {
      unsigned rounds = tail::rounds(ticket);
      try {
        add_rounds(rounds, tail::index(ticket) + n);
      } catch (...) {
        Far::store(tail(), tail::grown(ticket, n, tail::rounds(ticket)));
        throw;
      }
      Far::store(tail(), tail::grown(ticket, n, rounds));
    }
    step = tail::next(step, ok);
  }
  return ticket;
}

/// Segments for `end` elements. What could not be completed stays for the next try.
template <class Type>
void Vector<Type>::add_rounds(unsigned& rounds, std::size_t end) const {
  for (; tail::capacity(rounds, first()) < end; ++rounds) {
    if (rounds >= kRounds) throw error(EINVAL, "kasane::vector: it has too many elements");
    for (std::uint32_t s = 0; s < parts_; ++s) {
      const Where w = where(s);
      if (Far::load(&w.part->segment[rounds]) != 0) continue;
      void* const p = allocate_zeroed(Slots::bytes(kChunk << rounds), kAlign, placement::on(w.rank).fixed());
      Far::store(&w.part->segment[rounds], reinterpret_cast<std::uintptr_t>(p));
    }
  }
}

/// f(Near{} or Far{}, spot, from, count) for the pieces [i + from, i + from + count) of n elements, each of
/// which lies together.
template <class Type>
template <class Function>
void Vector<Type>::each_piece(std::size_t i, std::size_t n, const Function& f) const {
  for (std::size_t from = 0; from < n;) {
    const Place p = place(i + from);
    const std::size_t count = std::min(n - from, p.left);
    at_place(p, [&](auto a, const Spot& s) { f(a, s, from, count); });
    from += count;
  }
}

/// Values, then their marks.
template <class Type>
void Vector<Type>::store(std::size_t i, const Bytes<Type>* xs, std::size_t n) const {
  each_piece(i, n, [xs]<class Access>(Access, const Spot& s, std::size_t from, std::size_t count) {
    Slots::template fill<Access>(s, xs + from, count);
    Slots::template set<Access>(s, count, xs + from);
  });
}

/// The n from i on are not there any more.
template <class Type>
void Vector<Type>::unmark(std::size_t i, std::size_t n) const {
  each_piece(i, n, []<class Access>(Access, const Spot& s, std::size_t, std::size_t count) {
    Slots::template set<Access>(s, count, nullptr, false);
  });
}

template <class Type>
void Vector<Type>::read_all(std::size_t i, Bytes<Type>* to, std::size_t n) const {
  each_piece(i, n, [to]<class Access>(Access, const Spot& s, std::size_t from, std::size_t count) {
    Slots::template read_all<Access>(s, to + from, count);
  });
}

/// Of elements that are ready.
template <class Type>
void Vector<Type>::overwrite(std::size_t i, const Bytes<Type>* xs, std::size_t n) const {
  if constexpr (Slots::kMarksApart)
    each_piece(i, n, [xs]<class Access>(Access, const Spot& s, std::size_t from, std::size_t count) {
      Slots::template fill<Access>(s, xs + from, count);
    });
  else
    for (std::size_t k = 0; k < n; ++k) put_bytes(i + k, xs[k]);
}

template <class Type>
void Vector<Type>::put_bytes(std::size_t i, const Bytes<Type>& x) const {
  const bool found = at_element(
      i, [&](auto a, const Spot& s, bool known) { return Slots::template write<decltype(a)>(s, x, known); });
  if (!found) no_element(i);
}

template <class Type>
std::size_t Vector<Type>::size() const {
  const Word w = home() ? Near::load(tail()) : Far::load(tail());
  const Word end = std::min(tail::index(w), tail::capacity(tail::rounds(w), first()));
  Word i = known();
  while (i < end) {
    const Place p = place(i);
    const std::size_t count = std::min<std::size_t>({end - i, p.left, 4096});
    const std::size_t ready = at_place(p, [&](auto a, const Spot& s) {
      return s.base == 0 ? 0 : Slots::template ready<decltype(a)>(s, count);
    });
    i += ready;
    if (ready < count) break;
  }
  i = std::min(i, end);
  if (i > known()) Near::store(local(kasane_rank()), i);
  return i;
}

// ---- exclusive calls --------------------------------------------------------------------------------------

template <class Type>
Vector<Type>::Exclusive::Exclusive(const Vector& v) : v_(v) {
  using Step = tail::Exclusive;
  const Word w = Far::load(v.tail());
  Step step = tail::next(Step::look, tail::complete(w, v.size(), v.first()));
  if (step == Step::take) step = tail::next(step, Far::compare_swap(v.tail(), w, w | tail::kExclusive));
  if (step != Step::alone) busy(kContainer);
  word_ = w;
}

template <class Type>
void Vector<Type>::Exclusive::truncate(std::size_t n) {
  if (n >= size()) return;
  v_.unmark(n, size() - n);
  v_.each_local([n](Word* words) {
    if (Far::load(words) > n) Far::store(words, n);
  });
  word_ = tail::word(tail::rounds(word_), n);
}

/// Memory for n elements.
template <class Type>
void Vector<Type>::Exclusive::reserve(std::size_t n) {
  unsigned rounds = tail::rounds(word_);
  v_.add_rounds(rounds, n);
  word_ = tail::word(rounds, size());
}

template <class Type>
void Vector<Type>::Exclusive::extend(const Bytes<Type>* xs, std::size_t n) {
  reserve(size() + n);
  v_.store(size(), xs, n);
  word_ = tail::word(tail::rounds(word_), size() + n);
}

template <class Type>
Type Vector<Type>::pop_back() {
  Exclusive alone(*this);
  if (alone.size() == 0) no_element(0);
  Bytes<Type> x;
  read_all(alone.size() - 1, &x, 1);
  alone.truncate(alone.size() - 1);
  return x.object();
}

template <class Type>
void Vector<Type>::insert(std::size_t i, const Type& object) {
  const Bytes<Type> x(object);
  Exclusive alone(*this);
  const std::size_t n = alone.size();
  if (i > n) no_element(i);
  if (i == n) return alone.extend(&x, 1);
  Bytes<Type> last;
  read_all(n - 1, &last, 1);
  alone.extend(&last, 1);
  std::vector<Bytes<Type>> block(kChunk);
  for (std::size_t end = n; end > i + 1;) {  // [.., end - 1) moves to [.., end)
    const std::size_t count = std::min(kChunk, end - 1 - i);
    read_all(end - 1 - count, block.data(), count);
    overwrite(end - count, block.data(), count);
    end -= count;
  }
  overwrite(i, &x, 1);
}

template <class Type>
void Vector<Type>::erase(std::size_t i, std::size_t n) {
  Exclusive alone(*this);
  const std::size_t size = alone.size();
  if (i > size || n > size - i) no_element(i + n - 1);
  std::vector<Bytes<Type>> block(kChunk);
  for (std::size_t from = i + n; from < size;) {
    const std::size_t count = std::min(kChunk, size - from);
    read_all(from, block.data(), count);
    overwrite(from - n, block.data(), count);
    from += count;
  }
  alone.truncate(size - n);
}

template <class Type>
void Vector<Type>::resize(std::size_t n, const Type& x) {
  Exclusive alone(*this);
  alone.truncate(n);
  if (n == alone.size()) return;
  alone.reserve(n);
  const std::vector<Bytes<Type>> block(std::min(kChunk * 16, n - alone.size()), Bytes<Type>(x));
  while (alone.size() < n) alone.extend(block.data(), std::min(block.size(), n - alone.size()));
}

template <class Type>
void Vector<Type>::clear() {
  Exclusive alone(*this);
  for (std::uint32_t s = 0; s < parts_; ++s) drop_segments(where(s).part);
  const std::vector<Word> nothing(words());
  each_local([&](Word* w) { Far::write(w, nothing.data(), nothing.size() * sizeof(Word)); });
  alone.forget();
}

template <class Type>
void Vector<Type>::make(const std::vector<std::uint32_t>& ranks) {
  const std::size_t parts = ranks.empty() ? kasane::ranks() : ranks.size();
  make_parts(
      ranks, 1 + kRounds * parts, [](std::uint32_t, VectorPart*, std::uint32_t) {}, [this] { destroy(); });
}

template <class Type>
void Vector<Type>::destroy() {
  free_parts([](std::uint32_t, VectorPart* part) { drop_segments(part); });
}

}  // namespace detail::containers

/// See above. The object owns the vector; a handle only names it.
template <class Type>
class vector : public detail::containers::Owner<detail::containers::Vector<Type>> {
  using Base = detail::containers::Vector<Type>;

 public:
  /// Over these ranks, a chunk of 4 KiB at each in turn; none: over all.
  explicit vector(const std::vector<std::uint32_t>& ranks = {}) : vector::Owner(ranks) {}
  vector(vector&&) noexcept = default;
  vector& operator=(vector&& other) noexcept { return std::swap<Base>(*this, other), *this; }
  /// Exclusive. A copy that lies at one rank.
  [[nodiscard]] vector duplicate(std::uint32_t rank) const {
    vector copy({rank});
    const typename Base::Exclusive alone(*this);
    typename Base::Exclusive theirs(copy);
    theirs.reserve(alone.size());
    std::vector<detail::containers::Bytes<Type>> block(4096);
    for (std::size_t i = 0; i < alone.size();) {
      const std::size_t n = std::min(block.size(), alone.size() - i);
      this->read_all(i, block.data(), n);
      theirs.extend(block.data(), n);
      i += n;
    }
    return copy;
  }
};

/// Calls f(x) with copies of all elements that are readable now, at the ranks where they lie, by a thread for
/// each rank; f may post and fork. On a thread.
template <class Type, class Function>
void for_each(const detail::containers::Vector<Type>& v, Function f) {
  const std::size_t n = v.size();
  detail::containers::at_parts(v, [&v, &f, n](std::uint32_t s) { v.for_each_of(s, n, f); });
}

/// combine() of map(x) over all elements that are readable now, computed where they lie. combine is
/// associative and commutative, and leaves what it combines with `identity` as it is. On a thread.
template <class Type, class Result, class Map, class Combine>
[[nodiscard]] Result reduce(const detail::containers::Vector<Type>& v, Result identity, Map map,
                            Combine combine) {
  const std::size_t n = v.size();
  return detail::containers::reduce_parts(v, std::move(identity), combine, [&](std::uint32_t s, Result& sum) {
    v.for_each_of(s, n, [&](const Type& x) { sum = combine(std::move(sum), std::invoke(map, x)); });
  });
}

}  // namespace kasane
