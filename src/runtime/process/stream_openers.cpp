// SPDX-License-Identifier: Apache-2.0
// libc's functions that open and close a stream, for the whole program and its libraries: in a job of several
// ranks the stream gets an address of this rank's (runtime/process/streams.h). A sanitizer has its own.
//
// Thread safety: as the functions that are replaced.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/process/stream_ranks.h"
#include "runtime/process/streams.h"
#include "runtime/process/system_calls.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

bool one_rank() noexcept { return g_streams.ranks == 1; }
bool is_of_here(const void* stream) noexcept {
  return rank_of_stream(reinterpret_cast<std::uintptr_t>(stream), g_streams.ranks) == g_streams.me;
}
std::size_t most_tries() noexcept { return 64 * std::size_t{g_streams.ranks}; }

[[gnu::noinline]] void close_keeping_errno(int descriptor) noexcept {
  const int error = errno;
  ::close(descriptor);
  errno = error;
}

/// What fopen does with a mode; -1: nothing.
int flags_of(const char* mode) noexcept {
  int flags = *mode == 'r'   ? O_RDONLY
              : *mode == 'w' ? O_WRONLY | O_CREAT | O_TRUNC
              : *mode == 'a' ? O_WRONLY | O_CREAT | O_APPEND
                             : -1;
  for (const char* m = mode; flags != -1 && *m != 0 && *m != ',' && m < mode + 7; ++m) {
    if (*m == '+') flags = (flags & ~O_ACCMODE) | O_RDWR;
    if (*m == 'x') flags |= O_EXCL;
    if (*m == 'e') flags |= O_CLOEXEC;
  }
  return flags;
}

/// Modes that fdopen() does not know: those streams can be used on the rank that opened them.
bool only_by_fopen(const char* mode) noexcept {
  return std::strchr(mode, ',') != nullptr || std::strchr(mode, 'm') != nullptr;
}

FILE* open_file(const char* path, const char* mode) noexcept {
  static constinit Hidden<FILE* (*)(const char*, const char*)> libcs("fopen");
  if (may_lie_anywhere() || only_by_fopen(mode)) return libcs.get()(path, mode);
  const int flags = flags_of(mode);
  if (flags == -1) {
    errno = EINVAL;
    return nullptr;
  }
  const int descriptor = ::open(path, flags, 0666);
  if (descriptor < 0) return nullptr;
  if ((flags & (O_APPEND | O_ACCMODE)) == (O_APPEND | O_WRONLY)) ::lseek(descriptor, 0, SEEK_END);
  FILE* const stream = open_stream(descriptor, mode);
  if (stream == nullptr) close_keeping_errno(descriptor);
  return stream;
}

/// Where the descriptor is open: a thread goes there.
template <class Open>
auto open_where(int descriptor, const char* name, const Open& open) {
  const Rank there = one_rank() ? kNoRank : descriptor_elsewhere(descriptor);
  return there == kNoRank ? open() : call_there({there, name}, open);
}

FILE* open_temporary() noexcept {
  static constinit Hidden<FILE* (*)()> libcs("tmpfile");
  if (may_lie_anywhere()) return libcs.get()();
  int descriptor = ::open(P_tmpdir, O_TMPFILE | O_RDWR | O_EXCL, 0600);
  if (descriptor < 0) {
    char path[] = P_tmpdir "/kasane-XXXXXX";
    descriptor = ::mkstemp(path);
    if (descriptor < 0) return nullptr;
    ::unlink(path);
  }
  FILE* const stream = open_stream(descriptor, "w+");
  if (stream == nullptr) close_keeping_errno(descriptor);
  return stream;
}

/// Opens until a stream is this rank's; undo(stream) takes back one that is not.
template <class Open, class Undo>
auto open_until_ours(const Open& open, const Undo& undo) {
  if (may_lie_anywhere()) return open();
  const ult::RuntimeSection section;  // private memory, also with --malloc space
  auto stream = open();
  std::vector<decltype(stream)> others;
  while (stream != nullptr && !is_of_here(stream) && others.size() < most_tries()) {
    others.push_back(stream);
    stream = open();
  }
  const int error = errno;
  for (auto other : others) undo(other);
  errno = error;
  return stream;
}

FILE* open_memory(void* at, std::size_t bytes, const char* mode) noexcept {
  static constinit Hidden<FILE* (*)(void*, std::size_t, const char*)> libcs("fmemopen");
  return open_until_ours([&] { return libcs.get()(at, bytes, mode); }, [](FILE* f) { std::fclose(f); });
}

FILE* open_growing(char** at, std::size_t* bytes) noexcept {
  static constinit Hidden<FILE* (*)(char**, std::size_t*)> libcs("open_memstream");
  return open_until_ours([&] { return libcs.get()(at, bytes); },
                         [&](FILE* f) {
                           std::fclose(f);
                           std::free(*at);
                         });
}

DIR* open_directory_of(int descriptor) noexcept {
  static constinit Hidden<DIR* (*)(int)> libcs("fdopendir");
  return open_until_ours([&] { return libcs.get()(descriptor); },
                         [](DIR* d) {
                           *reinterpret_cast<int*>(d) = -1;  // the descriptor stays open
                           ::closedir(d);
                         });
}

DIR* open_directory(const char* path) noexcept {
  static constinit Hidden<DIR* (*)(const char*)> libcs("opendir");
  if (may_lie_anywhere()) return libcs.get()(path);
  const int descriptor = ::open(path, O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  DIR* const directory = open_directory_of(descriptor);
  if (directory == nullptr) close_keeping_errno(descriptor);
  return directory;
}

// ---- popen ----

/// Streams of popen(), and the child of each.
class Children {
 public:
  void add(FILE* stream, pid_t child) {
    const std::lock_guard lock(lock_);
    all_.push_back({stream, child});
  }
  /// -1: no child has this stream.
  [[nodiscard]] pid_t take(const FILE* stream) {
    const std::lock_guard lock(lock_);
    for (Child& c : all_) {
      if (c.stream != stream) continue;
      const pid_t child = c.child;
      c = all_.back();
      all_.pop_back();
      return child;
    }
    return -1;
  }

 private:
  struct Child {
    FILE* stream;
    pid_t child;
  };
  std::mutex lock_;
  std::vector<Child> all_;
};
constinit Children g_children;

pid_t start_shell(const char* command, int theirs, int as) noexcept {
  posix_spawn_file_actions_t actions;
  char shell[] = "sh", option[] = "-c";
  pid_t child = -1;
  const ult::RuntimeSection section;  // private memory for the actions
  std::string text(command);
  char* const arguments[] = {shell, option, text.data(), nullptr};
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs, as);
  const int error = ::posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  errno = error;
  return error == 0 ? child : -1;
}

/// What is open in one child is not in another: all ends of this process close on exec.
FILE* open_process(const char* command, const char* mode) noexcept {
  const bool reads = *mode == 'r';
  int ends[2];
  if ((!reads && *mode != 'w') || (mode[1] != 0 && std::strcmp(mode + 1, "e") != 0)) {
    errno = EINVAL;
    return nullptr;
  }
  if (::pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  const int ours = ends[reads ? 0 : 1], theirs = ends[reads ? 1 : 0];
  FILE* const stream = open_stream(ours, reads ? "r" : "w");
  const pid_t child =
      stream == nullptr ? -1 : start_shell(command, theirs, reads ? STDOUT_FILENO : STDIN_FILENO);
  close_keeping_errno(theirs);
  if (child > 0) {
    const ult::RuntimeSection section;
    g_children.add(stream, child);
    return stream;
  }
  if (stream == nullptr)
    close_keeping_errno(ours);
  else
    std::fclose(stream);
  return nullptr;
}

int close_stream(FILE* stream, const char* name) noexcept {
  static constinit Hidden<int (*)(FILE*)> libcs("fclose");
  const Rank there = stream_elsewhere(stream);
  const auto close = [&] {
    pid_t child = -1;
    if (!one_rank()) {
      const ult::RuntimeSection section;
      child = g_children.take(stream);
    }
    const int closed = libcs.get()(stream);
    if (child < 0) return closed;
    int status = -1;
    while (::waitpid(child, &status, 0) < 0)
      if (errno != EINTR) return -1;
    return status;
  };
  return there == kNoRank ? close() : call_there({there, name, stream}, close);
}

/// fflush(nullptr): the streams of all ranks.
int flush_all(int (*flush)(FILE*)) noexcept {
  int result = 0;
  const Rank home = g_streams.me;
  const auto flush_at = [&](Rank rank) {
    const auto call = [&] { return flush(nullptr); };
    if ((rank == g_streams.me ? call() : call_there({rank, "fflush"}, call)) != 0) result = EOF;
  };
  for (std::uint32_t r = 0; r < g_streams.ranks; ++r)
    if (Rank{r} != home) flush_at(Rank{r});
  flush_at(home);
  return result;
}

[[nodiscard]] bool can_go_elsewhere() noexcept {
  const Runtime* const runtime = Runtime::current();
  if (one_rank() || runtime == nullptr || !runtime->running() || !ult::Pool::in_program()) return false;
  return ult::Pool::in_user_code() ? in_space(__builtin_frame_address(0)) : runtime->at_main();
}

}  // namespace
}  // namespace kasane::runtime

using kasane::kNoRank;
using kasane::Rank;
using namespace kasane::runtime;

extern "C" {
#define KASANE_SHOWN [[gnu::visibility("default")]]
KASANE_SHOWN FILE* kasane_open_fopen(const char* path, const char* mode) noexcept asm("fopen");
KASANE_SHOWN FILE* kasane_open_fopen64(const char* path, const char* mode) noexcept asm("fopen64");
KASANE_SHOWN FILE* kasane_open_fdopen(int descriptor, const char* mode) noexcept asm("fdopen");
KASANE_SHOWN FILE* kasane_open_tmpfile() noexcept asm("tmpfile");
KASANE_SHOWN FILE* kasane_open_tmpfile64() noexcept asm("tmpfile64");
KASANE_SHOWN FILE* kasane_open_fmemopen(void* at, std::size_t n, const char* mode) noexcept asm("fmemopen");
KASANE_SHOWN FILE* kasane_open_memstream(char** at, std::size_t* n) noexcept asm("open_memstream");
KASANE_SHOWN DIR* kasane_open_opendir(const char* path) noexcept asm("opendir");
KASANE_SHOWN DIR* kasane_open_fdopendir(int descriptor) noexcept asm("fdopendir");
KASANE_SHOWN FILE* kasane_open_popen(const char* command, const char* mode) noexcept asm("popen");
KASANE_SHOWN int kasane_close_pclose(FILE* stream) noexcept asm("pclose");
KASANE_SHOWN int kasane_close_fclose(FILE* stream) noexcept asm("fclose");
KASANE_SHOWN int kasane_flush_fflush(FILE* stream) noexcept asm("fflush");
KASANE_SHOWN int kasane_flush_fflush_unlocked(FILE* stream) noexcept asm("fflush_unlocked");
#undef KASANE_SHOWN
}

FILE* kasane_open_fopen(const char* path, const char* mode) noexcept { return open_file(path, mode); }
FILE* kasane_open_fopen64(const char* path, const char* mode) noexcept { return open_file(path, mode); }
FILE* kasane_open_fdopen(int descriptor, const char* mode) noexcept {
  return open_where(descriptor, "fdopen", [&] { return open_stream(descriptor, mode); });
}
FILE* kasane_open_tmpfile() noexcept { return open_temporary(); }
FILE* kasane_open_tmpfile64() noexcept { return open_temporary(); }
FILE* kasane_open_fmemopen(void* at, std::size_t n, const char* mode) noexcept {
  return open_memory(at, n, mode);
}
FILE* kasane_open_memstream(char** at, std::size_t* n) noexcept { return open_growing(at, n); }
DIR* kasane_open_opendir(const char* path) noexcept { return open_directory(path); }
DIR* kasane_open_fdopendir(int descriptor) noexcept {
  return open_where(descriptor, "fdopendir", [&] { return open_directory_of(descriptor); });
}
FILE* kasane_open_popen(const char* command, const char* mode) noexcept {
  return one_rank() ? popen_of_libc(command, mode) : open_process(command, mode);
}
int kasane_close_pclose(FILE* stream) noexcept {
  static constinit Hidden<int (*)(FILE*)> libcs("pclose");
  return one_rank() ? libcs.get()(stream) : close_stream(stream, "pclose");
}
int kasane_close_fclose(FILE* stream) noexcept { return close_stream(stream, "fclose"); }

int kasane_flush_fflush(FILE* stream) noexcept {
  static constinit Hidden<int (*)(FILE*)> libcs("fflush");
  if (stream == nullptr && can_go_elsewhere()) return flush_all(libcs.get());
  const Rank there = stream_elsewhere(stream);
  if (there == kNoRank) return libcs.get()(stream);
  return call_there({there, "fflush", stream}, [&] { return libcs.get()(stream); });
}
int kasane_flush_fflush_unlocked(FILE* stream) noexcept {
  static constinit Hidden<int (*)(FILE*)> libcs("fflush_unlocked");
  const Rank there = stream_elsewhere(stream);
  if (there == kNoRank) return libcs.get()(stream);
  return call_there({there, "fflush_unlocked", stream}, [&] { return libcs.get()(stream); });
}

#endif
