// SPDX-License-Identifier: Apache-2.0
// What a rank does when the network reports that another rank has disappeared: the memory and the threads of
// that rank are gone, so the job cannot continue. This process reports which rank, why and when, and ends;
// the launcher (our supervisor, or mpirun) then ends the others.
//
// Thread safety: any thread, also in a fault handler (called inside Transport::progress()).
#pragma once

#include <string_view>

#include "base/ids.h"

namespace kasane::runtime {

/// A comm::Transport::PeerLost.
void end_of_peer(void* context, Rank peer, std::string_view why) noexcept;

/// From this call on peers leave because the job has ended; yes = false: they stay again.
void expect_peers_to_leave(bool yes = true) noexcept;

}  // namespace kasane::runtime
