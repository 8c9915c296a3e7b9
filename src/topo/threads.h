// SPDX-License-Identifier: Apache-2.0
// Starts OS threads where the system may refuse them: then the error names the limit that was met.
//
// Thread safety: every call from any thread.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace kasane::topo {

/// The limit that the process just met when it started a process or a thread, with its number, and how to
/// raise it.
std::string full_process_limit();

/// For threads that run no user code: blocks all signals but those of crashes, so that the kernel gives a
/// signal of the program's to another thread. Its handler could touch V, which waits for such threads.
void block_signals_of_program() noexcept;

/// what: "the service thread".
template <class F>
Result<std::thread> start_thread(const char* what, F&& body) {
  try {
    return std::thread(std::forward<F>(body));
  } catch (const std::system_error& e) {
    return fail_errno(Errc::limit, std::string("cannot start ") + what + " (" + full_process_limit() + ")",
                      e.code().value());
  }
}

}  // namespace kasane::topo
