// SPDX-License-Identifier: Apache-2.0
// Marks a stretch of runtime code on a user-level thread. The interposed operator new gives memory of the
// space to user code only (rule 10), and Pool::in_program() is how it knows. System calls pass, and the
// program's signal handlers wait until the outermost section ends (base/call_selector.h).
//
// Thread safety: per user-level thread; sections nest, and one may be held over a switch: the count travels
// with the thread.
#pragma once

#include <cstdint>

#include "base/call_selector.h"

namespace kasane::ult {

class RuntimeSection {
 public:
  RuntimeSection() noexcept { enter(); }
  ~RuntimeSection() { leave(); }
  RuntimeSection(const RuntimeSection&) = delete;
  RuntimeSection& operator=(const RuntimeSection&) = delete;

 private:
  static void enter() noexcept;
  static void leave() noexcept;
};

/// The runtime calls user code in a scope, as if no section were open: a handler of the program's signals, or
/// a system call that may wait. It may be left by longjmp where user code was interrupted. No switch to
/// another thread.
class UserCode {
 public:
  UserCode() noexcept;
  ~UserCode();
  UserCode(const UserCode&) = delete;
  UserCode& operator=(const UserCode&) = delete;

  struct Depth {
    std::uint32_t sections = 0;    ///< how many are open
    Calls before = Calls::passed;  ///< what calls() was before the outermost one
  };

 private:
  [[nodiscard]] static Depth& depth() noexcept;
  const Depth sections_;
  const Calls calls_;
};

}  // namespace kasane::ult
