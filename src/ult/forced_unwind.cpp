// SPDX-License-Identifier: Apache-2.0
#include "ult/forced_unwind.h"

#include <cstdio>
#include <cstdlib>

namespace kasane::ult {

void ForcedUnwind::to(const void* function, const char* call) {
  // Not on this stack, which is unwound, but where the thread may go meanwhile: global memory on a thread.
  auto* const self = new ForcedUnwind(function, call);
  self->header_.exception_cleanup = dispose;
  ::_Unwind_ForcedUnwind(&self->header_, stop, self);
  self->fail("a function without unwind tables has called it (compile with -funwind-tables)");
}

void ForcedUnwind::fail(const char* why) noexcept {
  std::fprintf(stderr, "kasane: %s: %s\n", call_, why);
  std::abort();
}

/// Called for each frame before its handlers are.
_Unwind_Reason_Code ForcedUnwind::stop(int, _Unwind_Action actions, _Unwind_Exception_Class,
                                       _Unwind_Exception*, _Unwind_Context* context,
                                       void* argument) noexcept {
  auto* const self = static_cast<ForcedUnwind*>(argument);
  if ((actions & _UA_END_OF_STACK) != 0) self->fail("the unwinder lost its way");
  if (reinterpret_cast<const void*>(::_Unwind_GetRegionStart(context)) == self->function_)
    self->arrived_ = true;
  return _URC_NO_REASON;
}

/// When a handler has ended without rethrowing.
void ForcedUnwind::dispose(_Unwind_Reason_Code, _Unwind_Exception* header) noexcept {
  auto* const self = reinterpret_cast<ForcedUnwind*>(header);
  if (!self->arrived_) self->fail("a catch (...) did not rethrow");
  delete self;
}

}  // namespace kasane::ult
