// SPDX-License-Identifier: Apache-2.0
// Weakly connected components by Afforest (M. Sutton, T. Ben-Nun, A. Barak, 2018): each rank has a forest,
// into which it links its own vertices; the first neighbour of each, then the others of those vertices that
// are not in the largest tree. Other ranks' vertices are in it where an edge of an own one leads there:
// *touched*. Between these, and at the end, the forests are merged: a rank tells the others the roots of the
// vertices that it has touched, and then those of its own vertices that others have touched. With these links
// all forests agree on the roots, which are the least places of their trees.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <memory>
#include <unordered_map>

#include "graph/beyond_dram.h"
#include "graph/complaints.h"
#include "graph/layout.h"
#include "graph/member_part.h"
#include "graph/sums.h"

namespace kasane::graph {

namespace detail {
namespace {

constexpr std::size_t kMergedAtOnce = 16384;
constexpr std::uint32_t kSamples = 1024;

/// A forest: each place's parent has a smaller number, or is the place itself. Members of a rank link at
/// once.
class Forest {
 public:
  explicit Forest(vertex* parent) noexcept : parent_(parent) {}

  [[nodiscard]] vertex parent(vertex v) const noexcept { return at(v).load(std::memory_order_relaxed); }
  void link(vertex u, vertex v) const noexcept {
    vertex a = parent(u), b = parent(v);
    while (a != b) {
      const vertex high = std::max(a, b), low = std::min(a, b);
      vertex above = parent(high);
      if (above == low) return;
      // Only a root is linked, so nothing is lost. Forests carry no data: relaxed.
      if (above == high && at(high).compare_exchange_strong(above, low, std::memory_order_relaxed)) return;
      a = parent(parent(high));
      b = parent(low);
    }
  }
  /// Afterwards the parent of v is the root, unless others link meanwhile.
  void compress(vertex v) const noexcept {
    for (vertex p = parent(v), q = parent(p); p != q; p = q, q = parent(p))
      at(v).store(q, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] std::atomic_ref<vertex> at(vertex v) const noexcept {
    return std::atomic_ref<vertex>(parent_[v]);
  }
  vertex* parent_;
};

/// A link that a rank tells the others.
struct Link {
  vertex place, root;
};
/// What a rank tells the others.
struct Told {
  std::uint64_t links[2];  ///< where those of touched vertices, and then of its own, end in its list
  vertex largest;          ///< the root that most of some of its vertices have,
  std::uint32_t of_these;  ///< and how many of them
};

struct Joining {
  Layout l;
  vertex* const* forests;         ///< of each rank
  std::uint64_t* const* touched;  ///< of each rank: bits of places
  Link* const* links;             ///< of each rank
  Told* const* told;
  Link* const* buffers;  ///< of each rank: of its members, kMergedAtOnce
  Sums<std::uint64_t, 1>* sums;
  vertex* labels;
  std::uint64_t* count;
};

class Joiner : MemberPart {
 public:
  Joiner(const Joining& j, member& me) noexcept
      : MemberPart(j.l, me),
        j_(j),
        forest_(j.forests[me.rank()]),
        touched_(j.touched[me.rank()]),
        told_(*j.told[me.rank()]) {}

  void run() {
    vertex* const all = j_.forests[me_.rank()];
    deal(l_.places(), [&](std::size_t v) { all[v] = static_cast<vertex>(v); });
    if (l_.ranks > 1) deal(std::size_t{l_.ranks} * l_.words(), [&](std::size_t word) { touched_[word] = 0; });
    deal(l_.block, [&](std::size_t row) {
      if (part_.first[row] != no_vertex) link(row, part_.first[row]);
    });
    compress();
    merge();
    Told largest = find_largest();
    // Where first neighbours do not join most, second ones do.
    if (largest.of_these < kSamples / 2) {
      deal(l_.block, [&](std::size_t row) {
        if (part_.in.degree(row) > 1) link(row, part_.in.ids[part_.in.start[row] + 1]);
      });
      compress();
      merge();
      largest = find_largest();
    }
    deal(l_.block, [&](std::size_t row) {
      if (forest_.parent(place(row)) == largest.largest) return;
      link_all(part_.in, row, 1);
      if (!l_.symmetric) link_all(part_.out, row, 0);
    });
    merge();
    compress();
    label();
  }

 private:
  /// f(i) for 0 to n - 1, by the members of the rank.
  template <class F>
  void deal(std::size_t n, F&& f) {
    me_.deal(0, n, kChunk, [&](std::size_t i, std::size_t end) {
      for (; i < end; ++i) f(i);
    });
    me_.wait_here();
  }
  [[nodiscard]] vertex place(std::size_t row) const noexcept { return base_ + static_cast<vertex>(row); }
  [[nodiscard]] bool is_own(vertex v) const noexcept { return v - base_ < l_.block; }

  void link(std::size_t row, vertex to) const noexcept {
    forest_.link(place(row), to);
    if (!is_own(to)) touch(to);
  }
  void link_all(const Rows& rows, std::size_t row, unsigned from) const noexcept {
    for (std::uint64_t i = rows.start[row] + from; i < rows.start[row + 1]; ++i) link(row, rows.ids[i]);
  }
  void touch(vertex v) const noexcept {
    const std::atomic_ref<std::uint64_t> word(touched_[v / kBits]);  // wait_here() orders
    const std::uint64_t mask = std::uint64_t{1} << v % kBits;
    if ((word.load(std::memory_order_relaxed) & mask) == 0) word.fetch_or(mask, std::memory_order_relaxed);
  }
  /// f(vertex) for other ranks' vertices that this one has touched, or its own that others have.
  template <class F>
  void each_touched(bool own, F&& f) {
    const std::size_t first = base_ / kBits, last = first + l_.words();
    deal(l_.ranks > 1 ? std::size_t{l_.ranks} * l_.words() : 0, [&](std::size_t word) {
      if ((word >= first && word < last) != own) return;
      for (std::uint64_t bits = touched_[word]; bits != 0; bits &= bits - 1)
        f(static_cast<vertex>(word * kBits + static_cast<unsigned>(__builtin_ctzll(bits))));
    });
  }
  void compress() {
    each_touched(false, [&](vertex v) { forest_.compress(v); });
    deal(l_.block, [&](std::size_t row) { forest_.compress(place(row)); });
  }

  /// All forests have the same roots.
  void merge() {
    if (l_.ranks == 1) return;
    if (me_.rank_index() == 0) told_.links[0] = told_.links[1] = 0;
    me_.wait_here();
    tell(0);
    listen(0);
    if (me_.rank_index() == 0) told_.links[1] = told_.links[0];
    me_.wait_here();
    tell(1);
    listen(1);
    compress();
  }
  void tell(int turn) {
    Link* const links = j_.links[me_.rank()];
    const std::atomic_ref<std::uint64_t> end(told_.links[turn]);  // a wait orders
    each_touched(turn == 1, [&](vertex v) {
      forest_.compress(v);
      links[end.fetch_add(1, std::memory_order_relaxed)] = {v, forest_.parent(v)};
    });
    me_.wait();
  }
  void listen(int turn) {
    Link* const buffer = j_.buffers[me_.rank()] + me_.rank_index() * kMergedAtOnce;
    for (std::uint32_t r = 0; r < l_.ranks; ++r) {
      if (r == me_.rank()) continue;
      std::uint64_t links[2];
      fetch(links, j_.told[r]->links, 2);
      const std::uint64_t begin = turn == 0 ? 0 : links[0];
      me_.deal(begin, turn == 0 ? links[0] : links[1], kMergedAtOnce,
               [&](std::size_t first, std::size_t last) {
                 fetch(buffer, j_.links[r] + first, last - first);
                 for (std::size_t i = 0; i < last - first; ++i) {
                   forest_.link(buffer[i].place, buffer[i].root);
                   touch(buffer[i].place);
                 }
               });
    }
    me_.wait_here();
  }

  /// The root that most of some vertices of a rank have, and how many of these: that of the rank with most.
  [[nodiscard]] Told find_largest() {
    if (me_.rank_index() == 0) {
      std::unordered_map<vertex, std::uint32_t> counts;
      const auto empty = static_cast<std::size_t>(
          std::find_if(part_.first, part_.first + l_.block, [](vertex v) { return v != no_vertex; }) -
          part_.first);
      std::uint32_t random = 12345;
      told_.of_these = 0, told_.largest = no_vertex;
      for (std::uint32_t i = 0; i < kSamples && empty < l_.block; ++i) {
        random = random * 1664525 + 1013904223;
        const vertex root = forest_.parent(place(empty + (std::uint64_t{random} * (l_.block - empty) >> 32)));
        if (const std::uint32_t n = ++counts[root]; n > told_.of_these)
          told_.of_these = n, told_.largest = root;
      }
    }
    me_.wait();
    Told best{};
    for (std::uint32_t r = 0; r < l_.ranks; ++r) {
      Told one;
      fetch(&one, j_.told[r]);
      if (r == 0 || one.of_these > best.of_these) best = one;
    }
    return best;
  }

  void label() {
    std::uint64_t roots = 0;
    deal(l_.block, [&](std::size_t row) {
      const vertex caller = part_.caller[row];
      if (caller == no_vertex) return;
      const vertex root = forest_.parent(base_ + static_cast<vertex>(row));
      roots += root == base_ + row;
      j_.labels[caller] = l_.caller_of(root);
    });
    Sums<std::uint64_t, 1>::Turn turn;
    j_.sums->put(me_, turn, {roots});
    me_.wait();
    const auto sum = j_.sums->of_all(me_, turn);
    if (me_.index() == 0) *j_.count = sum[0];
  }

  const Joining& j_;
  const Forest forest_;
  std::uint64_t* const touched_;
  Told& told_;
};

/// Counts components by one thread.
[[nodiscard]] std::uint64_t count_components(const Layout& l) {
  std::vector<vertex> parent(l.places());
  for (vertex v = 0; v < l.places(); ++v) parent[v] = v;
  const auto root = [&](vertex v) {
    while (parent[v] != v) v = parent[v] = parent[parent[v]];
    return v;
  };
  std::uint64_t count = l.vertices;
  std::vector<vertex> ids;
  std::vector<std::uint64_t> start(l.block + 1);
  for (std::uint32_t r = 0; r < l.ranks; ++r) {
    const Rows& rows = l.parts[r].in;
    kasane::get(start.data(), rows.start, start.size());
    for (std::uint32_t row = 0; row < l.block; ++row) {
      ids.resize(start[row + 1] - start[row]);
      if (ids.empty()) continue;
      kasane::get(ids.data(), rows.ids + start[row], ids.size());
      for (const vertex v : ids) {
        const vertex a = root(l.first_of(r) + row), b = root(v);
        if (a != b) parent[std::max(a, b)] = std::min(a, b), --count;
      }
    }
  }
  return count;
}

/// Edges join vertices of the same label, and a label is a vertex that has it.
void check_labels(const Layout& l, const vertex* labels, const Complaints& complaints, member& me) {
  const Part& part = l.parts[me.rank()];
  me.deal(0, l.block, kChunk, [&](std::size_t row, std::size_t end) {
    for (; row < end && !complaints.has(me); ++row) {
      const vertex v = part.caller[row];
      if (v == no_vertex) continue;
      if (labels[v] >= l.vertices || labels[labels[v]] != labels[v])
        complaints.add(me, "the label of %u, %u, is no vertex with that label", v, labels[v]);
      for (std::uint64_t i = part.in.start[row]; i < part.in.start[row + 1]; ++i) {
        const vertex u = l.caller_of(part.in.ids[i]);
        if (labels[u] != labels[v])
          complaints.add(me, "there is an edge from %u, labelled %u, to %u, labelled %u", u, labels[u], v,
                         labels[v]);
      }
    }
  });
}

}  // namespace

[[nodiscard]] component_labels join(const Layout& l) {
  component_labels result;
  result.label = for_vertices<vertex>(l);
  if (l.vertices == 0) return result;
  const std::uint32_t others = l.ranks > 1 ? l.places() : 0;
  const AtRanks<vertex> forests(l.ranks, l.places());
  const AtRanks<std::uint64_t> touched(l.ranks, others / kBits);
  const AtRanks<Link> links(l.ranks, others), buffers(l.ranks, others != 0 ? workers() * kMergedAtOnce : 0);
  const AtRanks<Told> told(l.ranks, 1);
  const auto sums = std::make_unique<Sums<std::uint64_t, 1>>(l.ranks, workers());
  const Joining j{l,          forests.get(),      touched.get(), links.get(), told.get(), buffers.get(),
                  sums.get(), result.label.get(), &result.count};
  Held held(l);
  for (std::uint32_t r = 0; r < l.ranks; ++r) {
    held.hold(r, forests.get()[r], l.places());
    held.hold(r, result.label.get() + l.first_of(r), l.size_of(r));
  }
  team([j](member& me) { Joiner(j, me).run(); });
  return result;
}

[[nodiscard]] std::string check_join(const Layout& l, const component_labels& c) {
  if (l.vertices != 0 && c.label == nullptr) return "there are no labels";
  if (l.vertices == 0)
    return c.count == 0 ? "" : "the result says " + std::to_string(c.count) + " components of no vertex";
  const Complaints complaints(std::size_t{ranks()} * workers());
  team([&](member& me) { check_labels(l, c.label.get(), complaints, me); });
  std::string wrong = complaints.first();
  std::uint64_t labels = 0;
  for (std::uint64_t v = 0; v < l.vertices && wrong.empty(); ++v) labels += c.label[v] == v;
  if (!wrong.empty()) return wrong;
  if (labels != c.count)
    return "there are " + std::to_string(labels) + " labels; the result says " + std::to_string(c.count);
  const std::uint64_t count = count_components(l);
  return labels == count
             ? wrong
             : "there are " + std::to_string(labels) + " labels for " + std::to_string(count) + " components";
}

}  // namespace detail

template <weight W>
component_labels components(const csr<W>& g) {
  return detail::join(g.layout());
}
template <weight W>
std::string check_components(const csr<W>& g, const component_labels& c) {
  return detail::check_join(g.layout(), c);
}
template component_labels components(const csr<void>&);
template component_labels components(const csr<std::int32_t>&);
template component_labels components(const csr<float>&);
template std::string check_components(const csr<void>&, const component_labels&);
template std::string check_components(const csr<std::int32_t>&, const component_labels&);
template std::string check_components(const csr<float>&, const component_labels&);

}  // namespace kasane::graph
