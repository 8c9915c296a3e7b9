// SPDX-License-Identifier: Apache-2.0
// A picture of a plate: a PGM (netpbm's grey map, which any viewer and converter reads), at most 1024 points
// wide; black is the least value, white the largest.
// Thread safety: none; main calls it.
#pragma once

#include <cstddef>
#include <string>

namespace apps {

/// Throws std::runtime_error with file and reason. n × n values, rows `pitch` apart.
void write_picture(const std::string& file, const double* values, std::size_t n, std::size_t pitch);

}  // namespace apps
