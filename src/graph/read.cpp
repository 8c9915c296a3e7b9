// SPDX-License-Identifier: Apache-2.0
// Files of graphs. The file's bytes come into global memory, each member's part by itself. Text is parsed
// twice by all members: to count edges and lines, and to find what is wrong; and to store the edges. A member
// has the lines that begin in its part.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <kasane/graph.hpp>
#include <kasane/team.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "graph/layout.h"
#include "graph/text.h"

namespace kasane::graph {

namespace detail {
namespace {

/// Throws: FILE[:LINE]: what.
[[noreturn]] void fail_at(const std::string& path, std::uint64_t line, const std::string& what,
                          int code = EINVAL) {
  const std::string at = line != 0 ? path + ":" + std::to_string(line) : path;
  throw error(code, ("graph::read: " + at + ": " + what).c_str());
}

// ---- bytes ----

struct Bytes {
  unique_array<char> all;
  std::size_t size = 0;
  [[nodiscard]] std::string_view text() const noexcept { return {all.get(), size}; }
};

/// An open file.
struct File {
  int fd;
  explicit File(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd < 0) fail_at(path, 0, std::strerror(errno), errno);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd); }
};

/// All that comes, as from a pipe.
[[nodiscard]] Bytes read_stream(const std::string& path, int fd) {
  Bytes b;
  for (std::size_t room = 0;;) {
    if (b.size == room) {
      room = room != 0 ? 2 * room : std::size_t{1} << 20;
      auto larger = make_array<char>(room, placement::block);
      std::copy_n(b.all.get(), b.size, larger.get());
      b.all = std::move(larger);
    }
    const ssize_t n = ::read(fd, b.all.get() + b.size, room - b.size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_at(path, 0, std::strerror(errno), errno);
    if (n == 0) return b;
    b.size += static_cast<std::size_t>(n);
  }
}

/// [first, last) of the file; 0 or an errno. A shorter file than it was is EIO.
[[nodiscard]] int read_part(const char* path, char* to, std::size_t first, std::size_t last) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  // A memory control group may have no room for what the kernel reads ahead, or for larger parts.
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  int code = 0;
  while (first < last && code == 0) {
    const std::size_t most = std::min<std::size_t>(last - first, std::size_t{256} << 10);
    const ssize_t n = ::pread(fd, to + first, most, static_cast<off_t>(first));
    if (n < 0)
      code = errno == EINTR ? 0 : errno;
    else if (n == 0)
      code = EIO;
    else
      first += static_cast<std::size_t>(n);
  }
  ::close(fd);
  return code;
}

[[nodiscard]] Bytes read_bytes(const std::string& path) {
  if (path == "-") return read_stream("standard input", STDIN_FILENO);
  const File file(path);
  struct stat status{};
  const int code = ::fstat(file.fd, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (code != 0) fail_at(path, 0, std::strerror(code), code);
  if (!S_ISREG(status.st_mode)) return read_stream(path, file.fd);
  Bytes b;
  b.size = static_cast<std::size_t>(status.st_size);
  b.all = make_array<char>(b.size + 1, placement::block);
  const std::uint32_t members = ranks() * workers();
  const auto codes = make_array<int>(members);
  const auto name = make_array<char>(path.size() + 1);
  std::copy_n(path.c_str(), path.size() + 1, name.get());
  team([to = b.all.get(), n = b.size, name = name.get(), codes = codes.get()](const member& me) {
    const auto [first, last] = me.part(0, n, page_small);
    codes[me.index()] = read_part(name, to, first, last);
  });
  for (std::uint32_t m = 0; m < members; ++m)
    if (codes[m] != 0) fail_at(path, 0, std::strerror(codes[m]), codes[m]);
  return b;
}

// ---- text ----

/// A graph has not more.
constexpr std::uint64_t kMostVertices = no_vertex - 1;

/// Whether rows that have each edge twice say the same of it: both add up to 0 (modulo 2^64, by a hash).
[[nodiscard]] std::uint64_t mark_of(std::uint64_t from, std::uint64_t to, std::uint64_t weight) noexcept {
  const auto m =
      static_cast<unsigned __int128>((from << 32 | to) ^ 0xa0761d6478bd642f) * (weight ^ 0xe7037ed1a0b428db);
  return static_cast<std::uint64_t>(m >> 64) ^ static_cast<std::uint64_t>(m);
}
/// Of an edge in the row of one end, where the row of the other end has it, too.
[[nodiscard]] std::uint64_t mark_both_ways(std::uint64_t from, std::uint64_t to,
                                           std::uint64_t weight) noexcept {
  if (from == to) return 0;
  return from < to ? mark_of(from, to, weight) : 0 - mark_of(to, from, weight);
}
constexpr const char* kOneWay = "the rows of the two ends of an edge differ";

enum class Syntax { pairs, dimacs, metis, market };

/// What the beginning of a file says.
struct Header {
  Syntax syntax = Syntax::pairs;
  bool weighted = false, symmetric = false;
  std::uint64_t vertices = no_vertex, edges = 0;  ///< no_vertex: 1 + the largest number
  std::size_t bytes = 0;                          ///< of the header
  std::uint64_t lines = 0;                        ///< likewise
};

/// What a member finds.
struct Tally {
  std::uint64_t lines, rows, edges, largest;  ///< rows: lines that are no comments
  std::uint64_t marks;                        ///< of METIS's rows: 0 of all, if they agree
  std::uint64_t bad_line;                     ///< 0: none
  char what[120];
};

/// Edges of one line. `row` is its number among the rows. False: `what` says why.
template <class W, class F>
class LineParser {
 public:
  LineParser(const Header& h, char* what, F& f) noexcept : h_(h), what_(what), f_(f) {}

  [[nodiscard]] bool operator()(Line line, std::uint64_t row) {
    switch (h_.syntax) {
      case Syntax::dimacs: {
        const std::string_view kind = line.word();
        if (kind == "c") return true;
        if (kind == "p") return complain("there is a second line p");
        if (kind != "a") return complain("it begins with neither a, c nor p");
        return pair(line, 1);
      }
      case Syntax::metis: return neighbours(line, row);
      case Syntax::market: return pair(line, 1);
      case Syntax::pairs: break;
    }
    return pair(line, 0);
  }

 private:
  bool complain(const char* text) {
    std::snprintf(what_, sizeof(Tally::what), "%s", text);
    return false;
  }
  [[nodiscard]] bool take_vertex(Line& line, std::uint64_t from, vertex& v) {
    std::uint64_t number = 0;
    if (line.empty()) return complain("a vertex is missing");
    if (!line.number(number)) return complain("a vertex is no number");
    const std::uint64_t end = std::min(h_.vertices, kMostVertices);
    if (number < from || number - from >= end) {
      if (h_.vertices == no_vertex)
        std::snprintf(what_, sizeof(Tally::what), "vertex %llu is not below 2^32 - 2",
                      static_cast<unsigned long long>(number));
      else
        std::snprintf(what_, sizeof(Tally::what), "vertex %llu is out of range: the file says %llu vertices",
                      static_cast<unsigned long long>(number), static_cast<unsigned long long>(end));
      return false;
    }
    v = static_cast<vertex>(number - from);
    return true;
  }
  /// A weight where the file has them; 1 elsewhere.
  [[nodiscard]] bool take_weight(Line& line, edge<W>& e) {
    if constexpr (std::is_void_v<W>) {
      if (h_.weighted && line.word().empty()) return complain("a weight is missing");
    } else {
      e.weight = 1;
      if (!h_.weighted) return true;
      if (line.empty()) return complain("a weight is missing");
      if (!line.number(e.weight))
        return complain(std::is_integral_v<W> ? "a weight is no whole number of 32 bits"
                                              : "a weight is no number");
      if (!is_weight(e.weight)) return complain("a weight is negative, infinite or no number");
    }
    return true;
  }
  [[nodiscard]] bool pair(Line& line, std::uint64_t from) {
    edge<W> e{};
    if (!take_vertex(line, from, e.from) || !take_vertex(line, from, e.to) || !take_weight(line, e))
      return false;
    if (!line.empty() && !(h_.syntax == Syntax::pairs && line.is_comment()))
      return complain(h_.weighted ? "there is more than two vertices and a weight"
                                  : "there is more than two vertices");
    f_(e);
    return true;
  }
  [[nodiscard]] bool neighbours(Line& line, std::uint64_t row) {
    if (row >= h_.vertices && !line.empty()) return complain("there are more lines than vertices");
    while (!line.empty()) {
      edge<W> e{};
      e.from = static_cast<vertex>(row);
      if (!take_vertex(line, 1, e.to) || !take_weight(line, e)) return false;
      f_(e);
    }
    return true;
  }

  const Header& h_;
  char* const what_;
  F& f_;
};

/// f(edge) for the lines that begin in [first, last) of the text. `row`: rows before them.
template <class W, class F>
void parse(const Header& h, std::string_view text, std::size_t first, std::size_t last, std::uint64_t row,
           Tally& t, F f) {
  if (first != h.bytes) {  // not in the middle of a line
    const std::size_t end = text.find('\n', first - 1);
    first = end == std::string_view::npos ? text.size() : end + 1;
  }
  LineParser<W, F> parser(h, t.what, f);
  while (first < last) {
    const std::size_t end = std::min(text.find('\n', first), text.size());
    const Line line(text.substr(first, end - first));
    first = end + 1;
    ++t.lines;
    // An empty line is a vertex without neighbours in METIS's files, where # is nothing.
    if (h.syntax == Syntax::metis ? !line.empty() && line.front() == '%' : line.is_comment()) continue;
    if (parser(line, row + t.rows)) {
      ++t.rows;
    } else {
      t.bad_line = t.lines;
      return;
    }
  }
}

/// The weight's bits.
template <class W>
[[nodiscard]] std::uint64_t bits_of(const edge<W>& e) noexcept {
  if constexpr (std::is_void_v<W>)
    return 1;
  else
    return std::bit_cast<std::uint32_t>(e.weight);
}

template <class W>
[[nodiscard]] file<W> read_text(const std::string& path, const Header& h, std::string_view text) {
  const std::uint32_t members = ranks() * workers();
  const auto tallies = make_array<Tally>(members);
  const auto of = [&](auto f) {
    team([&, f](const member& me) {
      const auto [first, last] = me.part(h.bytes, text.size());
      f(me.index(), first, last);
    });
  };
  of([&](std::size_t m, std::size_t first, std::size_t last) {
    Tally t{};
    parse<W>(h, text, first, last, 0, t, [&t](const edge<W>& e) {
      ++t.edges;
      t.largest = std::max<std::uint64_t>(t.largest, std::max(e.from, e.to));
    });
    tallies[m] = t;
  });
  std::uint64_t lines = h.lines, n = 0, rows = 0, largest = 0;
  const auto edges_before = make_array<std::uint64_t>(members),
             rows_before = make_array<std::uint64_t>(members);
  for (std::uint32_t m = 0; m < members; ++m) {
    const Tally& t = tallies[m];
    if (t.bad_line != 0) fail_at(path, lines + t.bad_line, t.what);
    rows_before[m] = rows, edges_before[m] = n;
    lines += t.lines, rows += t.rows, n += t.edges, largest = std::max(largest, t.largest);
  }
  if (h.syntax == Syntax::metis && rows < h.vertices)
    fail_at(path, lines,
            "it ends after " + std::to_string(rows) + " of " + std::to_string(h.vertices) + " vertices");
  if (h.syntax == Syntax::metis && (n % 2 != 0 || n / 2 != h.edges))
    fail_at(path, 0,
            "it has " + std::to_string(n) + " neighbours, and says " + std::to_string(h.edges) + " edges");
  if ((h.syntax == Syntax::market || h.syntax == Syntax::dimacs) && n != h.edges)
    fail_at(path, lines, "it has " + std::to_string(n) + " edges, and says " + std::to_string(h.edges));
  const std::uint64_t vertices = h.vertices != no_vertex ? h.vertices : n != 0 ? largest + 1 : 0;
  file<W> result{edges<W>(vertices, n), h.symmetric, {}};
  of([&, all = result.list.data(), before = edges_before.get(), rows_of = rows_before.get()](
         std::size_t m, std::size_t first, std::size_t last) {
    Tally t{};
    parse<W>(h, text, first, last, rows_of[m], t, [to = all + before[m], &t](const edge<W>& e) mutable {
      *to++ = e;
      t.marks += mark_both_ways(e.from, e.to, bits_of(e));
    });
    tallies[m] = t;
  });
  lines = h.lines;
  std::uint64_t marks = 0;
  for (std::uint32_t m = 0; m < members; lines += tallies[m++].lines) {
    if (tallies[m].bad_line != 0)  // rows beyond the vertices
      fail_at(path, lines + tallies[m].bad_line, tallies[m].what);
    marks += tallies[m].marks;
  }
  if (h.syntax == Syntax::metis && marks != 0) fail_at(path, 0, kOneWay);
  return result;
}

// ---- headers ----

/// Takes lines of the text until one is no comment.
[[nodiscard]] Line first_line(const std::string& path, Header& h, std::string_view text,
                              const char* comments) {
  std::string_view rest = text.substr(h.bytes);
  while (!rest.empty()) {
    const Line line(next_line(rest));
    ++h.lines;
    h.bytes = text.size() - rest.size();
    if (!line.empty() && std::strchr(comments, line.front()) == nullptr) return line;
  }
  fail_at(path, h.lines, "it has no header");
}
void expect_vertices_of(const std::string& path, const Header& h) {
  if (h.vertices >= no_vertex)
    fail_at(path, h.lines,
            std::to_string(h.vertices) + " vertices are too many: they are numbered by 32 bits");
}

[[nodiscard]] Header dimacs_header(const std::string& path, std::string_view text) {
  Header h{.syntax = Syntax::dimacs, .weighted = true};
  Line line = first_line(path, h, text, "c");
  const std::string_view p = line.word(), kind = line.word();
  if (p != "p" || kind.empty() || !line.number(h.vertices) || !line.number(h.edges) || !line.empty())
    fail_at(path, h.lines, "it is no line \"p sp VERTICES EDGES\"");
  expect_vertices_of(path, h);
  return h;
}
[[nodiscard]] Header metis_header(const std::string& path, std::string_view text) {
  Header h{.syntax = Syntax::metis, .symmetric = true};
  Line line = first_line(path, h, text, "%");
  if (!line.number(h.vertices) || !line.number(h.edges))
    fail_at(path, h.lines, "it is no line \"VERTICES EDGES [1]\"");
  const std::string_view kind = line.word();
  h.weighted = kind == "1" || kind == "001";
  if (!kind.empty() && !h.weighted && kind != "0" && kind != "000")
    fail_at(path, h.lines, "weights of vertices are not read: the third number is 0 or 1");
  if (!line.empty()) fail_at(path, h.lines, "there is more than \"VERTICES EDGES [1]\"");
  expect_vertices_of(path, h);
  return h;
}
[[nodiscard]] Header market_header(const std::string& path, std::string_view text) {
  Header h{.syntax = Syntax::market};
  Line banner = first_line(path, h, text, "");
  const std::string_view start = banner.word(), object = banner.word(), format = banner.word(),
                         field = banner.word(), symmetry = banner.word();
  if (start != "%%MatrixMarket" || object != "matrix" || format != "coordinate")
    fail_at(path, 1, "it does not begin with \"%%MatrixMarket matrix coordinate\"");
  if (field != "pattern" && field != "real" && field != "integer" && field != "double")
    fail_at(path, 1, "matrices of the field \"" + std::string(field) + "\" are not read");
  if (symmetry != "general" && symmetry != "symmetric")
    fail_at(path, 1, "matrices that are \"" + std::string(symmetry) + "\" are not read");
  h.weighted = field != "pattern";
  h.symmetric = symmetry == "symmetric";
  Line sizes = first_line(path, h, text, "%");
  std::uint64_t columns = 0;
  if (!sizes.number(h.vertices) || !sizes.number(columns) || !sizes.number(h.edges) || !sizes.empty())
    fail_at(path, h.lines, "it is no line \"ROWS COLUMNS ENTRIES\"");
  if (h.vertices != columns) fail_at(path, h.lines, "the matrix is not square");
  expect_vertices_of(path, h);
  return h;
}

// ---- other formats ----

template <class W>
[[nodiscard]] file<W> read_names(const std::string& path, std::string_view text) {
  file<W> result;
  std::unordered_map<std::string, vertex> numbers;
  std::vector<edge<W>> all;
  const auto number = [&](std::string_view name) {
    const auto [at, fresh] = numbers.try_emplace(std::string(name), static_cast<vertex>(numbers.size()));
    if (fresh) result.names.emplace_back(name);
    return at->second;
  };
  for (std::uint64_t n = 1; !text.empty(); ++n) {
    Line line(next_line(text));
    if (line.is_comment()) continue;
    edge<W> e{};
    const std::string_view from = line.word(), to = line.word();
    if (to.empty() || Line(to).is_comment()) fail_at(path, n, "a line has two names");
    e.from = number(from), e.to = number(to);
    if constexpr (!std::is_void_v<W>) {
      e.weight = 1;
      if (!line.is_comment() && !line.number(e.weight)) fail_at(path, n, "the weight is no number");
      if (!is_weight(e.weight)) fail_at(path, n, "the weight is negative, infinite or no number");
    } else if (!line.is_comment()) {
      (void)line.word();
    }
    if (!line.is_comment()) fail_at(path, n, "there is more than two names and a weight");
    all.push_back(e);
  }
  result.list = edges<W>(numbers.size(), all.size());
  std::copy(all.begin(), all.end(), result.list.begin());
  return result;
}

template <class T>
[[nodiscard]] T at(std::string_view bytes, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// The rows of one of GAPBS's graphs, one way.
class SerializedRows {
 public:
  SerializedRows(std::string_view bytes, std::size_t start, std::uint64_t vertices, std::uint64_t n,
                 bool weighted) noexcept
      : bytes_(bytes),
        start_(start),
        rows_(start + 8 * (vertices + 1)),
        vertices_(vertices),
        n_(n),
        weighted_(weighted) {}

  [[nodiscard]] std::size_t end() const noexcept { return rows_ + (weighted_ ? 8 : 4) * n_; }

  /// f(vertex, neighbour, weight) for each edge of the rows [first, last); returns the first row that is
  /// wrong, or last.
  template <class F>
  [[nodiscard]] std::size_t each(std::size_t first, std::size_t last, F&& f) const {
    for (std::size_t v = first; v < last; ++v) {
      const std::uint64_t begin = start_of(v), end = start_of(v + 1);
      if (begin > end || end > n_ || (v == 0 && begin != 0) || (v + 1 == vertices_ && end != n_)) return v;
      for (std::uint64_t i = begin; i < end; ++i) {
        const std::size_t offset = rows_ + (weighted_ ? 8 : 4) * i;
        const auto to = at<vertex>(bytes_, offset);
        const std::int32_t weight = weighted_ ? at<std::int32_t>(bytes_, offset + 4) : 1;
        if (to >= vertices_ || weight < 0) return v;
        f(static_cast<vertex>(v), to, weight);
      }
    }
    return last;
  }

 private:
  [[nodiscard]] std::uint64_t start_of(std::size_t v) const noexcept {
    return at<std::uint64_t>(bytes_, start_ + 8 * v);
  }
  std::string_view bytes_;
  std::size_t start_, rows_;
  std::uint64_t vertices_, n_;
  bool weighted_;
};

/// GAPBS's: is it directed, edges, vertices, where the rows begin, the rows [, the rows the other way].
template <class W>
[[nodiscard]] file<W> read_serialized(const std::string& path, std::string_view bytes, bool weighted) {
  constexpr std::size_t kStart = 17;
  if (bytes.size() < kStart) fail_at(path, 0, "it is shorter than a header");
  const bool directed = bytes[0] != 0;
  const auto n = at<std::uint64_t>(bytes, 1), vertices = at<std::uint64_t>(bytes, 9);
  const std::size_t each = weighted ? 8 : 4, ways = directed ? 2 : 1;
  if (static_cast<unsigned char>(bytes[0]) > 1 || vertices >= no_vertex || n > bytes.size() ||
      (vertices == 0 && n != 0) || bytes.size() != kStart + ways * (8 * (vertices + 1) + each * n))
    fail_at(path, 0,
            "its size of " + std::to_string(bytes.size()) + " bytes is not that of a graph of " +
                std::to_string(vertices) + " vertices and " + std::to_string(n) +
                " edges: it is truncated, or no " + (weighted ? ".wsg" : ".sg"));
  const SerializedRows rows(bytes, kStart, vertices, n, weighted);
  const SerializedRows other(bytes, rows.end(), vertices, n, weighted);  // of a directed graph alone
  const std::uint32_t members = ranks() * workers();
  struct Found {
    std::uint64_t bad, kept, marks;
  };
  const auto found = make_array<Found>(members);
  team([&, found = found.get()](const member& me) {
    const auto [first, last] = me.part(0, vertices);
    Found f{~std::uint64_t{0}, 0, 0};
    std::size_t end = rows.each(first, last, [&](vertex u, vertex v, std::int32_t w) {
      f.kept += directed || u <= v;  // one of both ways
      f.marks += directed ? mark_of(u, v, static_cast<std::uint32_t>(w))
                          : mark_both_ways(u, v, static_cast<std::uint32_t>(w));
    });
    if (directed && end == last)
      end = other.each(first, last, [&](vertex v, vertex u, std::int32_t w) {
        f.marks -= mark_of(u, v, static_cast<std::uint32_t>(w));
      });
    if (end != last) f.bad = end;
    found[me.index()] = f;
  });
  std::uint64_t kept = 0, marks = 0, bad = ~std::uint64_t{0};
  for (std::uint32_t m = 0; m < members; ++m) {
    bad = std::min(bad, found[m].bad), marks += found[m].marks;
    kept += std::exchange(found[m].kept, kept);  // now: those before
  }
  if (bad != ~std::uint64_t{0})
    fail_at(
        path, 0,
        "the row of vertex " + std::to_string(bad) + " is out of range, or has a vertex or weight that is");
  if (marks != 0) fail_at(path, 0, kOneWay);
  file<W> result{edges<W>(vertices, kept), !directed, {}};
  team([&, all = result.list.data(), found = found.get()](const member& me) {
    const auto [first, last] = me.part(0, vertices);
    (void)rows.each(first, last,
                    [&, to = all + found[me.index()].kept](vertex u, vertex v, std::int32_t w) mutable {
                      if (!directed && u > v) return;
                      edge<W> e{};
                      e.from = u, e.to = v;
                      if constexpr (!std::is_void_v<W>) e.weight = static_cast<W>(w);
                      *to++ = e;
                    });
  });
  return result;
}

/// Graph500's: the low 32 bits of both, and the high 16 of each.
template <class W>
[[nodiscard]] file<W> read_tuples(const std::string& path, std::string_view bytes) {
  constexpr std::size_t kEach = 12;
  if (bytes.size() % kEach != 0)
    fail_at(path, 0, "its size is no multiple of 12 bytes: it is truncated, or no list of Graph500's tuples");
  const std::uint64_t n = bytes.size() / kEach;
  Bytes weights;
  if constexpr (!std::is_void_v<W>) {
    weights = read_bytes(path + ".weights");
    if (weights.size != n * sizeof(float))
      fail_at(path + ".weights", 0, "it has not one weight for each edge");
  }
  std::uint64_t largest = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    if (at<std::uint32_t>(bytes, kEach * i + 8) != 0)
      fail_at(path, 0, "edge " + std::to_string(i) + " has a vertex of more than 32 bits");
    largest = std::max<std::uint64_t>(
        largest, std::max(at<vertex>(bytes, kEach * i), at<vertex>(bytes, kEach * i + 4)));
    if constexpr (!std::is_void_v<W>) {
      const auto w = at<float>(weights.text(), sizeof(float) * i);
      if (!is_weight(w) || (std::is_integral_v<W> && (w >= 0x1p31f || w != std::trunc(w))))
        fail_at(path + ".weights", 0,
                "edge " + std::to_string(i) + " has the weight " + std::to_string(w) +
                    (is_weight(w) ? ", which is no whole number of 32 bits"
                                  : ", which is negative, infinite or no number"));
    }
  }
  if (largest >= kMostVertices)
    fail_at(path, 0, "vertex " + std::to_string(largest) + " is not below 2^32 - 2");
  file<W> result{edges<W>(n != 0 ? largest + 1 : 0, n), true, {}};
  team([&, all = result.list.data()](const member& me) {
    const auto [first, last] = me.part(0, n);
    for (std::size_t i = first; i < last; ++i) {
      all[i].from = at<vertex>(bytes, kEach * i), all[i].to = at<vertex>(bytes, kEach * i + 4);
      if constexpr (!std::is_void_v<W>)
        all[i].weight = static_cast<W>(at<float>(weights.text(), sizeof(float) * i));
    }
  });
  return result;
}

}  // namespace

[[nodiscard]] std::string suffix_of(const std::string& path) {
  const std::size_t name = path.rfind('/') + 1, dot = path.rfind('.');
  return dot == std::string::npos || dot < name ? std::string() : path.substr(dot);
}

}  // namespace detail

template <weight W>
file<W> read(const std::string& path, const std::string& format) {
  using namespace detail;
  const std::string suffix = !format.empty() ? format : path == "-" ? ".el" : suffix_of(path);
  const auto is = [&suffix](const char* s) { return suffix == s; };
  if (!is(".el") && !is(".wel") && !is(".gr") && !is(".graph") && !is(".mtx") && !is(".sg") && !is(".wsg") &&
      !is(".tuples") && !is(".names"))
    fail_at(path, 0,
            "the suffix \"" + suffix + "\" is none of .el .wel .gr .graph .mtx .sg .wsg .tuples .names");
  const Bytes bytes = read_bytes(path);
  const std::string_view text = bytes.text();
  if (is(".gr")) return read_text<W>(path, dimacs_header(path, text), text);
  if (is(".graph")) return read_text<W>(path, metis_header(path, text), text);
  if (is(".mtx")) return read_text<W>(path, market_header(path, text), text);
  if (is(".sg") || is(".wsg")) return read_serialized<W>(path, text, is(".wsg"));
  if (is(".tuples")) return read_tuples<W>(path, text);
  if (is(".names")) return read_names<W>(path, text);
  Header h;
  h.weighted = is(".wel");
  return read_text<W>(path, h, text);
}
template file<void> read(const std::string&, const std::string&);
template file<std::int32_t> read(const std::string&, const std::string&);
template file<float> read(const std::string&, const std::string&);

}  // namespace kasane::graph
