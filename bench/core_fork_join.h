// SPDX-License-Identifier: Apache-2.0
// Claim: a fork and its join cost at most 20 ns with one worker, so programs need no cutoff.
// fib(n) without cutoff, one fork and one join for each inner node; every result is checked. Beside a plain call, oneTBB task_group and OpenMP tasks; libfork and MassiveThreads where they are installed.
#pragma once

#include <optional>
#include <vector>

#include "rows.h"

namespace kasane::bench {

/// Rows suite "core", case "fork-join", unit "ns" per fork and join (for "call": per inner node), for 1 and 2 workers. quick: smaller n, fewer
/// repetitions. Throws std::runtime_error if a result is wrong.
std::vector<Row> core_fork_join(bool quick, std::optional<unsigned> repetitions);

}  // namespace kasane::bench
