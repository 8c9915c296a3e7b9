// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/thread_locals_check.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "diagnostics/demangle.h"
#include "runtime/rank/symbols.h"

namespace kasane::runtime {
namespace {

/// A copy of the calling OS thread's thread_locals of these objects, one after the other.
std::vector<std::byte> copy_of_blocks(const std::vector<Image>& images) {
  std::vector<std::byte> copy;
  for (const Image& image : images) {
    const auto block = image.thread_locals();
    const std::size_t at = copy.size();
    copy.resize(at + block.size());
    if (block.data() != nullptr) std::memcpy(copy.data() + at, block.data(), block.size());
  }
  return copy;
}

/// Of the compiler ("initialised" flags), of the C++ library or of the runtime.
bool is_programs(std::string_view name) noexcept {
  return !name.starts_with("__") && !name.starts_with("guard variable") && !name.starts_with("kasane") &&
         name.find("kasane::runtime") == name.npos && name.find("__gnu_cxx") == name.npos;
}

std::vector<ThreadLocal> thread_locals_of(const Image& image, std::uint64_t begin) {
  const std::size_t block_bytes = image.thread_locals().size();
  if (block_bytes == 0) return {};
  std::vector<ThreadLocal> found;
  const bool listed = for_each_symbol(
      MappedFile(image.file), STT_TLS, SymbolTables::full, [&](const ElfW(Sym) & symbol, const char* name) {
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0 || name == nullptr) return false;
        std::string text = diagnostics::demangle_all(name);
        if (is_programs(text)) found.push_back({symbol.st_value, symbol.st_size, std::move(text)});
        return false;
      });
  std::erase_if(found, [&](const ThreadLocal& v) { return v.offset + v.bytes > block_bytes; });
  if (!listed) found.push_back({0, block_bytes, fmt::format("({} has no symbol table)", image.name())});
  for (ThreadLocal& v : found) v.offset += begin;
  return found;
}

}  // namespace

std::vector<ThreadLocal> thread_locals_of_program() {
  std::vector<ThreadLocal> all;
  std::uint64_t begin = 0;
  for (const Image& image : program_images()) {
    for (ThreadLocal& v : thread_locals_of(image, begin)) all.push_back(std::move(v));
    begin += image.thread_locals().size();
  }
  return all;
}

std::unique_ptr<ThreadLocalsCheck> ThreadLocalsCheck::create(std::uint32_t workers) {
  auto variables = thread_locals_of_program();
  if (variables.empty()) return nullptr;
  auto check = std::make_unique<ThreadLocalsCheck>();
  check->changed_.resize(variables.size());
  check->variables_ = std::move(variables);
  check->before_.resize(workers);
  check->images_ = program_images();
  return check;
}

void ThreadLocalsCheck::begin(std::uint32_t worker) { before_[worker] = copy_of_blocks(images_); }

void ThreadLocalsCheck::end(std::uint32_t worker) {
  const std::vector<std::byte> block = copy_of_blocks(images_);
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
