// SPDX-License-Identifier: Apache-2.0
// Weakly connected components by Afforest (M. Sutton, T. Ben-Nun, A. Barak, 2018): a forest over all places
// at each rank, into which the rank links its own vertices; first two neighbours of each, then the others of
// those vertices that are not in the largest tree. Between these, and at the end, the forests of all ranks
// are merged, two by two, into rank 0's, which all get.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <unordered_map>

#include "graph/complaints.h"
#include "graph/layout.h"
#include "graph/sums.h"

namespace kasane::graph {

namespace detail {
namespace {

constexpr std::size_t kMergedAtOnce = 16384;
constexpr int kRounds = 2;

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

struct Joining {
  Layout l;
  vertex* const* forests;  ///< of each rank
  vertex* const* buffers;  ///< of each member, kMergedAtOnce
  Sums<std::uint64_t, 1>* sums;
  vertex* labels;
  std::uint64_t* count;
};

class Joiner {
 public:
  Joiner(const Joining& j, member& me) noexcept
      : j_(j),
        l_(j.l),
        me_(me),
        part_(l_.parts[me.rank()]),
        base_(l_.first_of(me.rank())),
        forest_(j.forests[me.rank()]) {}

  void run() {
    vertex* const all = j_.forests[me_.rank()];
    each_place([&](vertex v) { all[v] = v; });
    for (int round = 0; round < kRounds; ++round) {
      each_row([&](std::size_t row) {
        const std::uint64_t i = part_.in.start[row] + static_cast<unsigned>(round);
        if (i < part_.in.start[row + 1]) forest_.link(base_ + static_cast<vertex>(row), part_.in.ids[i]);
      });
      each_place([&](vertex v) { forest_.compress(v); });
    }
    merge();
    const vertex largest = find_largest();
    each_row([&](std::size_t row) {
      if (forest_.parent(base_ + static_cast<vertex>(row)) == largest) return;
      link_all(part_.in, row, kRounds);
      if (!l_.symmetric) link_all(part_.out, row, 0);
    });
    each_place([&](vertex v) { forest_.compress(v); });
    merge();
    label();
  }

 private:
  template <class F>
  void each_place(F&& f) {
    me_.deal(0, l_.places(), 4 * kChunk, [&](std::size_t v, std::size_t end) {
      for (; v < end; ++v) f(static_cast<vertex>(v));
    });
    me_.wait_here();
  }
  template <class F>
  void each_row(F&& f) {
    me_.deal(0, l_.block, kChunk, [&](std::size_t row, std::size_t end) {
      for (; row < end; ++row) f(row);
    });
    me_.wait_here();
  }
  void link_all(const Rows& rows, std::size_t row, unsigned from) const {
    for (std::uint64_t i = rows.start[row] + from; i < rows.start[row + 1]; ++i)
      forest_.link(base_ + static_cast<vertex>(row), rows.ids[i]);
  }

  /// f(first, values, n) for all places of another rank's forest.
  template <class F>
  void each_of(std::uint32_t rank, F&& f) {
    me_.deal(0, l_.places(), kMergedAtOnce, [&](std::size_t first, std::size_t last) {
      vertex* const buffer = j_.buffers[me_.rank()] + me_.rank_index() * kMergedAtOnce;
      fetch(buffer, j_.forests[rank] + first, last - first);
      f(static_cast<vertex>(first), buffer, last - first);
    });
  }
  /// All forests become the same.
  void merge() {
    if (l_.ranks == 1) return;
    for (std::uint32_t step = 1; step < l_.ranks; step *= 2) {
      me_.wait();
      if (me_.rank() % (2 * step) != 0 || me_.rank() + step >= l_.ranks) continue;
      each_of(me_.rank() + step, [&](vertex first, const vertex* parents, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) forest_.link(first + static_cast<vertex>(i), parents[i]);
      });
      me_.wait_here();
      each_place([&](vertex v) { forest_.compress(v); });
    }
    me_.wait();
    if (me_.rank() != 0)
      each_of(0, [&](vertex first, const vertex* parents, std::size_t n) {
        std::copy_n(parents, n, j_.forests[me_.rank()] + first);
      });
    me_.wait();
  }

  /// The root that most of some vertices have.
  [[nodiscard]] vertex find_largest() const {
    std::unordered_map<vertex, unsigned> counts;
    std::uint32_t random = 12345;
    vertex best = no_vertex;
    unsigned most = 0;
    for (int i = 0; i < 1024; ++i) {
      random = random * 1664525 + 1013904223;
      const vertex root = forest_.parent(static_cast<vertex>(std::uint64_t{random} * l_.places() >> 32));
      if (const unsigned n = ++counts[root]; n > most) most = n, best = root;
    }
    return best;
  }

  void label() {
    std::uint64_t roots = 0;
    each_row([&](std::size_t row) {
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
  const Layout& l_;
  member& me_;
  const Part& part_;
  const vertex base_;
  const Forest forest_;
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
  const AtRanks<vertex> forests(l.ranks, l.places()), buffers(l.ranks, workers() * kMergedAtOnce);
  Sums<std::uint64_t, 1> sums(l.ranks, workers());
  const Joining j{l, forests.get(), buffers.get(), &sums, result.label.get(), &result.count};
  team([&j](member& me) { Joiner(j, me).run(); });
  return result;
}

[[nodiscard]] std::string check_join(const Layout& l, const component_labels& c) {
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
