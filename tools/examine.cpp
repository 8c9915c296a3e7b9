// SPDX-License-Identifier: Apache-2.0
// kasane-examine PROGRAM: what spread.h says of the program, for the command, which asks it (spread.cpp). A
// program of its own, since Capstone's tables take memory in each process that loads it, and the command
// stays beside the job.
#include <capstone/capstone.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/owned_fd.h"
#include "execute.h"
#include "program_file.h"
#include "runtime/start/preloaded.h"

namespace kasane::tools {
namespace {

/// A program that was examined: by ThreadSanitizer, for races that x86 hides, and by its runs on ranks.
struct Known {
  const char *file, *program, *version;  ///< the file's name; what --version prints
};
constexpr std::array kKnown{Known{"pbzip2", "Parallel BZIP2 v", "1.1.13"}, Known{"pigz", "pigz ", "2.6"},
                            Known{"unpigz", "pigz ", "2.6"}, Known{"xz", "xz (XZ Utils) ", "5.4.1"},
                            Known{"zstd", "v", "1.5.4"}};

/// Without symbolic links: libraries may lie relative to it.
std::string real_path(const std::string& file) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(file.c_str(), nullptr), &std::free);
  return real != nullptr ? real.get() : file;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string examined(const std::string& file) {
  const std::string name = last_part(real_path(file));
  for (const Known& known : kKnown) {
    if (name != known.file) continue;
    const std::string wanted = std::string(known.program) + known.version,
                      text = output_of({file, "--version"});
    const std::size_t at = text.find(wanted);
    if (at == std::string::npos) continue;
    const char next = at + wanted.size() < text.size() ? text[at + wanted.size()] : '\n';
    if (next != '.' && std::isalnum(static_cast<unsigned char>(next)) == 0) return name + " " + known.version;
  }
  return {};
}

// ---- what the file says -----------------------------------------------------------------------------------

/// An ELF file; get() is null where it is none for x86-64.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    ::elf_version(EV_CURRENT);
    if (fd_.get() >= 0) elf_.reset(::elf_begin(fd_.get(), ELF_C_READ_MMAP, nullptr));
    GElf_Ehdr header;
    if (elf_ != nullptr && (::gelf_getehdr(elf_.get(), &header) == nullptr || header.e_machine != EM_X86_64))
      elf_.reset();
    if (elf_ != nullptr) ::elf_getshdrstrndx(elf_.get(), &names_);
  }
  [[nodiscard]] Elf* get() const noexcept { return elf_.get(); }

  /// The program header of this type; false: there is none.
  bool header(std::uint32_t type, GElf_Phdr& found) const {
    std::size_t count = 0;
    ::elf_getphdrnum(elf_.get(), &count);
    for (int i = 0; i < static_cast<int>(count); ++i)
      if (::gelf_getphdr(elf_.get(), i, &found) != nullptr && found.p_type == type) return true;
    return false;
  }
  using See = std::function<void(const GElf_Shdr&, const char* name, Elf_Scn*)>;
  void sections(const See& see) const {
    for (Elf_Scn* s = nullptr; (s = ::elf_nextscn(elf_.get(), s)) != nullptr;) {
      GElf_Shdr header;
      const char* const name =
          ::gelf_getshdr(s, &header) != nullptr ? ::elf_strptr(elf_.get(), names_, header.sh_name) : nullptr;
      if (name != nullptr) see(header, name, s);
    }
  }
  [[nodiscard]] bool contains(std::string_view text) const {
    std::size_t bytes = 0;
    const char* const all = ::elf_rawfile(elf_.get(), &bytes);
    return all != nullptr && ::memmem(all, bytes, text.data(), text.size()) != nullptr;
  }

 private:
  OwnedFd fd_;
  std::unique_ptr<Elf, decltype(&::elf_end)> elf_{nullptr, &::elf_end};
  std::size_t names_ = 0;
};

bool has_rights_of_its_own(const std::string& file) {
  struct stat info{};
  return ::stat(file.c_str(), &info) == 0 &&
         ((info.st_mode & (S_ISUID | S_ISGID)) != 0 ||
          ::getxattr(file.c_str(), "security.capability", nullptr, 0) > 0);
}

std::string other_runtime(const ElfFile& elf) {
  bool go = false, any = false;
  elf.sections([&](const GElf_Shdr&, const char* name, Elf_Scn*) {
    any = true;
    go |= std::strcmp(name, ".go.buildinfo") == 0 || std::strcmp(name, ".note.go.buildid") == 0;
  });
  if (!any) return "its file has no section headers, so nobody can tell what it does";
  if (go) return "it is a Go program, whose threads and locks are Go's own";
  // paths of the standard library's sources, in its messages
  if (elf.contains("library/std/src/"))
    return "it contains Rust's standard library, whose locks and counts are lock instructions and futexes of "
           "its own";
  return {};
}

/// The first variable of a library, beside the program's, of which the program has a copy that ranks cannot
/// share.
std::string forbidden_copy(const ElfFile& elf) {
  GElf_Phdr read_only = {};
  if (!elf.header(PT_GNU_RELRO, read_only))
    return "it was linked without -z relro, so what the dynamic loader reads lies between its variables";
  std::string found;
  elf.sections([&](const GElf_Shdr& section, const char*, Elf_Scn* s) {
    Elf_Scn* const table = section.sh_type == SHT_RELA ? ::elf_getscn(elf.get(), section.sh_link) : nullptr;
    GElf_Shdr symbols;
    if (table == nullptr || ::gelf_getshdr(table, &symbols) == nullptr) return;
    GElf_Rela r;
    GElf_Sym symbol;
    for (int i = 0; ::gelf_getrela(::elf_getdata(s, nullptr), i, &r) != nullptr; ++i) {
      if (GELF_R_TYPE(r.r_info) != R_X86_64_COPY || r.r_offset - read_only.p_vaddr < read_only.p_memsz ||
          ::gelf_getsym(::elf_getdata(table, nullptr), static_cast<int>(GELF_R_SYM(r.r_info)), &symbol) ==
              nullptr)
        continue;
      const char* const name = ::elf_strptr(elf.get(), symbols.sh_link, symbol.st_name);
      if (name != nullptr && found.empty() && !runtime::may_be_copied(name))
        found = fmt::format(
            "a copy of {}, a variable of a library, lies among its own at {:#x}, and each rank "
            "needs that for itself",
            name, r.r_offset);
    }
  });
  return found;
}

/// The first instruction that changes memory atomically; empty: there is none. (xchg with memory needs no
/// prefix.)
std::string atomic_instruction(const ElfFile& elf) {
  csh decoder = 0;
  if (::cs_open(CS_ARCH_X86, CS_MODE_64, &decoder) != CS_ERR_OK) return "(Capstone does not start)";
  ::cs_option(decoder, CS_OPT_SKIPDATA, CS_OPT_ON);
  cs_insn* const at = ::cs_malloc(decoder);
  std::string found;
  elf.sections([&](const GElf_Shdr& section, const char*, Elf_Scn* s) {
    if (section.sh_type != SHT_PROGBITS || (section.sh_flags & SHF_EXECINSTR) == 0) return;
    const Elf_Data* const data = ::elf_getdata(s, nullptr);
    const auto* code = data != nullptr ? static_cast<const std::uint8_t*>(data->d_buf) : nullptr;
    std::size_t left = code != nullptr ? data->d_size : 0;
    std::uint64_t address = section.sh_addr;
    while (found.empty() && ::cs_disasm_iter(decoder, &code, &left, &address, at)) {
      const bool locked = std::strncmp(at->mnemonic, "lock", 4) == 0;
      if (locked || (at->id == X86_INS_XCHG && std::strchr(at->op_str, '[') != nullptr))
        found = fmt::format("{} {} at {:#x}", at->mnemonic, at->op_str, at->address);
    }
  });
  ::cs_free(at, 1);
  ::cs_close(&decoder);
  return found;
}

/// A library that the program loads at its start.
struct Loaded {
  std::string name, file;
};
std::vector<Loaded> libraries(const std::string& file) {
  std::vector<Loaded> all;
  std::istringstream lines(loaded_by(real_path(file)));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t path = line.find('/'), end = line.rfind(" (");
    if (path == std::string::npos || end == std::string::npos || end < path) continue;
    const std::string whole = line.substr(path, end - path);
    if (!runtime::is_of_language(last_part(whole))) all.push_back({last_part(whole), whole});
  }
  return all;
}

std::string library_of_another_runtime(const std::vector<Loaded>& all) {
  for (const Loaded& library : all) {
    const auto is = [&](const char* begin) { return library.name.starts_with(begin); };
    if (is("libjli.so") || is("libjvm.so"))
      return library.name + " starts a Java machine, whose threads and locks are its own";
    if (is("libgomp.so") || is("libomp.so") || is("libiomp5.so"))
      return library.name +
             " runs OpenMP's threads, which synchronise by lock instructions and stay on one rank; "
             "kasane::parallel_for runs loops on all";
  }
  return {};
}

std::string refusal(const std::string& file) {
  if (has_rights_of_its_own(file))
    return "it is set-user-id or has file capabilities, and the system preloads nothing into such programs";
  const ElfFile elf(file);
  if (elf.get() == nullptr) return "it is no program for x86-64 (a script?): name the program that it starts";
  GElf_Phdr loader;
  if (std::string why = other_runtime(elf); !why.empty()) return why;
  if (!elf.header(PT_INTERP, loader)) return "it is linked statically, so nothing can be preloaded into it";
  const std::vector<Loaded> loaded = libraries(file);
  if (std::string why = library_of_another_runtime(loaded); !why.empty()) return why;
  if (std::string why = forbidden_copy(elf); !why.empty()) return why;
  constexpr const char* kWhy = ", which is atomic within one rank alone";
  if (const std::string at = atomic_instruction(elf); !at.empty()) return "its code has " + at + kWhy;
  for (const Loaded& library : loaded) {
    const ElfFile its(library.file);
    const std::string at = its.get() != nullptr ? atomic_instruction(its) : std::string();
    if (!at.empty()) return "its library " + library.file + " has " + at + kWhy;
  }
  return {};
}

std::string examined_programs() {
  std::string text;
  for (const Known& known : kKnown)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", known.file, known.version);
  return text;
}

}  // namespace
}  // namespace kasane::tools

int main(int argc, char** argv) {
  using namespace kasane::tools;
  if (argc != 2) return 2;
  const std::string why = refusal(argv[1]);
  std::puts(why.empty() ? examined(argv[1]).c_str() : "");
  std::puts(why.c_str());
  std::puts(examined_programs().c_str());
  return 0;
}
