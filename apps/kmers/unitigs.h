// SPDX-License-Identifier: Apache-2.0
// The maximal unitigs of the de Bruijn graph of a map of k-mers: the longest paths on which nothing branches.
//
// A node is a canonical k-mer, seen from one of its two strands; a successor of u begins with the last k - 1
// bases of u. First each k-mer learns which of its eight neighbours are in the map: eight finds, many at a
// time, whose answers it keeps in the highest byte of its count. Then threads walk from both ends of each
// unitig, a find a step, and the walk from the end with the smaller k-mer is the one that counts. What no
// walk has met lies on circles.
//
//   count:  successors 4 | predecessors 4 of the canonical strand, by base | how often 56
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/kasane.hpp>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kmers/count.h"
#include "kmers/everywhere.h"
#include "kmers/kmer.h"

namespace apps::kmers {

struct Unitig {
  std::string text;
  std::uint64_t sum = 0;  ///< how often its k-mers occur
  bool circular = false;  ///< its last k - 1 bases are its first
};

class Graph {
 public:
  /// k-mers that occur less often than `least` are no nodes.
  Graph(const Counts& counts, Kmers kmers, std::uint64_t least)
      : counts_(counts), kmers_(kmers), least_(least) {}

  /// All unitigs, in the order of their texts. From main, once.
  std::vector<Unitig> unitigs();

 private:
  static constexpr unsigned kCountBits = 56;
  static constexpr std::size_t kChunk = std::size_t{64} << 10, kGrain = 128;

  /// A k-mer as one strand has it.
  struct Node {
    Kmer forward, backward;
    unsigned successors = 0, predecessors = 0;  ///< by base
    std::uint64_t count = 0;
    [[nodiscard]] Kmer canonical() const noexcept { return std::min(forward, backward); }
  };

  template <class F>
  std::uint64_t for_each_node(const F& f) const;
  void link(std::span<const Kmer> nodes) const;
  [[nodiscard]] Node node(Kmer forward, Kmer backward) const;
  [[nodiscard]] Node node(Kmer x) const { return node(x, kmers_.reverse(x)); }
  [[nodiscard]] static Node other_strand(const Node&);
  [[nodiscard]] bool extend(const Node& from, Node& to) const;
  [[nodiscard]] Unitig walk(Node) const;
  void walk_from(std::span<const Kmer> nodes, std::vector<Unitig>& found) const;
  void add_circles(std::vector<Unitig>&) const;

  const Counts::handle counts_;
  const Kmers kmers_;
  const std::uint64_t least_;
};

/// Calls f(k-mers) on threads at the ranks where they lie. Returns how many there are.
template <class F>
std::uint64_t Graph::for_each_node(const F& f) const {
  std::vector<std::uint64_t> sums(counts_.parts());
  const auto rank_of = [this](std::size_t s) { return counts_.rank_of_part(static_cast<std::uint32_t>(s)); };
  on_threads(counts_.parts(), rank_of, [&](std::size_t s) {
    std::vector<Kmer> chunk;
    chunk.reserve(kChunk);
    const auto send = [&] {
      const std::span<const Kmer> all(chunk);
      kasane::parallel_for(
          std::size_t{0}, (all.size() + kGrain - 1) / kGrain,
          [&f, all](std::size_t i) { f(all.subspan(i * kGrain, std::min(kGrain, all.size() - i * kGrain))); },
          1);
      kasane::this_thread::move_to(rank_of(s));  // it may have been stolen
      sums[s] += all.size();
      chunk.clear();
    };
    counts_.for_each_of(static_cast<std::uint32_t>(s), [&](Kmer x, std::uint64_t value) {
      if ((value << 8 >> 8) < least_) return;
      chunk.push_back(x);
      if (chunk.size() == kChunk) send();
    });
    send();
  });
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

inline void Graph::link(std::span<const Kmer> nodes) const {
  std::vector<Kmer> neighbours;
  neighbours.reserve(8 * nodes.size());
  for (const Kmer x : nodes) {
    for (unsigned base = 0; base < 4; ++base) neighbours.push_back(kmers_.canonical(kmers_.next(x, base)));
    for (unsigned base = 0; base < 4; ++base)
      neighbours.push_back(kmers_.canonical(kmers_.previous(x, base)));
  }
  const auto answers = counts_.find_many(std::span<const Kmer>(neighbours));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::uint64_t links = 0;
    for (unsigned n = 0; n < 8; ++n) {
      const auto& count = answers[8 * i + n];
      if (count && (*count << 8 >> 8) >= least_) links |= std::uint64_t{1} << n;
    }
    counts_.visit(nodes[i], [links](std::uint64_t& value) { value |= links << kCountBits; });
  }
}

/// Of a k-mer that is one.
inline Graph::Node Graph::node(Kmer forward, Kmer backward) const {
  const std::uint64_t value = counts_.find(std::min(forward, backward)).value();
  Node n{forward, backward};
  n.successors = static_cast<unsigned>(value >> kCountBits & 15);
  n.predecessors = static_cast<unsigned>(value >> (kCountBits + 4));
  n.count = value << 8 >> 8;
  if (backward < forward) {
    std::swap(n.forward, n.backward);
    n = other_strand(n);
  }
  return n;
}

/// A predecessor by base b is there a successor by the complement, 3 - b.
inline Graph::Node Graph::other_strand(const Node& n) {
  const auto flip = [](unsigned m) { return (m & 1) << 3 | (m & 2) << 1 | (m >> 1 & 2) | m >> 3; };
  return {n.backward, n.forward, flip(n.predecessors), flip(n.successors), n.count};
}

/// Whether the unitig goes on, and to which node: the only successor, of which it is the only predecessor. A
/// unitig has each k-mer once.
inline bool Graph::extend(const Node& from, Node& to) const {
  if (!std::has_single_bit(from.successors)) return false;
  const auto base = static_cast<unsigned>(std::countr_zero(from.successors));
  to = node(kmers_.next(from.forward, base), kmers_.previous(from.backward, 3 - base));
  return std::has_single_bit(to.predecessors) && to.canonical() != from.canonical();
}

/// From its left end, or once round a circle.
inline Unitig Graph::walk(Node at) const {
  Unitig u{kmers_.text(at.forward), at.count};
  const Kmer begin = at.forward;
  for (Node next; extend(at, next) && next.forward != begin; at = next) {
    u.text += base_of(next.forward);
    u.sum += next.count;
  }
  return u;
}

/// The unitigs that begin with one of these k-mers, each once: by the smaller of its two ends.
inline void Graph::walk_from(std::span<const Kmer> nodes, std::vector<Unitig>& found) const {
  for (const Kmer x : nodes) {
    const Node canonical = node(x);
    for (const Node& begin : {canonical, other_strand(canonical)}) {
      Node before;
      if (extend(other_strand(begin), before)) continue;  // no end
      Unitig u = walk(begin);
      Kmer last = 0;
      for (std::size_t i = u.text.size() - kmers_.k(); i < u.text.size(); ++i)
        last = kmers_.next(last, code_of(u.text[i]));
      if (begin.forward < kmers_.reverse(last)) found.push_back(std::move(u));
    }
  }
}

/// Each begins with its smallest k-mer.
inline void Graph::add_circles(std::vector<Unitig>& found) const {
  const kasane::unordered_set<Kmer> met;
  const auto meet = [&](const Unitig& u) {
    kmers_.for_each(u.text, [&](Kmer a, Kmer b, std::size_t) { met.insert(std::min(a, b)); });
  };
  for (const Unitig& u : found) meet(u);
  for (const auto& [x, value] : counts_) {
    if ((value << 8 >> 8) < least_ || met.contains(x)) continue;
    const Unitig once = walk(node(x));
    Kmer least = x;
    kmers_.for_each(once.text, [&](Kmer a, Kmer b, std::size_t) { least = std::min({least, a, b}); });
    Unitig u = walk(node(least));
    u.circular = true;
    meet(u);
    found.push_back(std::move(u));
  }
}

inline std::vector<Unitig> Graph::unitigs() {
  return kasane::run([this] {
    kasane::mutex lock;
    std::uint64_t met = 0;
    std::vector<Unitig> all;
    const std::uint64_t nodes = for_each_node([this](std::span<const Kmer> some) { link(some); });
    for_each_node([&](std::span<const Kmer> some) {
      std::vector<Unitig> found;
      walk_from(some, found);
      if (found.empty()) return;
      const std::lock_guard hold(lock);
      for (Unitig& u : found) {
        met += u.text.size() - kmers_.k() + 1;
        all.push_back(std::move(u));
      }
    });
    if (met != nodes) add_circles(all);
    std::sort(all.begin(), all.end(), [](const Unitig& a, const Unitig& b) { return a.text < b.text; });
    return all;
  });
}

}  // namespace apps::kmers
