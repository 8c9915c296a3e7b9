// SPDX-License-Identifier: Apache-2.0
// The shapes of tiles and parts (include/kasane/array_layout.hpp).
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <kasane/array_layout.hpp>
#include <kasane/array_owners.hpp>
#include <memory>
#include <utility>

#include "arrays/error.h"

namespace kasane::detail {
namespace {

constexpr std::size_t kBlock = 4096;  ///< the unit of transfer: tiles of this size and more share none

std::size_t up_to(std::size_t n, std::size_t unit) noexcept { return (n + unit - 1) / unit * unit; }
std::size_t parts_of(std::size_t n, std::size_t size) noexcept { return (n + size - 1) / size; }

/// a * b, or the error that the array is too large.
std::size_t product(std::size_t a, std::size_t b) {
  std::size_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > std::size_t{1} << 62)
    arrays::fail(EINVAL, "kasane::array: an array of more than 2^62 bytes; give it smaller extents");
  return result;
}

/// Gives the prime factors of `ranks`, the largest first, each to the dimension of which a part has most.
/// A dimension of `along` units gets no more parts than units, as long as another one can take them.
void spread(std::size_t ranks, std::size_t dimensions, const std::size_t* along, std::size_t* grid) {
  std::fill_n(grid, dimensions, std::size_t{1});
  std::size_t factors[64], n = 0;
  for (std::size_t f = 2; ranks > 1; f += ranks % f != 0 ? 1 : 0)
    for (; ranks % f == 0; ranks /= f) factors[n++] = f;
  while (n-- > 0) {
    std::size_t best = 0;
    for (std::size_t d = 1; d < dimensions; ++d)
      if (along[d] / grid[d] > along[best] / grid[best]) best = d;
    grid[best] *= factors[n];
  }
}

void check_values(const char* what, const distribution& how, std::size_t dimensions) {
  if (how.dimensions != dimensions)
    arrays::fail(
        EINVAL, "kasane::array: %s of %zu dimensions for an array of %zu; give one number for each dimension",
        what, how.dimensions, dimensions);
  for (std::size_t d = 0; d < dimensions; ++d)
    if (how.values[d] == 0)
      arrays::fail(EINVAL, "kasane::array: %s with a 0 in dimension %zu; give 1 or more", what, d);
}

void cut(ArrayLayout& l, const distribution& how) {
  const std::size_t n = l.dimensions;
  if (how.in_tiles) {
    check_values("tiles", how, n);
    for (std::size_t d = 0; d < n; ++d) l.tile[d] = std::min(how.values[d], l.extents[d]);
  } else {
    if (how.dimensions == 0) {
      spread(ranks(), n, l.extents, l.grid);
    } else {
      check_values("blocks", how, n);
      std::copy_n(how.values, n, l.grid);
    }
    for (std::size_t d = 0; d < n; ++d) l.tile[d] = parts_of(l.extents[d], l.grid[d]);
  }
  for (std::size_t d = 0; d < n; ++d) l.tiles[d] = parts_of(l.extents[d], l.tile[d]);
  if (how.in_tiles) spread(ranks(), n, l.tiles, l.grid);
}

void surround(ArrayLayout& l, const ghosts& around) {
  if (around.dimensions != 1 && around.dimensions != l.dimensions)
    arrays::fail(EINVAL,
                 "kasane::array: ghosts of %zu widths for an array of %zu dimensions; give one width, or one "
                 "for each dimension",
                 around.dimensions, l.dimensions);
  l.edges = around.edges;
  for (std::size_t d = 0; d < l.dimensions; ++d) {
    l.ghost[d] = around.widths[around.dimensions == 1 ? 0 : d];
    if (l.ghost[d] > l.extents[d])
      arrays::fail(
          EINVAL, "kasane::array: ghosts of width %zu around %zu elements in dimension %zu; give at most %zu",
          l.ghost[d], l.extents[d], d, l.extents[d]);
  }
}

}  // namespace

ArrayLayout::ArrayLayout(std::size_t n, const std::size_t* sizes, std::size_t bytes_each,
                         const distribution& how, const ghosts& around)
    : element_bytes(bytes_each), dimensions(n) {
  std::size_t total = element_bytes;
  for (std::size_t d = 0; d < n; ++d) {
    if (sizes[d] == 0)
      arrays::fail(EINVAL, "kasane::array: dimension %zu has no element; give extents of 1 or more", d);
    extents[d] = sizes[d];
    total = product(total, sizes[d]);
  }
  cut(*this, how);
  surround(*this, around);
  std::size_t bytes = element_bytes;
  for (std::size_t d = n; d-- > 0;) {
    stride[d] = bytes;
    origin_bytes += ghost[d] * bytes;
    bytes = product(bytes, tile[d] + 2 * ghost[d]);
  }
  tile_bytes = up_to(bytes, bytes >= kBlock ? kBlock : 64);
  parts = 1;
  part_bytes = tile_bytes;
  for (std::size_t d = 0; d < n; ++d) {
    slots[d] = parts_of(tiles[d], grid[d]);
    part_bytes = product(part_bytes, slots[d]);
    parts = product(parts, grid[d]);
  }
  part_bytes = up_to(part_bytes, page_default);
  static_cast<void>(product(part_bytes, parts));
}

namespace {

/// The memory of an array.
struct Memory {
  using Owned = std::unique_ptr<void, array_deleter>;

  std::byte* base = nullptr;
  std::uint64_t* users = nullptr;

  void allocate(const ArrayLayout& l) {
    Owned elements(kasane::allocate(l.part_bytes * l.parts, 4096, placement::block_cyclic(l.part_bytes)));
    if (kasane_attached() != 0) {
      Owned count(kasane::allocate(sizeof *users, alignof(std::uint64_t)));
      const std::uint64_t all = ranks();
      check(kasane_put(count.get(), &all, sizeof all));
      users = static_cast<std::uint64_t*>(count.release());
    }
    base = static_cast<std::byte*>(elements.release());
  }
};

Digest digest_of(std::size_t n, const std::size_t* sizes, std::size_t bytes_each, const distribution& how,
                 const ghosts& around) {
  Digest digest;
  digest.add(n).add(bytes_each).bytes(sizes, n * sizeof *sizes);
  digest.add(how.in_tiles).add(how.dimensions).bytes(how.values, sizeof how.values);
  digest.add(around.dimensions).add(around.edges).bytes(around.widths, sizeof around.widths);
  return digest;
}

}  // namespace

ArrayLayout ArrayLayout::make(std::size_t n, const std::size_t* sizes, std::size_t bytes_each,
                              const distribution& how, const ghosts& around) {
  if (kasane_attached() != 0) ranks_meet("kasane::array", digest_of(n, sizes, bytes_each, how, around));
  ArrayLayout l(n, sizes, bytes_each, how, around);
  Memory memory;
  by_one_rank([&] { memory.allocate(l); }, &memory, sizeof memory);
  l.base = memory.base;
  l.users = memory.users;
  l.attachment = kasane_attached();
  return l;
}

void ArrayLayout::release() noexcept {
  std::byte* const memory = std::exchange(base, nullptr);
  if (memory == nullptr || attachment != kasane_attached()) return;
  if (attachment == 0) return kasane::deallocate(memory);
  kasane_release_all();  // no store of this rank comes after the last one has freed the memory
  std::uint64_t before = 0;
  if (kasane_atomic(KASANE_FETCH_ADD, sizeof *users, users, ~std::uint64_t{0}, 0, &before, nullptr) != 0 ||
      before != 1)
    return;
  kasane::deallocate(memory);
  kasane::deallocate(users);
}

void ArrayLayout::check_attached(const char* call) const {
  if (attachment != kasane_attached())
    arrays::fail(EPERM, "%s: the process has detached since the array was made, which ended its memory",
                 call);
}

std::size_t ArrayLayout::tiles_of_part(std::size_t k) const noexcept {
  std::size_t n = 1;
  for (std::size_t d = dimensions; d-- > 0; k /= grid[d]) {
    const std::size_t at = k % grid[d];
    n *= at < tiles[d] ? parts_of(tiles[d] - at, grid[d]) : 0;
  }
  return n;
}

void ArrayLayout::box_of(std::size_t k, std::size_t t, std::size_t* first, std::size_t* last) const noexcept {
  for (std::size_t d = dimensions; d-- > 0; k /= grid[d]) {
    const std::size_t at = k % grid[d], count = parts_of(tiles[d] - at, grid[d]);
    first[d] = (at + t % count * grid[d]) * tile[d];
    last[d] = std::min(first[d] + tile[d], extents[d]);
    t /= count;
  }
}

void ArrayLayout::check_index(const char* call, const std::size_t* index) const {
  for (std::size_t d = 0; d < dimensions; ++d)
    if (index[d] >= extents[d])
      arrays::fail(EINVAL, "%s: index %zu of dimension %zu, which has %zu elements; indices begin at 0", call,
                   index[d], d, extents[d]);
}

void ArrayLayout::check_box(const char* call, const std::size_t* first, const std::size_t* last) const {
  for (std::size_t d = 0; d < dimensions; ++d)
    if (first[d] > last[d] || last[d] > extents[d])
      arrays::fail(EINVAL,
                   "%s: [%zu, %zu) in dimension %zu, which has %zu elements; give first <= last <= %zu", call,
                   first[d], last[d], d, extents[d], extents[d]);
}

void ArrayLayout::check_same_extents(const char* call, const ArrayLayout& other) const {
  for (std::size_t d = 0; d < dimensions; ++d)
    if (extents[d] != other.extents[d])
      arrays::fail(EINVAL,
                   "%s: arrays of %zu and of %zu elements in dimension %zu; give arrays of the same extents",
                   call, extents[d], other.extents[d], d);
}

}  // namespace kasane::detail
