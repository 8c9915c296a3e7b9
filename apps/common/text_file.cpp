// SPDX-License-Identifier: Apache-2.0
#include "common/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace apps {
namespace {

// Of the process, not of the space: the kernel reads and writes it.
char buffer[1 << 20];

[[noreturn]] void fail(const char* what, const std::string& name, int error) {
  throw std::runtime_error(std::string(what) + " " + name + ": " + std::strerror(error));
}

}  // namespace

TextFile::TextFile(std::string name)
    : name_(std::move(name)), fd_(::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) fail("cannot read", name_, errno);
  struct stat status{};
  const int error = ::fstat(fd_, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  const bool regular = S_ISREG(status.st_mode);
  if (error != 0 || !regular) {
    ::close(fd_);
    if (error != 0) fail("cannot read", name_, error);
    throw std::runtime_error("cannot read " + name_ + ": not a regular file (its size must be known)");
  }
  bytes_ = static_cast<std::size_t>(status.st_size);
}

TextFile::~TextFile() { ::close(fd_); }

void TextFile::read(char* to) {
  std::size_t done = 0;
  while (done < bytes_) {
    const ssize_t got = ::read(fd_, buffer, std::min(sizeof buffer, bytes_ - done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("reading", name_, errno);
    if (got == 0) throw std::runtime_error("reading " + name_ + ": it became shorter meanwhile");
    std::memcpy(to + done, buffer, static_cast<std::size_t>(got));
    done += static_cast<std::size_t>(got);
  }
}

int open_output(const std::string& name) noexcept {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const int fd = ::open(name.c_str(), kFlags | O_NOFOLLOW, 0666);
  struct stat link{}, folder{};
  if (fd >= 0 || errno != ELOOP || ::lstat(name.c_str(), &link) != 0) return fd;
  const std::size_t last = name.rfind('/') + 1;
  if (::stat(last == 0 ? "." : name.substr(0, last).c_str(), &folder) != 0) return -1;
  if ((folder.st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH) && link.st_uid != folder.st_uid &&
      link.st_uid != ::geteuid()) {
    errno = EACCES;
    return -1;
  }
  return ::open(name.c_str(), kFlags, 0666);
}

LineWriter::LineWriter(std::string name) : name_(std::move(name)), fd_(open_output(name_)) {
  if (fd_ < 0) fail("cannot write", name_, errno);
}

LineWriter::~LineWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void LineWriter::line(const char* text, std::size_t bytes) {
  append(text, bytes);
  append("\n", 1);
}

void LineWriter::append(const char* text, std::size_t bytes) {
  while (bytes > 0) {
    if (used_ == sizeof buffer) flush();
    const std::size_t part = std::min(bytes, sizeof buffer - used_);
    std::memcpy(buffer + used_, text, part);
    used_ += part;
    text += part;
    bytes -= part;
  }
}

void LineWriter::flush() {
  std::size_t done = 0;
  while (done < used_) {
    const ssize_t put = ::write(fd_, buffer + done, used_ - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("writing", name_, errno);
    done += static_cast<std::size_t>(put);
  }
  used_ = 0;
}

void LineWriter::close() {
  flush();
  if (::close(std::exchange(fd_, -1)) != 0) fail("writing", name_, errno);
}

}  // namespace apps
