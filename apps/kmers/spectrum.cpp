// SPDX-License-Identifier: Apache-2.0
#include "kmers/spectrum.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/plot_rows.h"
#include "common/text_file.h"

namespace apps::kmers {
namespace {

constexpr double kShown = 0.995;  // of all k-mers of the text

}  // namespace

void write_histogram(const Histogram& histogram, const std::string& file) {
  std::string text;
  for (std::size_t n = 1; n < histogram.size(); ++n)
    if (histogram[n] != 0) text += std::to_string(n) + ' ' + std::to_string(histogram[n]) + '\n';
  if (!file.empty()) {
    LineWriter writer(file);
    if (!text.empty()) writer.line(text.data(), text.size() - 1);
    writer.close();
  } else if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw std::runtime_error(std::string("writing the histogram to standard output: ") +
                             std::strerror(errno));
  }
}

void write_spectrum(const Histogram& histogram, unsigned k, const std::string& what,
                    const std::string& file) {
  double all = 0, shown = 0;
  for (std::size_t n = 1; n < histogram.size(); ++n)
    all += static_cast<double>(n) * static_cast<double>(histogram[n]);
  auto rows = nlohmann::ordered_json::array();
  for (std::size_t n = 1; n < kMostCounted && (shown < kShown * all || n < 3); ++n) {
    shown += static_cast<double>(n) * static_cast<double>(histogram[n]);
    rows.push_back({{"suite", "kmers"},
                    {"case", "spectrum, k = " + std::to_string(k)},
                    {"system", what},
                    {"multiplicity", n},
                    {"value", histogram[n]},
                    {"unit", "k-mers"},
                    {"repetitions", 1}});
  }
  write_plot_rows(rows, file);
}

}  // namespace apps::kmers
