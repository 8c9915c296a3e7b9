// SPDX-License-Identifier: Apache-2.0
// The only way in which the runtime reads its environment. The user of a set-user-id program, or of one with
// file capabilities, chooses its variables, but must not choose what it does with rights that the user lacks.
// In such a program no variable counts, so it is one rank with the defaults.
//
// Thread safety: as getenv.
#pragma once

namespace kasane {

/// This process has other rights than its user: set-user-id, set-group-id, file capabilities (the kernel's
/// AT_SECURE).
[[nodiscard]] bool has_borrowed_rights() noexcept;

/// The variable's value; null where it is not set, or this process has borrowed rights.
[[nodiscard]] const char* variable(const char* name) noexcept;

}  // namespace kasane
