// SPDX-License-Identifier: Apache-2.0
// libc's functions on a stream, for the whole program and its libraries: each looks whether the stream is of
// another rank (runtime/process/streams.h), and calls libc's where it is. Their symbols are defined under
// other names, since <cstdio> has some of them as macros or inline; programs are compiled without those
// (include/kasane/errno.h). A sanitizer has its own.
//
// Thread safety: as the functions that are replaced.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cwchar>

#include "runtime/language/cancellation.h"
#include "runtime/process/process_calls.h"
#include "runtime/process/streams.h"
#include "runtime/process/system_calls.h"
#include "runtime/process/waits.h"
#include "runtime/process/wrapped_call.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"

using kasane::kNoRank;
using kasane::Rank;
using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

/// Defines the symbol `name`: a function that is made at the rank `where`. after(result) is what is returned.
#define KASANE_CALL(name, where, stream, result, parameters, arguments, after)                \
  extern "C" [[gnu::visibility("default")]] result kasane_stdio_##name parameters asm(#name); \
  result kasane_stdio_##name parameters {                                                     \
    static constinit kasane::runtime::Hidden<result(*) parameters> libcs(#name);              \
    const auto call = [&] { return after(libcs.get() arguments); };                           \
    const Rank there = where;                                                                 \
    if (there != kNoRank) [[unlikely]]                                                        \
      return call_there({there, #name, stream}, call);                                        \
    if (g_streams.checks_errors) [[unlikely]]                                                 \
      return call_checked(#name, call);                                                       \
    return call();                                                                            \
  }
#define KASANE_AS_IT_IS(result) result
#define KASANE_STREAM(name, stream, result, parameters, arguments) \
  KASANE_CALL(name, stream_elsewhere(stream), stream, result, parameters, arguments, KASANE_AS_IT_IS)
#define KASANE_DIRECTORY(name, result, parameters, arguments) \
  KASANE_CALL(name, directory_elsewhere(d), nullptr, result, parameters, arguments, KASANE_AS_IT_IS)

using File = std::FILE;
using Bytes = std::size_t;
using Wide = wchar_t;

// ---- reading ----
KASANE_STREAM(getc, f, int, (File * f), (f))
KASANE_STREAM(fgetc, f, int, (File * f), (f))
KASANE_STREAM(getchar, stdin, int, (), ())
KASANE_STREAM(getc_unlocked, f, int, (File * f), (f))
KASANE_STREAM(fgetc_unlocked, f, int, (File * f), (f))
KASANE_STREAM(getchar_unlocked, stdin, int, (), ())
KASANE_STREAM(getw, f, int, (File * f), (f))
KASANE_STREAM(__uflow, f, int, (File * f), (f))
KASANE_STREAM(ungetc, f, int, (int c, File* f), (c, f))
KASANE_STREAM(fgets, f, char*, (char* s, int n, File* f), (s, n, f))
KASANE_STREAM(fgets_unlocked, f, char*, (char* s, int n, File* f), (s, n, f))
KASANE_STREAM(__fgets_chk, f, char*, (char* s, Bytes b, int n, File* f), (s, b, n, f))
KASANE_STREAM(__fgets_unlocked_chk, f, char*, (char* s, Bytes b, int n, File* f), (s, b, n, f))
KASANE_STREAM(fread, f, Bytes, (void* p, Bytes b, Bytes n, File* f), (p, b, n, f))
KASANE_STREAM(fread_unlocked, f, Bytes, (void* p, Bytes b, Bytes n, File* f), (p, b, n, f))
KASANE_STREAM(__fread_chk, f, Bytes, (void* p, Bytes all, Bytes b, Bytes n, File* f), (p, all, b, n, f))
KASANE_STREAM(__fread_unlocked_chk, f, Bytes, (void* p, Bytes all, Bytes b, Bytes n, File* f),
              (p, all, b, n, f))
KASANE_STREAM(getline, f, ssize_t, (char** s, Bytes* n, File* f), (s, n, f))
KASANE_STREAM(getdelim, f, ssize_t, (char** s, Bytes* n, int end, File* f), (s, n, end, f))
KASANE_STREAM(__getdelim, f, ssize_t, (char** s, Bytes* n, int end, File* f), (s, n, end, f))
KASANE_STREAM(getwc, f, std::wint_t, (File * f), (f))
KASANE_STREAM(fgetwc, f, std::wint_t, (File * f), (f))
KASANE_STREAM(getwchar, stdin, std::wint_t, (), ())
KASANE_STREAM(ungetwc, f, std::wint_t, (std::wint_t c, File* f), (c, f))
KASANE_STREAM(fgetws, f, Wide*, (Wide * s, int n, File* f), (s, n, f))

// ---- writing ----
KASANE_STREAM(putc, f, int, (int c, File* f), (c, f))
KASANE_STREAM(fputc, f, int, (int c, File* f), (c, f))
KASANE_STREAM(putc_unlocked, f, int, (int c, File* f), (c, f))
KASANE_STREAM(fputc_unlocked, f, int, (int c, File* f), (c, f))
KASANE_STREAM(putw, f, int, (int c, File* f), (c, f))
KASANE_STREAM(__overflow, f, int, (File * f, int c), (f, c))
KASANE_STREAM(fputs, f, int, (const char* s, File* f), (s, f))
KASANE_STREAM(fputs_unlocked, f, int, (const char* s, File* f), (s, f))
KASANE_STREAM(fwrite, f, Bytes, (const void* p, Bytes b, Bytes n, File* f), (p, b, n, f))
KASANE_STREAM(fwrite_unlocked, f, Bytes, (const void* p, Bytes b, Bytes n, File* f), (p, b, n, f))
KASANE_STREAM(puts, stdout, int, (const char* s), (s))
KASANE_STREAM(putchar, stdout, int, (int c), (c))
KASANE_STREAM(putchar_unlocked, stdout, int, (int c), (c))
KASANE_STREAM(putwchar, stdout, std::wint_t, (Wide c), (c))
KASANE_STREAM(putwc, f, std::wint_t, (Wide c, File* f), (c, f))
KASANE_STREAM(fputwc, f, std::wint_t, (Wide c, File* f), (c, f))
KASANE_STREAM(fputws, f, int, (const Wide* s, File* f), (s, f))

// ---- the stream itself ----
KASANE_STREAM(fseek, f, int, (File * f, long to, int from), (f, to, from))
KASANE_STREAM(fseeko, f, int, (File * f, off_t to, int from), (f, to, from))
KASANE_STREAM(fseeko64, f, int, (File * f, off_t to, int from), (f, to, from))
KASANE_STREAM(ftell, f, long, (File * f), (f))
KASANE_STREAM(ftello, f, off_t, (File * f), (f))
KASANE_STREAM(ftello64, f, off_t, (File * f), (f))
KASANE_STREAM(rewind, f, void, (File * f), (f))
KASANE_STREAM(fgetpos, f, int, (File * f, std::fpos_t* at), (f, at))
KASANE_STREAM(fgetpos64, f, int, (File * f, std::fpos_t* at), (f, at))
KASANE_STREAM(fsetpos, f, int, (File * f, const std::fpos_t* at), (f, at))
KASANE_STREAM(fsetpos64, f, int, (File * f, const std::fpos_t* at), (f, at))
KASANE_STREAM(feof, f, int, (File * f), (f))
KASANE_STREAM(feof_unlocked, f, int, (File * f), (f))
KASANE_STREAM(ferror, f, int, (File * f), (f))
KASANE_STREAM(ferror_unlocked, f, int, (File * f), (f))
KASANE_STREAM(clearerr, f, void, (File * f), (f))
KASANE_STREAM(clearerr_unlocked, f, void, (File * f), (f))
KASANE_STREAM(fileno, f, int, (File * f), (f))
KASANE_STREAM(fileno_unlocked, f, int, (File * f), (f))
KASANE_STREAM(flockfile, f, void, (File * f), (f))
KASANE_STREAM(ftrylockfile, f, int, (File * f), (f))
KASANE_STREAM(funlockfile, f, void, (File * f), (f))
KASANE_STREAM(fwide, f, int, (File * f, int mode), (f, mode))
KASANE_STREAM(__fpending, f, Bytes, (File * f), (f))
KASANE_STREAM(__fpurge, f, void, (File * f), (f))
KASANE_STREAM(__fbufsize, f, Bytes, (File * f), (f))
KASANE_STREAM(__freading, f, int, (File * f), (f))
KASANE_STREAM(__fwriting, f, int, (File * f), (f))
namespace {
File* reopened(File* stream) noexcept {
  if (stream == nullptr) return nullptr;
  const int which = kasane::runtime::number_of_standard(stream);
  if (which >= 0) kasane::runtime::tell_redirection(which, kasane::runtime::process().rank);
  return stream;
}
}  // namespace
KASANE_CALL(freopen, stream_elsewhere(f), f, File*, (const char* path, const char* mode, File* f),
            (path, mode, f), reopened)
KASANE_CALL(freopen64, stream_elsewhere(f), f, File*, (const char* path, const char* mode, File* f),
            (path, mode, f), reopened)

// ---- formats ----
/// name(f, fixed …, format, …), by its sister with a va_list.
#define KASANE_FORMAT(name, sister, format, fixed, arguments)                         \
  extern "C" [[gnu::visibility("default")]] int kasane_stdio_##name fixed asm(#name); \
  int kasane_stdio_##name fixed {                                                     \
    std::va_list a;                                                                   \
    va_start(a, format);                                                              \
    const int n = kasane_stdio_##sister arguments;                                    \
    va_end(a);                                                                        \
    return n;                                                                         \
  }
using Text = const char*;
using WideText = const wchar_t*;
using List = std::va_list;

KASANE_STREAM(vfprintf, f, int, (File * f, Text t, List a), (f, t, a))
KASANE_STREAM(__vfprintf_chk, f, int, (File * f, int flag, Text t, List a), (f, flag, t, a))
KASANE_STREAM(vfwprintf, f, int, (File * f, WideText t, List a), (f, t, a))
KASANE_STREAM(__vfwprintf_chk, f, int, (File * f, int flag, WideText t, List a), (f, flag, t, a))
KASANE_STREAM(vprintf, stdout, int, (Text t, List a), (t, a))
KASANE_STREAM(__vprintf_chk, stdout, int, (int flag, Text t, List a), (flag, t, a))
KASANE_STREAM(vwprintf, stdout, int, (WideText t, List a), (t, a))
KASANE_STREAM(__vwprintf_chk, stdout, int, (int flag, WideText t, List a), (flag, t, a))
KASANE_FORMAT(printf, vprintf, t, (Text t, ...), (t, a))
KASANE_FORMAT(__printf_chk, __vprintf_chk, t, (int flag, Text t, ...), (flag, t, a))
KASANE_FORMAT(wprintf, vwprintf, t, (WideText t, ...), (t, a))
KASANE_FORMAT(__wprintf_chk, __vwprintf_chk, t, (int flag, WideText t, ...), (flag, t, a))
KASANE_FORMAT(fprintf, vfprintf, t, (File * f, Text t, ...), (f, t, a))
KASANE_FORMAT(__fprintf_chk, __vfprintf_chk, t, (File * f, int flag, Text t, ...), (f, flag, t, a))
KASANE_FORMAT(fwprintf, vfwprintf, t, (File * f, WideText t, ...), (f, t, a))
KASANE_FORMAT(__fwprintf_chk, __vfwprintf_chk, t, (File * f, int flag, WideText t, ...), (f, flag, t, a))

/// The functions of a standard of scanf: "", "__isoc99_", "__isoc23_".
#define KASANE_SCANS(prefix)                                                                                \
  KASANE_STREAM(prefix##vfscanf, f, int, (File * f, Text t, List a), (f, t, a))                             \
  KASANE_STREAM(prefix##vfwscanf, f, int, (File * f, WideText t, List a), (f, t, a))                        \
  extern "C"                                                                                                \
      [[gnu::visibility("default")]] int kasane_stdio_##prefix##vscanf(Text, List) asm(#prefix "vscanf");   \
  int kasane_stdio_##prefix##vscanf(Text t, List a) { return kasane_stdio_##prefix##vfscanf(stdin, t, a); } \
  KASANE_FORMAT(prefix##fscanf, prefix##vfscanf, t, (File * f, Text t, ...), (f, t, a))                     \
  KASANE_FORMAT(prefix##scanf, prefix##vfscanf, t, (Text t, ...), (stdin, t, a))                            \
  KASANE_FORMAT(prefix##fwscanf, prefix##vfwscanf, t, (File * f, WideText t, ...), (f, t, a))

KASANE_SCANS()
KASANE_SCANS(__isoc99_)
KASANE_SCANS(__isoc23_)

// ---- read(2), which reads standard input, too ----
namespace {
ssize_t read_at_rank(bool waits, int fd, void* p, Bytes n) {
  static constinit kasane::runtime::Hidden<ssize_t (*)(int, void*, Bytes)> libcs("read");
  const auto call = [&]() -> ssize_t {
    const auto read = call_of(SYS_read, fd, p, n);
    if (waits) return finish_call(wait_for_input("read", read));
    return calls_are_wrapped() ? make_wrapped_call(read) : libcs.get()(fd, p, n);
  };
  const Rank there = fd == 0 ? stream_elsewhere(stdin) : kNoRank;
  return call_in_point([&] { return there == kNoRank ? call() : call_there({there, "read", stdin}, call); });
}
}  // namespace

extern "C" [[gnu::visibility("default")]] ssize_t kasane_stdio_read(int, void*, Bytes) asm("read");
ssize_t kasane_stdio_read(int fd, void* p, Bytes n) {
  return read_at_rank(waits_without_worker(__builtin_return_address(0)), fd, p, n);
}
extern "C" [[noreturn]] void __chk_fail();
extern "C" [[gnu::visibility("default")]] ssize_t kasane_stdio_read_chk(int, void*, Bytes,
                                                                        Bytes) asm("__read_chk");
ssize_t kasane_stdio_read_chk(int fd, void* p, Bytes n, Bytes room) {
  if (n > room) __chk_fail();
  return read_at_rank(waits_without_worker(__builtin_return_address(0)), fd, p, n);
}

// ---- directories ----
KASANE_DIRECTORY(readdir, dirent*, (DIR * d), (d))
KASANE_DIRECTORY(readdir64, dirent*, (DIR * d), (d))
KASANE_DIRECTORY(readdir_r, int, (DIR * d, dirent* entry, dirent** result), (d, entry, result))
KASANE_DIRECTORY(closedir, int, (DIR * d), (d))
KASANE_DIRECTORY(rewinddir, void, (DIR * d), (d))
KASANE_DIRECTORY(seekdir, void, (DIR * d, long to), (d, to))
KASANE_DIRECTORY(telldir, long, (DIR * d), (d))
KASANE_DIRECTORY(dirfd, int, (DIR * d), (d))

#endif
