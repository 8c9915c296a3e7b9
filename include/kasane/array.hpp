// SPDX-License-Identifier: Apache-2.0
/// @file
/// Dense arrays of up to 8 dimensions that are distributed over all ranks, and may be larger than DRAM.
///
///     kasane::run([&] {
///       kasane::array<double, 2> a({n, n}, kasane::tiles{512, 512});   // without: a block for each rank
///       a.fill(0);
///       a.put({{0, 0}, {2, 3}}, values);                               // rows 0 to 1, columns 0 to 2
///       a.for_each_part([](auto part) { part(0, 0) += 1; });           // at the owners
///       kasane::gemm(1.0, a, b, 0.0, c);                               // link kasane::blas
///       c.save("c.npy");
///     });
///
/// Elements are counted from 0, in C's order: the last dimension is contiguous within a tile.
/// docs/guide/arrays.md is a guide, kasane/array_layout.hpp has the distributions.
///
/// **Patches, gather, scatter, fetch_add, get, set** go to the elements' owners at once, as the functions of
/// kasane/global_ptr.hpp do, whichever rank calls; the caller's memory may be private or global.
/// **Bulk operations** (fill, copy, gemm, sum, update_ghosts … and for_each_part) fork threads that begin at
/// the owners, and join them. In attached processes (kasane_attach) they are collective, as are constructors,
/// save and load: one thread of each rank makes the same calls in the same order; each does its own parts,
/// and all get the results.
/// **local()** gives loads and stores.
///
/// **Consistency**: as of threads: what is ordered by fork, join, locks or barriers is seen. A bulk operation
/// sees all patch operations and stores that the caller did before, and later patch operations and loads of
/// the caller see what it did. Between loads or stores of one element by local() and patch operations on it
/// a fence is needed: kasane::release_all() after stores, kasane::acquire_all() before loads. In attached
/// processes a bulk operation sees, and is seen by, what all ranks did before and do after; local() needs no
/// fence there, since pages stay.
///
/// **Thread safety**: const functions and patch operations from any thread of any rank; two operations at
/// once on one element are a data race if one changes it and they are not both accumulates, or both
/// fetch_adds. An array is moved and destroyed by one thread, while no other uses it; in attached processes
/// each rank destroys its own object, at any time, and the last one frees the memory.
///
/// **Errors**: error EINVAL: an index, patch or shape that does not fit, with the numbers; nothing was done.
/// EPERM: a bulk operation outside of run(), or an array of a former attach. EIO: a peer was lost.
/// out_of_memory. Errors of files: the system's codes. In attached processes EINVAL at all ranks: they differ
/// in what they call; and where one rank fails inside of an operation, its error with its text at the others.
///
/// After a bulk operation the calling thread may be on another rank, as after any fork.
///
/// Sources: the operations are those of the Global Arrays toolkit (Nieplocha, Harrison, Littlefield 1994).
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <kasane/array_gemm.hpp>
#include <kasane/array_layout.hpp>
#include <kasane/array_owners.hpp>
#include <kasane/kasane.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include <version>
#ifdef __cpp_lib_mdspan
#include <mdspan>
#endif

namespace kasane {

template <class Type, std::size_t kDims>
class array;

/// A patch of an array that lies in one tile, for loads and stores. Index 0 is the patch's first element in
/// each dimension; negative ones, and those from the extent on, reach what is beside it: the rest of the
/// tile, and its ghost cells. A plain value; valid as long as the array.
template <class Type, std::size_t kDims>
class patch_view {
 public:
  using index = std::array<std::size_t, kDims>;

  patch_view(Type* data, const box<kDims>& where, const std::array<std::ptrdiff_t, kDims>& strides) noexcept
      : data_(data), box_(where), stride_(strides) {}

  template <std::integral... Indices>
    requires(sizeof...(Indices) == kDims)
  [[nodiscard]] Type& operator()(Indices... i) const noexcept {
    std::size_t d = 0;
    std::ptrdiff_t at = 0;
    ((at += static_cast<std::ptrdiff_t>(i) * stride_[d++]), ...);
    return data_[at];
  }
  [[nodiscard]] Type* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t extent(std::size_t d) const noexcept { return box_.extent(d); }
  /// Elements between neighbours of dimension d; 1 for the last.
  [[nodiscard]] std::ptrdiff_t stride(std::size_t d) const noexcept { return stride_[d]; }
  /// Which elements of the array these are.
  [[nodiscard]] const box<kDims>& where() const noexcept { return box_; }
  /// The array's index of element 0 in dimension d.
  [[nodiscard]] std::size_t first(std::size_t d) const noexcept { return box_.first[d]; }

#ifdef __cpp_lib_mdspan
  using mdspan = std::mdspan<Type, std::dextents<std::size_t, kDims>, std::layout_stride>;
  operator mdspan() const noexcept {
    std::array<std::size_t, kDims> extents, strides;
    for (std::size_t d = 0; d < kDims; ++d) {
      extents[d] = extent(d);
      strides[d] = static_cast<std::size_t>(stride_[d]);
    }
    return mdspan(data_, typename mdspan::mapping_type(std::dextents<std::size_t, kDims>(extents), strides));
  }
#endif

 private:
  Type* data_;
  box<kDims> box_;
  std::array<std::ptrdiff_t, kDims> stride_;
};

namespace detail {

/// What begins at an address of the layout. (A cast from bytes alone is one that programs may be warned of.)
template <class Type, class Byte>
[[nodiscard]] Type* elements_at(Byte* p) noexcept {
  if constexpr (std::is_const_v<Byte>)
    return static_cast<Type*>(static_cast<const void*>(p));
  else
    return static_cast<Type*>(static_cast<void*>(p));
}

/// NumPy's name of an element.
template <class Type>
[[nodiscard]] constexpr const char* npy_type() noexcept {
  constexpr const char* names[4][5] = {{"|i1", "<i2", "<i4", "<i8", nullptr},
                                       {"|u1", "<u2", "<u4", "<u8", nullptr},
                                       {nullptr, nullptr, "<f4", "<f8", nullptr},
                                       {nullptr, nullptr, nullptr, "<c8", "<c16"}};
  constexpr int size = sizeof(Type) == 1   ? 0
                       : sizeof(Type) == 2 ? 1
                       : sizeof(Type) == 4 ? 2
                       : sizeof(Type) == 8 ? 3
                                           : 4;
  if constexpr (std::same_as<Type, bool>)
    return "|b1";
  else if constexpr (std::same_as<Type, std::complex<float>> || std::same_as<Type, std::complex<double>>)
    return names[3][size];
  else if constexpr (std::same_as<Type, float> || std::same_as<Type, double>)
    return names[2][size];
  else if constexpr (std::integral<Type>)
    return names[std::unsigned_integral<Type> ? 1 : 0][size];
  else
    return nullptr;
}

}  // namespace detail

// ---- the array -------------------------------------------------------------------------------------------

/// A dense array of kDims dimensions (1 to 8) of trivially copyable Type, distributed over all ranks, in
/// global memory. Moved, not copied; its memory is freed by the destructor. The elements, and the ghost
/// cells, are not initialised.
template <class Type, std::size_t kDims>
class array {
  static_assert(kDims >= 1 && kDims <= array_dimensions_max, "an array has 1 to 8 dimensions");
  static_assert(std::is_trivially_copyable_v<Type> && alignof(Type) <= 64);

 public:
  using value_type = Type;
  using index = std::array<std::size_t, kDims>;

  /// extents: elements along each dimension, 1 or more. Throws error EINVAL: a distribution that does not
  /// fit, or ghosts wider than the array. The ranks' memory is taken when it is first written.
  explicit array(const index& extents, const distribution& how = blocks(), const ghosts& around = ghosts(0))
      : layout_(detail::ArrayLayout::make(kDims, extents.data(), sizeof(Type), how, around)) {}
  array(array&& other) noexcept : layout_(other.layout_) { other.layout_.base = nullptr; }
  array& operator=(array&& other) noexcept {
    std::swap(layout_, other.layout_);
    return *this;
  }
  ~array() { layout_.release(); }

  [[nodiscard]] std::size_t extent(std::size_t d) const noexcept { return layout_.extents[d]; }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return all().size(); }
  /// All elements, as a patch.
  [[nodiscard]] box<kDims> all() const noexcept {
    box<kDims> b;
    std::copy_n(layout_.extents, kDims, b.last.begin());
    return b;
  }
  /// The rank at which an element was placed. Its page may have moved (kasane::where).
  [[nodiscard]] std::uint32_t owner(const index& i) const {
    layout_.check_index("kasane::array::owner", i.data());
    std::size_t part = 0;
    for (std::size_t d = 0; d < kDims; ++d)
      part = part * layout_.grid[d] + i[d] / layout_.tile[d] % layout_.grid[d];
    return static_cast<std::uint32_t>(part % ranks());
  }
  /// The address of an element in global memory.
  [[nodiscard]] global_ptr<Type> address(const index& i) const {
    layout_.check_index("kasane::array::address", i.data());
    return global_ptr<Type>(at(i));
  }
  [[nodiscard]] const detail::ArrayLayout& layout() const noexcept { return layout_; }

  // Patches. p: the patch in the caller's memory; ld: its leading dimensions, in elements.

  /// Reads a patch.
  void get(const box<kDims>& patch, Type* p, const leading<kDims>& ld = {}) const {
    layout_.get(patch.first.data(), patch.last.data(), p, ld.extents.data(), nullptr);
  }
  /// Writes a patch; complete at the owners on return.
  void put(const box<kDims>& patch, const Type* p, const leading<kDims>& ld = {}) {
    layout_.put(patch.first.data(), patch.last.data(), p, ld.extents.data(), nullptr);
  }
  /// The same, complete when group.wait() returns. Of a put p may be used again at once; of a get p is filled
  /// then.
  void get_async(const box<kDims>& patch, Type* p, const leading<kDims>& ld, pending_group& group) const {
    layout_.get(patch.first.data(), patch.last.data(), p, ld.extents.data(), &group);
  }
  void put_async(const box<kDims>& patch, const Type* p, const leading<kDims>& ld, pending_group& group) {
    layout_.put(patch.first.data(), patch.last.data(), p, ld.extents.data(), &group);
  }
  /// element += alpha * p's, each element atomic with respect to other accumulates. Type: int32_t, int64_t,
  /// float, double and their complex numbers. Complete at the owners on return.
  void accumulate(const box<kDims>& patch, const Type* p, const leading<kDims>& ld = {},
                  Type alpha = Type(1)) {
    accumulate_to(patch, p, ld, alpha, nullptr);
  }
  void accumulate_async(const box<kDims>& patch, const Type* p, const leading<kDims>& ld, Type alpha,
                        pending_group& group) {
    accumulate_to(patch, p, ld, alpha, &group);
  }

  // Single elements.

  [[nodiscard]] Type get(const index& i) const { return kasane::get(address(i)); }
  void set(const index& i, const Type& value) { kasane::put(address(i), value); }
  /// Adds n at the owner, atomic among all fetch_adds of the element; returns the value before. Type:
  /// integers and floating-point numbers of 4 or 8 bytes.
  Type fetch_add(const index& i, Type n) {
    static_assert(std::is_arithmetic_v<Type> && (sizeof(Type) == 4 || sizeof(Type) == 8),
                  "fetch_add: numbers of 4 or 8 bytes");
    return atomic_ref<Type>(address(i)).fetch_add(n);
  }
  /// out[k] = the element at indices[k], all read together. out has as many elements (error EINVAL).
  void gather(std::span<const index> indices, std::span<Type> out) const {
    check_lengths("kasane::array::gather", indices.size(), out.size());
    layout_.gather(indices.empty() ? nullptr : indices[0].data(), indices.size(), out.data());
  }
  /// The element at indices[k] becomes values[k]. An index that occurs twice gets one of its values.
  void scatter(std::span<const index> indices, std::span<const Type> values) {
    check_lengths("kasane::array::scatter", indices.size(), values.size());
    layout_.scatter(indices.empty() ? nullptr : indices[0].data(), indices.size(), values.data());
  }

  // Loads and stores.

  /// The tiles that were placed at the rank on which the caller runs now.
  [[nodiscard]] std::vector<patch_view<Type, kDims>> local() { return local_views<Type>(); }
  [[nodiscard]] std::vector<patch_view<const Type, kDims>> local() const { return local_views<const Type>(); }
  /// Calls f(part) for patches that together are the array, by threads that begin at their owners: part is a
  /// patch_view<Type, kDims> of whole rows of a tile or of pieces of one row, of at most `grain` elements.
  /// For changes of part's own elements, which may read ghost cells; those are as update_ghosts() left them,
  /// while other elements of the tile beside the part may be changing by then. Exceptions of f are thrown on,
  /// after all threads have ended.
  template <class Callable>
  void for_each_part(Callable f, std::size_t grain = automatic) {
    parts<Type>(f, grain);
  }
  template <class Callable>
  void for_each_part(Callable f, std::size_t grain = automatic) const {
    parts<const Type>(f, grain);
  }
  /// patch has to lie in one tile (error EINVAL).
  [[nodiscard]] patch_view<Type, kDims> view_of(const box<kDims>& patch) { return checked_view<Type>(patch); }
  [[nodiscard]] patch_view<const Type, kDims> view_of(const box<kDims>& patch) const {
    return checked_view<const Type>(patch);
  }

  // Bulk operations: on a thread, or by all ranks of attached processes.

  /// All ghost cells become copies of the elements that they stand for. Elements must not change meanwhile.
  void update_ghosts() { detail::update_ghosts("kasane::array::update_ghosts", layout_); }
  /// All elements, and all ghost cells, become value.
  void fill(const Type& value);
  /// Every element is multiplied by alpha.
  void scale(const Type& alpha) {
    each_element(
        "kasane::array::scale", [alpha](const Type& x) { return static_cast<Type>(alpha * x); }, alpha);
  }
  /// Every element x becomes f(x).
  template <class Callable>
  void transform_in_place(Callable f) {
    each_element("kasane::array::transform_in_place", std::move(f));
  }
  /// The sum of all elements, in Type; the order of additions depends on the distribution alone.
  [[nodiscard]] Type sum() const;
  /// The smallest element; the largest one. With NaNs: any element.
  [[nodiscard]] Type min() const {
    return extreme("kasane::array::min", [](const Type& x, const Type& y) { return y < x; });
  }
  [[nodiscard]] Type max() const {
    return extreme("kasane::array::max", [](const Type& x, const Type& y) { return x < y; });
  }

  // Files in NumPy's format .npy (1.0), in C's order; Type: bool, integers, float, double and their complex
  // numbers. The array may be larger than DRAM.

  /// Writes all elements; the file replaces one of the same name at the end, atomically. The calling rank
  /// writes. Throws error with the system's code (ENOENT, ENOSPC …).
  void save(const std::string& path) const {
    static_assert(detail::npy_type<Type>() != nullptr, "NumPy has no name for elements of this type");
    layout_.save(path.c_str(), detail::npy_type<Type>());
  }
  /// Reads a file of numpy.save or save() into a new array. Throws error EINVAL: not a .npy file, or one of
  /// another type, order or number of dimensions; EIO: cut off; ENOENT ….
  [[nodiscard]] static array load(const std::string& path, const distribution& how = blocks(),
                                  const ghosts& around = ghosts(0)) {
    static_assert(detail::npy_type<Type>() != nullptr, "NumPy has no name for elements of this type");
    index extents;
    detail::npy_extents(path.c_str(), detail::npy_type<Type>(), kDims, extents.data());
    array a(extents, how, around);
    a.layout_.load(path.c_str(), detail::npy_type<Type>());
    return a;
  }

 private:
  [[nodiscard]] Type* at(const index& i) const noexcept {
    return detail::elements_at<Type>(layout_.address(i.data()));
  }

  static void check_lengths(const char* call, std::size_t indices, std::size_t values) {
    if (indices != values)
      throw error(EINVAL, (std::string(call) + ": " + std::to_string(indices) + " indices and " +
                           std::to_string(values) + " values; give as many of both")
                              .c_str());
  }

  void accumulate_to(const box<kDims>& patch, const Type* p, const leading<kDims>& ld, Type alpha,
                     pending_group* group) {
    layout_.accumulate(patch.first.data(), patch.last.data(), p, ld.extents.data(),
                       detail::element<Type>::value, &alpha, group);
  }

  template <class Other>
  [[nodiscard]] patch_view<Other, kDims> view(const box<kDims>& b) const noexcept {
    std::array<std::ptrdiff_t, kDims> strides;
    for (std::size_t d = 0; d < kDims; ++d)
      strides[d] = static_cast<std::ptrdiff_t>(layout_.stride[d] / sizeof(Type));
    return {at(b.first), b, strides};
  }
  template <class Other>
  [[nodiscard]] patch_view<Other, kDims> checked_view(const box<kDims>& b) const {
    layout_.check_box("kasane::array::view_of", b.first.data(), b.last.data());
    for (std::size_t d = 0; d < kDims; ++d)
      if (b.extent(d) == 0 || b.first[d] / layout_.tile[d] != (b.last[d] - 1) / layout_.tile[d])
        throw error(EINVAL,
                    "kasane::array::view_of: the patch is empty or lies in several tiles; use get and put");
    return view<Other>(b);
  }
  template <class Other>
  [[nodiscard]] std::vector<patch_view<Other, kDims>> local_views() const {
    std::vector<patch_view<Other, kDims>> views;
    for (std::size_t k = rank(); k < layout_.parts; k += ranks())
      for (std::size_t t = 0; t < layout_.tiles_of_part(k); ++t)
        views.push_back(view<Other>(detail::tile_of<kDims>(layout_, k, t)));
    return views;
  }
  template <class Other, class Callable>
  void parts(Callable& f, std::size_t grain) const {
    const detail::Bulk bulk("kasane::array::for_each_part", {&layout_}, grain);
    detail::at_owners<kDims>(
        bulk, layout_, detail::streaming(layout_, grain), [this, &f](const box<kDims>& b) {
          detail::expect(layout_, b, std::is_const_v<Other> ? view_access::read : read_write);
          f(view<Other>(b));
        });
  }
  /// Every element x becomes f(x). numbers: what ranks compare beside the call.
  template <class Callable, class... Numbers>
  void each_element(const char* call, Callable f, const Numbers&... numbers);
  template <class Replaces>
  [[nodiscard]] Type extreme(const char* call, Replaces replaces) const;

  detail::ArrayLayout layout_;
};

template <class Type, std::size_t kDims>
void array<Type, kDims>::fill(const Type& value) {
  const detail::Bulk bulk("kasane::array::fill", {&layout_}, value);
  // with their ghosts, tiles are contiguous but for what rounds them up
  detail::at_owners<kDims>(bulk, layout_, detail::streaming(layout_), [this, value](const box<kDims>& b) {
    box<kDims> with_ghosts = b;
    std::array<std::ptrdiff_t, kDims> before;
    for (std::size_t d = 0; d < kDims; ++d) {
      const std::size_t in_tile = b.first[d] % layout_.tile[d];
      const bool begins = in_tile == 0,
                 ends = b.last[d] == std::min(b.first[d] - in_tile + layout_.tile[d], layout_.extents[d]);
      before[d] = begins ? static_cast<std::ptrdiff_t>(layout_.ghost[d]) : 0;
      with_ghosts.last[d] += static_cast<std::size_t>(before[d]) + (ends ? layout_.ghost[d] : 0);
    }
    detail::expect(layout_, b, write_only);
    std::byte* first = reinterpret_cast<std::byte*>(at(b.first));
    detail::Walk<kDims, 1> walk;
    for (std::size_t d = 0; d < kDims; ++d) {
      first -= before[d] * static_cast<std::ptrdiff_t>(layout_.stride[d]);
      walk.extents[d] = with_ghosts.extent(d);
      walk.stride[0][d] = layout_.stride[d];
    }
    walk.rows({first}, [&value](const auto& p, std::size_t n) {
      std::fill_n(detail::elements_at<Type>(p[0]), n, value);
    });
  });
}

template <class Type, std::size_t kDims>
template <class Callable, class... Numbers>
void array<Type, kDims>::each_element(const char* call, Callable f, const Numbers&... numbers) {
  const detail::Bulk bulk(call, {&layout_}, numbers...);
  detail::at_owners<kDims>(bulk, layout_, detail::streaming(layout_), [this, &f](const box<kDims>& b) {
    detail::expect(layout_, b, read_write);
    detail::rows_of(
        b,
        [&f](const auto& p, std::size_t n) {
          Type* const x = detail::elements_at<Type>(p[0]);
          for (std::size_t i = 0; i < n; ++i) x[i] = f(x[i]);
        },
        layout_);
  });
}

template <class Type, std::size_t kDims>
Type array<Type, kDims>::sum() const {
  const detail::Bulk bulk("kasane::array::sum", {&layout_});
  return detail::reduce_pieces_at_owners<Type, kDims>(
      bulk, layout_, detail::streaming(layout_),
      [this](const box<kDims>& b) {
        detail::expect(layout_, b, view_access::read);
        Type total{};
        detail::rows_of(
            b,
            [&total](const auto& p, std::size_t n) {
              const Type* const x = detail::elements_at<const Type>(p[0]);
              for (std::size_t i = 0; i < n; ++i) total += x[i];
            },
            layout_);
        return total;
      },
      [](const Type& a, const Type& b) { return static_cast<Type>(a + b); });
}

template <class Type, std::size_t kDims>
template <class Replaces>
Type array<Type, kDims>::extreme(const char* call, Replaces replaces) const {
  const auto better = [replaces](const Type& x, const Type& y) { return replaces(x, y) ? y : x; };
  const detail::Bulk bulk(call, {&layout_});
  const auto best = detail::reduce_pieces_at_owners<std::optional<Type>, kDims>(
      bulk, layout_, detail::streaming(layout_),
      [this, better](const box<kDims>& b) -> std::optional<Type> {
        detail::expect(layout_, b, view_access::read);
        Type found = *at(b.first);
        detail::rows_of(
            b,
            [&found, better](const auto& p, std::size_t n) {
              const Type* const x = detail::elements_at<const Type>(p[0]);
              for (std::size_t i = 0; i < n; ++i) found = better(found, x[i]);
            },
            layout_);
        return found;
      },
      [better](std::optional<Type> a, std::optional<Type> b) -> std::optional<Type> {
        return !a ? b : !b ? a : std::optional<Type>(better(*a, *b));
      });
  return *best;
}

// ---- operations on several arrays ------------------------------------------------------------------------
// Distributions may differ: work is done where the output lies.

namespace detail {

/// call: as errors name it; numbers: what ranks compare beside the call.
template <class Type, class Other, std::size_t kDims, class Callable, class... Numbers>
void transform_one(const char* call, const array<Type, kDims>& a, array<Other, kDims>& out, Callable f,
                   const Numbers&... numbers) {
  const detail::ArrayLayout &from = a.layout(), &to = out.layout();
  const detail::Bulk bulk(call, {&from, &to}, numbers...);
  from.check_same_extents(call, to);
  detail::at_owners<kDims>(bulk, to, detail::streaming(to),
                           [&, apart = from.base != to.base](const box<kDims>& whole) {
                             detail::expect(to, whole, apart ? write_only : read_write);
                             detail::each_tile_of(from, whole, [&](const box<kDims>& b) {
                               detail::expect(from, b, view_access::read);
                               detail::rows_of(
                                   b,
                                   [&f](const auto& p, std::size_t n) {
                                     const Type* const x = detail::elements_at<const Type>(p[0]);
                                     Other* const z = detail::elements_at<Other>(p[1]);
                                     for (std::size_t i = 0; i < n; ++i) z[i] = f(x[i]);
                                   },
                                   from, to);
                             });
                           });
}

template <class Type, class Values, class Other, std::size_t kDims, class Callable, class... Numbers>
void transform_two(const char* call, const array<Type, kDims>& a, const array<Values, kDims>& b,
                   array<Other, kDims>& out, Callable f, const Numbers&... numbers) {
  const detail::ArrayLayout &one = a.layout(), &two = b.layout(), &to = out.layout();
  const detail::Bulk bulk(call, {&one, &two, &to}, numbers...);
  one.check_same_extents(call, to);
  two.check_same_extents(call, to);
  const bool apart = one.base != to.base && two.base != to.base;
  detail::at_owners<kDims>(bulk, to, detail::streaming(to), [&, apart](const box<kDims>& whole) {
    detail::expect(to, whole, apart ? write_only : read_write);
    detail::each_tile_of(one, whole, [&](const box<kDims>& in_one) {
      detail::expect(one, in_one, view_access::read);
      detail::each_tile_of(two, in_one, [&](const box<kDims>& in_both) {
        detail::expect(two, in_both, view_access::read);
        detail::rows_of(
            in_both,
            [&f](const auto& p, std::size_t n) {
              const Type* const x = detail::elements_at<const Type>(p[0]);
              const Values* const y = detail::elements_at<const Values>(p[1]);
              Other* const z = detail::elements_at<Other>(p[2]);
              for (std::size_t i = 0; i < n; ++i) z[i] = f(x[i], y[i]);
            },
            one, two, to);
      });
    });
  });
}

}  // namespace detail

/// out's element at each index = f(a's element there). out may be a. Throws error EINVAL: different extents.
/// Ranks do not compare f, nor what it holds.
template <class Type, class Other, std::size_t kDims, class Callable>
void transform(const array<Type, kDims>& a, array<Other, kDims>& out, Callable f) {
  detail::transform_one("kasane::transform", a, out, std::move(f));
}
/// out's element at each index = f(a's element there, b's). out may be a or b.
template <class Type, class Other, std::size_t kDims, class Callable>
void transform(const array<Type, kDims>& a, const array<Type, kDims>& b, array<Other, kDims>& out,
               Callable f) {
  detail::transform_two("kasane::transform", a, b, out, std::move(f));
}
template <class Type, class Values, class Other, std::size_t kDims, class Callable>
  requires(!std::same_as<Type, Values>)
void transform(const array<Type, kDims>& a, const array<Values, kDims>& b, array<Other, kDims>& out,
               Callable f) {
  detail::transform_two("kasane::transform", a, b, out, std::move(f));
}

/// to = from. Throws error EINVAL: different extents.
template <class Type, std::size_t kDims>
void copy(const array<Type, kDims>& from, array<Type, kDims>& to) {
  detail::transform_one("kasane::copy", from, to, [](const Type& x) { return x; });
}
/// c = alpha a + beta b; c may be a or b. Throws error EINVAL: different extents.
template <class Type, std::size_t kDims>
void add(const std::type_identity_t<Type>& alpha, const array<Type, kDims>& a,
         const std::type_identity_t<Type>& beta, const array<Type, kDims>& b, array<Type, kDims>& c) {
  const auto sum = [alpha, beta](const Type& x, const Type& y) {
    return static_cast<Type>(alpha * x + beta * y);
  };
  detail::transform_two("kasane::add", a, b, c, sum, alpha, beta);
}

/// The sum of a's elements times b's (of complex numbers without conjugates). Throws error EINVAL: different
/// extents.
template <class Type, std::size_t kDims>
[[nodiscard]] Type dot(const array<Type, kDims>& a, const array<Type, kDims>& b) {
  const detail::ArrayLayout &one = a.layout(), &two = b.layout();
  const detail::Bulk bulk("kasane::dot", {&one, &two});
  one.check_same_extents("kasane::dot", two);
  return detail::reduce_pieces_at_owners<Type, kDims>(
      bulk, one, detail::streaming(one),
      [&](const box<kDims>& whole) {
        detail::expect(one, whole, view_access::read);
        Type total{};
        detail::each_tile_of(two, whole, [&](const box<kDims>& both) {
          detail::expect(two, both, view_access::read);
          detail::rows_of(
              both,
              [&total](const auto& p, std::size_t n) {
                const Type* const x = detail::elements_at<const Type>(p[0]);
                const Type* const y = detail::elements_at<const Type>(p[1]);
                for (std::size_t i = 0; i < n; ++i) total += x[i] * y[i];
              },
              one, two);
        });
        return total;
      },
      [](const Type& x, const Type& y) { return static_cast<Type>(x + y); });
}

namespace detail {

/// out[j][i] = in[i][j] for rows x columns of `in`; strides in elements. In squares that fit the first cache.
template <class Type>
void transpose_patch(const Type* in, std::size_t in_stride, Type* out, std::size_t out_stride,
                     std::size_t rows, std::size_t columns) noexcept {
  constexpr std::size_t kSquare = 32;
  for (std::size_t i0 = 0; i0 < rows; i0 += kSquare)
    for (std::size_t j0 = 0; j0 < columns; j0 += kSquare)
      for (std::size_t j = j0; j < std::min(columns, j0 + kSquare); ++j)
        for (std::size_t i = i0; i < std::min(rows, i0 + kSquare); ++i)
          out[j * out_stride + i] = in[i * in_stride + j];
}

}  // namespace detail

/// to's element (j, i) = from's element (i, j). Throws error EINVAL: extents that do not fit, or one array.
template <class Type>
void transpose(const array<Type, 2>& from, array<Type, 2>& to) {
  const detail::ArrayLayout &in = from.layout(), &out = to.layout();
  const detail::Bulk bulk("kasane::transpose", {&in, &out});
  if (in.extents[0] != out.extents[1] || in.extents[1] != out.extents[0] || in.base == out.base)
    throw error(
        EINVAL,
        "kasane::transpose: the output must be another array, with as many rows as the input has columns "
        "and as many columns as the input has rows");
  detail::at_owners<2>(bulk, out, detail::in_rows(out, 512, SIZE_MAX), [&](const box<2>& whole) {
    detail::expect(out, whole, write_only);
    const box<2> turned{{whole.first[1], whole.first[0]}, {whole.last[1], whole.last[0]}};
    detail::each_tile_of(in, turned, [&](const box<2>& b) {
      detail::expect(in, b, view_access::read);
      const std::size_t target[2] = {b.first[1], b.first[0]};
      detail::transpose_patch(detail::elements_at<const Type>(in.address(b.first.data())),
                              in.stride[0] / sizeof(Type), detail::elements_at<Type>(out.address(target)),
                              out.stride[0] / sizeof(Type), b.extent(0), b.extent(1));
    });
  });
}

/// c = alpha a b + beta c, for matrices of float, double or their complex numbers, however they are
/// distributed; where beta is 0, c is not read. Pieces of c are computed at their owners; a rank keeps what
/// it fetches of a and b. Tiles of 512 x 512 or more suit it best, above all for matrices larger than DRAM.
/// Throws error EINVAL: extents that do not fit; c is a or b; more than 2^31 - 1 elements in a row of a tile.
template <class Type>
void gemm(const std::type_identity_t<Type>& alpha, const array<Type, 2>& a, const array<Type, 2>& b,
          const std::type_identity_t<Type>& beta, array<Type, 2>& c) {
  static_assert(std::is_same_v<Type, float> || std::is_same_v<Type, double> ||
                    std::is_same_v<Type, std::complex<float>> || std::is_same_v<Type, std::complex<double>>,
                "gemm: elements are float, double, std::complex<float> or std::complex<double>");
  detail::multiply_arrays<Type>(alpha, a.layout(), b.layout(), beta, c.layout(), [](const auto&) {});
}

}  // namespace kasane
