// SPDX-License-Identifier: Apache-2.0
// Six kernels on a graph from a file, a generator, or what this machine has, by kasane/graph.hpp.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <kasane/graph.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/command_line.h"
#include "common/report.h"
#include "common/text_file.h"
#include "graph/distances.h"
#include "graph/memory.h"
#include "graph/refused.h"
#include "graph/sources.h"

namespace {

namespace graph = kasane::graph;
using apps::graph::Refused;
using graph::vertex;

struct Wanted {
  std::string kernel = "bfs", file, format, includes, root, write, plot, result;
  std::uint64_t scale = 0, edge_factor = 16, grid = 0;
  bool debian = false, directed = false, reverse = false, distances = false;

  [[nodiscard]] int sources() const {
    return !file.empty() + (scale != 0) + (grid != 0) + debian + !includes.empty();
  }
};

template <class W>
void expect_memory(const std::string& what, double vertices, double edges) {
  if (const std::string beyond = apps::graph::beyond_memory(vertices, edges, !std::is_void_v<W>);
      !beyond.empty())
    throw Refused{what + beyond};
}

/// Weights are 1.
template <class W>
graph::file<W> with_weights(graph::file<> from) {
  if constexpr (std::is_void_v<W>) {
    return from;
  } else {
    graph::file<W> file{{from.list.vertices(), from.list.size()}, from.symmetric, std::move(from.names)};
    std::transform(from.list.begin(), from.list.end(), file.list.begin(),
                   [](const graph::edge<>& e) { return graph::edge<W>{e.from, e.to, 1}; });
    return file;
  }
}

template <class W>
graph::file<W> list_of(const Wanted& w, std::uint64_t seed) {
  if (w.scale != 0) {
    if (std::string wrong = apps::graph::wrong_with_scale(w.scale, w.edge_factor, !std::is_void_v<W>);
        !wrong.empty())
      throw Refused{wrong};
    return {graph::kronecker<W>(static_cast<unsigned>(w.scale), w.edge_factor), !w.directed, {}};
  }
  if (w.grid != 0) {
    const double vertices = static_cast<double>(w.grid) * static_cast<double>(w.grid);
    expect_memory<W>("--grid " + std::to_string(w.grid), vertices, 2 * vertices);
    return {graph::grid<W>(w.grid, w.grid, seed), !w.directed, {}};
  }
  if (w.debian) return with_weights<W>(apps::graph::debian_packages());
  if (!w.includes.empty()) return with_weights<W>(apps::graph::includes_under(w.includes));
  graph::file<W> f = graph::read<W>(w.file, w.format);
  expect_memory<W>(w.file, static_cast<double>(f.list.vertices()), static_cast<double>(f.list.size()));
  return f;
}

template <class W>
void reverse(graph::edges<W>& list) {
  for (graph::edge<W>& e : list) std::swap(e.from, e.to);
}

/// The vertex that --root names: by a name of the graph, else by its number. no_vertex: none is given.
vertex root_of(const std::string& text, const std::vector<std::string>& names) {
  if (text.empty()) return graph::no_vertex;
  if (const auto at = std::find(names.begin(), names.end(), text); at != names.end())
    return static_cast<vertex>(at - names.begin());
  vertex number = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (wrong != std::errc() || end != text.data() + text.size() || number == graph::no_vertex)
    throw Refused{"--root: there is no vertex " + text};
  return number;
}

/// Vertices with an edge, by the seed; or always the one that is given.
class Roots {
 public:
  explicit Roots(std::uint64_t seed) : state_(seed) {}
  void always(vertex root) { root_ = root; }
  template <class G>
  vertex next(const G& g) {
    if (root_ != graph::no_vertex) return root_;
    vertex v = 0;
    for (int tries = 0; tries < 1'000'000; ++tries) {
      state_ = state_ * 6364136223846793005 + 1442695040888963407;
      v = static_cast<vertex>((state_ >> 32) * g.vertices() >> 32);
      if (g.out_degree(v) != 0) break;
    }
    return v;
  }

 private:
  std::uint64_t state_;
  vertex root_ = graph::no_vertex;
};

template <class W>
class Run {
 public:
  Run(const Wanted& w, const apps::CommandLine& line, apps::Report& report)
      : w_(w), line_(line), report_(report), roots_(line.common().seed) {}

  int operator()() {
    graph::file<W> file;
    report_.measure_part("load", [&] {
      file = list_of<W>(w_, line_.common().seed);
      if (w_.reverse) reverse(file.list);
    });
    roots_.always(root_of(w_.root, file.names));
    report_.measure_part("build", [&] {
      g_ = graph::build(file.list, {.symmetric = file.symmetric || !w_.directed});
      file.list = {};
    });
    names_ = std::move(file.names);
    report_.result("vertices", g_.vertices());
    report_.result("edges", g_.symmetric() ? g_.size() / 2 : g_.size());
    report_.result("loops", g_.loops());
    report_.result("duplicates", g_.duplicates());
    if (!w_.write.empty()) graph::write(g_, w_.write);
    if (!w_.result.empty()) result_.emplace(w_.result);
    if (g_.vertices() == 0) {
      report_.verify(true, "");
      return report_.finish();
    }
    for (std::uint64_t k = 0; k < line_.common().repeat; ++k) one(k + 1 == line_.common().repeat);
    if (result_) result_->close();
    return report_.finish();
  }

 private:
  void verify(const std::string& wrong) { report_.verify(wrong.empty(), wrong); }
  [[nodiscard]] std::string name_of(vertex v) const {
    return v < names_.size() ? names_[v] : std::to_string(v);
  }

  /// Writes text(v) for each vertex, if that was asked for; "": nothing.
  template <class F>
  void save(F text) {
    if (!result_) return;
    for (vertex v = 0; v < g_.vertices(); ++v) {
      const std::string value = text(v), line = name_of(v) + " " + value;
      if (!value.empty()) result_->line(line.data(), line.size());
    }
  }
  [[nodiscard]] static std::string digits(double value, int n) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*g", n, value);
    return text;
  }

  void one(bool is_last) {
    if (w_.kernel == "bfs") return bfs(is_last);
    if (w_.kernel == "sssp") return sssp(is_last);
    if (w_.kernel == "bc") return bc(is_last);
    if (w_.kernel == "cc") return cc(is_last);
    if (w_.kernel == "pr") return pr(is_last);
    tc(is_last);
  }

  void bfs(bool is_last) {
    const vertex root = roots_.next(g_);
    graph::tree t;
    report_.measure([&] { t = graph::bfs(g_, root); });
    verify(graph::check_bfs(g_, t));
    if (!is_last) return;
    report_.result("root", name_of(root));
    report_.result("reached", t.reached);
    report_.result("input_edges", t.input_edges);
    report_.result("depth", std::uint64_t{t.depth});
    save([&](vertex v) { return t.parent[v] == graph::no_vertex ? "" : name_of(t.parent[v]); });
    if (!w_.distances && w_.plot.empty()) return;
    const apps::graph::Distances all(t, g_.vertices());
    if (w_.distances) all.report(report_, [&](vertex v) { return name_of(v); });
    if (!w_.plot.empty()) all.write_plot("distance from " + name_of(root), w_.plot);
  }
  void sssp(bool is_last) {
    if constexpr (!std::is_void_v<W>) {
      const vertex root = roots_.next(g_);
      graph::distances<W> d;
      report_.measure([&] { d = graph::sssp(g_, root); });
      verify(graph::check_sssp(g_, d));
      if (!is_last) return;
      std::uint64_t reached = 0;
      W longest = 0;
      for (std::uint64_t v = 0; v < g_.vertices(); ++v) {
        if (d.length[v] == graph::unreached<W>) continue;
        ++reached;
        longest = std::max(longest, d.length[v]);
      }
      report_.result("root", name_of(root));
      report_.result("reached", reached);
      report_.result("longest", static_cast<double>(longest));
      save([&](vertex v) { return d.length[v] == graph::unreached<W> ? "" : std::to_string(d.length[v]); });
    }
  }
  void cc(bool is_last) {
    graph::component_labels c;
    report_.measure([&] { c = graph::components(g_); });
    if (!is_last) return;
    verify(graph::check_components(g_, c));
    report_.result("components", c.count);
    save([&](vertex v) { return name_of(c.label[v]); });
  }
  void pr(bool is_last) {
    graph::page_scores p;
    report_.measure([&] { p = graph::pagerank(g_); });
    if (!is_last) return;
    verify(graph::check_pagerank(g_, p));
    report_.result("iterations", std::uint64_t{p.iterations});
    const auto best = std::max_element(p.score.get(), p.score.get() + g_.vertices());
    report_.result("first", name_of(static_cast<vertex>(best - p.score.get())));
    save([&](vertex v) { return digits(p.score[v], 9); });
  }
  void tc(bool is_last) {
    std::uint64_t n = 0;
    report_.measure([&] { n = graph::triangles(g_); });
    if (!is_last) return;
    verify(graph::check_triangles(g_, n));
    report_.result("triangles", n);
  }
  /// Large graphs: the sum over all vertices is that of the distances, less one each.
  void bc(bool is_last) {
    const std::vector<vertex> sources{roots_.next(g_)};
    kasane::unique_array<double> score;
    report_.measure([&] { score = graph::betweenness(g_, sources); });
    if (!is_last) return;
    if (g_.size() < 4'000'000) verify(graph::check_betweenness(g_, sources, score));
    double sum = 0, expected = 0;
    for (std::uint64_t v = 0; v < g_.vertices(); ++v) sum += score[v];
    const graph::tree t = graph::bfs(g_, sources[0]);
    for (vertex v = 0; v < g_.vertices(); ++v) {
      if (t.parent[v] == graph::no_vertex || v == t.root) continue;
      for (vertex u = t.parent[v]; u != t.root; u = t.parent[u]) ++expected;
    }
    report_.verify(std::abs(sum - expected) <= 1e-6 * (1 + expected),
                   "the scores' sum is " + std::to_string(sum) + ", not " + std::to_string(expected));
    report_.result("source", name_of(sources[0]));
    report_.result("sum", sum);
    save([&](vertex v) { return digits(score[v], 17); });
  }

  const Wanted& w_;
  const apps::CommandLine& line_;
  apps::Report& report_;
  Roots roots_;
  graph::csr<W> g_;
  std::vector<std::string> names_;
  std::optional<apps::LineWriter> result_;
};

void describe(const Wanted& w, apps::Report& report) {
  report.parameter("kernel", w.kernel);
  if (w.scale != 0)
    report.parameter("scale", w.scale), report.parameter("edge_factor", w.edge_factor);
  else if (w.grid != 0)
    report.parameter("grid", w.grid);
  else if (w.debian)
    report.parameter("file", "packages of Debian");
  else if (!w.includes.empty())
    report.parameter("includes", w.includes);
  else
    report.parameter("file", w.file);
}

int run(int argc, char** argv) {
  Wanted w;
  apps::CommandLine line("graph",
                         "A kernel on a graph: breadth-first search, shortest paths, components, PageRank, "
                         "triangles, or betweenness from one source");
  line.choice("kernel", w.kernel, {"bfs", "sssp", "cc", "pr", "tc", "bc"}, "What to compute");
  line.text("file", w.file,
            "The graph: .el .wel .gr .graph .mtx .sg .wsg .tuples .names, or - for standard input");
  line.text("--format", w.format, "Read the file as one with this suffix", "SUFFIX");
  line.number("--scale", w.scale, "Instead of a file, Graph500's Kronecker graph of 2^N vertices", 1, 63);
  line.number("--edge-factor", w.edge_factor, "With --scale, edges a vertex", 1, 1024);
  line.number("--grid", w.grid, "Instead of a file, the grid of N x N vertices", 1, 65535);
  line.toggle("--debian", w.debian,
              "Instead of a file, Debian's packages, and what each depends on (apt-cache dumpavail)");
  line.text("--includes", w.includes,
            "Instead of a file, the C and C++ files under DIR, and what each includes of them", "DIR");
  line.toggle("--directed", w.directed, "Edges go one way, unless the file says otherwise");
  line.toggle("--reverse", w.reverse,
              "Directed edges go the other way: to what needs, not to what is needed");
  line.text("--root", w.root,
            "Begin here, a name or a number; by default at a random vertex with an edge, another in each run",
            "VERTEX");
  line.toggle("--distances", w.distances,
              "bfs: say how many vertices there are at each distance, and the way to the farthest");
  line.text("--plot", w.plot, "bfs: write how many there are at each distance here, for `kasane plot`");
  line.needs("--reverse", "--directed");
  line.text("--write", w.write, "Write the graph to this file, in the format of its suffix");
  line.text(
      "--result", w.result,
      "Write a line for each vertex to this file: its name or number, and its parent (bfs; only what is "
      "reached), distance (sssp; likewise), component (cc) or score (pr, bc)");
  if (auto status = line.parse(argc, argv)) return *status;
  if (!w.result.empty() && w.kernel == "tc")
    throw Refused{"triangles are counted for the whole graph: omit --result"};
  if (w.sources() != 1) throw Refused{"give one of a file, --scale, --grid, --debian and --includes"};
  if ((w.distances || !w.plot.empty()) && w.kernel != "bfs")
    throw Refused{"--distances and --plot are for bfs"};
  if (line.common().serial) throw Refused{"there is no sequential elision of these kernels: omit --serial"};

  apps::Report report(line);
  describe(w, report);
  if (w.kernel == "sssp") return Run<std::int32_t>(w, line, report)();
  return Run<void>(w, line, report)();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::graph::guarded_or_refused("graph", [&] { return run(argc, argv); });
}
