// SPDX-License-Identifier: Apache-2.0
// What offloading costs the requester and what it gives, beside issuing directly, in the same run: thread CPU
// time for each issue (figure 4.6 of Endo's thesis), round trip and rate of 8-byte reads, between two ranks
// over UCX's TCP. Each round runs every system once, so that what the machine does meets all of them.
#pragma once

#include <vector>

#include "rows.h"

namespace kasane::bench {

/// Forks: call it while the process has one thread. Rows: case offload-issue-cpu (ns), offload-latency (us),
/// offload-rate (M/s); systems ring (the ring and its executor alone, reading over shared memory), direct,
/// offload. Throws where there is no UCX or a rank fails.
std::vector<Row> comm_offload(bool quick);

}  // namespace kasane::bench
