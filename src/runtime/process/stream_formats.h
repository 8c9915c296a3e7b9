// SPDX-License-Identifier: Apache-2.0
// How std::cout, std::cerr and std::clog write: flags, precision, fill character and locale. What main has
// set before kasane::run holds on all ranks; what a thread sets holds where it is.
// Thread safety: in main, and on the service thread.
#pragma once

#include "runtime/process/process_calls.h"

namespace kasane::runtime {

/// On rank 0: what its streams are before the program begins.
void note_stream_formats() noexcept;
/// Tells all ranks what has changed since the last call, and warns if one of the streams was redirected.
void tell_stream_formats() noexcept;
/// What another rank has told. 0, or errno.
int take_stream_format(const ProcessCall&) noexcept;

}  // namespace kasane::runtime
