// SPDX-License-Identifier: Apache-2.0
#include "swap_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/swap.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace kasane::bench {
namespace {

namespace fs = std::filesystem;

/// Empty, or what went wrong.
std::string make(const std::string& path, std::uint64_t bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return std::string("open: ") + std::strerror(errno);
  const int full = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));  // swapon refuses holes
  ::close(file);
  if (full != 0) return std::string("fallocate: ") + std::strerror(full);
  if (std::system(("mkswap '" + path + "' >/dev/null 2>&1").c_str()) != 0) return "mkswap failed";
  if (::swapon(path.c_str(), 0) != 0) return std::string("swapon: ") + std::strerror(errno);
  return {};
}

void give_back(const std::string& path) {
  ::swapoff(path.c_str());
  ::unlink(path.c_str());
}

}  // namespace

SwapFile::SwapFile(const std::string& directory, const std::string& name, std::uint64_t bytes)
    : path_(directory + "/" + name), problem_(make(path_, bytes)) {
  if (!good()) ::unlink(path_.c_str());
}

SwapFile::~SwapFile() {
  if (good()) give_back(path_);
}

void SwapFile::remove_left_behind(const std::string& directory, const std::string& prefix) {
  std::error_code error;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  for (const std::string& path : found) give_back(path);
}

}  // namespace kasane::bench
