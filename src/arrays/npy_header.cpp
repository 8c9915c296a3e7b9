// SPDX-License-Identifier: Apache-2.0
#include "arrays/npy_header.h"

#include <cstdint>

namespace kasane::arrays {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAligned = 64;

std::uint8_t byte_at(std::string_view s, std::size_t i) noexcept { return static_cast<std::uint8_t>(s[i]); }

/// What follows `'key':` in a dictionary, without leading spaces; empty: no such key.
std::string_view value_of(std::string_view text, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::size_t at = text.find(quote + std::string(key) + quote);
    if (at == std::string_view::npos) continue;
    text.remove_prefix(at + key.size() + 2);
    const std::size_t begin = text.find_first_not_of(" :");
    return begin == std::string_view::npos ? std::string_view{} : text.substr(begin);
  }
  return {};
}

bool parse_type(std::string_view value, std::string& type) {
  if (value.empty() || (value[0] != '\'' && value[0] != '"')) return false;
  const std::size_t end = value.find(value[0], 1);
  if (end == std::string_view::npos) return false;
  type = value.substr(1, end - 1);
  return true;
}

bool parse_shape(std::string_view value, std::vector<std::size_t>& extents) {
  if (value.empty() || value[0] != '(') return false;
  extents.clear();
  bool in_number = false;
  for (const char c : value.substr(1)) {
    if (c == ')') return true;
    const bool digit = c >= '0' && c <= '9';
    if (digit) {
      if (!in_number) extents.push_back(0);
      if (extents.back() > (std::size_t{1} << 58)) return false;
      extents.back() = extents.back() * 10 + static_cast<std::size_t>(c - '0');
    } else if (c != ',' && c != ' ' && c != 'L') {  // 3L: Python 2's
      return false;
    }
    in_number = digit;
  }
  return false;
}

}  // namespace

std::string npy_text(const NpyHeader& h) {
  std::string shape;
  for (std::size_t d = 0; d < h.extents.size(); ++d)
    shape +=
        (d != 0 ? " " : "") + std::to_string(h.extents[d]) + (d == 0 || d + 1 < h.extents.size() ? "," : "");
  std::string text = "{'descr': '" + h.type + "', 'fortran_order': " + (h.fortran_order ? "True" : "False") +
                     ", 'shape': (" + shape + "), }";
  const bool large = text.size() + kAligned > 65535;
  const std::size_t before = kMagic.size() + 2 + (large ? 4 : 2);
  text.append(kAligned - 1 - (before + text.size()) % kAligned, ' ');
  text += '\n';
  std::string all(kMagic);
  all += large ? '\2' : '\1';
  all += '\0';
  for (std::size_t i = 0; i < (large ? 4u : 2u); ++i) all += static_cast<char>(text.size() >> 8 * i & 0xff);
  return all + text;
}

std::size_t npy_header_bytes(std::string_view s) noexcept {
  if (s.size() < kNpyPrefix || s.substr(0, kMagic.size()) != kMagic) return 0;
  const std::uint8_t version = byte_at(s, 6);
  if (version == 1) return 10 + (byte_at(s, 8) | std::size_t{byte_at(s, 9)} << 8);
  if (version != 2 && version != 3) return 0;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) length |= std::size_t{byte_at(s, 8 + i)} << 8 * i;
  return 12 + length;
}

bool parse_npy(std::string_view header, NpyHeader& h) {
  const std::string_view order = value_of(header, "fortran_order");
  h.fortran_order = order.starts_with("True");
  return (h.fortran_order || order.starts_with("False")) && parse_type(value_of(header, "descr"), h.type) &&
         parse_shape(value_of(header, "shape"), h.extents);
}

}  // namespace kasane::arrays
