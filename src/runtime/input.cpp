// SPDX-License-Identifier: Apache-2.0
// What reads standard input: each function looks whether its stream is stdin on a rank that has none, and
// calls libc's. Their symbols are defined under other names, since <cstdio> has some of them as macros or
// inline. OS threads of the program's cannot go to rank 0: on other ranks they find the end of an empty file.
//
// Thread safety: as the functions that are replaced.
#include "runtime/input.h"

namespace kasane::runtime {
namespace {
bool g_elsewhere = false;
}
void input_is_elsewhere() noexcept { g_elsewhere = true; }
}  // namespace kasane::runtime

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "runtime/hidden.h"
#include "runtime/process_state.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

[[gnu::cold, gnu::noinline]] void go_to_input() noexcept {
  // Not from a signal handler, which runs on top of a thread.
  if (ult::Pool::self() == kNoSlot || !in_space(__builtin_frame_address(0))) return;
  while (process().rank != Rank{0}) ult::Pool::move_to(Rank{0});  // others may steal it on its way
}

inline void before_input(const std::FILE* stream) noexcept {
  if (g_elsewhere && stream == stdin) [[unlikely]]
    go_to_input();
}

}  // namespace
}  // namespace kasane::runtime

using kasane::runtime::before_input;

/// Defines the symbol `name`: a function that reads `stream`.
#define KASANE_READS(name, stream, result, parameters, arguments)                             \
  extern "C" [[gnu::visibility("default")]] result kasane_input_##name parameters asm(#name); \
  result kasane_input_##name parameters {                                                     \
    before_input(stream);                                                                     \
    static constinit kasane::runtime::Hidden<result(*) parameters> libcs(#name);              \
    return libcs.get() arguments;                                                             \
  }

using File = std::FILE;
using Bytes = std::size_t;

KASANE_READS(getc, f, int, (File * f), (f))
KASANE_READS(fgetc, f, int, (File * f), (f))
KASANE_READS(getchar, stdin, int, (), ())
KASANE_READS(getc_unlocked, f, int, (File * f), (f))
KASANE_READS(fgetc_unlocked, f, int, (File * f), (f))
KASANE_READS(getchar_unlocked, stdin, int, (), ())
KASANE_READS(__uflow, f, int, (File * f), (f))
KASANE_READS(ungetc, f, int, (int c, File* f), (c, f))
KASANE_READS(fgets, f, char*, (char* s, int n, File* f), (s, n, f))
KASANE_READS(fgets_unlocked, f, char*, (char* s, int n, File* f), (s, n, f))
KASANE_READS(__fgets_chk, f, char*, (char* s, Bytes b, int n, File* f), (s, b, n, f))
KASANE_READS(fread, f, Bytes, (void* p, Bytes b, Bytes n, File* f), (p, b, n, f))
KASANE_READS(fread_unlocked, f, Bytes, (void* p, Bytes b, Bytes n, File* f), (p, b, n, f))
KASANE_READS(__fread_chk, f, Bytes, (void* p, Bytes all, Bytes b, Bytes n, File* f), (p, all, b, n, f))
KASANE_READS(getline, f, ssize_t, (char** s, Bytes* n, File* f), (s, n, f))
KASANE_READS(getdelim, f, ssize_t, (char** s, Bytes* n, int end, File* f), (s, n, end, f))
KASANE_READS(__getdelim, f, ssize_t, (char** s, Bytes* n, int end, File* f), (s, n, end, f))
KASANE_READS(feof, f, int, (File * f), (f))
KASANE_READS(ferror, f, int, (File * f), (f))
KASANE_READS(read, fd == 0 ? stdin : nullptr, ssize_t, (int fd, void* p, Bytes n), (fd, p, n))

/// The four functions of a standard of scanf: "", "__isoc99_", "__isoc23_".
#define KASANE_SCANS(prefix)                                                                              \
  KASANE_READS(prefix##vfscanf, f, int, (File * f, const char* format, std::va_list a), (f, format, a))   \
  extern "C" [[gnu::visibility("default")]] int kasane_input_##prefix##vscanf(                            \
      const char*, std::va_list) asm(#prefix "vscanf");                                                   \
  int kasane_input_##prefix##vscanf(const char* format, std::va_list a) {                                 \
    return kasane_input_##prefix##vfscanf(stdin, format, a);                                              \
  }                                                                                                       \
  extern "C" [[gnu::visibility("default")]] int kasane_input_##prefix##fscanf(File*, const char*,         \
                                                                              ...) asm(#prefix "fscanf"); \
  int kasane_input_##prefix##fscanf(File* f, const char* format, ...) {                                   \
    std::va_list a;                                                                                       \
    va_start(a, format);                                                                                  \
    const int n = kasane_input_##prefix##vfscanf(f, format, a);                                           \
    va_end(a);                                                                                            \
    return n;                                                                                             \
  }                                                                                                       \
  extern "C" [[gnu::visibility("default")]] int kasane_input_##prefix##scanf(const char*,                 \
                                                                             ...) asm(#prefix "scanf");   \
  int kasane_input_##prefix##scanf(const char* format, ...) {                                             \
    std::va_list a;                                                                                       \
    va_start(a, format);                                                                                  \
    const int n = kasane_input_##prefix##vfscanf(stdin, format, a);                                       \
    va_end(a);                                                                                            \
    return n;                                                                                             \
  }

KASANE_SCANS()
KASANE_SCANS(__isoc99_)
KASANE_SCANS(__isoc23_)

#endif
