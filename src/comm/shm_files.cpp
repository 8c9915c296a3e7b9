// SPDX-License-Identifier: Apache-2.0
// See shm_files.h.
#include "comm/shm_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

namespace kasane::comm {
namespace {

constexpr const char* kShm = "/dev/shm";
constexpr const char* kHead = "kasane-ucx-";
constexpr const char *kOpenMpi = "vader_segment.", *kOpenMpi5 = "sm_segment.";

/// A locked descriptor of the file that has this name; -1: another process holds it, or removed it as dead
/// before it was locked.
int lock(const std::string& path, int how) noexcept {
  const char* name = path.c_str();
  const int fd = ::open(name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  struct stat opened{}, named{};
  if (fd >= 0 && ::flock(fd, how | LOCK_NB) == 0 && ::fstat(fd, &opened) == 0 && ::lstat(name, &named) == 0 &&
      opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
    return fd;
  }
  if (fd >= 0) ::close(fd);
  return -1;
}

void remove_files_in(int folder) noexcept {
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = copy < 0 ? nullptr : ::fdopendir(copy);
  if (entries == nullptr) {
    if (copy >= 0) ::close(copy);
    return;
  }
  // "." and ".." fail: they are folders
  while (const dirent* entry = ::readdir(entries)) ::unlinkat(folder, entry->d_name, 0);
  ::closedir(entries);
}

bool begins(std::string_view text, std::string_view head) noexcept {
  return text.substr(0, head.size()) == head;
}

void remove_if_dead(const std::string& name) noexcept {
  struct stat info{};
  if (::lstat(name.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return;
  const bool folder = S_ISDIR(info.st_mode) && begins(name, std::string(kShm) + "/" + kHead);
  const bool claimed = S_ISREG(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
  if (!folder && !claimed) return;
  const int fd = lock(name, LOCK_EX);
  if (fd < 0) return;
  if (folder) remove_files_in(fd);
  folder ? ::rmdir(name.c_str()) : ::unlink(name.c_str());
  ::close(fd);
}

}  // namespace

Result<ShmFolder> ShmFolder::create() {
  remove_dead_shm_files();
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name = std::string(kShm) + "/" + kHead + "XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      return fail_errno(Errc::io, "no folder can be made in /dev/shm, where UCX keeps its queues");
    const int fd = lock(name, LOCK_EX);
    if (fd >= 0) return ShmFolder(fd, std::move(name));
  }
  return fail(Errc::io,
              "folders made in /dev/shm vanish at once: another program removes " + std::string(kHead) + "*");
}

ShmFolder::ShmFolder(ShmFolder&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), name_(std::exchange(other.name_, {})) {}

ShmFolder::~ShmFolder() {
  if (!name_.empty()) remove_files_in(fd_);
  remove_name();
  if (fd_ >= 0) ::close(fd_);
}

std::string ShmFolder::path() const { return "/proc/self/fd/" + std::to_string(fd_); }

void ShmFolder::remove_name() noexcept {
  if (name_.empty()) return;
  ::rmdir(name_.c_str());
  name_.clear();
  const int shm = ::open(kShm, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (shm < 0) return;
  ::dup3(shm, fd_, O_CLOEXEC);  // the lock goes with the folder
  ::close(shm);
}

void claim_segments_of_open_mpi() {
  std::ifstream maps("/proc/self/maps");
  std::string last;
  for (std::string line; std::getline(maps, line);) {
    const auto at = line.find(std::string(kShm) + "/");
    if (at == std::string::npos || line.compare(at, std::string::npos, last) == 0) continue;
    last = line.substr(at);
    const std::string_view name = std::string_view(last).substr(std::strlen(kShm) + 1);
    if (!begins(name, kOpenMpi) && !begins(name, kOpenMpi5)) continue;
    const int fd = lock(last, LOCK_SH);  // stays open, and so locked
    if (fd >= 0) ::fchmod(fd, S_IRUSR | S_IWUSR | S_ISVTX);
  }
}

void remove_dead_shm_files() noexcept {
  DIR* entries = ::opendir(kShm);
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    for (const char* head : {kHead, kOpenMpi, kOpenMpi5}) {
      if (begins(entry->d_name, head)) remove_if_dead(std::string(kShm) + "/" + entry->d_name);
    }
  }
  ::closedir(entries);
}

}  // namespace kasane::comm
