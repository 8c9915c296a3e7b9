// SPDX-License-Identifier: Apache-2.0
// How the functions of arrays refuse. Thread safety: any thread.
#pragma once

namespace kasane::arrays {

/// Throws kasane::error with the code and a text: what, where, what to do.
[[noreturn, gnu::cold, gnu::format(printf, 2, 3)]] void fail(int code, const char* format, ...);

}  // namespace kasane::arrays
