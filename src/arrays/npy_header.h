// SPDX-License-Identifier: Apache-2.0
// The header of NumPy's .npy files, format 1.0 and 2.0 (numpy.lib.format): magic, version, length, and a
// Python dictionary with the type, the order and the shape.
// Thread safety: values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kasane::arrays {

/// What a header says. Elements are in C's order.
struct NpyHeader {
  std::string type;  ///< "<f8"
  bool fortran_order = false;
  std::vector<std::size_t> extents;
};

/// Magic, version 1.0 (2.0 where the text is too long), padded so that data begin at a multiple of 64.
[[nodiscard]] std::string npy_text(const NpyHeader&);

inline constexpr std::size_t kNpyPrefix = 12;  ///< bytes that say how long the header is
/// Bytes before the data; 0: these are no .npy file's first kNpyPrefix bytes.
[[nodiscard]] std::size_t npy_header_bytes(std::string_view prefix) noexcept;
/// From a whole header. False: it is no dictionary of the three entries.
[[nodiscard]] bool parse_npy(std::string_view header, NpyHeader&);

}  // namespace kasane::arrays
