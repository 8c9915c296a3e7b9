// SPDX-License-Identifier: Apache-2.0
// The generators: edge i depends on i and the seeds alone, so any member makes any part.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <type_traits>

#include "graph/layout.h"
#include "graph/random_steps.h"

namespace kasane::graph {

namespace detail {
namespace {

[[nodiscard]] std::uint64_t reversed(std::uint64_t x) noexcept {
  x = __builtin_bswap64(x);
  x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
  x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
  return (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
}

/// The Kronecker generator of Graph500 with the probabilities .57, .19, .19, .05. Edge i begins i * 2^64
/// steps of its random numbers after the seed, so neighbouring edges are one matrix apart.
class Kronecker {
 public:
  Kronecker(unsigned scale, std::uint64_t seed1, std::uint64_t seed2) noexcept
      : scale_(scale), seed_(RandomSteps::seeded(seed1, seed2)), jump_(RandomSteps::power_of_two(64)) {
    const RandomSteps::Matrix far = RandomSteps::power(RandomSteps::power_of_two(128), 50);
    RandomSteps::State z = RandomSteps::after(far, RandomSteps::after(RandomSteps::power(jump_, 7), seed_));
    for (std::uint64_t& s : scramble_) {
      s = RandomSteps::next(z) * std::uint64_t{0xffffffff};
      s += RandomSteps::next(z);
    }
  }

  template <class W>
  void make(edge<W>* all, std::uint64_t first, std::uint64_t last) const noexcept {
    // Two edges at once, and two of these in turns: a number needs the one before, for which the CPU waits.
    TwoSteps begin[2];
    for (std::uint64_t k = 0; k < 2; ++k)
      begin[k] = {RandomSteps::after(RandomSteps::power(jump_, first + 2 * k), seed_),
                  RandomSteps::after(RandomSteps::power(jump_, first + 2 * k + 1), seed_)};
    const RandomSteps::Matrix jump = RandomSteps::power(jump_, 4);
    while (first < last) {
      TwoSteps z[2] = {begin[0], begin[1]};
      Corner corner[2];
      for (unsigned level = 0; level < scale_; ++level)
        for (std::size_t k = 0; k < 2; ++k) corner[k].descend(z[k].next());
      for (std::size_t k = 0; k < 2; ++k) {
        if (corner[k].drew_uneven()) [[unlikely]]
          draw_again(begin[k], z[k], corner[k]);
        begin[k].make_steps(jump);
        const Two weights = std::is_void_v<W> ? Two{} : z[k].next();
        for (std::size_t i = 0; i < 2 && first < last; ++i, ++first) {
          edge<W>& e = all[first];
          e.from = scrambled(corner[k].u[i]), e.to = scrambled(corner[k].v[i]);
          if constexpr (std::is_same_v<W, float>)
            e.weight = static_cast<float>(static_cast<float>(weights[i]) * .000000000465661287524579692);
          else if constexpr (std::is_integral_v<W>)
            e.weight = static_cast<W>(1 + weights[i] % 255);
        }
      }
    }
  }

 private:
  using Two = TwoSteps::Two;
  static constexpr std::uint32_t kUneven = RandomSteps::kModulus % 10000;

  /// Where two edges are, by their levels so far.
  struct Corner {
    Two u{}, v{}, same{1, 1}, uneven{};

    /// Into one of the four squares, by a number of each, modulo 10000: below 1900 the one above the
    /// diagonal, below 3800 the one beneath, below 9500 the first. On the diagonal itself the one beneath is
    /// that above. A difference below 0 has its highest bit.
    void descend(Two random) noexcept {
      const Two r = random - TwoSteps::times(TwoSteps::times(random, 3518437209) >> 45, 10000);
      const Two last = (9499 - r) >> 63, above = (r - 1900) >> 63, beneath = ((r - 3800) >> 63) ^ above;
      const Two flip = same & beneath, down = last | (beneath ^ flip), right = last | above | flip;
      uneven |= random - kUneven;
      same &= ~(down ^ right);
      u += u + down, v += v + right;
    }
    /// A number was among those by which a remainder would be more likely than another.
    [[nodiscard]] bool drew_uneven() const noexcept { return ((uneven[0] | uneven[1]) >> 63) != 0; }
  };

  /// Both edges, one after the other, with other numbers instead of uneven ones.
  [[gnu::cold]] void draw_again(const TwoSteps& begin, TwoSteps& z, Corner& corner) const noexcept {
    RandomSteps::State states[2] = {begin[0], begin[1]};
    for (std::size_t i = 0; i < 2; ++i) {
      Corner one;
      for (unsigned level = 0; level < scale_; ++level) {
        std::uint32_t random = RandomSteps::next(states[i]);
        while (random < kUneven) random = RandomSteps::next(states[i]);
        one.descend(Two{random, random});
      }
      corner.u[i] = one.u[0], corner.v[i] = one.v[0];
    }
    z = {states[0], states[1]};
  }

  [[nodiscard]] vertex scrambled(std::uint64_t v) const noexcept {
    v += scramble_[0] + scramble_[1];
    v *= scramble_[0] | 0x4519840211493211;
    v = reversed(v) >> (64 - scale_);
    v *= scramble_[1] | 0x3050852102c843a5;
    return static_cast<vertex>(reversed(v) >> (64 - scale_));
  }

  unsigned scale_;
  RandomSteps::State seed_;
  RandomSteps::Matrix jump_;
  std::uint64_t scramble_[2];
};

/// 64 random bits of a number (splitmix64's finaliser).
[[nodiscard]] std::uint64_t hash(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}
[[nodiscard]] std::uint64_t below(std::uint64_t random, std::uint64_t n) noexcept {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(random) * n >> 64);
}

template <class W>
void draw_weight(edge<W>& e, std::uint64_t random) noexcept {
  if constexpr (std::is_same_v<W, float>)
    e.weight = static_cast<float>(random >> 40) * 0x1p-24f;
  else if constexpr (std::is_integral_v<W>)
    e.weight = static_cast<W>(1 + below(random, 255));
}

void expect_vertices(const char* call, std::uint64_t vertices) {
  if (vertices >= no_vertex)
    refuse("graph::%s: %llu vertices are too many: vertices are numbers of 32 bits", call,
           static_cast<unsigned long long>(vertices));
}

/// make(first, last) for the parts of a list, by all members. Blocks of the list are written as a whole.
template <class W, class F>
void make_parts(edges<W>& list, F make) {
  team([all = list.data(), n = list.size(), make](const member& me) {
    constexpr std::size_t kTogether = 32768;
    const auto [first, last] = me.part(0, n);
    for (std::size_t i = first; i < last; i += kTogether) {
      const std::size_t end = std::min(last, i + kTogether);
      prefetch(all + i, end - i, write_only);
      make(i, end);
    }
  });
}

}  // namespace
}  // namespace detail

template <weight W>
edges<W> kronecker(unsigned scale, std::uint64_t edge_factor, std::uint64_t seed1, std::uint64_t seed2) {
  if (scale < 1 || scale > 31) detail::refuse("graph::kronecker: the scale is %u; it is 1 to 31", scale);
  edges<W> list(std::uint64_t{1} << scale, edge_factor << scale);
  const detail::Kronecker generator(scale, seed1, seed2);
  detail::make_parts(list, [=, all = list.data()](std::uint64_t first, std::uint64_t last) {
    generator.make(all, first, last);
  });
  return list;
}

template <weight W>
edges<W> uniform(std::uint64_t vertices, std::uint64_t n, std::uint64_t seed) {
  detail::expect_vertices("uniform", vertices);
  if (vertices == 0) n = 0;
  edges<W> list(vertices, n);
  detail::make_parts(list, [=, all = list.data()](std::uint64_t first, std::uint64_t last) {
    for (; first < last; ++first) {
      const std::uint64_t random = detail::hash(seed ^ detail::hash(first));
      all[first].from = static_cast<vertex>(detail::below(random, vertices));
      all[first].to = static_cast<vertex>(detail::below(detail::hash(random), vertices));
      detail::draw_weight(all[first], detail::hash(~random));
    }
  });
  return list;
}

template <weight W>
edges<W> grid(std::uint64_t rows, std::uint64_t columns, std::uint64_t seed) {
  if (rows == 0 || columns == 0) return edges<W>(0, 0);
  detail::expect_vertices("grid", rows > no_vertex || columns > no_vertex ? no_vertex : rows * columns);
  // First those along the rows, then those along the columns.
  const std::uint64_t along = rows * (columns - 1);
  edges<W> list(rows * columns, along + (rows - 1) * columns);
  detail::make_parts(list, [=, all = list.data()](std::uint64_t first, std::uint64_t last) {
    for (; first < last; ++first) {
      const bool is_along = first < along;
      const std::uint64_t v =
          is_along ? first / (columns - 1) * columns + first % (columns - 1) : first - along;
      all[first].from = static_cast<vertex>(v);
      all[first].to = static_cast<vertex>(is_along ? v + 1 : v + columns);
      detail::draw_weight(all[first], detail::hash(seed ^ detail::hash(first)));
    }
  });
  return list;
}

#define KASANE_GRAPH_INSTANCE(W)                                                         \
  template edges<W> kronecker<W>(unsigned, std::uint64_t, std::uint64_t, std::uint64_t); \
  template edges<W> uniform<W>(std::uint64_t, std::uint64_t, std::uint64_t);             \
  template edges<W> grid<W>(std::uint64_t, std::uint64_t, std::uint64_t);
KASANE_GRAPH_INSTANCE(void)
KASANE_GRAPH_INSTANCE(std::int32_t)
KASANE_GRAPH_INSTANCE(float)
#undef KASANE_GRAPH_INSTANCE

}  // namespace kasane::graph
