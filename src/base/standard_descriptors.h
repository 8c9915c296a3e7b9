// SPDX-License-Identifier: Apache-2.0
// Descriptors 0, 1 and 2 are standard input, output and error to everybody who reads or prints, also where a
// process was started without them (prog >&-). The next file that it opens would get such a number: a
// program's output would go into the memory that its ranks share. Thread safety: before a second thread.
// Needs nothing of libc's but system calls.
#pragma once

namespace kasane {

/// Those that are missing are /dev/null from now on, for programs that this one starts, too. To be called
/// before anything else opens a file.
void open_standard_descriptors() noexcept;

}  // namespace kasane
