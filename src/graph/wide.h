// SPDX-License-Identifier: Apache-2.0
// Numbers of paths, which may double from level to level: more than a double holds after a thousand levels.
// A sign is not needed, so there is room for an exponent of 24 bits, beside a fraction of 40. All is in one
// word, for atomics. 0 is all bits 0; what is too large becomes the largest of all, and what is too small 0.
//
// Thread safety: values.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace kasane::graph::detail {

class Wide {
 public:
  Wide() noexcept = default;  // trivial: Wide() is 0
  explicit Wide(double value) noexcept : Wide(of(value, 0)) {}
  explicit operator double() const noexcept {
    return bits_ == 0 ? 0 : std::ldexp(fraction(), static_cast<int>(exponent()));
  }
  [[nodiscard]] bool is_finite() const noexcept { return bits_ < kLargest; }

  friend Wide operator+(Wide a, Wide b) noexcept {
    if (a.bits_ < b.bits_) std::swap(a.bits_, b.bits_);
    const std::int64_t less = a.exponent() - b.exponent();
    if (b.bits_ == 0 || less > kFraction + 1) return a;
    return of(a.fraction() + b.fraction() * power(-less), a.exponent());
  }
  friend Wide operator*(Wide a, Wide b) noexcept {
    return a.bits_ == 0 || b.bits_ == 0 ? Wide()
                                        : of(a.fraction() * b.fraction(), a.exponent() + b.exponent());
  }
  /// b is not 0.
  friend Wide operator/(Wide a, Wide b) noexcept {
    return a.bits_ == 0 ? Wide() : of(a.fraction() / b.fraction(), a.exponent() - b.exponent());
  }

 private:
  static constexpr int kFraction = 40, kOfDouble = 52;
  static constexpr std::int64_t kBias = std::int64_t{1} << 23;
  static constexpr std::uint64_t kLargest = ~std::uint64_t{0};

  /// 2^e, for e that doubles have.
  [[nodiscard]] static double power(std::int64_t e) noexcept {
    return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + e) << kOfDouble);
  }
  /// From 1 to 2.
  [[nodiscard]] double fraction() const noexcept {
    const std::uint64_t bits = bits_ << (64 - kFraction) >> (64 - kOfDouble);
    return std::bit_cast<double>(bits | std::uint64_t{1023} << kOfDouble);
  }
  [[nodiscard]] std::int64_t exponent() const noexcept {
    return static_cast<std::int64_t>(bits_ >> kFraction) - kBias;
  }
  /// value * 2^e; value is not negative, and no denormal.
  [[nodiscard]] static Wide of(double value, std::int64_t e) noexcept {
    Wide w{};
    if (value == 0) return w;
    const auto bits = std::bit_cast<std::uint64_t>(value);
    e += static_cast<std::int64_t>(bits >> kOfDouble) - 1023 + kBias;
    if (e >= 2 * kBias - 1) return w.bits_ = kLargest, w;
    if (e <= 0) return w;
    // Rounded; a carry goes into the exponent.
    constexpr int kDropped = kOfDouble - kFraction;
    const std::uint64_t fraction = bits & ((std::uint64_t{1} << kOfDouble) - 1);
    w.bits_ = (static_cast<std::uint64_t>(e) << kFraction) +
              ((fraction + (std::uint64_t{1} << (kDropped - 1))) >> kDropped);
    return w;
  }

  std::uint64_t bits_;
};

}  // namespace kasane::graph::detail
