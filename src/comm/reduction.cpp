// SPDX-License-Identifier: Apache-2.0
// The kernels: one loop for each (type, operation) and each way in which out may equal an operand, so that
// the compiler knows which pointers differ and uses vector instructions. Sums of integers wrap around.
#include "comm/reduction.h"

#include <algorithm>

#include "base/assert.h"

namespace kasane::comm {
namespace {

template <class T>
inline constexpr bool kComplex = !std::is_arithmetic_v<T>;

/// The unsigned type of integers, so that overflow is defined; any other type itself.
template <class T, bool = std::is_integral_v<T>>
struct Wrapping {
  using type = T;
};
template <class T>
struct Wrapping<T, true> {
  using type = std::make_unsigned_t<T>;
};

template <class T, Reduce op>
inline T apply(const T& a, const T& b) {
  using W = typename Wrapping<T>::type;
  if constexpr (op == Reduce::sum)
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  else if constexpr (op == Reduce::prod && kComplex<T>)
    // By parts: the library's operator* checks every element for infinities.
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  else if constexpr (op == Reduce::prod)
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  else if constexpr (op == Reduce::min)
    return b < a ? b : a;
  else if constexpr (op == Reduce::max)
    return a < b ? b : a;
  else if constexpr (op == Reduce::bit_and)
    return a & b;
  else if constexpr (op == Reduce::bit_or)
    return a | b;
  else if constexpr (op == Reduce::bit_xor)
    return a ^ b;
  else if constexpr (op == Reduce::logical_and)
    return static_cast<T>(a != T{} && b != T{});
  else if constexpr (op == Reduce::logical_or)
    return static_cast<T>(a != T{} || b != T{});
  else
    return static_cast<T>((a != T{}) != (b != T{}));
}

template <class T, Reduce op>
void kernel(const void*, std::byte* out_bytes, const std::byte* left_bytes, const std::byte* right_bytes,
            std::size_t count) {
  auto* __restrict out = reinterpret_cast<T*>(out_bytes);
  if (out_bytes == left_bytes) {
    const auto* __restrict right = reinterpret_cast<const T*>(right_bytes);
    for (std::size_t i = 0; i < count; ++i) out[i] = apply<T, op>(out[i], right[i]);
  } else if (out_bytes == right_bytes) {
    const auto* __restrict left = reinterpret_cast<const T*>(left_bytes);
    for (std::size_t i = 0; i < count; ++i) out[i] = apply<T, op>(left[i], out[i]);
  } else {
    const auto* left = reinterpret_cast<const T*>(left_bytes);
    const auto* right = reinterpret_cast<const T*>(right_bytes);
    for (std::size_t i = 0; i < count; ++i) out[i] = apply<T, op>(left[i], right[i]);
  }
}

template <class T>
CombineFn kernel_of(Reduce op) {
  if (op == Reduce::sum) return kernel<T, Reduce::sum>;
  if (op == Reduce::prod) return kernel<T, Reduce::prod>;
  if constexpr (!kComplex<T>) {
    if (op == Reduce::min) return kernel<T, Reduce::min>;
    if (op == Reduce::max) return kernel<T, Reduce::max>;
    if (op == Reduce::logical_and) return kernel<T, Reduce::logical_and>;
    if (op == Reduce::logical_or) return kernel<T, Reduce::logical_or>;
    if (op == Reduce::logical_xor) return kernel<T, Reduce::logical_xor>;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == Reduce::bit_and) return kernel<T, Reduce::bit_and>;
    if (op == Reduce::bit_or) return kernel<T, Reduce::bit_or>;
    if (op == Reduce::bit_xor) return kernel<T, Reduce::bit_xor>;
  }
  return nullptr;
}

CombineFn kernel_of(Scalar scalar, Reduce op) {
  switch (scalar) {
    case Scalar::int32: return kernel_of<std::int32_t>(op);
    case Scalar::int64: return kernel_of<std::int64_t>(op);
    case Scalar::uint32: return kernel_of<std::uint32_t>(op);
    case Scalar::uint64: return kernel_of<std::uint64_t>(op);
    case Scalar::float32: return kernel_of<float>(op);
    case Scalar::float64: return kernel_of<double>(op);
    case Scalar::complex64: return kernel_of<std::complex<float>>(op);
    case Scalar::complex128: return kernel_of<std::complex<double>>(op);
    case Scalar::bytes: break;
  }
  return nullptr;
}

}  // namespace

Reduction reduction(Scalar scalar, Reduce op) {
  const CombineFn fn = kernel_of(scalar, op);
  KASANE_CHECK(fn != nullptr, "this element type has no such operation");
  return {.fn = fn, .element_bytes = scalar_bytes(scalar), .scalar = scalar, .op = op};
}

Reduction user_reduction(std::size_t element_bytes, CombineFn fn, const void* context, bool commutative) {
  KASANE_CHECK(fn != nullptr && element_bytes != 0, "a user's reduction needs a function and a size");
  return {.fn = fn, .context = context, .element_bytes = element_bytes, .commutative = commutative};
}

}  // namespace kasane::comm
