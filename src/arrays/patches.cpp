// SPDX-License-Identifier: Apache-2.0
// Patches between their owners and the caller's memory: one strided transfer a tile, all under way together.
#include <algorithm>
#include <cerrno>
#include <complex>
#include <cstdint>
#include <cstring>
#include <kasane/array_layout.hpp>
#include <optional>
#include <vector>

#include "arrays/boxes.h"
#include "arrays/error.h"

namespace kasane::detail {
namespace {

/// A patch in the caller's memory: bytes between neighbours along each dimension.
struct Local {
  std::byte* at;
  std::size_t stride[ArrayLayout::kMost] = {};

  Local(const ArrayLayout& l, const char* call, const std::size_t* first, const std::size_t* last,
        const void* p, const std::size_t* ld)
      : at(static_cast<std::byte*>(const_cast<void*>(p))) {
    l.check_box(call, first, last);
    std::size_t bytes = l.element_bytes;
    for (std::size_t d = l.dimensions; d-- > 0;) {
      stride[d] = bytes;
      const std::size_t extent = last[d] - first[d], given = d == 0 || ld == nullptr ? 0 : ld[d - 1];
      if (given != 0 && given < extent)
        arrays::fail(EINVAL,
                     "%s: a leading dimension of %zu for %zu elements in dimension %zu; give at least %zu",
                     call, given, extent, d, extent);
      bytes *= given != 0 ? given : extent;
    }
  }
};

/// The shape of a transfer. Dimensions of one element, and those that are contiguous on both sides, are left
/// out.
kasane_strides_t shape_of(const ArrayLayout& l, const std::size_t* first, const std::size_t* last,
                          const std::size_t* local) {
  kasane_strides_t s{};
  s.dimensions = 1;
  s.count[0] = l.element_bytes;
  std::size_t global_bytes = l.element_bytes, local_bytes = l.element_bytes;  // what one step of s covers
  for (std::size_t d = l.dimensions; d-- > 0;) {
    const std::size_t n = last[d] - first[d];
    if (n == 1) continue;
    if (l.stride[d] == global_bytes && local[d] == local_bytes) {
      s.count[s.dimensions - 1] *= n;
    } else {
      s.global_stride[s.dimensions - 1] = l.stride[d];
      s.local_stride[s.dimensions - 1] = local[d];
      s.count[s.dimensions++] = n;
    }
    global_bytes = l.stride[d] * n;
    local_bytes = local[d] * n;
  }
  return s;
}

/// Calls transfer(global, local, shape) for the part of the patch in each tile.
template <class F>
void each_transfer(const ArrayLayout& l, const std::size_t* first, const std::size_t* last,
                   const Local& local, const F& transfer) {
  arrays::each_tile(l, first, last, [&](const std::size_t* from, const std::size_t* to) {
    std::size_t inside = 0;
    for (std::size_t d = 0; d < l.dimensions; ++d) inside += (from[d] - first[d]) * local.stride[d];
    const kasane_strides_t s = shape_of(l, from, to, local.stride);
    transfer(l.address(from), local.at + inside, s);
  });
}

/// The caller's group, or one of this call, which is complete at its end.
class Group {
 public:
  explicit Group(pending_group* given) : group_(given != nullptr ? given : &own_.emplace()) {}
  pending_group& operator*() const noexcept { return *group_; }
  void end() {
    if (own_) own_->wait();
  }

 private:
  std::optional<pending_group> own_;
  pending_group* group_;
};

bool in_one_tile(const ArrayLayout& l, const std::size_t* first, const std::size_t* last) noexcept {
  for (std::size_t d = 0; d < l.dimensions; ++d)
    if (first[d] / l.tile[d] != (last[d] - 1) / l.tile[d]) return false;
  return true;
}

void get_one(std::byte* to, const std::byte* from, const kasane_strides_t& s, kasane_pending_t* pending) {
  if (s.dimensions > 1)
    check(kasane_get_strided(to, from, &s, pending));
  else if (pending == nullptr)
    check(kasane_get(to, from, s.count[0]));
  else
    check(kasane_get_async(to, from, s.count[0], pending));
}
void put_one(std::byte* to, const std::byte* from, const kasane_strides_t& s, kasane_pending_t* pending) {
  if (s.dimensions > 1)
    check(kasane_put_strided(to, from, &s, pending));
  else if (pending == nullptr)
    check(kasane_put(to, from, s.count[0]));
  else
    check(kasane_put_async(to, from, s.count[0], pending));
}

void get_into(const ArrayLayout& l, const std::size_t* first, const std::size_t* last, const Local& local,
              pending_group& group) {
  each_transfer(l, first, last, local, [&](std::byte* global, std::byte* here, const kasane_strides_t& s) {
    kasane_pending_t one{};
    get_one(here, global, s, &one);
    group.add_read(one);
  });
}

}  // namespace

void ArrayLayout::get(const std::size_t* first, const std::size_t* last, void* p, const std::size_t* ld,
                      pending_group* given) const {
  const Local local(*this, "kasane::array::get", first, last, p, ld);
  if (arrays::empty(*this, first, last)) return;
  if (given == nullptr && in_one_tile(*this, first, last))
    return get_one(local.at, address(first), shape_of(*this, first, last, local.stride), nullptr);
  Group group(given);
  get_into(*this, first, last, local, *group);
  group.end();
}

void ArrayLayout::put(const std::size_t* first, const std::size_t* last, const void* p, const std::size_t* ld,
                      pending_group* given) const {
  const Local local(*this, "kasane::array::put", first, last, p, ld);
  if (arrays::empty(*this, first, last)) return;
  if (given == nullptr && in_one_tile(*this, first, last))
    return put_one(address(first), local.at, shape_of(*this, first, last, local.stride), nullptr);
  Group group(given);
  each_transfer(*this, first, last, local,
                [&](std::byte* global, std::byte* here, const kasane_strides_t& s) {
                  put_one(global, here, s, (*group).changes());
                });
  group.end();
}

namespace {

template <class T>
T number_at(const void* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
/// As the C interface takes it, which has no integers but those that a double holds.
std::complex<double> scale_of(kasane_element_t element, const void* alpha) noexcept {
  switch (element) {
    case KASANE_INT32: return number_at<std::int32_t>(alpha);
    case KASANE_INT64: return static_cast<double>(number_at<std::int64_t>(alpha));
    case KASANE_FLOAT: return number_at<float>(alpha);
    case KASANE_DOUBLE: return number_at<double>(alpha);
    case KASANE_COMPLEX_FLOAT: return number_at<std::complex<float>>(alpha);
    case KASANE_COMPLEX_DOUBLE: return number_at<std::complex<double>>(alpha);
  }
  return 1;
}
bool is_exact(kasane_element_t element, const void* alpha) noexcept {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  const std::int64_t n = element == KASANE_INT64 ? number_at<std::int64_t>(alpha) : 0;
  return -kExact <= n && n <= kExact;
}
/// The patch in the caller's memory times alpha, modulo 2^64, without gaps.
std::vector<std::uint64_t> products_of(const ArrayLayout& l, const std::size_t* first,
                                       const std::size_t* last, const Local& local, const void* alpha) {
  std::size_t n = 1, at[ArrayLayout::kMost] = {};
  for (std::size_t d = 0; d < l.dimensions; ++d) n *= last[d] - first[d];
  std::vector<std::uint64_t> products(n);
  for (std::uint64_t& product : products) {
    std::size_t inside = 0;
    for (std::size_t d = 0; d < l.dimensions; ++d) inside += at[d] * local.stride[d];
    product = number_at<std::uint64_t>(local.at + inside) * number_at<std::uint64_t>(alpha);
    for (std::size_t d = l.dimensions; d-- > 0 && ++at[d] == last[d] - first[d];) at[d] = 0;
  }
  return products;
}

}  // namespace

void ArrayLayout::accumulate(const std::size_t* first, const std::size_t* last, const void* p,
                             const std::size_t* ld, kasane_element_t element, const void* alpha,
                             pending_group* given) const {
  const Local local(*this, "kasane::array::accumulate", first, last, p, ld);
  if (!is_exact(element, alpha)) {
    constexpr std::int64_t one = 1;
    const std::vector<std::uint64_t> products = products_of(*this, first, last, local, alpha);
    return accumulate(first, last, products.data(), nullptr, element, &one, given);
  }
  const std::complex<double> scale = scale_of(element, alpha);
  const double parts_of_scale[2] = {scale.real(), scale.imag()};
  Group group(given);
  each_transfer(
      *this, first, last, local, [&](std::byte* global, std::byte* here, const kasane_strides_t& s) {
        check(kasane_accumulate_strided(global, here, &s, element, parts_of_scale, (*group).changes()));
      });
  group.end();
}

namespace {

/// Calls transfer(pieces, count) for some elements at a time.
template <class F>
void each_element(const ArrayLayout& l, const char* call, const std::size_t* indices, std::size_t n,
                  std::byte* local, const F& transfer) {
  constexpr std::size_t kTogether = 512;
  for (std::size_t i = 0; i < n; ++i) l.check_index(call, indices + i * l.dimensions);
  std::vector<kasane_piece_t> pieces;
  for (std::size_t i = 0; i < n;) {
    pieces.clear();
    for (const std::size_t end = std::min(n, i + kTogether); i < end; ++i)
      pieces.push_back({l.address(indices + i * l.dimensions), local + i * l.element_bytes, l.element_bytes});
    check(transfer(pieces.data(), pieces.size()));
  }
}

}  // namespace

void ArrayLayout::gather(const std::size_t* indices, std::size_t n, void* out) const {
  each_element(
      *this, "kasane::array::gather", indices, n, static_cast<std::byte*>(out),
      [](const kasane_piece_t* p, std::size_t count) { return kasane_get_vector(p, count, nullptr); });
}

void ArrayLayout::scatter(const std::size_t* indices, std::size_t n, const void* values) const {
  each_element(
      *this, "kasane::array::scatter", indices, n, static_cast<std::byte*>(const_cast<void*>(values)),
      [](const kasane_piece_t* p, std::size_t count) { return kasane_put_vector(p, count, nullptr); });
}

// ---- ghosts ----------------------------------------------------------------------------------------------

namespace {

/// A range of ghost cells along one dimension, `from` on in coordinates of the array, which may be outside;
/// and the elements that it copies. Without a copy count is 0.
struct Span {
  std::ptrdiff_t from;
  std::size_t first, count;
};

/// The ranges of [from, until) that are copies: those beyond the edges only if they are periodic.
std::vector<Span> spans_of(std::ptrdiff_t from, std::ptrdiff_t until, std::size_t extent, boundary edges) {
  const auto n = static_cast<std::ptrdiff_t>(extent);
  std::vector<Span> spans;
  for (const std::ptrdiff_t turn : {-n, std::ptrdiff_t{0}, n}) {  // widths are at most n
    if (turn != 0 && edges == boundary::kept) continue;
    const std::ptrdiff_t begin = std::max(from, turn), end = std::min(until, turn + n);
    if (begin < end)
      spans.push_back({begin, static_cast<std::size_t>(begin - turn), static_cast<std::size_t>(end - begin)});
  }
  return spans;
}

/// The shell around a tile without overlaps: along dimension d below and above the tile; earlier dimensions
/// within the tile, later ones with their ghosts.
struct Shell {
  const ArrayLayout& l;
  const std::size_t *first, *last;  ///< the tile
  pending_group& group;

  void fetch() const {
    for (std::size_t d = 0; d < l.dimensions; ++d) {
      const auto begin = static_cast<std::ptrdiff_t>(first[d]), end = static_cast<std::ptrdiff_t>(last[d]),
                 width = static_cast<std::ptrdiff_t>(l.ghost[d]);
      side(d, begin - width, begin);
      side(d, end, end + width);
    }
  }

 private:
  void side(std::size_t across, std::ptrdiff_t from, std::ptrdiff_t until) const {
    std::vector<Span> spans[ArrayLayout::kMost];
    for (std::size_t d = 0; d < l.dimensions; ++d) {
      const auto more = static_cast<std::ptrdiff_t>(d > across ? l.ghost[d] : 0);
      const std::ptrdiff_t begin = d == across ? from : static_cast<std::ptrdiff_t>(first[d]) - more,
                           end = d == across ? until : static_cast<std::ptrdiff_t>(last[d]) + more;
      spans[d] = spans_of(begin, end, l.extents[d], l.edges);
    }
    std::size_t low[ArrayLayout::kMost], high[ArrayLayout::kMost];
    each_combination(spans, 0, l.address(first), low, high);
  }
  /// ghost: where the cells begin, as far as dimensions below d decide.
  void each_combination(const std::vector<Span>* spans, std::size_t d, std::byte* ghost, std::size_t* low,
                        std::size_t* high) const {
    if (d == l.dimensions) {
      Local cells(l, "kasane::array::update_ghosts", low, high, ghost, nullptr);
      std::copy_n(l.stride, l.dimensions, cells.stride);
      return get_into(l, low, high, cells, group);
    }
    for (const Span& s : spans[d]) {
      low[d] = s.first;
      high[d] = s.first + s.count;
      each_combination(
          spans, d + 1,
          ghost + (s.from - static_cast<std::ptrdiff_t>(first[d])) * static_cast<std::ptrdiff_t>(l.stride[d]),
          low, high);
    }
  }
};

}  // namespace

void ArrayLayout::fetch_ghosts(std::size_t k, std::size_t t) const {
  std::size_t first[ArrayLayout::kMost], last[ArrayLayout::kMost];
  box_of(k, t, first, last);
  pending_group group;
  Shell{*this, first, last, group}.fetch();
  group.wait();
}

// ---- loads and stores ------------------------------------------------------------------------------------

void ArrayLayout::expect(const std::size_t* first, const std::size_t* last, view_access use) const {
  constexpr std::size_t kLeast = 4096;
  // dimensions from `d` on are contiguous
  std::size_t d = dimensions - 1, run = element_bytes * (last[d] - first[d]);
  for (; d > 0 && run == stride[d - 1]; --d) run *= last[d - 1] - first[d - 1];
  std::size_t span = element_bytes, all = element_bytes;
  for (std::size_t i = 0; i < dimensions; ++i) {
    span += (last[i] - first[i] - 1) * stride[i];
    all *= last[i] - first[i];
  }
  std::byte* const from = address(first);
  if (d == 0 || 2 * all >= span) {  // the gaps come, too, and stay what they are
    const bool whole = d == 0 && run >= kLeast;
    if (span >= kLeast) prefetch(from, span, use == write_only && !whole ? read_write : use);
    return;
  }
  if (run < kLeast) return;
  std::size_t at[ArrayLayout::kMost] = {};
  for (bool more = true; more;) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < d; ++i) offset += at[i] * stride[i];
    prefetch(from + offset, run, use);
    more = false;
    for (std::size_t i = d; i-- > 0 && !more; at[i] = more ? at[i] : 0) more = ++at[i] < last[i] - first[i];
  }
}

}  // namespace kasane::detail
