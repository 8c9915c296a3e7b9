// SPDX-License-Identifier: Apache-2.0
// The descriptors of the runtime: memory files, sockets, userfaultfd, rings, and what a network's library has
// opened. A program may close, replace or list all that are open, and knows nothing of these: daemons, shells
// and Python's subprocess do so.
//
//   which    what is opened while the runtime runs (Calls::passed), or on a thread that it has started: the
//            functions of call_wrappers.cpp, which UCX and the MPIs call, too, hand it over. In a program
//            that attaches (kasane_attach), which shares its libraries with the runtime, only what the
//            runtime itself opens
//   where    beyond the limit of open files, or from kFirst on: not where programs come
//   to user  such a number is not open (EBADF); close_range() leaves it out; dup2() onto it is refused as
//   code     beyond the limit, or with EBUSY where the limit is higher
//   exec     keeps none
//
// The kernel gives a new descriptor the lowest number, where a program that closes whatever may be there can
// meet it. So a lock is held until it has its own number, and while user code closes or replaces a number.
//
// Thread safety: every call from any thread; async-signal-safe.
#pragma once

#include "traps/caught_calls.h"

namespace kasane::runtime {

/// Once, by the start of a program of Kasane's: what libraries open within the runtime is its own, too.
void own_descriptors_of_libraries() noexcept;

/// The calling thread runs the runtime, or has been started by it and runs no user code.
[[nodiscard]] bool runs_runtime() noexcept;
/// The calling thread has been started where that held.
void note_thread_of_runtime() noexcept;

/// In a child of fork(): no other thread holds it.
void unlock_descriptors() noexcept;

class DescriptorLock {
 public:
  explicit DescriptorLock(bool wanted = true) noexcept;
  ~DescriptorLock();
  DescriptorLock(const DescriptorLock&) = delete;
  DescriptorLock& operator=(const DescriptorLock&) = delete;

 private:
  bool held_ = false;
};

/// The function at `caller` opens or closes descriptors in a scope.
class OwnDescriptors {
 public:
  explicit OwnDescriptors(const void* caller) noexcept;
  /// Opened: the number from now on, which is the runtime's if the caller is. -1 is passed through, as errno.
  [[nodiscard]] int operator()(int opened) const noexcept;
  /// The numbers of two that a call with this answer has opened.
  [[nodiscard]] int operator()(int answer, int* two) const noexcept;
  /// The descriptor is about to be closed.
  static void forget(int) noexcept;

 private:
  const bool own_;
  const DescriptorLock lock_;
};

/// User code's call closes or replaces descriptors, or has to do with one of the runtime's.
[[nodiscard]] bool concerns_descriptors(const traps::CaughtCall&) noexcept;
/// The answer to such a call. make: makes it, without a lock.
[[nodiscard]] long call_beside_own(const traps::CaughtCall&,
                                   long (*make)(long number, const long (&arguments)[6]) noexcept) noexcept;

}  // namespace kasane::runtime
