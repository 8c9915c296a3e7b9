// SPDX-License-Identifier: Apache-2.0
// Whether an array of parents is a breadth-first tree, by the rules of Graph500's specification: the parents
// form a tree with that root; each of its edges is in the graph; each edge of the graph joins vertices whose
// levels differ by one at most, or that are both not reached. (Along an edge that has one direction: the
// level rises by one at most.) Nothing of the search is used.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <string>

#include "graph/beyond_dram.h"
#include "graph/complaints.h"
#include "graph/layout.h"
#include "graph/member_part.h"
#include "graph/tree_levels.h"

namespace kasane::graph {

namespace detail {
namespace {

constexpr std::uint32_t kNoLevel = TreeLevels::kNone;

/// What a tree says of itself.
struct Counted {
  std::uint64_t reached, tuples;
  std::uint32_t depth;
};

struct Checked {
  Layout l;
  vertex root;
  const vertex* result;
  vertex* const* parents;        ///< of each rank: all parents
  std::uint32_t* const* levels;  ///< of each rank: those that it has needed
  Counted* counted;              ///< of each member
  const Complaints* complaints;
};

class TreeCheck : MemberPart {
 public:
  TreeCheck(const Checked& c, member& me) noexcept
      : MemberPart(c.l, me),
        c_(c),
        levels_(l_, c.root, c.parents[me.rank()], c.levels[me.rank()], *c.complaints) {}

  void run() {
    if (!levels_.begin(me_, c_.result)) return;
    each_row([this](std::size_t row) {
      if (!c_.complaints->has(me_)) check(row, part_.caller[row]);
    });
    c_.counted[me_.index()] = counted_;
  }

 private:
  /// Vertex v and what enters it.
  void check(std::size_t row, vertex v) {
    const std::uint32_t level = levels_.of(me_, v);
    bool has_parent = v == c_.root || level == kNoLevel;
    for (std::uint64_t i = part_.in.start[row]; i < part_.in.start[row + 1]; ++i) {
      const vertex u = l_.caller_of(part_.in.ids[i]);
      has_parent = has_parent || u == levels_.parent(v);
      check_edge(u, v, level);
    }
    if (!has_parent)
      c_.complaints->add(me_, "the graph has no edge from %u to %u, its child", levels_.parent(v), v);
    if (level == kNoLevel) return;
    ++counted_.reached;
    counted_.tuples += part_.tuples[row];
    counted_.depth = std::max(counted_.depth, level);
  }
  void check_edge(vertex u, vertex v, std::uint32_t level) {
    const std::uint32_t before = levels_.of(me_, u);
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

  const Checked& c_;
  TreeLevels levels_;
  Counted counted_{};
};

[[nodiscard]] std::string differs(const char* what, std::uint64_t is, std::uint64_t says) {
  return is == says
             ? std::string()
             : std::string("the tree has ") + what + std::to_string(is) + " and says " + std::to_string(says);
}

}  // namespace

[[nodiscard]] std::string check_tree(const Layout& l, const tree& t) {
  expect_vertex(l, "check_bfs", t.root);
  if (t.parent == nullptr) return "there are no parents";
  const std::size_t members = std::size_t{ranks()} * workers();
  const AtRanks<vertex> parents(l.ranks, l.vertices);
  const AtRanks<std::uint32_t> levels(l.ranks, l.vertices);
  const auto counted = make_array<Counted>(members);
  const Complaints complaints(members);
  const Checked c{l, t.root, t.parent.get(), parents.get(), levels.get(), counted.get(), &complaints};
  Held held(l);
  for (std::uint32_t r = 0; r < l.ranks; ++r) {
    held.hold(r, parents.get()[r], l.vertices);
    held.hold(r, levels.get()[r], l.vertices);
    held.hold(r, l.parts[r].caller, l.block);
  }
  team([c](member& me) { TreeCheck(c, me).run(); });
  if (std::string wrong = complaints.first(); !wrong.empty()) return wrong;
  Counted all{};
  for (std::size_t m = 0; m < members; ++m) {
    all.reached += counted[m].reached, all.tuples += counted[m].tuples;
    all.depth = std::max(all.depth, counted[m].depth);
  }
  std::string wrong = differs("vertices: ", all.reached, t.reached);
  if (wrong.empty())
    wrong = differs("edges of the list: ", all.tuples / (l.symmetric ? 2 : 1), t.input_edges);
  return wrong.empty() ? differs("a depth of ", all.depth, t.depth) : wrong;
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
