// SPDX-License-Identifier: Apache-2.0
// Conjugate gradients by a team: each member has its rows and its part of all vectors, and reads what it
// needs of the others' directions.
//
// Sums over vectors go by chunks of fixed size, whose sums every member adds up in the same order: so all
// have the same bits, for any number of members.
//
// Thread safety: one call a member. Invariant: a reader of a partial sum or a direction is one barrier behind
// its writer, and one before it is written again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <kasane/team.hpp>

#include "cg/matrix.h"

namespace apps {

/// Elements whose products one partial sum holds: a small page of each vector, so that members share no page.
inline constexpr std::size_t kChunk = 512;

/// Vectors of n elements, and partial sums: two sets of them, used in turn.
struct Vectors {
  std::size_t n;
  double *x, *r, *p, *q, *sums;
  [[nodiscard]] static constexpr std::size_t chunks(std::size_t n) noexcept {
    return (n + kChunk - 1) / kChunk;
  }
  [[nodiscard]] static constexpr std::size_t sum_elements(std::size_t n) noexcept { return 2 * chunks(n); }
};

struct Solution {
  std::uint64_t iterations = 0;
  double residual = 0;  ///< |r| over |b|, as the recurrence has it
};

/// Solves A x = b for b = all ones, from x = 0, until |r| <= tolerance |b| or for `most` iterations.
class Solver {
 public:
  Solver(Rows a, Vectors v, kasane::member& me) noexcept : a_(a), v_(v), me_(me) {
    const kasane::part_of_range mine = me.part(0, v.n, kChunk);
    first_ = mine.first, last_ = mine.last;
  }

  Solution operator()(double tolerance, std::uint64_t most) {
    for (std::size_t i = first_; i < last_; ++i) v_.x[i] = 0, v_.r[i] = v_.p[i] = 1;
    const double size = sum([&](std::size_t i) { return v_.r[i] * v_.r[i]; });
    double rr = size;
    Solution found;
    while (found.iterations < most && rr > tolerance * tolerance * size) {
      // The barrier of the sum before this one separates the new p from its use; the barrier of this sum
      // separates it from the next p.
      bring_directions();
      const double pq = sum([&](std::size_t i) { return v_.p[i] * (v_.q[i] = a_.times(v_.p, i)); });
      const double alpha = rr / pq;
      const double before = rr;
      rr = sum([&](std::size_t i) {
        v_.x[i] += alpha * v_.p[i];
        v_.r[i] -= alpha * v_.q[i];
        return v_.r[i] * v_.r[i];
      });
      const double beta = rr / before;
      for (std::size_t i = first_; i < last_; ++i) v_.p[i] = v_.r[i] + beta * v_.p[i];
      me_.wait();
      ++found.iterations;
    }
    found.residual = std::sqrt(rr / size);
    return found;
  }

 private:
  /// All at once: the rows of a member need most blocks of the others' parts, of which each would be a miss.
  void bring_directions() const {
    if (me_.size() == 1) return;
    const kasane::polling_scope here;  // a member stays at its rank
    kasane::prefetch(v_.p, v_.n);
  }

  /// The sum of f(i) over all members' elements.
  template <class F>
  double sum(F f) {
    const std::size_t chunks = Vectors::chunks(v_.n);
    double* const sums = v_.sums + turn_ * chunks;
    turn_ = 1 - turn_;  // a member that is late may still add up the other set
    for (std::size_t i = first_; i < last_;) {
      double s = 0;
      const std::size_t end = std::min(last_, i + kChunk), chunk = i / kChunk;
      for (; i < end; ++i) s += f(i);
      sums[chunk] = s;
    }
    me_.wait();
    double s = 0;
    for (std::size_t c = 0; c < chunks; ++c) s += sums[c];
    return s;
  }

  Rows a_;
  Vectors v_;
  kasane::member& me_;
  std::size_t first_, last_, turn_ = 0;
};

}  // namespace apps
