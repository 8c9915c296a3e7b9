// SPDX-License-Identifier: Apache-2.0
// The generator of random numbers of Graph500: P. L'Ecuyer, F. Blouin, R. Couture, "A search for good
// multiple recursive random number generators" (1993), m = 2^31 - 1, k = 5. A state is five numbers; a step
// is z = x * z1 + y * z5, which shifts in. Any number of steps is a matrix.
//
// Thread safety: values.
#pragma once

#include <emmintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace kasane::graph::detail {

class RandomSteps {
 public:
  static constexpr std::uint64_t kModulus = 0x7fffffff;
  using State = std::array<std::uint32_t, 5>;
  using Matrix = std::array<State, 5>;

  /// As Graph500 spreads two seeds.
  [[nodiscard]] static State seeded(std::uint64_t seed1, std::uint64_t seed2) noexcept {
    constexpr std::uint32_t kMask = 0x3fffffff;
    const auto low = [](std::uint64_t s) { return static_cast<std::uint32_t>(s) & kMask; };
    return {low(seed1) + 1, low(seed1 >> 30) + 1, low(seed2) + 1, low(seed2 >> 30) + 1,
            (static_cast<std::uint32_t>(seed2 >> 60) << 4) + static_cast<std::uint32_t>(seed1 >> 60) + 1};
  }

  /// The next number, in [0, 2^31 - 1).
  static std::uint32_t next(State& z) noexcept {
    constexpr std::uint64_t x = 107374182, y = 104480;
    const std::uint32_t fresh = reduced(x * z[0] + y * z[4]);
    z = {fresh, z[0], z[1], z[2], z[3]};
    return fresh;
  }

  /// 2^exponent steps.
  [[nodiscard]] static Matrix power_of_two(unsigned exponent) noexcept {
    Matrix m{};
    m[0] = {107374182, 0, 0, 0, 104480};
    for (std::size_t i = 1; i < 5; ++i) m[i][i - 1] = 1;
    while (exponent-- != 0) m = product(m, m);
    return m;
  }
  /// n times the steps of m.
  [[nodiscard]] static Matrix power(Matrix m, std::uint64_t n) noexcept {
    Matrix result{};
    for (std::size_t i = 0; i < 5; ++i) result[i][i] = 1;
    for (; n != 0; n >>= 1, m = product(m, m))
      if (n & 1) result = product(result, m);
    return result;
  }
  [[nodiscard]] static State after(const Matrix& m, const State& z) noexcept {
    State r;
    for (std::size_t i = 0; i < 5; ++i) {
      std::uint64_t sum = 0;  // four products of 2^62 fit
      for (std::size_t j = 0; j < 4; ++j) sum += std::uint64_t{m[i][j]} * z[j];
      r[i] = reduced(reduced(sum) + std::uint64_t{m[i][4]} * z[4]);
    }
    return r;
  }

 private:
  [[nodiscard]] static std::uint32_t reduced(std::uint64_t a) noexcept {
    a = (a & kModulus) + (a >> 31);
    a = (a & kModulus) + (a >> 31);
    return static_cast<std::uint32_t>(a >= kModulus ? a - kModulus : a);
  }
  [[nodiscard]] static Matrix product(const Matrix& a, const Matrix& b) noexcept {
    Matrix r;
    for (std::size_t j = 0; j < 5; ++j) {
      const State column = after(a, {b[0][j], b[1][j], b[2][j], b[3][j], b[4][j]});
      for (std::size_t i = 0; i < 5; ++i) r[i][j] = column[i];
    }
    return r;
  }
};

/// Two states, which make the same steps at once.
class TwoSteps {
 public:
  /// Two numbers of 64 bits; operators work on each.
  using Two = std::uint64_t __attribute__((vector_size(16)));

  TwoSteps() = default;
  TwoSteps(const RandomSteps::State& a, const RandomSteps::State& b) noexcept {
    for (std::size_t i = 0; i < 5; ++i) z_[i] = Two{a[i], b[i]};
  }
  /// The one or the other.
  [[nodiscard]] RandomSteps::State operator[](std::size_t which) const noexcept {
    RandomSteps::State z;
    for (std::size_t i = 0; i < 5; ++i) z[i] = static_cast<std::uint32_t>(z_[i][which]);
    return z;
  }
  [[nodiscard]] Two next() noexcept {
    const Two fresh = reduced(times(z_[0], 107374182) + times(z_[4], 104480));
    for (std::size_t i = 4; i != 0; --i) z_[i] = z_[i - 1];
    return z_[0] = fresh;
  }
  void make_steps(const RandomSteps::Matrix& m) noexcept {
    Two r[5];
    for (std::size_t i = 0; i < 5; ++i) {
      Two sum{};
      for (std::size_t j = 0; j < 4; ++j) sum += times(z_[j], m[i][j]);
      r[i] = reduced(folded(sum) + times(z_[4], m[i][4]));
    }
    for (std::size_t i = 0; i < 5; ++i) z_[i] = r[i];
  }
  /// Of numbers below 2^32.
  [[nodiscard]] static Two times(Two a, std::uint32_t b) noexcept {
    return reinterpret_cast<Two>(
        _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(Two{b, b})));
  }

 private:
  static Two folded(Two a) noexcept { return (a & RandomSteps::kModulus) + (a >> 31); }
  static Two reduced(Two a) noexcept {
    const Two less = folded(folded(a)) - RandomSteps::kModulus;
    return less + (RandomSteps::kModulus & -(less >> 63));
  }

  Two z_[5];
};

}  // namespace kasane::graph::detail
