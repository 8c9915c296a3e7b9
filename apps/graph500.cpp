// SPDX-License-Identifier: Apache-2.0
// The Graph500 benchmark by kasane/graph.hpp: the graph and the roots of the reference code 3.0.0, each
// result validated by the rules of the specification, and the lines of output of the reference code.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <kasane/graph.hpp>
#include <string>
#include <vector>

#include "common/options.h"
#include "graph/memory.h"
#include "graph/refused.h"

namespace {

namespace graph = kasane::graph;
using apps::graph::Refused;
using graph::vertex;

struct Wanted {
  std::uint64_t scale = 0, edge_factor = 16, roots = 64;
  std::string kernel = "bfs";
  bool quiet = false;
};

/// Seconds that f takes.
template <class F>
double timed(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// ---- output ----

/// The numbers that Graph500 gives of a series.
struct Statistics {
  double minimum, first_quartile, median, third_quartile, maximum, mean, deviation;

  explicit Statistics(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    const std::size_t n = x.size();
    const auto between = [&x](std::size_t a, std::size_t b) { return (x[a] + x[b]) / 2; };
    minimum = x.front(), maximum = x.back();
    first_quartile = between((n - 1) / 4, n / 4);
    median = between((n - 1) / 2, n / 2);
    third_quartile = between(n - 1 - n / 4, n - 1 - (n - 1) / 4);
    mean = deviation = 0;
    for (const double v : x) mean += v / static_cast<double>(n);
    for (const double v : x) deviation += (v - mean) * (v - mean);
    deviation = n > 1 ? std::sqrt(deviation / static_cast<double>(n - 1)) : 0;
  }
};

void print(const std::string& name, double value, int digits = 6) {
  std::printf("%-32s%.*g\n", (name + ":").c_str(), digits, value);
}
void print_series(const std::string& before, const std::string& what, const std::vector<double>& x,
                  int digits = 6) {
  const Statistics s(x);
  const auto line = [&](const char* name, double value) { print(before + name + what, value, digits); };
  line("min_", s.minimum);
  line("firstquartile_", s.first_quartile);
  line("median_", s.median);
  line("thirdquartile_", s.third_quartile);
  line("max_", s.maximum);
  line("mean_", s.mean);
  line("stddev_", s.deviation);
}
/// Traversed edges a second. Their mean is the harmonic one, whose error is that of N. Norris, "The standard
/// errors of the geometric and harmonic means and their application to index numbers" (1940).
void print_rates(const std::string& before, const std::vector<double>& seconds,
                 const std::vector<double>& edges) {
  std::vector<double> each(seconds.size());
  std::transform(seconds.begin(), seconds.end(), edges.begin(), each.begin(), std::divides<>());
  const Statistics s(each);
  print(before + "min_TEPS", 1 / s.maximum);
  print(before + "firstquartile_TEPS", 1 / s.third_quartile);
  print(before + "median_TEPS", 1 / s.median);
  print(before + "thirdquartile_TEPS", 1 / s.first_quartile);
  print(before + "max_TEPS", 1 / s.minimum);
  std::printf("%-29s!  %g\n", (before + "harmonic_mean_TEPS:").c_str(), 1 / s.mean);
  const double roots = each.size() > 1 ? std::sqrt(static_cast<double>(each.size() - 1)) : 1;
  print(before + "harmonic_stddev_TEPS", s.deviation / (s.mean * s.mean * roots));
}

// ---- the runs ----

/// What a kernel's runs gave, one number a root.
struct Runs {
  const char* name;    ///< in messages
  const char* before;  ///< in the lines of output
  std::vector<double> seconds, validation, edges;
};

/// Weights are void for breadth-first search alone.
template <class W>
class Benchmark {
 public:
  explicit Benchmark(const Wanted& w) : w_(w) {}

  int operator()() {
    graph::edges<W> list;
    generation_ = timed([&] { list = graph::kronecker<W>(static_cast<unsigned>(w_.scale), w_.edge_factor); });
    note("graph_generation", generation_);
    construction_ = timed([&] { g_ = graph::build(list); });
    note("construction_time", construction_);
    list = {};
    roots_ = graph::kronecker_roots(g_, w_.roots);
    if (roots_.empty()) throw Refused{"the graph has only edges from a vertex to itself: there is no root"};
    bool valid = run(bfs_, [this](std::size_t i) { return bfs(i); });
    if constexpr (!std::is_void_v<W>) valid = valid && run(sssp_, [this](std::size_t i) { return sssp(i); });
    if (valid)
      print_all();
    else
      std::printf("No results printed for invalid run.\n");
    if (std::fflush(stdout) == 0) return valid ? 0 : 1;
    std::perror("graph500: standard output");
    return 1;
  }

 private:
  struct Run {
    double seconds = 0, validation = 0, edges = 0;
    std::string wrong;  ///< empty: nothing
  };

  void note(const char* what, double seconds) const {
    if (!w_.quiet) std::fprintf(stderr, "%-31s %f s\n", (std::string(what) + ":").c_str(), seconds);
  }

  /// One run to warm up, then one from each root. False: a result is wrong.
  template <class F>
  bool run(Runs& all, F one) {
    (void)one(0);
    for (std::size_t i = 0; i < roots_.size(); ++i) {
      const Run r = one(i);
      if (!r.wrong.empty()) {
        std::fprintf(stderr, "graph500: %s from root %u is wrong: %s\n", all.name, roots_[i],
                     r.wrong.c_str());
        return false;
      }
      all.seconds.push_back(r.seconds);
      all.validation.push_back(r.validation);
      all.edges.push_back(r.edges);
      if (!w_.quiet)
        std::fprintf(stderr, "%s %zu from root %u: %g s, %.0f edges, %g TEPS, validated in %g s\n", all.name,
                     i, roots_[i], r.seconds, r.edges, r.edges / r.seconds, r.validation);
    }
    return true;
  }

  [[nodiscard]] Run bfs(std::size_t i) const {
    Run r;
    graph::tree t;
    r.seconds = timed([&] { t = graph::bfs(g_, roots_[i]); });
    r.validation = timed([&] { r.wrong = graph::check_bfs(g_, t); });
    r.edges = static_cast<double>(t.input_edges);
    return r;
  }
  /// The specification's result has parents, too. The edges are those of the search from the same root.
  [[nodiscard]] Run sssp(std::size_t i) const {
    Run r;
    graph::distances<W> d;
    kasane::unique_array<vertex> parents;
    r.seconds = timed([&] {
      d = graph::sssp(g_, roots_[i]);
      parents = graph::parents(g_, d);
    });
    r.validation = timed([&] { r.wrong = graph::check_sssp(g_, d, parents); });
    r.edges = bfs_.edges[i];
    return r;
  }

  void print_all() const {
    std::vector<const Runs*> kernels{&bfs_};
    if constexpr (!std::is_void_v<W>) kernels.push_back(&sssp_);
    print("SCALE", static_cast<double>(w_.scale), 20);
    print("edgefactor", static_cast<double>(w_.edge_factor), 20);
    print("NBFS", static_cast<double>(roots_.size()), 20);
    print("graph_generation", generation_);
    print("num_mpi_processes", kasane::ranks(), 20);
    print("construction_time", construction_);
    for (const Runs* k : kernels) print_series(k->before, "time", k->seconds);
    print_series("", "nedge", bfs_.edges, 11);
    for (const Runs* k : kernels) print_rates(k->before, k->seconds, k->edges);
    for (const Runs* k : kernels) print_series(k->before, "validate", k->validation);
  }

  const Wanted& w_;
  graph::csr<W> g_;
  std::vector<vertex> roots_;
  double generation_ = 0, construction_ = 0;
  Runs bfs_{"BFS", "bfs  ", {}, {}, {}}, sssp_{"SSSP", "sssp ", {}, {}, {}};
};

int run(int argc, char** argv) {
  Wanted w;
  apps::Options options(
      "graph500",
      "The Graph500 benchmark: breadth-first searches or also shortest paths in a Kronecker "
      "graph, each validated. Prints what the reference code 3.0.0 prints");
  options.number("--scale", w.scale, "The graph has 2^N vertices: 1 to 31", 1, 63);
  options.number("--edgefactor", w.edge_factor, "Edges a vertex", 1, 1024);
  options.choice("--kernel", w.kernel, {"bfs", "sssp"}, "sssp: shortest paths after the searches");
  options.number("--roots", w.roots, "How many roots", 1, 1'000'000);
  options.toggle("--quiet", w.quiet, "No progress on standard error");
  if (auto status = options.parse(argc, argv)) return *status;
  if (w.scale == 0) throw Refused{"give --scale N: the graph has 2^N vertices"};
  const bool has_weights = w.kernel == "sssp";
  if (std::string wrong = apps::graph::wrong_with_scale(w.scale, w.edge_factor, has_weights); !wrong.empty())
    throw Refused{wrong};
  return has_weights ? Benchmark<float>(w)() : Benchmark<void>(w)();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::graph::guarded_or_refused("graph500", [&] { return run(argc, argv); });
}
