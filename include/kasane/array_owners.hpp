// SPDX-License-Identifier: Apache-2.0
/// @file
/// How operations on whole arrays run where the elements lie. Included by kasane/array.hpp.
///
///     Bulk                 one operation: its begin, where views and ranks meet; its end
///     reduce_at_owners     f(part, tile) over all tiles, at the owners:
///                            inside run()   by threads that begin there, forked and joined
///                            attached       by each rank its own parts; then all ranks have all results
///     reduce_pieces_at_owners, at_owners    the same over pieces of tiles
///
/// **Thread safety**: a Bulk belongs to its caller. In attached processes one thread of each rank makes the
/// same operations in the same order.
#pragma once

#include <kasane/kasane.h>

#include <algorithm>
#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <kasane/array_layout.hpp>
#include <kasane/kasane.hpp>
#include <memory>
#include <type_traits>
#include <utility>

namespace kasane::detail {

// ---- begin and end ---------------------------------------------------------------------------------------

/// A number for what ranks have to call alike: layouts and values, in order.
class Digest {
 public:
  Digest& bytes(const void* p, std::size_t n) noexcept;
  Digest& add(const ArrayLayout& l) noexcept;
  /// A value whose bytes say what it is; others (with padding, functions) are left out.
  template <class Type>
  Digest& add(const Type& value) noexcept {
    if constexpr (std::has_unique_object_representations_v<Type> || std::same_as<Type, float> ||
                  std::same_as<Type, double> || std::same_as<Type, std::complex<float>> ||
                  std::same_as<Type, std::complex<double>>)
      bytes(&value, sizeof value);
    return *this;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// In attached processes: releases, waits until all ranks have called it, compares, acquires. Throws error
/// EINVAL at all ranks if call or digest differ. Elsewhere it does nothing.
void ranks_meet(const char* call, const Digest& digest);
/// In attached processes, the end of what ranks did each for itself: releases; rank r's `bytes` at `mine`
/// come to all + r * bytes at all ranks; acquires. Where `failure` is not null that is thrown, and at the
/// other ranks an error that names this rank and has its text; `mine` may be null then. Without memory for
/// the exchange it ends the process, since the other ranks wait in theirs.
void ranks_end(const char* call, const std::exception_ptr& failure, const void* mine, void* all,
               std::size_t bytes);
/// f(), in attached processes at rank 0 alone: rank 0's `bytes` at `data` come to all ranks afterwards, and
/// what f throws is thrown at all ranks. After ranks_meet().
void by_one_rank(const std::function<void()>& f, void* data = nullptr, std::size_t bytes = 0);

/// An operation on whole arrays. At its begin, and at its end, direct access and loads and stores of the
/// caller's rank meet; in attached processes of all ranks, and the ranks compare what they were called with:
/// so a check that follows fails at all ranks or at none.
class Bulk {
 public:
  /// call: as messages name it, at most 47 characters. Throws error EINVAL: ranks that differ; EPERM: an
  /// array of a former attach.
  template <class... Values>
  explicit Bulk(const char* call, std::initializer_list<const ArrayLayout*> layouts, const Values&... values)
      : call_(call), attached_(kasane_attached() != 0) {
    for (const ArrayLayout* l : layouts) l->check_attached(call);
    if (!attached_) {
      kasane_release_all();
      kasane_acquire_all();
      return;
    }
    Digest digest;
    for (const ArrayLayout* l : layouts) digest.add(*l);
    static_cast<void>((digest.add(values), ..., digest));
    ranks_meet(call, digest);
  }
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;
  ~Bulk() {
    if (!attached_) kasane_release_all();
  }
  [[nodiscard]] const char* call() const noexcept { return call_; }
  /// By ranks that each call it, not by threads.
  [[nodiscard]] bool attached() const noexcept { return attached_; }

 private:
  const char* call_;
  bool attached_;
};

// ---- at the owners ---------------------------------------------------------------------------------------

/// Both, as two threads; one after the other in attached processes. moves: left() begins by moving to another
/// rank.
template <class Left, class Right>
void both(bool moves, Left&& left, Right&& right) {
  if (kasane_attached() == 0)
    return fork_join_near(moves, std::forward<Left>(left), std::forward<Right>(right));
  left();
  right();
}

template <std::size_t kDims>
[[nodiscard]] box<kDims> tile_of(const ArrayLayout& l, std::size_t part, std::size_t t) noexcept {
  box<kDims> b;
  l.box_of(part, t, b.first.data(), b.last.data());
  return b;
}
template <std::size_t kDims>
void expect(const ArrayLayout& l, const box<kDims>& b, view_access use) {
  l.expect(b.first.data(), b.last.data(), use);
}

/// The combination of leaf(i) over [begin, end), by halving, in order.
template <class Result, class Leaf, class Combine>
Result reduce_halves(std::uint64_t begin, std::uint64_t end, Leaf& leaf, Combine& combine) {
  if (begin == end) return Result{};
  if (end - begin == 1) return leaf(begin);
  const std::uint64_t middle = begin + (end - begin) / 2;
  Result left{}, right{};
  both(
      true, [=, &leaf, &combine, out = &left] { *out = reduce_halves<Result>(begin, middle, leaf, combine); },
      [&] { right = reduce_halves<Result>(middle, end, leaf, combine); });
  return combine(std::move(left), std::move(right));
}

/// How a tile is divided among the workers of its rank.
struct Division {
  /// Pieces have at most so many elements, and are cut along the first dimension that has several, so that
  /// they are contiguous or nearly so. 0: `most` counts.
  std::size_t elements = 0;
  /// The largest piece of a matrix.
  std::size_t most[2] = {};

  /// The dimension to halve; kDims: none.
  template <std::size_t kDims>
  [[nodiscard]] std::size_t dimension(const box<kDims>& b) const noexcept {
    std::size_t d = 0;
    if (elements != 0) {
      if (b.size() <= elements) return kDims;
      while (d < kDims && b.extent(d) == 1) ++d;
    } else {
      while (d < 2 && b.extent(d) <= most[d]) ++d;
    }
    return d;
  }
  /// Halves of matrices begin at multiples of 16, so that rows of vectors stay whole.
  [[nodiscard]] std::size_t half(std::size_t extent) const noexcept {
    return elements == 0 && extent > 64 ? (extent / 2 + 15) / 16 * 16 : extent / 2;
  }
};

/// The combination of f(piece) over the pieces of b.
template <class Result, std::size_t kDims, class Callable, class Combine>
Result reduce_pieces_of(const box<kDims>& b, const Division& division, Callable& f, Combine& combine) {
  const std::size_t d = division.dimension(b);
  if (d == kDims) return f(b);
  box<kDims> low = b, high = b;
  low.last[d] = high.first[d] = b.first[d] + division.half(b.extent(d));
  Result left{}, right{};
  both(
      false, [=, &f, &combine, out = &left] { *out = reduce_pieces_of<Result>(low, division, f, combine); },
      [&] { right = reduce_pieces_of<Result>(high, division, f, combine); });
  return combine(std::move(left), std::move(right));
}

/// The same of one value a part, which the part's rank has computed: all ranks get it.
template <class Result, class OfPart, class Combine>
Result reduce_parts_of_ranks(const Bulk& bulk, const ArrayLayout& l, OfPart& of_part, Combine& combine) {
  static_assert(std::is_trivially_copyable_v<Result>, "ranks send each other values as bytes");
  constexpr bool kValues = !std::is_empty_v<Result>;
  const std::size_t each = kValues ? (l.parts - 1) / ranks() + 1 : 0;
  std::unique_ptr<Result[]> mine, all;
  std::exception_ptr failure;  // one of a rank alone is told to the others, so all is done within the try
  try {
    mine = std::make_unique<Result[]>(each);
    all = std::make_unique<Result[]>(each * ranks());
    for (std::size_t k = rank(); k < l.parts; k += ranks()) {
      const Result result = of_part(k);
      if constexpr (kValues) mine[k / ranks()] = result;
    }
  } catch (...) {
    failure = std::current_exception();
  }
  ranks_end(bulk.call(), failure, mine.get(), all.get(), each * sizeof(Result));
  auto known = [&](std::uint64_t k) { return all[k % ranks() * each + k / ranks()]; };
  return kValues ? reduce_halves<Result>(0, l.parts, known, combine) : Result{};
}

/// All bulk operations come from here: the combination of of_tile(k, t) over the tiles t of each part k, in
/// order, at the parts' owners. On a thread of_tile is called by several threads at once. Result{} is
/// neutral. The result is the same with threads and in attached processes, for as many ranks and the same
/// pieces.
template <class Result, class OfTile, class Combine>
Result reduce_at_owners(const Bulk& bulk, const ArrayLayout& l, OfTile of_tile, Combine combine) {
  auto of_part = [&](std::uint64_t k) -> Result {
    const std::size_t n = l.tiles_of_part(k);
    if (n != 0 && !bulk.attached()) check(kasane_thread_move_near(l.part(k)));
    auto one = [&of_tile, k](std::uint64_t t) -> Result { return of_tile(k, t); };
    return reduce_halves<Result>(0, n, one, combine);
  };
  if (bulk.attached()) return reduce_parts_of_ranks<Result>(bulk, l, of_part, combine);
  return reduce_halves<Result>(0, l.parts, of_part, combine);
}
/// The same over pieces of tiles: f(box).
template <class Result, std::size_t kDims, class Callable, class Combine>
Result reduce_pieces_at_owners(const Bulk& bulk, const ArrayLayout& l, const Division& division, Callable f,
                               Combine combine) {
  return reduce_at_owners<Result>(
      bulk, l,
      [&](std::size_t k, std::size_t t) {
        return reduce_pieces_of<Result>(tile_of<kDims>(l, k, t), division, f, combine);
      },
      combine);
}

/// What is returned by what is called for its effects.
struct Nothing {
  friend Nothing operator+(Nothing, Nothing) noexcept { return {}; }
};
template <std::size_t kDims, class Callable>
void at_owners(const Bulk& bulk, const ArrayLayout& l, const Division& division, Callable f) {
  reduce_pieces_at_owners<Nothing, kDims>(
      bulk, l, division, [&f](const box<kDims>& b) { return f(b), Nothing(); }, std::plus<>());
}

/// All ghost cells of l become copies of the elements that they stand for. call: as errors name it.
inline void update_ghosts(const char* call, const ArrayLayout& l) {
  const Bulk bulk(call, {&l});
  reduce_at_owners<Nothing>(
      bulk, l, [&l](std::size_t k, std::size_t t) { return l.fetch_ghosts(k, t), Nothing(); }, std::plus<>());
}

/// Pieces of matrices: of as many columns and rows as given, but so that there are four a worker, of 64 rows
/// or more. Whole rows of a tile are contiguous, so rows are cut before columns.
[[nodiscard]] inline Division in_rows(const ArrayLayout& l, std::size_t rows, std::size_t columns) noexcept {
  std::size_t most[2] = {std::min(rows, l.tile[0]), std::min(columns, l.tile[1])};
  const auto pieces = [&] { return ((l.extents[0] - 1) / most[0] + 1) * ((l.extents[1] - 1) / most[1] + 1); };
  for (std::size_t& n : most)
    while (n > 64 && pieces() < std::size_t{4} * ranks() * workers()) n = (n + 1) / 2;
  return {.elements = 0, .most = {most[0], most[1]}};
}

/// Pieces of 256 KiB or less, eight a worker or more; of at least 4 KiB.
[[nodiscard]] inline Division streaming(const ArrayLayout& l, std::size_t grain = automatic) noexcept {
  if (grain != automatic) return {.elements = grain};
  std::size_t n = 1;
  for (std::size_t d = 0; d < l.dimensions; ++d) n *= l.extents[d];
  const std::size_t even = n / (std::size_t{8} * ranks() * workers());
  const std::size_t least = std::max<std::size_t>(1, 4096 / l.element_bytes),
                    most = std::max<std::size_t>(1, 262144 / l.element_bytes);
  return {.elements = std::clamp(even, least, most)};
}

/// Calls f(part) for the part of the patch in each tile of l, in C's order.
template <std::size_t kDims, class Callable>
void each_tile_of(const ArrayLayout& l, const box<kDims>& b, const Callable& f) {
  const auto end_of = [&](const box<kDims>& part, std::size_t d) {
    return std::min(b.last[d], (part.first[d] / l.tile[d] + 1) * l.tile[d]);
  };
  box<kDims> part{b.first, {}};
  for (std::size_t d = 0; d < kDims; ++d) part.last[d] = end_of(part, d);
  for (;;) {
    f(part);
    std::size_t d = kDims;
    for (; d > 0 && part.last[d - 1] == b.last[d - 1]; --d) {
      part.first[d - 1] = b.first[d - 1];
      part.last[d - 1] = end_of(part, d - 1);
    }
    if (d == 0) return;
    part.first[d - 1] = part.last[d - 1];
    part.last[d - 1] = end_of(part, d - 1);
  }
}

/// kArrays patches of equal extents in memory: where each begins, and bytes between neighbours.
template <std::size_t kDims, std::size_t kArrays>
struct Walk {
  std::array<std::size_t, kDims> extents;
  std::array<std::array<std::size_t, kDims>, kArrays> stride;

  /// row(pointers, n) for each n consecutive elements of the last dimension.
  template <class Row>
  void rows(std::array<std::byte*, kArrays> at, const Row& row) const {
    along<0>(at, row);
  }

 private:
  template <std::size_t kDim, class Row>
  void along(std::array<std::byte*, kArrays> at, const Row& row) const {
    if constexpr (kDim == kDims - 1) {
      row(at, extents[kDim]);
    } else {
      for (std::size_t i = 0; i < extents[kDim]; ++i) {
        along<kDim + 1>(at, row);
        for (std::size_t k = 0; k < kArrays; ++k) at[k] += stride[k][kDim];
      }
    }
  }
};
/// row(pointers, n) for the rows of a patch that lies in one tile of each layout.
template <std::size_t kDims, class Row, class... Layouts>
void rows_of(const box<kDims>& b, const Row& row, const Layouts&... layouts) {
  constexpr std::size_t kArrays = sizeof...(Layouts);
  Walk<kDims, kArrays> walk;
  std::array<std::byte*, kArrays> at;
  for (std::size_t d = 0; d < kDims; ++d) walk.extents[d] = b.extent(d);
  std::size_t k = 0;
  ((at[k] = layouts.address(b.first.data()), std::copy_n(layouts.stride, kDims, walk.stride[k].begin()), ++k),
   ...);
  walk.rows(at, row);
}

}  // namespace kasane::detail
