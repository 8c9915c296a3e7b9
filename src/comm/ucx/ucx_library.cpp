// SPDX-License-Identifier: Apache-2.0
// See ucx_library.h.
#if defined(KASANE_HAVE_UCX)
#include "comm/ucx/ucx_library.h"

#include <dlfcn.h>
#include <signal.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/environment.h"

namespace kasane::comm::ucx {
namespace {

constexpr const char* kFile = "libucp.so.0";

/// Settings that UCX reads from the environment while it is loaded. A user's own settings are kept.
void set_environment() {
  ::setenv("UCX_HANDLE_ERRORS", "none", 0);  // no handlers for SIGSEGV, SIGBUS, …: Kasane handles those
  ::setenv("UCX_ERROR_SIGNALS", "", 0);
  ::setenv("UCX_DEBUG_SIGNO", "0", 0);  // SIGHUP ends a job; UCX would take it to raise its log level
  ::setenv("UCX_MEM_EVENTS", "n", 0);   // no hooks in mmap and munmap: registrations are explicit
  // UCX would print a line about every peer that has gone, inside our calls; report_lost() tells the program.
  ::setenv("UCX_LOG_LEVEL", "fatal", 0);
  ::setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
  // UCX's shared memory reports lost peers only if asked to. Without that UCX would not use it for endpoints
  // that must report them.
  ::setenv("UCX_POSIX_ERROR_HANDLING", "y", 0);
  ::setenv("UCX_SYSV_ERROR_HANDLING", "y", 0);
  ::setenv("UCX_VFS_ENABLE", "n", 0);  // no thread that shows UCX's state as files
}

/// Removes the signal handlers that UCX installed when another library loaded it. Handlers that were set
/// after that stay.
void take_signals_back(void* library) {
  const auto disable = reinterpret_cast<void (*)(int)>(::dlsym(library, "ucs_debug_disable_signal"));
  const auto set =
      reinterpret_cast<int (*)(const char*, const char*)>(::dlsym(library, "ucs_global_opts_set_value"));
  const auto get = reinterpret_cast<int (*)(const char*, char*, std::size_t)>(
      ::dlsym(library, "ucs_global_opts_get_value"));
  if (disable == nullptr || set == nullptr || get == nullptr) return;
  char level[32] = {};
  get("LOG_LEVEL", level, sizeof level);
  set("LOG_LEVEL", "fatal");  // it would warn of each signal that it has not taken
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP}) {
    // the user's choice
    if (number == SIGHUP && std::string_view(std::getenv("UCX_DEBUG_SIGNO")) != "0") continue;
    struct sigaction before{};
    ::sigaction(number, nullptr, &before);
    Dl_info owner{};
    void* handler = reinterpret_cast<void*>(before.sa_handler);
    const bool of_ucx = handler != nullptr && ::dladdr(handler, &owner) != 0 && owner.dli_fname != nullptr &&
                        std::string(owner.dli_fname).find("libucs") != std::string::npos;
    disable(number);
    if (!of_ucx) ::sigaction(number, &before, nullptr);
  }
  set("LOG_LEVEL", level);
}

Result<const Library*> open() {
  static Library table;
  if (has_borrowed_rights()) {
    return fail(Errc::unsupported,
                "a program that is set-user-id, or has capabilities of its file, loads no UCX: UCX_* "
                "variables say what code it loads");
  }
  set_environment();
  const bool loaded_before = ::dlopen(kFile, RTLD_NOLOAD | RTLD_NOW) != nullptr;
  void* library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(Errc::unsupported,
                std::string("UCX cannot be loaded (") + ::dlerror() + "): install libucx0");
  }
  if (loaded_before) take_signals_back(library);
#define KASANE_UCX_RESOLVE(name)                                                \
  table.name = reinterpret_cast<decltype(table.name)>(::dlsym(library, #name)); \
  if (table.name == nullptr)                                                    \
    return fail(Errc::unsupported, std::string(kFile) + " has no " #name ": UCX 1.12 or newer is needed");
  KASANE_UCX_FUNCTIONS(KASANE_UCX_RESOLVE)
#undef KASANE_UCX_RESOLVE
  return &table;
}

}  // namespace

Result<const Library*> Library::load() {
  static const Result<const Library*> result = open();
  return result;
}

}  // namespace kasane::comm::ucx
#endif
