// SPDX-License-Identifier: Apache-2.0
// PageRank by pulling: from what each vertex gave along an edge in the last iteration, so that the result is
// the same on any number of ranks but for the order of sums. Of other ranks' vertices that comes by `get`.
// Two turns of arrays suffice, since a rank passes the next wait only when all have got this iteration's.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <memory>
#include <utility>

#include "graph/beyond_dram.h"
#include "graph/complaints.h"
#include "graph/layout.h"
#include "graph/member_part.h"
#include "graph/sums.h"

namespace kasane::graph {

namespace detail {
namespace {

enum Sum : std::size_t { kChange, kTotal, kSums };

struct Ranking {
  Layout l;
  pagerank_options options;
  float* const* given[2];  ///< of each rank: what each place gives along an edge, in turns
  float* const* score;     ///< of each rank, of its own
  Sums<double, kSums>* sums;
  float* result;
  unsigned* iterations;
  double* change;
};

class Ranker : MemberPart {
 public:
  Ranker(const Ranking& r, member& me) noexcept : MemberPart(r.l, me), r_(r), score_(r.score[me.rank()]) {}

  void run() {
    // What vertices without edges give to all makes all scores larger by the same factor, so it comes last.
    const double n = static_cast<double>(l_.vertices), base = (1 - r_.options.damping) / n;
    Values v{};
    each_row([&](std::size_t row) { set(row, static_cast<float>(1 / n), v); });
    exchange(v);
    unsigned iterations = 0;
    while (iterations < r_.options.iterations) {
      v = {};
      sweep(iterations % 2 != 0, [&](std::size_t row) { pull(row, base, v); });
      exchange(v);
      ++iterations;
      if (v[kChange] < r_.options.tolerance * v[kTotal]) break;
    }
    const auto factor = static_cast<float>(1 / v[kTotal]);
    each_row([&](std::size_t row) { r_.result[part_.caller[row]] = factor * score_[row]; });
    v[kChange] *= factor;
    if (me_.index() == 0) *r_.iterations = iterations, *r_.change = v[kChange];
  }

 private:
  using Values = Sums<double, kSums>::Values;

  [[nodiscard]] float* given(unsigned turn) const noexcept { return r_.given[turn][me_.rank()]; }

  /// f(row) for all rows, upwards or downwards: to and fro, so that what DRAM holds of the rows at the end of
  /// a sweep is what the next one begins with.
  template <class F>
  void sweep(bool down, F&& f) {
    const std::size_t first = l_.block - l_.size_of(me_.rank()), last = l_.block;
    me_.deal(first, last, kChunk, [&](std::size_t begin, std::size_t end) {
      if (down) begin = first + last - std::exchange(end, first + last - begin);
      if (down) {
        while (end-- > begin) f(end);
      } else {
        for (; begin < end; ++begin) f(begin);
      }
    });
  }
  void set(std::size_t row, float score, Values& v) {
    const std::uint64_t degree = part_.out.degree(row);
    score_[row] = score;
    v[kTotal] += score;
    given(turn_)[base_ + row] = degree != 0 ? score / static_cast<float>(degree) : 0;
  }
  void pull(std::size_t row, double base, Values& v) {
    const float* const given_before = given(turn_ ^ 1);
    const vertex* from = part_.in.ids + part_.in.start[row];
    const vertex* const end = part_.in.ids + part_.in.start[row + 1];
    double even = 0, odd = 0;  // two sums at a time
    for (; end - from >= 2; from += 2) even += given_before[from[0]], odd += given_before[from[1]];
    const double sum = even + odd + (from != end ? given_before[*from] : 0);
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
        const std::size_t at = l_.first_of(r) + first;
        fetch(given(turn_) + at, r_.given[turn_][r] + at, last - first);
      });
    }
    me_.wait_here();
    turn_ ^= 1;
  }

  const Ranking& r_;
  float* const score_;
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
  if (l.vertices == 0) return result;
  const AtRanks<float> even(l.ranks, l.places()), odd(l.ranks, l.places()), score(l.ranks, l.block);
  const auto sums = std::make_unique<Sums<double, kSums>>(l.ranks, workers());
  const Ranking r{l,
                  options,
                  {even.get(), odd.get()},
                  score.get(),
                  sums.get(),
                  result.score.get(),
                  &result.iterations,
                  &result.change};
  Held held(l);
  for (std::uint32_t k = 0; k < l.ranks; ++k) {
    held.hold(k, even.get()[k], l.places());
    held.hold(k, odd.get()[k], l.places());
    held.hold(k, score.get()[k], l.block);
    const Part& part = l.parts[k];
    held.hold(k, part.in.start, std::size_t{l.block} + 1);
    for (const vertex* array : {part.first, part.caller, part.place}) held.let_go(array, l.block);
    held.let_go(part.tuples, l.block);
  }
  team([r](member& me) { Ranker(r, me).run(); });
  return result;
}

[[nodiscard]] std::string check_pages(const Layout& l, const page_scores& p,
                                      const pagerank_options& options) {
  if (l.vertices == 0) return {};
  if (p.score == nullptr) return "there are no scores";
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
  if (!(std::abs(sum - 1) <= 5 * bound)) return "the sum of the scores is " + std::to_string(sum);
  if (!(change <= 2 * bound)) return "the next iteration changes the scores by " + std::to_string(change);
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
