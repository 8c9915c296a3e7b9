// SPDX-License-Identifier: Apache-2.0
// Direction-optimising breadth-first search (S. Beamer, K. Asanović, D. Patterson, 2012) over the layout of
// layout.h (Y. Yasui, K. Fujisawa, 2014). A rank writes its own vertices alone: top-down it goes through what
// the whole frontier has in A^F_k, bottom-up through its unvisited vertices. So the frontier alone travels. A
// rank publishes its part in turns of two, as ids (after top-down) or as bits (after bottom-up); the others
// get it after the wait, in the form that their next step needs.
//
//   level   publish → wait → know the sums, decide → collect the frontier → step
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "graph/beyond_dram.h"
#include "graph/layout.h"
#include "graph/member_part.h"
#include "graph/sums.h"

namespace kasane::graph {

namespace detail {
namespace {

/// The memory of a rank.
struct OfRank {
  std::uint64_t* unvisited;  ///< bits of its places
  std::uint64_t* bits[2];    ///< its part of the frontier, published
  vertex* ids[2];            ///< likewise
  std::uint64_t size[2];     ///< of ids; members add
  std::uint64_t* all_bits;   ///< the whole frontier
  vertex* all_ids;
  std::uint64_t all_size;
};

using Counts = std::array<std::uint64_t, 2>;  ///< vertices, and edges of the list at them
enum Count : std::size_t { kVertices, kTuples };

/// Ids of a member until there are enough to append them to its rank's.
class Found {
 public:
  explicit Found(vertex* ids, std::uint64_t& size, bool alone) noexcept
      : ids_(ids), size_(size), alone_(alone) {}
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;
  ~Found() { flush(); }
  void add(vertex v) noexcept {
    if (n_ == kMany) flush();
    some_[n_++] = v;
  }

 private:
  static constexpr std::size_t kMany = 256;
  void flush() noexcept {
    const std::uint64_t at = alone_ ? std::exchange(size_, size_ + n_)
                                    : std::atomic_ref<std::uint64_t>(size_).fetch_add(
                                          n_, std::memory_order_relaxed);  // a wait orders
    std::copy_n(some_, n_, ids_ + at);
    n_ = 0;
  }
  vertex* ids_;
  std::uint64_t& size_;
  bool alone_;
  std::size_t n_ = 0;
  vertex some_[kMany];
};

/// All that members read.
struct Search {
  Layout l;
  bfs_options options;
  vertex root;
  OfRank* const* ranks;
  Sums<std::uint64_t, 2>* sums;
  vertex* parent;
  Counts* total;  ///< of the reached
  std::uint32_t* depth;
};

class Searcher : MemberPart {
 public:
  Searcher(const Search& s, member& me) noexcept
      : MemberPart(s.l, me),
        s_(s),
        mine_(*s.ranks[me.rank()]),
        alone_(me.rank_size() == 1),
        alpha_(l_.beyond_dram ? std::min(s.options.alpha, kAlphaBeyondDram) : s.options.alpha) {}

  void run() {
    begin();
    bool bottom_up = false, as_bits = false;
    std::uint64_t left = l_.tuples(), vertices = 1;
    Counts reached{};
    std::uint32_t depth = 0;
    for (;;) {
      const Counts n = known();
      for (std::size_t i = 0; i < n.size(); ++i) reached[i] += n[i];
      if (n[kVertices] == 0) break;
      if (bottom_up)
        bottom_up = n[kVertices] >= vertices || n[kVertices] > l_.vertices / s_.options.beta;
      else
        bottom_up = n[kTuples] > left / alpha_;
      left -= std::min(left, n[kTuples]);
      vertices = n[kVertices];
      collect(as_bits, bottom_up);
      if (l_.beyond_dram && !bottom_up) order_frontier();
      turn_ ^= 1;
      counts_ = {};
      bottom_up ? step_bottom_up() : step_top_down();
      as_bits = bottom_up;
      ++depth;
    }
    if (me_.index() == 0) *s_.total = reached, *s_.depth = depth != 0 ? depth - 1 : 0;
  }

 private:
  void begin() {
    const vertex size = l_.size_of(me_.rank());
    const auto [first, last] = me_.part_here(0, l_.words());
    std::copy(part_.connected + first, part_.connected + last, mine_.unvisited + first);
    const auto [from, to] = me_.part_here(0, size);
    std::fill(s_.parent + base_ + from, s_.parent + base_ + to, no_vertex);
    if (me_.rank_index() == 0) mine_.size[0] = mine_.size[1] = 0;
    me_.wait_here();
    of_all_.resize(l_.ranks);
    for (std::uint32_t r = 0; r < l_.ranks; ++r) fetch(&of_all_[r], s_.ranks[r]);
    counts_ = {};
    if (s_.root / l_.block == me_.rank() && me_.rank_index() == 0) {
      const vertex row = part_.place[s_.root - base_] - base_;
      mine_.unvisited[row / kBits] &= ~(std::uint64_t{1} << row % kBits);
      mine_.ids[0][0] = base_ + row;
      mine_.size[0] = 1;
      reach(row, s_.root);
    }
  }

  void reach(std::size_t row, vertex parent_caller) noexcept {
    s_.parent[part_.caller[row]] = parent_caller;
    ++counts_[kVertices];
    counts_[kTuples] += part_.tuples[row];
  }

  /// Publishes, waits, and has the sums of all.
  [[nodiscard]] Counts known() {
    s_.sums->put(me_, sum_turn_, counts_);
    me_.wait();
    return s_.sums->of_all(me_, sum_turn_);
  }

  // ---- the frontier ----

  void collect(bool as_bits, bool to_bits) {
    if (me_.rank_index() == 0) {
      // Top-down it says itself what it reads.
      advise_rows(l_, me_.rank(), to_bits ? usage::once : usage::random);
      if (to_bits)
        as_bits ? collect_bits() : set_bits();
      else
        as_bits ? find_ids() : collect_ids();
      mine_.size[turn_ ^ 1] = 0;
    }
    me_.wait_here();
  }
  void collect_bits() {
    if (l_.ranks == 1) {
      mine_.all_bits = mine_.bits[turn_];
      return;
    }
    for (std::uint32_t r = 0; r < l_.ranks; ++r)
      fetch(mine_.all_bits + std::size_t{r} * l_.words(), of_all_[r].bits[turn_], l_.words());
  }
  void collect_ids() {
    mine_.all_size = 0;
    for (std::uint32_t r = 0; r < l_.ranks; ++r) {
      std::uint64_t n = 0;
      fetch(&n, &s_.ranks[r]->size[turn_]);
      if (n != 0) fetch(mine_.all_ids + mine_.all_size, of_all_[r].ids[turn_], n);
      mine_.all_size += n;
    }
  }
  void set_bits() {
    collect_ids();
    if (l_.ranks == 1) mine_.all_bits = mine_.bits[turn_];
    std::fill_n(mine_.all_bits, std::size_t{l_.ranks} * l_.words(), std::uint64_t{0});
    for (std::uint64_t i = 0; i < mine_.all_size; ++i) set_bit(mine_.all_bits, mine_.all_ids[i]);
  }
  void find_ids() {
    collect_bits();
    std::uint64_t n = 0;
    for (std::size_t word = 0; word < std::size_t{l_.ranks} * l_.words(); ++word)
      for (std::uint64_t bits = mine_.all_bits[word]; bits != 0; bits &= bits - 1)
        mine_.all_ids[n++] = static_cast<vertex>(word * kBits + static_cast<unsigned>(__builtin_ctzll(bits)));
    mine_.all_size = n;
  }

  /// By address of the rows, so that each of their pages is read once, and many at a time.
  void order_frontier() {
    if (me_.rank_index() == 0) std::sort(mine_.all_ids, mine_.all_ids + mine_.all_size);
    me_.wait_here();
  }

  // ---- steps ----

  void step_top_down() {
    Found found(mine_.ids[turn_], mine_.size[turn_], alone_);
    const Rows& rows = part_.forward;
    me_.deal(0, mine_.all_size, 64, [&](std::size_t i, std::size_t end) {
      if (l_.beyond_dram) {
        if (i == 0) send_for(rows, 0, kAhead);
        send_for(rows, i + kAhead, end + kAhead);
      }
      for (; i < end; ++i) {
        const vertex v = mine_.all_ids[i], caller = l_.caller_of(v);
        for (std::uint64_t e = rows.start[v]; e < rows.start[v + 1]; ++e) {
          const vertex row = rows.ids[e] - base_;
          if (!claim(row)) continue;
          reach(row, caller);
          found.add(base_ + row);
        }
      }
    });
  }
  /// Has the rows of some of the frontier read, without waiting.
  void send_for(const Rows& rows, std::size_t i, std::size_t end) const {
    constexpr std::uint64_t kNear = page_default / sizeof(vertex);
    const polling_scope here;
    end = std::min<std::size_t>(end, mine_.all_size);
    while (i < end) {
      const std::uint64_t first = rows.start[mine_.all_ids[i]];
      std::uint64_t last = rows.start[mine_.all_ids[i] + 1];
      while (++i < end && rows.start[mine_.all_ids[i]] < last + kNear)
        last = rows.start[mine_.all_ids[i] + 1];
      if (first != last) prefetch(rows.ids + first, last - first);
    }
  }
  /// Marks it visited; false: it was.
  [[nodiscard]] bool claim(vertex row) noexcept {
    std::uint64_t& word = mine_.unvisited[row / kBits];
    const std::uint64_t mask = std::uint64_t{1} << row % kBits;
    if (alone_) {
      const bool was = (word & mask) != 0;
      word &= ~mask;
      return was;
    }
    const std::atomic_ref<std::uint64_t> shared(word);  // a wait orders what is published
    return (shared.load(std::memory_order_relaxed) & mask) != 0 &&
           (shared.fetch_and(~mask, std::memory_order_relaxed) & mask) != 0;
  }

  void step_bottom_up() {
    std::uint64_t* const next = mine_.bits[turn_];
    me_.deal(0, l_.words(), kChunk / kBits, [&](std::size_t word, std::size_t end) {
      for (; word < end; ++word) next[word] = mine_.unvisited[word] != 0 ? look_up(word) : 0;
    });
  }
  /// Which vertices of a word have a neighbour in the frontier.
  [[nodiscard]] std::uint64_t look_up(std::size_t word) noexcept {
    const std::uint64_t* const frontier = mine_.all_bits;
    const Rows& rows = part_.in;
    std::uint64_t found = 0;
    for (std::uint64_t bits = mine_.unvisited[word]; bits != 0; bits &= bits - 1) {
      const std::size_t row = word * kBits + static_cast<unsigned>(__builtin_ctzll(bits));
      vertex parent = part_.first[row];
      if (!bit(frontier, parent)) {
        std::uint64_t e = rows.start[row] + 1;
        const std::uint64_t end = rows.start[row + 1];
        while (e < end && !bit(frontier, rows.ids[e])) ++e;
        if (e >= end) continue;
        parent = rows.ids[e];
      }
      found |= bits & -bits;
      reach(row, l_.caller_of(parent));
    }
    mine_.unvisited[word] &= ~found;
    return found;
  }

  static constexpr std::size_t kAhead = 128;  ///< rows whose reads are under way
  /// A search from the unvisited reads whole rows where the frontier is small; one from the frontier reads
  /// its rows alone.
  static constexpr unsigned kAlphaBeyondDram = 4;
  const Search& s_;
  OfRank& mine_;
  std::vector<OfRank> of_all_;  ///< where the arrays of all ranks are
  const bool alone_;
  const unsigned alpha_;
  unsigned turn_ = 0;  ///< which of the published parts is the frontier
  Sums<std::uint64_t, 2>::Turn sum_turn_;
  Counts counts_{};
};

/// What a search needs beside the graph.
class SearchMemory {
 public:
  explicit SearchMemory(const Layout& l) : l_(l), of_(l.ranks, 1) {
    const std::size_t all = std::size_t{l.ranks} * l.words();
    for (std::uint32_t r = 0; r < l.ranks; ++r) {
      OfRank o{};
      o.unvisited = keep<std::uint64_t>(r, l.words());
      for (auto& bits : o.bits) bits = keep<std::uint64_t>(r, l.words());
      for (auto& ids : o.ids) ids = keep<vertex>(r, l.block);
      o.all_bits = keep<std::uint64_t>(r, l.ranks > 1 ? all : 0);
      o.all_ids = keep<vertex>(r, l.places());
      kasane::put(of_.get()[r], &o);
    }
  }
  [[nodiscard]] OfRank* const* of_ranks() const noexcept { return of_.get(); }
  [[nodiscard]] Sums<std::uint64_t, 2>* sums() noexcept { return sums_.get(); }
  /// Its bitmaps.
  void hold(Held& held) const {
    for (std::uint32_t r = 0; r < l_.ranks; ++r) {
      OfRank o;
      kasane::get(&o, of_.get()[r]);
      held.hold(r, o.unvisited, l_.words());
      for (const auto* bits : o.bits) held.hold(r, bits, l_.words());
      if (l_.ranks > 1) held.hold(r, o.all_bits, std::size_t{l_.ranks} * l_.words());
    }
  }

 private:
  template <class T>
  [[nodiscard]] T* keep(std::uint32_t r, std::size_t n) {
    auto memory = at_rank<T>(r, n);
    T* const p = memory.get();
    memory_.emplace_back(reinterpret_cast<std::byte*>(memory.release()));
    return p;
  }
  const Layout& l_;
  Memory memory_;
  AtRanks<OfRank> of_;
  std::unique_ptr<Sums<std::uint64_t, 2>> sums_ =
      std::make_unique<Sums<std::uint64_t, 2>>(l_.ranks, workers());
};

}  // namespace

[[nodiscard]] tree search(const Layout& l, vertex root, bfs_options options) {
  expect_vertex(l, "bfs", root);
  if (options.alpha == 0 || options.beta == 0) refuse("graph::bfs: alpha and beta are 1 or more");
  tree t;
  t.root = root;
  t.parent = for_vertices<vertex>(l);
  SearchMemory memory(l);
  Held held(l);
  memory.hold(held);
  for (std::uint32_t r = 0; r < l.ranks; ++r) {
    const Part& part = l.parts[r];
    held.hold(r, t.parent.get() + l.first_of(r), l.size_of(r));
    held.hold(r, part.caller, l.block);
    held.hold(r, part.tuples, l.block);
    held.hold(r, part.first, l.block);
    held.hold(r, part.forward.start, std::size_t{l.places()} + 1);
    if (l.ranks > 1) held.hold(r, part.in.start, std::size_t{l.block} + 1);
  }
  Counts total{};
  const Search s{l, options, root, memory.of_ranks(), memory.sums(), t.parent.get(), &total, &t.depth};
  team([s](member& me) { Searcher(s, me).run(); });
  t.reached = total[kVertices];
  t.input_edges = total[kTuples] / (l.symmetric ? 2 : 1);
  return t;
}

}  // namespace detail

template <weight W>
tree bfs(const csr<W>& g, vertex root, bfs_options options) {
  return detail::search(g.layout(), root, options);
}
template tree bfs(const csr<void>&, vertex, bfs_options);
template tree bfs(const csr<std::int32_t>&, vertex, bfs_options);
template tree bfs(const csr<float>&, vertex, bfs_options);

}  // namespace kasane::graph
