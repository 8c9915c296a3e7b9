// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/output.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ios>

#include "runtime/process/streams.h"
#include "runtime/rank/hidden.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

bool g_several_ranks = false;
bool g_pipes[3] = {};  ///< of descriptors: those that all ranks write into
const diagnostics::RankStatus* g_pump = nullptr;
/// of the stdio buffer: private, since the kernel reads it in write(2) (rule 10)
char g_buffer[64 * 1024];

/// A request of the program to buffer whole blocks of output, or lines in a small buffer: lines would be cut.
bool keeps_lines_instead(const std::FILE* stream, int mode) noexcept {
  return g_several_ranks && mode != _IONBF && (stream == stdout || stream == stderr);
}

void write_partial_line() noexcept {
  const int kept = errno;
  const ult::RuntimeSection section;
  static constinit Hidden<int (*)(std::FILE*)> libcs("fflush");
  libcs.get()(stdout);
  errno = kept;
}

std::uint64_t taken() noexcept {
  // acquire: pairs with the supervisor's count (output_pump.cpp)
  return g_pump->output_taken.load(std::memory_order_acquire);
}

/// Bytes that this rank has written to the supervisor's pipe since its start. 0: standard output is no pipe
/// (any more).
std::uint64_t written() noexcept {
  for (;;) {
    const std::uint64_t before = taken();
    int waiting = 0;
    if (::ioctl(STDOUT_FILENO, FIONREAD, &waiting) != 0) return 0;
    if (taken() == before) return before + static_cast<std::uint64_t>(waiting);
  }
}

void hand_to_supervisor() noexcept {
  if (__fpending(stdout) != 0) write_partial_line();
  const int kept = errno;
  for (const std::uint64_t until = written(); taken() < until;) ::usleep(20);
  errno = kept;
}

using Setvbuf = int (*)(std::FILE*, char*, int, std::size_t);
constinit Hidden<Setvbuf> g_setvbuf("setvbuf");

}  // namespace

constinit ult::Leftover g_partial_line;

bool writes_in_turns(long descriptor) noexcept {
  return (descriptor == STDOUT_FILENO || descriptor == STDERR_FILENO) && g_pipes[descriptor];
}

namespace {
bool is_pipe(int descriptor) noexcept {
  struct stat status;
  return ::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
}
bool lock_pipe(int descriptor, short how) noexcept {
  struct flock all = {};
  all.l_type = how;
  all.l_whence = SEEK_SET;
  while (::fcntl(descriptor, F_SETLKW, &all) != 0)
    if (errno != EINTR) return false;
  return true;
}
}  // namespace

// The program may have put another file there, whose locks are its own.
OutputTurn::OutputTurn(int descriptor) noexcept
    : descriptor_(is_pipe(descriptor) && lock_pipe(descriptor, F_WRLCK) ? descriptor : -1) {}
OutputTurn::~OutputTurn() {
  if (descriptor_ >= 0) lock_pipe(descriptor_, F_UNLCK);
}

void order_output(std::uint32_t ranks, const diagnostics::RankStatus* pump) noexcept {
  if (ranks < 2) return;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    g_pipes[descriptor] = pump == nullptr && is_pipe(descriptor);
  g_setvbuf.get()(stdout, g_buffer, _IOLBF, sizeof g_buffer);
  g_partial_line = {&stdout->_IO_write_base, &stdout->_IO_write_ptr, write_partial_line};
  g_several_ranks = true;
  if (pump == nullptr) return;
  static char always;
  static char* const kAlways = &always;
  g_pump = pump;
  g_partial_line = {&ult::Leftover::kNothing, &kAlways, hand_to_supervisor};
}

void flush_output_unless_locked() noexcept {
  static constinit Hidden<int (*)(std::FILE*)> trylock("ftrylockfile"), flush("fflush_unlocked");
  static constinit Hidden<void (*)(std::FILE*)> unlock("funlockfile");
  if (trylock.get()(stdout) != 0) return;
  flush.get()(stdout);
  unlock.get()(stdout);
}

bool output_is_written() noexcept {
  flush_output_unless_locked();
  // One that the program has closed is its own affair.
  if (std::ferror(stdout) == 0 || ::fcntl(STDOUT_FILENO, F_GETFL) < 0) return true;
  std::fputs("kasane: standard output cannot be written (is the disk full, or its reader gone?)\n", stderr);
  return false;
}

}  // namespace kasane::runtime

// What programs call to change the buffers.

extern "C" [[gnu::visibility("default")]] int setvbuf(std::FILE* stream, char* buffer, int mode,
                                                      std::size_t bytes) noexcept {
  using namespace kasane::runtime;
  if (keeps_lines_instead(stream, mode)) return 0;
  const kasane::Rank there = stream_elsewhere(stream);
  if (there == kasane::kNoRank) return g_setvbuf.get()(stream, buffer, mode, bytes);
  return call_there({there, "setvbuf", stream}, [&] { return g_setvbuf.get()(stream, buffer, mode, bytes); });
}

extern "C" [[gnu::visibility("default")]] void setbuffer(std::FILE* stream, char* buffer,
                                                         std::size_t bytes) noexcept {
  setvbuf(stream, buffer, buffer != nullptr ? _IOFBF : _IONBF, bytes);
}

extern "C" [[gnu::visibility("default")]] void setbuf(std::FILE* stream, char* buffer) noexcept {
  setbuffer(stream, buffer, BUFSIZ);
}

[[gnu::visibility("default")]] bool std::ios_base::sync_with_stdio(bool sync) {
  using namespace kasane::runtime;
  if (g_several_ranks) return true;
  static constinit Hidden<bool (*)(bool)> libs("_ZNSt8ios_base15sync_with_stdioEb");
  return libs.get()(sync);
}
