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
#include <kasane/containers/bytes.hpp>
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
template <class Type>
class Deque : public Parts<DequePart> {
  static_assert(sizeof(Holds<Type>) != 0);
  static constexpr std::size_t kAlign = Holds<Type>::kAlign;
  static constexpr std::size_t kLeast = std::bit_floor(std::max<std::size_t>(16, 4096 / sizeof(Type)));

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
  using value_type = Type;

  void push_back(const Type& x) const { push_back(std::span(&x, 1)); }
  void push_front(const Type& x) const { push_front(std::span(&x, 1)); }
  /// Together, in this order.
  void push_back(std::span<const Type> xs) const { push(xs, false); }
  /// Together: xs[0] is at the front then.
  void push_front(std::span<const Type> xs) const { push(xs, true); }
  /// Empty: there is none.
  [[nodiscard]] std::optional<Type> try_pop_front() const { return pop_one(true); }
  [[nodiscard]] std::optional<Type> try_pop_back() const { return pop_one(false); }
  /// As many as there are, and fit. Returns how many; both leave them in their order in the deque.
  std::size_t try_pop_front(std::span<Type> to) const { return pop(to.data(), to.size(), true); }
  std::size_t try_pop_back(std::span<Type> to) const { return pop(to.data(), to.size(), false); }

  /// Copies of those from the i-th on, counted from the front; returns how many there were, and fitted.
  std::size_t read(std::size_t i, std::span<Type> to) const {
    const Where w = where(0);
    std::size_t n = 0;
    change(
        w.part, w.rank,
        [&]<class Access>(Access, DequeFields& f) {
          n = std::min<std::size_t>(to.size(), f.count > i ? f.count - i : 0);
          move<Access, false>(f, f.front + i, to.data(), n);
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
  [[nodiscard]] std::vector<std::vector<Bytes<Type>>> copies() const {
    const Where w = where(0);
    std::vector<std::vector<Bytes<Type>>> all(1);
    change(w.part, w.rank, [&all]<class Access>(Access, DequeFields& f) {
      all[0].resize(f.count);
      move<Access, false>(f, f.front, all[0].data(), f.count);
      return Made::no;
    });
    return all;
  }
  /// Over copies of all elements as they are when it begins.
  class iterator {
   public:
    using value_type = Type;
    using difference_type = std::ptrdiff_t;
    explicit iterator(std::vector<Bytes<Type>> all) : all_(std::move(all)) {}
    [[nodiscard]] const Type& operator*() const noexcept { return all_[i_].object(); }
    iterator& operator++() noexcept { return ++i_, *this; }
    void operator++(int) noexcept { ++i_; }
    friend bool operator==(const iterator& a, std::default_sentinel_t) noexcept {
      return a.i_ == a.all_.size();
    }

   private:
    std::vector<Bytes<Type>> all_;
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
  template <class Access, bool kWrite>
  static void move(const DequeFields& f, Word from, std::conditional_t<kWrite, const void*, void*> objects,
                   std::size_t n) {
    auto* buffer = static_cast<std::conditional_t<kWrite, const char*, char*>>(objects);
    while (n != 0) {
      const Word at = from & (f.capacity - 1);
      const std::size_t count = std::min<std::size_t>(n, f.capacity - at);
      Type* const p = reinterpret_cast<Type*>(f.base) + at;
      if constexpr (kWrite)
        Access::write(p, buffer, count * sizeof(Type));
      else
        Access::read(buffer, p, count * sizeof(Type));
      from += count, buffer += count * sizeof(Type), n -= count;
    }
  }
  template <class Access>
  static void grow(DequeFields& f, std::size_t count, std::uint32_t rank) {
    DequeFields g{0, f.count, std::bit_ceil(std::max<Word>(count, kLeast)), 0};
    g.base = reinterpret_cast<std::uintptr_t>(
        kasane::allocate(g.capacity * sizeof(Type), kAlign, placement::on(rank).fixed()));
    Bytes<Type> block[std::max<std::size_t>(1, 1024 / sizeof(Type))];
    for (Word done = 0; done < f.count;) {
      const std::size_t n = std::min<std::size_t>(std::size(block), f.count - done);
      move<Access, false>(f, f.front + done, block, n);
      move<Access, true>(g, done, block, n);
      done += n;
    }
    deallocate(reinterpret_cast<void*>(f.base));
    f = g;
  }
  void push(std::span<const Type> xs, bool front) const {
    if (xs.empty()) return;
    const Where w = where(0);
    change(w.part, w.rank, [&]<class Access>(Access, DequeFields& f) {
      if (f.count + xs.size() > f.capacity) grow<Access>(f, f.count + xs.size(), w.rank);
      if (front) f.front -= xs.size();
      move<Access, true>(f, front ? f.front : f.front + f.count, xs.data(), xs.size());
      f.count += xs.size();
      return Made::yes;
    });
  }
  [[nodiscard]] std::optional<Type> pop_one(bool front) const {
    Bytes<Type> x;
    return pop(&x, 1, front) != 0 ? std::optional<Type>(x.object()) : std::nullopt;
  }
  std::size_t pop(void* to, std::size_t most, bool front) const {
    const Where w = where(0);
    std::size_t n = 0;
    change(
        w.part, w.rank,
        [&]<class Access>(Access, DequeFields& f) {
          n = std::min<std::size_t>(most, f.count);
          move<Access, false>(f, front ? f.front : f.front + f.count - n, to, n);
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
template <class Type>
class deque : public detail::containers::Owner<detail::containers::Deque<Type>> {
 public:
  /// At this rank.
  explicit deque(std::uint32_t rank = kasane::rank()) : deque::Owner(rank) {}
};

}  // namespace kasane
