// SPDX-License-Identifier: Apache-2.0
// Triangles, each counted once: edges are oriented from the vertex of lower degree (by the order of places)
// to that of higher degree, where they are the first ones of a row; a triangle is two edges u → v, u → w and
// one v → w. The rank of v counts: the oriented rows of all ranks go past in order, by `get`, each is marked
// in a bitmap, and for those of its ends that are here, the marked ones of their own row are counted. So only
// what is at hand is read at random.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <memory>
#include <vector>

#include "graph/beyond_dram.h"
#include "graph/layout.h"

namespace kasane::graph {

namespace detail {
namespace {

constexpr std::size_t kRowsAtOnce = 512;

struct Counting {
  Layout l;
  std::uint64_t* const* start;  ///< of each rank: its oriented rows
  vertex* const* ids;
  std::uint64_t* const* marks;   ///< of each member: a bit for each place
  std::uint64_t* const* starts;  ///< of each member: kRowsAtOnce + 1 of another rank's
  vertex* const* rows;           ///< of each member: these rows
  std::uint64_t* count;          ///< of each member

  [[nodiscard]] std::uint32_t order(vertex place) const noexcept {
    return place % l.block * l.ranks + place / l.block;
  }
};

/// Neighbours of row that come after it in the order.
[[nodiscard]] std::size_t after(const Counting& c, const Rows& rows, std::uint32_t rank, std::size_t row) {
  const vertex* const begin = rows.ids + rows.start[row];
  const vertex* const end = rows.ids + rows.start[row + 1];
  const std::uint32_t own = c.order(c.l.first_of(rank) + static_cast<vertex>(row));
  return static_cast<std::size_t>(
      std::partition_point(begin, end, [&](vertex v) { return c.order(v) > own; }) - begin);
}

void orient(const Counting& c, member& me) {
  const Rows& rows = c.l.parts[me.rank()].in;
  std::uint64_t* const start = c.start[me.rank()];
  const auto each_row = [&](auto&& f) {
    me.deal(0, c.l.block, kChunk, [&](std::size_t row, std::size_t end) {
      for (; row < end; ++row) f(row);
    });
    me.wait_here();
  };
  if (me.rank_index() == 0) start[0] = 0;
  each_row([&](std::size_t row) { start[row + 1] = after(c, rows, me.rank(), row); });
  if (me.rank_index() == 0)
    for (std::size_t row = 0; row < c.l.block; ++row) start[row + 1] += start[row];
  me.wait_here();
  each_row([&](std::size_t row) {
    std::copy_n(rows.ids + rows.start[row], start[row + 1] - start[row], c.ids[me.rank()] + start[row]);
  });
}

/// Some of a rank's rows.
struct Some {
  vertex first, last;
};

/// The triangles u → v → w with v among some rows of this rank, of one u.
[[nodiscard]] std::uint64_t count_of(const Counting& c, const member& me, Some some, const vertex* row,
                                     std::size_t n) {
  std::uint64_t* const marks = c.marks[me.index()];
  const std::uint32_t base = c.l.first_of(me.rank());
  const auto is_among = [&](vertex v) { return v - base - some.first < some.last - some.first; };
  if (std::none_of(row, row + n, is_among)) return 0;
  for (std::size_t i = 0; i < n; ++i) set_bit(marks, row[i]);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!is_among(row[i])) continue;
    const vertex v = row[i] - base;
    const vertex* const end = c.ids[me.rank()] + c.start[me.rank()][v + 1];
    for (const vertex* w = c.ids[me.rank()] + c.start[me.rank()][v]; w != end; ++w) count += bit(marks, *w);
  }
  for (std::size_t i = 0; i < n; ++i) marks[row[i] / kBits] = 0;
  return count;
}

/// The triangles with v among these: the rows of all ranks go past.
[[nodiscard]] std::uint64_t count_among(const Counting& c, member& me, Some some) {
  std::uint64_t count = 0;
  for (std::uint32_t i = 0; i < c.l.ranks; ++i) {
    const std::uint32_t rank = (me.rank() + i) % c.l.ranks;
    me.deal(0, c.l.block, kRowsAtOnce, [&](std::size_t first, std::size_t last) {
      const std::uint64_t* start = c.start[rank] + first;
      const vertex* ids = c.ids[rank];
      if (rank != me.rank()) {
        fetch(c.starts[me.index()], start, last - first + 1);
        start = c.starts[me.index()];
        const std::size_t n = start[last - first] - start[0];
        if (n != 0) fetch(c.rows[me.index()], ids + start[0], n);
        ids = c.rows[me.index()] - start[0];
      }
      for (std::size_t row = 0; row < last - first; ++row)
        count += count_of(c, me, some, ids + start[row], start[row + 1] - start[row]);
    });
  }
  me.wait_here();
  return count;
}

/// f(rows) for all rows of this rank, as many at a time as stay in DRAM meanwhile, beside so many bytes for
/// each member: all at once, if it holds the graph, or too few. Members make the same calls; f ends with a
/// wait_here().
template <class F>
void each_some(const Layout& l, const Rows& rows, std::size_t beside, const member& me, const F& f) {
  constexpr std::uint64_t kMostTimes = 16;
  const std::uint64_t all_beside = std::uint64_t{beside} * me.rank_size();
  const std::uint64_t most = Held::most() - std::min(Held::most(), all_beside);
  const auto bytes = [&](Some some) {
    return (rows.start[some.last] - rows.start[some.first]) * sizeof(vertex) +
           (some.last - some.first) * sizeof(std::uint64_t);
  };
  Some some{0, l.block};
  if (!l.beyond_dram || bytes(some) / kMostTimes > most) return f(some);
  for (some.last = 0; some.last < l.block;) {
    some = {some.last, l.block};
    for (vertex least = some.first + 1; least < some.last;) {
      const vertex middle = some.last - (some.last - least) / 2;
      bytes({some.first, middle}) <= most ? least = middle : some.last = middle - 1;
    }
    std::vector<std::unique_ptr<pin<std::byte>>> pins;
    if (me.rank_index() == 0) {
      const std::uint64_t* const start = rows.start + some.first;
      const std::size_t n = some.last - some.first;
      pins.push_back(held_here(start, n + 1));
      if (start[n] != start[0]) pins.push_back(held_here(rows.ids + start[0], start[n] - start[0]));
    }
    f(some);
  }
}

void count_all(const Counting& c, member& me) {
  const std::size_t words = std::size_t{c.l.ranks} * c.l.words();
  std::fill_n(c.marks[me.index()], words, std::uint64_t{0});
  const Rows rows{c.start[me.rank()], c.ids[me.rank()], nullptr};
  std::uint64_t count = 0;
  each_some(c.l, rows, words * sizeof(std::uint64_t), me,
            [&](Some some) { count += count_among(c, me, some); });
  c.count[me.index()] = count;
}

/// Pointers of all members, to memory at their ranks.
template <class T>
class OfMembers {
 public:
  OfMembers(std::uint32_t members, std::uint32_t workers, std::size_t n)
      : pointers_(make_array<T*>(members)) {
    for (std::uint32_t m = 0; m < members; ++m) {
      all_.push_back(at_rank<T>(m / workers, n));
      pointers_[m] = all_[m].get();
    }
  }
  [[nodiscard]] T* const* get() const noexcept { return pointers_.get(); }

 private:
  std::vector<unique_array<T>> all_;
  unique_array<T*> pointers_;
};

void expect_symmetric(const Layout& l, const char* call) {
  if (!l.symmetric) refuse("graph::%s: the graph is directed; build it with {.symmetric = true}", call);
}

[[nodiscard]] std::uint64_t sum_of(const unique_array<std::uint64_t>& counts, std::uint32_t members) {
  std::uint64_t sum = 0;
  for (std::uint32_t m = 0; m < members; ++m) sum += counts[m];
  return sum;
}

}  // namespace

[[nodiscard]] std::uint64_t count_triangles(const Layout& l) {
  expect_symmetric(l, "triangles");
  if (l.vertices == 0) return 0;
  const std::uint32_t members = l.ranks * workers();
  std::uint64_t most = 0;
  for (std::uint32_t r = 0; r < l.ranks; ++r)
    most = std::max(most, kasane::get(global_ptr<const std::uint64_t>(l.parts[r].in.start + l.block)));
  const AtRanks<std::uint64_t> start(l.ranks, l.block + 1);
  const AtRanks<vertex> ids(l.ranks, most);
  const OfMembers<std::uint64_t> marks(members, workers(), std::size_t{l.ranks} * l.words()),
      starts(members, workers(), kRowsAtOnce + 1);
  const std::size_t together = l.ranks > 1 ? std::min<std::size_t>(most, kRowsAtOnce * l.block) : 0;
  const OfMembers<vertex> rows(members, workers(), together);
  const auto counts = make_array<std::uint64_t>(members);
  const Counting c{l, start.get(), ids.get(), marks.get(), starts.get(), rows.get(), counts.get()};
  Held held(l);
  for (std::uint32_t m = 0; m < members; ++m)
    held.hold(m / workers(), marks.get()[m], std::size_t{l.ranks} * l.words());
  team([c](member& me) {
    orient(c, me);
    me.wait();
    count_all(c, me);
  });
  return sum_of(counts, members);
}

namespace {

/// Neighbours that two rows have in common.
[[nodiscard]] std::uint64_t common(const Layout& l, const vertex* a, const vertex* a_end, const vertex* b,
                                   const vertex* b_end) {
  const auto order = [&l](vertex v) { return v % l.block * l.ranks + v / l.block; };
  std::uint64_t count = 0;
  while (a != a_end && b != b_end) {
    const std::uint32_t x = order(*a), y = order(*b);
    count += x == y;
    a += x >= y, b += y >= x;
  }
  return count;
}

/// Over the edges u → v with v at this rank; the rows of u go past.
[[nodiscard]] std::uint64_t count_common_here(const Layout& l, member& me) {
  constexpr std::size_t kWholeRowsAtOnce = 64;
  const Rows& mine = l.parts[me.rank()].in;
  const std::uint32_t base = l.first_of(me.rank());
  std::vector<std::uint64_t> start(kWholeRowsAtOnce + 1);
  std::vector<vertex> ids;
  std::uint64_t count = 0;
  for (std::uint32_t r = 0; r < l.ranks; ++r)
    me.deal(0, l.block, kWholeRowsAtOnce, [&](std::size_t first, std::size_t last) {
      const Rows& rows = l.parts[r].in;
      fetch(start.data(), rows.start + first, last - first + 1);
      ids.resize(start[last - first] - start[0]);
      if (ids.empty()) return;
      fetch(ids.data(), rows.ids + start[0], ids.size());
      for (std::size_t row = 0; row < last - first; ++row) {
        const vertex* const begin = ids.data() + (start[row] - start[0]);
        const vertex* const end = ids.data() + (start[row + 1] - start[0]);
        for (const vertex* v = begin; v != end; ++v)
          if (*v - base < l.block)
            count +=
                common(l, begin, end, mine.ids + mine.start[*v - base], mine.ids + mine.start[*v - base + 1]);
      }
    });
  return count;
}

}  // namespace

/// Six times each triangle: the common neighbours of both ends of each edge, from the whole rows.
[[nodiscard]] std::uint64_t count_common(const Layout& l) {
  expect_symmetric(l, "check_triangles");
  if (l.vertices == 0) return 0;
  const std::uint32_t members = l.ranks * workers();
  const auto counts = make_array<std::uint64_t>(members);
  team([&l, all = counts.get()](member& me) { all[me.index()] = count_common_here(l, me); });
  return sum_of(counts, members);
}

}  // namespace detail

template <weight W>
std::uint64_t triangles(const csr<W>& g) {
  return detail::count_triangles(g.layout());
}
template <weight W>
std::string check_triangles(const csr<W>& g, std::uint64_t count) {
  const std::uint64_t six_times = detail::count_common(g.layout());
  if (six_times == 6 * count) return {};
  return "there are " + std::to_string(six_times / 6) + " triangles, not " + std::to_string(count);
}
template std::uint64_t triangles(const csr<void>&);
template std::uint64_t triangles(const csr<std::int32_t>&);
template std::uint64_t triangles(const csr<float>&);
template std::string check_triangles(const csr<void>&, std::uint64_t);
template std::string check_triangles(const csr<std::int32_t>&, std::uint64_t);
template std::string check_triangles(const csr<float>&, std::uint64_t);

}  // namespace kasane::graph
