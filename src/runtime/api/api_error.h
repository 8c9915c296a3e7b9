// SPDX-License-Identifier: Apache-2.0
// The last failure of the C interface on a worker: kasane_error_code() and kasane_error_message().
//
// Thread safety: a state for each OS thread. A user-level thread reads it right after the call that failed,
// before it can move; all accesses are out of line, so that no compiler keeps the address of the thread-local
// across a switch (rule 13).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/process/output.h"
#include "ult/fairness.h"
#include "ult/pool.h"

namespace kasane::runtime {

/// Notes the failure of `call` and returns `code`.
[[gnu::cold, gnu::noinline]] int api_fail(int code, const char* call, const char* message) noexcept;
[[gnu::cold, gnu::noinline]] int api_fail(const Error& error, const char* call) noexcept;

/// 0, or the failure noted.
[[nodiscard]] inline int answer(const Result<void>& result, const char* call) noexcept {
  if (result) [[likely]]
    return 0;
  return api_fail(result.error(), call);
}

/// EINVAL: the job has no rank `rank`.
[[gnu::cold, gnu::noinline]] int api_fail_no_rank(const char* call, std::uint32_t rank) noexcept;
/// EPERM: the call belongs on a user-level thread.
[[gnu::cold, gnu::noinline]] int api_fail_outside(const char* call) noexcept;
/// EPERM: there is no runtime.
[[gnu::cold, gnu::noinline]] int api_fail_not_running(const char* call) noexcept;

/// 0 where `call` may be made (on a user-level thread), else EPERM with a text that says where it may be.
[[nodiscard]] inline int require_thread(const char* call) noexcept {
  if (ult::Pool::self() != kNoSlot) [[likely]]
    return 0;
  return api_fail_outside(call);
}
/// require_thread() for calls that may wait: they let other threads run now and then.
[[nodiscard]] inline int may_wait(const char* call) {
  if (const int code = require_thread(call)) [[unlikely]]
    return code;
  ult::let_others_run(holds_mutex_of_libc);
  return 0;
}

}  // namespace kasane::runtime
