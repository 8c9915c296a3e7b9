// SPDX-License-Identifier: Apache-2.0
// The public interface of attached processes (include/kasane/kasane.h).
//
// Thread safety: as the header says: one thread of each rank.
#include <kasane/kasane.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/call_selector.h"
#include "comm/collectives/collectives.h"
#include "runtime/api/api_error.h"
#include "runtime/attach/attach.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"

namespace {

using kasane::Rank;
using kasane::runtime::api_fail;
using kasane::runtime::api_fail_no_rank;
using kasane::runtime::Runtime;

/// The runtime of an attached process; or null, and the failure is noted.
Runtime* attached_for(const char* call) noexcept {
  Runtime* const r = Runtime::current();
  if (r != nullptr && r->attached()) return r;
  api_fail(EPERM, call, "this process is not attached (kasane_attach)");
  return nullptr;
}

/// A buffer of the caller's outside of global memory, which the transport must not touch.
class Private {
 public:
  Private(const Runtime& r, const void* at, std::size_t bytes) : at_(at), bytes_(bytes) {
    if (bytes == 0 || !r.contains(at)) return;
    copy_.resize(bytes);
  }
  Private& fill() {
    if (!copy_.empty()) std::memcpy(copy_.data(), at_, bytes_);
    return *this;
  }
  void put_back() const {
    if (!copy_.empty()) std::memcpy(const_cast<void*>(at_), copy_.data(), bytes_);
  }
  [[nodiscard]] std::span<std::byte> span() {
    return {copy_.empty() ? static_cast<std::byte*>(const_cast<void*>(at_)) : copy_.data(), bytes_};
  }

 private:
  const void* at_;
  std::size_t bytes_;
  std::vector<std::byte> copy_;
};

}  // namespace

extern "C" {

int kasane_attach(const kasane_attach_options_t* options) {
  constexpr const char* call = "kasane_attach";
  if (Runtime::current() != nullptr || kasane::runtime::process().rank != kasane::kNoRank)
    return api_fail(EPERM, call,
                    "Kasane runs in this process already: it is attached, or the program is linked with "
                    "Kasane's start (kasane::kasane instead of kasane::attach)");
  const kasane_attach_options_t standard{nullptr, nullptr};
  const auto& o = options != nullptr ? *options : standard;
  return kasane::runtime::answer(kasane::runtime::attach(o.mpi, o.communicator), call);
}

int kasane_detach(void) {
  if (attached_for("kasane_detach") == nullptr) return EPERM;
  kasane::runtime::detach();
  return 0;
}

uint32_t kasane_attached(void) { return kasane::runtime::attachment(); }

int kasane_ranks_barrier(void) {
  Runtime* const r = attached_for("kasane_ranks_barrier");
  if (r == nullptr) return EPERM;
  const kasane::PassedCalls passed;
  r->release_all();
  r->collectives().barrier();
  r->acquire_all();
  return 0;
}

int kasane_ranks_broadcast(void* data, size_t bytes, uint32_t root) {
  constexpr const char* call = "kasane_ranks_broadcast";
  Runtime* const r = attached_for(call);
  if (r == nullptr) return EPERM;
  if (root >= r->ranks()) return api_fail_no_rank(call, root);
  const kasane::PassedCalls passed;
  Private buffer(*r, data, bytes);
  r->collectives().broadcast(Rank{root}, buffer.fill().span());
  buffer.put_back();
  return 0;
}

int kasane_ranks_allgather(const void* mine, void* all, size_t bytes) {
  Runtime* const r = attached_for("kasane_ranks_allgather");
  if (r == nullptr) return EPERM;
  const kasane::PassedCalls passed;
  Private own(*r, mine, bytes), everything(*r, all, bytes * r->ranks());
  r->collectives().allgather(own.fill().span(), everything.span());
  everything.put_back();
  return 0;
}

}  // extern "C"
