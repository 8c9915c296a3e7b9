// SPDX-License-Identifier: Apache-2.0
#include "base/helper_folder.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>

namespace kasane {
namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

/// libkasane.so's folder, if this code is in that library.
std::string library_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&library_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string file = info.dli_fname;
  return file.find("/libkasane.so") != std::string::npos ? folder_of(file) : std::string();
}

std::string executable_folder() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? folder_of(std::string(path, static_cast<std::size_t>(n))) : std::string(".");
}

}  // namespace

std::vector<std::string> helper_folders() {
  if (const std::string library = library_folder(); !library.empty()) return {library + "/kasane"};
  const std::string here = executable_folder() + "/";
  return {here + "../lib/kasane", here + KASANE_HELPERS_FROM_BIN, here + ".", KASANE_INSTALLED_HELPERS};
}

std::string find_helper(const std::string& file) {
  for (const std::string& folder : helper_folders()) {
    std::string path = folder + "/" + file;
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

}  // namespace kasane
