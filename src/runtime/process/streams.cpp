// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/streams.h"

#include <cstdlib>
#include <vector>

#include "runtime/language/held_mutexes.h"
#include "runtime/language/threads_check.h"
#include "runtime/process/bound_threads.h"
#include "runtime/process/stream_ranks.h"
#include "runtime/rank/crash_text.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"

// glibc's list of the open streams of this process.
extern "C" {
extern std::FILE* _IO_list_all;
void _IO_list_lock(void);
void _IO_list_unlock(void);
}

namespace kasane::runtime {

constinit StreamState g_streams;

void divide_streams(std::uint32_t ranks, Rank me) noexcept {
  g_streams.ranks = ranks;
  g_streams.me = me;
}
void standard_stream_is_at(int which, Rank rank) noexcept {
  g_streams.standard[which].store(rank, std::memory_order_relaxed);
  if (which != 0) g_streams.output_redirected.store(true, std::memory_order_relaxed);
}

namespace {

/// Also those that were opened before the ranks were known, or by functions of libc's that ours do not hide
/// (setmntent).
bool is_open_here(const std::FILE* stream) noexcept {
  _IO_list_lock();
  const std::FILE* open = _IO_list_all;
  while (open != nullptr && open != stream) open = open->_chain;
  _IO_list_unlock();
  return open != nullptr;
}

Rank rank_of(const void* stream) noexcept {
  return rank_of_stream(reinterpret_cast<std::uintptr_t>(stream), g_streams.ranks);
}

CrashText begin_refusal(const CallElsewhere& call) noexcept {
  CrashText text;
  text.add("kasane: ").add(call.name).add("() on rank ").decimal(raw(process().rank)).add(": ");
  return text;
}

[[noreturn]] void refuse(const CrashText& text) noexcept {
  tell(text.data(), text.size());
  std::abort();
}

/// After a thread went to where the stream should be.
void check_open(const CallElsewhere& call) noexcept {
  if (call.stream == nullptr || number_of_standard(call.stream) >= 0 || is_open_here(call.stream)) return;
  CrashText text = begin_refusal(call);
  text.add("no stream ").address(call.stream);
  refuse(text.add(
      " is open: it was closed before, or opened on another rank by fopencookie, or with \",ccs=\"\n"));
}

[[noreturn]] void refuse_here(const CallElsewhere& call) noexcept {
  CrashText text = begin_refusal(call);
  text.add("the file or stream was opened on rank ").decimal(raw(call.rank));
  refuse(text.add(
      ", and neither OS threads of the program nor signal handlers can go there: use it in run() or main\n"));
}

}  // namespace

void check_stream_errors() noexcept { g_streams.checks_errors = true; }

void refuse_absent(const char* name) noexcept {
  CrashText text;
  text.add("kasane: ").add(name).add("() on rank ").decimal(raw(process().rank));
  refuse(
      text.add(": a system call met absent global memory (EFAULT), and this kernel cannot catch calls within "
               "libc: use --faults uffd-thread, a view (kasane::view), or private memory\n"));
}

Rank find_stream(const std::FILE* stream) noexcept {
  if (stream == nullptr) return kNoRank;
  if (const int which = number_of_standard(stream); which >= 0) {
    const Rank rank = g_streams.standard[which].load(std::memory_order_relaxed);
    return rank == g_streams.me ? kNoRank : rank;
  }
  const Rank rank = rank_of(stream);
  return rank == g_streams.me || is_open_here(stream) ? kNoRank : rank;
}

Rank directory_elsewhere(const void* directory) noexcept {
  if (g_streams.ranks == 1) return kNoRank;
  const Rank rank = rank_of(directory);
  return rank == g_streams.me ? kNoRank : rank;
}

bool go_to_stream(const CallElsewhere& call) noexcept {
  if (calls() == Calls::passed) return true;
  // A signal handler runs on top of a thread, and cannot move it.
  if (ult::Pool::in_user_code() && in_space(__builtin_frame_address(0))) {
    check_no_mutex_held(call.name);
    ult::Pool::go_to(call.rank);
    check_open(call);
    return true;
  }
  if (BoundThreads::here() != nullptr && in_space(__builtin_frame_address(0))) return false;
  const Runtime* const runtime = Runtime::current();
  if (runtime != nullptr && runtime->at_main() && ult::Pool::in_program()) return false;
  if (call.stream != stdin && ult::Pool::in_program()) refuse_here(call);
  return true;
}

void call_for_main(const CallElsewhere& call, void (*function)(void*), void* argument) {
  struct Trip {
    const CallElsewhere& call;
    void (*function)(void*);
    void* argument;
    int error;
  } trip{call, function, argument, 0};
  ThreadsCheck::add_call_elsewhere(call.name);
  const auto make_call = [](void* p) {
    auto& t = *static_cast<Trip*>(p);
    if (ult::Pool::self() != kNoSlot) ult::Pool::go_to(t.call.rank);
    check_open(t.call);
    t.function(t.argument);
    t.error = errno;
  };
  if (BoundThreads::here() != nullptr)
    BoundThreads::call_at(call.rank, make_call, &trip);
  else
    Runtime::current()->run_root(make_call, &trip);
  errno = trip.error;
}

std::FILE* open_stream(int descriptor, const char* mode) noexcept {
  static constinit Hidden<std::FILE* (*)(int, const char*)> libcs("fdopen");
  if (may_lie_anywhere()) return libcs.get()(descriptor, mode);
  static constinit Hidden<int (*)(std::FILE*)> close("fclose");
  const ult::RuntimeSection section;  // private memory, also with --malloc space
  // Streams at other ranks' addresses stay open until one is at an address of this rank's.
  std::vector<std::FILE*> others;
  const std::size_t most = 64 * std::size_t{g_streams.ranks};
  std::FILE* stream = libcs.get()(descriptor, mode);
  while (stream != nullptr && rank_of(stream) != g_streams.me && others.size() < most) {
    others.push_back(stream);
    stream = libcs.get()(descriptor, mode);
  }
  const int error = errno;
  for (std::FILE* other : others) {
    other->_fileno = -1;  // the descriptor stays open
    close.get()(other);
  }
  errno = error;
  return stream;
}

}  // namespace kasane::runtime
