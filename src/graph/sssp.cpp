// SPDX-License-Identifier: Apache-2.0
// Shortest paths by delta-stepping (U. Meyer, P. Sanders, 2003). A rank has the distances of its own
// vertices, in buckets of width delta, and goes through its vertices of the current bucket, which is the same
// at all ranks. A shorter way to a vertex of another rank is sent to it: members gather these in a buffer for
// each rank, which that rank gets after the wait; of several ways to a vertex only better ones than were sent
// before. Buffers are used in turns of two. When no rank has any more vertices in the bucket, the next one is
// that of the least distance anywhere. Within a rank members share what they have in the bucket; of what
// comes into it meanwhile each does a little by itself.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <limits>
#include <type_traits>
#include <vector>

#include "graph/beyond_dram.h"
#include "graph/complaints.h"
#include "graph/layout.h"
#include "graph/member_part.h"

namespace kasane::graph {

namespace detail {
namespace {

template <class W>
constexpr W kFar = unreached<W>;

/// Half of the last digit of the largest float: with less, no finite one becomes infinite.
constexpr float kInfiniteFrom = 0x1p103f;

/// A way of that length to a vertex of another rank.
template <class W>
struct Way {
  vertex row;
  W length;
};

/// What a member says of itself in a turn.
struct Said {
  std::uint64_t first;  ///< its first bucket
};
/// What it has in the current one, for its rank.
struct InBucket {
  const vertex* rows;
  std::size_t n;
};
constexpr std::size_t kByItself = 1000;

/// The vertices of a member by bucket: a window of buckets that has the current one, and the rest, a heap.
class Buckets {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  /// The last one has all that is farther, and may take long, but its paths are right as well.
  static constexpr float kLast = 0x1p62f;

  void add(std::uint64_t bucket, vertex row) {
    if (bucket < base_ + kNear)
      near_[bucket - base_].push_back(row);
    else
      add_far(bucket, row);
  }
  /// The first bucket from `from` on that has a vertex.
  [[nodiscard]] std::uint64_t first(std::uint64_t from) const noexcept {
    for (std::uint64_t b = std::max(from, base_); b < base_ + kNear; ++b)
      if (!near_[b - base_].empty()) return b;
    return far_.empty() ? kNone : far_.front().bucket;
  }
  [[nodiscard]] bool has(std::uint64_t bucket) const noexcept { return !near_[bucket - base_].empty(); }
  [[nodiscard]] bool has_few(std::uint64_t bucket) const noexcept {
    return near_[bucket - base_].size() < kByItself;
  }
  /// Takes the vertices of a bucket. No bucket before it is asked for or added to later on.
  void take(std::uint64_t bucket, std::vector<vertex>& rows) {
    rows.clear();
    if (bucket >= base_ + kNear) advance(bucket);
    rows.swap(near_[bucket - base_]);
  }

 private:
  static constexpr std::uint64_t kNear = 256;
  struct Far {
    std::uint64_t bucket;
    vertex row;
  };
  [[gnu::noinline]] void add_far(std::uint64_t bucket, vertex row) {
    far_.push_back({bucket, row});
    std::push_heap(far_.begin(), far_.end(), is_after);
  }
  /// The window begins there.
  void advance(std::uint64_t bucket) {
    // What is left in the buckets passed over has got a shorter way, and went with it.
    for (auto& rows : near_) rows.clear();
    base_ = bucket;
    for (; !far_.empty() && far_.front().bucket < base_ + kNear; far_.pop_back()) {
      std::pop_heap(far_.begin(), far_.end(), is_after);
      if (far_.back().bucket >= base_) near_[far_.back().bucket - base_].push_back(far_.back().row);
    }
  }
  [[nodiscard]] static bool is_after(const Far& a, const Far& b) noexcept { return a.bucket > b.bucket; }

  std::uint64_t base_ = 0;
  std::array<std::vector<vertex>, kNear> near_;
  std::vector<Far> far_;  ///< the least bucket first
};

template <class W>
struct Paths {
  using Buffer = std::vector<Way<W>>;
  struct Sent {
    const Way<W>* ways;
    std::uint64_t n;
  };

  Layout l;
  vertex root;
  W delta;                     ///< more than 0; may be infinite
  W* const* length;            ///< of each rank: of its own vertices
  W* const* left;              ///< likewise: the length from which their edges were relaxed
  W* const* sent;              ///< of each rank: the shortest way sent to each place; null on one rank
  Said* const* said[2];        ///< of each rank: of its members, in turns
  Sent* const* outgoing[2];    ///< of each rank: of its members, for each rank
  InBucket* const* in_bucket;  ///< of each rank: of its members
  W* result;
  bool* too_long;  ///< of each member
};

template <class W>
class PathFinder : MemberPart {
 public:
  PathFinder(const Paths<W>& p, member& me)
      : MemberPart(p.l, me), p_(p), length_(p.length[me.rank()]), left_(p.left[me.rank()]) {
    for (auto& turn : outgoing_) turn.resize(l_.ranks);
  }

  void run() {
    begin();
    std::uint64_t bucket = 0;
    for (;;) {
      buckets_.take(bucket, rows_);
      leave_all(bucket);
      // Without a wait: what others send comes later.
      while (buckets_.has(bucket) && (me_.rank_size() == 1 || buckets_.has_few(bucket))) {
        buckets_.take(bucket, again_);
        if (l_.beyond_dram) std::sort(again_.begin(), again_.end());
        for (const vertex row : again_) leave(row, bucket);
      }
      bucket = agree(bucket);
      if (bucket == Buckets::kNone) break;
    }
    me_.wait();
    each_row([&](std::size_t row) { p_.result[part_.caller[row]] = length_[row]; });
    p_.too_long[me_.index()] = too_long_;
  }

 private:
  void begin() {
    const auto [first, last] = me_.part_here(0, l_.block);
    std::fill(length_ + first, length_ + last, kFar<W>);
    std::fill(left_ + first, left_ + last, kFar<W>);
    if (l_.ranks > 1) {
      const auto [from, to] = me_.part_here(0, l_.places());
      std::fill(p_.sent[me_.rank()] + from, p_.sent[me_.rank()] + to, kFar<W>);
    }
    me_.wait_here();
    if (l_.owner(p_.root) == me_.rank() && me_.rank_index() == 0)
      shorten(part_.place[p_.root - base_] - base_, 0);
    me_.wait_here();
  }

  /// What the members of the rank have in the bucket.
  void leave_all(std::uint64_t bucket) {
    if (l_.beyond_dram) std::sort(rows_.begin(), rows_.end());  // by address: a page is read once
    InBucket* const all = p_.in_bucket[me_.rank()];
    all[me_.rank_index()] = {rows_.data(), rows_.size()};
    me_.wait_here();
    for (std::uint32_t w = 0; w < me_.rank_size(); ++w)
      me_.deal(0, all[w].n, 64, [&](std::size_t i, std::size_t end) {
        for (; i < end; ++i) leave(all[w].rows[i], bucket);
      });
  }

  /// It never falls as lengths grow, rounded as it may be: so no bucket before the current one is added to.
  [[nodiscard]] std::uint64_t bucket_of(W length) const noexcept {
    if constexpr (std::is_integral_v<W>)
      return static_cast<std::uint64_t>(length / p_.delta);
    else
      return static_cast<std::uint64_t>(
          static_cast<std::int64_t>(std::min(length / p_.delta, Buckets::kLast)));
  }
  /// Makes the value smaller; false: it was not larger. Members of the rank do so at once.
  static bool lower(W& value, W to) noexcept {
    const std::atomic_ref<W> shared(value);  // lengths carry no data: relaxed
    W is = shared.load(std::memory_order_relaxed);
    while (to < is)
      if (shared.compare_exchange_weak(is, to, std::memory_order_relaxed)) return true;
    return false;
  }
  void shorten(vertex row, W length) {
    if (lower(length_[row], length)) buckets_.add(bucket_of(length), row);
  }

  /// Relaxes the edges that leave a vertex, unless that is done: it had got a shorter way in an earlier
  /// bucket, or has been in this one more than once.
  void leave(vertex row, std::uint64_t bucket) {
    const W length = std::atomic_ref<W>(length_[row]).load(std::memory_order_relaxed);
    if (bucket_of(length) < bucket || !begins(row, length)) return;
    const W* const weights = part_.out.template weights_of<W>();
    const vertex* const ids = part_.out.ids;
    const vertex base = base_, block = l_.block;
    const std::uint64_t begin = part_.out.start[row], end = part_.out.start[row + 1];
    if constexpr (!std::is_integral_v<W>)
      if (length >= kInfiniteFrom) [[unlikely]]
        too_long_ = too_long_ || std::any_of(weights + begin, weights + end,
                                             [length](W w) { return length + w == kFar<W>; });
    for (std::uint64_t i = begin; i < end; ++i) {
      const W next = sum(length, weights[i]);
      const vertex to = ids[i], own = to - base;
      if (own < block)
        shorten(own, next);
      else if (lower(p_.sent[me_.rank()][to], next))
        outgoing_[turn_][l_.owner(to)].push_back({to % block, next});
    }
  }
  /// No member has relaxed the vertex's edges from that length before. Two at once may both do so.
  [[nodiscard]] bool begins(vertex row, W length) noexcept {
    const std::atomic_ref<W> left(left_[row]);  // what it left from is a hint: relaxed
    if (left.load(std::memory_order_relaxed) == length) return false;
    left.store(length, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] W sum(W a, W b) noexcept {
    if constexpr (std::is_integral_v<W>) {
      W c;
      if (!__builtin_add_overflow(a, b, &c) && c != kFar<W>) return c;
      too_long_ = true;
      return kFar<W>;
    }
    return a + b;
  }

  /// Sends, meets all, receives; the bucket that is next everywhere.
  [[nodiscard]] std::uint64_t agree(std::uint64_t bucket) {
    bool sends = false;
    for (std::uint32_t r = 0; r < l_.ranks; ++r) {
      const auto& ways = outgoing_[turn_][r];
      p_.outgoing[turn_][me_.rank()][me_.rank_index() * l_.ranks + r] = {ways.data(), ways.size()};
      sends = sends || !ways.empty();
    }
    // Where something is under way, the bucket may be this one again.
    p_.said[turn_][me_.rank()][me_.rank_index()] = {sends ? bucket : buckets_.first(bucket)};
    me_.wait();
    const std::uint64_t next = least();
    if (l_.ranks > 1) receive();
    turn_ ^= 1;
    for (auto& ways : outgoing_[turn_]) ways.clear();
    return next;
  }
  [[nodiscard]] std::uint64_t least() const {
    std::uint64_t least = Buckets::kNone;
    std::vector<Said> said(me_.rank_size());
    for (std::uint32_t r = 0; r < l_.ranks; ++r) {
      fetch(said.data(), p_.said[turn_][r], said.size());
      for (const Said& s : said) least = std::min(least, s.first);
    }
    return least;
  }
  /// What members of other ranks have sent to this rank; its members share them.
  void receive() {
    std::vector<typename Paths<W>::Sent> sent(std::size_t{me_.rank_size()} * l_.ranks);
    std::vector<Way<W>> ways;
    each_other_rank([&](std::uint32_t r) {
      fetch(sent.data(), p_.outgoing[turn_][r], sent.size());
      for (std::uint32_t w = 0; w < me_.rank_size(); ++w) {
        const auto& s = sent[std::size_t{w} * l_.ranks + me_.rank()];
        me_.deal(0, s.n, kChunk, [&](std::size_t first, std::size_t last) {
          ways.resize(last - first);
          fetch(ways.data(), s.ways + first, ways.size());
          for (const Way<W>& way : ways) shorten(way.row, way.length);
        });
      }
    });
  }

  const Paths<W>& p_;
  W *const length_, *const left_;
  Buckets buckets_;
  std::vector<vertex> rows_, again_;
  unsigned turn_ = 0;
  std::vector<typename Paths<W>::Buffer> outgoing_[2];
  bool too_long_ = false;
};

/// Beyond DRAM each bucket reads many of the rows' pages, so buckets are wider; some rows are read twice.
constexpr double kWiderBeyondDram = 16;

/// A width of buckets: about what the edges of a vertex differ by.
template <class W>
[[nodiscard]] W chosen_delta(const Layout& l) {
  double sum = 0;
  std::uint64_t n = 0;
  for (std::uint32_t r = 0; r < l.ranks; ++r) {
    const std::uint64_t of_rank =
        kasane::get(global_ptr<const std::uint64_t>(l.parts[r].out.start + l.block));
    std::vector<W> some(std::min<std::uint64_t>(of_rank, 4096));
    if (some.empty()) continue;
    kasane::get(some.data(), l.parts[r].out.template weights_of<W>() + (of_rank - some.size()) / 2,
                some.size());
    for (const W w : some) sum += static_cast<double>(w);
    n += some.size();
  }
  const double degree = l.vertices != 0 ? static_cast<double>(l.stored) / static_cast<double>(l.vertices) : 1;
  const double wider = l.beyond_dram ? kWiderBeyondDram : 1;
  const double delta = n != 0 ? wider * 2 * sum / static_cast<double>(n) / std::max(1.0, degree) : 1;
  using Limits = std::numeric_limits<W>;
  const W least = std::is_integral_v<W> ? W{1} : Limits::denorm_min();
  if (!(delta > 0)) return 1;
  return static_cast<W>(std::clamp(delta, static_cast<double>(least), static_cast<double>(Limits::max())));
}

}  // namespace

/// No edge makes a way shorter, and each vertex but the root has an edge that makes its way as long as it is,
/// or is not reached. With edges of weight 0, circles of these are not seen.
template <class W>
[[nodiscard]] std::string check_paths(const Layout& l, const distances<W>& d) {
  expect_vertex(l, "check_sssp", d.root);
  if (d.length == nullptr) return "there are no distances";
  if (d.length[d.root] != 0) return "the root's distance is not 0";
  const Complaints complaints(std::size_t{ranks()} * workers());
  using Sum = std::conditional_t<std::is_integral_v<W>, std::int64_t, W>;
  team([&, length = d.length.get()](member& me) {
    const Part& part = l.parts[me.rank()];
    const W* const weights = part.in.template weights_of<W>();
    me.deal(l.block - l.size_of(me.rank()), l.block, kChunk, [&](std::size_t row, std::size_t end) {
      for (; row < end && !complaints.has(me); ++row) {
        const vertex v = part.caller[row];
        bool has_last = v == d.root || length[v] == unreached<W>;
        for (std::uint64_t i = part.in.start[row]; i < part.in.start[row + 1]; ++i) {
          const vertex u = l.caller_of(part.in.ids[i]);
          if (length[u] == unreached<W>) continue;
          const auto way = static_cast<Sum>(length[u]) + weights[i];
          has_last = has_last || way == length[v];
          if (length[v] == unreached<W> || way < length[v])
            complaints.add(me, "the way to %u over %u is shorter than its distance, %g", v, u,
                           static_cast<double>(length[v]));
        }
        if (!has_last)
          complaints.add(me, "no edge makes the distance of %u, %g", v, static_cast<double>(length[v]));
      }
    });
  });
  return complaints.first();
}

template <class W>
[[nodiscard]] distances<W> find_paths(const Layout& l, vertex root, W delta) {
  expect_vertex(l, "sssp", root);
  if (!(delta >= 0)) refuse("graph::sssp: delta is %g; give a width, or 0", static_cast<double>(delta));
  distances<W> result;
  result.root = root;
  result.length = for_vertices<W>(l);
  const std::uint32_t members = l.ranks * workers();
  const AtRanks<W> length(l.ranks, l.block), left(l.ranks, l.block),
      sent(l.ranks, l.ranks > 1 ? l.places() : 0);
  const AtRanks<Said> said[2] = {{l.ranks, workers()}, {l.ranks, workers()}};
  const AtRanks<typename Paths<W>::Sent> outgoing[2] = {{l.ranks, workers() * l.ranks},
                                                        {l.ranks, workers() * l.ranks}};
  const AtRanks<InBucket> in_bucket(l.ranks, workers());
  const auto too_long = make_array<bool>(members);
  const Paths<W> p{l,
                   root,
                   delta > 0 ? delta : chosen_delta<W>(l),
                   length.get(),
                   left.get(),
                   sent.get(),
                   {said[0].get(), said[1].get()},
                   {outgoing[0].get(), outgoing[1].get()},
                   in_bucket.get(),
                   result.length.get(),
                   too_long.get()};
  {
    Held held(l, usage::normal);
    for (std::uint32_t r = 0; r < l.ranks; ++r) {
      held.hold(r, length.get()[r], l.block);
      held.hold(r, left.get()[r], l.block);
      if (l.ranks > 1) held.hold(r, sent.get()[r], l.places());
      held.hold(r, l.parts[r].out.start, std::size_t{l.block} + 1);
      held.hold(r, result.length.get() + l.first_of(r), l.size_of(r));
    }
    team([p](member& me) { PathFinder<W>(p, me).run(); });
  }
  // A sum that W does not hold may belong to a way that is not the shortest.
  if (std::any_of(too_long.get(), too_long.get() + members, [](bool b) { return b; }) &&
      !check_paths<W>(l, result).empty())
    refuse("graph::sssp: a path from %u is longer than the weights' type holds; %s", root,
           std::is_integral_v<W> ? "use float" : "make the weights smaller");
  return result;
}

}  // namespace detail

template <weight W>
  requires(!std::is_void_v<W>)
distances<W> sssp(const csr<W>& g, vertex root, std::type_identity_t<W> delta) {
  return detail::find_paths<W>(g.layout(), root, delta);
}
template <weight W>
  requires(!std::is_void_v<W>)
std::string check_sssp(const csr<W>& g, const distances<W>& d) {
  return detail::check_paths<W>(g.layout(), d);
}
template distances<std::int32_t> sssp(const csr<std::int32_t>&, vertex, std::int32_t);
template distances<float> sssp(const csr<float>&, vertex, float);
template std::string check_sssp(const csr<std::int32_t>&, const distances<std::int32_t>&);
template std::string check_sssp(const csr<float>&, const distances<float>&);

}  // namespace kasane::graph
