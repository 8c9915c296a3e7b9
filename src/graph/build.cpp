// SPDX-License-Identifier: Apache-2.0
// From a list of edges to rows (layout.h), without a sort. Each member of the team has a share of its rank's
// vertices. Two teams, with the allocations between them:
//
// send      each member reads its part of the list, and lays out, for each member, the edges at its vertices
//   order     the members of a rank count them, and the rank's vertices get places by ascending count
//   group     a member groups its edges by the neighbour
//   turn      it goes through the neighbours in descending order, and appends each to the rows that have it:
//             so every row is in descending order, and duplicates follow each other
//   settle    the rows of a rank's members go to their places in the rank's arrays
//   forward   A^F: the rank's rows once more, by neighbour
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <memory>
#include <type_traits>

#include "graph/layout.h"

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

/// What one member has for one way: the rows of what enters its vertices, or of what leaves them.
template <class W>
struct Stage {
  using Weight = std::conditional_t<std::is_void_v<W>, char, W>;
  std::uint64_t* offset;  ///< where what it sends to each member begins in `sent`, and the end
  edge<W>* sent;          ///< `from` is the vertex at which it counts
  edge<W>* received;      ///< kAtOnce of them

  std::uint64_t* group_end;    ///< of each neighbour, in order
  std::uint32_t* grouped;      ///< the vertices that have it
  std::uint64_t *begin, *end;  ///< of each of its vertices' rows in `ids`, behind a slot with no_vertex
  vertex* ids;
  Weight *grouped_weights, *weights;
};

/// What the members of a rank share.
struct OfRank {
  std::uint32_t* tuples;  ///< of each vertex, by the caller's numbers
  vertex* order;          ///< of all vertices, by the caller's numbers: by place, then by rank
  std::uint32_t* counts;  ///< vertices of so many tuples; the last counts all that have more
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
  if constexpr (!std::is_void_v<W>) return !(e.weight >= 0);
  return false;
}

/// All that members read; itself in memory of all ranks. One for each build.
template <class W>
struct Build {
  static constexpr bool kWeighted = !std::is_void_v<W>;

  const edge<W>* list;
  std::uint64_t size;
  Layout l;
  std::uint32_t workers, members, share;
  Stage<W>* stages[2];  ///< of each member
  OfRank* ranks;
  PartMade* parts;
  Found* found;

  /// One member has the list, and sends itself nothing.
  [[nodiscard]] bool is_alone() const noexcept { return members == 1; }
  [[nodiscard]] int ways() const noexcept { return l.symmetric ? 1 : 2; }
  [[nodiscard]] std::uint32_t member_of(vertex v) const noexcept { return v / share; }
  /// The member's vertices, within its block.
  [[nodiscard]] part_of_range mine(const member& me) const noexcept {
    return {std::size_t{me.rank_index()} * share, std::size_t{me.rank_index() + 1} * share};
  }

  // ---- send ----

  /// call(way, edge) for each edge of the member's part, at each vertex at which it counts: its `from`.
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
        edge<W> back = e;
        std::swap(back.from, back.to);
        call(0, back);
        call(ways() - 1, e);
      }
    }
  }

  void send(const member& me) const {
    Found f{0, 0, 0, kNone}, again = f;
    for (int way = 0; way < ways(); ++way)
      std::fill_n(stages[way][me.index()].offset, members + 1, std::uint64_t{0});
    if (is_alone()) {
      each_of_list(me, f, [&](int way, const edge<W>&) { ++stages[way][0].offset[1]; });
      found[0] = f;
      return;
    }
    each_of_list(me, f,
                 [&](int way, const edge<W>& e) { ++stages[way][me.index()].offset[member_of(e.from) + 1]; });
    for (int way = 0; way < ways(); ++way) {
      std::uint64_t* const offset = stages[way][me.index()].offset;
      std::uint64_t sum = 0;
      for (std::uint32_t m = 1; m <= members; ++m) sum += std::exchange(offset[m], sum);
    }
    each_of_list(me, again, [&](int way, const edge<W>& e) {
      const Stage<W>& s = stages[way][me.index()];
      s.sent[s.offset[member_of(e.from) + 1]++] = e;
    });
    found[me.index()] = f;
  }

  /// Edges that the member receives.
  [[nodiscard]] std::uint64_t received(std::uint32_t m, int way) const {
    std::uint64_t sum = 0;
    for (std::uint32_t from = 0; from < members; ++from) {
      const std::uint64_t* const offset = stages[way][from].offset;
      sum += offset[m + 1] - offset[m];
    }
    return sum;
  }
  /// f(edge) for each of them.
  template <class F>
  void each_received(const member& me, int way, F&& f) const {
    if (is_alone()) {
      Found again{0, 0, 0, kNone};
      each_of_list(me, again, [&](int w, const edge<W>& e) {
        if (w == way) f(e);
      });
      return;
    }
    for (std::uint32_t i = 0; i < members; ++i) {
      const std::uint32_t from = (me.index() + i) % members;  // not all at the same time from the first
      const Stage<W>& s = stages[way][from];
      std::uint64_t next = s.offset[me.index()];
      const std::uint64_t end = s.offset[me.index() + 1];
      if (from / workers == me.rank()) {
        for (; next < end; ++next) f(s.sent[next]);
        continue;
      }
      edge<W>* const buffer = stages[way][me.index()].received;
      for (; next < end;) {
        const std::size_t n = std::min<std::size_t>(kAtOnce, end - next);
        fetch(buffer, s.sent + next, n);
        std::for_each(buffer, buffer + n, f);
        next += n;
      }
    }
  }

  // ---- order ----

  void count(const member& me) const {
    std::uint32_t* const tuples = ranks[me.rank()].tuples;
    const auto [first, last] = mine(me);
    std::fill(tuples + first, tuples + last, 0u);
    const vertex base = l.first_of(me.rank());
    for (int way = 0; way < ways(); ++way)
      each_received(me, way, [&](const edge<W>& e) { ++tuples[e.from - base]; });
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
  [[nodiscard]] vertex place_at(std::uint32_t order) const noexcept {
    return order % l.ranks * l.block + order / l.ranks;
  }

  // ---- group and turn ----

  void group(const member& me, int way) const {
    const Stage<W>& s = stages[way][me.index()];
    const vertex* const order = ranks[me.rank()].order;
    const vertex base = l.first_of(me.rank());
    std::uint64_t* const next = s.group_end;
    std::fill_n(next, l.places() + 1, std::uint64_t{0});
    if (is_alone() && l.symmetric)  // as many as it has itself
      for (std::uint32_t o = 0; o < l.places(); ++o) next[o] = parts[0].tuples[o];
    else
      each_received(me, way, [&](const edge<W>& e) { ++next[order[e.to]]; });
    std::uint64_t sum = 0;
    for (std::uint32_t o = 0; o < l.places(); ++o) sum += std::exchange(next[o], sum);
    each_received(me, way, [&](const edge<W>& e) {
      const std::uint64_t at = next[order[e.to]]++;
      s.grouped[at] = e.from - base;
      if constexpr (kWeighted) s.grouped_weights[at] = e.weight;
    });
  }

  /// Where the rows of the member's vertices begin: as many slots as edges were received, and one before.
  void begin_rows(const member& me, int way) const {
    const Stage<W>& s = stages[way][me.index()];
    const auto [first, last] = mine(me);
    const vertex base = l.first_of(me.rank());
    if (l.symmetric) {
      std::copy(ranks[me.rank()].tuples + first, ranks[me.rank()].tuples + last, s.begin);
    } else {
      std::fill(s.begin, s.begin + (last - first), std::uint64_t{0});
      each_received(me, way, [&, first = first](const edge<W>& e) { ++s.begin[e.from - base - first]; });
    }
    std::uint64_t sum = 0;
    for (std::size_t v = 0; v < last - first; ++v) {
      const std::uint64_t n = s.begin[v];
      s.ids[sum] = no_vertex;
      s.begin[v] = s.end[v] = sum + 1;
      sum += n + 1;
    }
  }

  void turn(const member& me, int way) const {
    const Stage<W>& s = stages[way][me.index()];
    const std::size_t first = mine(me).first;
    std::uint64_t duplicates = 0, last = l.places() != 0 ? s.group_end[l.places() - 1] : 0;
    const std::uint64_t all = last;
    for (std::uint32_t o = l.places(); o-- != 0;) {
      const std::uint64_t begin = o != 0 ? s.group_end[o - 1] : 0;
      const vertex neighbour = place_at(o);
      for (std::uint64_t i = begin; i < last; ++i) {
        std::uint64_t& end = s.end[s.grouped[i] - first];
        if (s.ids[end - 1] != neighbour) {
          s.ids[end] = neighbour;
          if constexpr (kWeighted) s.weights[end] = s.grouped_weights[i];
          ++end;
        } else {
          if constexpr (kWeighted) s.weights[end - 1] = std::min(s.weights[end - 1], s.grouped_weights[i]);
          ++duplicates;
        }
      }
      last = begin;
    }
    if (way == 0) found[me.index()].duplicates = duplicates, found[me.index()].stored = all - duplicates;
  }

  // ---- settle ----

  /// The members' rows, by place.
  void settle(member& me, int way) const {
    const Stage<W>& s = stages[way][me.index()];
    const PartMade& p = parts[me.rank()];
    const RowsMade& rows = p.rows[way];
    const auto [first, last] = mine(me);
    const std::size_t n = std::min<std::size_t>(last, std::max<std::size_t>(first, l.size_of(me.rank())));
    const vertex base = l.first_of(me.rank());
    const std::uint32_t empty = l.block - l.size_of(me.rank());
    if (me.rank_index() == 0) std::fill_n(rows.start, empty + 1, std::uint64_t{0});
    for (std::size_t v = first; v < n; ++v)
      rows.start[p.place[v] - base + 1] = s.end[v - first] - s.begin[v - first];
    me.wait_here();
    if (me.rank_index() == 0)
      for (std::uint32_t i = 0; i < l.block; ++i) rows.start[i + 1] += rows.start[i];
    me.wait_here();
    for (std::size_t v = first; v < n; ++v) {
      const std::uint64_t to = rows.start[p.place[v] - base], from = s.begin[v - first];
      const std::size_t degree = s.end[v - first] - from;
      std::copy_n(s.ids + from, degree, rows.ids + to);
      if constexpr (kWeighted) std::copy_n(s.weights + from, degree, static_cast<W*>(rows.weights) + to);
    }
    me.wait_here();
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

  /// The rank's rows by neighbour. Members count and place by atomics, so what a row has is in no order.
  void forward(member& me) const {
    const PartMade& p = parts[me.rank()];
    const RowsMade &in = p.rows[0], &out = p.forward;
    const std::uint32_t base = l.first_of(me.rank());
    const auto add = [alone = me.rank_size() == 1](std::uint64_t& word) {
      if (alone) return word++;
      return std::atomic_ref<std::uint64_t>(word).fetch_add(1,
                                                            std::memory_order_relaxed);  // wait_here() orders
    };
    const auto [first, last] = me.part_here(0, std::size_t{l.places()} + 1);
    std::fill(out.start + first, out.start + last, std::uint64_t{0});
    me.wait_here();
    me.deal(0, in.start[l.block], kAtOnce, [&](std::size_t i, std::size_t end) {
      for (; i < end; ++i) add(out.start[in.ids[i] + 1]);
    });
    me.wait_here();
    if (me.rank_index() == 0) {
      std::uint64_t sum = 0;
      for (std::uint32_t i = 1; i <= l.places(); ++i) sum += std::exchange(out.start[i], sum);
    }
    me.wait_here();
    me.deal(0, l.block, kChunk, [&](std::size_t row, std::size_t end) {
      for (; row < end; ++row)
        for (std::uint64_t i = in.start[row]; i < in.start[row + 1]; ++i)
          out.ids[add(out.start[in.ids[i] + 1])] = base + static_cast<vertex>(row);
    });
  }

  void make_rows(member& me) const {
    count(me);
    me.wait_here();
    if (me.rank_index() == 0) order(me);
    me.wait();
    know_order(me);
    me.wait_here();
    for (int way = 0; way < ways(); ++way) {
      group(me, way);
      begin_rows(me, way);
      turn(me, way);
      settle(me, way);
    }
    mark(me);
    if (l.ranks > 1) forward(me);
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
    b_.share = share_for(list.vertices(), b_.members);
    b_.l.block = b_.share * b_.workers;
    for (auto& s : stages_) s = make_array<Stage<W>>(b_.members);
    for (int way = 0; way < 2; ++way) b_.stages[way] = stages_[way].get();
    b_.ranks = (of_ranks_ = make_array<OfRank>(b_.l.ranks)).get();
    b_.parts = (parts_ = make_array<PartMade>(b_.l.ranks)).get();
    b_.found = (found_ = make_array<Found>(b_.members)).get();
  }

  [[nodiscard]] Graph* run() {
    allocate_sent();
    team([b = &b_](const member& me) { b->send(me); });
    refuse_bad();
    allocate_rows();
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

  void allocate_sent() {
    for (std::uint32_t m = 0; m < b_.members; ++m) {
      const auto [first, last] = member(m, b_.members).part(0, b_.size);
      for (int way = 0; way < b_.ways(); ++way) {
        Stage<W>& s = stages_[way][m];
        s.offset = make_scratch_for_all(b_.members + 1);
        s.sent = scratch<edge<W>>(m, b_.is_alone() ? 0 : (last - first) * (b_.l.symmetric ? 2 : 1));
        s.received = scratch<edge<W>>(m, kAtOnce);
      }
    }
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
      refuse("graph::build: edge %llu, from %u to %u, has the weight %g; weights are not negative",
             static_cast<unsigned long long>(bad), e.from, e.to, static_cast<double>(e.weight));
  }

  void allocate_rows() {
    using Weight = typename Stage<W>::Weight;
    for (std::uint32_t m = 0; m < b_.members; ++m) {
      for (int way = 0; way < b_.ways(); ++way) {
        Stage<W>& s = stages_[way][m];
        const std::uint64_t n = b_.received(m, way);
        s.group_end = scratch<std::uint64_t>(m, b_.l.places() + 1);
        s.grouped = scratch<std::uint32_t>(m, n);
        s.begin = scratch<std::uint64_t>(m, b_.share);
        s.end = scratch<std::uint64_t>(m, b_.share);
        s.ids = scratch<vertex>(m, n + b_.share);
        s.grouped_weights = b_.kWeighted ? scratch<Weight>(m, n) : nullptr;
        s.weights = b_.kWeighted ? scratch<Weight>(m, n + b_.share) : nullptr;
      }
    }
    for (std::uint32_t r = 0; r < b_.l.ranks; ++r) allocate_part(r);
  }
  void allocate_part(std::uint32_t r) {
    const std::uint32_t m = r * b_.workers;
    of_ranks_[r] = {scratch<std::uint32_t>(m, b_.l.block), scratch<vertex>(m, b_.l.places()),
                    scratch<std::uint32_t>(m, kCounts + 1)};
    PartMade& p = parts_[r];
    p = {};
    for (int way = 0; way < b_.ways(); ++way) {
      std::uint64_t n = 0;
      for (std::uint32_t w = 0; w < b_.workers; ++w) n += b_.received(m + w, way);
      p.rows[way] = rows(r, b_.l.block, n, b_.kWeighted);
      if (way == 0 && b_.l.ranks > 1) p.forward = rows(r, b_.l.places(), n, false);
    }
    p.first = graph_->keep<vertex>(r, b_.l.block);
    p.caller = graph_->keep<vertex>(r, b_.l.block);
    p.place = graph_->keep<vertex>(r, b_.l.block);
    p.tuples = graph_->keep<std::uint32_t>(r, b_.l.block);
    p.connected = graph_->keep<std::uint64_t>(r, b_.l.words());
  }
  [[nodiscard]] RowsMade rows(std::uint32_t r, std::size_t n_rows, std::size_t n, bool weighted) {
    return {graph_->keep<std::uint64_t>(r, n_rows + 1), graph_->keep<vertex>(r, n),
            weighted ? graph_->keep<typename Stage<W>::Weight>(r, n) : nullptr};
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
    return graph_.release();
  }

  Build<W> b_;
  std::unique_ptr<Graph, Destroy> graph_{new Graph};
  Memory scratch_;
  unique_array<Stage<W>> stages_[2];
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
