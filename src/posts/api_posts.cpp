// SPDX-License-Identifier: Apache-2.0
// The public interface of posts (include/kasane/kasane.h): checks arguments, forwards to posts/group.h, and
// turns what that throws into codes.
// Thread safety: as the header says.
#include <kasane/kasane.h>
#include <cerrno>
#include <exception>
#include <kasane/kasane.hpp>

#include "posts/group.h"
#include "runtime/api/api_error.h"

namespace {

using kasane::posts::Group;
using kasane::runtime::api_fail, kasane::runtime::api_fail_no_rank, kasane::runtime::may_wait;

/// A failure of the runtime is noted already; f() returns 0, or an error.
template <class F>
int code_of(const char* call, const F& f) {
  try {
    return f();
  } catch (const kasane::error& e) {
    return e.code();
  } catch (const kasane::out_of_memory& e) {
    return api_fail(ENOMEM, call, e.what());
  }
}

Group& group_of(kasane_post_group_t* group) noexcept { return *reinterpret_cast<Group*>(group); }

}  // namespace

extern "C" {

kasane_post_group_t* kasane_post_group_create(void) {
  constexpr const char* call = "kasane::post_group";
  Group* made = nullptr;
  if (may_wait(call) == 0) static_cast<void>(code_of(call, [&] { return made = Group::create(), 0; }));
  return reinterpret_cast<kasane_post_group_t*>(made);
}

int kasane_post_group_destroy(kasane_post_group_t* group) {
  constexpr const char* call = "kasane::post_group";
  if (const int code = kasane_post_wait(group); code != 0) return code;
  return code_of(call, [&] { return Group::destroy(&group_of(group)), 0; });
}

int kasane_post(kasane_post_group_t* group, uint32_t rank, void (*function)(void*), const void* argument,
                size_t bytes) {
  constexpr const char* call = "kasane::post_group::post";
  if (const int code = may_wait(call); code != 0) return code;
  if (rank >= group_of(group).ranks()) return api_fail_no_rank(call, rank);
  if (bytes > kasane::posts::kMostBytes)
    return api_fail(EINVAL, call, "the argument of a post has at most 1024 bytes");
  return code_of(call, [&] { return group_of(group).post(rank, function, argument, bytes), 0; });
}

int kasane_post_wait(kasane_post_group_t* group) {
  constexpr const char* call = "kasane::post_group::wait";
  if (const int refused = may_wait(call); refused != 0) return refused;
  std::exception_ptr exception;
  const int code = code_of(call, [&] {
    if (group_of(group).in_a_post()) return api_fail(EDEADLK, call, "a post waits for its own group");
    exception = group_of(group).wait();
    return 0;
  });
  if (exception) std::rethrow_exception(std::move(exception));
  return code;
}

}  // extern "C"
