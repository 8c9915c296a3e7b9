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
#include <vector>

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

namespace {

/// Calls look(data, bytes) with the program's file; false: it cannot be read.
template <class Look>
bool with_file(const std::string& name, const Look& look) {
  const int fd = ::open(find_program(name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool mapped = false;
  struct stat info;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    const auto bytes = static_cast<std::size_t>(info.st_size);
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    mapped = data != MAP_FAILED;
    if (mapped) {
      look(static_cast<const char*>(data), bytes);
      ::munmap(data, bytes);
    }
  }
  ::close(fd);
  return mapped;
}

/// The contents of a section of an ELF file of 64 bits; empty: there is none.
std::string section_of(const char* data, std::size_t bytes, const std::string& wanted) {
  Elf64_Ehdr header;
  if (bytes < sizeof header) return {};
  std::memcpy(&header, data, sizeof header);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum ||
      header.e_shoff > bytes || (bytes - header.e_shoff) / sizeof(Elf64_Shdr) < header.e_shnum)
    return {};
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), data + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  const auto text_of = [&](const Elf64_Shdr& s) {
    const bool inside = s.sh_offset <= bytes && s.sh_size <= bytes - s.sh_offset;
    return inside ? std::string(data + s.sh_offset, s.sh_size) : std::string();
  };
  const std::string names = text_of(sections[header.e_shstrndx]);
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_name < names.size() && names.c_str() + s.sh_name == wanted) return text_of(s);
  }
  return {};
}

}  // namespace

bool may_be_kasane_program(const std::string& name) {
  bool lacks = false;
  with_file(name, [&](const char* data, std::size_t bytes) { lacks = lacks_mark(data, bytes); });
  return !lacks;
}

std::optional<std::string> built_with(const std::string& name) {
  std::optional<std::string> found;
  with_file(name, [&](const char* data, std::size_t bytes) {
    if (bytes < SELFMAG || std::memcmp(data, ELFMAG, SELFMAG) != 0 || lacks_mark(data, bytes)) return;
    found = section_of(data, bytes, "kasane_atomics");
  });
  return found;
}

}  // namespace kasane::tools
