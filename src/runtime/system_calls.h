// SPDX-License-Identifier: Apache-2.0
// System calls of user code work on any global memory, absent, evicted or another rank's
// (docs/design/system_calls.md): caught calls (mem/caught_calls.h) whose memory lies in the space are carried
// out here. What the call table says of them is pinned as in a view, and they are made; those that name more
// than can be pinned at once are made in parts.
//
// Thread safety: the process's calls; any OS thread.
#pragma once

#include "base/result.h"

namespace kasane::runtime {

/// From now on caught calls are carried out for Runtime::current().
Result<void> begin_catching_calls() noexcept;
/// The calling OS thread runs user code of the program: its calls are caught from now on, if
/// begin_catching_calls() succeeded, whenever its selector says so.
void catch_calls_here() noexcept;
/// As catch_calls_here(), and user code runs from here on.
void enter_user_code() noexcept;

}  // namespace kasane::runtime
