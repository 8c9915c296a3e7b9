// SPDX-License-Identifier: Apache-2.0
// libkasane_preload.so: what entry.cpp is for a program that links Kasane, for one that is installed
// (kasane run --preload). The command names three libraries in LD_PRELOAD, in this order: this one,
// libkasane_malloc.so, and libkasane.so, whose functions are then found before libc's.
//
//   entry.cpp                                  here
//   .preinit_array, of executables alone       the constructor of an object with -z initfirst, which the
//                                              dynamic loader runs right before
//   variables among those of the executable    a page of this library that becomes a part of V
//
// Thread safety: as entry.cpp.
#include <cstring>

#include "runtime/language/library_calls.h"
#include "runtime/process/static_results.h"
#include "runtime/start/start.h"

namespace {

struct alignas(4096) Shared {
  kasane::runtime::StaticResults results = {};
  kasane::runtime::LibraryWords words = {};
};
constinit Shared g_shared = {};

/// The three words that the command put before what the variable had. libc has not seen it yet, and what the
/// program starts shall not be a job.
void leave_out_own_preloads(char** environment) noexcept {
  constexpr char kName[] = "LD_PRELOAD=";
  char** to = environment;
  for (char** from = environment; *from != nullptr; ++from) {
    char* const text = *from;
    if (std::strncmp(text, kName, sizeof kName - 1) == 0) {
      char* rest = text + sizeof kName - 1;
      for (int i = 0; i < 3; ++i) rest += std::strcspn(rest, ":"), rest += *rest != '\0';
      if (*rest == '\0') continue;
      std::memmove(text + sizeof kName - 1, rest, std::strlen(rest) + 1);
    }
    *to++ = text;
  }
  *to = nullptr;
}

void before_all_constructors(int argc, char** argv, char** environment) noexcept {
  leave_out_own_preloads(environment);
  kasane_start_preloaded(&g_shared, sizeof g_shared);
  kasane_start_static_results(&g_shared.results);
  kasane_start_library_words(&g_shared.words);
  kasane_start_process(argc, argv, environment);
}
[[gnu::section(".init_array"),
  gnu::used]] void (*g_before_all_constructors)(int, char**, char**) noexcept = before_all_constructors;

}  // namespace

extern "C" [[gnu::visibility("default")]] int __libc_start_main(int (*main)(int, char**, char**), int argc,
                                                                char** argv, void (*init)(), void (*fini)(),
                                                                void (*rtld_fini)(), void* stack_end) {
  return kasane_start_main(main, argc, argv, init, fini, rtld_fini, stack_end);
}
