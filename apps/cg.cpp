// SPDX-License-Identifier: Apache-2.0
// Conjugate gradients with a random sparse matrix: in every iteration each rank reads what it needs of a
// vector that all write, and all agree on sums.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <kasane/algorithm.hpp>
#include <kasane/team.hpp>
#include <string>

#include "cg/matrix.h"
#include "cg/solve.h"
#include "common/command_line.h"
#include "common/parallel.h"
#include "common/pieces.h"
#include "common/private_array.h"
#include "common/progress.h"
#include "common/report.h"

namespace {

/// Memory that belongs to the rank that touches it first, exactly.
template <class T>
kasane::unique_array<T> touched_first(std::size_t n) {
  return kasane::make_array<T>(n, kasane::placement::first_touch.in_pages(kasane::page_small));
}

/// A matrix in global memory, each member of a team owning its rows.
class Matrix {
 public:
  explicit Matrix(const apps::Recipe& recipe)
      : n_(recipe.n), start_(touched_first<std::uint64_t>(recipe.n + 1)) {
    const std::size_t n = n_;
    std::uint64_t* const start = start_.get();
    kasane::team([=](const kasane::member& me) {
      const auto [first, last] = me.part(0, n, apps::kChunk);
      for (std::size_t i = first; i < last; ++i) start[i] = recipe.entries_of(i);
      if (last == n) start[n] = 0;
    });
    kasane::run([=] { kasane::exclusive_scan(start, start + n + 1, start, std::uint64_t{0}); });
    entries_ = start[n];
    column_ = touched_first<std::uint32_t>(entries_);
    value_ = touched_first<double>(entries_);
    kasane::team([recipe, rows = rows()](const kasane::member& me) {
      const auto [first, last] = me.part(0, rows.n, apps::kChunk);
      for (std::size_t i = first; i < last; ++i) rows.make(recipe, i);
    });
  }
  [[nodiscard]] apps::Rows rows() const noexcept { return {n_, start_.get(), column_.get(), value_.get()}; }
  [[nodiscard]] std::uint64_t entries() const noexcept { return entries_; }

 private:
  std::size_t n_;
  std::uint64_t entries_ = 0;
  kasane::unique_array<std::uint64_t> start_;
  kasane::unique_array<std::uint32_t> column_;
  kasane::unique_array<double> value_;
};

int run(int argc, char** argv) {
  apps::CommandLine line("cg", "Conjugate gradients with a random sparse symmetric matrix of N rows");
  std::uint64_t n = 14'000, matchings = 160, iterations = 10'000;
  double tolerance = 1e-10;
  line.number("-n,--n", n, "Rows", 2, std::uint64_t{1} << 32);
  line.number("--matchings", matchings,
              "Entries of a row off the diagonal are three quarters of this, on average", 1, 100'000);
  line.number("--iterations", iterations, "Iterations at most", 1, 1'000'000);
  line.real("--tolerance", tolerance, "Residual to reach, over that of zero", 1e-12, 1);
  if (auto status = line.parse(argc, argv)) return *status;
  const std::uint64_t seed = line.common().seed;

  apps::Report report(line);
  report.parameter("n", n);
  report.parameter("matchings", matchings);
  report.parameter("tolerance", tolerance);
  report.parameter("seed", seed);
  const Matrix matrix(apps::Recipe{n, matchings, seed});
  const apps::Rows rows = matrix.rows();
  const auto x = touched_first<double>(n), r = touched_first<double>(n), p = touched_first<double>(n),
             q = touched_first<double>(n);
  const auto sums = kasane::make_array<double>(apps::Vectors::sum_elements(n));
  const apps::Vectors vectors{n, x.get(), r.get(), p.get(), q.get(), sums.get()};
  apps::Solution found;
  {
    apps::Progress progress("cg", 0, line.common().quiet);
    for (std::uint64_t k = 0; k < line.common().repeat; ++k) {
      report.measure([&] {
        kasane::team([&](kasane::member& me) {
          const apps::Solution mine = apps::Solver(rows, vectors, me)(tolerance, iterations);
          if (me.index() == 0) found = mine;
        });
      });
    }
  }
  // What the recurrence says it reached, and what it did.
  const double off = std::sqrt(kasane::run([=, x = x.get()] {
                                 return apps::sum_pieces<apps::Parallel>(
                                     0, n, apps::kChunk, [=](std::size_t i, std::size_t end) {
                                       double sum = 0;
                                       for (; i != end; ++i)
                                         sum += (1 - rows.times(x, i)) * (1 - rows.times(x, i));
                                       return sum;
                                     });
                               }) /
                               static_cast<double>(n));
  report.result("entries", matrix.entries());
  report.result("iterations", found.iterations);
  report.result("residual", off);
  report.verify(off <= 2 * tolerance, "the residual after " + std::to_string(found.iterations) +
                                          " iterations is " + std::to_string(off / tolerance) +
                                          " of the tolerance");

  if (line.common().serial) {
    apps::PrivateArray<std::uint64_t> start(rows.start, n + 1);
    apps::PrivateArray<std::uint32_t> column(rows.column, matrix.entries());
    apps::PrivateArray<double> value(rows.value, matrix.entries()), sx(n), sr(n), sp(n), sq(n),
        ss(apps::Vectors::sum_elements(n));
    report.measure_serial([&] {
      kasane::team_of_one([&](kasane::member& me) {
        (void)apps::Solver({n, start.get(), column.get(), value.get()},
                           {n, sx.get(), sr.get(), sp.get(), sq.get(), ss.get()}, me)(tolerance, iterations);
      });
    });
    report.verify(std::memcmp(x.get(), sx.get(), n * sizeof(double)) == 0,
                  "the solution is not that of the sequential elision, bit for bit");
  }
  return report.finish();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("cg", [&] { return run(argc, argv); });
}
