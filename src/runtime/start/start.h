// SPDX-License-Identifier: Apache-2.0
// What the part of the start that lies in the executable (src/runtime/entry) calls in the library. Nothing
// else calls it; these names are no interface.
//
//   .preinit_array           kasane_start_built_with     (below)
//   of entry/preload.cpp     kasane_start_preloaded      (below)
//                            kasane_start_process        before all constructors: becomes the ranks, or one
//   __libc_start_main        kasane_start_main           libraries are constructed; our main constructs the
//                                                        program
#pragma once

extern "C" {

void kasane_start_process(int argc, char** argv, char** environment) noexcept;
int kasane_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end);
/// Before all others: the bytes that <kasane/built_with.h> left in the program's object files.
void kasane_start_built_with(const char* begin, const char* end) noexcept;
/// Before kasane_start_process(): the program was not built for this, and these variables, whole OS pages of
/// a library, are to be shared like the program's.
void kasane_start_preloaded(void* variables, unsigned long bytes) noexcept;
/// Before kasane_start_process(): a runtime::StaticResults among the program's variables.
void kasane_start_static_results(void* results) noexcept;
/// Before kasane_start_process(): a runtime::LibraryWords.
void kasane_start_library_words(void* words) noexcept;
}
