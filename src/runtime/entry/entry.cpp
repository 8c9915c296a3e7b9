// SPDX-License-Identifier: Apache-2.0
// The part of the start that has to lie in the executable itself: the dynamic loader runs .preinit_array of
// the executable alone, and crt1.o's call of __libc_start_main is bound to it first. A static archive
// (libkasane_start.a) that kasane::kasane and kasane.pc add; it only calls the library
// (runtime/start/start.h).
//
// A program that links the runtime without it (kasane::comm, unit tests, tools) is an ordinary process.
//
// Thread safety: called by the process's only thread, but for kasane_start_main, beside which libraries may
// have threads already.
#include "runtime/language/library_calls.h"
#include "runtime/process/static_results.h"
#include "runtime/start/start.h"

#include "comm/bootstrap/start_mark.h"

namespace {

/// The mark by which kasane run knows that this program becomes ranks. retain: also with --gc-sections.
[[gnu::used, gnu::retain]] constexpr char kMark[] = KASANE_START_MARK_HEAD KASANE_START_MARK_TAIL;

}  // namespace

// What <kasane/built_with.h> left in the program's object files: the linker's names.
extern "C" [[gnu::weak, gnu::visibility("hidden")]] const char __start_kasane_atomics[],
    __stop_kasane_atomics[];

namespace {

// A sanitizer's runtime starts in this array too, and code compiled for it cannot run earlier:
// kasane_start_main does it all then.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)
/// Variables of the program's: all ranks share them. A page of their own, since one with a copy of a
/// library's variable is each rank's own (runtime/start/program_image.h).
struct alignas(4096) Shared {
  kasane::runtime::StaticResults results = {};
  kasane::runtime::LibraryWords words = {};
};
constinit Shared g_shared = {};

void before_all_constructors(int argc, char** argv, char** environment) noexcept {
  kasane_start_built_with(__start_kasane_atomics, __stop_kasane_atomics);
  kasane_start_static_results(&g_shared.results);
  kasane_start_library_words(&g_shared.words);
  kasane_start_process(argc, argv, environment);
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*g_before_all_constructors)(int, char**, char**) noexcept = before_all_constructors;
#endif

}  // namespace

extern "C" [[gnu::visibility("default")]] int __libc_start_main(int (*main)(int, char**, char**), int argc,
                                                                char** argv, void (*init)(), void (*fini)(),
                                                                void (*rtld_fini)(), void* stack_end) {
  return kasane_start_main(main, argc, argv, init, fini, rtld_fini, stack_end);
}
