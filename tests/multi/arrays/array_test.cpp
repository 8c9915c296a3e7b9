// SPDX-License-Identifier: Apache-2.0
// Every operation on arrays gives what a dense vector gives, for random shapes, distributions and patches.
// Threads compute, main expects. ARRAYS_SEED=N replays one seed.
#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <kasane/array.hpp>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "drawn.h"

namespace kasane::test {
namespace {

/// ARRAYS_TIMES=N: so many times the seeds.
unsigned times() {
  const char* const given = std::getenv("ARRAYS_TIMES");
  return given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 1;
}

/// Runs body(random), which returns what is wrong, as a root thread, for some seeds.
template <class F>
void for_seeds(unsigned seeds, const F& body) {
  const char* const given = std::getenv("ARRAYS_SEED");
  const unsigned first = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 1;
  const unsigned last = first + (given != nullptr ? 1 : seeds * times());
  for (unsigned seed = first; seed < last; ++seed) {
    const std::string wrong = kasane::run([&body, seed] {
      Random random(seed);
      return body(random);
    });
    EXPECT_EQ(wrong, "") << "seed " << seed;
    if (!wrong.empty()) return;
  }
}

// ---- patches ---------------------------------------------------------------------------------------------

/// A patch in the caller's memory, with gaps that nothing may change.
template <class T, std::size_t N>
class Patch {
 public:
  Patch(Random& random, const box<N>& b) : box_(b) {
    std::size_t n = b.extent(0);
    std::array<std::size_t, (N > 1 ? N - 1 : 1)> extents{};
    for (std::size_t d = 1; d < N; ++d) {
      extents[d - 1] = b.extent(d) + random() % 3;
      n *= extents[d - 1];
    }
    if constexpr (N > 1)
      for (std::size_t d = 1; d < N; ++d) ld_.extents[d - 1] = extents[d - 1];
    values_.assign(n, kGap);
  }
  [[nodiscard]] const leading<N>& ld() const { return ld_; }
  [[nodiscard]] T* data() { return values_.data(); }
  [[nodiscard]] T& at(const std::array<std::size_t, N>& i) {
    std::size_t k = i[0] - box_.first[0];
    for (std::size_t d = 1; d < N; ++d) k = k * ld_.extents[d - 1] + i[d] - box_.first[d];
    return values_[k];
  }
  void draw(Random& random) {
    each_index(box_, [&](const auto& i) { at(i) = number<T>(random); });
  }
  [[nodiscard]] bool gaps_stand() {
    const auto n = static_cast<std::size_t>(std::count(values_.begin(), values_.end(), kGap));
    return n == values_.size() - box_.size();
  }

 private:
  static constexpr T kGap = T(4711);
  box<N> box_;
  leading<N> ld_;
  std::vector<T> values_;
};

template <class T, std::size_t N>
class PatchOperations {
 public:
  explicit PatchOperations(Random& random)
      : random_(random),
        right_(draw_extents<N>(random), random),
        a_(same_as(right_, random, ghosts(random() % 2))) {}

  std::string run() {
    for (int i = 0; i < 24; ++i) {
      const std::string wrong = one(random_() % 7);
      if (!wrong.empty()) return wrong;
    }
    return difference(a_, right_, "at the end");
  }

 private:
  std::string one(std::size_t kind) {
    switch (kind) {
      case 0: return get();
      case 1: return put(false);
      case 2: return put(true);
      case 3: return accumulate();
      case 4: return elements();
      case 5: return everywhere();
      default: return get_async();
    }
  }
  std::string get() {
    const auto b = draw_box(random_, right_.extents);
    Patch<T, N> p(random_, b);
    a_.get(b, p.data(), p.ld());
    return compare(b, p, "get");
  }
  std::string compare(const box<N>& b, Patch<T, N>& p, const std::string& what) {
    std::string wrong;
    each_index(b, [&](const auto& i) {
      if (p.at(i) != right_.at(i)) wrong = what + " of " + text(i);
    });
    return !wrong.empty() || p.gaps_stand() ? wrong : what + " wrote beside its patch";
  }
  std::string get_async() {
    const auto b = draw_box(random_, right_.extents), c = draw_box(random_, right_.extents);
    Patch<T, N> p(random_, b), q(random_, c);
    pending_group group;
    a_.get_async(b, p.data(), p.ld(), group);
    a_.get_async(c, q.data(), q.ld(), group);
    group.wait();
    const std::string wrong = compare(b, p, "get_async");
    return wrong.empty() ? compare(c, q, "the second get_async") : wrong;
  }
  std::string put(bool async) {
    const auto b = draw_box(random_, right_.extents);
    Patch<T, N> p(random_, b);
    p.draw(random_);
    if (async) {
      pending_group group;
      a_.put_async(b, p.data(), p.ld(), group);
      group.wait();
    } else {
      a_.put(b, p.data(), p.ld());
    }
    each_index(b, [&](const auto& i) { right_.at(i) = p.at(i); });
    return difference(a_, right_, "put");
  }
  std::string accumulate() {
    if constexpr (requires { detail::element<T>::value; }) {
      const auto b = draw_box(random_, right_.extents);
      Patch<T, N> p(random_, b);
      p.draw(random_);
      const T alpha = number<T>(random_);
      a_.accumulate(b, p.data(), p.ld(), alpha);
      pending_group group;
      a_.accumulate_async(b, p.data(), p.ld(), T(1), group);
      group.wait();
      each_index(b, [&](const auto& i) { right_.at(i) = right_.at(i) + (alpha + T(1)) * p.at(i); });
      // numbers stay small
      if (draw(random_, 0, 1) == 0) {
        std::fill(right_.values.begin(), right_.values.end(), T(1));
        a_.put(a_.all(), right_.values.data());
      }
      return difference(a_, right_, "accumulate");
    }
    return "";
  }
  std::string elements() {
    const auto i = draw_box(random_, right_.extents).first;
    if (a_.get(i) != right_.at(i)) return "get of the element " + text(i);
    if constexpr (std::is_arithmetic_v<T> && sizeof(T) >= 4) {
      if (a_.fetch_add(i, T(3)) != right_.at(i)) return "fetch_add of " + text(i);
      right_.at(i) = static_cast<T>(right_.at(i) + T(3));
    }
    if (a_.get(i) != right_.at(i)) return "get after fetch_add of " + text(i);
    a_.set(i, right_.at(i) = number<T>(random_));
    return difference(a_, right_, "set");
  }
  std::string everywhere() {
    std::vector<std::array<std::size_t, N>> indices(draw(random_, 0, 700));
    for (auto& i : indices) i = draw_box(random_, right_.extents).first;
    std::vector<T> values(indices.size());
    for (T& x : values) x = number<T>(random_);
    a_.gather(indices, values);
    for (std::size_t k = 0; k < indices.size(); ++k)
      if (values[k] != right_.at(indices[k])) return "gather of " + text(indices[k]);
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    values.resize(indices.size());
    for (std::size_t k = 0; k < indices.size(); ++k) right_.at(indices[k]) = values[k] = number<T>(random_);
    a_.scatter(indices, values);
    return difference(a_, right_, "scatter");
  }

  Random& random_;
  Oracle<T, N> right_;
  array<T, N> a_;
};

template <class T, std::size_t N>
void try_patches() {
  for_seeds(6, [](Random& random) { return PatchOperations<T, N>(random).run(); });
}
TEST(Array, PatchesOfOneDimension) { try_patches<std::int64_t, 1>(); }
TEST(Array, PatchesOfTwoDimensions) {
  try_patches<double, 2>();
  try_patches<std::int32_t, 2>();
  try_patches<float, 2>();
}
TEST(Array, PatchesOfThreeAndFourDimensions) {
  try_patches<double, 3>();
  try_patches<std::complex<float>, 3>();
  try_patches<std::complex<double>, 4>();
}
TEST(Array, PatchesOfElementsWithoutArithmetic) { try_patches<std::uint16_t, 2>(); }

TEST(Array, ThreadsOfAllRanksAccumulateAndCount) {
  for_seeds(3, [](Random& random) -> std::string {
    constexpr std::size_t n = 70;
    constexpr std::uint64_t kThreads = 12, kTimes = 10;
    array<double, 2> a({n, n}, draw_distribution<2>(random, {n, n}));
    array<std::int64_t, 1> counter({1});
    a.fill(0);
    counter.fill(0);
    parallel_for(
        std::uint64_t{0}, kThreads,
        [&](std::uint64_t) {
          std::vector<double> ones(n * n, 1);
          for (std::uint64_t i = 0; i < kTimes; ++i) {
            a.accumulate(a.all(), ones.data(), n, 0.5);
            counter.fetch_add({0}, 1);
            this_thread::yield();
          }
        },
        1);
    if (counter.get({0}) != kThreads * kTimes) return "counted " + std::to_string(counter.get({0}));
    const double sum = a.sum();
    return sum == n * n * kThreads * kTimes * 0.5 ? "" : "sum " + std::to_string(sum);
  });
}

// ---- bulk operations -------------------------------------------------------------------------------------

template <class T, std::size_t N>
std::string bulk(Random& random) {
  const auto extents = draw_extents<N>(random);
  Oracle<T, N> x(extents, random), y(extents, random), z(extents);
  auto a = same_as(x, random, ghosts(random() % 3 == 0 ? 1 : 0));
  const auto b = same_as(y, random);
  array<T, N> c(extents, draw_distribution(random, extents), ghosts(random() % 2));
  std::string wrong;
  const auto expect = [&](const array<T, N>& is, const char* what) {
    if (wrong.empty()) wrong = difference(is, z, what);
  };
  const auto each = [&](auto f) {
    for (std::size_t i = 0; i < z.values.size(); ++i) z.values[i] = f(x.values[i], y.values[i]);
  };
  c.fill(T(5));
  each([](T, T) { return T(5); });
  expect(c, "fill");
  copy(a, c);
  each([](T p, T) { return p; });
  expect(c, "copy");
  c.scale(T(3));
  each([](T p, T) { return static_cast<T>(T(3) * p); });
  expect(c, "scale");
  add(T(2), a, T(-1), b, c);
  each([](T p, T q) { return static_cast<T>(T(2) * p - q); });
  expect(c, "add");
  transform(a, b, c, [](T p, T q) { return static_cast<T>(p * q + T(1)); });
  each([](T p, T q) { return static_cast<T>(p * q + T(1)); });
  expect(c, "transform");
  const T sum = std::accumulate(z.values.begin(), z.values.end(), T(0));
  if (wrong.empty() && c.sum() != sum) wrong = "sum";
  if (wrong.empty() &&
      dot(a, b) != std::inner_product(x.values.begin(), x.values.end(), y.values.begin(), T(0)))
    wrong = "dot";
  if constexpr (std::is_arithmetic_v<T>) {
    if (wrong.empty() && c.min() != *std::min_element(z.values.begin(), z.values.end())) wrong = "min";
    if (wrong.empty() && c.max() != *std::max_element(z.values.begin(), z.values.end())) wrong = "max";
  }
  transform(a, a, [](T p) { return static_cast<T>(p + T(1)); });  // in place
  each([](T p, T) { return static_cast<T>(p + T(1)); });
  expect(a, "transform in place");
  return wrong;
}
TEST(Array, BulkOperations) {
  for_seeds(8, bulk<double, 1>);
  for_seeds(8, bulk<double, 2>);
  for_seeds(4, bulk<std::int64_t, 3>);
  for_seeds(4, bulk<std::complex<double>, 2>);
  for_seeds(4, bulk<std::int32_t, 4>);
}

TEST(Array, Transpose) {
  for_seeds(10, [](Random& random) {
    const auto extents = draw_extents<2>(random);
    Oracle<float, 2> x(extents, random), turned({extents[1], extents[0]});
    const auto a = same_as(x, random);
    array<float, 2> b(turned.extents, draw_distribution<2>(random, turned.extents));
    transpose(a, b);
    each_index(x.all(), [&](const auto& i) { turned.at({i[1], i[0]}) = x.at(i); });
    return difference(b, turned, "transpose");
  });
}

/// Patch operations, loads and stores by turns: each sees what came before.
TEST(Array, BulkOperationsAndPatchesSeeEachOther) {
  for_seeds(6, [](Random& random) {
    Oracle<double, 2> x(draw_extents<2>(random), random);
    auto a = same_as(x, random);
    std::string wrong;
    for (int turn = 0; turn < 6 && wrong.empty(); ++turn) {
      a.for_each_part(
          [](auto part) {
            for (std::size_t i = 0; i < part.extent(0); ++i)
              for (std::size_t j = 0; j < part.extent(1); ++j)
                part(i, j) = 2 * part(i, j) + static_cast<double>(part.first(0) + i);
          },
          draw(random, 1, 500));
      each_index(x.all(), [&](const auto& i) { x.at(i) = 2 * x.at(i) + static_cast<double>(i[0]); });
      const auto b = draw_box(random, x.extents);
      const std::vector<double> patch(b.size(), turn);
      a.put(b, patch.data());
      each_index(b, [&](const auto& i) { x.at(i) = turn; });
      if (turn % 2 == 1) wrong = difference(a, x, "after turns");
    }
    return wrong;
  });
}

/// A rank keeps what it has read of another's, and changes that directly; then it reads it again.
TEST(Array, BulkOperationsSeeWhatTheirCallerPutAtAnotherRank) {
  const std::string wrong = kasane::run([]() -> std::string {
    constexpr std::size_t n = 8192;
    array<double, 2> a({ranks(), n}, blocks{ranks(), 1}), out({ranks(), n}, blocks{1, 1});
    std::vector<double> row(n), seen(n);
    for (int turn = 0; turn < 30; ++turn) {
      this_thread::move_near(out.address({0, 0}).get());
      std::fill(row.begin(), row.end(), turn);
      for (std::size_t r = 0; r < ranks(); ++r) a.put({{r, 0}, {r + 1, n}}, row.data());
      copy(a, out);
      for (std::size_t r = 0; r < ranks(); ++r) {
        out.get({{r, 0}, {r + 1, n}}, seen.data());
        if (seen != row) return "turn " + std::to_string(turn) + ", row " + std::to_string(r);
      }
    }
    return "";
  });
  EXPECT_EQ(wrong, "");
}

TEST(Array, ElementsLieAtTheirOwners) {
  for_seeds(10, [](Random& random) -> std::string {
    const auto extents = draw_extents<2>(random);
    array<double, 2> a(extents, draw_distribution(random, extents));
    std::string wrong;
    each_index(a.all(), [&](const auto& i) {
      if (where(a.address(i).get()) != a.owner(i)) wrong = text(i);
    });
    return wrong;
  });
}

TEST(Array, LocalPartsAreTheWholeArray) {
  for_seeds(6, [](Random& random) -> std::string {
    const auto extents = draw_extents<3>(random);
    array<std::int32_t, 3> a(extents, draw_distribution(random, extents), ghosts(1));
    a.fill(0);
    std::vector<thread> threads;
    array<std::int32_t, 1> at_ranks({ranks() * 16384}, blocks{ranks()});  // one block a rank
    for (std::uint32_t r = 0; r < ranks(); ++r)
      threads.emplace_back(near{at_ranks.address({r * 16384}).get()}, [&a] {
        for (auto part : a.local())
          for (std::size_t i = 0; i < part.extent(0); ++i)
            for (std::size_t j = 0; j < part.extent(1); ++j)
              for (std::size_t k = 0; k < part.extent(2); ++k) part(i, j, k) += 1;
      });
    for (auto& t : threads) t.join();
    release_all();
    if (a.min() != 1 || a.max() != 1) return "not every element once";
    return a.owner({0, 0, 0}) == 0 ? "" : "element 0 is not at rank 0";
  });
}

// ---- ghosts ----------------------------------------------------------------------------------------------

/// Every ghost cell of the array, as an index that may be outside, and what it should be.
template <std::size_t N>
std::string check_ghosts(array<std::int64_t, N>& a, Oracle<std::int64_t, N>& right, boundary edges) {
  constexpr std::int64_t kBefore = -77;
  std::vector<std::string> wrong(1);
  detail::reduce_at_owners<detail::Nothing>(
      a.layout(),
      [&](std::size_t k, std::size_t t) {
        const auto tile = detail::tile_of<N>(a.layout(), k, t);
        box<N> shell{{}, {}};  // with ghosts, from the corner on
        for (std::size_t d = 0; d < N; ++d) shell.last[d] = tile.extent(d) + 2 * a.layout().ghost[d];
        each_index(shell, [&](const auto& at) {
          std::array<std::size_t, N> i;
          std::ptrdiff_t offset = 0;
          bool outside = false;
          for (std::size_t d = 0; d < N; ++d) {
            const auto n = static_cast<std::ptrdiff_t>(a.extent(d));
            const auto from_tile =
                static_cast<std::ptrdiff_t>(at[d]) - static_cast<std::ptrdiff_t>(a.layout().ghost[d]);
            const auto g = static_cast<std::ptrdiff_t>(tile.first[d]) + from_tile;
            outside |= g < 0 || g >= n;
            i[d] = static_cast<std::size_t>((g + n) % n);
            offset += from_tile * static_cast<std::ptrdiff_t>(a.layout().stride[d]);
          }
          const auto is = *reinterpret_cast<const std::int64_t*>(
              reinterpret_cast<const std::byte*>(a.address(tile.first).get()) + offset);
          const std::int64_t should = outside && edges == boundary::kept ? kBefore : right.at(i);
          if (is != should) wrong[0] = "around the tile at " + text(tile.first) + " for " + text(i);
        });
        return detail::Nothing();
      },
      std::plus<>());
  return wrong[0];
}

template <std::size_t N>
std::string try_ghosts(Random& random) {
  const boundary edges = random() % 2 == 0 ? boundary::kept : boundary::periodic;
  Oracle<std::int64_t, N> right(draw_extents<N>(random), random);
  ghosts around(0, edges);
  around.dimensions = N;
  for (std::size_t d = 0; d < N; ++d)
    around.widths[d] = std::min<std::size_t>(random() % 4, right.extents[d]);
  array<std::int64_t, N> a(right.extents, draw_distribution(random, right.extents), around);
  a.fill(-77);
  a.put(a.all(), right.values.data());
  a.update_ghosts();
  return check_ghosts(a, right, edges);
}
TEST(Array, GhostsAreTheNeighboursElements) {
  for_seeds(12, try_ghosts<1>);
  for_seeds(12, try_ghosts<2>);
  for_seeds(8, try_ghosts<3>);
}

TEST(Array, StencilWithGhosts) {
  for_seeds(4, [](Random& random) {
    Oracle<std::int64_t, 2> x(draw_extents<2>(random), random);
    const auto how = draw_distribution(random, x.extents);
    array<std::int64_t, 2> a(x.extents, how, ghosts(1, boundary::periodic)), b(x.extents, how);
    a.put(a.all(), x.values.data());
    for (int step = 0; step < 3; ++step) {
      a.update_ghosts();
      b.for_each_part([&a](auto out) {
        const auto in = a.view_of(out.where());
        for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(out.extent(0)); ++i)
          for (std::ptrdiff_t j = 0; j < static_cast<std::ptrdiff_t>(out.extent(1)); ++j)
            out(i, j) = in(i, j) + in(i - 1, j - 1) - 2 * in(i + 1, j) + in(i, j + 1);
      });
      copy(b, a);
      Oracle<std::int64_t, 2> y = x;
      const auto at = [&](std::size_t i, std::size_t j, int di, int dj) {
        const std::size_t n = x.extents[0], m = x.extents[1];
        return x.at({(i + n + static_cast<std::size_t>(di)) % n, (j + m + static_cast<std::size_t>(dj)) % m});
      };
      each_index(x.all(), [&](const auto& i) {
        y.at(i) =
            at(i[0], i[1], 0, 0) + at(i[0], i[1], -1, -1) - 2 * at(i[0], i[1], 1, 0) + at(i[0], i[1], 0, 1);
      });
      x = y;
    }
    return difference(a, x, "stencil");
  });
}

// ---- gemm ------------------------------------------------------------------------------------------------

#ifdef KASANE_HAVE_BLAS
template <class T>
std::string try_gemm(Random& random) {
  const std::size_t m = draw(random, 1, 150), n = draw(random, 1, 150), k = draw(random, 1, 150);
  Oracle<T, 2> x({m, k}, random), y({k, n}, random), z({m, n}, random);
  const auto a = same_as(x, random, ghosts(random() % 2)), b = same_as(y, random);
  auto c = same_as(z, random);
  const T alpha = number<T>(random), beta = number<T>(random);
  gemm(alpha, a, b, beta, c);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      T sum{};
      for (std::size_t l = 0; l < k; ++l) sum += x.at({i, l}) * y.at({l, j});
      z.at({i, j}) = alpha * sum + beta * z.at({i, j});
    }
  return difference(c, z, "gemm");
}
TEST(Array, Gemm) {
  for_seeds(8, try_gemm<double>);
  for_seeds(4, try_gemm<float>);
  for_seeds(4, try_gemm<std::complex<double>>);
  for_seeds(4, try_gemm<std::complex<float>>);
}
TEST(Array, GemmOfManyPieces) {
  for_seeds(2, [](Random& random) -> std::string {
    const std::size_t n = draw(random, 600, 900);
    array<double, 2> a({n, n}, draw_distribution<2>(random, {n, n})), b({n, n}), c({n, n}, tiles{200, 300});
    a.fill(1);
    b.fill(2);
    c.fill(std::numeric_limits<double>::quiet_NaN());  // not read
    gemm(1.0, a, b, 0.0, c);
    const double right = 2 * static_cast<double>(n);
    return c.min() == right && c.max() == right ? "" : "n = " + std::to_string(n);
  });
}
#endif

// ---- files -----------------------------------------------------------------------------------------------

class Files : public testing::Test {
 protected:
  Files() {
    std::string name = (std::filesystem::temp_directory_path() / "kasane-arrays-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~Files() override { std::filesystem::remove_all(folder); }
  [[nodiscard]] std::string file(const std::string& name) const { return folder + "/" + name; }
  std::string folder;
};

template <class T, std::size_t N>
std::string there_and_back(Random& random, const std::string& path) {
  Oracle<T, N> x(draw_extents<N>(random), random);
  same_as(x, random, ghosts(random() % 2)).save(path);
  const auto b = array<T, N>::load(path, draw_distribution(random, x.extents), ghosts(1));
  for (std::size_t d = 0; d < N; ++d)
    if (b.extent(d) != x.extents[d]) return "extents";
  return difference(b, x, "load");
}
TEST_F(Files, SaveAndLoad) {
  const std::string path = file("a.npy");
  for_seeds(3, [&](Random& random) { return there_and_back<double, 1>(random, path); });
  for_seeds(3, [&](Random& random) { return there_and_back<std::int32_t, 2>(random, path); });
  for_seeds(3, [&](Random& random) { return there_and_back<std::complex<float>, 3>(random, path); });
  for_seeds(3, [&](Random& random) { return there_and_back<std::uint8_t, 4>(random, path); });
  for_seeds(1, [&](Random&) -> std::string {  // more than a slab, and rows longer than one
    array<double, 2> a({3, 200'000}, tiles{2, 50'000});
    a.for_each_part([](auto part) {
      for (std::size_t i = 0; i < part.extent(0); ++i)
        for (std::size_t j = 0; j < part.extent(1); ++j)
          part(i, j) = static_cast<double>((part.first(0) + i) * 200'000 + part.first(1) + j);
    });
    a.save(path);
    auto b = array<double, 2>::load(path);
    add(1, a, -1, b, b);
    return b.min() == 0 && b.max() == 0 && b.get({2, 199'999}) == 0 ? "" : "large";
  });
  EXPECT_FALSE(std::filesystem::exists(path + ".kasane-new"));
}

TEST_F(Files, TheBytesAreNumPys) {
  const std::string path = file("a.npy");
  kasane::run([&] {
    array<double, 2> a({2, 3});
    const double values[] = {1, 2, 3, 4, 5, 6};
    a.put(a.all(), values);
    a.save(path);
  });
  std::stringstream file_text;
  file_text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = file_text.str();
  std::string header("\x93NUMPY\1\0\x76\0", 10);
  header += "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }";
  header.append(127 - header.size(), ' ');
  header += '\n';
  ASSERT_EQ(bytes.size(), header.size() + 48);
  EXPECT_EQ(bytes.substr(0, header.size()), header);
}

/// The code and the text of the kasane::error that f throws.
template <class F>
std::pair<int, std::string> error_of(const F& f) {
  return kasane::run([&]() -> std::pair<int, std::string> {
    try {
      f();
    } catch (const error& e) {
      return {e.code(), e.what()};
    }
    return {0, "nothing was thrown"};
  });
}
void expect_error(const std::pair<int, std::string>& is, int code, const char* part) {
  EXPECT_EQ(is.first, code) << is.second;
  EXPECT_NE(is.second.find(part), std::string::npos) << is.second;
}

TEST_F(Files, WrongFilesAreRefused) {
  using Doubles = array<double, 2>;
  const std::string path = file("a.npy");
  expect_error(error_of([&] { static_cast<void>(Doubles::load(path)); }), ENOENT, "a.npy");
  expect_error(error_of([&] { Doubles({2, 2}).save(file("no/a.npy")); }), ENOENT, "create the directory");
  std::ofstream(path) << "this is no array at all, but long enough";
  expect_error(error_of([&] { static_cast<void>(Doubles::load(path)); }), EINVAL, "numpy.save");
  kasane::run([&] { array<float, 2>({4, 4}).save(path); });
  expect_error(error_of([&] { static_cast<void>(Doubles::load(path)); }), EINVAL, "<f4");
  expect_error(error_of([&] { static_cast<void>(array<float, 3>::load(path)); }), EINVAL, "2 dimensions");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  expect_error(error_of([&] { static_cast<void>(array<float, 2>::load(path)); }), EIO, "cut off");
}

TEST_F(Files, DamagedHeadersAreRefusedOrRead) {
  const std::string path = file("a.npy");
  kasane::run([&] { array<float, 2>({4, 4}).save(path); });
  std::stringstream whole;
  whole << std::ifstream(path, std::ios::binary).rdbuf();
  Random random(7);
  for (int i = 0; i < 400; ++i) {
    std::string bytes = whole.str();
    for (std::size_t k = draw(random, 1, 3); k > 0; --k)
      bytes[draw(random, 0, 75)] = static_cast<char>(draw(random, 0, 255));
    std::ofstream(path, std::ios::binary) << bytes;
    kasane::run([&] {
      try {
        static_cast<void>(array<float, 2>::load(path));
      } catch (const error&) {
      } catch (const std::bad_alloc&) {  // large extents
      }
    });
  }
}

TEST(ArrayErrors, SayWhatIsWrong) {
  using Doubles = array<double, 2>;
  expect_error(error_of([] { Doubles({0, 3}); }), EINVAL, "dimension 0");
  expect_error(error_of([] { Doubles({4, 3}, tiles{2}); }), EINVAL, "tiles of 1 dimensions");
  expect_error(error_of([] { Doubles({4, 3}, tiles{2, 0}); }), EINVAL, "dimension 1");
  expect_error(error_of([] { Doubles({4, 3}, blocks(), ghosts(4)); }), EINVAL, "at most 3");
  expect_error(error_of([] { Doubles({std::size_t{1} << 40, std::size_t{1} << 40}); }), EINVAL, "2^62");
  double values[64] = {};
  expect_error(error_of([&] { Doubles({4, 3}).get({{0, 0}, {5, 3}}, values); }), EINVAL,
               "[0, 5) in dimension 0");
  expect_error(error_of([&] { Doubles({4, 3}).put({{2, 0}, {1, 3}}, values); }), EINVAL, "put: [2, 1)");
  expect_error(error_of([&] { Doubles({4, 3}).get({{0, 0}, {4, 3}}, values, 2); }), EINVAL, "at least 3");
  expect_error(error_of([&] { Doubles({4, 3}).fetch_add({4, 0}, 1); }), EINVAL, "index 4");
  expect_error(error_of([&] {
                 const Doubles::index i[] = {{0, 0}, {0, 3}};
                 Doubles({4, 3}).gather(i, std::span(values, 2));
               }),
               EINVAL, "index 3 of dimension 1");
  expect_error(error_of([&] {
                 const Doubles::index i[] = {{0, 0}, {0, 1}};
                 Doubles({4, 3}).gather(i, std::span(values, 3));
               }),
               EINVAL, "2 indices and 3 values");
  expect_error(error_of([] {
                 Doubles a({4, 3}), b({3, 4});
                 copy(a, b);
               }),
               EINVAL, "3 elements in dimension");
  expect_error(error_of([] {
                 Doubles a({4, 4});
                 transpose(a, a);
               }),
               EINVAL, "another array");
  expect_error(error_of([] { static_cast<void>(Doubles({4, 4}, tiles{2, 2}).view_of({{0, 0}, {3, 1}})); }),
               EINVAL, "several tiles");
}

TEST(ArrayErrors, BulkOperationsNeedAThread) {
  array<double, 2> a({40, 40});  // patches do not
  a.set({1, 1}, 5);
  EXPECT_EQ(a.get({1, 1}), 5);
  try {
    a.fill(1);
    ADD_FAILURE() << "fill outside of run()";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), EPERM);
  }
  EXPECT_EQ(a.get({1, 1}), 5);
}

TEST(ArrayErrors, ExceptionsOfFunctionsPass) {
  EXPECT_THROW(kasane::run([] {
                 array<int, 1> a({100'000});
                 a.for_each_part([](auto part) {
                   if (part.first(0) > 50'000) throw std::runtime_error("as expected");
                 });
               }),
               std::runtime_error);
}

}  // namespace
}  // namespace kasane::test
