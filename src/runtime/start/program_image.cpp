// SPDX-License-Identifier: Apache-2.0
#include "runtime/start/program_image.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "diagnostics/demangle.h"
#include "diagnostics/source_lines.h"
#include "runtime/rank/program_objects.h"
#include "runtime/rank/symbols.h"
#include "runtime/report/crash_stack.h"
#include "runtime/start/preloaded.h"

namespace kasane::runtime {
namespace {

constexpr std::uintptr_t kImagePage = mem::kBlockBytes;
constexpr std::uintptr_t down_to_page(std::uintptr_t a) { return a / kImagePage * kImagePage; }
constexpr std::uintptr_t up_to_page(std::uintptr_t a) { return down_to_page(a + kImagePage - 1); }

// ---- what the pages hold ----------------------------------------------------------------------------------

/// The read-only part, whole pages: the dynamic loader has protected it.
AddressRange read_only(const Image& image) {
  const ElfW(Phdr)* const h = image.header(PT_GNU_RELRO);
  if (h == nullptr) return {};
  return {down_to_page(image.base + h->p_vaddr), down_to_page(image.base + h->p_vaddr + h->p_memsz)};
}

/// Whether it exports a variable of this name.
bool defines(const Image& image, const char* wanted) {
  bool found = false;
  for_each_symbol(
      MappedFile(image.file), STT_OBJECT, SymbolTables::any, [&](const ElfW(Sym) & symbol, const char* name) {
        const bool global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
        found = global && symbol.st_shndx != SHN_UNDEF && name != nullptr && std::strcmp(name, wanted) == 0;
        return found;
      });
  return found;
}

/// Calls see(relocation, symbol, its name) for those of DT_RELA that are of this type.
template <class See>
void for_each_relocation(const Image& image, std::uint32_t type, const See& see) {
  const auto* const relocations = reinterpret_cast<const ElfW(Rela)*>(image.address(DT_RELA));
  const auto* const symbols = reinterpret_cast<const ElfW(Sym)*>(image.address(DT_SYMTAB));
  const auto* const strings = reinterpret_cast<const char*>(image.address(DT_STRTAB));
  if (relocations == nullptr || symbols == nullptr || strings == nullptr) return;
  for (const auto& r : std::span(relocations, image.value(DT_RELASZ) / sizeof *relocations)) {
    if (ELF64_R_TYPE(r.r_info) != type) continue;
    const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(r.r_info)];
    see(r, symbol, strings + symbol.st_name);
  }
}

/// The copies of the variables of libraries that are not the program's; preloaded: but for those that are
/// shared with it.
std::vector<AddressRange> copied(const Image& image, std::span<const Image> libraries, bool preloaded,
                                 std::vector<ProgramVariables::Copy>& copies) {
  std::vector<AddressRange> ranges;
  for_each_relocation(image, R_X86_64_COPY,
                      [&](const ElfW(Rela) & r, const ElfW(Sym) & symbol, const char* name) {
                        if (preloaded && may_be_copied(name)) return;
                        if (std::ranges::any_of(libraries, [&](const Image& l) { return defines(l, name); }))
                          return;
                        ranges.push_back({image.base + r.r_offset, image.base + r.r_offset + symbol.st_size});
                        copies.push_back({name, image.base + r.r_offset});
                      });
  return ranges;
}

/// The parts one writable segment, without its read-only pages and without pages that hold copies.
void add_parts(const Image& image, const ElfW(Phdr) & segment, AddressRange relro,
               const std::vector<AddressRange>& copies, std::vector<mem::ViewPart>& parts) {
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
    parts.push_back({.at = reinterpret_cast<std::byte*>(begin),
                     .bytes = page - begin,
                     .filled = filled > begin ? std::min(filled, page) - begin : 0});
  }
}

// ---- names ------------------------------------------------------------------------------------------------

/// The compiler's, the linker's, crtbegin.o's.
bool is_compilers(std::string_view name) noexcept {
  return name.starts_with("__") || name.starts_with("DW.ref.") || name == "completed.0";
}

/// Variables of the program in writable pages that are neither read-only nor in a part, but for the copies.
std::vector<std::string> others(const Image& image, AddressRange relro,
                                const std::vector<AddressRange>& copies,
                                const std::vector<mem::ViewPart>& parts) {
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
        parts, [&](const mem::ViewPart& w) { return a - reinterpret_cast<std::uintptr_t>(w.at) < w.bytes; });
  };
  for_each_symbol(MappedFile(image.file), STT_OBJECT, SymbolTables::full,
                  [&](const ElfW(Sym) & symbol, const char* name) {
                    if (symbol.st_size == 0 || name == nullptr || is_compilers(name)) return false;
                    const std::uintptr_t at = image.base + symbol.st_value;
                    const bool all = is_shared(at) && is_shared(at + symbol.st_size - 1);
                    if (writable(at) && !relro.holds(at) && !is_copy(at) && !all)
                      names.push_back(diagnostics::demangle_all(name));
                    return false;
                  });
  std::ranges::sort(names);
  return names;
}

void add_parts(const Image& image, AddressRange relro, const std::vector<AddressRange>& copies,
               std::vector<mem::ViewPart>& parts) {
  for (const auto& h : image.headers)
    if (h.p_type == PT_LOAD && (h.p_flags & PF_W) != 0) add_parts(image, h, relro, copies, parts);
}

/// Why the variables of the executable cannot be shared; empty: they can.
std::string refusal(const Image& executable) {
  if (read_only(executable).end == 0)
    return "it was linked without -z relro, so what the dynamic loader reads lies between its variables";
  if (executable.holds(reinterpret_cast<const void*>(&variables_of_program)))
    return "it contains the runtime, whose variables are each rank's own; link the shared libkasane";
  return {};
}

// ---- constructors and destructors -------------------------------------------------------------------------

using Function = void (*)(int, char**, char**);

std::span<const Function> functions(const Image& image, std::int64_t array, std::int64_t bytes) noexcept {
  const std::uintptr_t at = image.address(array);
  return {reinterpret_cast<const Function*>(at), at == 0 ? 0 : image.value(bytes) / sizeof(Function)};
}

/// What the dynamic loader and the C library would call for one object of the program.
struct Taken {
  Function init = nullptr;
  std::span<const Function> init_array, fini_array;
  void (*fini)() = nullptr;
};

/// In the order of construction. Filled before constructors run.
/// Never destroyed: in a program that contains the runtime that would happen with the program's own objects.
std::vector<Taken>& taken() {
  static constinit std::vector<Taken>* objects = nullptr;
  if (objects == nullptr) objects = new std::vector<Taken>;
  return *objects;
}

/// Sets a word of the image that the dynamic loader may have made read-only by now.
void write(const Image& image, std::uint64_t& word, std::uint64_t value) noexcept {
  const std::uintptr_t page = down_to_page(reinterpret_cast<std::uintptr_t>(&word));
  void* const at = reinterpret_cast<void*>(page);
  const std::size_t bytes = up_to_page(reinterpret_cast<std::uintptr_t>(&word + 1)) - page;
  KASANE_CHECK(::mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0, "what the loader wrote becomes writable");
  word = value;
  if (page + bytes <= read_only(image).end) ::mprotect(at, bytes, PROT_READ);
}

/// Sets an entry of .dynamic.
void write(const Image& image, std::int64_t tag, std::uint64_t value) noexcept {
  if (ElfW(Dyn)* const entry = image.entry(tag)) write(image, entry->d_un.d_val, value);
}

void nothing() {}

/// Of a library. The dynamic loader adds the base to the addresses of functions.
void take(const Image& library) {
  taken().push_back({.init = reinterpret_cast<Function>(library.address(DT_INIT)),
                     .init_array = functions(library, DT_INIT_ARRAY, DT_INIT_ARRAYSZ),
                     .fini_array = functions(library, DT_FINI_ARRAY, DT_FINI_ARRAYSZ),
                     .fini = reinterpret_cast<void (*)()>(library.address(DT_FINI))});
  const std::uint64_t harmless = reinterpret_cast<std::uintptr_t>(&nothing) - library.base;
  write(library, DT_INIT, harmless);
  write(library, DT_FINI, harmless);
  write(library, DT_INIT_ARRAYSZ, 0);
  write(library, DT_FINI_ARRAYSZ, 0);
}

}  // namespace

ProgramVariables variables_of_program(const std::optional<mem::ViewPart>& preloaded) {
  const std::vector<Image> images = program_images();
  const Image& executable = images.front();
  const auto libraries = std::span(images).subspan(1);
  ProgramVariables found;
  found.refusal = refusal(executable);
  if (!found.refusal.empty()) return found;
  const AddressRange relro = read_only(executable);
  const std::vector<AddressRange> copies = copied(executable, libraries, preloaded.has_value(), found.copies);
  if (preloaded) {
    found.shared.push_back(*preloaded);
    for (const ProgramVariables::Copy& c : found.copies)
      if (!relro.holds(c.at)) found.refusal = "a copy of " + c.name + " lies beside them";
    if (!found.refusal.empty()) return found;
  }
  add_parts(executable, relro, copies, found.shared);
  found.kept_private = others(executable, relro, copies, found.shared);
  for (const Image& library : libraries) add_parts(library, read_only(library), {}, found.shared);
  if (found.shared.size() > mem::AddressMap::kMostOtherParts) {
    found.refusal = fmt::format("they lie in {} ranges of memory, and {} can be shared", found.shared.size(),
                                mem::AddressMap::kMostOtherParts);
    found.shared.clear();
  }
  return found;
}

void take_libraries(std::vector<Image> libraries) {
  for (const Image& library : libraries) take(library);
  set_program_libraries(std::move(libraries));
}

void refer_to_originals() {
  for (const Image& image : loaded_images()) {
    if (!image.holds(reinterpret_cast<const void*>(&variables_of_program))) continue;
    for_each_relocation(
        image, R_X86_64_GLOB_DAT, [&](const ElfW(Rela) & r, const ElfW(Sym) & symbol, const char* name) {
          void* const original =
              symbol.st_shndx == SHN_UNDEF && may_be_copied(name) ? ::dlsym(RTLD_NEXT, name) : nullptr;
          if (original != nullptr)
            write(image, *reinterpret_cast<std::uint64_t*>(image.base + r.r_offset),
                  reinterpret_cast<std::uintptr_t>(original));
        });
  }
}

void take_destructors_of_program() {
  const Image image = loaded_images().front();
  taken().push_back({.init = reinterpret_cast<Function>(image.address(DT_INIT)),
                     .init_array = functions(image, DT_INIT_ARRAY, DT_INIT_ARRAYSZ),
                     .fini_array = functions(image, DT_FINI_ARRAY, DT_FINI_ARRAYSZ)});
  write(image, DT_FINI_ARRAYSZ, 0);
}

void construct_program(int argc, char** argv, char** environment) {
  for (const Taken& object : taken()) {
    if (object.init != nullptr) object.init(argc, argv, environment);
    for (const Function f : object.init_array) f(argc, argv, environment);
  }
}

void destroy_program() noexcept {
  while (!taken().empty()) {
    const Taken last = taken().back();
    taken().pop_back();
    for (std::size_t i = last.fini_array.size(); i-- != 0;)
      reinterpret_cast<void (*)()>(last.fini_array[i])();
    if (last.fini != nullptr) last.fini();
  }
}

namespace {

/// Of the executable's functions that have the address of the copy in an instruction, the first: with its
/// file and line, where they are known. Empty: none is found. (crtbegin.o has the address of .data's end.)
std::string user_of(const ProgramVariables::Copy& copy) {
  const Image executable = loaded_images().front();
  for (const auto& h : executable.headers) {
    if (h.p_type != PT_LOAD || (h.p_flags & PF_X) == 0 || h.p_filesz < sizeof(std::int32_t)) continue;
    const std::uintptr_t begin = executable.base + h.p_vaddr, end = begin + h.p_filesz - sizeof(std::int32_t);
    for (std::uintptr_t at = begin; at <= end; ++at) {
      std::int32_t value;
      std::memcpy(&value, reinterpret_cast<const void*>(at), sizeof value);
      // Relative to the next instruction, of which up to 4 bytes of a constant are in front; or absolute.
      const std::uintptr_t next = copy.at - static_cast<std::uintptr_t>(value);
      if (next - at - sizeof value > sizeof value && next != 0) continue;
      CrashText text;
      describe(text, {.address = at, .exact = true, .times = 1});
      if (text.data()[0] != '?')
        return diagnostics::with_source_lines(diagnostics::demangle_all({text.data(), text.size()}));
    }
  }
  return {};
}

}  // namespace

std::string private_variables_text(const ProgramVariables& found) {
  if (found.kept_private.empty()) return {};
  constexpr std::size_t kMost = 8;
  const auto list = [](const auto& all, const auto& name) {
    std::string text;
    for (std::size_t i = 0; i < all.size() && i < kMost; ++i) text += (i == 0 ? "" : ", ") + name(all[i]);
    if (all.size() > kMost) text += fmt::format(" and {} more", all.size() - kMost);
    return text;
  };
  const auto copy_and_user = [](const ProgramVariables::Copy& copy) {
    const std::string user = user_of(copy);
    return user.empty() ? diagnostics::demangle_all(copy.name)
                        : fmt::format("{}, which {} uses", diagnostics::demangle_all(copy.name), user);
  };
  return fmt::format(
      "each rank has its own of these variables: {}. They share a page with a copy of {}. That code, of the "
      "program or of a static library (.a), was compiled without -mno-direct-extern-access: compile it with "
      "the flags of kasane::kasane or of pkg-config --cflags kasane, or with -fPIC; if the copied variable "
      "is of a library of the program's own, name it (--globals-of)",
      list(found.kept_private, [](const std::string& name) { return name; }),
      found.copies.empty() ? std::string("a library's variable") : list(found.copies, copy_and_user));
}

}  // namespace kasane::runtime
