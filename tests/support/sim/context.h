// SPDX-License-Identifier: Apache-2.0
// A stack for each of the simulator's scripted threads, by ucontext, since speed does not matter here. The
// address and thread sanitizers are told of each switch: else they would take it for corruption. The lowest
// page of a stack is a guard. Thread safety: none; all contexts belong to one OS thread.
#pragma once

#include <ucontext.h>

#include <cstddef>

namespace kasane::comm::sim {

class Context {
 public:
  /// The stack that the caller is on.
  Context();
  /// Will run entry(arg) at the first switch to it. entry never returns: it switches away for the last time.
  Context(std::size_t stack_bytes, void (*entry)(void*), void* arg);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Leaves this context, which is the running one, for next; returns when another context switches back.
  /// last: none will.
  void switch_to(Context& next, bool last = false);

 private:
  static void start(unsigned high, unsigned low);
  void arrived();

  ucontext_t context_{};
  std::byte* stack_ = nullptr;  ///< null: the OS thread's own
  std::size_t stack_bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* arg_ = nullptr;
  // What the sanitizers know of this stack; unused without them.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t bottom_bytes_ = 0;
  [[maybe_unused]] void* fiber_ = nullptr;
  Context* came_from_ = nullptr;
};

}  // namespace kasane::comm::sim
