// SPDX-License-Identifier: Apache-2.0
// Betweenness centrality (U. Brandes, 2001) from some sources. Forwards a search level by level: each rank
// goes through what the frontier has in A^F_k, and adds up the numbers of shortest paths to its own vertices.
// Backwards over the same levels: what a vertex passes on is, over its edges to the next level, the sum of
// their (1 + dependency) / paths. That is kept for all places, and 0 but for the level after the current one,
// so no levels are compared. What travels, by `get`, are the vertices of a level with one number each. Where
// there are more paths than doubles hold, all is done again with wider numbers.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <vector>

#include "graph/beyond_dram.h"
#include "graph/layout.h"
#include "graph/member_part.h"
#include "graph/wide.h"

namespace kasane::graph {

namespace detail {
namespace {

constexpr std::uint32_t kNoDepth = 0xffffffff;

[[nodiscard]] bool is_finite(double value) noexcept { return std::isfinite(value); }
[[nodiscard]] bool is_finite(Wide value) noexcept { return value.is_finite(); }

/// A vertex of a level, by its place, with its number of paths, or with what it passes on.
template <class Number>
struct Travelling {
  vertex place;
  Number value;
};

/// The memory of a rank.
template <class Number>
struct CentralityOfRank {
  std::uint32_t* depth;       ///< of its places
  Number* paths;              ///< likewise
  Number* passed;             ///< of all places
  vertex* order;              ///< its rows in the order of their levels
  Travelling<Number>* level;  ///< published: those of one level; as many places as the rank has
  Travelling<Number>* all;    ///< those of all ranks; on one rank the same array
  std::uint64_t ordered, n_level, n_all;
};

template <class Number>
struct Centrality {
  Layout l;
  const vertex* sources;
  std::size_t n_sources;
  CentralityOfRank<Number>* const* ranks;
  double* score;   ///< of each vertex
  bool* too_many;  ///< of each member: it met more paths than Number holds
};

template <class Number>
class Brandes : MemberPart {
 public:
  Brandes(const Centrality<Number>& c, member& me) noexcept
      : MemberPart(c.l, me), c_(c), mine_(*c.ranks[me.rank()]) {}

  void run() {
    each_row([&](std::size_t row) { c_.score[part_.caller[row]] = 0; });
    const auto [first, last] = me_.part_here(0, l_.places());
    std::fill(mine_.passed + first, mine_.passed + last, Number());
    for (std::size_t i = 0; i < c_.n_sources; ++i) {
      me_.wait();
      forwards(c_.sources[i]);
      backwards(c_.sources[i]);
    }
    c_.too_many[me_.index()] = too_many_;
  }

 private:
  template <class F>
  void each_row(F&& f) {
    MemberPart::each_row(f);
    me_.wait_here();
  }
  static void add(Number& to, Number value) noexcept {
    const std::atomic_ref<Number> shared(to);  // a wait orders
    Number is = shared.load(std::memory_order_relaxed);
    while (!shared.compare_exchange_weak(is, is + value, std::memory_order_relaxed)) {
    }
  }

  void forwards(vertex source) {
    const auto [first, last] = me_.part_here(0, l_.block);
    std::fill(mine_.depth + first, mine_.depth + last, kNoDepth);
    std::fill(mine_.paths + first, mine_.paths + last, Number());
    levels_.assign(1, 0);
    if (me_.rank_index() == 0) mine_.ordered = 0;
    me_.wait_here();
    if (l_.owner(source) == me_.rank() && me_.rank_index() == 0) {
      const vertex row = part_.place[source - base_] - base_;
      mine_.depth[row] = 0;
      mine_.paths[row] = Number(1);
      mine_.order[0] = row;
      mine_.ordered = 1;
    }
    me_.wait_here();
    for (std::uint32_t depth = 0;; ++depth) {
      levels_.push_back(mine_.ordered);
      if (l_.beyond_dram) order_level();
      publish(levels_.size() - 2, [&](vertex row) {
        too_many_ = too_many_ || !is_finite(mine_.paths[row]);
        return mine_.paths[row];
      });
      if (collect() == 0) break;
      step(depth + 1);
    }
  }
  /// The last level, by address of the rows: each of their pages is read once, and ahead.
  void order_level() {
    if (me_.rank_index() == 0)
      std::sort(mine_.order + levels_[levels_.size() - 2], mine_.order + levels_.back());
    me_.wait_here();
  }
  /// From the frontier to the level of that depth.
  void step(std::uint32_t depth) {
    const Rows& rows = part_.forward;
    me_.deal(0, mine_.n_all, 64, [&](std::size_t i, std::size_t end) {
      for (; i < end; ++i) {
        const Travelling<Number> v = mine_.all[i];
        for (std::uint64_t e = rows.start[v.place]; e < rows.start[v.place + 1]; ++e) {
          const vertex row = rows.ids[e] - base_;
          const std::atomic_ref<std::uint32_t> at(mine_.depth[row]);
          std::uint32_t is = at.load(std::memory_order_relaxed);
          if (is == kNoDepth && at.compare_exchange_strong(is, depth, std::memory_order_relaxed)) {
            mine_.order[std::atomic_ref<std::uint64_t>(mine_.ordered)
                            .fetch_add(1, std::memory_order_relaxed)] = row;
            is = depth;
          }
          if (is == depth) add(mine_.paths[row], v.value);
        }
      }
    });
    me_.wait_here();
  }

  void backwards(vertex source) {
    const Rows& rows = part_.out;
    // The deepest level passes on 1 / paths; levels_ has an empty one at its end.
    for (std::size_t level = levels_.size() - 2; level-- != 0;) {
      me_.deal(levels_[level], levels_[level + 1], 64, [&](std::size_t i, std::size_t end) {
        for (; i < end; ++i) {
          const vertex row = mine_.order[i];
          Number sum{};
          for (std::uint64_t e = rows.start[row]; e < rows.start[row + 1]; ++e)
            sum = sum + mine_.passed[rows.ids[e]];
          const auto dependency = static_cast<double>(mine_.paths[row] * sum);
          if (part_.caller[row] != source) c_.score[part_.caller[row]] += dependency;
          mine_.paths[row] = Number(1 + dependency) / mine_.paths[row];  // from now on what it passes on
        }
      });
      me_.wait_here();
      forget();
      publish(level, [&](vertex row) { return mine_.paths[row]; });
      (void)collect();
      me_.deal(0, mine_.n_all, kChunk, [&](std::size_t i, std::size_t end) {
        for (; i < end; ++i) mine_.passed[mine_.all[i].place] = mine_.all[i].value;
      });
      me_.wait_here();
    }
    forget();
  }
  /// What the level after passed on is 0 again.
  void forget() {
    me_.deal(0, mine_.n_all, kChunk, [&](std::size_t i, std::size_t end) {
      for (; i < end; ++i) mine_.passed[mine_.all[i].place] = Number();
    });
    me_.wait_here();
  }

  /// The rank's vertices of a level, for all.
  template <class F>
  void publish(std::size_t level, F&& value) {
    const std::uint64_t begin = levels_[level], n = levels_[level + 1] - begin;
    me_.wait();  // all have got the level before
    me_.deal(0, n, kChunk, [&](std::size_t i, std::size_t end) {
      for (; i < end; ++i) {
        const vertex row = mine_.order[begin + i];
        mine_.level[i] = {base_ + row, value(row)};
      }
    });
    if (me_.rank_index() == 0) mine_.n_level = n;
    me_.wait();
  }
  /// The vertices of the level of all ranks; their number.
  [[nodiscard]] std::uint64_t collect() {
    if (me_.rank_index() == 0) {
      std::uint64_t n_all = 0;
      for (std::uint32_t r = 0; r < l_.ranks; ++r) {
        std::uint64_t n = 0;
        Travelling<Number>* level = nullptr;
        fetch(&n, &c_.ranks[r]->n_level);
        fetch(&level, &c_.ranks[r]->level);
        if (n != 0 && mine_.all != level) fetch(mine_.all + n_all, level, n);
        n_all += n;
      }
      mine_.n_all = n_all;
    }
    me_.wait_here();
    return mine_.n_all;
  }

  const Centrality<Number>& c_;
  CentralityOfRank<Number>& mine_;
  bool too_many_ = false;
  std::vector<std::uint64_t> levels_;  ///< where each begins in the rank's order
};

/// False: there are more paths than Number holds.
template <class Number>
[[nodiscard]] bool score_all(const Layout& l, const std::vector<vertex>& sources, double* score) {
  const AtRanks<std::uint32_t> depth(l.ranks, l.block);
  const AtRanks<Number> paths(l.ranks, l.block), passed(l.ranks, l.places());
  const AtRanks<vertex> order(l.ranks, l.block);
  const AtRanks<Travelling<Number>> level(l.ranks, l.block), all(l.ranks, l.ranks > 1 ? l.places() : 0);
  const AtRanks<CentralityOfRank<Number>> of_ranks(l.ranks, 1);
  for (std::uint32_t r = 0; r < l.ranks; ++r) {
    const CentralityOfRank<Number> o{depth.get()[r],
                                     paths.get()[r],
                                     passed.get()[r],
                                     order.get()[r],
                                     level.get()[r],
                                     l.ranks > 1 ? all.get()[r] : level.get()[r],
                                     0,
                                     0,
                                     0};
    kasane::put(of_ranks.get()[r], &o);
  }
  const auto from = make_array<vertex>(sources.size() + 1);
  std::copy(sources.begin(), sources.end(), from.get());
  const std::uint32_t members = l.ranks * workers();
  const auto too_many = make_array<bool>(members);
  const Centrality<Number> c{l, from.get(), sources.size(), of_ranks.get(), score, too_many.get()};
  Held held(l, usage::normal);
  for (std::uint32_t r = 0; r < l.ranks; ++r) held.hold(r, passed.get()[r], l.places());
  team([c](member& me) { Brandes<Number>(c, me).run(); });
  return std::none_of(too_many.get(), too_many.get() + members, [](bool b) { return b; });
}

}  // namespace

[[nodiscard]] unique_array<double> find_centralities(const Layout& l, const std::vector<vertex>& sources) {
  for (const vertex v : sources) expect_vertex(l, "betweenness", v);
  auto score = for_vertices<double>(l);
  if (l.vertices != 0 && !score_all<double>(l, sources, score.get()) &&
      !score_all<Wide>(l, sources, score.get()))
    refuse("graph::betweenness: there are more than 2^8388606 shortest paths between two vertices");
  return score;
}

}  // namespace detail

template <weight W>
unique_array<double> betweenness(const csr<W>& g, const std::vector<vertex>& sources) {
  return detail::find_centralities(g.layout(), sources);
}
template <weight W>
std::string check_betweenness(const csr<W>& g, const std::vector<vertex>& sources,
                              const unique_array<double>& scores) {
  const std::uint64_t n = g.vertices();
  for (const vertex source : sources) detail::expect_vertex(g.layout(), "check_betweenness", source);
  if (n != 0 && scores == nullptr) return "there are no scores";
  std::vector<double> expected(n), passed(n);
  std::vector<detail::Wide> paths(n);
  std::vector<std::uint32_t> depth(n);
  for (const vertex source : sources) {
    std::fill(depth.begin(), depth.end(), detail::kNoDepth);
    std::fill(paths.begin(), paths.end(), detail::Wide());
    std::fill(passed.begin(), passed.end(), 0.0);
    std::vector<vertex> order{source};
    depth[source] = 0, paths[source] = detail::Wide(1);
    for (std::size_t i = 0; i < order.size(); ++i)
      for (const auto& e : g.out_edges(order[i])) {
        if (depth[e.to] == detail::kNoDepth) depth[e.to] = depth[e.from] + 1, order.push_back(e.to);
        if (depth[e.to] == depth[e.from] + 1) paths[e.to] = paths[e.to] + paths[e.from];
      }
    for (std::size_t i = order.size(); i-- != 0;) {
      const vertex v = order[i];
      for (const auto& e : g.out_edges(v))
        if (depth[e.to] == depth[v] + 1)
          passed[v] += static_cast<double>(paths[v] / paths[e.to]) * (1 + passed[e.to]);
      if (v != source) expected[v] += passed[v];
    }
  }
  for (std::uint64_t v = 0; v < n; ++v)
    if (!(std::abs(scores[v] - expected[v]) <= 1e-9 * (1 + expected[v])))
      return "the score of " + std::to_string(v) + " is " + std::to_string(scores[v]) + ", not " +
             std::to_string(expected[v]);
  return {};
}
#define KASANE_GRAPH_INSTANCE(W)                                                        \
  template unique_array<double> betweenness(const csr<W>&, const std::vector<vertex>&); \
  template std::string check_betweenness(const csr<W>&, const std::vector<vertex>&,     \
                                         const unique_array<double>&);
KASANE_GRAPH_INSTANCE(void)
KASANE_GRAPH_INSTANCE(std::int32_t)
KASANE_GRAPH_INSTANCE(float)
#undef KASANE_GRAPH_INSTANCE

}  // namespace kasane::graph
