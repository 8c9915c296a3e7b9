// SPDX-License-Identifier: Apache-2.0
// The trees of the Unbalanced Tree Search benchmark (Olivier, Huan, Liu, Prins, Dinan, Sadayappan, Tseng:
// UTS, 2006). How many children a node has is drawn from its own state; a child's state is the SHA-1 of its
// parent's and its number. So any part of the tree can be made anywhere from 20 bytes. Two families:
//
//   geometric (of the fixed shape): each node above the depth limit has geometrically distributed children
//                                   with mean b0.
//   binomial: the root has b0 children; any other node has m with probability q, else none. With m q just
//             below 1 most subtrees are tiny, a few huge and deep.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "uts/sha1.h"

namespace apps {

enum class TreeFamily : std::uint8_t { geometric, binomial };

struct TreeShape {
  TreeFamily family = TreeFamily::geometric;
  std::uint32_t seed = 19;
  double b0 = 4;             ///< geometric: mean number of children; binomial: the root's
  std::uint32_t depth = 10;  ///< geometric: nodes at this depth are leaves
  std::uint32_t m = 0;       ///< binomial: children of a node that has any, …
  double q = 0;              ///< … and the probability that it has
  friend bool operator==(const TreeShape&, const TreeShape&) = default;
};

struct TreeNode {
  Digest state;
  std::uint32_t depth;
};

struct TreeCount {
  std::uint64_t nodes = 0, leaves = 0;
  std::uint32_t depth = 0;
  friend TreeCount operator+(const TreeCount& a, const TreeCount& b) noexcept {
    return {a.nodes + b.nodes, a.leaves + b.leaves, std::max(a.depth, b.depth)};
  }
  friend bool operator==(const TreeCount&, const TreeCount&) = default;
};

/// Sample trees of the benchmark's distribution, with their counts.
struct PublishedTree {
  std::string_view name;
  TreeShape shape;
  TreeCount count;
};
inline constexpr std::array<PublishedTree, 4> kPublishedTrees = {{
    {"T1", {TreeFamily::geometric, 19, 4, 10, 0, 0}, {4'130'071, 3'305'118, 10}},
    {"T1L", {TreeFamily::geometric, 29, 4, 13, 0, 0}, {102'181'082, 81'746'377, 13}},
    {"T3", {TreeFamily::binomial, 42, 2000, 0, 8, 0.124875}, {4'112'897, 3'599'034, 1572}},
    {"T3L", {TreeFamily::binomial, 7, 2000, 0, 5, 0.200014}, {111'345'631, 89'076'904, 17844}},
}};

[[nodiscard]] inline TreeNode root_of(const TreeShape& shape) noexcept {
  std::array<std::uint8_t, 20> message{};
  detail::store_be(&message[16], shape.seed);
  return {sha1(message), 0};
}

[[nodiscard]] inline TreeNode child_of(const TreeNode& parent, std::uint32_t number) noexcept {
  std::array<std::uint8_t, 24> message;
  std::copy(parent.state.begin(), parent.state.end(), message.begin());
  detail::store_be(&message[20], number);
  return {sha1(message), parent.depth + 1};
}

[[nodiscard]] inline std::uint32_t children_of(const TreeShape& shape, const TreeNode& node) noexcept {
  constexpr std::uint32_t kMost = 100;  // the benchmark's own bound, but for a binomial root
  const double u = static_cast<double>(detail::load_be(&node.state[16]) & 0x7FFFFFFFu) / 2147483648.0;
  if (shape.family == TreeFamily::binomial)
    return node.depth == 0 ? static_cast<std::uint32_t>(shape.b0) : u < shape.q ? shape.m : 0;
  if (node.depth > 0 && node.depth >= shape.depth) return 0;
  const double p = 1.0 / (1.0 + shape.b0);
  return std::min(kMost, static_cast<std::uint32_t>(std::floor(std::log(1 - u) / std::log(1 - p))));
}

/// Counts the subtree of node, with a thread for every node that has a sibling to run beside.
template <class Pattern>
TreeCount search(TreeShape shape, TreeNode node) {
  const std::uint32_t n = children_of(shape, node);
  const TreeCount self{1, n == 0 ? 1u : 0u, node.depth};
  if (n == 0) return self;
  return Pattern::sum(n, self,
                      [shape, node](std::uint32_t i) { return search<Pattern>(shape, child_of(node, i)); });
}

}  // namespace apps
