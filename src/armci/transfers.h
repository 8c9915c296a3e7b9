// SPDX-License-Identifier: Apache-2.0
// Put, get and accumulate of every form: with a patch between global memory of a process and local memory.
//
//   process      put, get                                     accumulate
//   this one     plain copies: this rank owns the memory, or  at the owner; in private memory a loop
//                it is private (ARMCI_Malloc_local, variables)
//   another      direct access at the owner                   direct access at the owner
//
// A blocking call has completed at the owner when it returns. A non-blocking one has copied its source.
//
// **Out of core.** What of a patch is on SSD is sent for before the first byte is copied, so that its reads
// overlap: of other processes by direct access, of this one by sent_for(). A non-blocking call that finds
// something on SSD sends for it and leaves the copying to the call that waits (Deferred). A put of whole
// pages reads nothing.
// Thread safety: from any thread. Errors: an address of no allocation, or of another process's private
// memory: fatal(), with the call, the process and the address.
#pragma once

#include <cstddef>
#include <vector>

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

/// A transfer that is made later, while its pages come from SSD.
struct Deferred {
  enum class Kind { put, get, accumulate };
  Kind kind = Kind::get;
  const char* name = "";
  int process = 0;
  void* global = nullptr;
  void* local = nullptr;
  Patch patch;
  int type = 0;  ///< of an accumulate, with its scale
  char scale[16] = {};
  std::vector<char> bytes;  ///< the source of a put or accumulate, packed
};

/// Sends for what of the transfer's patch is on SSD. True: something is.
bool sent_for(const Deferred& transfer);
/// Copies the source of a put or accumulate.
void keep_source(Deferred& transfer);
void transfer(const Deferred& transfer, kasane_pending_t* pending);

}  // namespace kasane::armci
