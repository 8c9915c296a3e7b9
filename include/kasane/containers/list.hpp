// SPDX-License-Identifier: Apache-2.0
/// @file
/// A doubly linked list whose elements lie at a rank each, and which all ranks change at once:
///
///     kasane::list<Task> tasks;
///     auto it = tasks.push_back(t, 2);                    // at rank 2, from any thread of any rank
///     tasks.insert(it, u, 0);                             // before it, at rank 0
///     for (Task t : tasks) …                              // copies
///
/// Operations work on it directly: they move no thread and keep no copies, and no processor of another rank
/// takes part. **Consistency**: push, pop, insert, erase and append are linearisable, and ordered like
/// relaxed atomics. assign, sort, clear and swap are exclusive: callers order them with all others. Where
/// such a call and another one see each other, one throws error EBUSY, and has done nothing.
/// **Iterators** name an element by its place and generation. They stay valid while it is there; the use of
/// one whose element was erased throws error ESTALE. A walk meets others' changes, or not. **Elements** are
/// trivially copyable.
///
/// **Thread safety**: any thread of any rank, and main. **Errors**: out_of_memory names rank and bytes, and
/// the list is as before; error EINVAL: there is no such rank, an iterator at the end is used as an element,
/// or it is one of another list; ESTALE and EBUSY, see above; EIO: a peer was lost.
///
/// docs/design/containers.md says how.
#pragma once

#include <kasane/kasane.hpp>

#include <kasane/containers/access.hpp>
#include <kasane/containers/bucket.hpp>
#include <kasane/containers/header.hpp>
#include <kasane/containers/parts.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
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

struct ListFields {
  static constexpr const char* kContainer = "kasane::list";
  Word first, last, count;  ///< links
};
inline constexpr unsigned kPools = 32, kFirstPool = 16;
/// Of each rank of the job; only the list's own rank uses the header.
struct ListPart {
  Header<ListFields> header;
  Word free;          ///< a link to a node that was used; its `next` leads to another one
  Word taken;         ///< nodes taken so far from the segments
  Word pool[kPools];  ///< segments of kFirstPool << i nodes
};

/// It only names the list, so it is trivially copyable, and its concurrent operations are const.
template <class T>
class List : public Parts<ListPart> {
  static_assert(std::is_trivially_copyable_v<T>, "elements go from rank to rank as bytes");
  static_assert(std::is_default_constructible_v<T> && alignof(T) <= 64);

  /// An address and its rank; 0: none.
  using Link = Word;
  /// It stays a node while the list lives. word: generation 32 (odd: in the list) | checksum 32.
  struct Head {
    Word word;
    Link next, prev;
    [[nodiscard]] std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(word >> 32); }
    /// Of the links. That of a node is the xor of this and its value's.
    [[nodiscard]] std::uint32_t sum() const noexcept {
      const Word links[2] = {next, prev};
      return versioned::sum_of(links, 2);
    }
  };
  struct Node : Head {
    T value;
    [[nodiscard]] std::uint32_t sum() const noexcept {
      return Head::sum() ^ bucket::folded(bucket::mix(1, &value, sizeof value));
    }
    void seal(std::uint32_t generation) noexcept { this->word = Word{generation} << 32 | sum(); }
  };

  [[nodiscard]] static Node* node_of(Link l) noexcept {
    return reinterpret_cast<Node*>(static_cast<std::uintptr_t>(l & ((Word{1} << 48) - 1)));
  }
  [[nodiscard]] static std::uint32_t rank_of(Link l) noexcept { return static_cast<std::uint32_t>(l >> 48); }
  [[nodiscard]] static Link link(const Node* n, std::uint32_t rank) noexcept {
    return reinterpret_cast<std::uintptr_t>(n) | Word{rank} << 48;
  }

 protected:
  std::uint32_t home_ = 0;
  void make(std::uint32_t home);
  void destroy();

 public:
  using value_type = T;

  class iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    iterator() noexcept = default;
    /// A copy.
    [[nodiscard]] T operator*() const { return list_.read(link_, generation_).value; }
    iterator& operator++() { return *this = list_.after(*this); }
    void operator++(int) { ++*this; }
    /// Of the end: the last element. Throws error EINVAL: there is none before.
    iterator& operator--() { return *this = list_.before(*this); }
    void operator--(int) { --*this; }
    friend bool operator==(const iterator& a, const iterator& b) noexcept {
      return a.link_ == b.link_ && a.generation_ == b.generation_;
    }
    /// The rank at which the element lies.
    [[nodiscard]] std::uint32_t rank() const noexcept { return rank_of(link_); }

   private:
    friend List;
    iterator(const List& l, Link link, std::uint32_t generation, Link next = 0)
        : list_(l), link_(link), next_(next), generation_(generation) {}
    List list_;
    Link link_ = 0, next_ = 0;  ///< next_: when it was made
    std::uint32_t generation_ = 0;
  };

  [[nodiscard]] iterator begin() const;
  [[nodiscard]] iterator end() const noexcept { return iterator(*this, 0, 0); }

  /// The element lies at `rank`; without one, at the list's. Returns where it is.
  iterator push_back(const T& x, std::uint32_t rank) const { return add(std::span(&x, 1), rank, end()); }
  iterator push_back(const T& x) const { return push_back(x, home_); }
  iterator push_front(const T& x, std::uint32_t rank) const;
  iterator push_front(const T& x) const { return push_front(x, home_); }
  /// Before `it`.
  iterator insert(const iterator& it, const T& x, std::uint32_t rank) const {
    return add(std::span(&x, 1), rank, it);
  }
  /// Together, at the end. Returns where the first is.
  iterator append(std::span<const T> xs, std::uint32_t rank) const { return add(xs, rank, end()); }
  /// Returns the one behind it.
  iterator erase(const iterator& it) const;
  /// Empty: there is none.
  std::optional<T> pop_front() const { return pop(true); }
  std::optional<T> pop_back() const { return pop(false); }

  [[nodiscard]] std::size_t size() const { return look().count; }
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// All elements as they are at one time, in their order: of each rank of the job.
  [[nodiscard]] std::vector<std::vector<T>> copies() const;

  /// Exclusive.
  void assign(std::span<const T> xs, std::uint32_t rank);
  /// Exclusive. Elements stay at their ranks, and iterators at their elements; equal ones keep their order.
  template <class Less = std::less<>>
  void sort(Less less = {});
  /// Exclusive.
  void clear() { assign({}, home_); }

 protected:
  struct Exclusive : Alone<ListFields> {
    explicit Exclusive(const List& l) : Alone(&l.where(l.home_).part->header) {}
  };

 private:
  /// A rank's free nodes, as they will be.
  struct Pool {
    Word free, taken;
  };

  [[nodiscard]] ListFields look() const {
    return Header<ListFields>::look(&where(home_).part->header, home_).fields;
  }
  /// here: the rank of the caller, which does not change in a polling_scope.
  template <class F>
  static decltype(auto) at_rank(std::uint32_t rank, std::uint32_t here, const F& f) {
    if (rank == here) return f(Near{});
    return f(Far{});
  }
  [[nodiscard]] static Node get(Link l);
  /// The element is there.
  [[nodiscard]] static bool is(const iterator& it) {
    const Word* const word = &node_of(it.link_)->word;
    return at_rank(rank_of(it.link_), kasane_rank(), [word](auto a) { return a.load(word); }) >> 32 ==
           it.generation_;
  }
  /// The node; throws where its generation is another one.
  [[nodiscard]] static Node read(Link l, std::uint32_t generation);
  [[nodiscard]] iterator after(const iterator& it) const;
  [[nodiscard]] iterator before(const iterator& it) const;
  iterator add(std::span<const T> xs, std::uint32_t rank, const iterator& at, bool front = false) const;
  std::optional<T> pop(bool front) const;
  static void check_rank(std::uint32_t rank) {
    if (rank >= kasane::ranks()) fail(EINVAL, "kasane::list: there is no rank " + std::to_string(rank));
  }
  void check_mine(const iterator& it) const {
    if (it.link_ != 0 && it.list_.id_ != id_) fail(EINVAL, "kasane::list: the iterator is of another list");
  }
  template <class F>
  void changed(const F& f) const {
    change(&where(home_).part->header, home_, f);
  }
  /// A node, and its generation.
  using Taken = std::pair<Link, std::uint32_t>;
  /// All that follow are called under the lock, in a polling_scope.
  void put_in(ListFields& f, std::uint32_t here, std::span<const T> xs, std::uint32_t rank, Link before,
              Link behind, std::span<Taken> nodes) const;
  /// f(head) changes the links of a node, and its checksum with them.
  template <class F>
  static void change_links(Link l, std::uint32_t here, const F& f) {
    at_rank(rank_of(l), here, [&](auto a) {
      Head h;
      a.read(&h, node_of(l), sizeof h);
      const std::uint32_t before = h.sum();
      f(h);
      h.word ^= before ^ h.sum();
      a.write(node_of(l), &h, sizeof h);
    });
  }
  static void set_link(Link& end, std::uint32_t here, Link l, Link Head::* side, Link to);
  [[nodiscard]] Link take(Pool& pool, ListPart* part, std::uint32_t rank, std::uint32_t here,
                          std::uint32_t& generation) const;
  void unlink(ListFields& f, std::uint32_t here, Link l, Node& n) const;
};

// ---- reading ----------------------------------------------------------------------------------------------

template <class T>
typename List<T>::Node List<T>::get(Link l) {
  Node n;
  for (Backoff wait;; wait.pause()) {
    at_rank(rank_of(l), kasane_rank(), [&](auto a) { a.read(&n, node_of(l), sizeof n); });
    if (static_cast<std::uint32_t>(n.word) == n.sum()) return n;
  }
}

template <class T>
typename List<T>::Node List<T>::read(Link l, std::uint32_t generation) {
  if (l == 0) fail(EINVAL, "kasane::list: the iterator is at the end");
  const Node n = get(l);
  if (n.generation() != generation)
    fail(ESTALE,
         "kasane::list: the iterator's element, at rank " + std::to_string(rank_of(l)) + ", was erased");
  return n;
}

template <class T>
typename List<T>::iterator List<T>::begin() const {
  for (Backoff wait;; wait.pause()) {
    const Link first = look().first;
    if (first == 0) return end();
    const Node n = get(first);
    if (n.generation() % 2 != 0 && n.prev == 0) return iterator(*this, first, n.generation(), n.next);
  }
}

/// A next node that says that `it` is before it is the next one, if `it` is still its element; else the
/// element itself says which that is.
template <class T>
typename List<T>::iterator List<T>::after(const iterator& it) const {
  Link next = it.next_;
  for (Backoff wait;; wait.pause()) {
    if (next != 0) {
      const Node n = get(next);
      if (n.generation() % 2 != 0 && n.prev == it.link_ && is(it))
        return iterator(*this, next, n.generation(), n.next);
    }
    next = read(it.link_, it.generation_).next;
    if (next == 0) return end();
  }
}

template <class T>
std::vector<std::vector<T>> List<T>::copies() const {
  std::vector<std::vector<T>> all(kasane::ranks());
  changed([&]<class A>(A, const ListFields& f) {
    for (auto& of_rank : all) of_rank.clear();
    Node n;
    for (Link l = f.first; l != 0; l = n.next) {
      n = get(l);
      all[rank_of(l)].push_back(n.value);
    }
    return Made::no;
  });
  return all;
}

/// A node before that says that `it` is the next one.
template <class T>
typename List<T>::iterator List<T>::before(const iterator& it) const {
  for (Backoff wait;; wait.pause()) {
    const Link l = it.link_ == 0 ? look().last : read(it.link_, it.generation_).prev;
    if (l == 0) fail(EINVAL, "kasane::list: there is no element before the iterator");
    const Node n = get(l);
    if (n.generation() % 2 != 0 && n.next == it.link_) return iterator(*this, l, n.generation(), n.next);
  }
}

// ---- changing ---------------------------------------------------------------------------------------------

/// Of a node; without one, the list's end on that side.
template <class T>
void List<T>::set_link(Link& end, std::uint32_t here, Link l, Link Head::* side, Link to) {
  if (l == 0)
    end = to;
  else
    change_links(l, here, [side, to](Head& h) { h.*side = to; });
}

/// A node that nothing leads to, and the generation that it had.
template <class T>
typename List<T>::Link List<T>::take(Pool& pool, ListPart* part, std::uint32_t rank, std::uint32_t here,
                                     std::uint32_t& generation) const {
  if (pool.free != 0) {
    const Link l = pool.free;
    Head h;
    at_rank(rank, here, [&](auto a) { a.read(&h, node_of(l), sizeof h); });
    generation = h.generation();
    pool.free = h.next;
    return l;
  }
  const Word n = pool.taken;
  const auto i = static_cast<unsigned>(std::bit_width(n / kFirstPool + 1)) - 1;
  const Word first = kFirstPool * ((Word{1} << i) - 1);
  Word* const segment = &part->pool[i];
  Word base = at_rank(rank, here, [&](auto a) { return a.load(segment); });
  if (base == 0) {
    base = reinterpret_cast<std::uintptr_t>(
        allocate_zeroed((kFirstPool << i) * sizeof(Node), 64, placement::on(rank).fixed()));
    at_rank(rank, here, [&](auto a) { a.store(segment, base); });
  }
  ++pool.taken;
  generation = 0;
  return link(reinterpret_cast<Node*>(base) + (n - first), rank);
}

/// Between two nodes, or at an end.
template <class T>
inline void List<T>::put_in(ListFields& f, std::uint32_t here, std::span<const T> xs, std::uint32_t rank,
                            Link before, Link behind, std::span<Taken> nodes) const {
  ListPart* const part = where(rank).part;
  Pool pool;
  at_rank(rank, here, [&](auto a) { a.read(&pool, &part->free, sizeof pool); });
  for (auto& [l, generation] : nodes) l = take(pool, part, rank, here, generation);  // then nothing fails
  for (std::size_t i = 0; i < xs.size(); ++i) {
    Node n{};
    n.prev = i != 0 ? nodes[i - 1].first : before;
    n.next = i + 1 != xs.size() ? nodes[i + 1].first : behind;
    std::memcpy(static_cast<void*>(&n.value), &xs[i], sizeof(T));
    n.seal(++nodes[i].second);
    at_rank(rank, here, [&](auto a) { a.write(node_of(nodes[i].first), &n, sizeof n); });
  }
  at_rank(rank, here, [&](auto a) { a.write(&part->free, &pool, sizeof pool); });
  set_link(f.first, here, before, &Head::next, nodes.front().first);
  set_link(f.last, here, behind, &Head::prev, nodes.back().first);
  f.count += xs.size();
}

template <class T>
typename List<T>::iterator List<T>::add(std::span<const T> xs, std::uint32_t rank, const iterator& at,
                                        bool front) const {
  check_rank(rank);
  check_mine(at);
  if (xs.empty()) return at;
  Taken one;
  std::vector<Taken> many(xs.size() > 1 ? xs.size() : 0);
  const std::span nodes = many.empty() ? std::span(&one, 1) : std::span(many);
  changed([&]<class A>(A, ListFields& f) {
    const std::uint32_t here = kasane_rank();
    if (front)
      put_in(f, here, xs, rank, 0, f.first, nodes);
    else
      put_in(f, here, xs, rank, at.link_ == 0 ? f.last : read(at.link_, at.generation_).prev, at.link_,
             nodes);
    return Made::yes;
  });
  return iterator(*this, nodes.front().first, nodes.front().second);
}

template <class T>
typename List<T>::iterator List<T>::push_front(const T& x, std::uint32_t rank) const {
  return add(std::span(&x, 1), rank, end(), true);
}

/// Gives the node back; its generation becomes even.
template <class T>
void List<T>::unlink(ListFields& f, std::uint32_t here, Link l, Node& n) const {
  ListPart* const part = where(rank_of(l)).part;
  const Link next = n.next, prev = n.prev;
  n.prev = 0;
  at_rank(rank_of(l), here, [&](auto a) {
    n.next = a.load(&part->free);
    n.seal(n.generation() + 1);
    a.write(node_of(l), static_cast<const Head*>(&n), sizeof(Head));
    a.store(&part->free, l);
  });
  set_link(f.first, here, prev, &Head::next, next);
  set_link(f.last, here, next, &Head::prev, prev);
  --f.count;
}

template <class T>
typename List<T>::iterator List<T>::erase(const iterator& it) const {
  check_mine(it);
  iterator following = end();
  changed([&]<class A>(A, ListFields& f) {
    Node n = read(it.link_, it.generation_);
    const Link next = n.next;
    unlink(f, kasane_rank(), it.link_, n);
    if (next != 0) {
      const Node m = get(next);
      following = iterator(*this, next, m.generation(), m.next);
    }
    return Made::yes;
  });
  return following;
}

template <class T>
std::optional<T> List<T>::pop(bool front) const {
  std::optional<T> x;
  change(
      &where(home_).part->header, home_,
      [&]<class A>(A, ListFields& f) {
        const Link l = front ? f.first : f.last;
        Node n = get(l);
        x = n.value;
        unlink(f, kasane_rank(), l, n);
        return Made::yes;
      },
      [](const ListFields& f) { return f.count != 0; });
  return x;
}

template <class T>
void List<T>::assign(std::span<const T> xs, std::uint32_t rank) {
  check_rank(rank);
  std::vector<Taken> nodes(xs.size());
  const polling_scope keep;
  const std::uint32_t here = kasane_rank();
  Exclusive alone(*this);
  ListFields& f = alone.fields;
  const Word old = f.count;
  if (!xs.empty()) put_in(f, here, xs, rank, f.last, 0, nodes);
  for (Word i = 0; i < old; ++i) {
    const Link l = f.first;
    Node n = get(l);
    unlink(f, here, l, n);
  }
  alone.publish();
}

template <class T>
template <class Less>
void List<T>::sort(Less less) {
  const polling_scope keep;
  const std::uint32_t here = kasane_rank();
  Exclusive alone(*this);
  std::vector<std::pair<Link, Node>> all;
  for (Link l = alone.fields.first; l != 0; l = all.back().second.next) all.emplace_back(l, get(l));
  if (all.empty()) return;
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return less(a.second.value, b.second.value); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    change_links(all[i].first, here, [&](Head& h) {
      h.prev = i != 0 ? all[i - 1].first : 0;
      h.next = i + 1 != all.size() ? all[i + 1].first : 0;
    });
  }
  alone.fields.first = all.front().first;
  alone.fields.last = all.back().first;
  alone.publish();
}

// ---- making -----------------------------------------------------------------------------------------------

template <class T>
void List<T>::make(std::uint32_t home) {
  if (home >= kasane::ranks()) fail(EINVAL, "kasane::list: there is no rank " + std::to_string(home));
  if (kasane::ranks() > 65535) fail(EINVAL, "kasane::list: of at most 65535 ranks");
  home_ = home;
  try {
    make_parts({}, 1, [](std::uint32_t, ListPart* part, std::uint32_t) { part->header.start(); });
  } catch (...) {
    destroy();
    throw;
  }
}

template <class T>
void List<T>::destroy() {
  free_parts([](std::uint32_t, ListPart* part) {
    for (Word& segment : part->pool) deallocate(reinterpret_cast<void*>(Far::load(&segment)));
  });
}

}  // namespace detail::containers

/// See above. The object owns the list; a handle only names it.
template <class T>
class list : public detail::containers::Owner<detail::containers::List<T>> {
 public:
  /// Its ends are at this rank, and elements that are given no other one.
  explicit list(std::uint32_t rank = kasane::rank()) : list::Owner(rank) {}
};

/// Calls f(x) with copies of all elements as they are at one time, at the ranks where they lie; f may
/// post and fork. On a thread.
template <class T, class F>
void for_each(const detail::containers::List<T>& c, F f) {
  detail::containers::at_owners(c, c.copies(), f);
}

/// combine() of map(x) over all elements as they are at one time, computed where they lie. combine is
/// associative and commutative, and leaves what it combines with `identity` as it is. On a thread.
template <class T, class R, class Map, class Combine>
[[nodiscard]] R reduce(const detail::containers::List<T>& c, R identity, Map map, Combine combine) {
  return detail::containers::reduce_at_owners(c, c.copies(), std::move(identity), map, combine);
}

}  // namespace kasane
