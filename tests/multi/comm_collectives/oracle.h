// SPDX-License-Identifier: Apache-2.0
// What a collective must do, computed by one loop over all members, and values that every member can compute
// for every other. Values are small integers in any element type, so that every order of combination gives
// the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "comm/collectives/schedule.h"

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

  [[nodiscard]] std::size_t part_bytes() const {
    return elements * reduction(scalar, Reduce::sum).element_bytes;
  }
  [[nodiscard]] std::string text() const {
    return "collective " + std::to_string(static_cast<int>(collective)) + " scalar " +
           std::to_string(static_cast<int>(scalar)) + " op " + std::to_string(static_cast<int>(op)) +
           " root " + std::to_string(root) + " elements " + std::to_string(elements) + " seed " +
           std::to_string(seed);
  }
};

inline Reduction reduction_of(const Case& c) { return reduction(c.scalar, c.op); }

namespace detail {
template <class T>
void put(std::byte* at, std::uint64_t number) {
  const T value = static_cast<T>(number % 100);
  std::memcpy(at, &value, sizeof(value));
}
}  // namespace detail

/// What member m brings.
inline Bytes input(const Case& c, std::uint32_t m) {
  Bytes out(c.part_bytes());
  const std::size_t unit = reduction(c.scalar, Reduce::sum).element_bytes;
  std::uint64_t state = c.seed * 7919 + m * 104729 + 1;
  for (std::size_t at = 0; at + unit <= out.size(); at += unit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t number = state >> 33;
    switch (c.scalar) {
      case Scalar::int32: detail::put<std::int32_t>(&out[at], number); break;
      case Scalar::uint32: detail::put<std::uint32_t>(&out[at], number); break;
      case Scalar::int64: detail::put<std::int64_t>(&out[at], number); break;
      case Scalar::uint64: detail::put<std::uint64_t>(&out[at], number); break;
      case Scalar::float32: detail::put<float>(&out[at], number); break;
      case Scalar::float64: detail::put<double>(&out[at], number); break;
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
  const Bytes mine = input(c, m);
  switch (c.collective) {
    case Collective::barrier: break;
    case Collective::broadcast: call.out = m == c.root ? mine : Bytes(mine.size()); break;
    case Collective::allreduce: call.out = mine; break;
    case Collective::allgather:
      call.in = mine;
      call.out.resize(mine.size() * n);
      break;
  }
  return call;
}

/// What every member must have in out afterwards.
inline Bytes expected(const Case& c, std::uint32_t n) {
  Bytes all;
  switch (c.collective) {
    case Collective::barrier: break;
    case Collective::broadcast: return input(c, c.root);
    case Collective::allreduce:
      all = input(c, 0);
      for (std::uint32_t r = 1; r < n; ++r)
        reduction_of(c)(all.data(), all.data(), input(c, r).data(), c.part_bytes());
      break;
    case Collective::allgather:
      for (std::uint32_t r = 0; r < n; ++r) {
        const Bytes p = input(c, r);
        all.insert(all.end(), p.begin(), p.end());
      }
      break;
  }
  return all;
}

inline constexpr Scalar kScalars[] = {Scalar::int32,  Scalar::int64,   Scalar::uint32,
                                      Scalar::uint64, Scalar::float32, Scalar::float64};
inline constexpr Reduce kReduces[] = {Reduce::sum, Reduce::min, Reduce::max};
inline constexpr Collective kCollectives[] = {Collective::barrier, Collective::broadcast,
                                              Collective::allreduce, Collective::allgather};

/// A random case of n members.
inline Case random_case(Random& random, std::uint32_t n, std::size_t longest) {
  Case c;
  c.collective = kCollectives[random.below(std::size(kCollectives))];
  c.scalar = kScalars[random.below(std::size(kScalars))];
  c.op = kReduces[random.below(std::size(kReduces))];
  c.root = static_cast<std::uint32_t>(random.below(n));
  c.seed = random.below(1u << 20);
  const std::size_t most = longest / reduction(c.scalar, Reduce::sum).element_bytes;
  c.elements =
      random.below(4) == 0 ? random.below(most + 1) : random.below(std::min<std::size_t>(most, 200) + 1);
  return c;
}

}  // namespace kasane::comm::test
