// SPDX-License-Identifier: Apache-2.0
// What non-blocking calls have left to do.
//
// An armci_hdl_t has 8 bytes, which may hold garbage when a non-blocking call gets it. Here they are the
// name of a record: its index and its generation. A call on a handle that names a record in use adds to it,
// so aggregates need no mark; any other contents are overwritten. Operations without handle belong to record
// 0. A generation is never 0, and differs each time that the record is taken.
//
// A transfer whose pages are on SSD is noted as a whole, and made by the call that waits for it. ARMCI_Test
// looks now and then whether they have come, sends for them anew, and makes the transfer after it has looked
// in vain for some milliseconds: so a program that tests without end goes on.
//
// Thread safety: all functions, from any thread.
#pragma once

#include <kasane/kasane.h>

#include "armci/header.h"
#include "armci/transfers.h"

namespace kasane::armci {

/// Notes what a call with this handle (may be null) left pending; nothing may be.
void note_pending(armci_hdl_t* handle, kasane_pending_t pending);
/// Notes a transfer that the call has sent for.
void note_deferred(armci_hdl_t* handle, Deferred&& transfer);
/// Waits for all operations of the handle. Garbage and handles that are complete: nothing.
void wait_for(armci_hdl_t* handle, const char* call);
/// Whether wait_for() would not wait. Has the same effects then.
bool test_for(armci_hdl_t* handle, const char* call);
/// Waits for all operations of the process, with a handle or without.
void wait_all(const char* call);

}  // namespace kasane::armci
