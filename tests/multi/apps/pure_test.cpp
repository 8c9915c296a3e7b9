// SPDX-License-Identifier: Apache-2.0
// The applications' algorithms in their sequential elision: what must hold before threads come in.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <kasane/team.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barnes_hut/simulation.h"
#include "cg/matrix.h"
#include "cg/solve.h"
#include "cilksort/check.h"
#include "cilksort/line.h"
#include "cilksort/sort.h"
#include "common/in_order.h"
#include "common/patterns.h"
#include "common/pieces.h"
#include "common/random.h"
#include "common/text_file.h"
#include "grid.h"
#include "matrix.h"
#include "queens.h"
#include "stencil/nine_points.h"
#include "uts/sha1.h"
#include "uts/tree.h"

namespace {

std::string hex(const apps::Digest& digest) {
  std::string s;
  for (std::uint8_t b : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", b);
    s += two;
  }
  return s;
}

apps::Digest sha1(std::string_view text) {
  return apps::sha1({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

TEST(Sha1, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(hex(sha1("")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(hex(sha1("abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hex(sha1("The quick brown fox jumps over the lazy dog")),
            "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12");
}

TEST(Uts, TreesHaveTheirPublishedSizes) {
  for (const auto& tree : apps::kPublishedTrees) {
    if (tree.count.nodes > 10'000'000) continue;  // minutes
    EXPECT_EQ(apps::search<apps::Serial>(tree.shape, apps::root_of(tree.shape)), tree.count) << tree.name;
  }
}

TEST(Uts, AnotherSeedIsAnotherTree) {
  for (apps::TreeShape a : {apps::TreeShape{apps::TreeFamily::geometric, 19, 4, 5, 0, 0},
                            apps::TreeShape{apps::TreeFamily::binomial, 19, 50, 0, 4, 0.2}}) {
    apps::TreeShape b = a;
    b.seed = 20;
    EXPECT_NE(apps::search<apps::Serial>(a, apps::root_of(a)),
              apps::search<apps::Serial>(b, apps::root_of(b)));
  }
}

TEST(Queens, CountsAgreeWithTheTableForEveryNumberOfForkedRows) {
  for (std::uint32_t n = 1; n <= 9; ++n)
    for (std::uint32_t rows = 0; rows <= n; ++rows)
      EXPECT_EQ(apps::count_queens<apps::Serial>((1u << n) - 1, {}, rows), apps::kQueens[n])
          << n << " queens, " << rows << " rows";
}

std::vector<std::uint64_t> keys(std::size_t n, std::uint64_t different, std::uint64_t seed) {
  std::vector<std::uint64_t> k(n);
  for (std::size_t i = 0; i < n; ++i) k[i] = apps::random_at(seed, i) % different;
  return k;
}

TEST(Cilksort, SortsAsStdSortAtEverySizeAndCutoff) {
  for (std::uint64_t different : {std::uint64_t{1}, std::uint64_t{3}, ~std::uint64_t{0}}) {
    for (std::size_t n : {0u, 1u, 2u, 3u, 4u, 5u, 7u, 64u, 1000u, 4099u}) {
      for (std::size_t cutoff : {1u, 2u, 3u, 16u, 100u, 5000u}) {
        std::vector<std::uint64_t> a = keys(n, different, n + cutoff), expected = a, tmp(n);
        std::sort(expected.begin(), expected.end());
        apps::cilksort<apps::Serial>(a.data(), tmp.data(), n, {cutoff, cutoff});
        ASSERT_EQ(a, expected) << n << " elements, cutoff " << cutoff;
      }
    }
  }
}

TEST(Cilksort, MergesRunsOfVeryDifferentLengths) {
  for (std::size_t left : {0u, 1u, 2u, 50u, 999u, 1000u}) {
    std::vector<std::uint64_t> a = keys(1000, 700, 5), out(1000), expected = a;
    std::sort(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(left));
    std::sort(a.begin() + static_cast<std::ptrdiff_t>(left), a.end());
    std::sort(expected.begin(), expected.end());
    apps::merge<apps::Serial, std::uint64_t>({a.data(), a.data() + left}, {a.data() + left, a.data() + 1000},
                                             out.data(), {1, 8});
    EXPECT_EQ(out, expected) << left;
  }
}

// Against the triple loop, for sizes that fill their tiles and sizes that do not.
TEST(Matrix, ProductsAreThoseOfTheTripleLoop) {
  for (std::size_t n : {1u, 7u, 8u, 64u, 65u, 130u, 200u}) {
    const apps::Tiling tiling(n);
    ASSERT_GE(tiling.tile << tiling.levels, n);
    std::vector<double> a(tiling.elements()), b = a, c = a;
    const auto at = [&](std::vector<double>& m, std::uint64_t seed) {
      for (std::size_t z = 0; z < tiling.tiles(); ++z)
        tiling.for_tile(m.data(), z,
                        [&](std::size_t i, std::size_t j, double& x) { x = apps::small_at(seed, i, j); });
    };
    at(a, 1), at(b, 2);
    apps::multiply_add<apps::Serial>(c.data(), a.data(), b.data(), tiling.tile, tiling.levels, 0);
    std::size_t seen = 0;
    for (std::size_t z = 0; z < tiling.tiles(); ++z) {
      tiling.for_tile(c.data(), z, [&](std::size_t i, std::size_t j, double x) {
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k) sum += apps::small_at(1, i, k) * apps::small_at(2, k, j);
        ASSERT_EQ(x, sum) << n << ": " << i << ", " << j;
        ++seen;
      });
    }
    EXPECT_EQ(seen, n * n);
  }
}

// The same bits whatever forks: the cuts depend on the range alone.
TEST(Pieces, CoverARangeOnceAndInOrder) {
  for (std::size_t n : {1u, 2u, 17u, 1000u}) {
    for (std::size_t grain : {1u, 3u, 2000u}) {
      std::vector<std::size_t> seen;
      apps::for_pieces<apps::Serial>(5, 5 + n, grain, [&seen, grain](std::size_t begin, std::size_t end) {
        EXPECT_LE(end - begin, grain);
        for (; begin != end; ++begin) seen.push_back(begin);
      });
      ASSERT_EQ(seen.size(), n);
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(seen[i], 5 + i);
      EXPECT_EQ(apps::sum_pieces<apps::Serial>(
                    5, 5 + n, grain, [](std::size_t begin, std::size_t end) { return end - begin; }),
                n);
    }
  }
}

// A row that a step missed is seen: its error is far above what rounding can do.
TEST(Grid, StepsFollowTheExactSolutionAndALostRowDoesNot) {
  const apps::Grid grid{40, 61};
  std::vector<double> a(grid.points()), b(grid.points());
  const auto error_after = [&](std::size_t lost_at) {
    grid.set_rows(a.data(), 0, grid.rows + 2);
    grid.set_rows(b.data(), 0, grid.rows + 2);
    for (std::size_t s = 0; s < 100; ++s, std::swap(a, b)) {
      grid.step_rows(b.data(), a.data(), 1, 20);
      grid.step_rows(b.data(), a.data(), s == lost_at ? 21 : 20, grid.rows + 1);
    }
    const double left = std::pow(grid.decay(), 100);
    double error = 0;
    for (std::size_t i = 1; i <= grid.rows; ++i)
      for (std::size_t j = 1; j <= grid.columns; ++j)
        error = std::max(error, std::abs(a[i * grid.pitch() + j] - left * grid.mode(i, j)));
    return error;
  };
  EXPECT_LE(error_after(1000), 1e-13);
  EXPECT_GE(error_after(0), 1e-6);
  EXPECT_GE(error_after(99), 1e-6);
}

/// Bodies, their fields, and what a simulation needs.
struct Universe {
  explicit Universe(std::size_t n) : bodies(n), spare(n), fields(n), order(n), keys(n) {}
  [[nodiscard]] apps::Bodies arrays() {
    return {bodies.size(), bodies.data(), spare.data(), fields.data(), order.data(), keys.data()};
  }
  std::vector<apps::Body> bodies, spare;
  std::vector<apps::Field> fields;
  std::vector<apps::Keyed> order;
  std::vector<std::uint64_t> keys;
};

TEST(BarnesHut, ATreeHoldsEachBodyOnceInACellThatIsItsPlace) {
  Universe u(2000);
  apps::Simulation<apps::Serial> simulation(u.arrays(), 0.5);
  simulation.set(5);
  const apps::Body* const bodies = simulation.bodies().bodies;
  const auto tree = apps::build_cell<apps::Serial>(bodies, bodies + 2000, u.keys.data(), 0, 1, 16);
  std::vector<const apps::Body*> found;
  const auto visit = [&](const auto& self, const apps::Cell& cell) -> double {
    if (cell.leaf) {
      EXPECT_LE(cell.last - cell.first, static_cast<std::ptrdiff_t>(apps::kBodiesOfLeaf));
      for (const apps::Body* b = cell.first; b != cell.last; ++b) found.push_back(b);
      return static_cast<double>(cell.last - cell.first) / 2000;
    }
    double mass = 0;
    const apps::Body* next = cell.first;
    for (const auto& c : cell.children) {
      if (!c) continue;
      EXPECT_EQ(c->first, next);
      EXPECT_EQ(c->side, cell.side / 2);
      next = c->last;
      mass += self(self, *c);
    }
    EXPECT_EQ(next, cell.last);
    EXPECT_NEAR(cell.mass, mass, 1e-12);
    return mass;
  };
  EXPECT_NEAR(visit(visit, *tree), 1, 1e-12);
  ASSERT_EQ(found.size(), 2000u);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], bodies + i);
}

TEST(BarnesHut, BodiesAtOnePlaceEndTheTree) {
  Universe u(50);
  for (auto& b : u.bodies) b = {1.0 / 50, {1, 2, 3}, {}};
  std::fill(u.keys.begin(), u.keys.end(), 7);
  const auto tree =
      apps::build_cell<apps::Serial>(u.bodies.data(), u.bodies.data() + 50, u.keys.data(), 0, 1, 16);
  apps::Field field{};
  apps::walk(field, *tree, u.bodies.data(), {1, 2, 3}, 0.5);
  EXPECT_NEAR(field.potential, -49.0 / 50 / apps::kSoftening, 1e-9);
}

TEST(BarnesHut, FieldsAreNearTheirDirectSumsAndEqualThemWhereEveryCellIsOpened) {
  for (const auto& [theta, most] : {std::pair(0.0, 1e-13), std::pair(0.3, 0.009), std::pair(1.0, 0.1)}) {
    Universe u(1000);
    apps::Simulation<apps::Serial> simulation(u.arrays(), theta);
    simulation.set(8);
    EXPECT_LE(apps::error_of_sample(simulation.bodies(), 1000), most) << theta;
    simulation.bodies().fields[500].acceleration.x += 1;
    EXPECT_GE(apps::error_of_sample(simulation.bodies(), 1000), 0.01);
  }
}

TEST(Cg, AShuffleIsAPermutationAndItsInverse) {
  for (std::uint64_t n : {1u, 2u, 3u, 16u, 1000u}) {
    const apps::Shuffle shuffle(9, n);
    std::vector<bool> hit(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t place = shuffle.place_of(i);
      ASSERT_LT(place, n);
      EXPECT_FALSE(hit[place]);
      hit[place] = true;
      EXPECT_EQ(shuffle.at_place(place), i);
    }
  }
}

/// A matrix in memory of its own.
struct SmallMatrix {
  explicit SmallMatrix(const apps::Recipe& recipe) : start(recipe.n + 1) {
    for (std::size_t i = 0; i < recipe.n; ++i) start[i + 1] = start[i] + recipe.entries_of(i);
    column.resize(start.back());
    value.resize(start.back());
    for (std::size_t i = 0; i < recipe.n; ++i) rows().make(recipe, i);
  }
  [[nodiscard]] apps::Rows rows() { return {start.size() - 1, start.data(), column.data(), value.data()}; }
  std::vector<std::uint64_t> start;
  std::vector<std::uint32_t> column;
  std::vector<double> value;
};

TEST(Cg, TheMatrixIsSymmetricAndItsDiagonalOutweighsEachRow) {
  constexpr std::size_t n = 101;
  const apps::Recipe recipe{n, 10, 4};
  SmallMatrix m(recipe);
  std::vector<double> dense(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::uint64_t e = m.start[i]; e != m.start[i + 1]; ++e) dense[i * n + m.column[e]] += m.value[e];
  for (std::size_t i = 0; i < n; ++i) {
    double others = 0;
    for (std::size_t j = 0; j < n; ++j) {
      EXPECT_NEAR(dense[i * n + j], dense[j * n + i], 1e-12);
      if (j != i) others += std::abs(dense[i * n + j]) / (recipe.scale_of(i) * recipe.scale_of(j));
    }
    EXPECT_GT(dense[i * n + i] / (recipe.scale_of(i) * recipe.scale_of(i)), others);
  }
  EXPECT_GT(m.start[n], n * 7);
}

TEST(Cg, FindsTheSolution) {
  constexpr std::size_t n = 1500;
  SmallMatrix m({n, 12, 6});
  std::vector<double> x(n), r(n), p(n), q(n), sums(apps::Vectors::sum_elements(n));
  kasane::member alone;
  const apps::Solution found =
      apps::Solver(m.rows(), {n, x.data(), r.data(), p.data(), q.data(), sums.data()}, alone)(1e-12, 5000);
  EXPECT_LE(found.residual, 1e-12);
  EXPECT_GT(found.iterations, 5u);
  for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(m.rows().times(x.data(), i), 1, 1e-9);
}

TEST(Team, PartsCoverARangeOnceInWholeUnits) {
  for (std::size_t n : {0u, 1u, 5u, 1000u, 1025u}) {
    for (std::size_t size : {1u, 2u, 3u, 7u}) {
      std::size_t next = 3;
      for (std::size_t i = 0; i < size; ++i) {
        const auto [first, last] = kasane::member(i, size).part(3, 3 + n, 8);
        EXPECT_EQ(first, next);
        EXPECT_TRUE((last - 3) % 8 == 0 || last == 3 + n);
        next = last;
      }
      EXPECT_EQ(next, 3 + n);
    }
  }
}

TEST(Check, SeesOneLostKeyAndOneInversion) {
  std::vector<std::uint64_t> a = keys(100, ~std::uint64_t{0}, 1);
  const auto summary = [](const std::vector<std::uint64_t>& v) {
    apps::Summary s;
    for (std::size_t i = 0; i < v.size(); ++i) s = s + apps::summary_at(v.data(), i);
    return s;
  };
  std::sort(a.begin(), a.end());
  const apps::Summary good = summary(a);
  EXPECT_TRUE(good.sorted);
  std::vector<std::uint64_t> swapped = a, lost = a;
  std::swap(swapped[40], swapped[41]);
  EXPECT_FALSE(summary(swapped).sorted);
  EXPECT_EQ(summary(swapped).hash, good.hash);
  lost[50] = lost[49];  // still in order
  EXPECT_TRUE(summary(lost).sorted);
  EXPECT_NE(summary(lost).hash, good.hash);
}

TEST(Line, OrdersAsBytesDo) {
  std::mt19937 random(3);
  std::vector<std::string> strings = {"",
                                      "a",
                                      std::string("a\0", 2),
                                      std::string("a\0b", 3),
                                      "abcdefgh",
                                      "abcdefgha",
                                      std::string("abcdefgh\0", 9),
                                      "abcdefg",
                                      "\xff",
                                      "\x7f",
                                      "\x80"};
  for (int i = 0; i < 100; ++i) {
    std::string s(random() % 14, 0);
    for (char& c : s)
      c = static_cast<char>(
          "\0\x01"
          "ab\x80\xff"[random() % 6]);
    strings.push_back(s);
  }
  for (const auto& a : strings)
    for (const auto& b : strings)  // std::string compares as unsigned bytes
      ASSERT_EQ(apps::line_at(a.data(), a.size()) < apps::line_at(b.data(), b.size()), a < b);
}

// However a text is cut into pieces, each line starts in exactly one of them.
TEST(Line, PiecesFindEachLineOnce) {
  for (std::string text : {std::string(""), std::string("\n"), std::string("a"), std::string("a\n"),
                           std::string("\n\na\nbc\n\nd"), std::string("long line\nanother long line\n\n")}) {
    std::vector<std::string> expected;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) expected.push_back(line);
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    for (std::size_t piece = 1; piece <= text.size() + 1; ++piece) {
      std::vector<std::string> found;
      for (const char* first = begin; first < end;
           first += std::min(piece, static_cast<std::size_t>(end - first))) {
        const char* const last = static_cast<std::size_t>(end - first) < piece ? end : first + piece;
        apps::for_line_starts(begin, end, first, last,
                              [&](const char* s) { found.emplace_back(s, apps::end_of_line(s, end)); });
      }
      EXPECT_EQ(found, expected) << "pieces of " << piece;
    }
  }
}

TEST(TextFile, GivesBackWhatWasWritten) {
  const std::string name = "/tmp/kasane_pure_test." + std::to_string(::getpid());
  const std::string large(3'000'000, 'l');
  {
    apps::LineWriter writer(name);
    writer.line("one", 3);
    writer.line("", 0);
    writer.line(large.data(), large.size());
    writer.close();
  }
  apps::TextFile file(name);
  ASSERT_EQ(file.bytes(), 5 + large.size() + 1);
  std::string text(file.bytes(), 0);
  file.read(text.data());
  EXPECT_EQ(text, "one\n\n" + large + "\n");
  std::remove(name.c_str());
  EXPECT_THROW(apps::TextFile{name}, std::runtime_error);
  EXPECT_THROW(apps::LineWriter{"/nowhere/at/all"}, std::runtime_error);
}

// ---- stencil ----

std::vector<double> stencil_start(apps::Plate plate) {
  std::vector<double> v(plate.points());
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<double>(apps::random_at(5, i) >> 11) * 0x1p-53;
  return v;
}

/// As two threads do it: both copy what they need of each other's rows, then each takes its own.
void advance_in_two_parts(apps::Plate plate, std::vector<double>& rows, std::size_t cut, std::size_t steps,
                          apps::Plate::Order order) {
  std::vector<double> above(apps::Plate::Halo::size(plate, steps) * plate.pitch(), -1), below = above;
  const apps::Plate::Halo upper(plate, 0, cut, steps, above.data()),
      lower(plate, cut, plate.pitch(), steps, below.data());
  upper.copy<apps::Serial>(rows.data());
  lower.copy<apps::Serial>(rows.data());
  plate.advance_rows<apps::Serial>(rows.data(), upper, steps, order);
  plate.advance_rows<apps::Serial>(rows.data(), lower, steps, order);
}

TEST(Stencil, ManyStepsInOnePassAreThoseSteps) {
  for (const std::size_t n : {1u, 2u, 3u, 9u, 40u}) {
    const apps::Plate plate{n};
    for (const std::size_t steps : {1u, 2u, 3u, 10u, 60u}) {
      std::vector<double> from = stencil_start(plate), to = from;
      for (std::size_t s = 0; s < steps; ++s, from.swap(to)) {  // plainly, point by point
        for (std::size_t i = 1; i <= n; ++i)
          for (std::size_t j = 1; j <= n; ++j) {
            const double* const x = &from[i * plate.pitch() + j];
            const double *const above = x - plate.pitch(), *const below = x + plate.pitch();
            to[i * plate.pitch() + j] = 0.5 * x[0] + 0.09375 * (above[0] + x[-1] + x[1] + below[0]) +
                                        0.03125 * (above[-1] + above[1] + below[-1] + below[1]);
          }
      }
      for (const std::size_t cut :
           {std::size_t{0}, std::size_t{1}, n / 2, n + 1}) {  // two threads' parts, whichever they are
        for (const auto order : {apps::Plate::Order::down, apps::Plate::Order::up}) {
          const std::string what = "n " + std::to_string(n) + ", " + std::to_string(steps) +
                                   " steps, cut at " + std::to_string(cut) +
                                   (order == apps::Plate::Order::up ? ", upwards" : "");
          std::vector<double> plate_now = stencil_start(plate);
          advance_in_two_parts(plate, plate_now, cut, steps, order);
          EXPECT_EQ(plate_now, from) << what;
          if (steps != 1) continue;
          const std::vector<double> start = stencil_start(plate);
          std::vector<double> result(plate.points(), -1);
          plate.step_rows<apps::Serial>(result.data(), start.data(), 0, cut, order);
          plate.step_rows<apps::Serial>(result.data(), start.data(), cut, plate.pitch(), order);
          EXPECT_EQ(result, from) << what << ", to another plate";
        }
      }
    }
  }
}

// As std::lower_bound, wherever the key is; and where runs are alike, after few looks.
TEST(CilkSort, FindsAKeyFromTheMiddleOutwards) {
  static std::size_t looks;
  struct Counted {
    int value;
    bool operator<(const Counted& other) const {
      ++looks;
      return value < other.value;
    }
  };
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{1000}, std::size_t{1} << 20}) {
    std::vector<Counted> run(n);
    for (std::size_t i = 0; i < n; ++i) run[i].value = static_cast<int>(i / 3 * 2);  // each three times
    const int last = n == 0 ? 0 : run.back().value, step = std::max(1, last / 997);
    for (int key = -1; key <= last + 1; key += step) {
      EXPECT_EQ(apps::lower_bound_near_middle(apps::Run<Counted>{run.data(), run.data() + n}, Counted{key}) -
                    run.data(),
                std::lower_bound(run.begin(), run.end(), Counted{key}) - run.begin());
    }
  }
  std::vector<Counted> run(1 << 20);
  for (std::size_t i = 0; i < run.size(); ++i) run[i].value = static_cast<int>(i);
  looks = 0;
  apps::lower_bound_near_middle(apps::Run<Counted>{run.data(), run.data() + run.size()},
                                Counted{(1 << 19) + 700});
  EXPECT_LE(looks, 14u);  // bisection: 20
}

// Pieces that are named one after the other, whichever way it goes: each element once, in pieces that end
// where their size in memory does, early or late as was asked for.
TEST(InOrder, NamesWholePiecesOnce) {
  using Range = apps::InOrder<double>;
  constexpr std::size_t kPiece = Range::kPiece;
  std::vector<double> memory(7 * kPiece);
  double* const low = &memory[kPiece / 3 + 5];
  const auto at_end_of_piece = [](const double* p) {
    return reinterpret_cast<std::uintptr_t>(p) % Range::kPieceBytes == 0;
  };
  for (const auto direction : {apps::Direction::up, apps::Direction::down}) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, kPiece / 2, 2 * kPiece, 5 * kPiece + 77}) {
      for (const bool reaches : {true, false}) {
        for (const std::size_t row : {std::size_t{1000}, kPiece / 2 + 1, 3 * kPiece}) {
          Range range(low, n, direction);
          std::size_t named = 0;
          for (std::size_t done = 0;;) {
            const auto name = [&](const double* p, std::size_t count) {
              EXPECT_EQ(p, direction == apps::Direction::up ? low + named : low + n - named - count);
              named += count;
              const double* const end = direction == apps::Direction::up ? p + count : p;
              EXPECT_TRUE(named == n || at_end_of_piece(end));
            };
            if (reaches)
              range.reach(done, name);
            else
              range.pass(done, name);
            if (reaches) {
              EXPECT_TRUE(named >= std::min(done, n) && named < done + kPiece) << named << " of " << done;
            } else {
              EXPECT_TRUE(named <= done && named + kPiece + kPiece > std::min(done, n))
                  << named << " of " << done;
            }
            if (done >= n) break;
            done = std::min(n, done + row);
          }
          EXPECT_EQ(named, n);
        }
      }
    }
  }
}

/// Notes which elements are given up, and overwrites them.
struct GivesUp : apps::Serial {
  static inline std::vector<int>* given_up = nullptr;
  static inline const double* plate = nullptr;
  static void consumed(const double* p, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) ++given_up->at(static_cast<std::size_t>(p - plate) + i);
    std::fill_n(const_cast<double*>(p), n, -5);
  }
};

// Of a part of the plate whose ends neighbours read, too.
TEST(Stencil, RowsThatAreGivenUpAreReadNoMore) {
  const apps::Plate plate{2000};
  const std::vector<double> start = stencil_start(plate);
  std::vector<double> right(plate.points(), -1);
  plate.step_rows<apps::Serial>(right.data(), start.data(), 300, 1700, apps::Plate::Order::down);
  for (const auto order : {apps::Plate::Order::down, apps::Plate::Order::up}) {
    std::vector<double> from = start, result(plate.points(), -1);
    std::vector<int> given_up(plate.points());
    GivesUp::given_up = &given_up, GivesUp::plate = from.data();
    plate.step_rows<GivesUp>(result.data(), from.data(), 300, 1700, order);
    EXPECT_EQ(result, right);
    for (std::size_t i = 0; i < plate.points(); ++i) {
      const std::size_t row = i / plate.pitch();
      ASSERT_LE(given_up[i], row >= 301 && row < 1699 ? 1 : 0) << i;
    }
    EXPECT_GE(std::count(given_up.begin(), given_up.end(), 1),
              1300 * static_cast<std::ptrdiff_t>(plate.pitch()));
  }
}

TEST(Stencil, WritesItsRowsOnly) {
  const apps::Plate plate{20};
  const std::vector<double> start = stencil_start(plate);
  std::vector<double> to(plate.points(), -1), in_place = start,
                                              copies(apps::Plate::Halo::size(plate, 4) * plate.pitch());
  plate.step_rows<apps::Serial>(to.data(), start.data(), 7, 12, apps::Plate::Order::down);
  const apps::Plate::Halo halo(plate, 7, 12, 4, copies.data());
  halo.copy<apps::Serial>(in_place.data());
  plate.advance_rows<apps::Serial>(in_place.data(), halo, 4, apps::Plate::Order::down);
  for (std::size_t i = 0; i < plate.points(); ++i) {
    const std::size_t row = i / plate.pitch(), column = i % plate.pitch();
    const bool own = row >= 7 && row < 12;
    EXPECT_EQ(to[i] == -1, !own) << i;
    EXPECT_EQ(in_place[i] == start[i], !own || column == 0 || column > plate.n) << i;
  }
}

TEST(Stencil, ModesDecayAsTheySay) {
  const apps::Plate plate{30};
  std::vector<double> rows(plate.points());
  plate.set_rows(rows.data(), 0, plate.pitch());
  plate.advance_rows<apps::Serial>(rows.data(), apps::Plate::Halo(plate), 10, apps::Plate::Order::down);
  for (std::size_t i = 1; i <= plate.n; ++i)
    for (std::size_t j = 1; j <= plate.n; ++j)
      EXPECT_NEAR(rows[i * plate.pitch() + j], std::pow(plate.decay(), 10) * plate.mode(i, j), 1e-15);
}

}  // namespace
