// SPDX-License-Identifier: Apache-2.0
// What a suspended thread waits for, in words that lie on its own stack, near its saved stack pointer: for
// reports on blocked threads (runtime/report/thread_report.h). Nothing reads it while the job runs well.
//
// Thread safety: the thread writes its note before it leaves its stack. A reader has a copy of the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ult/layout.h"

namespace kasane::ult {

struct WaitsFor {
  enum class Kind : std::uint32_t {
    turn,       ///< can go on: it has yielded, or has moved
    network,    ///< the answer of an operation
    page,       ///< what it has accessed: address
    outside,    ///< a system call's result: a descriptor, the time, a child
    thread,     ///< object: the slot of the thread that it joins
    mutex,      ///< object: the handle of the record
    condition,  ///< also for its mutex, once it was notified
    barrier,
    latch,
    permits,  ///< of a semaphore, shared or timed mutex
    word,     ///< of global memory
  };
  Kind kind = Kind::turn;
  bool timed = false;          ///< with a deadline
  const char* call = nullptr;  ///< a literal: the same address on every rank
  Word object = 0;
  const void* address = nullptr;  ///< of the program's object or word
};

/// On the stack of a thread, from before it leaves it until it is back.
class WaitNote {
 public:
  explicit WaitNote(const WaitsFor& waits) noexcept : waits_(waits) {
    mark_ = kMark ^ reinterpret_cast<Word>(this);
    asm volatile("" : : "m"(*this));  // it is read by no code that the compiler sees
  }
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;
  /// What is left of it on the stack is no note.
  ~WaitNote() {
    mark_ = 0;
    asm volatile("" : : "m"(*this));
  }

  /// The note of a suspended thread. stack: a copy of `bytes` of its stack that begins at its saved stack
  /// pointer `sp`. False: there is none, so the thread is the continuation of a fork.
  [[nodiscard]] static bool find(const std::byte* stack, std::size_t bytes, Word sp, WaitsFor& out) noexcept {
    for (std::size_t at = 0; at + sizeof(WaitNote) <= bytes && at < kNear; at += sizeof(Word)) {
      Word mark;
      std::memcpy(&mark, stack + at + offsetof(WaitNote, mark_), sizeof mark);
      if (mark != (kMark ^ (sp + at))) continue;
      std::memcpy(&out, stack + at + offsetof(WaitNote, waits_), sizeof out);
      return true;
    }
    return false;
  }

 private:
  static constexpr Word kMark = 0x6b61'7361'6e65'0a27;
  static constexpr std::size_t kNear = 1024;  ///< the frames from suspend() down are smaller

  Word mark_;
  WaitsFor waits_;
};

}  // namespace kasane::ult
