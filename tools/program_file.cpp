// SPDX-License-Identifier: Apache-2.0
#include "program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "comm/bootstrap/start_mark.h"

namespace kasane::tools {
namespace {

bool lacks_mark(const char* data, std::size_t bytes) {
  if (bytes < SELFMAG || std::memcmp(data, ELFMAG, SELFMAG) != 0) return false;
  std::string mark = KASANE_START_MARK_HEAD;
  mark += KASANE_START_MARK_TAIL;
  return ::memmem(data, bytes, mark.data(), mark.size()) == nullptr;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string whole = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(whole.c_str(), X_OK) == 0) return whole;
  }
  return {};
}

bool may_be_kasane_program(const std::string& name) {
  const int fd = ::open(find_program(name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;
  bool lacks = false;
  struct stat info;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    const auto bytes = static_cast<std::size_t>(info.st_size);
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data != MAP_FAILED) {
      lacks = lacks_mark(static_cast<const char*>(data), bytes);
      ::munmap(data, bytes);
    }
  }
  ::close(fd);
  return !lacks;
}

}  // namespace kasane::tools
