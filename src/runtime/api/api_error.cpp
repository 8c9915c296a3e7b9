// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/api_error.h"

#include <cerrno>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <string_view>

#include "runtime/process/bound_threads.h"
#include "runtime/rank/runtime.h"
#include "ult/context.h"

namespace kasane::runtime {
namespace {

struct LastError {
  int code = 0;
  char message[480] = "no call has failed";
};

// Out of line: the address belongs to the OS thread, and the caller may run on another one at its next call.
[[gnu::noinline]] LastError& last_error() noexcept {
  static thread_local LastError error;
  asm volatile("");
  return error;
}

int errno_of(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument:
    case Errc::out_of_range: return EINVAL;
    case Errc::out_of_memory: return ENOMEM;
    case Errc::busy: return EBUSY;
    case Errc::limit: return EAGAIN;
    case Errc::unsupported: return ENOTSUP;
    case Errc::peer_lost:
    case Errc::io:
    case Errc::internal: return EIO;
  }
  return EIO;
}

}  // namespace

int api_fail(int code, const char* call, const char* message) noexcept {
  LastError& e = last_error();
  e.code = code;
  std::snprintf(e.message, sizeof e.message, "%s: %s", call, message);
  return code;
}

// The runtime's messages begin with what it was to do ("own: …"), which the call's name ends with.
int api_fail(const Error& error, const char* call) noexcept {
  std::string_view message = error.message, name = call;
  if (const auto colon = message.find(": ");
      colon != message.npos && name.ends_with(message.substr(0, colon)))
    message.remove_prefix(colon + 2);
  return api_fail(errno_of(error.code), call, message.data());
}

int api_fail_no_rank(const char* call, std::uint32_t rank) noexcept {
  char text[80];
  std::snprintf(text, sizeof text, "there is no rank %u: the job has ranks 0 to %u", rank,
                Runtime::current()->ranks() - 1);
  return api_fail(EINVAL, call, text);
}

int api_fail_outside(const char* call) noexcept {
  const Runtime* const runtime = Runtime::current();
  if (BoundThreads::here() != nullptr)
    return api_fail(EPERM, call,
                    "not on a user-level thread: threads of --threads spread use the standard library's "
                    "(std::mutex, std::latch), or make user-level ones inside of kasane::run");
  return api_fail(EPERM, call,
                  runtime != nullptr && runtime->attached()
                      ? "an attached process (kasane_attach) has global memory and no user-level threads; "
                        "for those kasane run starts a program that is linked with Kasane's start"
                      : "not on a user-level thread; call it inside of kasane::run (kasane_run)");
}

int api_fail_not_running(const char* call) noexcept {
  return api_fail(EPERM, call,
                  "Kasane is not running in this process: it starts before main and ends when main returns, "
                  "or is there from kasane_attach to kasane_detach");
}

}  // namespace kasane::runtime

extern "C" [[gnu::nothrow]] int* kasane_errno_location(void) { return kasane::ult::errno_of_os_thread(); }
extern "C" int kasane_error_code(void) { return kasane::runtime::last_error().code; }
extern "C" const char* kasane_error_message(void) { return kasane::runtime::last_error().message; }

namespace kasane {

void detail::throw_last_error() {
  const int code = kasane_error_code();
  if (code == ENOMEM) throw out_of_memory(kasane_error_message());
  throw error(code, kasane_error_message());
}

}  // namespace kasane
