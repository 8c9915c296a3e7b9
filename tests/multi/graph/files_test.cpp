// SPDX-License-Identifier: Apache-2.0
// Files of graphs: what is written is read again in every format; comments, CRLF and gaps; what is wrong is
// refused with its line; and files with random changes are read or refused, nothing else.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <kasane/graph.hpp>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "multi/graph/graphs.h"
#include "multi/graph/plain_reader.h"

namespace {

using namespace kasane::test;

class Files : public testing::Test {
 protected:
  Files() : folder_(std::filesystem::temp_directory_path() / ("kasane-graph-" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(folder_);
  }
  ~Files() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string with(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  [[nodiscard]] static std::string bytes_of(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path, std::ios::binary).rdbuf();
    return all.str();
  }

 private:
  std::filesystem::path folder_;
};

template <class W>
std::vector<Ends> all_edges(const graph::csr<W>& g) {
  std::vector<Ends> all;
  for (vertex v = 0; v < g.vertices(); ++v)
    for (const Ends& e : sorted_edges(g, v)) all.push_back(e);
  return all;
}

template <class W>
void expect_again(const graph::csr<W>& g, const std::string& path) {
  SCOPED_TRACE(path);
  graph::write(g, path);
  const auto f = graph::read<W>(path);
  const auto again = graph::build(f.list, {.symmetric = g.symmetric()});
  EXPECT_EQ(all_edges(again), all_edges(g));
  EXPECT_EQ(again.vertices(), g.vertices());
}

TEST_F(Files, AreReadAsTheyAreWritten) {
  Plain p = random_graph(700, 3000, 4);
  p.edges.push_back({699, 0, 3});  // formats that do not say how many vertices there are
  p.edges.push_back({0, 699, 3});
  for (const bool symmetric : {true, false}) {
    const auto none = graph::build(list_of<void>(p), {.symmetric = symmetric});
    const auto whole = graph::build(list_of<std::int32_t>(p), {.symmetric = symmetric});
    const auto real = graph::build(list_of<float>(p), {.symmetric = symmetric});
    for (const char* suffix : {".el", ".mtx", ".tuples", ".sg"})
      expect_again(none, path(std::string("none") + suffix));
    for (const char* suffix : {".wel", ".gr", ".mtx", ".tuples", ".wsg"})
      expect_again(whole, path(std::string("whole") + suffix));
    for (const char* suffix : {".wel", ".gr", ".mtx", ".tuples"})
      expect_again(real, path(std::string("real") + suffix));
    if (symmetric) {
      expect_again(none, path("none.graph"));
      expect_again(whole, path("whole.graph"));
      expect_again(real, path("real.graph"));
    }
  }
  graph::write(list_of<std::int32_t>(p), path("list.wel"));
  const auto list = graph::read<std::int32_t>(path("list.wel")).list;
  ASSERT_EQ(list.size(), p.edges.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    ASSERT_EQ(list[i].from, p.edges[i].from);
    ASSERT_EQ(list[i].weight, p.edges[i].weight);
  }
}

TEST_F(Files, OfEveryShapeAreReadAgain) {
  for (const auto& [name, p] : shapes()) {
    SCOPED_TRACE(name);
    const auto g = graph::build(list_of<std::int32_t>(p));
    expect_again(g, path("shape.wsg"));
    expect_again(g, path("shape.graph"));
    expect_again(g, path("shape.mtx"));
  }
}

// Numbers that no float holds, and those that need all of its digits.
TEST_F(Files, KeepWeightsAsTheyAre) {
  graph::edges<std::int32_t> whole(5, 4);
  const std::int32_t numbers[] = {2147483647, 1999999999, 16777217, 0};
  graph::edges<float> real(5, 4);
  const float reals[] = {1e-45f, 0.1f, 16777215, std::numeric_limits<float>::max()};
  for (vertex v = 0; v < 4; ++v) whole[v] = {v, v + 1, numbers[v]}, real[v] = {v, v + 1, reals[v]};
  const auto g = graph::build(whole);
  const auto h = graph::build(real);
  for (const char* suffix : {".wel", ".gr", ".mtx", ".graph", ".wsg"})
    expect_again(g, path(std::string("whole") + suffix));
  for (const char* suffix : {".wel", ".gr", ".mtx", ".graph", ".tuples"})
    expect_again(h, path(std::string("real") + suffix));
  for (const char* suffix : {".wel", ".gr", ".mtx"}) {
    graph::write(whole, path(std::string("list") + suffix));
    const auto again = graph::read<std::int32_t>(path(std::string("list") + suffix)).list;
    for (vertex v = 0; v < 4; ++v) EXPECT_EQ(again[v].weight, numbers[v]) << suffix;
  }
  EXPECT_THROW(graph::write(whole, path("whole.tuples")), kasane::error);
}

TEST_F(Files, HaveCommentsGapsAndCarriageReturns) {
  const auto el =
      graph::read<void>(with("a.el", "# comment\r\n\r\n0 1\r\n  2\t1  \r\n% another\n1 3 # here"));
  ASSERT_EQ(el.list.size(), 3u);
  EXPECT_EQ(el.list.vertices(), 4u);
  EXPECT_EQ(el.list[1].from, 2u);
  EXPECT_EQ(el.list[2].to, 3u);
  EXPECT_FALSE(el.symmetric);
  const auto wel = graph::read<float>(with("a.wel", "0 1 2.5\n7 8 1e3\n"));
  EXPECT_EQ(wel.list[1].weight, 1000);
  EXPECT_EQ(graph::read<std::int32_t>(path("a.el")).list[0].weight, 1);
  const auto gr = graph::read<std::int32_t>(with("a.gr", "c x\nc\np sp 5 2\na 1 5 7\nc y\na 2 3 4\n"));
  EXPECT_EQ(gr.list.vertices(), 5u);
  EXPECT_EQ(gr.list[0].to, 4u);
  const auto metis = graph::read<void>(with("a.graph", "% x\n4 2\n2 3\n1\n% y\n1\n\n"));
  EXPECT_TRUE(metis.symmetric);
  EXPECT_EQ(metis.list.vertices(), 4u);
  EXPECT_EQ(metis.list.size(), 4u);
  const auto mtx = graph::read<float>(
      with("a.mtx", "%%MatrixMarket matrix coordinate real symmetric\n% x\n3 3 2\n2 1 .5\n3 1 4\n"));
  EXPECT_TRUE(mtx.symmetric);
  EXPECT_EQ(mtx.list[0].weight, 0.5f);
  const auto names = graph::read<std::int32_t>(with("a.names", "bash libc6 3\nlibc6 gcc\n# x\nbash gcc 9\n"));
  EXPECT_EQ(names.names, (std::vector<std::string>{"bash", "libc6", "gcc"}));
  EXPECT_EQ(names.list[2].weight, 9);
  EXPECT_EQ(names.list[2].to, 2u);
  for (const char* name : {"empty.el", "empty.names", "empty.tuples"}) {
    const auto f = graph::read<void>(with(name, ""));
    EXPECT_EQ(f.list.size(), 0u);
    EXPECT_EQ(f.list.vertices(), 0u);
  }
  EXPECT_EQ(graph::read<void>(path("a.el"), ".names").names[0], "0");
}

/// The error's text, from "graph::read: " on and without the folder.
template <class W>
std::string refusal(const std::string& path) {
  try {
    (void)graph::read<W>(path);
  } catch (const kasane::error& e) {
    const std::string text = e.what();
    return text.substr(text.rfind('/') + 1);
  }
  return "not refused";
}

TEST_F(Files, ThatAreWrongAreRefusedWithTheLine) {
  const auto expect = [&](const char* name, const std::string& text, const std::string& what) {
    EXPECT_EQ(refusal<std::int32_t>(with(name, text)).substr(0, what.size()), what);
  };
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "1 2\n";
  expect("a.el", many + "1 x\n" + many, "a.el:5001: a vertex is no number");
  expect("a.el", many + many + "1\n", "a.el:10001: a vertex is missing");
  expect("a.el", "1 2\n# x\n4294967295 3\n", "a.el:3: vertex 4294967295 is not below");
  expect("a.el", "4294967294 3\n", "a.el:1: vertex 4294967294 is not below 2^32 - 2");
  expect("a.el", "1 99999999999999999999999\n", "a.el:1: a vertex is no number");
  expect("a.el", "-1 2\n", "a.el:1: a vertex is no number");
  expect("a.el", "1 2 3\n", "a.el:1: there is more than two vertices");
  expect("a.wel", "1 2\n", "a.wel:1: a weight is missing");
  expect("a.wel", "1 2 3\r\n1 2 -3\r\n", "a.wel:2: a weight is negative");
  expect("a.wel", "1 2 1.5\n", "a.wel:1: a weight is no whole number");
  for (const char* weight : {"inf", "nan", "-1"})
    EXPECT_EQ(refusal<float>(with("b.wel", std::string("1 2 3\n1 2 ") + weight + "\n")),
              "b.wel:2: a weight is negative, infinite or no number");
  expect("a.wel", "1 2 3 4\n", "a.wel:1: there is more than");
  expect("a.gr", "c\nx sp 3 3\n", "a.gr:2: it is no line \"p sp");
  expect("a.gr", "p sp 3 1\na 1 4 1\n", "a.gr:2: vertex 4 is out of range");
  expect("a.gr", "p sp 3 1\na 0 1 1\n", "a.gr:2: vertex 0 is out of range");
  expect("a.gr", "p sp 3 1\nb 1 2 1\n", "a.gr:2: it begins with neither");
  expect("a.gr", "p sp 3 1\na 1 2 1\np sp 2 0\n", "a.gr:3: there is a second line p");
  expect("a.gr", "p sp 3 1 1\na 1 2 1\n", "a.gr:1: it is no line \"p sp");
  expect("a.gr", "p sp 3 3\na 1 2 1\n", "a.gr:2: it has 1 edges, and says 3");
  expect("a.gr", "p sp 4294967295 0\n", "a.gr:1: 4294967295 vertices are too many");
  expect("a.gr", "", "a.gr: it has no header");
  expect("a.graph", "3 1\n2\n1\n", "a.graph:3: it ends after 2 of 3");
  expect("a.graph", "2 2\n2\n1\n", "a.graph: it has 2 neighbours");
  expect("a.graph", "2 1\n2\n3\n", "a.graph:3: vertex 3 is out of range");
  expect("a.graph", "2 1 11\n2\n3\n", "a.graph:1: weights of vertices");
  expect("a.graph", "2 1 1 1\n2 1\n1 1\n", "a.graph:1: there is more than");
  expect("a.graph", "3 1\n2\n3\n\n", "a.graph: the rows of the two ends of an edge differ");
  expect("a.graph", "2 1 1\n2 4\n1 5\n", "a.graph: the rows of the two ends of an edge differ");
  expect("a.mtx", "%%MatrixMarket matrix array real general\n", "a.mtx:1: it does not begin with");
  expect("a.mtx", "%%MatrixMarket matrix coordinate complex general\n",
         "a.mtx:1: matrices of the field \"complex\"");
  expect("a.mtx", "%%MatrixMarket matrix coordinate real general\n%\n2 3 1\n",
         "a.mtx:3: the matrix is not square");
  expect("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2\n",
         "a.mtx:3: a weight is missing");
  expect("a.names", "x y\nz\n", "a.names:2: a line has two names");
  expect("a.names", "x # y\n", "a.names:1: a line has two names");
  expect("a.names", "x y z\n", "a.names:1: the weight is no number");
  expect("a.sg", "short", "a.sg: it is shorter than a header");
  expect("a.sg", std::string(100, 'x'), "a.sg: its size of 100 bytes");
  expect("a.tuples", "1234567", "a.tuples: its size is no multiple of 12");
  expect("a.txt", "", "a.txt: the suffix \".txt\" is none of");
  EXPECT_EQ(refusal<void>(path("none.el")), "none.el: No such file or directory");
  EXPECT_EQ(refusal<std::int32_t>(with("b.tuples", std::string(12, '\0'))),
            "b.tuples.weights: No such file or directory");
  EXPECT_EQ(refusal<void>(with("c.tuples", std::string(12, '\1'))),
            "c.tuples: edge 0 has a vertex of more than 32 bits");
  // Rows of GAPBS's that differ: in the vertex, in the weight, and of a directed graph in its second part.
  const auto serialized = [](bool directed, const std::vector<std::int32_t>& rows) {
    std::string bytes(17, '\0');
    bytes[0] = directed, bytes[1] = 2, bytes[9] = 3;  // edges, vertices
    for (int way = 0; way <= directed; ++way) {
      for (const int start : {0, 1 - way, 2 - way, 2})
        bytes += static_cast<char>(start) + std::string(7, '\0');
      for (std::size_t i = 0; i < 4; ++i)
        bytes.append(reinterpret_cast<const char*>(&rows[4 * static_cast<std::size_t>(way) + i]), 4);
    }
    return bytes;
  };
  EXPECT_EQ(graph::read<std::int32_t>(with("good.wsg", serialized(false, {1, 7, 0, 7}))).list.size(), 1u);
  EXPECT_EQ(
      graph::read<std::int32_t>(with("good.wsg", serialized(true, {1, 7, 2, 7, 0, 7, 1, 7}))).list.size(),
      2u);
  expect("a.wsg", serialized(false, {1, 7, 2, 7}), "a.wsg: the rows of the two ends of an edge differ");
  expect("a.wsg", serialized(false, {1, 7, 0, 8}), "a.wsg: the rows of the two ends of an edge differ");
  expect("a.wsg", serialized(false, {1, -7, 0, -7}), "a.wsg: the row of vertex 0 is out of range, or has");
  expect("a.wsg", serialized(false, {1, 7, 3, 7}), "a.wsg: the row of vertex 1 is out of range, or has");
  expect("a.wsg", serialized(true, {1, 7, 2, 7, 0, 7, 1, 8}), "a.wsg: the rows of the two ends");
  const auto weighted = [&](float w) {
    (void)with("w.tuples.weights", std::string(reinterpret_cast<const char*>(&w), sizeof w));
    return refusal<std::int32_t>(with("w.tuples", std::string(12, '\0')));
  };
  EXPECT_EQ(weighted(3), "not refused");
  EXPECT_EQ(weighted(.5f),
            "w.tuples.weights: edge 0 has the weight 0.500000, which is no whole number of 32 bits");
  EXPECT_NE(weighted(-1).find("which is negative"), std::string::npos);
  EXPECT_NE(weighted(3e9f).find("no whole number of 32"), std::string::npos);
  std::filesystem::create_directory(path("folder.el"));
  EXPECT_EQ(refusal<void>(path("folder.el")), "folder.el: Is a directory");
  try {
    graph::write(graph::grid(2, 2), path("x.sg"));
    ADD_FAILURE();
  } catch (const kasane::error& e) {
    EXPECT_EQ(e.code(), EINVAL);
  }
}

/// Changes bytes in a few places: cuts, overwrites, removes, repeats, and digits by others.
std::string changed(std::string bytes, std::mt19937& random) {
  for (unsigned n = 1 + random() % 4; n != 0 && !bytes.empty(); --n) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 8) {
      case 0: bytes.resize(at); break;
      case 1: bytes[at] = static_cast<char>(random()); break;
      case 2: bytes.erase(at, random() % 9); break;
      case 3: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 9)); break;
      case 4: bytes[at] = "0123456789 \n\r\t-+#%.e"[random() % 21]; break;
      case 5: bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8); break;
      case 6: std::swap(bytes[at], bytes[random() % bytes.size()]); break;
      default: {  // a line twice
        const std::size_t begin = at == 0 ? 0 : bytes.rfind('\n', at - 1) + 1;
        bytes.insert(begin, bytes.substr(begin, bytes.find('\n', at) - begin + 1));
      }
    }
  }
  return bytes;
}

/// "": read() says of the file what the oracle says.
std::string differs(const std::string& path, const std::optional<PlainFile>& expected) {
  try {
    const auto f = graph::read<std::int32_t>(path);
    if (!expected) return "it is wrong, and was read";
    if (f.symmetric != expected->symmetric) return "one way, or both";
    if (f.list.vertices() != expected->list.vertices)
      return std::to_string(f.list.vertices()) + " vertices, not " + std::to_string(expected->list.vertices);
    const Plain is = plain_of(f.list);
    const auto same = [](const PlainEdge& a, const PlainEdge& b) {
      return a.from == b.from && a.to == b.to && a.weight == b.weight;
    };
    if (!std::equal(is.edges.begin(), is.edges.end(), expected->list.edges.begin(),
                    expected->list.edges.end(), same))
      return "other edges";
  } catch (const kasane::error& e) {
    if (expected) return std::string("it is right, and was refused: ") + e.what();
    if (std::string(e.what()).find(path) == std::string::npos) return std::string("no file in: ") + e.what();
  }
  return {};
}

std::string number_of(const char* name, const char* otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? given : otherwise;
}

// GRAPH_SEED=N: begins with that seed. GRAPH_TIMES=N: so many changes of each file.
TEST_F(Files, WithRandomChangesAreReadAsTheOracleReadsThemOrRefused) {
  const auto g = graph::build(list_of<std::int32_t>(random_graph(60, 200, 6)));
  const auto directed = graph::build(list_of<std::int32_t>(random_graph(60, 200, 7)), {.symmetric = false});
  const auto seed = static_cast<unsigned>(std::stoul(number_of("GRAPH_SEED", "1")));
  const auto times = static_cast<unsigned>(std::stoul(number_of("GRAPH_TIMES", "60")));
  graph::write(g, path("f.wel"));
  std::string names;
  for (const auto& e : graph::read<void>(path("f.wel")).list)
    names += "v" + std::to_string(e.from) + " v" + std::to_string(e.to) + " 3\n";
  (void)with("f.names", names);
  for (const char* suffix : {".el", ".gr", ".graph", ".mtx", ".wsg", ".tuples"})
    if (std::string(suffix) != ".el") graph::write(g, path(std::string("f") + suffix));
  graph::write(list_of<void>(random_graph(60, 200, 6)), path("f.el"));
  graph::write(graph::build(list_of<void>(random_graph(60, 200, 6))), path("f.sg"));
  graph::write(directed, path("directed.wsg"));
  graph::write(directed, path("directed.mtx"));
  const std::string weights = bytes_of(path("f.tuples.weights"));
  std::size_t refused = 0, read = 0;
  for (const char* name : {"f.el", "f.wel", "f.gr", "f.graph", "f.mtx", "f.names", "f.sg", "f.wsg",
                           "f.tuples", "directed.wsg", "directed.mtx"}) {
    const std::string good = bytes_of(path(name)),
                      suffix = std::string(name).substr(std::string(name).find('.'));
    ASSERT_EQ(differs(path(name), PlainReader::read(suffix, good, weights)), "") << name;
    ASSERT_TRUE(PlainReader::read(suffix, good, weights)) << name;
    for (unsigned i = 0; i < times; ++i) {
      std::mt19937 random(seed + i);
      // The weights of tuples, too.
      const bool is_weights = suffix == ".tuples" && random() % 3 == 0;
      const std::string bytes = is_weights ? good : changed(good, random);
      const std::string beside = is_weights ? changed(weights, random) : weights;
      if (suffix == ".tuples") (void)with("f.tuples.weights", beside);
      const auto expected = PlainReader::read(suffix, bytes, beside);
      ++(expected ? read : refused);
      ASSERT_EQ(differs(with(name, bytes), expected), "") << name << ": GRAPH_SEED=" << seed + i;
      if (!expected || expected->list.vertices > 100000) continue;  // a number with more digits
      const auto f = graph::read<std::int32_t>(path(name));
      EXPECT_EQ(graph::build(f.list, {.symmetric = f.symmetric}).size(),
                Oracle(expected->list, f.symmetric).stored());
    }
  }
  EXPECT_GT(refused, 5 * times / 2);
  EXPECT_GT(read, times / 2);
}

}  // namespace
