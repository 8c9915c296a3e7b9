// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the elements of a kasane::array are distributed over the ranks, and where they lie in memory. Included
/// by kasane/array.hpp; docs/design/arrays.md has pictures.
///
/// An array is cut into *tiles* of one shape; those at its upper edges may be smaller. Tiles are dealt to a
/// grid of *parts*, in turn along each dimension; with blocks a part has one tile. Part k lies at rank k
/// modulo ranks().
///
/// **Units**: elements, unless a name ends with bytes. **Thread safety**: values; functions of the layout
/// change nothing.
#pragma once

#include <kasane/kasane.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <kasane/global_ptr.hpp>
#include <kasane/kasane.hpp>

namespace kasane {

/// Dimensions of an array at most.
inline constexpr std::size_t array_dimensions_max = 8;

/// How an array is cut: tiles or blocks.
struct distribution {
  bool in_tiles = false;
  std::size_t dimensions = 0;  ///< of values; more than 8: an error of the array
  std::size_t values[array_dimensions_max] = {};

 protected:
  distribution(bool tiles, std::initializer_list<std::size_t> list) noexcept
      : in_tiles(tiles), dimensions(list.size()) {
    for (std::size_t d = 0; const std::size_t value : list)
      if (d < array_dimensions_max) values[d++] = value;
  }
};
/// One consecutive block a rank (the default), in a grid of blocks that are about cubes; or in a given grid:
/// `blocks{4, 2}` cuts rows into 4 and columns into 2. Block k, counted in C's order, lies at rank k modulo
/// ranks().
struct blocks : distribution {
  blocks() noexcept : distribution(false, {}) {}
  blocks(std::initializer_list<std::size_t> grid) noexcept : distribution(false, grid) {}
};
/// Tiles of that shape, dealt to a grid of ranks in turn along each dimension. A tile is contiguous in
/// memory: for gemm, for arrays larger than DRAM, and where work is unequal.
struct tiles : distribution {
  tiles(std::initializer_list<std::size_t> shape) noexcept : distribution(true, shape) {}
};

/// What update_ghosts() does beyond the edges of the array. kept: those ghost cells stay what they are.
/// periodic: they are copies of the elements at the opposite edge.
enum class boundary : bool { kept, periodic };
/// Cells around each tile that hold copies of its neighbours' elements (array::update_ghosts). One width, or
/// one for each dimension.
struct ghosts {
  explicit ghosts(std::size_t width = 0, boundary at_edges = boundary::kept) noexcept
      : dimensions(1), widths{width}, edges(at_edges) {}
  ghosts(std::initializer_list<std::size_t> list, boundary at_edges = boundary::kept) noexcept
      : dimensions(list.size()), edges(at_edges) {
    for (std::size_t d = 0; const std::size_t width : list)
      if (d < array_dimensions_max) widths[d++] = width;
  }
  std::size_t dimensions;
  std::size_t widths[array_dimensions_max] = {};
  boundary edges;
};

/// The elements first[d] <= i[d] < last[d] of an array: a patch of it. `{{0, 0}, {2, 3}}` are two rows of
/// three.
template <std::size_t kDims>
struct box {
  std::array<std::size_t, kDims> first{}, last{};

  [[nodiscard]] constexpr std::size_t extent(std::size_t d) const noexcept { return last[d] - first[d]; }
  /// Number of elements.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    std::size_t n = 1;
    for (std::size_t d = 0; d < kDims; ++d) n *= extent(d);
    return n;
  }
  friend bool operator==(const box&, const box&) = default;
};

/// The leading dimensions of a patch in the caller's memory: how many elements lie between neighbours of
/// dimension d is the product of the extents that follow. For a matrix one number, the distance of rows; for
/// kDims dimensions the extents of dimensions 1 to kDims - 1. Without: the patch is dense.
template <std::size_t kDims>
struct leading {
  constexpr leading() noexcept = default;
  template <std::integral Integer>
    requires(kDims == 2)
  constexpr leading(Integer rows_apart) noexcept : extents{static_cast<std::size_t>(rows_apart)} {}
  constexpr leading(const std::array<std::size_t, (kDims > 1 ? kDims - 1 : 1)>& list) noexcept
    requires(kDims > 2)
      : extents(list) {}
  std::array<std::size_t, (kDims > 1 ? kDims - 1 : 1)> extents{};  ///< 0: dense
};

namespace detail {

/// Where the elements of an array lie. Indices are pointers to `dimensions` numbers.
struct ArrayLayout {
  static constexpr std::size_t kMost = array_dimensions_max;

  std::byte* base = nullptr;  ///< of part 0
  /// In attached processes: how many ranks have the array, in global memory; and of which attach it is.
  std::uint64_t* users = nullptr;
  std::uint32_t attachment = 0;
  std::size_t element_bytes = 0;
  std::size_t dimensions = 0;
  std::size_t parts = 0;       ///< in the grid; some may have no tile
  std::size_t part_bytes = 0;  ///< between parts: whole pages
  std::size_t tile_bytes = 0;  ///< between the tiles of a part
  std::size_t extents[kMost] = {};
  std::size_t tile[kMost] = {};    ///< shape of a tile, without ghosts
  std::size_t tiles[kMost] = {};   ///< how many along each dimension
  std::size_t grid[kMost] = {};    ///< of parts
  std::size_t slots[kMost] = {};   ///< tiles of a part along each dimension, at most
  std::size_t ghost[kMost] = {};   ///< width
  std::size_t stride[kMost] = {};  ///< bytes between neighbours in a tile
  std::size_t origin_bytes = 0;    ///< of a tile's first element behind the tile's begin
  boundary edges = boundary::kept;

  /// A wrong shape throws error EINVAL. Allocates nothing.
  ArrayLayout(std::size_t dimensions, const std::size_t* extents, std::size_t element_bytes,
              const distribution& how, const ghosts& around);
  /// With memory; in attached processes collective. Throws error EINVAL, out_of_memory.
  static ArrayLayout make(std::size_t dimensions, const std::size_t* extents, std::size_t element_bytes,
                          const distribution& how, const ghosts& around);
  /// The end. In attached processes each rank calls it, at any time: the last one frees the memory. After a
  /// detach it does nothing.
  void release() noexcept;
  /// Throws error EPERM, naming `call`: the array's memory ended with a detach.
  void check_attached(const char* call) const;

  [[nodiscard]] std::byte* part(std::size_t k) const noexcept { return base + k * part_bytes; }
  [[nodiscard]] std::size_t tiles_of_part(std::size_t k) const noexcept;
  /// The elements of tile t of part k.
  void box_of(std::size_t k, std::size_t t, std::size_t* first, std::size_t* last) const noexcept;
  /// The first element of the tile with these coordinates.
  [[nodiscard]] std::byte* tile_at(const std::size_t* coordinates) const noexcept {
    std::size_t k = 0, slot = 0;
    for (std::size_t d = 0; d < dimensions; ++d) {
      k = k * grid[d] + coordinates[d] % grid[d];
      slot = slot * slots[d] + coordinates[d] / grid[d];
    }
    return part(k) + slot * tile_bytes + origin_bytes;
  }
  [[nodiscard]] std::byte* address(const std::size_t* index) const noexcept {
    std::size_t at[kMost], inside = 0;
    for (std::size_t d = 0; d < dimensions; ++d) {
      at[d] = index[d] / tile[d];
      inside += index[d] % tile[d] * stride[d];
    }
    return tile_at(at) + inside;
  }

  /// Throws error EINVAL, naming `call`, if the index or the patch is not within the array; an empty patch
  /// is.
  void check_index(const char* call, const std::size_t* index) const;
  void check_box(const char* call, const std::size_t* first, const std::size_t* last) const;
  /// Throws error EINVAL if the two have different extents, or are one array.
  void check_same_extents(const char* call, const ArrayLayout& other) const;

  // The patch [first, last) between its owners and the caller's memory at p; ld: dimensions - 1 extents, 0:
  // dense. group null: complete on return. Each checks patch and ld. alpha: a number of the element's type.
  void get(const std::size_t* first, const std::size_t* last, void* p, const std::size_t* ld,
           pending_group* group) const;
  void put(const std::size_t* first, const std::size_t* last, const void* p, const std::size_t* ld,
           pending_group* group) const;
  void accumulate(const std::size_t* first, const std::size_t* last, const void* p, const std::size_t* ld,
                  kasane_element_t element, const void* alpha, pending_group* group) const;
  /// n elements anywhere: indices[i * dimensions + d].
  void gather(const std::size_t* indices, std::size_t n, void* out) const;
  void scatter(const std::size_t* indices, std::size_t n, const void* values) const;

  /// Fetches the elements around tile t of part k into its ghosts.
  void fetch_ghosts(std::size_t k, std::size_t t) const;
  /// A hint, before the caller uses a patch that lies in one tile by loads and stores. write_only: it will be
  /// overwritten.
  void expect(const std::size_t* first, const std::size_t* last, view_access use) const;

  /// type: NumPy's name of the element ("<f8"). In attached processes collective.
  void save(const char* path, const char* type) const;
  void load(const char* path, const char* type) const;
};

/// Extents in a .npy file whose elements have that type; its number of dimensions must be `dimensions`. In
/// attached processes collective: rank 0 reads.
void npy_extents(const char* path, const char* type, std::size_t dimensions, std::size_t* extents);

}  // namespace detail
}  // namespace kasane
