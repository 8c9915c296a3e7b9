// SPDX-License-Identifier: Apache-2.0
// How an allreduce combines elements: an operation on an element type, behind one signature, so that
// schedules need not distinguish them.
//
// Thread safety: values only; combine functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kasane::comm {

enum class Scalar : std::uint8_t { int32, int64, uint32, uint64, float32, float64 };
enum class Reduce : std::uint8_t { sum, min, max };

/// out[i] = left[i] · right[i] for count elements. out is left, or right, or overlaps neither.
using CombineFn = void (*)(std::byte* out, const std::byte* left, const std::byte* right, std::size_t count);

struct Reduction {
  CombineFn fn = nullptr;
  std::size_t element_bytes = 1;
  std::uint8_t name = 0;  ///< equal on all ranks, else the program is wrong

  void operator()(std::byte* out, const std::byte* left, const std::byte* right, std::size_t bytes) const {
    if (bytes != 0) fn(out, left, right, bytes / element_bytes);
  }
};

[[nodiscard]] Reduction reduction(Scalar, Reduce);

template <class T>
[[nodiscard]] constexpr Scalar scalar_of() noexcept {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "no element type of the collectives");
  constexpr bool kLong = sizeof(T) == 8;
  if constexpr (std::is_floating_point_v<T>)
    return kLong ? Scalar::float64 : Scalar::float32;
  else if constexpr (std::is_signed_v<T>)
    return kLong ? Scalar::int64 : Scalar::int32;
  else
    return kLong ? Scalar::uint64 : Scalar::uint32;
}

}  // namespace kasane::comm
