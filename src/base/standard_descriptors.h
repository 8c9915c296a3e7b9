// SPDX-License-Identifier: Apache-2.0
// Programs read and print by descriptors 0, 1 and 2, also where the process was started without them (prog
// >&-). The next file that such a process opens would get one of these numbers: a program's output would go
// into the memory that its ranks share.
// Thread safety: before a second thread. Needs only system calls of libc.
#pragma once

namespace kasane {

/// Opens /dev/null for those that are missing, also for programs that this one starts. Called before anything
/// else opens a file.
void open_standard_descriptors() noexcept;

}  // namespace kasane
