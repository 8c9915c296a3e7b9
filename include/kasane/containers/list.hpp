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
#include <kasane/containers/bytes.hpp>
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
template <class Type>
class List : public Parts<ListPart> {
  static_assert(sizeof(Holds<Type>) != 0);
  static constexpr std::size_t kAlign = Holds<Type>::kAlign;

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
    Bytes<Type> value;
    [[nodiscard]] std::uint32_t sum() const noexcept {
      return Head::sum() ^ bucket::folded(bucket::mix(1, value.of, sizeof value));
    }
    void seal(std::uint32_t generation) noexcept { this->word = Word{generation} << 32 | sum(); }
    /// Its bytes belong together.
    [[nodiscard]] bool whole() const noexcept { return static_cast<std::uint32_t>(this->word) == sum(); }
    /// An element, behind the one at `l`.
    [[nodiscard]] bool follows(Link l) const noexcept {
      return this->generation() % 2 != 0 && this->prev == l;
    }
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
  using value_type = Type;

  class iterator {
   public:
    using value_type = Type;
    using difference_type = std::ptrdiff_t;
    iterator() noexcept = default;
    /// A copy.
    [[nodiscard]] Type operator*() const {
      if (!list_.is(*this)) list_.no_element(*this);
      return value_.object();
    }
    iterator& operator++() {
      if (!list_.step_near(*this)) *this = list_.after(*this);
      return *this;
    }
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
    explicit iterator(const List& l) : list_(l) {}
    iterator(const List& l, Link link, std::uint32_t generation, const Bytes<Type>& value, Link next = 0)
        : list_(l), generation_(generation), link_(link), next_(next), value_(value) {}
    iterator(const List& l, Link link, const Node& n) : iterator(l, link, n.generation(), n.value, n.next) {}
    [[no_unique_address]] List list_;
    std::uint32_t generation_ = 0;
    Link link_ = 0, next_ = 0;  ///< next_: when it was made
    Bytes<Type> value_{};       ///< an element's does not change
  };

  [[nodiscard]] iterator begin() const;
  [[nodiscard]] iterator end() const noexcept { return iterator(*this); }

  /// The element lies at `rank`; without one, at the list's. Returns where it is.
  iterator push_back(const Type& x, std::uint32_t rank) const { return add(std::span(&x, 1), rank, end()); }
  iterator push_back(const Type& x) const { return push_back(x, home_); }
  iterator push_front(const Type& x, std::uint32_t rank) const;
  iterator push_front(const Type& x) const { return push_front(x, home_); }
  /// Before `it`.
  iterator insert(const iterator& it, const Type& x, std::uint32_t rank) const {
    return add(std::span(&x, 1), rank, it);
  }
  /// Together, at the end. Returns where the first is.
  iterator append(std::span<const Type> xs, std::uint32_t rank) const { return add(xs, rank, end()); }
  /// Returns the one behind it.
  iterator erase(const iterator& it) const;
  /// Empty: there is none.
  std::optional<Type> pop_front() const { return pop(true); }
  std::optional<Type> pop_back() const { return pop(false); }

  [[nodiscard]] std::size_t size() const { return look().count; }
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// All elements as they are at one time, in their order: of each rank of the job.
  [[nodiscard]] std::vector<std::vector<Bytes<Type>>> copies() const;

  /// Exclusive.
  void assign(std::span<const Type> xs, std::uint32_t rank);
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
  /// Of them, the one that was read last.
  struct Segment {
    unsigned index = kPools;
    Word base = 0;
  };

  [[nodiscard]] ListFields look() const {
    return Header<ListFields>::look(&where(home_).part->header, home_).fields;
  }
  /// here: the rank of the caller, which does not change in a polling_scope.
  template <class Function>
  static decltype(auto) at_rank(std::uint32_t rank, std::uint32_t here, const Function& f) {
    if (rank == here) return f(Near{});
    return f(Far{});
  }
  /// False: others change it.
  [[nodiscard]] static bool try_get(Link l, std::uint32_t here, Node& n) {
    at_rank(rank_of(l), here, [&](auto a) { a.read(&n, node_of(l), sizeof n); });
    return n.whole();
  }
  [[nodiscard]] static Node get(Link l);
  /// The same in a polling_scope.
  [[nodiscard]] static Node get(Link l, std::uint32_t here);
  /// The element is there.
  template <class Access>
  [[nodiscard]] static bool is(Access a, const iterator& it) {
    return a.load(&node_of(it.link_)->word) >> 32 == it.generation_;
  }
  [[nodiscard]] static bool is(const iterator& it) {
    return it.link_ != 0 && at_rank(rank_of(it.link_), kasane_rank(), [&it](auto a) { return is(a, it); });
  }
  [[noreturn, gnu::cold, gnu::noinline]] static void no_element(const iterator& it) {
    if (it.link_ == 0) fail(EINVAL, "kasane::list: the iterator is at the end");
    fail(ESTALE,
         "kasane::list: the iterator's element, at rank " + std::to_string(it.rank()) + ", was erased");
  }
  [[nodiscard]] static bool step_near(iterator& it);
  /// The elements beside it, before the lock: behind that a processor begins no access.
  static void prefetch_near(const iterator& it) {
    if (it.link_ == 0 || it.rank() != kasane_rank()) return;
    const Node* const n = node_of(it.link_);
    __builtin_prefetch(node_of(Near::load(&n->prev)), 1);
    __builtin_prefetch(node_of(Near::load(&n->next)), 1);
  }
  /// The node; throws where its generation is another one.
  [[nodiscard]] static Node read(const iterator& it);
  [[nodiscard]] static Node read(const iterator& it, std::uint32_t here) {
    if (it.link_ == 0) no_element(it);
    return checked(it, get(it.link_, here));
  }
  [[nodiscard]] static const Node& checked(const iterator& it, const Node& n) {
    if (n.generation() != it.generation_) no_element(it);
    return n;
  }
  [[nodiscard]] iterator after(const iterator& it) const;
  [[nodiscard]] iterator before(const iterator& it) const;
  iterator add(std::span<const Type> xs, std::uint32_t rank, const iterator& at, bool front = false) const;
  std::optional<Type> pop(bool front) const;
  static void check_rank(std::uint32_t rank) {
    if (rank >= kasane::ranks()) fail(EINVAL, "kasane::list: there is no rank " + std::to_string(rank));
  }
  void check_mine(const iterator& it) const {
    if (it.link_ != 0 && it.list_.id_ != id_) fail(EINVAL, "kasane::list: the iterator is of another list");
  }
  template <class Function>
  void changed(const Function& f) const {
    change(&where(home_).part->header, home_, f);
  }
  /// A node, and its generation.
  using Taken = std::pair<Link, std::uint32_t>;
  /// All that follow are called under the lock, in a polling_scope.
  void put_in(ListFields& f, std::uint32_t here, std::span<const Type> xs, std::uint32_t rank, Link before,
              Link behind, std::span<Taken> nodes) const;
  /// One of the links of a node, and its checksum; without a node the list's end. n: as it was read, if it is
  /// not at this rank. Kept: Head or Node.
  template <class Kept>
  static void set_link(Together& accesses, Link& end, Link l, Kept& n, Link Head::* side, Link to);
  [[nodiscard]] Link take(Pool& pool, Segment& segment, ListPart* part, std::uint32_t rank,
                          std::uint32_t here, std::uint32_t& generation) const;
  /// behind: becomes what is behind it, if there is one.
  template <class Kept>
  void unlink(ListFields& f, std::uint32_t here, Link l, Node& n, Kept& behind) const;
};

// ---- reading ----------------------------------------------------------------------------------------------

template <class Type>
typename List<Type>::Node List<Type>::get(Link l) {
  Node n;
  for (Backoff wait; !try_get(l, kasane_rank(), n);) wait.pause();
  return n;
}
template <class Type>
typename List<Type>::Node List<Type>::get(Link l, std::uint32_t here) {
  Node n;
  for (Backoff wait; !try_get(l, here, n);) wait.pause();
  return n;
}

template <class Type>
typename List<Type>::Node List<Type>::read(const iterator& it) {
  if (it.link_ == 0) no_element(it);
  return checked(it, get(it.link_));
}

template <class Type>
typename List<Type>::iterator List<Type>::begin() const {
  for (Backoff wait;; wait.pause()) {
    const Link first = look().first;
    if (first == 0) return end();
    const Node n = get(first);
    if (n.follows(0)) return iterator(*this, first, n);
  }
}

/// A next node that says that `it` is before it is the next one, if `it` is still its element and says so,
/// too; the two are read together. At first the next one is looked for where it was.
template <class Type>
typename List<Type>::iterator List<Type>::after(const iterator& it) const {
  if (it.link_ == 0) no_element(it);
  Link next = it.next_;
  for (Backoff wait;; wait.pause()) {
    Node own, n;
    Together reads(kasane_rank());
    if (next != 0) reads.read(rank_of(next), &n, node_of(next), sizeof n);
    reads.read(it.rank(), &own, node_of(it.link_), sizeof own);
    reads.wait();
    if (!own.whole()) continue;
    if (own.generation() != it.generation_) no_element(it);
    if (next != 0 && next == own.next && n.whole() && n.follows(it.link_)) return iterator(*this, next, n);
    next = own.next;
    if (next == 0) return end();
  }
}

/// The same, where both are at the thread's rank. False: nothing has happened.
template <class Type>
inline bool List<Type>::step_near(iterator& it) {
  const std::uint32_t here = kasane_rank();
  if (it.next_ == 0 || rank_of(it.next_) != here || rank_of(it.link_) != here) return false;
  Node n;
  Near::read(&n, node_of(it.next_), sizeof n);
  if (!n.whole() || !n.follows(it.link_) || !is(Near{}, it)) return false;
  it.link_ = std::exchange(it.next_, n.next);
  it.generation_ = n.generation();
  it.value_ = n.value;
  return true;
}

template <class Type>
std::vector<std::vector<Bytes<Type>>> List<Type>::copies() const {
  std::vector<std::vector<Bytes<Type>>> all(kasane::ranks());
  changed([&]<class Access>(Access, const ListFields& f) {
    const std::uint32_t here = kasane_rank();
    for (auto& of_rank : all) of_rank.clear();
    Node n;
    for (Link l = f.first; l != 0; l = n.next) {
      n = get(l, here);
      all[rank_of(l)].push_back(n.value);
    }
    return Made::no;
  });
  return all;
}

/// A node before that says that `it` is the next one.
template <class Type>
typename List<Type>::iterator List<Type>::before(const iterator& it) const {
  for (Backoff wait;; wait.pause()) {
    const Link l = it.link_ == 0 ? look().last : read(it).prev;
    if (l == 0) fail(EINVAL, "kasane::list: there is no element before the iterator");
    const Node n = get(l);
    if (n.generation() % 2 != 0 && n.next == it.link_) return iterator(*this, l, n);
  }
}

// ---- changing ---------------------------------------------------------------------------------------------

template <class Type>
template <class Kept>
inline void List<Type>::set_link(Together& accesses, Link& end, Link l, Kept& n, Link Head::* side, Link to) {
  if (l == 0) {
    end = to;
    return;
  }
  accesses.read_near(rank_of(l), &n, node_of(l), sizeof n);
  Head& h = n;
  const std::uint32_t before = h.sum();
  h.*side = to;
  h.word ^= before ^ h.sum();
  accesses.write(rank_of(l), node_of(l), &h, sizeof h);
}

/// A node that nothing leads to, and the generation that it had.
template <class Type>
typename List<Type>::Link List<Type>::take(Pool& pool, Segment& segment, ListPart* part, std::uint32_t rank,
                                           std::uint32_t here, std::uint32_t& generation) const {
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
  if (segment.index != i) {
    Word* const at = &part->pool[i];
    segment = {i, at_rank(rank, here, [&](auto a) { return a.load(at); })};
    if (segment.base == 0) {
      segment.base = reinterpret_cast<std::uintptr_t>(
          allocate_zeroed((kFirstPool << i) * sizeof(Node), kAlign, placement::on(rank).fixed()));
      at_rank(rank, here, [&](auto a) { a.store(at, segment.base); });
    }
  }
  ++pool.taken;
  generation = 0;
  return link(reinterpret_cast<Node*>(segment.base) + (n - first), rank);
}

/// Between two nodes, or at an end. Those who walk meanwhile may follow a link to a node that is not written:
/// it is no element, or its checksum is wrong.
template <class Type>
inline void List<Type>::put_in(ListFields& f, std::uint32_t here, std::span<const Type> xs,
                               std::uint32_t rank, Link before, Link behind, std::span<Taken> nodes) const {
  ListPart* const part = where(rank).part;
  Together accesses(here);
  Pool pool;
  Head ahead{}, following{};
  accesses.read(rank, &pool, &part->free, sizeof pool);
  if (before != 0) accesses.read_far(rank_of(before), &ahead, node_of(before), sizeof ahead);
  if (behind != 0) accesses.read_far(rank_of(behind), &following, node_of(behind), sizeof following);
  accesses.wait();
  Segment segment;
  for (auto& [l, generation] : nodes)
    l = take(pool, segment, part, rank, here, generation);  // then nothing fails
  for (std::size_t i = 0; i < xs.size(); ++i) {
    Node n{};
    n.prev = i != 0 ? nodes[i - 1].first : before;
    n.next = i + 1 != xs.size() ? nodes[i + 1].first : behind;
    n.value = Bytes<Type>(xs[i]);
    n.seal(++nodes[i].second);
    accesses.write(rank, node_of(nodes[i].first), &n, sizeof n);
  }
  accesses.write(rank, &part->free, &pool, sizeof pool);
  set_link(accesses, f.first, before, ahead, &Head::next, nodes.front().first);
  set_link(accesses, f.last, behind, following, &Head::prev, nodes.back().first);
  accesses.wait();
  f.count += xs.size();
}

template <class Type>
typename List<Type>::iterator List<Type>::add(std::span<const Type> xs, std::uint32_t rank,
                                              const iterator& at, bool front) const {
  check_rank(rank);
  check_mine(at);
  if (xs.empty()) return at;
  Taken one;
  std::vector<Taken> many(xs.size() > 1 ? xs.size() : 0);
  const std::span nodes = many.empty() ? std::span(&one, 1) : std::span(many);
  changed([&]<class Access>(Access, ListFields& f) {
    const std::uint32_t here = kasane_rank();
    if (front)
      put_in(f, here, xs, rank, 0, f.first, nodes);
    else
      put_in(f, here, xs, rank, at.link_ == 0 ? f.last : read(at, here).prev, at.link_, nodes);
    return Made::yes;
  });
  return iterator(*this, nodes.front().first, nodes.front().second, Bytes<Type>(xs.front()));
}

template <class Type>
typename List<Type>::iterator List<Type>::push_front(const Type& x, std::uint32_t rank) const {
  return add(std::span(&x, 1), rank, end(), true);
}

/// Gives the node back; its generation becomes even.
template <class Type>
template <class Kept>
inline void List<Type>::unlink(ListFields& f, std::uint32_t here, Link l, Node& n, Kept& behind) const {
  const std::uint32_t rank = rank_of(l);
  Word* const free = &where(rank).part->free;
  const Link next = n.next, prev = n.prev;
  Head ahead{};
  Together accesses(here);
  accesses.read(rank, &n.next, free, sizeof n.next);
  if (prev != 0) accesses.read_far(rank_of(prev), &ahead, node_of(prev), sizeof ahead);
  if (next != 0) accesses.read_far(rank_of(next), &behind, node_of(next), sizeof behind);
  accesses.wait();
  n.prev = 0;
  n.seal(n.generation() + 1);
  accesses.write(rank, node_of(l), static_cast<const Head*>(&n), sizeof(Head));
  accesses.write(rank, free, &l, sizeof l);
  set_link(accesses, f.first, prev, ahead, &Head::next, next);
  set_link(accesses, f.last, next, behind, &Head::prev, prev);
  accesses.wait();
  --f.count;
}

template <class Type>
typename List<Type>::iterator List<Type>::erase(const iterator& it) const {
  check_mine(it);
  iterator following = end();
  prefetch_near(it);
  changed([&]<class Access>(Access, ListFields& f) {
    const std::uint32_t here = kasane_rank();
    Node n = read(it, here), behind;
    const Link next = n.next;
    unlink(f, here, it.link_, n, behind);
    if (next != 0) following = iterator(*this, next, behind);
    return Made::yes;
  });
  return following;
}

template <class Type>
std::optional<Type> List<Type>::pop(bool front) const {
  std::optional<Type> x;
  change(
      &where(home_).part->header, home_,
      [&]<class Access>(Access, ListFields& f) {
        const Link l = front ? f.first : f.last;
        const std::uint32_t here = kasane_rank();
        Node n = get(l, here);
        x.emplace(n.value.object());
        Head behind;
        unlink(f, here, l, n, behind);
        return Made::yes;
      },
      [](const ListFields& f) { return f.count != 0; });
  return x;
}

template <class Type>
void List<Type>::assign(std::span<const Type> xs, std::uint32_t rank) {
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
    Node n = get(l, here);
    Head behind;
    unlink(f, here, l, n, behind);
  }
  alone.publish();
}

template <class Type>
template <class Less>
void List<Type>::sort(Less less) {
  const polling_scope keep;
  const std::uint32_t here = kasane_rank();
  Exclusive alone(*this);
  std::vector<std::pair<Link, Node>> all;
  for (Link l = alone.fields.first; l != 0; l = all.back().second.next) all.emplace_back(l, get(l, here));
  if (all.empty()) return;
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return less(a.second.value.object(), b.second.value.object());
  });
  Together accesses(here);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Node& n = all[i].second;
    n.prev = i != 0 ? all[i - 1].first : 0;
    n.next = i + 1 != all.size() ? all[i + 1].first : 0;
    n.seal(n.generation());
    accesses.write(rank_of(all[i].first), node_of(all[i].first), static_cast<const Head*>(&n), sizeof(Head));
  }
  accesses.wait();
  alone.fields.first = all.front().first;
  alone.fields.last = all.back().first;
  alone.publish();
}

// ---- making -----------------------------------------------------------------------------------------------

template <class Type>
void List<Type>::make(std::uint32_t home) {
  if (home >= kasane::ranks()) fail(EINVAL, "kasane::list: there is no rank " + std::to_string(home));
  if (kasane::ranks() > 65535) fail(EINVAL, "kasane::list: of at most 65535 ranks");
  home_ = home;
  make_parts(
      {}, 1, [](std::uint32_t, ListPart* part, std::uint32_t) { part->header.start(); },
      [this] { destroy(); });
}

template <class Type>
void List<Type>::destroy() {
  free_parts([](std::uint32_t, ListPart* part) {
    for (Word& segment : part->pool) deallocate(reinterpret_cast<void*>(Far::load(&segment)));
  });
}

}  // namespace detail::containers

/// See above. The object owns the list; a handle only names it.
template <class Type>
class list : public detail::containers::Owner<detail::containers::List<Type>> {
 public:
  /// Its ends are at this rank, and elements that are given no other one.
  explicit list(std::uint32_t rank = kasane::rank()) : list::Owner(rank) {}
};

}  // namespace kasane
