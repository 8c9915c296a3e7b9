// SPDX-License-Identifier: Apache-2.0
// Streams (FILE*, DIR*) in a job of several ranks. A stream belongs to the rank that opened it
// (runtime/process/stream_ranks.h); a call on it is made there:
//
//   a thread of run()     goes there, and stays
//   main                  has a thread of run() make the call, since main cannot move
//   another OS thread     ends the program with a message, unless the stream is of its rank
//   the runtime's own     is made here
//
// Standard input is rank 0's; standard output and error are every rank's (runtime/process/output.h). One that
// the program redirects (freopen, dup2) is from then on that of the rank that did it.
//
// Thread safety: divide_streams() before other threads exist; the rest from any thread.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <type_traits>

#include "base/call_selector.h"
#include "base/ids.h"

namespace kasane::runtime {

/// From now on the streams that the program opens in this process have addresses of its rank's.
void divide_streams(std::uint32_t ranks, Rank me) noexcept;
/// 0 input, 1 output, 2 error; -1: not a standard stream.
[[nodiscard]] inline int number_of_standard(const std::FILE* stream) noexcept {
  return stream == stdin ? 0 : stream == stdout ? 1 : stream == stderr ? 2 : -1;
}
/// Threads of this rank have to go to that rank for a standard stream.
void standard_stream_is_at(int which, Rank) noexcept;

/// From now on a function of stdio whose system call fails with EFAULT ends the program with a message: the
/// kernel does not catch calls within libc.
void check_stream_errors() noexcept;

struct StreamState {
  std::uint32_t ranks = 1;
  Rank me{0};
  bool checks_errors = false;
  std::atomic<bool> output_redirected = false;
  std::atomic<Rank> standard[3] = {kNoRank, kNoRank, kNoRank};  ///< where they are; kNoRank: here
};
[[gnu::visibility("hidden")]] extern constinit StreamState g_streams;

/// A stream that is opened now may lie anywhere: the runtime's own are used on this rank alone.
[[nodiscard]] inline bool may_lie_anywhere() noexcept {
  return g_streams.ranks == 1 || calls() == Calls::passed;
}

/// The rank where a call on the stream has to be made; kNoRank: here.
[[nodiscard, gnu::cold]] Rank find_stream(const std::FILE*) noexcept;
[[nodiscard]] inline Rank stream_elsewhere(const std::FILE* stream) noexcept {
  return g_streams.ranks == 1 ? kNoRank : find_stream(stream);
}
/// Of standard output or error, by its descriptor.
[[nodiscard]] inline Rank output_elsewhere(long descriptor) noexcept {
  // relaxed: a thread that redirects has told all ranks before it goes on
  if (!g_streams.output_redirected.load(std::memory_order_relaxed) || (descriptor != 1 && descriptor != 2))
    return kNoRank;
  const Rank rank = g_streams.standard[descriptor].load(std::memory_order_relaxed);
  return rank == g_streams.me ? kNoRank : rank;
}
[[nodiscard]] Rank directory_elsewhere(const void* directory) noexcept;
/// The rank that opened the descriptor, if it is not open here (runtime/process/system_calls.h).
[[nodiscard]] Rank descriptor_elsewhere(int descriptor) noexcept;

/// A call on something of another rank.
struct CallElsewhere {
  Rank rank;
  const char* name;
  const std::FILE* stream = nullptr;  ///< null: not a stream of stdio
};
/// True: the caller is at the rank now, or has to make the call here. False: the caller is main or a bound
/// thread.
[[nodiscard, gnu::cold, gnu::noinline]] bool go_to_stream(const CallElsewhere&) noexcept;
/// From those: function(argument) on a thread at the rank. errno is the function's.
[[gnu::cold, gnu::noinline]] void call_for_main(const CallElsewhere&, void (*function)(void*),
                                                void* argument);

/// The call where it has to be made.
template <class Call>
[[gnu::cold, gnu::noinline]] auto call_there(const CallElsewhere& there, const Call& call) {
  using Result = decltype(call());
  if (go_to_stream(there)) return call();
  if constexpr (std::is_void_v<Result>) {
    call_for_main(there, [](void* c) { (*static_cast<const Call*>(c))(); }, const_cast<Call*>(&call));
  } else {
    struct Both {
      const Call& call;
      Result result;
    } both{call, {}};
    call_for_main(
        there,
        [](void* p) {
          auto& b = *static_cast<Both*>(p);
          b.result = b.call();
        },
        &both);
    return both.result;
  }
}

/// The call here, as check_stream_errors() says.
[[noreturn, gnu::cold]] void refuse_absent(const char* name) noexcept;
template <class Call>
[[gnu::cold, gnu::noinline]] auto call_checked(const char* name, const Call& call) {
  struct Checked {
    const char* name;
    explicit Checked(const char* n) noexcept : name(n) { errno = 0; }
    ~Checked() {
      if (errno == EFAULT) refuse_absent(name);
    }
  } const checked(name);
  return call();
}

/// fdopen() of a descriptor that is open here.
[[nodiscard]] std::FILE* open_stream(int descriptor, const char* mode) noexcept;

}  // namespace kasane::runtime
