// SPDX-License-Identifier: Apache-2.0
// The program does what execve does, so that what the dynamic loader maps lies at the same addresses in all
// ranks where the system refuses to start them without randomisation (personality, which the filters of most
// containers forbid).
//
//   0x5500…  the program
//   0x6e00…  below it the loader, and below that libraries, as the loader maps them
//            above it nothing is free, so that the kernel's search from the top begins there
//
// The stack, the vDSO and the heap stay where they are: no code of the program lies there, and no thread
// moves while it runs code of the vDSO. /proc/self/exe and the command line stay right, too.
//
// Thread safety: from .preinit_array only: one thread, and nothing of libc's that outlives it.
#pragma once

#include <cstddef>

namespace kasane::runtime {

/// The image that load_again() left behind, for drop_first_image().
struct FirstImage {
  unsigned long program = 0, bytes = 0;  ///< none of a program that is not position-independent
};
FirstImage first_image() noexcept;

/// Starts the program again in this process. environment: as the kernel passed it, with what lies before and
/// behind it; `last` is added at its end. Returns only on failure.
void load_again(char** argv, char** environment, char* last) noexcept;

/// Whether this is the image that load_again() started.
bool loaded_again() noexcept;

/// In the image that it started: unmaps the first image and the filling that kept addresses from being used;
/// tells the kernel where the program is now. environment: as libc found it.
void drop_first_image(FirstImage image, char* const* environment) noexcept;

}  // namespace kasane::runtime
