// SPDX-License-Identifier: Apache-2.0
// A mistake of the program's, which ends it: says what is wrong and what to do, with no word of our own code
// (base/assert.h has the checks of that), and aborts.
// Thread safety: any; as a failed check it neither allocates nor takes a lock.
#pragma once

namespace kasane {
[[noreturn, gnu::cold, gnu::noinline]] void misused(const char* text) noexcept;
}  // namespace kasane

#define KASANE_REQUIRE(cond, text) ((cond) ? (void)0 : ::kasane::misused(text))
