// SPDX-License-Identifier: Apache-2.0
// strtok, asctime, ctime, localtime, gmtime and inet_ntoa, whose results are the program's on all ranks
// (static_results.h). For the runtime and the libraries below it they are libc's.
// Thread safety: as libc's: one thread at a time uses a result.
#include "runtime/process/static_results.h"

#include <arpa/inet.h>
#include <string.h>

#include <cerrno>
#include <cstring>

#include "base/call_selector.h"
#include "runtime/rank/hidden.h"

namespace kasane::runtime {
namespace {

constinit StaticResults* g_results = nullptr;  ///< null: not a program of ours

}  // namespace

void leave_results_in(StaticResults& results) noexcept { g_results = &results; }

StaticResults* static_results() noexcept { return calls() == Calls::passed ? nullptr : g_results; }

}  // namespace kasane::runtime

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

namespace kasane::runtime {
namespace {

constinit Hidden<char* (*)(char*, const char*)> g_strtok("strtok");
constinit Hidden<char* (*)(const std::tm*)> g_asctime("asctime");
constinit Hidden<char* (*)(const std::time_t*)> g_ctime("ctime");
constinit Hidden<std::tm*(*)(const std::time_t*)> g_localtime("localtime"), g_gmtime("gmtime");
constinit Hidden<char* (*)(in_addr)> g_inet_ntoa("inet_ntoa");

}  // namespace
}  // namespace kasane::runtime

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

#define KASANE_SHOWN extern "C" [[gnu::visibility("default")]]

KASANE_SHOWN char* strtok(char* text, const char* delimiters) noexcept {
  StaticResults* const r = static_results();
  return r != nullptr ? ::strtok_r(text, delimiters, &r->strtok_rest) : g_strtok.get()(text, delimiters);
}
KASANE_SHOWN char* asctime(const std::tm* time) noexcept {
  StaticResults* const r = static_results();
  char* const text = g_asctime.get()(time);  // asctime_r takes years of four digits only
  if (r == nullptr || text == nullptr) return text;
  if (std::strlen(text) < sizeof r->time_text) return std::strcpy(r->time_text, text);
  errno = EOVERFLOW;
  return nullptr;
}
KASANE_SHOWN std::tm* localtime(const std::time_t* time) noexcept {
  StaticResults* const r = static_results();
  if (r == nullptr) return g_localtime.get()(time);
  ::tzset();
  return ::localtime_r(time, &r->time);
}
KASANE_SHOWN std::tm* gmtime(const std::time_t* time) noexcept {
  StaticResults* const r = static_results();
  return r != nullptr ? ::gmtime_r(time, &r->time) : g_gmtime.get()(time);
}
KASANE_SHOWN char* ctime(const std::time_t* time) noexcept {
  if (static_results() == nullptr) return g_ctime.get()(time);
  const std::tm* const local = ::localtime(time);
  return local != nullptr ? ::asctime(local) : nullptr;
}
KASANE_SHOWN char* inet_ntoa(in_addr address) noexcept {
  StaticResults* const r = static_results();
  if (r == nullptr) return g_inet_ntoa.get()(address);
  ::inet_ntop(AF_INET, &address, r->address, sizeof r->address);
  return r->address;
}

#undef KASANE_SHOWN
#endif
