// SPDX-License-Identifier: Apache-2.0
#include "stencil/picture.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "common/text_file.h"

namespace apps {

void write_picture(const std::string& file, const double* values, std::size_t n, std::size_t pitch) {
  const std::size_t side = std::min<std::size_t>(n, 1024);
  std::vector<double> samples;
  samples.reserve(side * side);
  for (std::size_t i = 0; i < side; ++i)
    for (std::size_t j = 0; j < side; ++j) samples.push_back(values[i * n / side * pitch + j * n / side]);
  const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
  const double low = *least, scale = *most > *least ? 255 / (*most - *least) : 0;
  std::vector<unsigned char> grey(samples.size());
  std::transform(samples.begin(), samples.end(), grey.begin(),
                 [&](double x) { return static_cast<unsigned char>((x - low) * scale); });

  const int fd = open_output(file);
  std::FILE* f = fd >= 0 ? ::fdopen(fd, "wb") : nullptr;
  bool good = f != nullptr && std::fprintf(f, "P5\n%zu %zu\n255\n", side, side) > 0 &&
              std::fwrite(grey.data(), 1, grey.size(), f) == grey.size();
  if (f != nullptr) good = std::fclose(f) == 0 && good;
  if (!good) throw std::runtime_error("cannot write the picture " + file + ": " + std::strerror(errno));
}

}  // namespace apps
