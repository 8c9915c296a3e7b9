// SPDX-License-Identifier: Apache-2.0
#include "runtime/start/program_image.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "comm/bootstrap/demangle.h"
#include "runtime/symbols.h"

namespace kasane::runtime {
namespace {

constexpr std::uintptr_t kImagePage = mem::kBlockBytes;
constexpr std::uintptr_t down_to_page(std::uintptr_t a) { return a / kImagePage * kImagePage; }
constexpr std::uintptr_t up_to_page(std::uintptr_t a) { return down_to_page(a + kImagePage - 1); }

struct AddressRange {
  std::uintptr_t begin = 0, end = 0;
  [[nodiscard]] bool holds(std::uintptr_t a) const noexcept { return a - begin < end - begin; }
};

/// A loaded object.
struct Image {
  std::uintptr_t base = 0;  ///< what is added to the addresses in its file
  std::span<const ElfW(Phdr)> headers;
  const char* file = nullptr;

  [[nodiscard]] const ElfW(Phdr) * header(std::uint32_t type) const noexcept {
    for (const auto& h : headers)
      if (h.p_type == type) return &h;
    return nullptr;
  }
  [[nodiscard]] ElfW(Dyn) * dynamic() const noexcept {
    const ElfW(Phdr)* const h = header(PT_DYNAMIC);
    return h != nullptr ? reinterpret_cast<ElfW(Dyn)*>(base + h->p_vaddr) : nullptr;
  }
  [[nodiscard]] ElfW(Dyn) * entry(std::int64_t tag) const noexcept {
    for (ElfW(Dyn)* d = dynamic(); d != nullptr && d->d_tag != DT_NULL; ++d)
      if (d->d_tag == tag) return d;
    return nullptr;
  }
  [[nodiscard]] std::uint64_t value(std::int64_t tag) const noexcept {
    const ElfW(Dyn)* const d = entry(tag);
    return d != nullptr ? d->d_un.d_val : 0;
  }
  /// Of an entry that is an address: the dynamic loader has added the base to some of them.
  [[nodiscard]] std::uintptr_t address(std::int64_t tag) const noexcept {
    const std::uint64_t a = value(tag);
    return a == 0 || a >= base ? a : base + a;
  }
};

int first_object(dl_phdr_info* info, std::size_t, void* image) {
  *static_cast<Image*>(image) = {info->dlpi_addr, {info->dlpi_phdr, info->dlpi_phnum}, "/proc/self/exe"};
  return 1;
}

Image program() noexcept {
  Image image;
  ::dl_iterate_phdr(first_object, &image);
  return image;
}

// ---- what the pages hold ----------------------------------------------------------------------------------

/// The read-only part, whole pages: the dynamic loader has protected it.
AddressRange read_only(const Image& image) {
  const ElfW(Phdr)* const h = image.header(PT_GNU_RELRO);
  if (h == nullptr) return {};
  return {down_to_page(image.base + h->p_vaddr), down_to_page(image.base + h->p_vaddr + h->p_memsz)};
}

/// The copies of libraries' variables.
std::vector<AddressRange> copied(const Image& image, std::vector<std::string>& names) {
  std::vector<AddressRange> ranges;
  const auto* const relocations = reinterpret_cast<const ElfW(Rela)*>(image.address(DT_RELA));
  const auto* const symbols = reinterpret_cast<const ElfW(Sym)*>(image.address(DT_SYMTAB));
  const auto* const strings = reinterpret_cast<const char*>(image.address(DT_STRTAB));
  if (relocations == nullptr || symbols == nullptr || strings == nullptr) return ranges;
  for (const auto& r : std::span(relocations, image.value(DT_RELASZ) / sizeof *relocations)) {
    if (ELF64_R_TYPE(r.r_info) != R_X86_64_COPY) continue;
    const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(r.r_info)];
    ranges.push_back({image.base + r.r_offset, image.base + r.r_offset + symbol.st_size});
    names.emplace_back(strings + symbol.st_name);
  }
  return ranges;
}

/// The windows of one writable segment, without its read-only pages and without pages that hold copies.
void add_windows(const Image& image, const ElfW(Phdr) & segment, AddressRange relro,
                 const std::vector<AddressRange>& copies, std::vector<mem::Window>& windows) {
  AddressRange rest{down_to_page(image.base + segment.p_vaddr),
                    up_to_page(image.base + segment.p_vaddr + segment.p_memsz)};
  if (relro.holds(rest.begin)) rest.begin = relro.end;
  const std::uintptr_t filled = image.base + segment.p_vaddr + segment.p_filesz;
  const auto holds_copy = [&](std::uintptr_t page) {
    return std::ranges::any_of(
        copies, [&](const AddressRange& c) { return c.begin < page + kImagePage && page < c.end; });
  };
  for (std::uintptr_t page = rest.begin; page < rest.end;) {
    while (page < rest.end && holds_copy(page)) page += kImagePage;
    const std::uintptr_t begin = page;
    // a copy is small: beyond the last one all pages are alike
    const bool last = std::ranges::none_of(copies, [&](const AddressRange& c) { return c.end > page; });
    if (last) page = rest.end;
    while (page < rest.end && !holds_copy(page)) page += kImagePage;
    if (page == begin) break;
    windows.push_back({.at = reinterpret_cast<std::byte*>(begin),
                       .bytes = page - begin,
                       .filled = filled > begin ? std::min(filled, page) - begin : 0});
  }
}

// ---- names ------------------------------------------------------------------------------------------------

/// Variables of the program in writable pages that are neither read-only nor in a window, but for the copies.
std::vector<std::string> others(const Image& image, AddressRange relro,
                                const std::vector<AddressRange>& copies,
                                const std::vector<mem::Window>& windows) {
  std::vector<std::string> names;
  const auto writable = [&](std::uintptr_t a) {
    return std::ranges::any_of(image.headers, [&](const ElfW(Phdr) & h) {
      return h.p_type == PT_LOAD && (h.p_flags & PF_W) != 0 && a - (image.base + h.p_vaddr) < h.p_memsz;
    });
  };
  const auto is_copy = [&](std::uintptr_t a) {
    return std::ranges::any_of(copies, [&](const AddressRange& c) { return c.holds(a); });
  };
  const auto is_shared = [&](std::uintptr_t a) {
    return std::ranges::any_of(
        windows, [&](const mem::Window& w) { return a - reinterpret_cast<std::uintptr_t>(w.at) < w.bytes; });
  };
  for_each_symbol(MappedFile(image.file), STT_OBJECT, SymbolTables::full,
                  [&](const ElfW(Sym) & symbol, const char* name) {
                    // the compiler's and the linker's own begin so, and crtbegin.o's
                    if (symbol.st_size == 0 || name == nullptr || std::strncmp(name, "__", 2) == 0 ||
                        std::string_view(name) == "completed.0")
                      return false;
                    const std::uintptr_t at = image.base + symbol.st_value;
                    const bool all = is_shared(at) && is_shared(at + symbol.st_size - 1);
                    if (writable(at) && !relro.holds(at) && !is_copy(at) && !all)
                      names.push_back(comm::demangle_all(name));
                    return false;
                  });
  std::ranges::sort(names);
  return names;
}

ProgramVariables variables_of(const Image& image) {
  ProgramVariables found;
  const AddressRange relro = read_only(image);
  if (relro.end == 0) {
    found.refusal =
        "it was linked without -z relro, so what the dynamic loader reads lies between its variables";
    return found;
  }
  const auto ours = reinterpret_cast<std::uintptr_t>(&variables_of_program);
  for (const auto& h : image.headers) {
    if (h.p_type == PT_LOAD && ours - (image.base + h.p_vaddr) < h.p_memsz) {
      found.refusal =
          "it contains the runtime, whose variables are each rank's own; link the shared libkasane";
      return found;
    }
  }
  const std::vector<AddressRange> copies = copied(image, found.copies);
  for (const auto& h : image.headers)
    if (h.p_type == PT_LOAD && (h.p_flags & PF_W) != 0) add_windows(image, h, relro, copies, found.shared);
  found.kept_private = others(image, relro, copies, found.shared);
  return found;
}

// ---- constructors and destructors -------------------------------------------------------------------------

using Function = void (*)(int, char**, char**);

std::span<const Function> functions(const Image& image, std::int64_t array, std::int64_t bytes) noexcept {
  const std::uintptr_t at = image.address(array);
  return {reinterpret_cast<const Function*>(at), at == 0 ? 0 : image.value(bytes) / sizeof(Function)};
}

std::span<const Function> g_at_end;

/// Sets an entry of .dynamic, which is read-only by now, to 0.
void clear(ElfW(Dyn) * entry) noexcept {
  if (entry == nullptr) return;
  const std::uintptr_t page = down_to_page(reinterpret_cast<std::uintptr_t>(entry));
  void* const at = reinterpret_cast<void*>(page);
  const std::size_t bytes = up_to_page(reinterpret_cast<std::uintptr_t>(entry + 1)) - page;
  if (::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return;
  entry->d_un.d_val = 0;
  ::mprotect(at, bytes, PROT_READ);
}

}  // namespace

ProgramVariables variables_of_program() { return variables_of(program()); }

void take_destructors_of_program() noexcept {
  const Image image = program();
  g_at_end = functions(image, DT_FINI_ARRAY, DT_FINI_ARRAYSZ);
  clear(image.entry(DT_FINI_ARRAYSZ));
}

void construct_program(int argc, char** argv, char** environment) {
  const Image image = program();
  if (const std::uintptr_t init = image.address(DT_INIT); init != 0)
    reinterpret_cast<Function>(init)(argc, argv, environment);
  for (const Function f : functions(image, DT_INIT_ARRAY, DT_INIT_ARRAYSZ)) f(argc, argv, environment);
}

void destroy_program() noexcept {
  const std::span<const Function> all = std::exchange(g_at_end, {});
  for (std::size_t i = all.size(); i-- != 0;) reinterpret_cast<void (*)()>(all[i])();
}

std::string private_variables_text(const ProgramVariables& found) {
  if (found.kept_private.empty()) return {};
  constexpr std::size_t kMost = 8;
  const auto list = [](const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < kMost; ++i) text += (i == 0 ? "" : ", ") + names[i];
    if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
    return text;
  };
  return fmt::format(
      "each rank has its own of these variables: {}. They share a page with a copy of {}; compile the "
      "program "
      "with -mno-direct-extern-access, as kasane::kasane and kasane.pc do",
      list(found.kept_private),
      found.copies.empty() ? std::string("a library's variable") : list(found.copies));
}

}  // namespace kasane::runtime
