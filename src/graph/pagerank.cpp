// SPDX-License-Identifier: Apache-2.0
// PageRank by pulling. A rank has what every vertex gives to each vertex it has an edge to; within the rank
// new values are used at once (Gauss and Seidel), those of other ranks come by `get` after each iteration.
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>

#include "graph/complaints.h"
#include "graph/layout.h"
#include "graph/sums.h"

namespace kasane::graph {

namespace detail {
namespace {

enum Sum : std::size_t { kChange, kDangling, kTotal, kSums };

struct Ranking {
  Layout l;
  pagerank_options options;
  float* const* given;         ///< of each rank: what each place gives along an edge
  float* const* published[2];  ///< of each rank: the same of its own, in turns
  float* const* score;         ///< of each rank, of its own
  Sums<double, kSums>* sums;
  float* result;
  unsigned* iterations;
  double* change;
};

class Ranker {
 public:
  Ranker(const Ranking& r, member& me) noexcept
      : r_(r),
        l_(r.l),
        me_(me),
        part_(l_.parts[me.rank()]),
        base_(l_.first_of(me.rank())),
        given_(r.given[me.rank()]),
        score_(r.score[me.rank()]) {}

  void run() {
    const double n = static_cast<double>(l_.vertices);
    Values v{};
    each_row([&](std::size_t row) { set(row, static_cast<float>(1 / n), v); });
    exchange(v);
    unsigned iterations = 0;
    while (iterations < r_.options.iterations && l_.vertices != 0) {
      const double d = r_.options.damping;
      const double base = (1 - d) / n + d * v[kDangling] / n;
      v = {};
      each_row([&](std::size_t row) { pull(row, base, v); });
      exchange(v);
      ++iterations;
      if (v[kChange] < r_.options.tolerance) break;
    }
    each_row([&](std::size_t row) { r_.result[part_.caller[row]] = score_[row]; });
    if (me_.index() == 0) *r_.iterations = iterations, *r_.change = v[kChange];
  }

 private:
  using Values = Sums<double, kSums>::Values;

  template <class F>
  void each_row(F&& f) {
    const std::size_t first = l_.block - l_.size_of(me_.rank());  // its empty places come first
    me_.deal(first, l_.block, kChunk, [&](std::size_t row, std::size_t end) {
      for (; row < end; ++row) f(row);
    });
  }
  /// A member reads what another one of its rank writes now: the old value or the new one.
  [[nodiscard]] std::atomic_ref<float> given(vertex v) const noexcept {
    return std::atomic_ref<float>(given_[v]);
  }

  void set(std::size_t row, float score, Values& v) {
    const std::uint64_t degree = part_.out.degree(row);
    score_[row] = score;
    v[kTotal] += score;
    if (degree == 0) v[kDangling] += score;
    const float g = degree != 0 ? score / static_cast<float>(degree) : 0;
    given(base_ + static_cast<vertex>(row)).store(g, std::memory_order_relaxed);
    if (l_.ranks > 1) r_.published[turn_][me_.rank()][row] = g;
  }
  void pull(std::size_t row, double base, Values& v) {
    double sum = 0;
    for (std::uint64_t i = part_.in.start[row]; i < part_.in.start[row + 1]; ++i)
      sum += given(part_.in.ids[i]).load(std::memory_order_relaxed);
    const auto score = static_cast<float>(base + r_.options.damping * sum);
    v[kChange] += std::abs(score - score_[row]);
    set(row, score, v);
  }
  /// All members are here, and this rank has what the others give; v becomes the sums.
  void exchange(Values& v) {
    r_.sums->put(me_, sum_turn_, v);
    me_.wait();
    v = r_.sums->of_all(me_, sum_turn_);
    for (std::uint32_t r = 0; r < l_.ranks; ++r) {
      if (r == me_.rank()) continue;
      me_.deal(0, l_.block, 4 * kChunk, [&](std::size_t first, std::size_t last) {
        kasane::get(given_ + l_.first_of(r) + first, r_.published[turn_][r] + first, last - first);
      });
    }
    me_.wait_here();
    turn_ ^= 1;
  }

  const Ranking& r_;
  const Layout& l_;
  member& me_;
  const Part& part_;
  const vertex base_;
  float *const given_, *const score_;
  unsigned turn_ = 0;
  Sums<double, kSums>::Turn sum_turn_;
};

/// One iteration by doubles, from the scores alone: how much they would change.
void measure_change(const Layout& l, const page_scores& p, double dangling, double damping, double* change,
                    member& me) {
  const Part& part = l.parts[me.rank()];
  const double n = static_cast<double>(l.vertices);
  double sum_of_changes = 0;
  me.deal(l.block - l.size_of(me.rank()), l.block, kChunk, [&](std::size_t row, std::size_t end) {
    for (; row < end; ++row) {
      double sum = 0;
      for (std::uint64_t i = part.in.start[row]; i < part.in.start[row + 1]; ++i) {
        const vertex u = part.in.ids[i];
        const Rows& rows = l.parts[l.owner(u)].out;
        sum += p.score[l.caller_of(u)] / static_cast<double>(rows.degree(u % l.block));
      }
      sum_of_changes +=
          std::abs((1 - damping) / n + damping * (sum + dangling / n) - p.score[part.caller[row]]);
    }
  });
  change[me.index()] = sum_of_changes;
}

}  // namespace

[[nodiscard]] page_scores rank_pages(const Layout& l, const pagerank_options& options) {
  if (!(options.damping >= 0 && options.damping < 1)) refuse("graph::pagerank: the damping is in [0, 1)");
  page_scores result;
  result.score = for_vertices<float>(l);
  const AtRanks<float> given(l.ranks, l.places()), score(l.ranks, l.block), even(l.ranks, l.block),
      odd(l.ranks, l.block);
  Sums<double, kSums> sums(l.ranks, workers());
  const Ranking r{l,
                  options,
                  given.get(),
                  {even.get(), odd.get()},
                  score.get(),
                  &sums,
                  result.score.get(),
                  &result.iterations,
                  &result.change};
  team([&r](member& me) { Ranker(r, me).run(); });
  return result;
}

[[nodiscard]] std::string check_pages(const Layout& l, const page_scores& p,
                                      const pagerank_options& options) {
  double sum = 0, dangling = 0, change = 0;
  for (vertex v = 0; v < l.vertices; ++v) {
    if (!(p.score[v] >= 0)) return "the score of " + std::to_string(v) + " is " + std::to_string(p.score[v]);
    sum += p.score[v];
    if (l.parts[l.owner(v)].out.degree(l.place_of(v) % l.block) == 0) dangling += p.score[v];
  }
  const auto changes = make_array<double>(std::size_t{ranks()} * workers());
  team([&, all = changes.get()](member& me) { measure_change(l, p, dangling, options.damping, all, me); });
  for (std::size_t i = 0; i < std::size_t{ranks()} * workers(); ++i) change += changes[i];
  const double bound = options.tolerance + 1e-5;  // of sums of floats
  if (l.vertices != 0 && std::abs(sum - 1) > 5 * bound)
    return "the sum of the scores is " + std::to_string(sum);
  if (change > 2 * bound) return "the next iteration changes the scores by " + std::to_string(change);
  return {};
}

}  // namespace detail

template <weight W>
page_scores pagerank(const csr<W>& g, pagerank_options options) {
  return detail::rank_pages(g.layout(), options);
}
template <weight W>
std::string check_pagerank(const csr<W>& g, const page_scores& p, pagerank_options options) {
  return detail::check_pages(g.layout(), p, options);
}
template page_scores pagerank(const csr<void>&, pagerank_options);
template page_scores pagerank(const csr<std::int32_t>&, pagerank_options);
template page_scores pagerank(const csr<float>&, pagerank_options);
template std::string check_pagerank(const csr<void>&, const page_scores&, pagerank_options);
template std::string check_pagerank(const csr<std::int32_t>&, const page_scores&, pagerank_options);
template std::string check_pagerank(const csr<float>&, const page_scores&, pagerank_options);

}  // namespace kasane::graph
