// SPDX-License-Identifier: Apache-2.0
// Starts OS threads where the system may refuse them: then the error names the limit that was met.
//
// Thread safety: every call from any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"

namespace kasane::topo {

/// The limit that the process just met when it started a process or a thread, which failed with the error,
/// with its number, and how to raise it.
std::string full_process_limit(int error);

/// The OS threads of this process, in order, but the kernel's own, which serve its io_uring.
[[nodiscard]] std::vector<pid_t> os_threads();

/// For threads that run no user code: blocks all signals but those of crashes, so that the kernel gives a
/// signal of the program's to another thread. Its handler could touch V, which waits for such threads.
void block_signals_of_program() noexcept;

/// Of each OS thread's stack the C library takes the thread_locals of the program and of its libraries.
[[nodiscard]] std::size_t thread_local_bytes() noexcept;
/// Where they take most of a stack of default size, it becomes larger by as much; the second time it is large
/// enough. The program's own OS threads have such stacks, too.
void make_stacks_hold_thread_locals() noexcept;

/// what: "the service thread".
template <class F>
Result<std::thread> start_thread(const char* what, F&& body) {
  make_stacks_hold_thread_locals();
  try {
    return std::thread(std::forward<F>(body));
  } catch (const std::system_error& e) {
    return fail_errno(Errc::limit,
                      std::string("cannot start ") + what + " (" + full_process_limit(e.code().value()) + ")",
                      e.code().value());
  }
}

}  // namespace kasane::topo
