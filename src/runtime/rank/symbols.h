// SPDX-License-Identifier: Apache-2.0
// The symbol tables in the file of an executable or a library: names of functions and of variables, static
// ones included. And its other sections.
//
// Thread safety: every call from any thread. Nothing allocates; async-signal-safe.
#pragma once

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kasane::runtime {

/// A file, mapped for reading; none if it cannot be opened.
class MappedFile {
 public:
  explicit MappedFile(const char* path) noexcept {
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat info{};
    if (::fstat(fd, &info) == 0 && info.st_size > 0) {
      void* p = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (p != MAP_FAILED) {
        data_ = static_cast<const char*>(p);
        bytes_ = static_cast<std::size_t>(info.st_size);
      }
    }
    ::close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), bytes_);
  }
  /// `count` objects of T at offset, or null if they do not all lie in the file.
  template <class T>
  [[nodiscard]] const T* at(std::uint64_t offset, std::uint64_t count = 1) const noexcept {
    if (data_ == nullptr || offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(data_ + offset);
  }
  /// A string that ends within the file, or null.
  [[nodiscard]] const char* string(std::uint64_t offset) const noexcept {
    if (data_ == nullptr || offset >= bytes_) return nullptr;
    return std::memchr(data_ + offset, 0, bytes_ - offset) != nullptr ? data_ + offset : nullptr;
  }

 private:
  const char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The bytes of the section of this name; empty: the file has none.
[[nodiscard]] inline std::string_view section_of(const MappedFile& file, std::string_view wanted) noexcept {
  const auto* header = file.at<ElfW(Ehdr)>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  const auto* sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
  if (sections == nullptr || header->e_shstrndx >= header->e_shnum) return {};
  const std::uint64_t names = sections[header->e_shstrndx].sh_offset;
  for (unsigned s = 0; s < header->e_shnum; ++s) {
    const char* const name = file.string(names + sections[s].sh_name);
    if (name == nullptr || wanted != name || sections[s].sh_type == SHT_NOBITS) continue;
    const char* const bytes = file.at<char>(sections[s].sh_offset, sections[s].sh_size);
    return bytes != nullptr ? std::string_view(bytes, sections[s].sh_size) : std::string_view();
  }
  return {};
}

enum class SymbolTables : std::uint8_t {
  full,  ///< .symtab, which `strip` removes
  any,   ///< that, and .dynsym: what is exported, named again
};

/// Calls see(symbol, name) for each symbol of this type (STT_FUNC, …) until it returns true. name: null if
/// the file is damaged. Returns whether the file has such a table.
template <class See>
bool for_each_symbol(const MappedFile& file, unsigned type, SymbolTables which, const See& see) {
  const auto* header = file.at<ElfW(Ehdr)>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  const auto* sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
  bool found = false;
  for (unsigned s = 0; sections != nullptr && s < header->e_shnum; ++s) {
    const auto& table = sections[s];
    const bool wanted =
        table.sh_type == SHT_SYMTAB || (which == SymbolTables::any && table.sh_type == SHT_DYNSYM);
    if (!wanted || table.sh_link >= header->e_shnum) continue;
    found = true;
    const std::uint64_t count = table.sh_size / sizeof(ElfW(Sym));
    const auto* symbols = file.at<ElfW(Sym)>(table.sh_offset, count);
    for (std::uint64_t i = 0; symbols != nullptr && i < count; ++i) {
      if (ELF64_ST_TYPE(symbols[i].st_info) != type) continue;
      if (see(symbols[i], file.string(sections[table.sh_link].sh_offset + symbols[i].st_name))) return true;
    }
  }
  return found;
}

}  // namespace kasane::runtime
