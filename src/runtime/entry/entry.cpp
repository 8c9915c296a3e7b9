// SPDX-License-Identifier: Apache-2.0
// The part of the start that must lie in the executable itself: only there the dynamic loader looks at .preinit_array, only its own first constructor comes
// before its others, and crt1.o's call of __libc_start_main is bound to it first. A static archive (libkasane_start.a) that kasane::kasane and kasane.pc bring
// along; all that it does is call the library (runtime/start/start.h). It holds no variable that is written after the dynamic loader is done.
//
// Who links the runtime without it (kasane::comm, unit tests, tools) stays an ordinary process.
//
// Thread safety: called by the process's only thread, but for kasane_start_main, beside which libraries may have threads already.
#include "runtime/start/start.h"

#include "comm/bootstrap/start_mark.h"

namespace {

/// Tells kasane run that this program knows how to become ranks.
[[gnu::used]] constexpr char kMark[] = KASANE_START_MARK_HEAD KASANE_START_MARK_TAIL;

// A sanitizer's own runtime starts in this array too, and code compiled for it cannot run before: kasane_start_main does it all then.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)
[[gnu::section(".preinit_array"), gnu::used]] void (*g_before_all_constructors)(int, char**, char**) noexcept = kasane_start_process;
#endif

/// The first constructor of the executable.
[[gnu::constructor(101)]] void before_own_constructors() { kasane_start_constructors(); }

}  // namespace

extern "C" [[gnu::visibility("default")]] int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                                                                void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  return kasane_start_main(main, argc, argv, init, fini, rtld_fini, stack_end);
}
