// SPDX-License-Identifier: Apache-2.0
// From a list of edges to rows (layout.h). Nothing is sorted by comparing, and all that is written at random
// lies in the cache: larger arrays are read and written in some hundred runs, so they may lie on SSD. Each
// member of the team has some of its rank's rows. Two teams, with the allocations between them:
//
//   count     each member counts the edges of its part of the list at all vertices; a rank's vertices get
//             places by ascending count; the order of all vertices is cut into parts of as many edges, and so
//             are the rows of each rank; the edges are counted by member and part
//   send      an edge goes to the member that has its row, into the part that has its neighbour
//   merge     part by part, in descending order of neighbours, each sorted by counting, into parts by rows
//   settle    part by part sorted by row, in the same way: so every row is in descending order, and
//             duplicates follow each other
//   forward   A^F: the rank's rows once more, by neighbour, likewise
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <memory>
#include <type_traits>
#include <vector>

#include "graph/layout.h"
#include "graph/parts.h"

namespace kasane::graph {

namespace detail {
namespace {

constexpr std::size_t kAtOnce = 8192;  ///< edges in a get
constexpr std::uint64_t kNone = ~std::uint64_t{0};

/// What a member found in its part of the list, and what it dropped from its rows.
struct Found {
  std::uint64_t loops, duplicates, stored;
  std::uint64_t bad;  ///< the first edge that is refused; kNone: none is
};

/// An edge on its way: `from` is its row at the rank, `to` the neighbour's number in the order.
template <class W>
using Going = edge<W>;
/// An edge in its row.
template <class W>
struct Kept {
  vertex id;
  W weight;
};
template <>
struct Kept<void> {
  vertex id;
};

/// What one member has for one way: the rows of what enters its vertices, or of what leaves them.
template <class W>
struct Stage {
  std::uint64_t* offset;  ///< for each member and part of the order: where it begins in `sent`; and the end
  std::uint64_t* rows;    ///< for each rank and part of its rows: edges for these
  Going<W>* sent;
  Going<W>* received;  ///< kAtOnce of them
  Going<W>* merged;    ///< by parts of rows; then the edges that are kept, from its beginning
};

/// What the members of a rank share.
struct OfRank {
  std::uint32_t* tuples;        ///< of each vertex, by the caller's numbers
  vertex* order;                ///< of all vertices, by the caller's numbers: by place, then by rank
  std::uint32_t* counts;        ///< vertices of so many tuples; the last counts all that have more
  std::uint64_t* edges_of[2];   ///< at the rank's vertices, by step: of its rows; of the order
  Parts* parts_of_order;        ///< the same at all ranks
  Parts* parts_of_rows;         ///< of all ranks
  std::uint64_t* kept;          ///< of each of its members: edges in its rows
  std::uint64_t* forward_runs;  ///< of each of its members: where each part begins; and the end
};
constexpr std::size_t kCounts = 1 << 16;

/// The arrays of a part, to be written.
struct RowsMade {
  std::uint64_t* start;
  vertex* ids;
  void* weights;
  operator Rows() const noexcept { return {start, ids, weights}; }  // NOLINT(google-explicit-constructor)
};
struct PartMade {
  RowsMade rows[2], forward;
  vertex *first, *caller, *place;
  std::uint32_t* tuples;
  std::uint64_t* connected;
};

template <class W>
[[nodiscard]] bool is_refused(const edge<W>& e, std::uint64_t vertices) noexcept {
  if (e.from >= vertices || e.to >= vertices) return true;
  if constexpr (!std::is_void_v<W>) return !is_weight(e.weight);
  return false;
}

/// All that members read; itself in memory of all ranks. One for each build.
template <class W>
struct Build {
  static constexpr bool kWeighted = !std::is_void_v<W>;

  const edge<W>* list;
  std::uint64_t size;
  Layout l;
  std::uint32_t workers, members;
  Stage<W>* stages[2];         ///< of each member
  std::uint32_t* const* seen;  ///< of each member: the edges of its part of the list at all vertices
  OfRank* ranks;
  PartMade* parts;
  Found* found;

  [[nodiscard]] int ways() const noexcept { return l.symmetric ? 1 : 2; }

  // One rank is the usual case: no divisions.
  [[nodiscard]] vertex place_at(std::uint32_t order) const noexcept {
    return l.ranks == 1 ? order : order % l.ranks * l.block + order / l.ranks;
  }
  [[nodiscard]] std::uint32_t order_at(vertex place) const noexcept {
    return l.ranks == 1 ? place : place % l.block * l.ranks + place / l.block;
  }
  /// The members of a rank have runs of the parts of its rows.
  [[nodiscard]] std::uint32_t worker_of(std::uint32_t part, std::uint32_t number) const noexcept {
    return workers == 1 ? 0 : static_cast<std::uint32_t>(std::uint64_t{part} * workers / number);
  }
  [[nodiscard]] part_of_range parts_of(const member& me) const noexcept {
    const std::size_t n = ranks[me.rank()].parts_of_rows[me.rank()].number;
    const auto first = [&](std::size_t worker) { return (worker * n + workers - 1) / workers; };
    return {first(me.rank_index()), first(me.rank_index() + 1)};
  }

  /// call(edge) for each edge of the member's part of the list.
  template <class F>
  void each_of_list(const member& me, Found& f, F&& call) const {
    const auto [first, last] = me.part(0, size);
    for (std::size_t i = first; i < last; ++i) {
      const edge<W> e = list[i];
      if (is_refused(e, l.vertices)) [[unlikely]] {
        f.bad = std::min<std::uint64_t>(f.bad, i);
      } else if (e.from == e.to) {
        ++f.loops;
      } else {
        call(e);
      }
    }
  }

  // ---- count ----

  void count_all(member& me) const {
    Found& f = found[me.index()];
    f = {0, 0, 0, kNone};
    std::uint32_t* const mine = seen[me.index()];
    std::fill_n(mine, l.places(), 0u);
    each_of_list(me, f, [&](const edge<W>& e) { ++mine[e.from], ++mine[e.to]; });
    me.wait();
    add_up(me);
    me.wait_here();
    if (me.rank_index() == 0) order(me), count_steps(me);
    me.wait();
    know_order(me);
    if (me.rank_index() == 0) cut(me);
    me.wait();
    if (me.rank_index() == 0)
      for (std::uint32_t r = 0; r < l.ranks; ++r)
        if (r != me.rank()) fetch(ranks[me.rank()].parts_of_rows + r, ranks[r].parts_of_rows + r);
    me.wait_here();
    count_parts(me);
  }

  /// What all members have seen at the rank's vertices.
  void add_up(member& me) const {
    std::uint32_t* const tuples = ranks[me.rank()].tuples;
    const vertex base = l.first_of(me.rank());
    me.deal(0, l.block, kAtOnce, [&](std::size_t first, std::size_t last) {
      std::vector<std::uint32_t> some(last - first);
      std::fill(tuples + first, tuples + last, 0u);
      for (std::uint32_t m = 0; m < members; ++m) {
        fetch(some.data(), seen[m] + base + first, some.size());
        for (std::size_t i = 0; i < some.size(); ++i) tuples[first + i] += some[i];
      }
    });
  }

  /// Places by ascending count: those with few tuples by counting, the others by sorting. One member a rank.
  void order(const member& me) const {
    const OfRank& r = ranks[me.rank()];
    const PartMade& p = parts[me.rank()];
    const std::uint32_t n = l.size_of(me.rank());
    std::fill_n(r.counts, kCounts + 1, 0u);
    const auto clamp = [](std::uint32_t t) { return std::min<std::size_t>(t, kCounts - 1); };
    for (std::uint32_t v = 0; v < n; ++v) ++r.counts[clamp(r.tuples[v]) + 1];
    // Empty rows come first; so the block's places beyond its vertices are the first ones.
    r.counts[0] = l.block - n;
    for (std::size_t i = 1; i <= kCounts; ++i) r.counts[i] += r.counts[i - 1];
    for (std::uint32_t i = 0; i < l.block - n; ++i) p.caller[i] = no_vertex, p.tuples[i] = 0;
    const std::uint32_t heavy = r.counts[kCounts - 1];
    for (std::uint32_t v = 0; v < n; ++v) p.caller[r.counts[clamp(r.tuples[v])]++] = v;
    std::stable_sort(p.caller + heavy, p.caller + l.block,
                     [&](vertex a, vertex b) { return r.tuples[a] < r.tuples[b]; });
    for (std::uint32_t i = l.block - n; i < l.block; ++i) {
      const vertex v = p.caller[i];
      p.place[v] = l.first_of(me.rank()) + i;
      p.tuples[i] = r.tuples[v];
      p.caller[i] = l.first_of(me.rank()) + v;
    }
  }
  void count_steps(const member& me) const {
    const OfRank& r = ranks[me.rank()];
    for (std::uint64_t* edges : r.edges_of) std::fill_n(edges, Steps::kNumber, std::uint64_t{0});
    for (std::uint32_t row = 0; row < l.block; ++row) {
      const std::uint32_t tuples = parts[me.rank()].tuples[row];
      r.edges_of[0][Steps::of(l.block - 1 - row)] += tuples;
      r.edges_of[1][Steps::of(l.places() - 1 - (row * l.ranks + me.rank()))] += tuples;
    }
  }
  void cut(const member& me) const {
    const OfRank& mine = ranks[me.rank()];
    mine.parts_of_rows[me.rank()].cut(mine.edges_of[0], l.block, 8 * workers);
    std::vector<std::uint64_t> sum(Steps::kNumber), one(Steps::kNumber);
    for (std::uint32_t r = 0; r < l.ranks; ++r) {
      fetch(one.data(), ranks[r].edges_of[1], one.size());
      for (std::size_t s = 0; s < sum.size(); ++s) sum[s] += one[s];
    }
    mine.parts_of_order->cut(sum.data(), l.places(), 8 * workers);
  }

  /// The order of all vertices, at each rank.
  void know_order(member& me) const {
    vertex* const order = ranks[me.rank()].order;
    for (std::uint32_t r = 0; r < l.ranks; ++r) {
      const std::uint32_t n = l.size_of(r), base = l.first_of(r);
      me.deal(0, n, kAtOnce, [&](std::size_t first, std::size_t last) {
        vertex* const o = order + base;
        fetch(o + first, parts[r].place + first, last - first);
        for (; first < last; ++first) o[first] = (o[first] - base) * l.ranks + r;
      });
    }
  }

  /// Where a vertex is.
  struct Known {
    std::uint32_t order, part;  ///< part of the order
    std::uint32_t rank, row, part_of_rows;
  };
  [[nodiscard]] Known known(const OfRank& r, vertex v) const noexcept {
    Known k;
    k.order = r.order[v];
    k.part = r.parts_of_order->of(k.order);
    if (l.ranks == 1) {
      k.rank = 0, k.row = k.order, k.part_of_rows = k.part;  // there the order is that of the rows
    } else {
      k.rank = k.order % l.ranks, k.row = k.order / l.ranks;
      k.part_of_rows = r.parts_of_rows[k.rank].of(k.row);
    }
    return k;
  }
  /// call(way, edge on its way, where its row is, number of the member and the part of the order) at both
  /// vertices of each edge.
  template <class F>
  void each_going(const member& me, F&& call) const {
    Found again{0, 0, 0, kNone};
    const OfRank& r = ranks[me.rank()];
    const std::uint32_t n = r.parts_of_order->number;
    const auto go = [&](int way, edge<W> e, const Known& at, const Known& neighbour) {
      e.from = at.row, e.to = neighbour.order;
      const std::uint32_t to =
          at.rank * workers + worker_of(at.part_of_rows, r.parts_of_rows[at.rank].number);
      call(way, e, at, to * n + neighbour.part);
    };
    each_of_list(me, again, [&](const edge<W>& e) {
      const Known from = known(r, e.from), to = known(r, e.to);
      go(0, e, to, from);
      go(ways() - 1, e, from, to);
    });
  }
  void count_parts(const member& me) const {
    const std::uint32_t runs = members * ranks[me.rank()].parts_of_order->number;
    for (int way = 0; way < ways(); ++way) {
      std::fill_n(stages[way][me.index()].offset, runs + 1, std::uint64_t{0});
      std::fill_n(stages[way][me.index()].rows, l.ranks * kMostParts, std::uint64_t{0});
    }
    if (members == 1 && l.symmetric) {  // as many as the vertices have
      for (std::uint32_t row = 0; row < l.block; ++row) {
        const std::uint32_t part = ranks[0].parts_of_order->of(row), tuples = parts[0].tuples[row];
        stages[0][0].offset[part] += tuples, stages[0][0].rows[part] += tuples;
      }
    } else {
      each_going(me, [&](int way, const Going<W>&, const Known& at, std::uint32_t run) {
        const Stage<W>& s = stages[way][me.index()];
        ++s.offset[run];
        ++s.rows[at.rank * kMostParts + at.part_of_rows];
      });
    }
    for (int way = 0; way < ways(); ++way) begin_each(stages[way][me.index()].offset, runs + 1);
  }
  [[nodiscard]] std::uint32_t parts_of_order() const noexcept {
    return ranks[kasane::rank()].parts_of_order->number;
  }
  /// Edges that the member receives. After count.
  [[nodiscard]] std::uint64_t received(std::uint32_t m, int way) const {
    const std::uint32_t n = parts_of_order();
    std::uint64_t sum = 0;
    for (std::uint32_t from = 0; from < members; ++from) {
      const std::uint64_t* const offset = stages[way][from].offset;
      sum += offset[(m + 1) * n] - offset[m * n];
    }
    return sum;
  }

  // ---- send and merge ----

  void send(const member& me) const {
    const std::uint32_t runs = members * ranks[me.rank()].parts_of_order->number;
    std::vector<std::uint64_t> next[2];
    for (int way = 0; way < ways(); ++way) {
      const Stage<W>& s = stages[way][me.index()];
      next[way].assign(s.offset, s.offset + runs);
      if (s.offset[runs] != 0) prefetch(s.sent, s.offset[runs], write_only);
    }
    each_going(me, [&](int way, const Going<W>& g, const Known&, std::uint32_t run) {
      stages[way][me.index()].sent[next[way][run]++] = g;
    });
  }

  /// f(edge) for each one that the member receives in a part of the order.
  template <class F>
  void each_received(const member& me, int way, std::uint32_t part, F&& f) const {
    const std::size_t run = me.index() * ranks[me.rank()].parts_of_order->number + part;
    for (std::uint32_t from = 0; from < members; ++from) {
      const Stage<W>& s = stages[way][from];
      std::uint64_t next = s.offset[run];
      const std::uint64_t end = s.offset[run + 1];
      if (from / workers == me.rank()) {
        for (; next < end; ++next) f(s.sent[next]);
        continue;
      }
      Going<W>* const buffer = stages[way][me.index()].received;
      while (next < end) {
        const std::size_t n = std::min<std::size_t>(kAtOnce, end - next);
        fetch(buffer, s.sent + next, n);
        std::for_each(buffer, buffer + n, f);
        next += n;
      }
    }
  }
  /// Where each part of the member's rows begins among what it receives; and the end.
  [[nodiscard]] std::vector<std::uint64_t> begin_parts(const member& me, int way, part_of_range mine) const {
    std::vector<std::uint64_t> begin(mine.last - mine.first + 1), some(begin.size() - 1);
    for (std::uint32_t from = 0; from < members && !some.empty(); ++from) {
      kasane::get(some.data(), stages[way][from].rows + me.rank() * kMostParts + mine.first, some.size());
      for (std::size_t i = 0; i < some.size(); ++i) begin[i] += some[i];
    }
    begin_each(begin.data(), begin.size());
    return begin;
  }
  /// In descending order of neighbours into the parts of its rows.
  void merge(const member& me, int way, part_of_range mine, std::vector<std::uint64_t> next) const {
    const OfRank& r = ranks[me.rank()];
    const Parts &of_order = *r.parts_of_order, &of_rows = r.parts_of_rows[me.rank()];
    Going<W>* const merged = stages[way][me.index()].merged;
    if (next.back() != 0) prefetch(merged, next.back(), write_only);
    std::vector<std::uint64_t> at;
    std::vector<Going<W>> sorted;
    for (std::uint32_t part = of_order.number; part-- != 0;) {
      const auto first = static_cast<std::uint32_t>(of_order.first[part]);
      at.assign(of_order.first[part + 1] - first, 0);
      each_received(me, way, part, [&](const Going<W>& g) { ++at[g.to - first]; });
      sorted.resize(begin_each(at.data(), at.size()));
      each_received(me, way, part, [&](const Going<W>& g) { sorted[at[g.to - first]++] = g; });
      for (std::size_t i = sorted.size(); i-- != 0;)
        merged[next[of_rows.of(sorted[i].from) - mine.first]++] = sorted[i];
    }
  }

  // ---- settle ----

  /// The rows of the member, with one of equal edges; then all to their places.
  void settle(member& me, int way, part_of_range mine, const std::vector<std::uint64_t>& begin) const {
    const RowsMade& rows = parts[me.rank()].rows[way];
    std::uint64_t* const kept_of = ranks[me.rank()].kept;
    std::uint64_t kept = 0;
    for (std::size_t part = mine.first; part < mine.last; ++part)
      kept = settle_part(me, way, part, begin[part - mine.first], begin[part - mine.first + 1], kept);
    kept_of[me.rank_index()] = kept;
    if (way == 0) found[me.index()].stored = kept, found[me.index()].duplicates = begin.back() - kept;
    if (me.rank_index() == 0) rows.start[0] = 0;
    me.wait_here();
    std::uint64_t base = 0;
    for (std::uint32_t w = 0; w < me.rank_index(); ++w) base += kept_of[w];
    const auto [first, last] = rows_of(me, mine);
    for (std::size_t row = first; row < last; ++row) rows.start[row + 1] += base;
    if (kept != 0) prefetch(rows.ids + base, kept, write_only);
    if constexpr (kWeighted)
      if (kept != 0) prefetch(static_cast<W*>(rows.weights) + base, kept, write_only);
    const Kept<W>* const from = kept_by(me.index(), way);
    for (std::uint64_t i = 0; i < kept; ++i) {
      rows.ids[base + i] = from[i].id;
      if constexpr (kWeighted) static_cast<W*>(rows.weights)[base + i] = from[i].weight;
    }
    me.wait_here();
  }
  [[nodiscard]] part_of_range rows_of(const member& me, part_of_range mine) const noexcept {
    const Parts& p = ranks[me.rank()].parts_of_rows[me.rank()];
    return {p.first[mine.first], p.first[mine.last]};
  }
  [[nodiscard]] Kept<W>* kept_by(std::size_t m, int way) const noexcept {
    return reinterpret_cast<Kept<W>*>(stages[way][m].merged);
  }
  /// What is kept of a part goes behind the `kept` edges of those before, over what was merged.
  [[nodiscard]] std::uint64_t settle_part(const member& me, int way, std::size_t part, std::uint64_t begin,
                                          std::uint64_t end, std::uint64_t kept) const {
    const Going<W>* const merged = stages[way][me.index()].merged;
    const Parts& of_rows = ranks[me.rank()].parts_of_rows[me.rank()];
    const std::size_t first = of_rows.first[part], n = of_rows.first[part + 1] - first;
    std::vector<std::uint64_t> row_begin(n), row_end;
    std::vector<Kept<W>> sorted(end - begin);
    for (std::uint64_t i = begin; i < end; ++i) ++row_begin[merged[i].from - first];
    begin_each(row_begin.data(), n);
    row_end = row_begin;
    for (std::uint64_t i = begin; i < end; ++i) {
      const Going<W>& g = merged[i];
      const std::size_t row = g.from - first;
      const vertex id = place_at(g.to);
      Kept<W>* const last = sorted.data() + row_end[row];
      if (row_end[row] == row_begin[row] || last[-1].id != id) {
        last->id = id;
        if constexpr (kWeighted) last->weight = g.weight;
        ++row_end[row];
      } else if constexpr (kWeighted) {
        last[-1].weight = std::min(last[-1].weight, g.weight);
      }
    }
    std::uint64_t* const start = parts[me.rank()].rows[way].start + first + 1;
    Kept<W>* const out = kept_by(me.index(), way);
    for (std::size_t row = 0; row < n; ++row) {
      std::copy(sorted.begin() + static_cast<std::ptrdiff_t>(row_begin[row]),
                sorted.begin() + static_cast<std::ptrdiff_t>(row_end[row]), out + kept);
      start[row] = kept += row_end[row] - row_begin[row];
    }
    return kept;
  }

  /// First neighbours, and which vertices have one.
  void mark(member& me) const {
    const PartMade& p = parts[me.rank()];
    const RowsMade& rows = p.rows[0];
    me.deal(0, l.words(), kChunk / kBits, [&](std::size_t word, std::size_t end) {
      for (; word < end; ++word) {
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < kBits; ++i) {
          const std::size_t row = word * kBits + i;
          const bool has = rows.start[row] != rows.start[row + 1];
          p.first[row] = has ? rows.ids[rows.start[row]] : no_vertex;
          bits |= std::uint64_t{has} << i;
        }
        p.connected[word] = bits;
      }
    });
  }

  // ---- forward ----

  /// The rank's rows by neighbour: by parts of the order, and then by the order.
  void forward(member& me, part_of_range mine) const {
    const RowsMade &in = parts[me.rank()].rows[0], &out = parts[me.rank()].forward;
    const Parts& of_order = *ranks[me.rank()].parts_of_order;
    const auto [first_row, last_row] = rows_of(me, mine);
    std::uint64_t* const runs = runs_of(me, me.rank_index());
    std::fill_n(runs, of_order.number + 1, std::uint64_t{0});
    const auto each = [&, first = first_row, last = last_row](auto&& f) {
      for (std::size_t row = first; row < last; ++row)
        for (std::uint64_t i = in.start[row]; i < in.start[row + 1]; ++i)
          f(edge<void>{static_cast<vertex>(row), order_at(in.ids[i])});
    };
    each([&](edge<void> e) { ++runs[of_order.of(e.to)]; });
    begin_each(runs, of_order.number + 1);
    std::vector<std::uint64_t> next(runs, runs + of_order.number);
    edge<void>* const to = run_by(me.index());
    each([&](edge<void> e) { to[next[of_order.of(e.to)]++] = e; });
    me.wait_here();

    const auto each_part = [&](auto&& f) {
      std::vector<std::uint64_t> at;
      me.deal(0, of_order.number, 1, [&](std::size_t part, std::size_t) {
        const auto first = static_cast<std::uint32_t>(of_order.first[part]);
        at.assign(of_order.first[part + 1] - first, 0);
        f(part, first, at);
      });
      me.wait_here();
    };
    if (me.rank_index() == 0) out.start[0] = 0;
    each_part([&](std::size_t part, std::uint32_t first, std::vector<std::uint64_t>& at) {
      each_in_runs(me, part, [&](edge<void> e) { ++at[e.to - first]; });
      for (std::size_t i = 0; i < at.size(); ++i)
        out.start[place_at(first + static_cast<std::uint32_t>(i)) + 1] = at[i];
    });
    if (me.rank_index() == 0)
      for (std::uint32_t p = 0; p < l.places(); ++p) out.start[p + 1] += out.start[p];
    me.wait_here();
    each_part([&](std::size_t part, std::uint32_t first, std::vector<std::uint64_t>& at) {
      for (std::size_t i = 0; i < at.size(); ++i)
        at[i] = out.start[place_at(first + static_cast<std::uint32_t>(i))];
      each_in_runs(me, part,
                   [&](edge<void> e) { out.ids[at[e.to - first]++] = l.first_of(me.rank()) + e.from; });
    });
  }
  [[nodiscard]] std::uint64_t* runs_of(const member& me, std::uint32_t worker) const noexcept {
    return ranks[me.rank()].forward_runs + worker * std::size_t{kMostParts + 1};
  }
  [[nodiscard]] edge<void>* run_by(std::size_t m) const noexcept {
    return reinterpret_cast<edge<void>*>(stages[0][m].merged);
  }
  /// For the edges of a part of all members of the rank.
  template <class F>
  void each_in_runs(const member& me, std::size_t part, F&& f) const {
    for (std::uint32_t w = 0; w < workers; ++w) {
      const std::uint64_t* const runs = runs_of(me, w);
      const edge<void>* const all = run_by(std::size_t{me.rank()} * workers + w);
      std::for_each(all + runs[part], all + runs[part + 1], f);
    }
  }

  void make_rows(member& me) const {
    send(me);
    me.wait();
    const part_of_range mine = parts_of(me);
    for (int way = 0; way < ways(); ++way) {
      const std::vector<std::uint64_t> begin = begin_parts(me, way, mine);
      merge(me, way, mine, begin);
      settle(me, way, mine, begin);
    }
    mark(me);
    if (l.ranks > 1) forward(me, mine);
  }
};

/// Makes what a Build points to, and runs its teams.
template <class W>
class Builder {
 public:
  Builder(const edges<W>& list, build_options options) {
    b_.list = list.data(), b_.size = list.size();
    b_.l.vertices = list.vertices();
    b_.l.symmetric = options.symmetric;
    b_.l.ranks = ranks();
    b_.workers = workers(), b_.members = ranks() * workers();
    b_.l.block = share_for(list.vertices(), b_.members) * b_.workers;
    for (auto& s : stages_) s = make_array<Stage<W>>(b_.members);
    for (int way = 0; way < 2; ++way) b_.stages[way] = stages_[way].get();
    b_.seen = (seen_ = make_array<std::uint32_t*>(b_.members)).get();
    b_.ranks = (of_ranks_ = make_array<OfRank>(b_.l.ranks)).get();
    b_.parts = (parts_ = make_array<PartMade>(b_.l.ranks)).get();
    b_.found = (found_ = make_array<Found>(b_.members)).get();
  }

  [[nodiscard]] Graph* run() {
    for (std::uint32_t m = 0; m < b_.members; ++m) allocate_counts(m);
    for (std::uint32_t r = 0; r < b_.l.ranks; ++r) allocate_order(r);
    team([b = &b_](member& me) { b->count_all(me); });
    refuse_bad();
    for (std::uint32_t m = 0; m < b_.members; ++m) allocate_edges(m);
    for (std::uint32_t r = 0; r < b_.l.ranks; ++r) allocate_rows(r);
    team([b = &b_](member& me) { b->make_rows(me); });
    return finish();
  }

 private:
  /// Vertices of a member: whole pages of results where there are many, else whole words.
  [[nodiscard]] static std::uint32_t share_for(std::uint64_t vertices, std::uint32_t members) {
    const std::uint64_t even = (vertices + members - 1) / members;
    const std::uint64_t unit = even >= std::uint64_t{1} << 18 ? 16384 : even >= 8192 ? 1024 : kBits;
    const std::uint64_t share = std::max<std::uint64_t>(unit, (even + unit - 1) / unit * unit);
    if (vertices >= no_vertex || share * members > no_vertex)
      refuse("graph::build: %llu vertices are too many: they are numbered by 32 bits",
             static_cast<unsigned long long>(vertices));
    return static_cast<std::uint32_t>(share);
  }

  /// Scratch memory of n elements at the member's rank.
  template <class T>
  [[nodiscard]] T* scratch(std::uint32_t member, std::size_t n) {
    auto memory = at_rank<T>(member / b_.workers, n);
    T* const p = memory.get();
    scratch_.emplace_back(reinterpret_cast<std::byte*>(memory.release()));
    return p;
  }

  void allocate_counts(std::uint32_t m) {
    seen_[m] = scratch<std::uint32_t>(m, b_.l.places());
    for (int way = 0; way < b_.ways(); ++way) {
      Stage<W>& s = stages_[way][m];
      s.offset = make_scratch_for_all(std::size_t{b_.members} * kMostParts + 1);
      s.rows = scratch<std::uint64_t>(m, std::size_t{b_.l.ranks} * kMostParts);
      s.received = scratch<Going<W>>(m, kAtOnce);
    }
  }
  void allocate_order(std::uint32_t r) {
    const std::uint32_t m = r * b_.workers;
    of_ranks_[r] = {scratch<std::uint32_t>(m, b_.l.block),
                    scratch<vertex>(m, b_.l.places()),
                    scratch<std::uint32_t>(m, kCounts + 1),
                    {scratch<std::uint64_t>(m, Steps::kNumber), scratch<std::uint64_t>(m, Steps::kNumber)},
                    scratch<Parts>(m, 1),
                    scratch<Parts>(m, b_.l.ranks),
                    scratch<std::uint64_t>(m, b_.workers),
                    scratch<std::uint64_t>(m, b_.workers * std::size_t{kMostParts + 1})};
    PartMade& p = parts_[r];
    p = {};
    p.first = graph_->keep<vertex>(r, b_.l.block);
    p.caller = graph_->keep<vertex>(r, b_.l.block);
    p.place = graph_->keep<vertex>(r, b_.l.block);
    p.tuples = graph_->keep<std::uint32_t>(r, b_.l.block);
    p.connected = graph_->keep<std::uint64_t>(r, b_.l.words());
  }
  /// Words that all ranks read.
  [[nodiscard]] std::uint64_t* make_scratch_for_all(std::size_t n) {
    auto memory = make_array<std::uint64_t>(n);
    std::uint64_t* const p = memory.get();
    scratch_.emplace_back(reinterpret_cast<std::byte*>(memory.release()));
    return p;
  }

  void refuse_bad() const {
    std::uint64_t bad = kNone;
    for (std::uint32_t m = 0; m < b_.members; ++m) bad = std::min(bad, found_[m].bad);
    if (bad == kNone) return;
    const edge<W>& e = b_.list[bad];
    if (e.from >= b_.l.vertices || e.to >= b_.l.vertices)
      refuse("graph::build: edge %llu goes from %u to %u, but there are %llu vertices",
             static_cast<unsigned long long>(bad), e.from, e.to,
             static_cast<unsigned long long>(b_.l.vertices));
    if constexpr (!std::is_void_v<W>)
      refuse(
          "graph::build: edge %llu, from %u to %u, has the weight %g; weights are finite, and not negative",
          static_cast<unsigned long long>(bad), e.from, e.to, static_cast<double>(e.weight));
  }

  void allocate_edges(std::uint32_t m) {
    for (int way = 0; way < b_.ways(); ++way) {
      Stage<W>& s = stages_[way][m];
      s.sent = scratch<Going<W>>(m, s.offset[b_.members * b_.parts_of_order()]);
      s.merged = scratch<Going<W>>(m, b_.received(m, way));
    }
  }
  void allocate_rows(std::uint32_t r) {
    for (int way = 0; way < b_.ways(); ++way) {
      std::uint64_t n = 0;
      for (std::uint32_t w = 0; w < b_.workers; ++w) n += b_.received(r * b_.workers + w, way);
      parts_[r].rows[way] = rows(r, b_.l.block, n, b_.kWeighted);
      if (way == 0 && b_.l.ranks > 1) parts_[r].forward = rows(r, b_.l.places(), n, false);
    }
  }
  [[nodiscard]] RowsMade rows(std::uint32_t r, std::size_t n_rows, std::size_t n, bool weighted) {
    return {graph_->keep<std::uint64_t>(r, n_rows + 1), graph_->keep<vertex>(r, n),
            weighted ? graph_->keep<std::conditional_t<std::is_void_v<W>, char, W>>(r, n) : nullptr};
  }

  [[nodiscard]] Graph* finish() {
    Layout& l = graph_->layout = b_.l;
    for (std::uint32_t m = 0; m < b_.members; ++m) {
      l.loops += found_[m].loops;
      l.duplicates += found_[m].duplicates;
      l.stored += found_[m].stored;
    }
    if (l.symmetric) l.duplicates /= 2;
    graph_->parts = make_array<Part>(l.ranks);
    for (std::uint32_t r = 0; r < l.ranks; ++r) {
      const PartMade& p = parts_[r];
      const Rows in = p.rows[0], out = p.rows[b_.ways() - 1];
      graph_->parts[r] = {
          in, out, l.ranks > 1 ? Rows(p.forward) : out, p.first, p.caller, p.place, p.tuples, p.connected};
    }
    l.parts = graph_->parts.get();
    l.beyond_dram = is_beyond_dram();
    return graph_.release();
  }

  /// A kernel needs a few words for each vertex beside the rows.
  [[nodiscard]] bool is_beyond_dram() const {
    const Layout& l = graph_->layout;
    const std::uint64_t edges = l.stored / l.ranks * (sizeof(vertex) + (b_.kWeighted ? sizeof(float) : 0));
    return edges * (l.symmetric && l.ranks == 1 ? 1 : 2) + std::uint64_t{l.block} * 48 > dram();
  }

  Build<W> b_;
  std::unique_ptr<Graph, Destroy> graph_{new Graph};
  Memory scratch_;
  unique_array<Stage<W>> stages_[2];
  unique_array<std::uint32_t*> seen_;
  unique_array<OfRank> of_ranks_;
  unique_array<PartMade> parts_;
  unique_array<Found> found_;
};

}  // namespace
}  // namespace detail

template <weight W>
csr<W> build(const edges<W>& list, build_options options) {
  return csr<W>(detail::Builder<W>(list, options).run());
}
template csr<void> build(const edges<void>&, build_options);
template csr<std::int32_t> build(const edges<std::int32_t>&, build_options);
template csr<float> build(const edges<float>&, build_options);

}  // namespace kasane::graph
