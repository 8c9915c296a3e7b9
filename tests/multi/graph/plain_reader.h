// SPDX-License-Identifier: Apache-2.0
// Reads files of graphs as the guide describes them, line by line and slowly: the oracle of graph::read.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "multi/graph/graphs.h"

namespace kasane::test {

/// What a file has; nothing if it is wrong.
struct PlainFile {
  Plain list;
  bool symmetric = false;
};

class PlainReader {
 public:
  /// Weights are whole numbers of 31 bits. `weights`: the bytes of the file beside Graph500's tuples.
  [[nodiscard]] static std::optional<PlainFile> read(const std::string& suffix, const std::string& bytes,
                                                     const std::string& weights = {}) {
    PlainReader r(bytes);
    bool good = false;
    if (suffix == ".el" || suffix == ".wel") good = r.pairs(suffix == ".wel");
    if (suffix == ".gr") good = r.dimacs();
    if (suffix == ".graph") good = r.metis();
    if (suffix == ".mtx") good = r.market();
    if (suffix == ".names") good = r.names();
    if (suffix == ".sg" || suffix == ".wsg") good = r.serialized(suffix == ".wsg");
    if (suffix == ".tuples") good = r.tuples(weights);
    if (!good) return std::nullopt;
    return r.file_;
  }

 private:
  static constexpr std::uint64_t kNone = graph::no_vertex;
  using Words = std::vector<std::string>;

  explicit PlainReader(const std::string& bytes) : bytes_(bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
      std::string line = bytes.substr(at, end - at);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      lines_.push_back(words_of(line));
      at = end + 1;
    }
  }
  static Words words_of(const std::string& line) {
    Words words(1);
    for (const char c : line) {
      if (c != ' ' && c != '\t')
        words.back() += c;
      else if (!words.back().empty())
        words.emplace_back();
    }
    if (words.back().empty()) words.pop_back();
    return words;
  }
  static bool is_comment(const Words& words, std::size_t from = 0) {
    return words.size() <= from || words[from][0] == '#' || words[from][0] == '%';
  }
  /// A whole number without a sign, at most `most`.
  static bool number(const std::string& word, std::uint64_t most, std::uint64_t& value) {
    if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos) return false;
    errno = 0;
    value = std::strtoull(word.c_str(), nullptr, 10);
    return errno == 0 && value <= most;
  }
  static bool weight(const std::string& word, double& value) {
    std::uint64_t n = 0;
    if (word.find_first_not_of('-') == 1 && number(word.substr(1), 0, n)) return value = 0, true;  // -0
    if (!number(word, 0x7fffffff, n)) return false;
    value = static_cast<double>(n);
    return true;
  }

  /// Two vertices and a weight, from a word on; then nothing, or a comment where that may be.
  bool edge(const Words& words, std::size_t at, std::uint64_t first, bool weighted, bool may_comment) {
    std::uint64_t u = 0, v = 0;
    PlainEdge e{0, 0, 1};
    const std::size_t n = at + 2 + weighted;
    if (words.size() < n || !vertex_of(words[at], first, u) || !vertex_of(words[at + 1], first, v) ||
        (weighted && !weight(words[at + 2], e.weight)))
      return false;
    if (words.size() > n && !(may_comment && is_comment(words, n))) return false;
    e.from = static_cast<vertex>(u), e.to = static_cast<vertex>(v);
    file_.list.edges.push_back(e);
    return true;
  }
  bool vertex_of(const std::string& word, std::uint64_t first, std::uint64_t& v) const {
    if (!number(word, ~std::uint64_t{0}, v) || v < first || v - first >= std::min(limit_, kNone - 1))
      return false;
    v -= first;
    return true;
  }
  bool finish() {
    std::uint64_t largest = 0;
    for (const PlainEdge& e : file_.list.edges)
      largest = std::max<std::uint64_t>(largest, std::max(e.from, e.to));
    file_.list.vertices = limit_ != kNone ? limit_ : file_.list.edges.empty() ? 0 : largest + 1;
    return true;
  }

  bool pairs(bool weighted) {
    for (const Words& words : lines_)
      if (!is_comment(words) && !edge(words, 0, 0, weighted, true)) return false;
    return finish();
  }
  bool dimacs() {
    std::size_t i = 0;
    while (i < lines_.size() && (lines_[i].empty() || lines_[i][0][0] == 'c')) ++i;
    std::uint64_t n = 0;
    if (i == lines_.size() || lines_[i].size() != 4 || lines_[i][0] != "p" ||
        !number(lines_[i][2], kNone - 1, limit_) || !number(lines_[i][3], ~std::uint64_t{0}, n))
      return false;
    for (++i; i < lines_.size(); ++i) {
      if (is_comment(lines_[i]) || lines_[i][0] == "c") continue;
      if (lines_[i][0] != "a" || !edge(lines_[i], 1, 1, true, false)) return false;
    }
    return file_.list.edges.size() == n && finish();
  }
  bool market() {
    std::size_t i = 0;
    while (i < lines_.size() && lines_[i].empty()) ++i;
    if (i == lines_.size() || lines_[i].size() < 5) return false;
    const Words& banner = lines_[i];
    const bool pattern = banner[3] == "pattern";
    file_.symmetric = banner[4] == "symmetric";
    if (banner[0] != "%%MatrixMarket" || banner[1] != "matrix" || banner[2] != "coordinate" ||
        (!pattern && banner[3] != "integer" && banner[3] != "real" && banner[3] != "double") ||
        (!file_.symmetric && banner[4] != "general"))
      return false;
    for (++i; i < lines_.size() && (lines_[i].empty() || lines_[i][0][0] == '%');) ++i;
    std::uint64_t columns = 0, n = 0;
    if (i == lines_.size() || lines_[i].size() != 3 || !number(lines_[i][0], kNone - 1, limit_) ||
        !number(lines_[i][1], kNone - 1, columns) || !number(lines_[i][2], ~std::uint64_t{0}, n) ||
        limit_ != columns)
      return false;
    for (++i; i < lines_.size(); ++i)
      if (!is_comment(lines_[i]) && !edge(lines_[i], 0, 1, !pattern, false)) return false;
    return file_.list.edges.size() == n && finish();
  }
  bool metis() {
    file_.symmetric = true;
    const auto is_percent = [](const Words& words) { return !words.empty() && words[0][0] == '%'; };
    std::size_t i = 0;
    while (i < lines_.size() && (lines_[i].empty() || is_percent(lines_[i]))) ++i;
    std::uint64_t n = 0, row = 0;
    if (i == lines_.size() || lines_[i].size() < 2 || lines_[i].size() > 3 ||
        !number(lines_[i][0], kNone - 1, limit_) || !number(lines_[i][1], ~std::uint64_t{0}, n))
      return false;
    const std::string kind = lines_[i].size() == 3 ? lines_[i][2] : "0";
    const bool weighted = kind == "1" || kind == "001";
    if (!weighted && kind != "0" && kind != "000") return false;
    for (++i; i < lines_.size(); ++i) {
      const Words& words = lines_[i];
      if (is_percent(words)) continue;
      if (row >= limit_ && !words.empty()) return false;
      for (std::size_t k = 0; k < words.size(); k += 1 + weighted) {
        Words one{std::to_string(row + 1), words[k]};
        if (weighted && k + 1 < words.size()) one.push_back(words[k + 1]);
        if (!edge(one, 0, 1, weighted, false)) return false;
      }
      ++row;
    }
    return row >= limit_ && file_.list.edges.size() == 2 * n && same_both_ways() && finish();
  }
  [[nodiscard]] bool same_both_ways() const {
    std::map<std::tuple<vertex, vertex, double>, int> count;
    for (const PlainEdge& e : file_.list.edges) {
      if (e.from < e.to) ++count[{e.from, e.to, e.weight}];
      if (e.from > e.to) --count[{e.to, e.from, e.weight}];
    }
    return std::all_of(count.begin(), count.end(), [](const auto& c) { return c.second == 0; });
  }
  bool names() {
    std::map<std::string, vertex> numbers;
    for (const Words& words : lines_) {
      if (is_comment(words)) continue;
      PlainEdge e{0, 0, 1};
      if (is_comment(words, 1)) return false;
      e.from = numbers.try_emplace(words[0], static_cast<vertex>(numbers.size())).first->second;
      e.to = numbers.try_emplace(words[1], static_cast<vertex>(numbers.size())).first->second;
      if (!is_comment(words, 2) && (!weight(words[2], e.weight) || !is_comment(words, 3))) return false;
      file_.list.edges.push_back(e);
    }
    file_.list.vertices = numbers.size();
    return true;
  }

  template <class T>
  [[nodiscard]] T at(std::size_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  /// The rows that begin at `start`; moves it behind them.
  bool rows(std::size_t& start, std::uint64_t n, bool weighted, std::vector<PlainEdge>& all) const {
    const std::size_t each = weighted ? 8 : 4, ids = start + 8 * (limit_ + 1);
    std::uint64_t i = 0;
    for (std::uint64_t v = 0; v < limit_; ++v) {
      if (at<std::uint64_t>(start + 8 * v) != i || at<std::uint64_t>(start + 8 * v + 8) > n) return false;
      for (; i < at<std::uint64_t>(start + 8 * v + 8); ++i) {
        const auto to = at<std::uint32_t>(ids + each * i);
        const auto w = weighted ? at<std::int32_t>(ids + each * i + 4) : 1;
        if (to >= limit_ || w < 0) return false;
        all.push_back({static_cast<vertex>(v), to, static_cast<double>(w)});
      }
      if (i != at<std::uint64_t>(start + 8 * v + 8)) return false;  // it goes back
    }
    start = ids + each * n;
    return i == n;
  }
  bool serialized(bool weighted) {
    if (bytes_.size() < 17 || static_cast<unsigned char>(bytes_[0]) > 1) return false;
    const bool directed = bytes_[0] != 0;
    const auto n = at<std::uint64_t>(1);
    limit_ = at<std::uint64_t>(9);
    if (n > bytes_.size() || limit_ > bytes_.size() ||
        bytes_.size() != 17 + (directed ? 2 : 1) * (8 * (limit_ + 1) + (weighted ? 8 : 4) * n))
      return false;
    std::size_t start = 17;
    std::vector<PlainEdge>& out = file_.list.edges;
    if (!rows(start, n, weighted, out)) return false;
    file_.symmetric = !directed;
    if (!directed) {
      if (!same_both_ways()) return false;
      std::erase_if(out, [](const PlainEdge& e) { return e.from > e.to; });
      return finish();
    }
    std::vector<PlainEdge> in, sorted = out;
    if (!rows(start, n, weighted, in)) return false;
    for (PlainEdge& e : in) std::swap(e.from, e.to);
    const auto key = [](const PlainEdge& e) { return std::tuple(e.from, e.to, e.weight); };
    const auto less = [&](const PlainEdge& a, const PlainEdge& b) { return key(a) < key(b); };
    std::sort(in.begin(), in.end(), less);
    std::sort(sorted.begin(), sorted.end(), less);
    return std::equal(in.begin(), in.end(), sorted.begin(), sorted.end(),
                      [&](const PlainEdge& a, const PlainEdge& b) { return key(a) == key(b); }) &&
           finish();
  }
  bool tuples(const std::string& weights) {
    file_.symmetric = true;
    if (bytes_.size() % 12 != 0 || weights.size() * 3 != bytes_.size()) return false;
    for (std::size_t i = 0; i < bytes_.size(); i += 12) {
      float w = 0;
      std::memcpy(&w, weights.data() + i / 3, sizeof w);
      const auto u = at<vertex>(i), v = at<vertex>(i + 4);
      if (at<std::uint32_t>(i + 8) != 0 || u >= kNone - 1 || v >= kNone - 1 || !(w >= 0 && w < 0x1p31f) ||
          static_cast<float>(static_cast<std::int32_t>(w)) != w)
        return false;
      file_.list.edges.push_back({u, v, static_cast<double>(w)});
    }
    return finish();
  }

  const std::string& bytes_;
  std::vector<Words> lines_;
  std::uint64_t limit_ = kNone;  ///< vertices
  PlainFile file_;
};

}  // namespace kasane::test
