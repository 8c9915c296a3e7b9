// SPDX-License-Identifier: Apache-2.0
// In the build `coverage`: writes gcov's counters of this library, for processes that end otherwise than by
// exit(). Elsewhere it does nothing.
//
// Thread safety: as stdio. In a signal handler it may wait for ever, where the handler came upon malloc.
#pragma once

namespace kasane::runtime {

#ifdef KASANE_COVERAGE
void write_coverage() noexcept;
#else
inline void write_coverage() noexcept {}
#endif

}  // namespace kasane::runtime
