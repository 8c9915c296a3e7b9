// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/program_objects.h"

#include <algorithm>
#include <utility>

namespace kasane::runtime {
namespace {

constexpr const char* kExecutable = "/proc/self/exe";

/// Filled before constructors run.
constinit std::vector<Image> g_libraries;
constinit std::vector<Image> g_computing;

int add_image(dl_phdr_info* info, std::size_t, void* list) {
  auto& images = *static_cast<std::vector<Image>*>(list);
  const char* const file = images.empty() ? kExecutable : info->dlpi_name;
  images.push_back({info->dlpi_addr, {info->dlpi_phdr, info->dlpi_phnum}, file});
  return 0;
}

struct Wanted {
  const Image& image;
  const void* block = nullptr;
};

int find_block(dl_phdr_info* info, std::size_t, void* to) {
  auto& wanted = *static_cast<Wanted*>(to);
  if (info->dlpi_phdr != wanted.image.headers.data()) return 0;
  wanted.block = info->dlpi_tls_data;
  return 1;
}

}  // namespace

const ElfW(Phdr) * Image::header(std::uint32_t type) const noexcept {
  for (const auto& h : headers)
    if (h.p_type == type) return &h;
  return nullptr;
}

ElfW(Dyn) * Image::dynamic() const noexcept {
  const ElfW(Phdr)* const h = header(PT_DYNAMIC);
  return h != nullptr ? reinterpret_cast<ElfW(Dyn)*>(base + h->p_vaddr) : nullptr;
}

ElfW(Dyn) * Image::entry(std::int64_t tag) const noexcept {
  for (ElfW(Dyn)* d = dynamic(); d != nullptr && d->d_tag != DT_NULL; ++d)
    if (d->d_tag == tag) return d;
  return nullptr;
}

std::uint64_t Image::value(std::int64_t tag) const noexcept {
  const ElfW(Dyn)* const d = entry(tag);
  return d != nullptr ? d->d_un.d_val : 0;
}

// The dynamic loader has added the base to some of the addresses.
std::uintptr_t Image::address(std::int64_t tag) const noexcept {
  const std::uint64_t a = value(tag);
  return a == 0 || a >= base ? a : base + a;
}

std::string_view Image::text(const ElfW(Dyn) * entry) const noexcept {
  const auto* const strings = reinterpret_cast<const char*>(address(DT_STRTAB));
  return entry != nullptr && strings != nullptr ? strings + entry->d_un.d_val : std::string_view();
}

std::string_view Image::name() const noexcept {
  if (file == kExecutable) return "the program";
  const std::string_view soname = text(entry(DT_SONAME)), path = file != nullptr ? file : "";
  return !soname.empty() ? soname : path.substr(path.rfind('/') + 1);
}

bool Image::holds(const void* p) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  return std::ranges::any_of(headers, [&](const ElfW(Phdr) & h) {
    return h.p_type == PT_LOAD && at - (base + h.p_vaddr) < h.p_memsz;
  });
}

std::span<const std::byte> Image::thread_locals() const noexcept {
  const ElfW(Phdr)* const h = header(PT_TLS);
  if (h == nullptr) return {};
  Wanted wanted{*this};
  ::dl_iterate_phdr(find_block, &wanted);
  return {static_cast<const std::byte*>(wanted.block), h->p_memsz};
}

std::vector<Image> loaded_images() {
  std::vector<Image> images;
  ::dl_iterate_phdr(add_image, &images);
  return images;
}

std::vector<Image> program_images() {
  std::vector<Image> images = loaded_images();
  images.resize(1);
  images.insert(images.end(), g_libraries.begin(), g_libraries.end());
  return images;
}

void set_program_libraries(std::vector<Image> libraries) { g_libraries = std::move(libraries); }

const std::vector<Image>& computing_images() noexcept { return g_computing; }
void set_computing_images(std::vector<Image> images) { g_computing = std::move(images); }

}  // namespace kasane::runtime
