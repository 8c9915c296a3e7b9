// SPDX-License-Identifier: Apache-2.0
// Marks a stretch of runtime code on a user-level thread. The interposed operator new gives memory of the
// space to user code only (rule 10), and Pool::in_program() is how it knows.
//
// Thread safety: per user-level thread; sections nest, and one may be held over a switch: the count travels
// with the thread.
#pragma once

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

}  // namespace kasane::ult
