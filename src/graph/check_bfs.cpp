// SPDX-License-Identifier: Apache-2.0
// Whether an array of parents is a breadth-first tree, by the rules of Graph500's specification: the parents
// form a tree with that root; each of its edges is in the graph; each edge of the graph joins vertices whose
// levels differ by one at most, or that are both not reached. (Along an edge that has one direction: the
// level rises by one at most.) Nothing of the search is used.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <string>

#include "graph/complaints.h"
#include "graph/layout.h"

namespace kasane::graph {

namespace detail {
namespace {

constexpr std::uint32_t kUnknown = 0xffffffff, kNoLevel = kUnknown - 1;

struct Checked {
  Layout l;
  vertex root;
  const vertex* result;
  vertex* const* parents;         ///< of each rank: all parents
  std::uint32_t* const* levels;   ///< of each rank: those that it has needed
  std::uint64_t* const* reached;  ///< of each rank: those that are its own; members add
  const Complaints* complaints;
};

class TreeCheck {
 public:
  TreeCheck(const Checked& c, member& me) noexcept
      : c_(c), l_(c.l), me_(me), parents_(c.parents[me.rank()]), levels_(c.levels[me.rank()]) {}

  void run() {
    const std::size_t n = l_.vertices;
    me_.deal(0, n, 65536, [&](std::size_t first, std::size_t last) {
      fetch(parents_ + first, c_.result + first, last - first);
      std::fill(levels_ + first, levels_ + last, kUnknown);
    });
    if (me_.rank_index() == 0) *c_.reached[me_.rank()] = 0;
    me_.wait_here();
    if (parents_[c_.root] != c_.root)
      return c_.complaints->add(me_, "the root %u is not its own parent", c_.root);
    const std::size_t base = l_.first_of(me_.rank());
    std::uint64_t reached = 0;
    me_.deal(0, l_.size_of(me_.rank()), kChunk, [&](std::size_t first, std::size_t last) {
      for (; first < last && !c_.complaints->has(me_); ++first)
        reached += check(static_cast<vertex>(base + first));
    });
    std::atomic_ref<std::uint64_t>(*c_.reached[me_.rank()]).fetch_add(reached, std::memory_order_relaxed);
  }

 private:
  /// Vertex v and what enters it; whether it is reached.
  bool check(vertex v) {
    const std::uint32_t level = level_of(v);
    const Part& part = l_.parts[me_.rank()];
    const std::size_t row = l_.place_of(v) - l_.first_of(me_.rank());
    bool has_parent = v == c_.root || level == kNoLevel;
    for (std::uint64_t i = part.in.start[row]; i < part.in.start[row + 1]; ++i) {
      const vertex u = l_.caller_of(part.in.ids[i]);
      has_parent = has_parent || u == parents_[v];
      check_edge(u, v, level);
    }
    if (!has_parent)
      c_.complaints->add(me_, "the graph has no edge from %u to %u, its child", parents_[v], v);
    return level != kNoLevel;
  }
  void check_edge(vertex u, vertex v, std::uint32_t level) {
    const std::uint32_t before = level_of(u);
    if (before == kNoLevel) {
      if (l_.symmetric && level != kNoLevel)
        c_.complaints->add(me_, "%u is reached, and its neighbour %u is not", v, u);
    } else if (level == kNoLevel) {
      c_.complaints->add(me_, "%u is reached, and its neighbour %u is not", u, v);
    } else if (level > before + 1) {
      c_.complaints->add(me_, "there is an edge from %u, at level %u, to %u, at level %u", u, before, v,
                         level);
    }
  }

  [[nodiscard]] std::atomic_ref<std::uint32_t> level(vertex v) const noexcept {
    return std::atomic_ref<std::uint32_t>(levels_[v]);  // members of the rank write the same values
  }
  /// Follows parents to a vertex whose level is known, and notes those on the way.
  std::uint32_t level_of(vertex v) {
    std::uint32_t known = level(v).load(std::memory_order_relaxed);
    if (known != kUnknown) return known;
    if (parents_[v] == no_vertex) return note(v, kNoLevel);
    std::uint64_t steps = 0;
    vertex u = v;
    for (; (known = known_level(u)) == kUnknown; u = parents_[u], ++steps) {
      if (parents_[u] < l_.vertices && steps <= l_.vertices) continue;
      if (steps > l_.vertices)
        c_.complaints->add(me_, "the parents of %u lead in a circle", v);
      else
        c_.complaints->add(me_, "%u, on the way from %u, has the parent %u", u, v, parents_[u]);
      return note(v, kNoLevel);
    }
    if (known == kNoLevel) {
      c_.complaints->add(me_, "the way from %u ends at %u, which has no parent and is not the root", v, u);
      return note(v, kNoLevel);
    }
    const std::uint32_t is = known + static_cast<std::uint32_t>(steps);
    for (u = v; steps != 0; u = parents_[u], --steps) note(u, known + static_cast<std::uint32_t>(steps));
    return is;
  }
  [[nodiscard]] std::uint32_t known_level(vertex u) const noexcept {
    if (u == c_.root) return 0;
    return parents_[u] == no_vertex ? kNoLevel : level(u).load(std::memory_order_relaxed);
  }
  std::uint32_t note(vertex v, std::uint32_t is) const noexcept {
    level(v).store(is, std::memory_order_relaxed);
    return is;
  }

  const Checked& c_;
  const Layout& l_;
  member& me_;
  vertex* const parents_;
  std::uint32_t* const levels_;
};

}  // namespace

[[nodiscard]] std::string check_tree(const Layout& l, const tree& t) {
  expect_vertex(l, "check_bfs", t.root);
  const AtRanks<vertex> parents(l.ranks, l.vertices);
  const AtRanks<std::uint32_t> levels(l.ranks, l.vertices);
  const AtRanks<std::uint64_t> reached(l.ranks, 1);
  const Complaints complaints(std::size_t{ranks()} * workers());
  const Checked c{l, t.root, t.parent.get(), parents.get(), levels.get(), reached.get(), &complaints};
  team([&c](member& me) { TreeCheck(c, me).run(); });
  std::string wrong = complaints.first();
  std::uint64_t n = 0;
  for (std::uint32_t r = 0; r < l.ranks; ++r) n += kasane::get(global_ptr<std::uint64_t>(reached.get()[r]));
  if (wrong.empty() && n != t.reached)
    wrong = "the tree has " + std::to_string(n) + " vertices and says " + std::to_string(t.reached);
  return wrong;
}

}  // namespace detail

template <weight W>
std::string check_bfs(const csr<W>& g, const tree& t) {
  return detail::check_tree(g.layout(), t);
}
template std::string check_bfs(const csr<void>&, const tree&);
template std::string check_bfs(const csr<std::int32_t>&, const tree&);
template std::string check_bfs(const csr<float>&, const tree&);

}  // namespace kasane::graph
