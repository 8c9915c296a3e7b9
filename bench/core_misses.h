// SPDX-License-Identifier: Apache-2.0
// Claim: threads of one worker hide the network behind each other's misses. Jobs of two ranks by the public
// API (bench/misses_player.cpp), over UCX within the host and over TCP, beside UCX alone with 64 reads of the
// same size under way (kasane bench comm's player), in turns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rows.h"

namespace kasane::bench {

/// Rows of suite "core". Cases: load-miss, load-miss-tcp: µs a load of a block of 4 KiB of the other rank.
/// Systems: "kasane" with 1 and 64 threads of one worker, and "ucx-own": ucp_get_nbx, 1 and 64 under way,
/// into and from memory that the program brought, as Kasane's is. "ratio": to ucx-own with as many.
/// `players`: the folder of the players. Throws std::runtime_error if a job fails, or its values are wrong.
std::vector<Row> core_misses(bool quick, std::optional<unsigned> repetitions, const std::string& command,
                             const std::string& players);

}  // namespace kasane::bench
