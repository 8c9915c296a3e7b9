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

#include "multi/containers/on_ranks.h"
#include "operations.h"

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

TEST(Array, BulkOperations) {
  for_seeds(8, bulk<double, 1>);
  for_seeds(8, bulk<double, 2>);
  for_seeds(4, bulk<std::int64_t, 3>);
  for_seeds(4, bulk<std::complex<double>, 2>);
  for_seeds(4, bulk<std::int32_t, 4>);
}

TEST(Array, Transpose) { for_seeds(10, try_transpose); }

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
    for (std::uint32_t r = 0; r < ranks(); ++r)
      threads.emplace_back(at{r}, [&a, r] {
        kasane::test::go_to(r);  // it may have been stolen before it began
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

TEST(Array, GhostsAreTheNeighboursElements) {
  for_seeds(12, try_ghosts<1>);
  for_seeds(12, try_ghosts<2>);
  for_seeds(8, try_ghosts<3>);
}

TEST(Array, StencilWithGhosts) { for_seeds(4, try_stencil); }

// ---- gemm ------------------------------------------------------------------------------------------------

#ifdef KASANE_HAVE_BLAS
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
