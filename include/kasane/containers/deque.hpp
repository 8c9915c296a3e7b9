// SPDX-License-Identifier: Apache-2.0
/// @file
/// A queue with two ends in the memory of one rank, which all ranks push to and pop from at once:
///
///     kasane::deque<Task> tasks(0);                       // at rank 0
///     tasks.push_back(t);                                 // from any thread of any rank
///     if (std::optional<Task> next = tasks.try_pop_front()) …
///     kasane::deque<Task>::handle h = tasks;              // names it; trivially copyable
///
/// Operations work on it directly: they move no thread and keep no copies, and no processor of another rank
/// takes part. **Consistency**: all are linearisable, those of spans as a whole, and ordered like relaxed
/// atomics; clear and swap are exclusive: callers order them with all others. Where such a call and another
/// one see each other, one throws error EBUSY, and has done nothing. size() is exact at some time within the
/// call. **Elements** are trivially copyable.
///
/// **Thread safety**: any thread of any rank, and main. **Errors**: out_of_memory names rank and bytes, and
/// the deque is as before; error EINVAL: there is no such rank; EBUSY, see above; EIO: a peer was lost.
///
/// docs/design/containers.md says how.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/header.hpp>
#include <kasane/containers/parts.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane {

namespace detail::containers {

/// A ring: elements front, front + 1 … of an array of `capacity` (0 or a power of two).
struct DequeFields {
  static constexpr const char* kContainer = "kasane::deque";
  Word front, count, capacity, base;
};
using DequePart = Header<DequeFields>;

/// It only names the deque, so it is trivially copyable, and its operations are const.
template <class T>
class Deque : public Parts<DequePart> {
  static_assert(std::is_trivially_copyable_v<T>, "elements go from rank to rank as bytes");
  static_assert(std::is_default_constructible_v<T> && alignof(T) <= 64);
  static constexpr std::size_t kLeast = std::bit_floor(std::max<std::size_t>(16, 4096 / sizeof(T)));

 protected:
  void make(std::uint32_t rank) {
    make_parts(
        {rank}, 1, [](std::uint32_t, DequePart* part, std::uint32_t) { part->start(); },
        [this] { destroy(); });
  }
  void destroy() {
    free_parts([](std::uint32_t, DequePart* part) {
      DequeFields f;
      Far::read(&f, &part->fields, sizeof f);
      deallocate(reinterpret_cast<void*>(f.base));
    });
  }
  struct Exclusive : Alone<DequeFields> {
    explicit Exclusive(const Deque& d) : Alone(d.where(0).part) {}
  };

 public:
  using value_type = T;

  void push_back(const T& x) const { push_back(std::span(&x, 1)); }
  void push_front(const T& x) const { push_front(std::span(&x, 1)); }
  /// Together, in this order.
  void push_back(std::span<const T> xs) const { push(xs, false); }
  /// Together: xs[0] is at the front then.
  void push_front(std::span<const T> xs) const { push(xs, true); }
  /// Empty: there is none.
  [[nodiscard]] std::optional<T> try_pop_front() const {
    T x;
    return try_pop_front(std::span(&x, 1)) != 0 ? std::optional<T>(x) : std::nullopt;
  }
  [[nodiscard]] std::optional<T> try_pop_back() const {
    T x;
    return try_pop_back(std::span(&x, 1)) != 0 ? std::optional<T>(x) : std::nullopt;
  }
  /// As many as there are, and fit. Returns how many; both leave them in their order in the deque.
  std::size_t try_pop_front(std::span<T> to) const { return pop(to, true); }
  std::size_t try_pop_back(std::span<T> to) const { return pop(to, false); }

  /// Copies of those from the i-th on, counted from the front; returns how many there were, and fitted.
  std::size_t read(std::size_t i, std::span<T> to) const {
    const Where w = where(0);
    std::size_t n = 0;
    change(
        w.part, w.rank,
        [&]<class A>(A, DequeFields& f) {
          n = std::min<std::size_t>(to.size(), f.count > i ? f.count - i : 0);
          move<A, false>(f, f.front + i, to.data(), n);
          return Made::no;
        },
        [i](const DequeFields& f) { return f.count > i; });
    return n;
  }

  [[nodiscard]] std::size_t size() const {
    const Where w = where(0);
    return DequePart::look(w.part, w.rank).fields.count;
  }
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// All elements as they are at one time, from the front on: of its one rank.
  [[nodiscard]] std::vector<std::vector<T>> copies() const {
    const Where w = where(0);
    std::vector<std::vector<T>> all(1);
    change(w.part, w.rank, [&all]<class A>(A, DequeFields& f) {
      all[0].resize(f.count);
      move<A, false>(f, f.front, all[0].data(), f.count);
      return Made::no;
    });
    return all;
  }
  /// Over copies of all elements as they are when it begins.
  class iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    explicit iterator(std::vector<T> all) : all_(std::move(all)) {}
    [[nodiscard]] const T& operator*() const noexcept { return all_[i_]; }
    iterator& operator++() noexcept { return ++i_, *this; }
    void operator++(int) noexcept { ++i_; }
    friend bool operator==(const iterator& a, std::default_sentinel_t) noexcept {
      return a.i_ == a.all_.size();
    }

   private:
    std::vector<T> all_;
    std::size_t i_ = 0;
  };
  [[nodiscard]] iterator begin() const { return iterator(std::move(copies()[0])); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  /// Where it lies.
  [[nodiscard]] std::uint32_t rank() const { return where(0).rank; }
  /// Exclusive. Gives the memory back.
  void clear() {
    Exclusive alone(*this);
    deallocate(reinterpret_cast<void*>(std::exchange(alone.fields, {}).base));
    alone.publish();
  }

 private:
  /// Copies n elements from `from` on between the ring and a buffer.
  template <class A, bool kWrite>
  static void move(const DequeFields& f, Word from, std::conditional_t<kWrite, const T*, T*> buffer,
                   std::size_t n) {
    while (n != 0) {
      const Word at = from & (f.capacity - 1);
      const std::size_t count = std::min<std::size_t>(n, f.capacity - at);
      T* const p = reinterpret_cast<T*>(f.base) + at;
      if constexpr (kWrite)
        A::write(p, buffer, count * sizeof(T));
      else
        A::read(buffer, p, count * sizeof(T));
      from += count, buffer += count, n -= count;
    }
  }
  template <class A>
  static void grow(DequeFields& f, std::size_t count, std::uint32_t rank) {
    DequeFields g{0, f.count, std::bit_ceil(std::max<Word>(count, kLeast)), 0};
    g.base = reinterpret_cast<std::uintptr_t>(
        kasane::allocate(g.capacity * sizeof(T), 64, placement::on(rank).fixed()));
    T block[std::max<std::size_t>(1, 1024 / sizeof(T))];
    for (Word done = 0; done < f.count;) {
      const std::size_t n = std::min<std::size_t>(std::size(block), f.count - done);
      move<A, false>(f, f.front + done, block, n);
      move<A, true>(g, done, block, n);
      done += n;
    }
    deallocate(reinterpret_cast<void*>(f.base));
    f = g;
  }
  void push(std::span<const T> xs, bool front) const {
    if (xs.empty()) return;
    const Where w = where(0);
    change(w.part, w.rank, [&]<class A>(A, DequeFields& f) {
      if (f.count + xs.size() > f.capacity) grow<A>(f, f.count + xs.size(), w.rank);
      if (front) f.front -= xs.size();
      move<A, true>(f, front ? f.front : f.front + f.count, xs.data(), xs.size());
      f.count += xs.size();
      return Made::yes;
    });
  }
  std::size_t pop(std::span<T> to, bool front) const {
    const Where w = where(0);
    std::size_t n = 0;
    change(
        w.part, w.rank,
        [&]<class A>(A, DequeFields& f) {
          n = std::min<std::size_t>(to.size(), f.count);
          move<A, false>(f, front ? f.front : f.front + f.count - n, to.data(), n);
          if (front) f.front += n;
          f.count -= n;
          return Made::yes;
        },
        [](const DequeFields& f) { return f.count != 0; });
    return n;
  }
};

}  // namespace detail::containers

/// See above. The object owns the deque; a handle only names it.
template <class T>
class deque : public detail::containers::Owner<detail::containers::Deque<T>> {
 public:
  /// At this rank.
  explicit deque(std::uint32_t rank = kasane::rank()) : deque::Owner(rank) {}
};

}  // namespace kasane
