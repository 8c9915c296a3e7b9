// SPDX-License-Identifier: Apache-2.0
// chdir, fchdir, umask, setenv, unsetenv, putenv, setlocale, std::locale::global, setrlimit,
// std::set_terminate, set_new_handler and pmr::set_default_resource for the whole program, and the
// redirections of standard streams. Thread safety: as libc's.
#include "runtime/process/process_calls.h"

#include <locale.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <locale>

#include "base/call_selector.h"
#include "comm/requests.h"
#include "gas/regions.h"
#include "runtime/language/library_calls.h"
#include "runtime/process/action_order.h"
#include "runtime/process/output.h"
#include "runtime/process/shared_process.h"
#include "runtime/process/stream_formats.h"
#include "runtime/process/streams.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/warn.h"

namespace kasane::runtime {
namespace {

constinit Hidden<int (*)(const char*)> g_chdir("chdir"), g_unsetenv("unsetenv");
constinit Hidden<mode_t (*)(mode_t)> g_umask("umask");
constinit Hidden<int (*)(const char*, const char*, int)> g_setenv("setenv");
constinit Hidden<char* (*)(int, const char*)> g_setlocale("setlocale");
constinit Hidden<int (*)(__rlimit_resource_t, const rlimit*)> g_setrlimit("setrlimit");
constinit Hidden<std::locale (*)(const std::locale&)> g_global("_ZNSt6locale6globalERKS_");

/// What libstdc++ keeps a pointer to: a function or an object of the program, which has one address on all
/// ranks. Its setters return what was there before.
enum class Handler : std::int32_t { terminate, out_of_memory, memory_resource };
using SetHandler = void* (*)(void*);
constinit std::array g_set_handler{
    Hidden<SetHandler>("_ZSt13set_terminatePFvvE"), Hidden<SetHandler>("_ZSt15set_new_handlerPFvvE"),
    Hidden<SetHandler>("_ZNSt3pmr20set_default_resourceEPNS_15memory_resourceE")};

/// Null: no other rank is to be told what the program changes. The runtime's own code may be the caller.
SharedProcess* shared_by_program() noexcept {
  return calls() == Calls::passed ? nullptr : SharedProcess::current();
}

void warn_of(const char* what, const char* name) noexcept {
  CrashText text;
  text.add("kasane: ").add(what).add(name != nullptr ? name : "").add("\n");
  warn(text);
}

/// shared: null: there is no rank to tell. name: of what has changed, in a warning.
void tell_all(ProcessCall& call, bool fits, const char* name,
              SharedProcess* shared = shared_by_program()) noexcept {
  if (shared == nullptr) return;
  const int saved = errno;
  if (!fits) {
    warn_of("the value is longer than 3500 bytes, so other ranks keep the old one: ", name);
  } else if (const auto refusal = shared->tell_process_call(call); refusal.rank != kNoRank) {
    CrashText text;
    text.add("kasane: rank ").decimal(raw(refusal.rank)).add(" could not change what this rank has: ");
    text.add(name).add(": ").add(::strerrordesc_np(refusal.error)).add("\n");
    warn(text);
  }
  errno = saved;
}

int as_error(bool ok) noexcept { return ok ? 0 : errno; }

}  // namespace

// What this rank has already is left as it is: a string given to putenv, the result of setlocale.
int carry_out(const ProcessCall& call) noexcept {
  switch (call.kind) {
    case ProcessCall::Kind::folder: return as_error(g_chdir.get()(call.text) == 0);
    case ProcessCall::Kind::file_mask: g_umask.get()(static_cast<mode_t>(call.argument[0])); return 0;
    case ProcessCall::Kind::set_variable: {
      const char* const value = call.text + std::strlen(call.text) + 1;
      const char* const now = ::getenv(call.text);
      if (now != nullptr && std::strcmp(now, value) == 0) return 0;
      return as_error(g_setenv.get()(call.text, value, 1) == 0);
    }
    case ProcessCall::Kind::unset_variable: return as_error(g_unsetenv.get()(call.text) == 0);
    case ProcessCall::Kind::limit: {
      const rlimit limit{call.argument[0], call.argument[1]};
      return as_error(g_setrlimit.get()(static_cast<__rlimit_resource_t>(call.which), &limit) == 0);
    }
    case ProcessCall::Kind::stream:
      if (call.which == 1) flush_output_unless_locked();  // to where it has gone so far
      standard_stream_is_at(call.which, Rank{static_cast<std::uint32_t>(call.argument[0])});
      return 0;
    case ProcessCall::Kind::format: return take_stream_format(call);
    case ProcessCall::Kind::handler:
      g_set_handler[static_cast<std::size_t>(call.which)].get()(reinterpret_cast<void*>(call.argument[0]));
      return 0;
    case ProcessCall::Kind::locale: break;
  }
  if (call.which >= 0) {
    const char* const now = g_setlocale.get()(call.which, nullptr);
    if (now != nullptr && std::strcmp(now, call.text) == 0) return 0;
    return g_setlocale.get()(call.which, call.text) != nullptr ? 0 : ENOENT;
  }
  try {
    if (std::locale().name() == call.text) return 0;
    g_global.get()(std::locale(call.text));
    return 0;
  } catch (const std::exception&) {
    return ENOENT;
  }
}

void tell_redirection(int which, Rank rank) noexcept {
  ProcessCall call;
  call.kind = ProcessCall::Kind::stream;
  call.which = which;
  call.argument[0] = raw(rank);
  tell_all(call, true, "a standard stream", SharedProcess::current());
}

ProcessCalls::ProcessCalls(comm::Transport& transport) : transport_(transport) {
  transport_.set_handler(gas::kProcessCallHandler, &ProcessCalls::on_message, this);
}

ProcessCalls::Refusal ProcessCalls::tell_all(comm::Blocking& io, ProcessCall& call) {
  const auto message = [&] {
    return std::as_bytes(std::span(&call, 1)).first(offsetof(ProcessCall, text) + call.bytes);
  };
  call.number = io.request(Rank{0}, gas::kProcessCallHandler, message());
  Refusal first;
  comm::request_all(io, gas::kProcessCallHandler, message(), gas::kAgain,
                    [&](Rank rank, std::uint64_t error) {
                      if (error != 0 && first.rank == kNoRank) first = {rank, static_cast<int>(error)};
                    });
  return first;
}

void ProcessCalls::on_message(void* self, const comm::Message& received) noexcept {
  auto& calls = *static_cast<ProcessCalls*>(self);
  Noted noted{{}, received.token};
  std::memcpy(&noted.call, received.payload.data(), std::min(received.payload.size(), sizeof noted.call));
  // relaxed: the numbers order the calls, and the answer's message the rest
  if (noted.call.number == 0)
    return calls.transport_.reply(received.token, calls.last_.fetch_add(1, std::memory_order_relaxed) + 1);
  if (!calls.noted_.add(noted)) return calls.transport_.reply(received.token, gas::kAgain);
  calls.transport_.wake(calls.transport_.rank(), comm::Doorbell::messages);
}

std::string ProcessCalls::thing_of(const ProcessCall& call) {
  const bool variable =
      call.kind == ProcessCall::Kind::set_variable || call.kind == ProcessCall::Kind::unset_variable;
  const auto kind = variable ? ProcessCall::Kind::set_variable : call.kind;
  return std::to_string(static_cast<int>(kind)) + ":" + (variable ? call.text : std::to_string(call.which));
}

bool ProcessCalls::serve() {
  Noted noted;
  if (!noted_.any() || !noted_.take(noted)) return false;
  const PassedCalls alone;  // what libc and libstdc++ call tells no rank
  std::uint64_t& number = numbers_[thing_of(noted.call)];
  const ActionStep step = next(ActionEvent::told, false, number, noted.call.number);
  number = step.number;
  transport_.reply(noted.token, step.install ? static_cast<std::uint64_t>(carry_out(noted.call)) : 0);
  return true;
}

}  // namespace kasane::runtime

// A sanitizer calls some of them before it is ready, and only one rank runs there.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

namespace kasane::runtime {
namespace {

constinit Hidden<int (*)(int)> g_fchdir("fchdir");
constinit Hidden<int (*)(char*)> g_putenv("putenv");

/// A text that may lie in global memory, in private memory.
class Copy {
 public:
  explicit Copy(const char* text) noexcept : text_(text != nullptr ? ::strdup(text) : nullptr) {}
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { std::free(text_); }
  [[nodiscard]] const char* get() const noexcept { return text_; }

 private:
  char* text_;
};

/// False: it is too long for a message.
bool put(ProcessCall& call, std::string_view text) noexcept {
  if (call.bytes + text.size() + 1 > ProcessCall::kMostText) return false;
  std::copy(text.begin(), text.end(), call.text + call.bytes);
  call.bytes = static_cast<std::uint16_t>(call.bytes + text.size() + 1);
  return true;
}

void tell_folder() noexcept {
  ProcessCall call;
  char path[4096];
  const bool fits = ::getcwd(path, sizeof path) != nullptr && put(call, path);
  tell_all(call, fits, "the folder");
}

void tell_variable(const char* name, const char* value) noexcept {
  ProcessCall call;
  call.kind = value != nullptr ? ProcessCall::Kind::set_variable : ProcessCall::Kind::unset_variable;
  tell_all(call, put(call, name) && (value == nullptr || put(call, value)), name);
}

void* set_handler(Handler which, void* to, const char* name) noexcept {
  void* const before = g_set_handler[static_cast<std::size_t>(which)].get()(to);
  ProcessCall call;
  call.kind = ProcessCall::Kind::handler;
  call.which = static_cast<std::int32_t>(which);
  call.argument[0] = reinterpret_cast<std::uint64_t>(to);
  tell_all(call, true, name);
  return before;
}

}  // namespace
}  // namespace kasane::runtime

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

#define KASANE_SHOWN extern "C" [[gnu::visibility("default")]]

KASANE_SHOWN int chdir(const char* path) noexcept {
  const Copy copy(path);
  const int result = g_chdir.get()(copy.get());
  if (result == 0) tell_folder();
  return result;
}
KASANE_SHOWN int fchdir(int file) noexcept {
  const int result = g_fchdir.get()(file);
  if (result == 0) tell_folder();
  return result;
}

KASANE_SHOWN mode_t umask(mode_t mask) noexcept {
  const mode_t before = g_umask.get()(mask);
  ProcessCall call;
  call.kind = ProcessCall::Kind::file_mask;
  call.argument[0] = mask;
  tell_all(call, true, "umask");
  return before;
}

KASANE_SHOWN int setenv(const char* name, const char* value, int overwrite) noexcept {
  const Copy own_name(name), own_value(value);
  const bool stays = overwrite == 0 && own_name.get() != nullptr && ::getenv(own_name.get()) != nullptr;
  const int result = g_setenv.get()(own_name.get(), own_value.get(), overwrite);
  if (result == 0 && !stays) tell_variable(own_name.get(), own_value.get());
  return result;
}
KASANE_SHOWN int unsetenv(const char* name) noexcept {
  const Copy own(name);
  const int result = g_unsetenv.get()(own.get());
  if (result == 0) tell_variable(own.get(), nullptr);
  return result;
}
/// Other ranks take a copy of the text.
KASANE_SHOWN int putenv(char* text) noexcept {
  const int result = g_putenv.get()(text);
  if (result != 0) return result;
  const std::string own(text);
  const std::size_t end = own.find('=');
  tell_variable(own.substr(0, end).c_str(), end != own.npos ? own.c_str() + end + 1 : nullptr);
  return 0;
}

KASANE_SHOWN char* setlocale(int category, const char* name) noexcept {
  if (name == nullptr) return g_setlocale.get()(category, nullptr);
  const Copy own(name);
  char* const result = g_setlocale.get()(category, own.get());
  if (result == nullptr) return nullptr;
  ProcessCall call;
  call.kind = ProcessCall::Kind::locale;
  call.which = category;
  tell_all(call, put(call, result), "the locale");
  return result;
}

KASANE_SHOWN int setrlimit(__rlimit_resource_t resource, const rlimit* limit) noexcept {
  const rlimit own = *limit;
  const int result = g_setrlimit.get()(resource, &own);
  if (result != 0) return result;
  ProcessCall call;
  call.kind = ProcessCall::Kind::limit;
  call.which = static_cast<int>(resource);
  call.argument[0] = own.rlim_cur;
  call.argument[1] = own.rlim_max;
  tell_all(call, true, "setrlimit");
  return 0;
}

KASANE_SHOWN int setrlimit64(__rlimit_resource_t resource, const rlimit64* limit) noexcept {
  static_assert(sizeof(rlimit) == sizeof(rlimit64));
  return ::setrlimit(resource, reinterpret_cast<const rlimit*>(limit));
}

/// std::locale::global.
[[gnu::visibility("default")]] std::locale kasane_locale_global(const std::locale& locale) asm(
    "_ZNSt6locale6globalERKS_");
std::locale kasane_locale_global(const std::locale& locale) {
  // libstdc++ calls setlocale, with a lock held for which another rank's call would wait
  std::locale before = [&] {
    const kasane::PassedCalls alone;
    return g_global.get()(locale);
  }();
  correct_count_of(locale);
  ProcessCall call;
  call.kind = ProcessCall::Kind::locale;
  call.which = -1;
  const std::string name = locale.name();
  if (name == "*" && shared_by_program() != nullptr)
    warn_of("std::locale::global: a locale with facets of the program's own holds on this rank only",
            nullptr);
  else
    tell_all(call, put(call, name), "std::locale::global");
  return before;
}

KASANE_SHOWN void* kasane_set_terminate(void*) noexcept asm("_ZSt13set_terminatePFvvE");
void* kasane_set_terminate(void* to) noexcept {
  return set_handler(Handler::terminate, to, "std::set_terminate");
}
KASANE_SHOWN void* kasane_set_new_handler(void*) noexcept asm("_ZSt15set_new_handlerPFvvE");
void* kasane_set_new_handler(void* to) noexcept {
  return set_handler(Handler::out_of_memory, to, "std::set_new_handler");
}
KASANE_SHOWN void* kasane_set_default_resource(void*) noexcept
    asm("_ZNSt3pmr20set_default_resourceEPNS_15memory_resourceE");
void* kasane_set_default_resource(void* to) noexcept {
  return set_handler(Handler::memory_resource, to, "std::pmr::set_default_resource");
}

#endif
