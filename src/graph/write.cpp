// SPDX-License-Identifier: Apache-2.0
// Writes files of graphs, by one thread.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <kasane/graph.hpp>
#include <memory>
#include <string>
#include <vector>

#include "graph/layout.h"

namespace kasane::graph {

namespace detail {

[[nodiscard]] std::string suffix_of(const std::string& path);

namespace {

/// A file that is whole, or an error.
class Output {
 public:
  explicit Output(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) fail();
  }
  template <class... A>
  void print(const char* format, A... a) {
    if (std::fprintf(file_.get(), format, a...) < 0) fail();
  }
  void put(const void* p, std::size_t bytes) {
    if (bytes != 0 && std::fwrite(p, bytes, 1, file_.get()) != 1) fail();
  }
  template <class T>
  void put(const T& value) {
    put(&value, sizeof value);
  }
  void close() {
    if (std::fclose(file_.release()) != 0) fail();
  }

 private:
  struct Close {
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
  };
  [[noreturn]] void fail() const {
    const int code = errno;
    throw error(code, ("graph::write: " + path_ + ": " + std::strerror(code)).c_str());
  }
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

[[noreturn]] void refuse_suffix(const std::string& path, const char* known) {
  throw error(EINVAL, ("graph::write: " + path + ": the suffix is none of " + known).c_str());
}

/// The weight, or 1.
template <class W>
[[nodiscard]] auto weight_of(const edge<W>& e) noexcept {
  if constexpr (std::is_void_v<W>)
    return std::int32_t{1};
  else
    return e.weight;
}
/// So that it is read as it is.
template <class W>
[[nodiscard]] std::string text_of_weight(const edge<W>& e) {
  char text[32];
  const auto w = weight_of(e);
  return {text, std::to_chars(text, text + sizeof text, w).ptr};
}

template <class W>
class ListWriter {
 public:
  ListWriter(const std::string& path, std::uint64_t vertices, std::uint64_t n, bool symmetric)
      : suffix_(suffix_of(path)), out_(path) {
    const auto v = static_cast<unsigned long long>(vertices), edges = static_cast<unsigned long long>(n);
    if (suffix_ == ".gr") out_.print("p sp %llu %llu\n", v, edges);
    if (suffix_ == ".mtx")
      out_.print("%%%%MatrixMarket matrix coordinate %s %s\n%llu %llu %llu\n",
                 std::is_void_v<W>       ? "pattern"
                 : std::is_integral_v<W> ? "integer"
                                         : "real",
                 symmetric ? "symmetric" : "general", v, v, edges);
    if (suffix_ == ".tuples" && !std::is_void_v<W>) weights_ = std::make_unique<Output>(path + ".weights");
  }
  [[nodiscard]] static bool knows(const std::string& suffix) {
    return suffix == ".el" || suffix == ".wel" || suffix == ".gr" || suffix == ".mtx" || suffix == ".tuples";
  }
  void add(const edge<W>& e) {
    if (suffix_ == ".el") return out_.print("%u %u\n", e.from, e.to);
    if (suffix_ == ".tuples") return add_tuple(e);
    const unsigned from = suffix_ == ".wel" ? 0 : 1;
    if (suffix_ == ".mtx" && std::is_void_v<W>) return out_.print("%u %u\n", e.from + from, e.to + from);
    out_.print(suffix_ == ".gr" ? "a %u %u %s\n" : "%u %u %s\n", e.from + from, e.to + from,
               text_of_weight(e).c_str());
  }
  void close() {
    out_.close();
    if (weights_ != nullptr) weights_->close();
  }

 private:
  void add_tuple(const edge<W>& e) {
    out_.put(e.from), out_.put(e.to), out_.put(std::uint32_t{0});
    if (weights_ == nullptr) return;
    const auto w = static_cast<float>(weight_of(e));
    if (static_cast<double>(w) != static_cast<double>(weight_of(e)))
      refuse("graph::write: the edge from %u to %u has the weight %s, and the weights of .tuples are floats",
             e.from, e.to, text_of_weight(e).c_str());
    weights_->put(w);
  }

  std::string suffix_;
  Output out_;
  std::unique_ptr<Output> weights_;
};

template <class W>
[[nodiscard]] std::vector<edge<W>> sorted_edges(const csr<W>& g, vertex v) {
  auto all = g.out_edges(v);
  std::sort(all.begin(), all.end(), [](const edge<W>& a, const edge<W>& b) { return a.to < b.to; });
  return all;
}

template <class W>
void write_metis(const csr<W>& g, const std::string& path) {
  if (!g.symmetric()) refuse("graph::write: %s: METIS's graphs are symmetric", path.c_str());
  Output out(path);
  out.print("%llu %llu%s\n", static_cast<unsigned long long>(g.vertices()),
            static_cast<unsigned long long>(g.size() / 2), std::is_void_v<W> ? "" : " 1");
  for (std::uint64_t v = 0; v < g.vertices(); ++v) {
    const char* blank = "";
    for (const edge<W>& e : sorted_edges(g, static_cast<vertex>(v))) {
      if constexpr (std::is_void_v<W>)
        out.print("%s%u", blank, e.to + 1);
      else
        out.print("%s%u %s", blank, e.to + 1, text_of_weight(e).c_str());
      blank = " ";
    }
    out.print("%s", "\n");
  }
  out.close();
}

/// One way of a graph: where rows begin, and the rows.
template <class W>
void write_rows(Output& out, bool weighted, const std::vector<std::vector<edge<W>>>& rows, bool backwards) {
  std::int64_t start = 0;
  out.put(start);
  for (const auto& row : rows) out.put(start += static_cast<std::int64_t>(row.size()));
  for (const auto& row : rows)
    for (const edge<W>& e : row) {
      out.put(backwards ? e.from : e.to);
      if (weighted) out.put(static_cast<std::int32_t>(weight_of(e)));
    }
}
template <class W>
void write_serialized(const csr<W>& g, const std::string& path, bool weighted) {
  if (weighted != std::is_same_v<W, std::int32_t>)
    refuse("graph::write: %s: a .wsg has weights of int32, and a .sg none", path.c_str());
  Output out(path);
  out.put(!g.symmetric());
  out.put(static_cast<std::int64_t>(g.size()));
  out.put(static_cast<std::int64_t>(g.vertices()));
  std::vector<std::vector<edge<W>>> rows(g.vertices());
  for (std::uint64_t v = 0; v < g.vertices(); ++v) rows[v] = sorted_edges(g, static_cast<vertex>(v));
  write_rows(out, weighted, rows, false);
  if (!g.symmetric()) {
    std::vector<std::vector<edge<W>>> back(g.vertices());
    for (const auto& row : rows)
      for (const edge<W>& e : row) back[e.to].push_back(e);
    write_rows(out, weighted, back, true);
  }
  out.close();
}

}  // namespace
}  // namespace detail

template <weight W>
void write(const edges<W>& list, const std::string& path, bool symmetric) {
  if (!detail::ListWriter<W>::knows(detail::suffix_of(path)))
    detail::refuse_suffix(path, ".el .wel .gr .mtx .tuples; build the graph for .sg .wsg .graph");
  detail::ListWriter<W> out(path, list.vertices(), list.size(), symmetric);
  for (const edge<W>& e : list) out.add(e);
  out.close();
}

template <weight W>
void write(const csr<W>& g, const std::string& path) {
  const std::string suffix = detail::suffix_of(path);
  if (suffix == ".graph") return detail::write_metis(g, path);
  if (suffix == ".sg" || suffix == ".wsg") return detail::write_serialized(g, path, suffix == ".wsg");
  if (!detail::ListWriter<W>::knows(suffix))
    detail::refuse_suffix(path, ".el .wel .gr .graph .mtx .sg .wsg .tuples");
  detail::ListWriter<W> out(path, g.vertices(), g.symmetric() ? g.size() / 2 : g.size(), g.symmetric());
  for (std::uint64_t v = 0; v < g.vertices(); ++v)
    for (const edge<W>& e : detail::sorted_edges(g, static_cast<vertex>(v)))
      if (!g.symmetric() || e.from > e.to) out.add(e);
  out.close();
}
#define KASANE_GRAPH_INSTANCE(W)                                  \
  template void write(const edges<W>&, const std::string&, bool); \
  template void write(const csr<W>&, const std::string&);
KASANE_GRAPH_INSTANCE(void)
KASANE_GRAPH_INSTANCE(std::int32_t)
KASANE_GRAPH_INSTANCE(float)
#undef KASANE_GRAPH_INSTANCE

}  // namespace kasane::graph
