// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_locals_check.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "comm/bootstrap/demangle.h"
#include "runtime/symbols.h"

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

/// Of the compiler ("initialised" flags), of the C++ library or of the runtime.
bool is_programs(std::string_view name) noexcept {
  return !name.starts_with("__") && !name.starts_with("guard variable") && !name.starts_with("kasane") &&
         name.find("kasane::runtime") == name.npos && name.find("__gnu_cxx") == name.npos;
}

}  // namespace

std::vector<ThreadLocal> thread_locals_of_program() {
  const std::size_t block_bytes = own_block().size();
  if (block_bytes == 0) return {};
  std::vector<ThreadLocal> found;
  const bool listed =
      for_each_symbol(MappedFile("/proc/self/exe"), STT_TLS, SymbolTables::full,
                      [&](const ElfW(Sym) & symbol, const char* name) {
                        if (symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0 || name == nullptr)
                          return false;
                        std::string text = comm::demangle_all(name);
                        if (is_programs(text))
                          found.push_back({symbol.st_value, symbol.st_size, std::move(text)});
                        return false;
                      });
  std::erase_if(found, [&](const ThreadLocal& v) { return v.offset + v.bytes > block_bytes; });
  if (!listed) found.push_back({0, block_bytes, "(the program has no symbol table)"});
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
