// SPDX-License-Identifier: Apache-2.0
// Bodies that attract each other, and where a seed puts them: a sphere after Plummer (Aarseth, Hénon, Wielen:
// A Comparison of Numerical Methods for the Study of Star Cluster Dynamics, 1974), in units where the
// gravitational constant, the total mass and the scale are 1.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "common/random.h"

namespace apps {

struct Vector {
  double x, y, z;
  friend Vector operator+(Vector a, Vector b) noexcept { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
  friend Vector operator-(Vector a, Vector b) noexcept { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
  friend Vector operator*(double s, Vector a) noexcept { return {s * a.x, s * a.y, s * a.z}; }
  friend double dot(Vector a, Vector b) noexcept { return a.x * b.x + a.y * b.y + a.z * b.z; }
};

/// What masses do to a place: acceleration and potential.
struct Field {
  Vector acceleration;
  double potential;
};

struct Body {
  double mass;
  Vector position, velocity;
};

/// Distances below this are smoothed (Plummer softening), so that close encounters need no smaller steps.
inline constexpr double kSoftening = 0.02;

/// Adds the field of `mass` at `from` to what is felt at `at`.
inline void attract(Field& field, Vector at, Vector from, double mass) noexcept {
  const Vector way = from - at;
  const double inverse = 1 / std::sqrt(dot(way, way) + kSoftening * kSoftening);
  field.potential -= mass * inverse;
  field.acceleration = field.acceleration + (mass * inverse * inverse * inverse) * way;
}

/// Body i of n.
[[nodiscard]] inline Body body_at(std::uint64_t seed, std::size_t i, std::size_t n) noexcept {
  std::uint64_t drawn = 64 * i;
  const auto uniform = [&] { return static_cast<double>(random_at(seed, drawn++) >> 11) * 0x1p-53; };
  const auto on_sphere = [&](double radius) {
    const double z = 2 * uniform() - 1, angle = 2 * std::numbers::pi * uniform(),
                 across = std::sqrt(1 - z * z);
    return radius * Vector{across * std::cos(angle), across * std::sin(angle), z};
  };
  // The few that would be far out are not wanted: 0.999 of the mass is within the radius of 39.
  const double radius = 1 / std::sqrt(std::pow(0.001 + 0.998 * uniform(), -2.0 / 3) - 1);
  double q = uniform();  // of the speed of escape, by rejection
  while (0.1 * uniform() > q * q * std::pow(1 - q * q, 3.5)) q = uniform();
  const double speed = q * std::numbers::sqrt2 / std::pow(1 + radius * radius, 0.25);
  return {1 / static_cast<double>(n), on_sphere(radius), on_sphere(speed)};
}

}  // namespace apps
