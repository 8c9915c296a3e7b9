// SPDX-License-Identifier: Apache-2.0
// Claim: a fork and its join by kasane::parallel_invoke cost at most 20 ns with one worker, so programs need
// no cutoff. Two recursions without cutoff (fork_join/player.h), one fork and one join for each inner node,
// as players: each system runs in a process of its own, by its public interface; Kasane's is a job that
// `kasane run` starts. Plain calls, oneTBB and OpenMP always; libfork, citor, TooManyCooks and MassiveThreads
// where CMake found them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rows.h"

namespace kasane::bench {

/// Rows suite "core", cases "fork-join" (fib) and "fork-join-tree", unit "ns" per fork and join (for "call":
/// per inner node), for 1 and 2 workers. The systems take turns, of `repetitions` (5; quick: 1); quick:
/// smaller recursions. command: the kasane command; players: the folder of the players. Throws
/// std::runtime_error if a result is wrong or a player fails.
std::vector<Row> core_fork_join(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                                const std::string& players);

}  // namespace kasane::bench
