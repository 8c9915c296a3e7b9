// SPDX-License-Identifier: Apache-2.0
#include "scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace kasane::bench {

ScratchFile::ScratchFile(const std::string& directory, std::uint64_t bytes)
    : fd_(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
  if (fd_ < 0) {
    std::string name = directory + "/kasane-bench.XXXXXX";
    fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd_ >= 0) ::unlink(name.c_str());
  }
  if (fd_ >= 0 && ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0) return;
  const std::string why = std::strerror(errno);
  if (fd_ >= 0) ::close(fd_);
  throw std::runtime_error("no file can be made in " + directory + ": " + why);
}

ScratchFile::~ScratchFile() { ::close(fd_); }

std::string ScratchFile::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_);
}

}  // namespace kasane::bench
