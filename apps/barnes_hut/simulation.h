// SPDX-License-Identifier: Apache-2.0
// Bodies through time: every step sorts them by their place, builds an octree of them, finds the field of
// each by a walk, and moves them (leapfrog: half a kick, a drift, the new field, half a kick).
//
// Thread safety: one step at a time; each is parallel inside. On a thread, unless the pattern is the serial
// one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "barnes_hut/body.h"
#include "barnes_hut/tree.h"
#include "common/pieces.h"

namespace apps {

/// A body's key and where the body lies; in the order of keys, and of places where keys are equal.
struct Keyed {
  std::uint64_t key;
  std::size_t index;
  friend auto operator<=>(const Keyed&, const Keyed&) = default;
};

/// Arrays of n elements that all threads of the computation can reach.
struct Bodies {
  std::size_t n;
  Body *bodies, *spare;
  Field* fields;  ///< of bodies[i], of all others
  Keyed* order;
  std::uint64_t* keys;
};

template <class Pattern>
class Simulation {
 public:
  /// bodies that one thread moves, walks for, makes cells of
  static constexpr std::size_t kSweep = 1024, kWalk = 128, kBuild = 1024;
  /// of a step; a body crosses the middle of the sphere in about 2
  static constexpr double kTime = 1.0 / 128;

  Simulation(Bodies bodies, double theta) noexcept : b_(bodies), theta_(theta) {}

  void set(std::uint64_t seed) {
    for_pieces<Pattern>(0, b_.n, kSweep, [b = b_, seed](std::size_t i, std::size_t end) {
      for (; i != end; ++i) b.bodies[i] = body_at(seed, i, b.n);
    });
    find_fields();
  }
  void step() {
    move(kTime);
    find_fields();
    move(0);
  }
  /// Kinetic and potential, the latter as the walks found it.
  [[nodiscard]] double energy() const {
    return sum_pieces<Pattern>(0, b_.n, kSweep, [b = b_](std::size_t i, std::size_t end) {
      double sum = 0;
      for (; i != end; ++i)
        sum += 0.5 * b.bodies[i].mass *
               (dot(b.bodies[i].velocity, b.bodies[i].velocity) + b.fields[i].potential);
      return sum;
    });
  }
  [[nodiscard]] const Bodies& bodies() const noexcept { return b_; }

 private:
  struct Bounds {
    Vector least{kFar, kFar, kFar}, most{-kFar, -kFar, -kFar};
    static constexpr double kFar = std::numeric_limits<double>::infinity();
    friend Bounds operator+(const Bounds& a, const Bounds& b) noexcept {
      return {
          {std::min(a.least.x, b.least.x), std::min(a.least.y, b.least.y), std::min(a.least.z, b.least.z)},
          {std::max(a.most.x, b.most.x), std::max(a.most.y, b.most.y), std::max(a.most.z, b.most.z)}};
    }
    [[nodiscard]] Cube cube() const noexcept {
      const Vector extent = most - least;
      return {least, std::max({extent.x, extent.y, extent.z, 1e-9})};
    }
  };

  /// Half a kick by the fields that are known, and a drift for `time`.
  void move(double time) {
    for_pieces<Pattern>(0, b_.n, kSweep, [b = b_, time](std::size_t i, std::size_t end) {
      for (; i != end; ++i) {
        b.bodies[i].velocity = b.bodies[i].velocity + (0.5 * kTime) * b.fields[i].acceleration;
        b.bodies[i].position = b.bodies[i].position + time * b.bodies[i].velocity;
      }
    });
  }

  void find_fields() {
    const Cube cube = sum_pieces<Pattern>(0, b_.n, kSweep, [b = b_](std::size_t i, std::size_t end) {
                        Bounds bounds;
                        for (; i != end; ++i)
                          bounds = bounds + Bounds{b.bodies[i].position, b.bodies[i].position};
                        return bounds;
                      }).cube();
    sort_along(cube);
    auto root = build_cell<Pattern>(b_.bodies, b_.bodies + b_.n, b_.keys, 0, cube.side, kBuild);
    for_pieces<Pattern>(0, b_.n, kWalk,
                        [b = b_, tree = root.get(), theta = theta_](std::size_t i, std::size_t end) {
                          for (; i != end; ++i) {
                            Field field{};
                            walk(field, *tree, &b.bodies[i], b.bodies[i].position, theta);
                            b.fields[i] = field;
                          }
                        });
    clear_cell<Pattern>(std::move(root), kBuild);
  }

  /// Neighbours in space become neighbours in memory.
  void sort_along(const Cube& cube) {
    for_pieces<Pattern>(0, b_.n, kSweep, [b = b_, cube](std::size_t i, std::size_t end) {
      for (; i != end; ++i) b.order[i] = {key_of(cube, b.bodies[i].position), i};
    });
    Pattern::sort(b_.order, b_.order + b_.n);
    for_pieces<Pattern>(0, b_.n, kSweep, [b = b_](std::size_t i, std::size_t end) {
      for (; i != end; ++i) {
        b.spare[i] = b.bodies[b.order[i].index];
        b.keys[i] = b.order[i].key;
      }
    });
    std::swap(b_.bodies, b_.spare);
  }

  Bodies b_;
  double theta_;
};

/// How far the fields of `samples` bodies are from the sums over all others: the root of the mean square of
/// the error over that of the acceleration.
[[nodiscard]] inline double error_of_sample(const Bodies& b, std::size_t samples) noexcept {
  double error = 0, size = 0;
  for (std::size_t s = 0; s < samples; ++s) {
    const std::size_t i = s * b.n / samples;
    Field field{};
    for (std::size_t j = 0; j < b.n; ++j)
      if (j != i) attract(field, b.bodies[i].position, b.bodies[j].position, b.bodies[j].mass);
    const Vector off = b.fields[i].acceleration - field.acceleration;
    error += dot(off, off);
    size += dot(field.acceleration, field.acceleration);
  }
  return size > 0 ? std::sqrt(error / size) : 0;
}

}  // namespace apps
