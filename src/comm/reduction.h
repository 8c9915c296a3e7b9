// SPDX-License-Identifier: Apache-2.0
// How collectives combine elements: an operation on an element type, or a function of the caller, behind one
// signature, so that schedules need not distinguish them. The order of operands is kept (left has the lower
// rank), so that a function need not commute.
//
// Thread safety: values only; combine functions are pure.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kasane::comm {

enum class Scalar : std::uint8_t {
  int32,
  int64,
  uint32,
  uint64,
  float32,
  float64,
  complex64,
  complex128,
  bytes
};
enum class Reduce : std::uint8_t {
  sum,
  prod,
  min,
  max,
  bit_and,
  bit_or,
  bit_xor,
  logical_and,
  logical_or,
  logical_xor,
  user
};

[[nodiscard]] constexpr std::size_t scalar_bytes(Scalar s) noexcept {
  switch (s) {
    case Scalar::int32:
    case Scalar::uint32:
    case Scalar::float32: return 4;
    case Scalar::complex128: return 16;
    case Scalar::bytes: return 1;
    default: return 8;
  }
}

/// out[i] = left[i] · right[i] for count elements. out is left, or right, or overlaps neither.
using CombineFn = void (*)(const void* context, std::byte* out, const std::byte* left, const std::byte* right,
                           std::size_t count);

struct Reduction {
  CombineFn fn = nullptr;
  const void* context = nullptr;
  std::size_t element_bytes = 0;
  /// false: ranks are combined in rank order, which costs a message where the root is not rank 0
  bool commutative = true;
  Scalar scalar = Scalar::bytes;
  Reduce op = Reduce::user;

  void operator()(std::byte* out, const std::byte* left, const std::byte* right, std::size_t bytes) const {
    if (bytes != 0) fn(context, out, left, right, bytes / element_bytes);
  }
};

/// Checks that the type has the operation: bit operations are for integers; complex numbers can only be added
/// and multiplied.
[[nodiscard]] Reduction reduction(Scalar, Reduce);
/// fn must be associative. Elements of any size; fn and context stay valid until the collective has
/// completed, and fn must not wait.
[[nodiscard]] Reduction user_reduction(std::size_t element_bytes, CombineFn fn, const void* context,
                                       bool commutative);

template <class T>
[[nodiscard]] constexpr Scalar scalar_of() noexcept {
  if constexpr (std::is_same_v<T, std::complex<float>>)
    return Scalar::complex64;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return Scalar::complex128;
  else if constexpr (std::is_same_v<T, float>)
    return Scalar::float32;
  else if constexpr (std::is_same_v<T, double>)
    return Scalar::float64;
  else {
    static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "no element type of the collectives");
    if constexpr (std::is_signed_v<T>)
      return sizeof(T) == 4 ? Scalar::int32 : Scalar::int64;
    else
      return sizeof(T) == 4 ? Scalar::uint32 : Scalar::uint64;
  }
}

}  // namespace kasane::comm
