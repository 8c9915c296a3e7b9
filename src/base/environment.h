// SPDX-License-Identifier: Apache-2.0
// The one way in which the runtime reads its environment. Who starts a set-user-id program, or one with file capabilities, chooses its variables but
// must not choose what it does with rights that he has not: there no variable counts, so it is one rank with the defaults.
//
// Thread safety: as getenv.
#pragma once

namespace kasane {

/// This process has other rights than who started it: set-user-id, set-group-id, file capabilities (the kernel's AT_SECURE).
[[nodiscard]] bool has_borrowed_rights() noexcept;

/// The variable's value; null where it is not set, or this process has borrowed rights.
[[nodiscard]] const char* variable(const char* name) noexcept;

}  // namespace kasane
