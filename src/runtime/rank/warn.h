// SPDX-License-Identifier: Apache-2.0
// Warnings of a running rank: on standard error at once, by one write, from any thread and any handler. errno
// stays.
#pragma once

#include "runtime/rank/crash_text.h"

namespace kasane::runtime {

void warn(const CrashText&) noexcept;

}  // namespace kasane::runtime
