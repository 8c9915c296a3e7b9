// SPDX-License-Identifier: Apache-2.0
// UCX, loaded when a job asks for it: the functions that the transport calls, by their own names.
//
// Not linked, because libucs starts itself when it is loaded: it installs handlers for SIGSEGV and other
// signals, starts a thread, and may patch mmap. Kasane handles SIGSEGV and maps memory all the time, and most
// jobs never use UCX. load() tells UCX to do none of that, and removes its signal handlers if another library
// (an MPI) had loaded it before.
//
// Thread safety: load() from one thread at a time, before the program has threads that fault; the table is
// constant.
#pragma once

#include <ucp/api/ucp.h>

#include "base/result.h"

// ucs_status_string and ucs_debug_disable_signal are in libucs, which libucp loads.
// clang-format off: one name a line
#define KASANE_UCX_FUNCTIONS(X) \
  X(ucp_get_version_string) \
  X(ucp_config_read) \
  X(ucp_config_modify) \
  X(ucp_config_release) \
  X(ucp_init_version) \
  X(ucp_cleanup) \
  X(ucp_context_query) \
  X(ucp_context_print_info) \
  X(ucp_worker_create) \
  X(ucp_worker_destroy) \
  X(ucp_worker_get_address) \
  X(ucp_worker_release_address) \
  X(ucp_worker_get_efd) \
  X(ucp_worker_arm) \
  X(ucp_worker_progress) \
  X(ucp_worker_fence) \
  X(ucp_worker_flush_nbx) \
  X(ucp_worker_set_am_recv_handler) \
  X(ucp_ep_create) \
  X(ucp_ep_close_nbx) \
  X(ucp_ep_flush_nbx) \
  X(ucp_put_nbx) \
  X(ucp_get_nbx) \
  X(ucp_atomic_op_nbx) \
  X(ucp_am_send_nbx) \
  X(ucp_mem_map) \
  X(ucp_mem_unmap) \
  X(ucp_rkey_pack) \
  X(ucp_rkey_buffer_release) \
  X(ucp_ep_rkey_unpack) \
  X(ucp_rkey_destroy) \
  X(ucp_request_check_status) \
  X(ucp_request_free) \
  X(ucs_status_string)
// clang-format on

namespace kasane::comm::ucx {

struct Library {
#define KASANE_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  KASANE_UCX_FUNCTIONS(KASANE_UCX_MEMBER)
#undef KASANE_UCX_MEMBER

  /// The library, loaded at the first call and never unloaded.
  static Result<const Library*> load();
};

}  // namespace kasane::comm::ucx
