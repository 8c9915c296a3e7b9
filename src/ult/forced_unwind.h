// SPDX-License-Identifier: Apache-2.0
// Leaves all functions from the caller up to one of ours, as pthread_exit() does: destructors run, handlers
// `catch (...)` run and have to rethrow, and no other handler matches. (An ordinary exception would end in
// the first `catch (...)`, with the thread still alive.)
//
// Thread safety: any thread, on its own stack. Destructors may switch to other threads meanwhile.
#pragma once

#include <unwind.h>

namespace kasane::ult {

class ForcedUnwind {
 public:
  /// Unwinds to the frame of `function`, which has a handler for abi::__forced_unwind&. call: for messages.
  /// Ends the program where a handler in between does not rethrow, or a function cannot be unwound.
  [[noreturn]] static void to(const void* function, const char* call);

 private:
  ForcedUnwind(const void* function, const char* call) noexcept : function_(function), call_(call) {}
  [[noreturn]] void fail(const char* why) noexcept;
  static _Unwind_Reason_Code stop(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                                  _Unwind_Context*, void* self) noexcept;
  static void dispose(_Unwind_Reason_Code, _Unwind_Exception*) noexcept;

  _Unwind_Exception header_ = {};  // first: unwinders know it alone
  const void* function_;
  const char* call_;
  bool arrived_ = false;  ///< at the frame of function_
};

}  // namespace kasane::ult
