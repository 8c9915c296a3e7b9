// SPDX-License-Identifier: Apache-2.0
#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace kasane {

bool planted(const std::string& folder, const struct stat& link) noexcept {
  struct stat f{};
  return ::stat(folder.c_str(), &f) == 0 && (f.st_mode & S_ISVTX) != 0 && (f.st_mode & S_IWOTH) != 0 &&
         link.st_uid != f.st_uid && link.st_uid != ::geteuid();
}

std::FILE* open_output(const std::string& path) noexcept {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  int fd = ::open(path.c_str(), kFlags | O_NOFOLLOW, 0666);
  struct stat link{};
  if (fd < 0 && errno == ELOOP && ::lstat(path.c_str(), &link) == 0) {
    const std::size_t name = path.rfind('/') + 1;
    if (planted(name == 0 ? "." : path.substr(0, name), link)) {
      errno = EACCES;
      return nullptr;
    }
    fd = ::open(path.c_str(), kFlags, 0666);  // in such a folder only its owner can change the link meanwhile
  }
  return fd < 0 ? nullptr : ::fdopen(fd, "w");
}

}  // namespace kasane
