// SPDX-License-Identifier: Apache-2.0
// A tree of shortest paths from their distances: the parent of a vertex is one whose distance and edge make
// up its own. One with a smaller distance will do at once. Where there is none, edges of weight 0 (or so
// small that a float does not show them) lead to the vertex: then the parent is one that has got a parent in
// an earlier round, so that no circle arises.
//
// The check follows Graph500's rules: those for distances (sssp.cpp); the parents form a tree; a vertex and
// its parent are joined by an edge that makes up the difference of their distances.
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <memory>
#include <string>
#include <vector>

#include "graph/complaints.h"
#include "graph/layout.h"
#include "graph/member_part.h"
#include "graph/sums.h"
#include "graph/tree_levels.h"

namespace kasane::graph {

namespace detail {
namespace {

template <class W>
struct PathTree {
  Layout l;
  vertex root;
  const W* result_length;
  W* const* length;             ///< of each rank: of all places
  std::uint64_t* const* known;  ///< of each rank: bits of all places that have a parent
  Sums<std::uint64_t, 1>* sums;
  vertex* result;
};

/// Whether an edge of that weight from `u` makes `v` as long as it is.
template <class W>
[[nodiscard]] bool makes(W u, W weight, W v) noexcept {
  if (u == unreached<W>) return false;
  if constexpr (std::is_integral_v<W>)
    return std::int64_t{u} + weight == v;
  else
    return u + weight == v;
}

template <class W>
class ParentFinder : MemberPart {
 public:
  ParentFinder(const PathTree<W>& t, member& me) noexcept
      : MemberPart(t.l, me),
        t_(t),
        weights_(part_.in.template weights_of<W>()),
        length_(t.length[me.rank()]),
        known_(t.known[me.rank()]) {}

  void run() {
    gather_lengths();
    // A member has whole words of its rank's bits.
    const auto [first, last] = me_.part_here(0, l_.block, kBits);
    for (std::size_t row = first; row < last; ++row) begin(static_cast<vertex>(row));
    while (all_left() != 0) {
      std::vector<vertex> found;
      std::erase_if(left_, [&](vertex row) {
        const bool has = take_known(row);
        if (has) found.push_back(row);
        return has;
      });
      me_.wait();  // nobody reads this round's bits any more
      for (const vertex row : found) set_bit(known_, base_ + row);
      if (!change(found.size())) return;
      gather_bits();
    }
  }

 private:
  void gather_lengths() {
    const auto [first, last] = me_.part_here(0, l_.block);
    for (std::size_t row = first; row < last; ++row) {
      const vertex v = part_.caller[row];
      length_[base_ + row] = v != no_vertex ? t_.result_length[v] : unreached<W>;
    }
    me_.wait();
    each_other_rank([&](std::uint32_t r) {
      const auto [begin, end] = me_.part_here(0, l_.block);
      const std::size_t at = l_.first_of(r) + begin;
      fetch(length_ + at, t_.length[r] + at, end - begin);
    });
    me_.wait_here();
  }

  /// Its parent, if that is nearer; else the vertex is left for later.
  void begin(vertex row) {
    if (row % kBits == 0) known_[(base_ + row) / kBits] = 0;
    const vertex v = part_.caller[row];
    if (v == no_vertex) return;
    const W length = length_[base_ + row];
    if (v == t_.root || length == unreached<W>) return set(row, v == t_.root ? v : no_vertex);
    for (std::uint64_t i = part_.in.start[row]; i < part_.in.start[row + 1]; ++i) {
      const vertex u = part_.in.ids[i];
      if (length_[u] < length && makes(length_[u], weights_[i], length)) return set(row, l_.caller_of(u));
    }
    left_.push_back(row);
  }
  void set(vertex row, vertex parent) {
    t_.result[part_.caller[row]] = parent;
    if (parent != no_vertex) set_bit(known_, base_ + row);
  }
  bool take_known(vertex row) {
    for (std::uint64_t i = part_.in.start[row]; i < part_.in.start[row + 1]; ++i) {
      const vertex u = part_.in.ids[i];
      if (!bit(known_, u) || !makes(length_[u], weights_[i], length_[base_ + row])) continue;
      t_.result[part_.caller[row]] = l_.caller_of(u);
      return true;
    }
    return false;
  }

  /// Vertices that are left anywhere. The first time it gathers all bits.
  [[nodiscard]] std::uint64_t all_left() {
    const std::uint64_t n = sum(left_.size());
    if (n != 0 && !has_bits_) gather_bits();
    has_bits_ = true;
    return n;
  }
  /// False: nobody has found any parent, so the distances are no shortest ones; what is left has none.
  [[nodiscard]] bool change(std::uint64_t found) {
    if (sum(found) != 0) return true;
    for (const vertex row : left_) t_.result[part_.caller[row]] = no_vertex;
    return false;
  }
  [[nodiscard]] std::uint64_t sum(std::uint64_t value) {
    t_.sums->put(me_, turn_, {value});
    me_.wait();
    return t_.sums->of_all(me_, turn_)[0];
  }
  void gather_bits() {
    each_other_rank([&](std::uint32_t r) {
      const auto [begin, end] = me_.part_here(0, l_.words());
      const std::size_t at = std::size_t{r} * l_.words() + begin;
      fetch(known_ + at, t_.known[r] + at, end - begin);
    });
    me_.wait_here();
  }

  const PathTree<W>& t_;
  const W* const weights_;
  W* const length_;
  std::uint64_t* const known_;
  std::vector<vertex> left_;
  bool has_bits_ = false;
  Sums<std::uint64_t, 1>::Turn turn_;
};

template <class W>
[[nodiscard]] unique_array<vertex> find_parents(const Layout& l, const distances<W>& d) {
  expect_vertex(l, "parents", d.root);
  if (d.length == nullptr) refuse("graph::parents: there are no distances");
  auto result = for_vertices<vertex>(l);
  const AtRanks<W> length(l.ranks, l.places());
  const AtRanks<std::uint64_t> known(l.ranks, l.places() / kBits);
  const auto sums = std::make_unique<Sums<std::uint64_t, 1>>(l.ranks, workers());
  const PathTree<W> t{l, d.root, d.length.get(), length.get(), known.get(), sums.get(), result.get()};
  team([t](member& me) { ParentFinder<W>(t, me).run(); });
  return result;
}

/// The vertices of this rank: what is wrong with their ways and the edges to their parents.
template <class W>
void check_parents_here(const Layout& l, const distances<W>& d, TreeLevels& levels,
                        const Complaints& complaints, member& me) {
  const Part& part = l.parts[me.rank()];
  const W* const weights = part.in.template weights_of<W>();
  const auto check = [&](std::size_t row, vertex v) {
    const bool is_reached = levels.of(me, v) != TreeLevels::kNone;
    if (is_reached != (d.length[v] != unreached<W>))
      complaints.add(me, "%u has %s, and the distance %g", v, is_reached ? "a parent" : "no way to the root",
                     static_cast<double>(d.length[v]));
    if (v == d.root || !is_reached) return;
    const vertex parent = levels.parent(v);
    for (std::uint64_t i = part.in.start[row]; i < part.in.start[row + 1]; ++i)
      if (l.caller_of(part.in.ids[i]) == parent) {
        if (!makes(d.length[parent], weights[i], d.length[v]))
          complaints.add(me, "the edge from %u does not make the distance of %u, its child, %g", parent, v,
                         static_cast<double>(d.length[v]));
        return;
      }
    complaints.add(me, "the graph has no edge from %u to %u, its child", parent, v);
  };
  me.deal(l.block - l.size_of(me.rank()), l.block, kChunk, [&](std::size_t row, std::size_t end) {
    for (; row < end && !complaints.has(me); ++row) check(row, part.caller[row]);
  });
}

template <class W>
[[nodiscard]] std::string check_parents(const Layout& l, const distances<W>& d,
                                        const unique_array<vertex>& result) {
  if (result == nullptr) return "there are no parents";
  const AtRanks<vertex> parents(l.ranks, l.vertices);
  const AtRanks<std::uint32_t> levels(l.ranks, l.vertices);
  const Complaints complaints(std::size_t{ranks()} * workers());
  team([&, result = result.get(), parents = parents.get(), levels = levels.get()](member& me) {
    TreeLevels of(l, d.root, parents[me.rank()], levels[me.rank()], complaints);
    if (of.begin(me, result)) check_parents_here(l, d, of, complaints, me);
  });
  return complaints.first();
}

}  // namespace
}  // namespace detail

template <weight W>
  requires(!std::is_void_v<W>)
unique_array<vertex> parents(const csr<W>& g, const distances<W>& d) {
  return detail::find_parents<W>(g.layout(), d);
}
template <weight W>
  requires(!std::is_void_v<W>)
std::string check_sssp(const csr<W>& g, const distances<W>& d, const unique_array<vertex>& parents) {
  const std::string wrong = check_sssp(g, d);
  return wrong.empty() ? detail::check_parents<W>(g.layout(), d, parents) : wrong;
}
#define KASANE_GRAPH_INSTANCE(W)                                             \
  template unique_array<vertex> parents(const csr<W>&, const distances<W>&); \
  template std::string check_sssp(const csr<W>&, const distances<W>&, const unique_array<vertex>&);
KASANE_GRAPH_INSTANCE(std::int32_t)
KASANE_GRAPH_INSTANCE(float)
#undef KASANE_GRAPH_INSTANCE

}  // namespace kasane::graph
