// SPDX-License-Identifier: Apache-2.0
// From the moment when a program that is not position-independent is mapped over itself, its data are those
// of the file: nothing may be called through its tables. So all functions are inline, with system calls of
// their own, and all variables are on the stack.
#include "runtime/start/load_again.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/raw_call.h"
#include "runtime/report/own_thread_locals.h"

namespace kasane::runtime {
namespace {

using Word = unsigned long;

constexpr Word kPage = 4096;
constexpr Word kProgram = 0x550000000000;  ///< below all addresses that the kernel chooses for programs
/// Above all programs, and below all addresses that it chooses for libraries, with up to 32 random bits
/// (vm.mmap_rnd_bits).
constexpr Word kTop = 0x6e0000000000;
constexpr Word kAlignment = 2 << 20;
constexpr std::size_t kMostHeaders = 32;
constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

[[gnu::always_inline]] inline Word page_down(Word n) noexcept { return n & ~(kPage - 1); }
[[gnu::always_inline]] inline Word page_up(Word n) noexcept { return page_down(n + kPage - 1); }

[[gnu::always_inline]] inline long map(Word at, Word bytes, int access, int flags, int fd = -1,
                                       Word offset = 0) noexcept {
  return raw_call(SYS_mmap, at, bytes, static_cast<Word>(access), static_cast<Word>(flags),
                  static_cast<Word>(fd), offset);
}

/// A file of which segments are mapped.
struct Object {
  int fd = -1;
  Elf64_Ehdr header;
  Elf64_Phdr segments[kMostHeaders];
  Word span = 0;  ///< from the lowest address of a segment to the end of the highest
  Word low = 0;
  Word bias = 0;

  bool read(const char* path) noexcept {
    fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::pread(fd, &header, sizeof header, 0) != sizeof header) return false;
    const std::size_t bytes = header.e_phnum * sizeof(Elf64_Phdr);
    const auto at = static_cast<off_t>(header.e_phoff);
    if (header.e_phnum > kMostHeaders) return false;
    if (::pread(fd, segments, bytes, at) != static_cast<ssize_t>(bytes)) return false;
    Word first = ~Word{0}, end = 0;
    for (int i = 0; i < header.e_phnum; ++i) {
      const Elf64_Phdr& s = segments[i];
      if (s.p_type != PT_LOAD) continue;
      if (s.p_vaddr < first) first = s.p_vaddr;
      if (s.p_vaddr + s.p_memsz > end) end = s.p_vaddr + s.p_memsz;
    }
    low = page_down(first);
    span = page_up(end) - low;
    return end != 0;
  }
  [[nodiscard]] bool movable() const noexcept { return header.e_type == ET_DYN; }
  /// The address of its headers, in the segment that begins the file.
  [[nodiscard]] Word headers() const noexcept { return bias + low + header.e_phoff; }

  /// Reserves the addresses [at, at + span).
  bool reserve(Word at) noexcept {
    bias = at - low;
    return map(at, span, PROT_NONE, kNothing | MAP_FIXED_NOREPLACE) == static_cast<long>(at);
  }
  /// Maps its sections over the reserved addresses.
  [[gnu::always_inline]] inline bool map_segments() const noexcept {
    for (int i = 0; i < header.e_phnum; ++i) {
      const Elf64_Phdr& s = segments[i];
      if (s.p_type != PT_LOAD) continue;
      const int access = ((s.p_flags & PF_R) != 0 ? PROT_READ : 0) |
                         ((s.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
                         ((s.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
      const Word start = bias + page_down(s.p_vaddr), file_end = bias + s.p_vaddr + s.p_filesz;
      const Word from_file = page_up(file_end), end = page_up(bias + s.p_vaddr + s.p_memsz);
      constexpr int kFile = MAP_PRIVATE | MAP_FIXED, kZeros = kFile | MAP_ANONYMOUS;
      const Word offset = page_down(s.p_offset);
      if (s.p_filesz != 0 && call_failed(map(start, from_file - start, access, kFile, fd, offset)))
        return false;
      if (s.p_memsz == s.p_filesz) continue;
      if (s.p_filesz != 0 && (s.p_flags & PF_W) != 0) {
        Word at = file_end, count = from_file - file_end;
        asm volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(0) : "memory");
      }
      const Word zeros = s.p_filesz != 0 ? from_file : start;
      if (end > zeros && call_failed(map(zeros, end - zeros, access, kZeros))) return false;
    }
    return true;
  }
};

/// The path of the dynamic loader, in this image.
const char* loader_path() noexcept {
  const auto* headers = reinterpret_cast<const Elf64_Phdr*>(::getauxval(AT_PHDR));
  Word bias = 0;
  for (Word i = 0; i < ::getauxval(AT_PHNUM); ++i) {
    if (headers[i].p_type == PT_PHDR) bias = reinterpret_cast<Word>(headers) - headers[i].p_vaddr;
  }
  for (Word i = 0; i < ::getauxval(AT_PHNUM); ++i) {
    if (headers[i].p_type == PT_INTERP) return reinterpret_cast<const char*>(bias + headers[i].p_vaddr);
  }
  return nullptr;
}

/// Fills all free pages between kTop and the address where the kernel begins its search.
bool fill_above_top() noexcept {
  long got = 0;
  for (Word bytes = Word{1} << 44; bytes >= kPage;) {
    got = map(0, bytes, PROT_NONE, kNothing);
    if (!call_failed(got) && static_cast<Word>(got) >= kTop) continue;
    if (!call_failed(got)) raw_call(SYS_munmap, static_cast<Word>(got), bytes);
    bytes /= 2;
  }
  return !call_failed(got);
}

/// Tells the kernel the addresses of this image, from which debuggers and core files have them. Where the
/// kernel refuses, the user has to tell the debugger.
void correct_kernel(char* const* environment) noexcept {
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char text[1024];
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return;
  text[n] = '\0';
  char* at = std::strrchr(text, ')');  // the name in front of it may contain spaces
  if (at == nullptr || at[1] == '\0') return;
  at += 3;  // and the state
  constexpr int kFields = 52;
  Word field[kFields] = {};  // numbered as in proc(5)
  for (int i = 4; i < kFields; ++i) field[i] = std::strtoul(at, &at, 10);

  const auto* headers = reinterpret_cast<const Elf64_Phdr*>(::getauxval(AT_PHDR));
  prctl_mm_map map{};
  Word bias = 0;
  for (Word i = 0; i < ::getauxval(AT_PHNUM); ++i) {
    const Elf64_Phdr& h = headers[i];
    if (h.p_type == PT_PHDR) bias = reinterpret_cast<Word>(headers) - h.p_vaddr;
    if (h.p_type != PT_LOAD) continue;
    const Word start = bias + h.p_vaddr, end = start + h.p_filesz;
    if ((h.p_flags & PF_X) != 0) map.start_code = start, map.end_code = end;
    if ((h.p_flags & PF_W) != 0) map.start_data = start, map.end_data = end;
  }
  map.start_brk = field[47];
  map.brk = static_cast<Word>(raw_call(SYS_brk));
  map.start_stack = field[28];
  map.arg_start = field[48];
  map.arg_end = field[49];
  map.env_start = field[50];
  map.env_end = field[51];
  while (*environment != nullptr) ++environment;
  const auto* values = reinterpret_cast<const Elf64_auxv_t*>(environment + 1);
  std::size_t entries = 0;
  while (values[entries].a_type != AT_NULL) ++entries;
  map.auxv = reinterpret_cast<__u64*>(const_cast<Elf64_auxv_t*>(values));
  map.auxv_size = static_cast<__u32>((entries + 1) * sizeof *values);
  map.exe_fd = ~__u32{0};  // unchanged
  ::prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0);
}

}  // namespace

FirstImage first_image() noexcept {
  const auto* headers = reinterpret_cast<const Elf64_Phdr*>(::getauxval(AT_PHDR));
  Word bias = 0, end = 0;
  for (Word i = 0; i < ::getauxval(AT_PHNUM); ++i) {
    const Elf64_Phdr& h = headers[i];
    if (h.p_type == PT_PHDR) bias = reinterpret_cast<Word>(headers) - h.p_vaddr;
    if (h.p_type == PT_LOAD && h.p_vaddr + h.p_memsz > end) end = h.p_vaddr + h.p_memsz;
  }
  return bias == 0 ? FirstImage{} : FirstImage{bias, page_up(end)};
}

bool loaded_again() noexcept {
  const Word loader = ::getauxval(AT_BASE);  // the kernel does not choose it
  return loader < kTop && loader >= kTop - (Word{1} << 30);
}

void load_again(char** argv, char** environment, char* last) noexcept {
  Object program, loader;
  const char* path = loader_path();
  if (path == nullptr || !loader.read(path) || !loader.movable()) return;
  // Without /proc: by the name from the command line.
  const auto* name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  if (!program.read("/proc/self/exe") && !program.read(name)) return;
  if (!fill_above_top() || !loader.reserve((kTop - loader.span) & ~(kAlignment - 1))) return;
  if (!loader.map_segments()) return;
  if (program.movable() && !program.reserve(kProgram)) return;

  // The layout of the kernel: argc, argv, environment, auxiliary vector, each list with its terminator.
  std::size_t arguments = 0, variables = 0, entries = 0;
  while (argv[arguments] != nullptr) ++arguments;
  while (environment[variables] != nullptr) ++variables;
  const auto* values = reinterpret_cast<const Elf64_auxv_t*>(environment + variables + 1);
  while (values[entries].a_type != AT_NULL) ++entries;
  const std::size_t words = 1 + arguments + 1 + variables + 1 + 1 + 2 * (entries + 1) + 1;
  auto* const stack = static_cast<Word*>(__builtin_alloca_with_align(words * sizeof(Word), 128));
  Word* to = stack;
  *to++ = arguments;
  for (std::size_t i = 0; i <= arguments; ++i) *to++ = reinterpret_cast<Word>(argv[i]);
  for (std::size_t i = 0; i < variables; ++i) *to++ = reinterpret_cast<Word>(environment[i]);
  *to++ = reinterpret_cast<Word>(last);
  *to++ = 0;
  for (std::size_t i = 0; i <= entries; ++i) {
    Word value = values[i].a_un.a_val;
    if (values[i].a_type == AT_PHDR) value = program.headers();
    if (values[i].a_type == AT_ENTRY) value = program.bias + program.header.e_entry;
    if (values[i].a_type == AT_BASE) value = loader.bias;
    *to++ = values[i].a_type;
    *to++ = value;
  }
  // Else the kernel would continue to write into this image's thread block.
  if (leave_rseq() < 0) return;
  if (!program.map_segments())
    raw_call(SYS_exit_group, 1);  // nothing of the first image can be used any more
  raw_call(SYS_close, static_cast<Word>(program.fd));
  raw_call(SYS_close, static_cast<Word>(loader.fd));
  // rdx: the function that libc calls at exit; as after an execve there is none.
  asm volatile("mov %0, %%rsp\n\txor %%edx, %%edx\n\txor %%ebp, %%ebp\n\tjmp *%1"
               :
               : "D"(stack), "S"(loader.bias + loader.header.e_entry)
               : "rdx", "memory");
  __builtin_unreachable();
}

void drop_first_image(FirstImage image, char* const* environment) noexcept {
  correct_kernel(environment);
  if (image.bytes != 0) ::munmap(reinterpret_cast<void*>(image.program), image.bytes);
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;  // the first image then keeps addresses, but no memory
  // Above kTop only mappings that the kernel names belong to this image: [stack], [vdso], [vvar].
  char text[4096];
  std::size_t held = 0;
  for (ssize_t n; (n = ::read(fd, text + held, sizeof text - 1 - held)) > 0;) {
    held += static_cast<std::size_t>(n);
    text[held] = '\0';
    char* line = text;
    for (char* end; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      char* rest = nullptr;
      const Word from = std::strtoul(line, &rest, 16), until = std::strtoul(rest + 1, nullptr, 16);
      const bool named = std::strchr(line, '[') != nullptr;
      if (from >= kTop && !named) ::munmap(reinterpret_cast<void*>(from), until - from);
    }
    held = static_cast<std::size_t>(text + held - line);
    std::memmove(text, line, held);
  }
  ::close(fd);
}

}  // namespace kasane::runtime
