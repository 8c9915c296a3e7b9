// SPDX-License-Identifier: Apache-2.0
// kasane bench arrays: kasane::gemm beside the BLAS alone on as many cores, patches beside memcpy, and those
// of the Python package beside C++.
// Claim: distributed arrays cost little: gemm reaches 0.9 of OpenBLAS's rate. Kasane's jobs and OpenBLAS take
// turns; a ratio is the median of the turns' ratios. The players verify.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "command_line.h"
#include "median.h"
#include "progress.h"
#include "rows.h"
#include "run_app.h"

namespace {

using kasane::bench::median;
using kasane::bench::Row;

constexpr unsigned kInARun = 3;  ///< products, or rounds of patches

struct Settings {
  std::vector<std::uint64_t> sizes;
  unsigned repetitions = 0;
};

std::string players() { return "'" + kasane::bench::own_folder(); }
std::string job(unsigned ranks, unsigned workers, const std::string& more) {
  return "OPENBLAS_NUM_THREADS=1 '" + kasane::bench::kasane_command() + "' run -n " + std::to_string(ranks) +
         " --workers " + std::to_string(workers) + " " + more + " -- ";
}

/// Of a job of so many ranks and workers.
struct Case {
  unsigned ranks, workers;
};
constexpr Case kCases[] = {{1, 1}, {1, 2}, {2, 1}};

std::vector<Row> measure_gemm(const Settings& s) {
  std::vector<Row> rows;
  kasane::bench::Progress progress(s.sizes.size() * std::size(kCases) * s.repetitions);
  for (const std::uint64_t n : s.sizes) {
    for (const Case& c : kCases) {
      const std::string arguments = std::to_string(n) + " " + std::to_string(kInARun);
      std::vector<double> ours, theirs, ratios;
      for (unsigned i = 0; i < s.repetitions; ++i) {
        progress.begin(fmt::format("gemm, N = {}, {} x {} workers", n, c.ranks, c.workers));
        ours.push_back(median(kasane::bench::run_app(
            job(c.ranks, c.workers, "") + players() + "/player-arrays' gemm " + arguments, {"/gigaflops"})));
        theirs.push_back(
            median(kasane::bench::run_app(fmt::format("OPENBLAS_NUM_THREADS={} {}/player-openblas' {}",
                                                      c.ranks * c.workers, players(), arguments),
                                          {"/gigaflops"})));
        ratios.push_back(ours.back() / theirs.back());
      }
      const unsigned threads = c.ranks * c.workers;
      rows.push_back({"arrays",
                      "gemm",
                      "kasane",
                      c.ranks,
                      threads,
                      8 * n * n,
                      median(ours),
                      "GFlop/s",
                      s.repetitions,
                      {{"N", n}, {"ratio", median(ratios)}}});
      rows.push_back({"arrays",
                      "gemm",
                      "openblas",
                      1,
                      threads,
                      8 * n * n,
                      median(theirs),
                      "GFlop/s",
                      s.repetitions,
                      {{"N", n}}});
    }
  }
  return rows;
}

struct Shape {
  const char* name;
  std::uint64_t bytes;
};
constexpr Shape kShapes[] = {{"1x1", 8}, {"1000x8", 64000}, {"256x256", 524288}, {"1MiB", 1048576}};

std::vector<Row> measure_patches(const Settings& s) {
  std::vector<Row> rows;
  const std::string command = job(2, 1, "--debug relocate=off") + players() + "/player-arrays' patches " +
                              std::to_string(s.repetitions);
  std::vector<std::string> names, figures;
  for (const Shape& shape : kShapes) {
    names.push_back(std::string("memcpy-") + shape.name);
    for (const char* what : {"get-", "put-", "accumulate-"})
      for (const char* where : {"-own", "-other"}) names.push_back(std::string(what) + shape.name + where);
  }
  for (const std::string& name : names) figures.push_back("/" + name);
  const auto values = kasane::bench::run_app(command, figures);
  if (values.size() != names.size() * s.repetitions)
    throw std::runtime_error("player-arrays: not as many figures as repetitions");
  std::vector<double> limit;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * s.repetitions);
    const std::vector<double> is(begin, begin + s.repetitions);
    const Shape& shape = kShapes[i / (names.size() / std::size(kShapes))];
    const bool is_limit = names[i].starts_with("memcpy");
    if (is_limit) limit = is;
    std::vector<double> ratios;
    for (std::size_t k = 0; k < is.size(); ++k) ratios.push_back(is[k] / limit[k]);
    rows.push_back({"arrays",
                    names[i].substr(0, names[i].find('-')),
                    is_limit ? "memcpy" : "kasane",
                    2,
                    1,
                    shape.bytes,
                    median(is),
                    "GB/s",
                    s.repetitions,
                    {{"patch", names[i].substr(names[i].find('-') + 1)}, {"ratio", median(ratios)}}});
  }
  return rows;
}

// ---- Python ----------------------------------------------------------------------------------------------

/// The interpreter, which finds the package of the build folder, else an installed one.
std::string python() {
  const char* const given = std::getenv("PYTHON");
  return "env PYTHONPATH='" + kasane::bench::own_folder() + "/../../python':\"$PYTHONPATH\" '" +
         (given != nullptr ? given : KASANE_BENCH_PYTHON) + "' ";
}
bool has_python() { return std::system((python() + "-c 'import kasane' 2>/dev/null").c_str()) == 0; }

/// Patches of Python, and what they are in C++.
struct Pair {
  const char *python, *cpp;
  std::uint64_t bytes;
};
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr Pair kPairs[] = {
    {"put-1MiB-own", "put-1MiB-own", kMiB},      {"put-1MiB-other", "put-1MiB-other", kMiB},
    {"get-new-1MiB-own", "get-1MiB-own", kMiB},  {"get-new-1MiB-other", "get-1MiB-other", kMiB},
    {"get-into-1MiB-own", "get-1MiB-own", kMiB}, {"get-into-1MiB-other", "get-1MiB-other", kMiB},
    {"get-new-1x1-own", "get-1x1-own", 8},       {"get-new-1x1-other", "get-1x1-other", 8}};

/// Of figure k of a run, whose first round is the slowest: memory is touched for the first time.
double median_of_run(const std::vector<double>& figures, std::size_t k) {
  const auto begin = figures.begin() + static_cast<std::ptrdiff_t>(k * kInARun);
  return median(std::vector<double>(begin, begin + kInARun));
}

/// Patches of 1 MiB and of one element by Python's package, in turns with C++. get-new: what a[…] returns;
/// get-into: into an array that is there.
std::vector<Row> measure_python(const Settings& s) {
  const std::string rounds = std::to_string(kInARun);
  std::vector<std::string> ours, theirs;
  for (const Pair& c : kPairs) {
    ours.push_back(std::string("/") + c.python);
    theirs.push_back(std::string("/") + c.cpp);
  }
  std::vector<std::vector<double>> rates(std::size(kPairs)), ratios(std::size(kPairs));
  kasane::bench::Progress progress(s.repetitions);
  for (unsigned i = 0; i < s.repetitions; ++i) {
    progress.begin("patches, Python and C++");
    const auto is = kasane::bench::run_app("'" + kasane::bench::kasane_command() + "' run --attach -n 2 -- " +
                                               python() + players() + "/arrays_python.py' " + rounds,
                                           ours);
    const auto cpp = kasane::bench::run_app(
        job(2, 1, "--debug relocate=off") + players() + "/player-arrays' patches " + rounds, theirs);
    for (std::size_t k = 0; k < std::size(kPairs); ++k) {
      rates[k].push_back(median_of_run(is, k));
      ratios[k].push_back(rates[k].back() / median_of_run(cpp, k));
    }
  }
  std::vector<Row> rows;
  for (std::size_t k = 0; k < std::size(kPairs); ++k)
    rows.push_back({"arrays",
                    "python",
                    "kasane",
                    2,
                    1,
                    kPairs[k].bytes,
                    median(rates[k]),
                    "GB/s",
                    s.repetitions,
                    {{"patch", std::string(kPairs[k].python)}, {"ratio", median(ratios[k])}}});
  return rows;
}

/// The ratios, for readers: rows have them as figures.
void print_ratios(const std::vector<Row>& rows, std::FILE* table) {
  using Cells = std::array<std::string, 7>;
  const kasane::TextTable lines({-12, -20, 8, 10, 10, 10, 8});
  std::fputs(lines.line(Cells{"case", "patch or N", "ranks", "threads", "value", "unit", "ratio"}).c_str(),
             table);
  for (const Row& row : rows) {
    std::string what, ratio;
    for (const Row::Figure& f : row.more) {
      if (f.name == "N") what = std::to_string(std::get<std::uint64_t>(f.value));
      if (f.name == "patch") what = std::get<std::string>(f.value);
      if (f.name == "ratio" && row.system == "kasane")
        ratio = fmt::format("{:.2f}", std::get<double>(f.value));
    }
    const std::string name = row.system == "openblas" ? "openblas" : row.case_;
    std::fputs(lines
                   .line(Cells{name, what, std::to_string(row.ranks), std::to_string(row.threads),
                               fmt::format("{:.3f}", row.value), row.unit, ratio})
                   .c_str(),
               table);
  }
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine suite("arrays", "N = 512, one repetition: seconds");
  suite.names(
      "cases", {"gemm", "patches", "python"},
      "  gemm      C = A B of N x N doubles, on 1 and 2 cores, beside OpenBLAS alone (libopenblas-dev)\n"
      "  patches   get, put and accumulate of patches, at the own rank and another, beside memcpy\n"
      "  python    patches by the Python package, beside C++; left out where it is not installed\n");
  suite.repetitions(5, 1);
  Settings s;
  suite.own().numbers("--sizes", s.sizes, "N: rows and columns (default: 2048)", 1, 1 << 16);
  if (const auto status = suite.parse(argc, argv)) return *status;
  s.repetitions = suite.repetitions();
  if (s.sizes.empty()) s.sizes = {suite.quick() ? 512u : 2048u};
  return kasane::bench::or_told("kasane bench arrays", [&] {
    std::vector<Row> rows;
    if (suite.wants("patches")) rows = measure_patches(s);
    if (suite.wants("python") && has_python())
      for (Row& row : measure_python(s)) rows.push_back(std::move(row));
    if (suite.wants("gemm"))
      for (Row& row : measure_gemm(s)) rows.push_back(std::move(row));
    print_ratios(rows, kasane::bench::table_file(suite.json()));
    write(suite.json(), rows);
    return 0;
  });
}
