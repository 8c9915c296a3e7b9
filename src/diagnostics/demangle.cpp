// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/demangle.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

namespace kasane::diagnostics {
namespace {

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$";

}  // namespace

/// Without what is between < and >, or between parentheses: sort<…>(…)::{lambda(…)#1}.
std::string without_arguments(const std::string& name) {
  std::string out;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    constexpr std::string_view kOperator = "operator";
    if (name.compare(i, kOperator.size(), kOperator) == 0) {  // operator<<, operator->, operator()
      const std::size_t begin = i + kOperator.size();
      std::size_t end = std::min(name.find_first_not_of("<>=-", begin), name.size());
      if (name.compare(end, 2, "()") == 0 && end == begin) end += 2;
      if (depth == 0) out.append(name, i, end - i);
      i = end - 1;
      continue;
    }
    const char c = name[i];
    const bool opens = c == '<' || c == '(', closes = c == '>' || c == ')';
    if (closes && depth > 0) --depth;
    if (depth == 0) out += c;
    if (opens && depth++ == 0 && name[i + 1] != ')' && name[i + 1] != '>') out += "…";
  }
  return out;
}

std::string readable_name(const std::string& name, std::size_t longest) {
  int failed = 0;
  char* readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed);
  std::string result = failed == 0 && readable != nullptr ? readable : name;
  std::free(readable);
  return result.size() > longest ? without_arguments(result) : result;
}

std::string demangle_all(std::string_view text) {
  std::string out;
  for (auto at = text.find("_Z"); at != std::string_view::npos; at = text.find("_Z")) {
    const std::size_t end = std::min(text.find_first_not_of(kNameCharacters, at), text.size());
    out.append(text.substr(0, at)).append(readable_name(std::string(text.substr(at, end - at))));
    text.remove_prefix(end);
  }
  return out.append(text);
}

}  // namespace kasane::diagnostics
