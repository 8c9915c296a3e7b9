// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_locals_check.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace kasane::runtime {
namespace {

int first_object(dl_phdr_info* info, std::size_t, void* out) {
  *static_cast<dl_phdr_info*>(out) = *info;
  return 1;
}

/// The calling OS thread's block of the executable's thread_locals.
std::span<const std::byte> own_block() noexcept {
  dl_phdr_info program = {};
  ::dl_iterate_phdr(first_object, &program);
  for (int i = 0; i < program.dlpi_phnum; ++i) {
    const auto& header = program.dlpi_phdr[i];
    if (header.p_type == PT_TLS && program.dlpi_tls_data != nullptr)
      return {static_cast<const std::byte*>(program.dlpi_tls_data), header.p_memsz};
  }
  return {};
}

/// The executable's file, mapped.
class ProgramFile {
 public:
  ProgramFile() {
    const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat facts{};
    if (::fstat(fd, &facts) == 0 && facts.st_size > 0) {
      const auto bytes = static_cast<std::size_t>(facts.st_size);
      void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(at), bytes};
    }
    ::close(fd);
  }
  ~ProgramFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  ProgramFile(const ProgramFile&) = delete;
  ProgramFile& operator=(const ProgramFile&) = delete;

  /// Empty where the file has not so many.
  template <class T>
  [[nodiscard]] std::span<const T> at(std::uint64_t offset, std::uint64_t count) const noexcept {
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) return {};
    return {reinterpret_cast<const T*>(bytes_.data() + offset), count};
  }

 private:
  std::span<const std::byte> bytes_;
};

std::string readable(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                    std::free);
  return text != nullptr ? text.get() : name;
}

/// Of the compiler ("initialised" flags), of the C++ library or of the runtime.
bool is_programs(std::string_view name) noexcept {
  return !name.starts_with("__") && !name.starts_with("guard variable") && !name.starts_with("kasane") &&
         name.find("kasane::runtime") == name.npos && name.find("__gnu_cxx") == name.npos;
}

void add_symbols(const ProgramFile& file, const Elf64_Shdr& table, const Elf64_Shdr& strings,
                 std::vector<ThreadLocal>& found) {
  const auto names = file.at<char>(strings.sh_offset, strings.sh_size);
  for (const auto& symbol : file.at<Elf64_Sym>(table.sh_offset, table.sh_size / sizeof(Elf64_Sym))) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0 ||
        symbol.st_name >= names.size())
      continue;
    std::string name = readable(names.data() + symbol.st_name);
    if (is_programs(name)) found.push_back({symbol.st_value, symbol.st_size, std::move(name)});
  }
}

}  // namespace

std::vector<ThreadLocal> thread_locals_of_program() {
  const std::size_t block_bytes = own_block().size();
  if (block_bytes == 0) return {};
  const ProgramFile file;
  const auto header = file.at<Elf64_Ehdr>(0, 1);
  if (header.empty()) return {};
  const auto sections = file.at<Elf64_Shdr>(header[0].e_shoff, header[0].e_shnum);
  bool stripped = true;
  std::vector<ThreadLocal> found;
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    stripped = false;
    add_symbols(file, section, sections[section.sh_link], found);
  }
  std::erase_if(found, [&](const ThreadLocal& v) { return v.offset + v.bytes > block_bytes; });
  if (stripped) found.push_back({0, block_bytes, "(the program has no symbol table)"});
  return found;
}

std::unique_ptr<ThreadLocalsCheck> ThreadLocalsCheck::create(std::uint32_t workers) {
  auto variables = thread_locals_of_program();
  if (variables.empty()) return nullptr;
  auto check = std::make_unique<ThreadLocalsCheck>();
  check->changed_.resize(variables.size());
  check->variables_ = std::move(variables);
  check->before_.resize(workers);
  return check;
}

void ThreadLocalsCheck::begin(std::uint32_t worker) {
  const auto block = own_block();
  before_[worker].assign(block.begin(), block.end());
}

void ThreadLocalsCheck::end(std::uint32_t worker) {
  const auto block = own_block();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const ThreadLocal& v = variables_[i];
    if (std::memcmp(block.data() + v.offset, before_[worker].data() + v.offset, v.bytes) != 0)
      changed_[i] = true;
  }
}

std::string ThreadLocalsCheck::text() const {
  const std::lock_guard lock(mutex_);
  std::string names;
  for (std::size_t i = 0; i < variables_.size(); ++i)
    if (changed_[i]) names += (names.empty() ? "" : ", ") + variables_[i].name;
  if (names.empty()) return {};
  return fmt::format(
      "threads have changed thread_local variables, which are their worker's, not theirs: {}. Use "
      "kasane::local, or what the thread carries itself",
      names);
}

}  // namespace kasane::runtime
