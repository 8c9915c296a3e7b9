// SPDX-License-Identifier: Apache-2.0
// An octree of bodies, made of nodes and pointers by many threads, and the walk that finds the field at a
// place (Barnes, Hut: A Hierarchical O(N log N) Force-Calculation Algorithm, 1986).
//
//   key of a position: the bits of x, y, z in turn (Morton's order), from the highest. Bodies in the order of
//   their keys are grouped into cells already:
//
//     bodies   b0 b1 b2 │ b3 │ b4 b5 b6 b7 b8 │ …   a cell at depth d is the run of bodies whose keys agree
//     cell        └────────── parent ──────────┘    in the first 3 d bits; its children are found by
//                                                   bisection, and built at the same time
//
// Thread safety: building reads bodies and allocates; walking reads.
// Invariant: the tree depends on the bodies alone, not on which threads build it; sums go over children in
// order. So all results have the same bits on any number of ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "barnes_hut/body.h"

namespace apps {

/// The cube that the root stands for.
struct Cube {
  Vector corner{};
  double side = 0;
};

inline constexpr unsigned kKeyDepth = 20;  ///< levels that a key tells apart
inline constexpr std::size_t kBodiesOfLeaf = 8;

[[nodiscard]] inline std::uint64_t key_of(const Cube& cube, Vector position) noexcept {
  const auto spread = [&](double at, double corner) {  // 20 bits, two zeros before each
    const double cells = (at - corner) / cube.side * (1u << kKeyDepth);
    auto v = static_cast<std::uint64_t>(std::clamp(cells, 0.0, static_cast<double>((1u << kKeyDepth) - 1)));
    v = (v | v << 32) & 0x1F00000000FFFF;
    v = (v | v << 16) & 0x1F0000FF0000FF;
    v = (v | v << 8) & 0x100F00F00F00F00F;
    v = (v | v << 4) & 0x10C30C30C30C30C3;
    return (v | v << 2) & 0x1249249249249249;
  };
  const Vector c = cube.corner;
  return spread(position.x, c.x) << 2 | spread(position.y, c.y) << 1 | spread(position.z, c.z);
}

struct Cell {
  double mass = 0, side = 0;
  Vector centre{};  ///< of mass
  const Body *first = nullptr, *last = nullptr;
  std::array<std::unique_ptr<Cell>, 8> children;  ///< none: a leaf
  bool leaf = false;
};

/// The cell of [first, last), whose keys are keys[0 …): of the given depth and side. Threads for children of
/// more than `grain` bodies.
template <class Pattern>
std::unique_ptr<Cell> build_cell(const Body* first, const Body* last, const std::uint64_t* keys,
                                 unsigned depth, double side, std::size_t grain) {
  const auto n = static_cast<std::size_t>(last - first);
  if (n == 0) return nullptr;
  auto cell = std::make_unique<Cell>();
  cell->first = first;
  cell->last = last;
  cell->side = side;
  cell->leaf = n <= kBodiesOfLeaf || depth == kKeyDepth;
  Vector moment{};
  const auto add = [&](double mass, Vector at) {
    cell->mass += mass;
    moment = moment + mass * at;
  };
  if (cell->leaf) {
    for (const Body* b = first; b != last; ++b) add(b->mass, b->position);
  } else {
    const unsigned shift = 3 * (kKeyDepth - 1 - depth);
    std::array<std::size_t, 9> cut{0};
    for (std::uint64_t octant = 0; octant < 8; ++octant) {
      const auto* const end = std::partition_point(
          keys + cut[octant], keys + n, [=](std::uint64_t k) { return (k >> shift & 7) <= octant; });
      cut[octant + 1] = static_cast<std::size_t>(end - keys);
    }
    const auto child = [&](std::size_t o) {
      cell->children[o] =
          build_cell<Pattern>(first + cut[o], first + cut[o + 1], keys + cut[o], depth + 1, side / 2, grain);
    };
    const auto pair = [&](std::size_t o) {
      Pattern::invoke([&child, o] { child(o); }, [&child, o] { child(o + 1); });
    };
    if (n <= grain) {
      for (std::size_t o = 0; o < 8; ++o) child(o);
    } else {
      Pattern::invoke([&] { Pattern::invoke([&] { pair(0); }, [&] { pair(2); }); },
                      [&] { Pattern::invoke([&] { pair(4); }, [&] { pair(6); }); });
    }
    for (const auto& c : cell->children)
      if (c) add(c->mass, c->centre);
  }
  cell->centre = (1 / cell->mass) * moment;
  return cell;
}

/// Frees the cell and all below it, as it was built.
template <class Pattern>
void clear_cell(std::unique_ptr<Cell> cell, std::size_t grain) {
  if (!cell || static_cast<std::size_t>(cell->last - cell->first) <= grain) return;
  const auto halves = [&](std::size_t o) {
    for (std::size_t i = o; i < o + 4; ++i) clear_cell<Pattern>(std::move(cell->children[i]), grain);
  };
  Pattern::invoke([&] { halves(0); }, [&] { halves(4); });
}

/// Adds the field at `at` of all of the cell's bodies but `self`. A cell counts as one mass where it is seen
/// under an angle (side over distance) below theta.
inline void walk(Field& field, const Cell& cell, const Body* self, Vector at, double theta) noexcept {
  const Vector way = cell.centre - at;
  const bool inside = self >= cell.first && self < cell.last;
  if (!inside && cell.side * cell.side < theta * theta * dot(way, way)) {
    attract(field, at, cell.centre, cell.mass);
  } else if (cell.leaf) {
    for (const Body* b = cell.first; b != cell.last; ++b)
      if (b != self) attract(field, at, b->position, b->mass);
  } else {
    for (const auto& c : cell.children)
      if (c) walk(field, *c, self, at, theta);
  }
}

}  // namespace apps
