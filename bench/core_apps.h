// SPDX-License-Identifier: Apache-2.0
// What runs as a program of its own under `kasane run`.
// Goal: a steal between ranks of a host costs at most 5 µs. Claim: programs of threads lose nothing on one
// rank and gain on several: cilksort and uts under `kasane run` at 1, 2 and 4 ranks, each beside its
// sequential elision in the same process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rows.h"

namespace kasane::bench {

/// Rows suite "core", cases cilksort and uts, unit "s": system "kasane" for each number of ranks, and
/// "serial". command: the kasane command; apps: the folder of the programs. Throws std::runtime_error if a
/// program fails or does not verify.
std::vector<Row> core_apps(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                           const std::string& apps);

/// Rows suite "core", case "steal", unit "us": one steal between two ranks of a host with 4 KiB of live
/// stack. players: the folder of player-steal.
std::vector<Row> core_steal(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                            const std::string& players);

/// Rows suite "core", case "lock", unit "us": from one change of 64 bytes that two ranks of a host share to
/// the next, in turns, each rank having changed so many pages (`bytes`) of the other since its last one:
/// systems "kasane, mutex" and "kasane, synchronized_value". players: the folder of player-lock.
std::vector<Row> core_lock(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                           const std::string& players);

/// Rows suite "core", case "turns", unit "us": from one turn to the next of two std::threads of one rank
/// that wait for a condition: systems "kasane", of one rank and of two, and "std::thread", the same program
/// without Kasane. players: the folder of player-turns and player-turns-std.
std::vector<Row> core_turns(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                            const std::string& players);

/// Rows suite "core", first stores to new memory of so many bytes (`bytes`): cases "touch-row" (2 KiB of each
/// 64 KiB and 16 bytes), "touch-in-order" and "touch-at-random" (a byte of each 4 KiB), unit "us", and
/// "touch-rows-memory", what the rows took, unit "MiB": systems "kasane", of one rank and of two, and
/// "kernel", the same program without Kasane. players: the folder of player-touch and player-touch-std.
std::vector<Row> core_touch(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                            const std::string& players);

/// Rows suite "core", cases "atomic-add", "atomic-load", "atomic-compare" and, of two ranks that add at once,
/// "atomic-count" (relaxed), "atomic-count-ordered"; unit "ns": systems "kasane" and, of one rank, "inline".
/// players: the folder of player-atomics.
std::vector<Row> core_atomics(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                              const std::string& players);

/// Rows suite "core", case "call", unit "ns": a write to /dev/null of so many bytes: systems "kernel" (one
/// rank), "kernel, let pass" (a thread whose calls could be caught), "kasane, private" and "kasane, global"
/// (two ranks: caught). players: the folder of player-calls.
std::vector<Row> core_calls(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                            const std::string& players);

}  // namespace kasane::bench
