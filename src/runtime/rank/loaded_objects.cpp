// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/loaded_objects.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstring>

namespace kasane::runtime {
namespace {

/// FNV-1a.
void mix(std::uint64_t& hash, const void* bytes, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001B3u;
}

constexpr std::uint64_t kStart = 0xCBF29CE484222325u;

/// Adds the object's GNU build id to the hash. False: it has none.
bool mix_build_id(std::uint64_t& hash, const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info.dlpi_addr + header.p_vaddr);
    const char* end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const char* text = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        mix(hash, text, note.n_descsz);
        return true;
      }
      at = text + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return false;
}

bool is_vdso(const dl_phdr_info& info) {
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(::getauxval(AT_SYSINFO_EHDR));
  if (header == nullptr) return false;
  return reinterpret_cast<const char*>(info.dlpi_phdr) ==
         reinterpret_cast<const char*>(header) + header->e_phoff;
}

int add(dl_phdr_info* info, std::size_t, void* list) {
  LoadedObject object{info->dlpi_name != nullptr && *info->dlpi_name != 0 ? info->dlpi_name : "the program",
                      kStart};
  // Each process calls its own vDSO, and no thread moves while it runs code of the vDSO.
  if (!is_vdso(*info)) mix(object.digest, &info->dlpi_addr, sizeof info->dlpi_addr);
  if (!mix_build_id(object.digest, *info))
    mix(object.digest, info->dlpi_phdr, info->dlpi_phnum * sizeof *info->dlpi_phdr);
  static_cast<std::vector<LoadedObject>*>(list)->push_back(std::move(object));
  return 0;
}

}  // namespace

std::vector<LoadedObject> loaded_objects() {
  std::vector<LoadedObject> objects;
  ::dl_iterate_phdr(add, &objects);
  return objects;
}

std::uint64_t digest(const std::vector<LoadedObject>& objects) {
  std::uint64_t hash = kStart;
  for (const auto& object : objects) mix(hash, &object.digest, sizeof object.digest);
  return hash;
}

std::uint64_t guards_digest() noexcept {
  std::uint64_t guards[2];  // where glibc keeps them (tcbhead_t)
  asm volatile("movq %%fs:0x28, %0\n\tmovq %%fs:0x30, %1" : "=&r"(guards[0]), "=r"(guards[1]));
  std::uint64_t hash = kStart;
  mix(hash, guards, sizeof guards);
  return hash;
}

}  // namespace kasane::runtime
