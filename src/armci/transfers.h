// SPDX-License-Identifier: Apache-2.0
// Put, get and accumulate of every form: with a patch between global memory of a process and local memory.
//
//   process      put, get                                     accumulate
//   this one     plain copies: this rank owns the memory, or  at the owner; in private memory a loop
//                it is private (ARMCI_Malloc_local, variables)
//   another      direct access at the owner                   direct access at the owner
//
// A blocking call has completed at the owner when it returns. A non-blocking one has copied its source.
// Thread safety: from any thread. Errors: an address of no allocation, or of another process's private
// memory: fatal(), with the call, the process and the address.
#pragma once

#include <cstddef>

#include "armci/header.h"
#include "armci/patch.h"

namespace kasane::armci {

/// Which call it is.
struct Call {
  const char* name;
  int process;
  /// null: blocking; else what is left pending is added to *pending
  kasane_pending_t* pending = nullptr;
};

void put(const Call& call, void* global, const void* local, const Patch& patch);
void get(const Call& call, const void* global, void* local, const Patch& patch);
/// scale: one element of the type. The patch has whole elements.
void accumulate(const Call& call, int type, const void* scale, void* global, const void* local,
                const Patch& patch);

}  // namespace kasane::armci
