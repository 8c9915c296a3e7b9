// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/demangle.h"

#include <cxxabi.h>

#include <cstdlib>

namespace kasane::comm {
namespace {

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$";

std::string demangle(const std::string& name) {
  int failed = 0;
  char* readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed);
  std::string result = failed == 0 && readable != nullptr ? readable : name;
  std::free(readable);
  return result;
}

}  // namespace

std::string demangle_all(std::string_view text) {
  std::string out;
  for (auto at = text.find("_Z"); at != std::string_view::npos; at = text.find("_Z")) {
    const std::size_t end = std::min(text.find_first_not_of(kNameCharacters, at), text.size());
    out.append(text.substr(0, at)).append(demangle(std::string(text.substr(at, end - at))));
    text.remove_prefix(end);
  }
  return out.append(text);
}

}  // namespace kasane::comm
