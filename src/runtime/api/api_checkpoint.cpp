// SPDX-License-Identifier: Apache-2.0
// The public interface of checkpoints (include/kasane/kasane.h): it checks the arguments, and runs a call
// from main on a thread.
// Thread safety: as the header says.
#include <kasane/kasane.h>
#include <cerrno>
#include <cstring>

#include "runtime/api/api_error.h"
#include "runtime/api/checkpoint.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"

namespace {

using kasane::checkpoint::Contents;
using kasane::runtime::api_fail;
using kasane::runtime::CheckpointFailure;
using kasane::runtime::Runtime;

struct Call {
  const char* name;
  CheckpointFailure (*act)(const Call&);
  void* data;
  Contents contents;
  const char* path;
  CheckpointFailure failure;
  bool restores;
};

int run(Call call);

/// Variables of the program in a job of one rank, which are not in the space: a copy of them that is.
int run_on_copy(Call call, std::uint64_t bytes) {
  void* const variables = call.data;
  call.data = kasane_malloc(bytes);
  if (call.data == nullptr) return ENOMEM;
  std::memcpy(call.data, variables, bytes);
  const int code = run(call);
  if (code == 0 && call.restores) std::memcpy(variables, call.data, bytes);
  kasane_free(call.data);
  return code;
}

int run(Call call) {
  Runtime* r = Runtime::current();
  if (r == nullptr) return kasane::runtime::api_fail_not_running(call.name);
  std::uint64_t bytes = 0;
  if (call.contents.element_bytes == 0 ||
      __builtin_mul_overflow(call.contents.count, call.contents.element_bytes, &bytes))
    return api_fail(EINVAL, call.name,
                    "count * element_bytes is more than there can be, or an element has no bytes");
  const auto* first = static_cast<const std::byte*>(call.data);
  if (bytes != 0 && r->one_rank_variables().contains(first, bytes)) return run_on_copy(call, bytes);
  if (bytes != 0 && !r->space().contains(first, bytes))
    return api_fail(EINVAL, call.name, "the range is not in global memory");
  if (r->attached() || kasane::ult::Pool::self() != kasane::kNoSlot) {
    kasane::runtime::check_no_mutex_held(call.name);
    call.failure = call.act(call);
  } else if (raw(r->rank()) == 0) {
    r->run_root(
        [](void* p) { static_cast<Call*>(p)->failure = static_cast<Call*>(p)->act(*static_cast<Call*>(p)); },
        &call);
  } else {
    return api_fail(EPERM, call.name, "call it on a user-level thread, or from main on rank 0");
  }
  return call.failure.code != 0 ? api_fail(call.failure.code, call.name, call.failure.text) : 0;
}

Contents contents_of(const kasane_checkpoint_t& c) noexcept {
  return {c.count, c.element_bytes, c.note, c.type};
}

}  // namespace

extern "C" {

int kasane_persist(const void* pointer, const kasane_checkpoint_t* contents, const char* path) {
  return run({"kasane::persist",
              [](const Call& c) { return kasane::runtime::persist(c.path, c.data, c.contents); },
              const_cast<void*>(pointer),
              contents_of(*contents),
              path,
              {},
              false});
}

int kasane_restore(void* pointer, const kasane_checkpoint_t* contents, const char* path) {
  return run({"kasane::restore",
              [](const Call& c) { return kasane::runtime::restore(c.path, c.data, c.contents); },
              pointer,
              contents_of(*contents),
              path,
              {},
              true});
}

int kasane_describe_checkpoint(const char* path, kasane_checkpoint_t* contents) {
  Contents found;
  const CheckpointFailure failure = kasane::runtime::describe_checkpoint(path, found);
  if (failure.code != 0) return api_fail(failure.code, "kasane::describe_checkpoint", failure.text);
  *contents = {found.count, found.element_bytes, found.note, found.type};
  return 0;
}

}  // extern "C"
