// SPDX-License-Identifier: Apache-2.0
// The kernels: one loop for each (type, operation) and each way in which out may equal an operand, so that
// the compiler knows which pointers differ and uses vector instructions. Sums of integers wrap around.
#include "comm/collectives/reduction.h"

namespace kasane::comm {
namespace {

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
  else if constexpr (op == Reduce::min)
    return b < a ? b : a;
  else
    return a < b ? b : a;
}

template <class T, Reduce op>
void kernel(std::byte* out_bytes, const std::byte* left_bytes, const std::byte* right_bytes,
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
  switch (op) {
    case Reduce::sum: return kernel<T, Reduce::sum>;
    case Reduce::min: return kernel<T, Reduce::min>;
    case Reduce::max: break;
  }
  return kernel<T, Reduce::max>;
}

CombineFn kernel_of(Scalar scalar, Reduce op) {
  switch (scalar) {
    case Scalar::int32: return kernel_of<std::int32_t>(op);
    case Scalar::int64: return kernel_of<std::int64_t>(op);
    case Scalar::uint32: return kernel_of<std::uint32_t>(op);
    case Scalar::uint64: return kernel_of<std::uint64_t>(op);
    case Scalar::float32: return kernel_of<float>(op);
    case Scalar::float64: break;
  }
  return kernel_of<double>(op);
}

}  // namespace

Reduction reduction(Scalar scalar, Reduce op) {
  const bool is_long = scalar == Scalar::int64 || scalar == Scalar::uint64 || scalar == Scalar::float64;
  return {.fn = kernel_of(scalar, op),
          .element_bytes = is_long ? 8u : 4u,
          .name = static_cast<std::uint8_t>(static_cast<unsigned>(scalar) << 4 | static_cast<unsigned>(op))};
}

}  // namespace kasane::comm
