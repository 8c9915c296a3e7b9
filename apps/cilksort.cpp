// SPDX-License-Identifier: Apache-2.0
// Sorts random 64-bit keys, or the lines of a file, which lie in global memory, with a fork–join merge sort
// whose threads move between ranks.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "cilksort/check.h"
#include "cilksort/line.h"
#include "cilksort/sort.h"
#include "common/command_line.h"
#include "common/parallel.h"
#include "common/patterns.h"
#include "common/pieces.h"
#include "common/private_array.h"
#include "common/progress.h"
#include "common/random.h"
#include "common/report.h"
#include "common/text_file.h"

namespace {

constexpr std::size_t kGrain = 32 * 1024;    // elements a piece when arrays are filled and checked
constexpr std::size_t kTextPiece = 1 << 20;  // bytes of text a piece

struct Arguments {
  std::uint64_t count = 10'000'000;
  std::string file, out, placement = "block";
  std::uint64_t leaf = 32 * 1024;

  [[nodiscard]] kasane::placement where() const {
    return placement == "local"    ? kasane::placement::local
           : placement == "cyclic" ? kasane::placement::cyclic
                                   : kasane::placement::block;
  }
  [[nodiscard]] apps::Cutoff cutoff() const { return {leaf, 4 * leaf, 16 * leaf}; }
};

template <class T>
apps::Summary summarize(const T* a, std::size_t n, bool quiet) {
  const apps::Progress progress("cilksort: checking", apps::threads_of_pieces(n, kGrain), quiet);
  return kasane::run([a, n] {
    return kasane::parallel_reduce(
        std::size_t{0}, n, apps::Summary{}, [a](std::size_t i) { return apps::summary_at(a, i); },
        [](apps::Summary x, apps::Summary y) { return x + y; }, kGrain);
  });
}

template <class T>
bool same(const T& a, const T& b) {
  return !(a < b) && !(b < a);
}

/// The sequential elision and std::sort on private copies of the unsorted elements.
template <class T>
class Rivals {
 public:
  Rivals(const T* unsorted, std::size_t n) : n_(n), a_(unsorted, n), b_(unsorted, n) {}

  void sort(apps::Report& report, apps::Cutoff cutoff) {
    {
      apps::PrivateArray<T> tmp(a_.get(), n_);
      report.measure_serial([&] { apps::cilksort<apps::Serial>(a_.get(), tmp.get(), n_, cutoff); });
    }
    report.measure_part("std_sort", [&] { std::sort(b_.get(), b_.get() + n_); });
  }
  /// Do all three agree?
  void compare(apps::Report& report, const T* sorted) {
    std::size_t i = 0;
    while (i < n_ && same(sorted[i], b_.get()[i]) && same(a_.get()[i], b_.get()[i])) ++i;
    report.verify(i == n_, "element " + std::to_string(i) + " is not what std::sort puts there");
  }

 private:
  std::size_t n_;
  apps::PrivateArray<T> a_, b_;
};

/// Fills, sorts and checks a[0, n), `repeat` times. fill(a) makes the unsorted elements anew, and ends about
/// so many threads.
template <class T, class Fill>
void sort_and_check(apps::Report& report, const apps::Common& common, const Arguments& arguments, T* a,
                    std::size_t n, std::size_t threads_of_fill, Fill fill) {
  const auto tmp = kasane::make_array<T>(n, arguments.where());
  const apps::Cutoff cutoff = arguments.cutoff();
  T* const scratch = tmp.get();
  std::optional<Rivals<T>> rivals;
  for (std::uint64_t r = 0; r < common.repeat; ++r) {
    {
      const apps::Progress progress("cilksort: filling", threads_of_fill, common.quiet);
      fill(a);
    }
    const apps::Summary before = summarize(a, n, common.quiet);
    if (common.serial && r == 0) {
      rivals.emplace(a, n);
      rivals->sort(report, cutoff);
    }
    {
      apps::Progress progress("cilksort: sorting", apps::threads_of_sort(n, cutoff), common.quiet);
      report.measure([&] { kasane::run([=] { apps::cilksort<apps::Parallel>(a, scratch, n, cutoff); }); });
    }
    const apps::Summary after = summarize(a, n, common.quiet);
    report.verify(after.sorted, "the result is not in order");
    report.verify(after.hash == before.hash,
                  "the result does not hold the elements that were there before (checksum)");
  }
  if (rivals) rivals->compare(report, a);
}

int sort_keys(const apps::CommandLine& line, const Arguments& arguments, apps::Report& report) {
  const std::size_t n = arguments.count;
  const std::uint64_t seed = line.common().seed;
  report.parameter("count", n);
  report.parameter("seed", seed);
  const auto keys = kasane::make_array<std::uint64_t>(n, arguments.where());
  sort_and_check(report, line.common(), arguments, keys.get(), n, apps::threads_of_pieces(n, kGrain),
                 [=](std::uint64_t* a) {
                   kasane::run([=] {
                     kasane::parallel_for(
                         std::size_t{0}, n, [a, seed](std::size_t i) { a[i] = apps::random_at(seed, i); },
                         kGrain);
                   });
                 });
  return report.finish();
}

/// A text in global memory and its division into pieces, each of which some thread indexes.
struct Text {
  const char* begin;
  const char* end;
  [[nodiscard]] std::size_t pieces() const noexcept {
    return (static_cast<std::size_t>(end - begin) + kTextPiece - 1) / kTextPiece;
  }
  template <class F>
  void for_starts(std::size_t piece, F&& f) const {
    const char* const first = begin + piece * kTextPiece;
    const char* const last = static_cast<std::size_t>(end - first) < kTextPiece ? end : first + kTextPiece;
    apps::for_line_starts(begin, end, first, last, f);
  }
};

/// first_line[p] := number of lines that start before piece p, for p = 0 … pieces. On a thread.
void count_lines(Text text, std::size_t* first_line) {
  const std::size_t pieces = text.pieces();
  kasane::parallel_for(
      std::size_t{0}, pieces,
      [=](std::size_t p) {
        std::size_t n = 0;
        text.for_starts(p, [&](const char*) { ++n; });
        first_line[p + 1] = n;
      },
      1);
  first_line[0] = 0;
  for (std::size_t p = 0; p < pieces; ++p) first_line[p + 1] += first_line[p];
}

/// The lines in the order of the text. On a thread.
void index_lines(Text text, const std::size_t* first_line, apps::Line* lines) {
  kasane::parallel_for(
      std::size_t{0}, text.pieces(),
      [=](std::size_t p) {
        apps::Line* to = lines + first_line[p];
        text.for_starts(p, [&](const char* start) {
          *to++ = apps::line_at(start, static_cast<std::size_t>(apps::end_of_line(start, text.end) - start));
        });
      },
      1);
}

void write_lines(apps::LineWriter& writer, const apps::Line* lines, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) writer.line(lines[i].text, lines[i].length);
  writer.close();
}

int sort_file(const apps::CommandLine& line, const Arguments& arguments, apps::Report& report) {
  report.parameter("file", arguments.file);
  if (!arguments.out.empty()) report.parameter("out", arguments.out);
  apps::TextFile file(arguments.file);
  const auto text = kasane::make_array<char>(file.bytes() + 1, arguments.where());
  const bool quiet = line.common().quiet;
  {
    const apps::Progress progress("cilksort: reading", 0, quiet);
    report.measure_part("read", [&] { file.read(text.get()); });
  }
  // Only now, since the output may be the input.
  std::optional<apps::LineWriter> writer;
  if (!arguments.out.empty()) writer.emplace(arguments.out);

  const Text whole{text.get(), text.get() + file.bytes()};
  const auto first_line = kasane::make_array<std::size_t>(whole.pieces() + 1);
  {
    const apps::Progress progress("cilksort: counting lines", apps::threads_of_pieces(whole.pieces(), 1),
                                  quiet);
    kasane::run([whole, first = first_line.get()] { count_lines(whole, first); });
  }
  const std::size_t n = first_line[whole.pieces()];
  report.result("bytes", file.bytes());
  report.result("lines", n);
  const auto lines = kasane::make_array<apps::Line>(n, arguments.where());
  sort_and_check(report, line.common(), arguments, lines.get(), n, apps::threads_of_pieces(whole.pieces(), 1),
                 [whole, first = first_line.get()](apps::Line* to) {
                   kasane::run([=] { index_lines(whole, first, to); });
                 });
  if (writer) {
    const apps::Progress progress("cilksort: writing", 0, quiet);
    report.measure_part("write", [&] { write_lines(*writer, lines.get(), n); });
  }
  return report.finish();
}

int run(int argc, char** argv) {
  apps::CommandLine line("cilksort",
                         "Sorts random 64-bit keys, or the lines of a file bytewise (as LC_ALL=C sort), with "
                         "a fork-join merge sort");
  Arguments arguments;
  line.number("--count", arguments.count, "Random keys to sort", 0, std::uint64_t{1} << 40);
  line.text("--file", arguments.file, "Sort the lines of this file instead");
  line.text("--out", arguments.out, "Write the sorted lines here");
  line.choice("--placement", arguments.placement, {"local", "block", "cyclic"},
              "Which rank owns the pages of the arrays");
  line.number("--leaf", arguments.leaf, "Elements that one thread sorts; it merges four times as many", 4,
              std::uint64_t{1} << 40);
  line.exclusive("--file", "--count");
  line.needs("--out", "--file");
  if (auto status = line.parse(argc, argv)) return *status;

  apps::Report report(line);
  report.parameter("placement", arguments.placement);
  report.parameter("leaf", arguments.leaf);
  return arguments.file.empty() ? sort_keys(line, arguments, report) : sort_file(line, arguments, report);
}

}  // namespace

int main(int argc, char** argv) {
  return apps::guarded("cilksort", [&] { return run(argc, argv); });
}
