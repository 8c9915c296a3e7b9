// SPDX-License-Identifier: Apache-2.0
// Where a graph lies (docs/design/graphs.md). Rank k has the vertices V_k, the block
// [k * block, (k + 1) * block) of the caller's numbers. A vertex has a second number in the same block, its
// *place*: the vertices of a rank in ascending order of degree. Rows and neighbours are places.
//
//   in        A^B_k: the rows of V_k, what enters them             bottom-up, pull
//   out       what leaves V_k (the same array if symmetric)        relaxations
//   forward   A^F_k: for each place of the graph, what leaves it for V_k (the same as out on one rank)
//
// All arrays of a part lie at its rank on pages whose owner never changes: its loads and stores and the gets
// of the others meet in one frame.
//
// Thread safety: read-only once built.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/kasane.hpp>
#include <limits>
#include <type_traits>
#include <vector>

namespace kasane::graph::detail {

/// Bits of a bitmap's word; blocks have whole words.
inline constexpr std::uint32_t kBits = 64;
/// Vertices that one member takes at a time.
inline constexpr std::size_t kChunk = 4096;

/// Compressed rows.
struct Rows {
  const std::uint64_t* start;  ///< of each row, and the end of the last
  const vertex* ids;           ///< places
  const void* weights;         ///< as ids; null: none

  [[nodiscard]] std::uint64_t degree(std::size_t row) const noexcept { return start[row + 1] - start[row]; }
  template <class W>
  [[nodiscard]] const W* weights_of() const noexcept {
    return static_cast<const W*>(weights);
  }
};

struct Part {
  Rows in, out, forward;
  const vertex* first;             ///< each row's first neighbour in `in`; no_vertex: none
  const vertex* caller;            ///< of each place of the block, the caller's number; no_vertex: none
  const vertex* place;             ///< of each of the caller's numbers in the block
  const std::uint32_t* tuples;     ///< of each place, the list's edges but loops
  const std::uint64_t* connected;  ///< bits of the places that have an edge in `in`
};

struct Layout {
  std::uint64_t vertices = 0;
  std::uint64_t stored = 0, loops = 0, duplicates = 0;
  std::uint32_t ranks = 1, block = kBits;
  bool symmetric = true;
  bool beyond_dram = false;     ///< with what kernels need, the parts take more than ranks may have in DRAM
  const Part* parts = nullptr;  ///< in memory of all ranks

  [[nodiscard]] std::uint32_t places() const noexcept { return ranks * block; }
  /// Edges of the list but loops, each at both of its vertices.
  [[nodiscard]] std::uint64_t tuples() const noexcept {
    return symmetric ? stored + 2 * duplicates : 2 * (stored + duplicates);
  }
  [[nodiscard]] std::uint32_t words() const noexcept { return block / kBits; }  ///< of a rank's bitmap
  [[nodiscard]] std::uint32_t owner(vertex v) const noexcept { return v / block; }
  [[nodiscard]] std::uint32_t first_of(std::uint32_t rank) const noexcept { return rank * block; }
  /// Vertices of the rank; its other places are empty rows.
  [[nodiscard]] std::uint32_t size_of(std::uint32_t rank) const noexcept {
    const std::uint64_t first = std::uint64_t{rank} * block;
    return first >= vertices ? 0
                             : static_cast<std::uint32_t>(std::min<std::uint64_t>(block, vertices - first));
  }
  [[nodiscard]] vertex place_of(vertex v) const noexcept { return parts[owner(v)].place[v % block]; }
  [[nodiscard]] vertex caller_of(vertex place) const noexcept {
    return parts[owner(place)].caller[place % block];
  }
};

/// As kasane::get, by a member: it stays at its rank, where its inline atomics hold.
template <class T>
void fetch(T* to, const std::type_identity_t<T>* from, std::size_t n = 1) {
  const polling_scope here;
  kasane::get(to, from, n);
}

/// Memory of `n` elements at a rank.
template <class T>
[[nodiscard]] unique_array<T> at_rank(std::uint32_t rank, std::size_t n) {
  return make_array<T>(n != 0 ? n : 1, placement::on(rank).fixed());
}
/// The same at each rank.
template <class T>
class AtRanks {
 public:
  AtRanks() = default;
  AtRanks(std::uint32_t ranks, std::size_t n_each) {
    for (std::uint32_t r = 0; r < ranks; ++r) all_.push_back(at_rank<T>(r, n_each));
    pointers_ = make_array<T*>(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) pointers_[r] = all_[r].get();
  }
  /// The array of each rank, for any thread.
  [[nodiscard]] T* const* get() const noexcept { return pointers_.get(); }

 private:
  std::vector<unique_array<T>> all_;
  unique_array<T*> pointers_;
};

/// Memory that is freed with the graph.
using Memory = std::vector<unique_array<std::byte>>;

struct Graph {
  Layout layout;
  unique_array<Part> parts;
  Memory memory;

  /// Memory at a rank that lives as long as the graph.
  template <class T>
  [[nodiscard]] T* keep(std::uint32_t rank, std::size_t n) {
    memory.emplace_back(reinterpret_cast<std::byte*>(at_rank<T>(rank, n).release()));
    return reinterpret_cast<T*>(memory.back().get());
  }
};

/// An array with one element for each vertex, its owner's part at the owner where pages allow it.
template <class T>
[[nodiscard]] unique_array<T> for_vertices(const Layout& l) {
  const std::size_t bytes = std::size_t{l.block} * sizeof(T);
  const placement where = bytes % page_default == 0 ? placement::block_cyclic(bytes)
                          : bytes % page_small == 0 ? placement::block_cyclic(bytes).in_pages(page_small)
                                                    : placement::block.in_pages(page_small);
  return make_array<T>(l.vertices != 0 ? l.vertices : 1, where);
}

[[nodiscard]] inline bool bit(const std::uint64_t* bits, vertex i) noexcept {
  return bits[i / kBits] >> i % kBits & 1;
}
inline void set_bit(std::uint64_t* bits, vertex i) noexcept {
  bits[i / kBits] |= std::uint64_t{1} << i % kBits;
}

/// Weights are finite and not negative; no NaN is.
template <class W>
[[nodiscard]] constexpr bool is_weight(W w) noexcept {
  return w >= 0 && w <= std::numeric_limits<W>::max();
}

/// Throws kasane::error EINVAL with the text.
[[noreturn, gnu::cold, gnu::format(printf, 1, 2)]] void refuse(const char* format, ...);
/// Throws EINVAL if v is no vertex of the graph.
void expect_vertex(const Layout& l, const char* call, vertex v);

}  // namespace kasane::graph::detail
