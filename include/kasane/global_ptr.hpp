// SPDX-License-Identifier: Apache-2.0
/// @file
/// The direct view of global memory, included by kasane.hpp: data is read and changed at its owner, without a
/// copy here.
///
///     kasane::global_ptr<double> x(array);                    // any pointer into global memory
///     kasane::get(buffer, x + 1000, 16);                      // blocking
///     kasane::pending p = kasane::get_async(buffer, x, 16);   // … something else …
///     p.wait();
///     kasane::pending_group all;                              // many at once
///     for (int i = 0; i < 100; ++i) kasane::put_async(x + i, &values[i], 1, all);
///     all.wait();
///     kasane::fetch_add(counter, 1);                          // executed at the owner
///
/// **Consistency.** Each of these functions sees and changes the owner's copy at once. Loads and stores
/// (through Type*) use the coherent view, which other ranks see after a release and an acquire. Uses of one
/// datum through both views need a fence between them: release_all() after stores and before direct access,
/// acquire_all() after direct changes and before loads. `kasane run --check mixing` reports places that lack
/// one.
///
/// **Buffers** are any memory, global or private. When an asynchronous put or accumulate returns, its source
/// has been copied. The target of a get, and an atomic's old value, are not used before the operation was
/// waited for.
///
/// **Errors**: error EINVAL: a range that is not in global memory or not allocated, with its address; an
/// address that is not aligned. EIO: a peer was lost.
///
/// **Thread safety**: functions from any thread of any rank; an object by one thread at a time. A pending may
/// be waited for on another rank than where it was issued.
///
/// Sources: get, put and the direct view are those of MGAS-2 (W. Endo's thesis, 2017, chapter 5); accumulate,
/// patches and pieces those of ARMCI.
#pragma once

#include <kasane/kasane.h>
#include <kasane/error.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <compare>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace kasane {

// ---- global_ptr -------------------------------------------------------------------------------------------

/// The address of a Type in global memory, for the direct view. Like a pointer it is trivially copyable and
/// has arithmetic, comparison and null; it has no dereference, so that loads and stores are not mistaken for
/// direct access. The address is the same on every rank.
template <class Type>
class global_ptr {
 public:
  using element_type = Type;
  using difference_type = std::ptrdiff_t;

  constexpr global_ptr() noexcept = default;
  constexpr global_ptr(std::nullptr_t) noexcept {}
  constexpr explicit global_ptr(Type* p) noexcept : p_(p) {}
  /// To const, and to a base.
  template <class Other>
    requires(std::is_convertible_v<Other*, Type*>)
  constexpr global_ptr(global_ptr<Other> other) noexcept : p_(other.get()) {}

  /// The pointer, for the coherent view.
  [[nodiscard]] constexpr Type* get() const noexcept { return p_; }
  [[nodiscard]] constexpr explicit operator Type*() const noexcept { return p_; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return p_ != nullptr; }

  constexpr global_ptr& operator+=(difference_type n) noexcept { return p_ += n, *this; }
  constexpr global_ptr& operator-=(difference_type n) noexcept { return p_ -= n, *this; }
  constexpr global_ptr& operator++() noexcept { return ++p_, *this; }
  constexpr global_ptr& operator--() noexcept { return --p_, *this; }
  constexpr global_ptr operator++(int) noexcept { return global_ptr(p_++); }
  constexpr global_ptr operator--(int) noexcept { return global_ptr(p_--); }
  friend constexpr global_ptr operator+(global_ptr p, difference_type n) noexcept { return p += n; }
  friend constexpr global_ptr operator+(difference_type n, global_ptr p) noexcept { return p += n; }
  friend constexpr global_ptr operator-(global_ptr p, difference_type n) noexcept { return p -= n; }
  friend constexpr difference_type operator-(global_ptr a, global_ptr b) noexcept { return a.p_ - b.p_; }
  friend constexpr auto operator<=>(global_ptr, global_ptr) noexcept = default;
  friend constexpr bool operator==(global_ptr, global_ptr) noexcept = default;
  friend constexpr bool operator==(global_ptr p, std::nullptr_t) noexcept { return p.p_ == nullptr; }

 private:
  Type* p_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<global_ptr<int>> && sizeof(global_ptr<int>) == sizeof(int*));

// ---- what is pending --------------------------------------------------------------------------------------

/// One asynchronous operation. Its destructor waits, and ends the program if that fails; wait() throws
/// instead.
class [[nodiscard]] pending {
 public:
  pending() noexcept = default;
  explicit pending(kasane_pending_t handle) noexcept : handle_(handle) {}
  pending(pending&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  pending& operator=(pending&& other) {
    wait();
    handle_ = std::exchange(other.handle_, {});
    return *this;
  }
  ~pending() noexcept { wait(); }

  /// Waits until the operation is complete: what was read is in its buffer, what was put at its owner.
  void wait() {
    if (handle_.id != 0) detail::check(kasane_wait(&handle_));
  }
  /// True: the operation is complete, with the effects of wait().
  [[nodiscard]] bool ready() {
    int done = 1;
    if (handle_.id != 0) detail::check(kasane_test(&handle_, &done));
    return done != 0;
  }

 private:
  kasane_pending_t handle_{};
};

/// Counts any number of asynchronous operations, which one wait() completes. Its destructor waits, and ends
/// the program if that fails.
class pending_group {
 public:
  pending_group() = default;
  pending_group(const pending_group&) = delete;
  pending_group& operator=(const pending_group&) = delete;
  ~pending_group() noexcept { wait(); }

  /// Waits until all are complete.
  void wait() {
    if (changes_.id != 0) detail::check(kasane_wait(&changes_));
    while (!reads_.empty()) {
      kasane_pending_t one = reads_.back();
      reads_.pop_back();
      detail::check(kasane_wait(&one));
    }
  }

  /// For the functions below: where puts, accumulates and copies are counted.
  [[nodiscard]] kasane_pending_t* changes() noexcept { return &changes_; }
  /// For gets and atomics with an old value, each of which is waited for by itself.
  void add_read(kasane_pending_t one) {
    if (one.id != 0) reads_.push_back(one);
  }

 private:
  kasane_pending_t changes_{};
  std::vector<kasane_pending_t> reads_;
};

/// While it lives, waits of the calling thread for direct accesses keep its worker, which runs no other
/// thread meanwhile: for a few accesses between which a word in global memory makes others wait. In its scope
/// there is no fork, join, yield, lock or other wait: that ends the program with a message.
class [[nodiscard]] polling_scope {
 public:
  polling_scope() noexcept { kasane_polling_begin(); }
  polling_scope(const polling_scope&) = delete;
  polling_scope& operator=(const polling_scope&) = delete;
  ~polling_scope() { kasane_polling_end(); }
};

/// Waits until everything that any thread of this rank issued so far has completed at its owner. A get still
/// needs its wait().
inline void flush() { detail::check(kasane_flush()); }

// ---- get and put ------------------------------------------------------------------------------------------

namespace detail {
template <class Type>
concept plain = std::is_trivially_copyable_v<Type>;

template <class Type>
[[nodiscard]] inline void* address(global_ptr<Type> p) noexcept {
  return const_cast<std::remove_cv_t<Type>*>(p.get());
}
}  // namespace detail

/// Reads n objects at `from` into any memory.
template <detail::plain Type>
void get(Type* to, global_ptr<const std::type_identity_t<Type>> from, std::size_t n = 1) {
  detail::check(kasane_get(to, from.get(), n * sizeof(Type)));
}
/// Writes n objects from any memory to `to`; complete on return.
template <detail::plain Type>
void put(global_ptr<Type> to, const std::type_identity_t<Type>* from, std::size_t n = 1) {
  detail::check(kasane_put(to.get(), from, n * sizeof(Type)));
}
/// The value at `from`.
template <detail::plain Type>
[[nodiscard]] std::remove_const_t<Type> get(global_ptr<Type> from) {
  std::remove_const_t<Type> value;
  detail::check(kasane_get(&value, from.get(), sizeof value));
  return value;
}
template <detail::plain Type>
void put(global_ptr<Type> to, const std::type_identity_t<Type>& value) {
  detail::check(kasane_put(to.get(), &value, sizeof(Type)));
}

/// As get and put of n objects; they return at once, and the memory here is left alone until the operation is
/// complete.
template <detail::plain Type>
pending get_async(Type* to, global_ptr<const std::type_identity_t<Type>> from, std::size_t n = 1) {
  kasane_pending_t p{};
  detail::check(kasane_get_async(to, from.get(), n * sizeof(Type), &p));
  return pending(p);
}
template <detail::plain Type>
void get_async(Type* to, global_ptr<const std::type_identity_t<Type>> from, std::size_t n,
               pending_group& group) {
  kasane_pending_t p{};
  detail::check(kasane_get_async(to, from.get(), n * sizeof(Type), &p));
  group.add_read(p);
}
template <detail::plain Type>
pending put_async(global_ptr<Type> to, const std::type_identity_t<Type>* from, std::size_t n = 1) {
  kasane_pending_t p{};
  detail::check(kasane_put_async(to.get(), from, n * sizeof(Type), &p));
  return pending(p);
}
template <detail::plain Type>
void put_async(global_ptr<Type> to, const std::type_identity_t<Type>* from, std::size_t n,
               pending_group& group) {
  detail::check(kasane_put_async(to.get(), from, n * sizeof(Type), group.changes()));
}

// ---- patches and pieces -----------------------------------------------------------------------------------

/// A patch of objects: `count` of them in a row, `rows` times, at distances of objects on either side. For
/// more dimensions see kasane_strides_t.
struct patch {
  std::size_t count, rows, global_stride, local_stride;
};

namespace detail {
[[nodiscard]] inline kasane_strides_t strides(const patch& p, std::size_t size) noexcept {
  return {2, {p.count * size, p.rows}, {p.global_stride * size}, {p.local_stride * size}};
}
}  // namespace detail

/// As get and put, of a patch: the others return at once.
template <detail::plain Type>
void get_strided(Type* to, global_ptr<const std::type_identity_t<Type>> from, const patch& shape) {
  const kasane_strides_t s = detail::strides(shape, sizeof(Type));
  detail::check(kasane_get_strided(to, from.get(), &s, nullptr));
}
template <detail::plain Type>
void put_strided(global_ptr<Type> to, const std::type_identity_t<Type>* from, const patch& shape) {
  const kasane_strides_t s = detail::strides(shape, sizeof(Type));
  detail::check(kasane_put_strided(to.get(), from, &s, nullptr));
}
template <detail::plain Type>
pending get_strided_async(Type* to, global_ptr<const std::type_identity_t<Type>> from, const patch& shape) {
  const kasane_strides_t s = detail::strides(shape, sizeof(Type));
  kasane_pending_t p{};
  detail::check(kasane_get_strided(to, from.get(), &s, &p));
  return pending(p);
}
template <detail::plain Type>
pending put_strided_async(global_ptr<Type> to, const std::type_identity_t<Type>* from, const patch& shape) {
  const kasane_strides_t s = detail::strides(shape, sizeof(Type));
  kasane_pending_t p{};
  detail::check(kasane_put_strided(to.get(), from, &s, &p));
  return pending(p);
}

/// Pieces anywhere, read or written together.
using piece = kasane_piece_t;
inline void get_vector(std::span<const piece> pieces) {
  detail::check(kasane_get_vector(pieces.data(), pieces.size(), nullptr));
}
inline void put_vector(std::span<const piece> pieces) {
  detail::check(kasane_put_vector(pieces.data(), pieces.size(), nullptr));
}
inline pending get_vector_async(std::span<const piece> pieces) {
  kasane_pending_t p{};
  detail::check(kasane_get_vector(pieces.data(), pieces.size(), &p));
  return pending(p);
}
inline pending put_vector_async(std::span<const piece> pieces) {
  kasane_pending_t p{};
  detail::check(kasane_put_vector(pieces.data(), pieces.size(), &p));
  return pending(p);
}

// ---- accumulate and copy ----------------------------------------------------------------------------------

namespace detail {
template <class Type>
struct element;
template <>
struct element<std::int32_t> : std::integral_constant<kasane_element_t, KASANE_INT32> {};
template <>
struct element<std::int64_t> : std::integral_constant<kasane_element_t, KASANE_INT64> {};
template <>
struct element<float> : std::integral_constant<kasane_element_t, KASANE_FLOAT> {};
template <>
struct element<double> : std::integral_constant<kasane_element_t, KASANE_DOUBLE> {};
template <>
struct element<std::complex<float>> : std::integral_constant<kasane_element_t, KASANE_COMPLEX_FLOAT> {};
template <>
struct element<std::complex<double>> : std::integral_constant<kasane_element_t, KASANE_COMPLEX_DOUBLE> {};

/// By what elements of Type are multiplied: integers by integers, real numbers by real ones.
template <class Type>
struct scale {
  using type = std::complex<double>;
};
template <std::integral Type>
struct scale<Type> {
  using type = Type;
};
template <std::floating_point Type>
struct scale<Type> {
  using type = double;
};
template <class Type>
using scale_t = typename scale<Type>::type;

template <class Type>
void accumulate(global_ptr<Type> to, const Type* from, std::size_t n, scale_t<Type> by, kasane_pending_t* p) {
  if constexpr (std::same_as<Type, std::int64_t>) {
    constexpr Type exact = Type{1} << 53;  // beyond it there are integers that are no doubles
    if (by < -exact || by > exact) {
      std::vector<Type> products(from, from + n);
      for (Type& x : products)
        x = static_cast<Type>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(by));
      return check(kasane_accumulate(to.get(), products.data(), n, KASANE_INT64, nullptr, p));
    }
  }
  double parts[2] = {};
  if constexpr (std::is_arithmetic_v<Type>)
    parts[0] = static_cast<double>(by);
  else
    parts[0] = by.real(), parts[1] = by.imag();
  check(kasane_accumulate(to.get(), from, n, element<Type>::value, parts, p));
}
}  // namespace detail

/// to[i] += scale · from[i], each element atomic with respect to other accumulates of Type (not to atomics).
/// Type: int32_t, int64_t, float, double and their complex numbers.
template <class Type>
void accumulate(global_ptr<Type> to, const std::type_identity_t<Type>* from, std::size_t n = 1,
                detail::scale_t<Type> scale = 1) {
  detail::accumulate(to, from, n, scale, nullptr);
}
template <class Type>
pending accumulate_async(global_ptr<Type> to, const std::type_identity_t<Type>* from, std::size_t n = 1,
                         detail::scale_t<Type> scale = 1) {
  kasane_pending_t p{};
  detail::accumulate(to, from, n, scale, &p);
  return pending(p);
}
template <class Type>
void accumulate_async(global_ptr<Type> to, const std::type_identity_t<Type>* from, std::size_t n,
                      detail::scale_t<Type> scale, pending_group& group) {
  detail::accumulate(to, from, n, scale, group.changes());
}

/// Copies n objects from one place of global memory to another that does not overlap it, between any two
/// ranks; they do not stay at this rank.
template <detail::plain Type>
void copy(global_ptr<Type> to, global_ptr<const std::type_identity_t<Type>> from, std::size_t n = 1) {
  detail::check(kasane_copy(to.get(), from.get(), n * sizeof(Type), nullptr));
}
template <detail::plain Type>
pending copy_async(global_ptr<Type> to, global_ptr<const std::type_identity_t<Type>> from,
                   std::size_t n = 1) {
  kasane_pending_t p{};
  detail::check(kasane_copy(to.get(), from.get(), n * sizeof(Type), &p));
  return pending(p);
}

// ---- atomics ----------------------------------------------------------------------------------------------

namespace detail {
template <class Type>
concept word = std::integral<Type> && (sizeof(Type) == 4 || sizeof(Type) == 8);

template <word Type>
[[nodiscard]] constexpr std::uint64_t bits(Type value) noexcept {
  return static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<Type>>(value));
}
template <word Type>
Type rmw(kasane_atomic_op_t op, global_ptr<Type> at, Type operand, Type compare = 0) {
  std::uint64_t old = 0;
  check(kasane_atomic(op, sizeof(Type), at.get(), bits(operand), bits(compare), &old, nullptr));
  return static_cast<Type>(old);
}
template <word Type>
void change(kasane_atomic_op_t op, global_ptr<Type> at, Type operand, kasane_pending_t* p) {
  check(kasane_atomic(op, sizeof(Type), at.get(), bits(operand), 0, nullptr, p));
}
}  // namespace detail

// One read-modify-write of an integer of 4 or 8 bytes, executed at its owner: atomic among all ranks. Each
// returns the value before. None orders any other access: where other data depend on the word, release_all()
// comes before, and acquire_all() after it.
template <detail::word Type>
Type fetch_add(global_ptr<Type> at, std::type_identity_t<Type> operand) {
  return detail::rmw<Type>(KASANE_FETCH_ADD, at, operand);
}
template <detail::word Type>
Type fetch_and(global_ptr<Type> at, std::type_identity_t<Type> operand) {
  return detail::rmw<Type>(KASANE_FETCH_AND, at, operand);
}
template <detail::word Type>
Type fetch_or(global_ptr<Type> at, std::type_identity_t<Type> operand) {
  return detail::rmw<Type>(KASANE_FETCH_OR, at, operand);
}
template <detail::word Type>
Type fetch_xor(global_ptr<Type> at, std::type_identity_t<Type> operand) {
  return detail::rmw<Type>(KASANE_FETCH_XOR, at, operand);
}
template <detail::word Type>
Type swap(global_ptr<Type> at, std::type_identity_t<Type> desired) {
  return detail::rmw<Type>(KASANE_SWAP, at, desired);
}
/// Stores desired if the value is expected; returns the value before.
template <detail::word Type>
Type compare_swap(global_ptr<Type> at, std::type_identity_t<Type> expected,
                  std::type_identity_t<Type> desired) {
  return detail::rmw<Type>(KASANE_COMPARE_SWAP, at, desired, expected);
}
/// Without the old value, which is cheaper.
template <detail::word Type>
void add(global_ptr<Type> at, std::type_identity_t<Type> operand) {
  detail::change<Type>(KASANE_FETCH_ADD, at, operand, nullptr);
}
template <detail::word Type>
void add_async(global_ptr<Type> at, std::type_identity_t<Type> operand, pending_group& group) {
  detail::change<Type>(KASANE_FETCH_ADD, at, operand, group.changes());
}

namespace detail {
template <word Type>
kasane_pending_t rmw_async(kasane_atomic_op_t op, global_ptr<Type> at, Type operand, Type compare,
                           Type* old) {
  kasane_pending_t p{};
  check(kasane_atomic_async(op, sizeof(Type), at.get(), bits(operand), bits(compare), old, &p));
  return p;
}
}  // namespace detail

// All of them asynchronously. *old: the value before, after the wait; any memory.
template <detail::word Type>
pending fetch_add_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old) {
  return pending(detail::rmw_async<Type>(KASANE_FETCH_ADD, at, operand, 0, old));
}
template <detail::word Type>
void fetch_add_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old,
                     pending_group& group) {
  group.add_read(detail::rmw_async<Type>(KASANE_FETCH_ADD, at, operand, 0, old));
}
template <detail::word Type>
pending fetch_and_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old) {
  return pending(detail::rmw_async<Type>(KASANE_FETCH_AND, at, operand, 0, old));
}
template <detail::word Type>
void fetch_and_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old,
                     pending_group& group) {
  group.add_read(detail::rmw_async<Type>(KASANE_FETCH_AND, at, operand, 0, old));
}
template <detail::word Type>
pending fetch_or_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old) {
  return pending(detail::rmw_async<Type>(KASANE_FETCH_OR, at, operand, 0, old));
}
template <detail::word Type>
void fetch_or_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old,
                    pending_group& group) {
  group.add_read(detail::rmw_async<Type>(KASANE_FETCH_OR, at, operand, 0, old));
}
template <detail::word Type>
pending fetch_xor_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old) {
  return pending(detail::rmw_async<Type>(KASANE_FETCH_XOR, at, operand, 0, old));
}
template <detail::word Type>
void fetch_xor_async(global_ptr<Type> at, std::type_identity_t<Type> operand, Type* old,
                     pending_group& group) {
  group.add_read(detail::rmw_async<Type>(KASANE_FETCH_XOR, at, operand, 0, old));
}
template <detail::word Type>
pending swap_async(global_ptr<Type> at, std::type_identity_t<Type> desired, Type* old) {
  return pending(detail::rmw_async<Type>(KASANE_SWAP, at, desired, 0, old));
}
template <detail::word Type>
void swap_async(global_ptr<Type> at, std::type_identity_t<Type> desired, Type* old, pending_group& group) {
  group.add_read(detail::rmw_async<Type>(KASANE_SWAP, at, desired, 0, old));
}
template <detail::word Type>
pending compare_swap_async(global_ptr<Type> at, std::type_identity_t<Type> expected,
                           std::type_identity_t<Type> desired, Type* old) {
  return pending(detail::rmw_async<Type>(KASANE_COMPARE_SWAP, at, desired, expected, old));
}
template <detail::word Type>
void compare_swap_async(global_ptr<Type> at, std::type_identity_t<Type> expected,
                        std::type_identity_t<Type> desired, Type* old, pending_group& group) {
  group.add_read(detail::rmw_async<Type>(KASANE_COMPARE_SWAP, at, desired, expected, old));
}

namespace detail {
/// What a word can hold for atomics.
template <class Type>
concept atomic_value = std::is_trivially_copyable_v<Type> && std::is_object_v<Type> &&
                       !std::is_const_v<Type> && !std::is_volatile_v<Type> && sizeof(Type) <= 8;
/// The word: the bytes of the value, zeros for its padding, and zeros up to 4 or 8, the units of an owner's
/// atomics.
template <atomic_value Type>
using word_of = std::conditional_t<(sizeof(Type) <= 4), std::uint32_t, std::uint64_t>;

template <atomic_value Type>
[[nodiscard]] word_of<Type> to_word(const Type& value) noexcept {
  word_of<Type> word = 0;
  Type copy(value);
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(std::addressof(copy));
#endif
  std::memcpy(&word, std::addressof(copy), sizeof copy);
  return word;
}
template <atomic_value Type>
[[nodiscard]] Type from_word(word_of<Type> word) noexcept {
  std::array<std::byte, sizeof(Type)> bytes;
  std::memcpy(bytes.data(), &word, sizeof bytes);
  return std::bit_cast<Type>(bytes);
}

/// Which of the operators of atomics Type has.
template <class Type>
concept atomic_bits = std::integral<Type> && !std::same_as<Type, bool>;
template <class Type>
concept atomic_steps =
    atomic_bits<Type> || (std::is_pointer_v<Type> && std::is_object_v<std::remove_pointer_t<Type>>);
template <class Type>
concept atomic_sums = atomic_steps<Type> || std::floating_point<Type>;
/// The type of what is added to Type: as in C++, elements to a pointer.
template <class Type>
using atomic_difference = std::conditional_t<std::is_pointer_v<Type>, std::ptrdiff_t, Type>;

/// Fences beside one operation.
inline void fence_before(std::memory_order order) {
  if (order == std::memory_order_release || order == std::memory_order_acq_rel ||
      order == std::memory_order_seq_cst)
    kasane_release_all();
}
inline void fence_after(std::memory_order order) {
  if (order != std::memory_order_relaxed && order != std::memory_order_release) kasane_acquire_all();
}
/// The order of a comparison that fails: a load.
[[nodiscard]] constexpr std::memory_order of_failure(std::memory_order order) noexcept {
  return order == std::memory_order_acq_rel   ? std::memory_order_acquire
         : order == std::memory_order_release ? std::memory_order_relaxed
                                              : order;
}

/// The operations of atomics on the word of a Type, for atomic and atomic_ref.
template <atomic_value Type>
class AtomicWord {
  using Word = word_of<Type>;
  using Order = std::memory_order;

 public:
  explicit AtomicWord(Word* p) noexcept : p_(p) {}

  [[nodiscard]] Type load(Order order) const { return rmw(KASANE_FETCH_ADD, 0, order); }
  Type exchange(Type desired, Order order) const { return rmw(KASANE_SWAP, to_word(desired), order); }
  bool compare_exchange(Type& expected, Type desired, Order success, Order failure) const {
    Word wanted = to_word(expected);
    fence_before(failure == std::memory_order_seq_cst ? failure : success);
    Word seen = compare_swap(p_, wanted, to_word(desired));
    while (seen != wanted && to_word(from_word<Type>(seen)) == to_word(expected)) {  // but for padding
      wanted = seen;
      seen = compare_swap(p_, wanted, to_word(desired));
    }
    fence_after(seen == wanted ? success : failure);
    if (seen == wanted) return true;
    expected = from_word<Type>(seen);
    return false;
  }
  Type fetch_add(atomic_difference<Type> n, Order order) const {
    if constexpr (std::is_pointer_v<Type>)
      return rmw(KASANE_FETCH_ADD, static_cast<Word>(n) * sizeof(std::remove_pointer_t<Type>), order);
    else if constexpr (word<Type>)
      return rmw(KASANE_FETCH_ADD, to_word(n), order);
    else
      return update([n](Type x) { return static_cast<Type>(x + n); }, order);
  }
  Type fetch_sub(atomic_difference<Type> n, Order order) const {
    if constexpr (std::is_pointer_v<Type>)
      return rmw(KASANE_FETCH_ADD, Word{0} - static_cast<Word>(n) * sizeof(std::remove_pointer_t<Type>),
                 order);
    else if constexpr (word<Type>)
      return rmw(KASANE_FETCH_ADD, Word{0} - to_word(n), order);
    else
      return update([n](Type x) { return static_cast<Type>(x - n); }, order);
  }
  Type fetch_and(Type n, Order order) const { return rmw(KASANE_FETCH_AND, to_word(n), order); }
  Type fetch_or(Type n, Order order) const { return rmw(KASANE_FETCH_OR, to_word(n), order); }
  Type fetch_xor(Type n, Order order) const { return rmw(KASANE_FETCH_XOR, to_word(n), order); }

  void wait(Type old, Order order) const {
    fence_before(order);
    check(kasane_atomic_wait(sizeof(Word), p_.get(), bits(to_word(old))));
    fence_after(order);
  }
  void notify_one() const { check(kasane_atomic_notify_one(p_.get())); }
  void notify_all() const { check(kasane_atomic_notify_all(p_.get())); }

 private:
  Type rmw(kasane_atomic_op_t op, Word operand, Order order) const {
    fence_before(order);
    const Word old = detail::rmw<Word>(op, p_, operand);
    fence_after(order);
    return from_word<Type>(old);
  }
  /// Computes here what an owner cannot, and again where the word has changed meanwhile.
  template <class Callable>
  Type update(Callable f, Order order) const {
    fence_before(order);
    Word seen = detail::rmw<Word>(KASANE_FETCH_ADD, p_, 0);
    for (;;) {
      const Word old = compare_swap(p_, seen, to_word(f(from_word<Type>(seen))));
      if (old == seen) break;
      seen = old;
    }
    fence_after(order);
    return from_word<Type>(seen);
  }
  global_ptr<Word> p_;
};
}  // namespace detail

/// std::atomic_ref over ranks: a trivially copyable value of 4 or 8 bytes (an integer, a floating-point
/// number, a pointer, an enumeration, a small struct) in global memory, given as a global_ptr or an lvalue
/// there, at a multiple of its size (error EINVAL). While an atomic_ref to a value exists, all accesses of it
/// go through atomic_refs. Each operation is one read-modify-write at the owner, in one order that all ranks
/// agree on. Sums of floating-point numbers are computed here, and again where another change came between.
/// Comparisons are of bytes, as in C++: -0.0 is not 0.0, but padding does not count (with clang it does). By
/// default an operation orders nothing else, since acquire and release are fences of the whole rank here:
/// std::memory_order_release (acq_rel, seq_cst) calls release_all() before it, acquire (acq_rel, seq_cst)
/// acquire_all() after it; relaxed, the default, also of the operators, neither.
/// Thread safety: any thread of any rank. Errors: EINVAL: not in global memory, or not aligned. EIO: a peer
/// was lost.
template <detail::atomic_value Type>
  requires(sizeof(Type) == 4 || sizeof(Type) == 8)
class atomic_ref {
  static constexpr std::memory_order kDefault = std::memory_order_relaxed;

 public:
  using value_type = Type;
  using difference_type = detail::atomic_difference<Type>;
  static constexpr std::size_t required_alignment = sizeof(Type);
  explicit atomic_ref(Type& value) noexcept : p_(&value) {}
  explicit atomic_ref(global_ptr<Type> p) noexcept : p_(p.get()) {}
  atomic_ref(const atomic_ref&) noexcept = default;
  atomic_ref& operator=(const atomic_ref&) = delete;

  [[nodiscard]] Type load(std::memory_order order = kDefault) const { return word().load(order); }
  operator Type() const { return load(); }
  void store(Type desired, std::memory_order order = kDefault) const { word().exchange(desired, order); }
  Type operator=(Type desired) const { return store(desired), desired; }
  Type exchange(Type desired, std::memory_order order = kDefault) const {
    return word().exchange(desired, order);
  }
  /// False: expected becomes the value, read in the order of failure (by default success without its
  /// release). Neither form fails spuriously.
  bool compare_exchange_strong(Type& expected, Type desired, std::memory_order success,
                               std::memory_order failure) const {
    return word().compare_exchange(expected, desired, success, failure);
  }
  bool compare_exchange_strong(Type& expected, Type desired, std::memory_order order = kDefault) const {
    return word().compare_exchange(expected, desired, order, detail::of_failure(order));
  }
  bool compare_exchange_weak(Type& expected, Type desired, std::memory_order success,
                             std::memory_order failure) const {
    return word().compare_exchange(expected, desired, success, failure);
  }
  bool compare_exchange_weak(Type& expected, Type desired, std::memory_order order = kDefault) const {
    return word().compare_exchange(expected, desired, order, detail::of_failure(order));
  }
  /// Of pointers: n elements.
  Type fetch_add(difference_type n, std::memory_order order = kDefault) const
    requires detail::atomic_sums<Type>
  {
    return word().fetch_add(n, order);
  }
  Type fetch_sub(difference_type n, std::memory_order order = kDefault) const
    requires detail::atomic_sums<Type>
  {
    return word().fetch_sub(n, order);
  }
  Type fetch_and(Type n, std::memory_order order = kDefault) const
    requires detail::atomic_bits<Type>
  {
    return word().fetch_and(n, order);
  }
  Type fetch_or(Type n, std::memory_order order = kDefault) const
    requires detail::atomic_bits<Type>
  {
    return word().fetch_or(n, order);
  }
  Type fetch_xor(Type n, std::memory_order order = kDefault) const
    requires detail::atomic_bits<Type>
  {
    return word().fetch_xor(n, order);
  }
  Type operator+=(difference_type n) const
    requires detail::atomic_sums<Type>
  {
    return static_cast<Type>(fetch_add(n) + n);
  }
  Type operator-=(difference_type n) const
    requires detail::atomic_sums<Type>
  {
    return static_cast<Type>(fetch_sub(n) - n);
  }
  Type operator&=(Type n) const
    requires detail::atomic_bits<Type>
  {
    return static_cast<Type>(fetch_and(n) & n);
  }
  Type operator|=(Type n) const
    requires detail::atomic_bits<Type>
  {
    return static_cast<Type>(fetch_or(n) | n);
  }
  Type operator^=(Type n) const
    requires detail::atomic_bits<Type>
  {
    return static_cast<Type>(fetch_xor(n) ^ n);
  }
  Type operator++() const
    requires detail::atomic_steps<Type>
  {
    return static_cast<Type>(fetch_add(1) + 1);
  }
  Type operator--() const
    requires detail::atomic_steps<Type>
  {
    return static_cast<Type>(fetch_sub(1) - 1);
  }
  Type operator++(int) const
    requires detail::atomic_steps<Type>
  {
    return fetch_add(1);
  }
  Type operator--(int) const
    requires detail::atomic_steps<Type>
  {
    return fetch_sub(1);
  }

  /// Returns when the value is not `old`: the thread is suspended, not its worker, until a thread that
  /// changed it notifies. On a thread (error EPERM elsewhere); it may be on another rank afterwards.
  void wait(Type old, std::memory_order order = kDefault) const { word().wait(old, order); }
  /// After a change: the thread that has waited longest for this value (all that wait) compares again. One
  /// load where no thread waits. On a thread.
  void notify_one() const { word().notify_one(); }
  void notify_all() const { word().notify_all(); }

 private:
  // an address only
  [[nodiscard]] detail::AtomicWord<Type> word() const noexcept {
    return detail::AtomicWord<Type>(reinterpret_cast<detail::word_of<Type>*>(p_));
  }
  Type* p_;
};
template <class Type>
atomic_ref(global_ptr<Type>) -> atomic_ref<Type>;

}  // namespace kasane
