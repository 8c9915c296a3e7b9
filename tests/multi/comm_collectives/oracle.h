// SPDX-License-Identifier: Apache-2.0
// What a collective must do, computed by one loop over all members, and values that every member can compute
// for every other. Values are small integers in any element type, so that every order of combination gives
// the same bits.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "comm/collective_schedule.h"

namespace kasane::comm::test {

using Bytes = std::vector<std::byte>;

/// Everything about one collective that all members agree on.
struct Case {
  Collective collective = Collective::barrier;
  Scalar scalar = Scalar::int64;
  Reduce op = Reduce::sum;
  std::uint32_t root = 0;
  std::size_t elements = 0;  ///< of a member's part
  std::uint64_t seed = 0;

  [[nodiscard]] bool reduces() const {
    return collective == Collective::reduce || collective == Collective::allreduce ||
           collective == Collective::scan || collective == Collective::exscan;
  }
  [[nodiscard]] std::size_t part_bytes() const {
    return elements * (reduces() && op == Reduce::user ? 16 : scalar_bytes(scalar));
  }
  [[nodiscard]] std::string text() const {
    return "collective " + std::to_string(static_cast<int>(collective)) + " scalar " +
           std::to_string(static_cast<int>(scalar)) + " op " + std::to_string(static_cast<int>(op)) +
           " root " + std::to_string(root) + " elements " + std::to_string(elements) + " seed " +
           std::to_string(seed);
  }
};

/// Affine maps x → a·x + b, composed: associative, does not commute. 16 bytes.
struct Affine {
  std::uint64_t a, b;
};
inline void compose(const void*, std::byte* out, const std::byte* left, const std::byte* right,
                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Affine l, r;
    std::memcpy(&l, left + i * sizeof(l), sizeof(l));
    std::memcpy(&r, right + i * sizeof(r), sizeof(r));
    const Affine both{l.a * r.a, l.a * r.b + l.b};
    std::memcpy(out + i * sizeof(both), &both, sizeof(both));
  }
}

inline Reduction reduction_of(const Case& c) {
  return c.op == Reduce::user ? user_reduction(sizeof(Affine), compose, nullptr, false)
                              : reduction(c.scalar, c.op);
}

inline bool has(Scalar s, Reduce op) {
  const bool complex = s == Scalar::complex64 || s == Scalar::complex128;
  const bool real = s == Scalar::float32 || s == Scalar::float64;
  const bool bits = op == Reduce::bit_and || op == Reduce::bit_or || op == Reduce::bit_xor;
  return op == Reduce::user || op == Reduce::sum || op == Reduce::prod || (!complex && !(real && bits));
}

namespace detail {
template <class T>
void put(std::byte* at, std::uint64_t number, Reduce op) {
  // Products must stay exact: mostly ones, sometimes a two.
  const T value = op == Reduce::prod ? static_cast<T>(number % 5 == 0 ? 2 : 1) : static_cast<T>(number % 100);
  std::memcpy(at, &value, sizeof(value));
}
}  // namespace detail

/// What member m brings: part_bytes(), or for alltoall as many for each of n members.
inline Bytes input(const Case& c, std::uint32_t m, std::uint32_t n) {
  const std::size_t parts = c.collective == Collective::alltoall ? n : 1;
  Bytes out(c.part_bytes() * parts);
  const bool affine = c.reduces() && c.op == Reduce::user;
  const std::size_t unit = affine ? 16 : scalar_bytes(c.scalar);
  std::uint64_t state = c.seed * 7919 + m * 104729 + 1;
  for (std::size_t at = 0; at + unit <= out.size(); at += unit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t number = state >> 33;
    if (affine) {
      const Affine value{number | 1, number * 3};
      std::memcpy(out.data() + at, &value, sizeof(value));
      continue;
    }
    switch (c.scalar) {
      case Scalar::int32: detail::put<std::int32_t>(&out[at], number, c.op); break;
      case Scalar::uint32: detail::put<std::uint32_t>(&out[at], number, c.op); break;
      case Scalar::int64: detail::put<std::int64_t>(&out[at], number, c.op); break;
      case Scalar::uint64: detail::put<std::uint64_t>(&out[at], number, c.op); break;
      case Scalar::float32: detail::put<float>(&out[at], number, c.op); break;
      case Scalar::float64: detail::put<double>(&out[at], number, c.op); break;
      case Scalar::complex64: detail::put<std::complex<float>>(&out[at], number, c.op); break;
      case Scalar::complex128: detail::put<std::complex<double>>(&out[at], number, c.op); break;
      case Scalar::bytes: out[at] = static_cast<std::byte>(number); break;
    }
  }
  return out;
}

/// How a member calls it: what it has in out (sized) and in before, and the plan.
struct Call {
  Bytes in, out;
};
inline Call call_of(const Case& c, std::uint32_t m, std::uint32_t n) {
  Call call;
  const Bytes mine = input(c, m, n);
  switch (c.collective) {
    case Collective::barrier: break;
    case Collective::broadcast: call.out = m == c.root ? mine : Bytes(mine.size()); break;
    case Collective::reduce:
    case Collective::allreduce:
    case Collective::scan:
    case Collective::exscan: call.out = mine; break;
    case Collective::gather:
      call.in = mine;
      if (m == c.root) call.out.resize(mine.size() * n);
      break;
    case Collective::allgather:
      call.in = mine;
      call.out.resize(mine.size() * n);
      break;
    case Collective::alltoall:
      call.in = mine;
      call.out.resize(mine.size());
      break;
  }
  return call;
}

/// What member m must have in out afterwards.
inline Bytes expected(const Case& c, std::uint32_t m, std::uint32_t n) {
  const std::size_t b = c.part_bytes();
  auto fold = [&](std::uint32_t last) {
    Bytes sum = input(c, 0, n);
    for (std::uint32_t r = 1; r <= last; ++r)
      reduction_of(c)(sum.data(), sum.data(), input(c, r, n).data(), b);
    return sum;
  };
  auto all_of = [&](auto part) {
    Bytes all;
    for (std::uint32_t r = 0; r < n; ++r) {
      const Bytes p = part(r);
      all.insert(all.end(), p.begin(), p.end());
    }
    return all;
  };
  switch (c.collective) {
    case Collective::barrier: return {};
    case Collective::broadcast: return input(c, c.root, n);
    case Collective::reduce: return m == c.root ? fold(n - 1) : input(c, m, n);
    case Collective::allreduce: return fold(n - 1);
    case Collective::scan: return fold(m);
    case Collective::exscan: return m == 0 ? input(c, 0, n) : fold(m - 1);
    case Collective::gather:
      return m == c.root ? all_of([&](std::uint32_t r) { return input(c, r, n); }) : Bytes{};
    case Collective::allgather: return all_of([&](std::uint32_t r) { return input(c, r, n); });
    case Collective::alltoall:
      return all_of([&](std::uint32_t r) {
        const Bytes theirs = input(c, r, n);
        return Bytes(theirs.begin() + static_cast<std::ptrdiff_t>(m * b),
                     theirs.begin() + static_cast<std::ptrdiff_t>((m + 1) * b));
      });
  }
  return {};
}

inline constexpr Scalar kScalars[] = {Scalar::int32,     Scalar::int64,     Scalar::uint32,
                                      Scalar::uint64,    Scalar::float32,   Scalar::float64,
                                      Scalar::complex64, Scalar::complex128};
inline constexpr Reduce kReduces[] = {Reduce::sum,         Reduce::prod,        Reduce::min,
                                      Reduce::max,         Reduce::bit_and,     Reduce::bit_or,
                                      Reduce::bit_xor,     Reduce::logical_and, Reduce::logical_or,
                                      Reduce::logical_xor, Reduce::user};

/// A random case of a group of n.
inline Case random_case(Random& random, std::uint32_t n, std::size_t longest) {
  Case c;
  c.collective = static_cast<Collective>(1 + random.below(9));
  do {
    c.scalar = kScalars[random.below(std::size(kScalars))];
    c.op = kReduces[random.below(std::size(kReduces))];
  } while (!has(c.scalar, c.op));
  c.root = static_cast<std::uint32_t>(random.below(n));
  c.seed = random.below(1u << 20);
  const std::size_t most = longest / scalar_bytes(c.scalar);
  c.elements =
      random.below(4) == 0 ? random.below(most + 1) : random.below(std::min<std::size_t>(most, 200) + 1);
  return c;
}

}  // namespace kasane::comm::test
