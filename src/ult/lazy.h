// SPDX-License-Identifier: Apache-2.0
// Lazy threads: the second function of a fork–join is a record in the caller's frame, and becomes a thread
// only when somebody wants work (after E. Mohr, D. Kranz, R. Halstead, "Lazy Task Creation: A Technique for
// Increasing the Granularity of Parallel Programs", IEEE TPDS 2(3), 1991).
//
//   the running thread's stack          worker
//   ┌──────────────────────────┐
//   │ record: older = null     │◄───┐
//   │ … record: older ─────────┼──┐ │   a hungry thief stores `wanted`; the oldest record, the largest part,
//   │ … record: older ─────────┼┐ ▼ │   becomes a thread in the worker's run queue at the next fork–join
//   └──────────────────────────┘◄── newest
//
// Records belong to the running thread: nobody else reads or changes them. A thread that leaves its worker,
// for whatever reason, has none: they become threads before, so nothing waits behind a thread that waits.
// Where no thread is left they are *kept*: called by the frame that made them.
//
// | record | event | then | action |
// |---|---|---|---|
// | linked | somebody wants work, or its thread leaves the worker | promoted | a thread, into the run queue |
// | linked | the same, but there is no thread left | kept | out of the list |
// | linked | the first function is over | over | out of the list; its frame calls it |
// | kept | the first function is over | over | its frame calls it |
// | promoted | the same, and its thread is here and never ran ¹ | over | frees it; its frame calls it |
// | promoted | the same, else | over | joins the thread |
//
// ¹ the newest of the worker's run queue, with its first context
//
// The structures are part of the programs' binary interface: kasane/kasane.h has the same, and makes and ends
// records inline.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ult/layout.h"

namespace kasane::ult {

/// What a record's function is.
struct LazyKind {
  void (*run)(void* argument);
  /// of the argument: a thread of it gets a copy. 0: it gets the argument's address instead, as such an
  /// argument
  std::size_t bytes;

  /// What a thread's copy takes.
  [[nodiscard]] std::size_t copied() const noexcept { return bytes != 0 ? bytes : sizeof(void*); }
};

struct LazyRecord {
  LazyRecord* older;
  const LazyKind* kind;
  const void* argument;  ///< in the frame, too
  Word thread;           ///< kLinked, kKept, or the ThreadId of what was promoted

  static constexpr Word kLinked = 0, kKept = 1;
};

enum class LazyEvent : std::uint8_t {
  promote,          ///< a thread has been made of it
  refuse,           ///< there is no thread left
  end,              ///< the first function is over
  end_and_untaken,  ///< end, and the thread was still in the worker's run queue, and never ran
};
enum class LazyAction : std::uint8_t { unlink, push, call, unlink_and_call, free_and_call, join, wrong };

struct LazyStep {
  Word next;
  LazyAction action;
};
/// One record's transition; thread: what a promotion made.
[[nodiscard]] constexpr LazyStep next(Word state, LazyEvent event, Word thread = 0) noexcept {
  const bool linked = state == LazyRecord::kLinked, kept = state == LazyRecord::kKept;
  switch (event) {
    case LazyEvent::promote:
      return linked ? LazyStep{thread, LazyAction::push} : LazyStep{state, LazyAction::wrong};
    case LazyEvent::refuse:
      return linked ? LazyStep{LazyRecord::kKept, LazyAction::unlink} : LazyStep{state, LazyAction::wrong};
    case LazyEvent::end:
      if (linked) return {LazyRecord::kKept, LazyAction::unlink_and_call};
      if (kept) return {state, LazyAction::call};
      return {state, LazyAction::join};
    case LazyEvent::end_and_untaken:
      return linked || kept ? LazyStep{state, LazyAction::wrong}
                            : LazyStep{LazyRecord::kKept, LazyAction::free_and_call};
  }
  return {state, LazyAction::wrong};
}

/// What a worker keeps for lazy threads, in the threads region: thieves of other ranks store `wanted`.
struct LazyWorker {
  /// who wants work (kHungry), or has sent a request (kAsked); 0: nobody. A hint: thieves store it after they
  /// have found the worker's run queue empty, and once more when they fall asleep (docs/design/ult.md). By
  /// the accessors, and in programs by a volatile load
  Word wanted_word;
  Word apart[15];
  LazyRecord* newest;
  /// Where the stack pointer is below it, a fork–join forks at once, on another stack.
  Word stack_limit;
  Word behind[14];

  // relaxed, both: a hint; docs/design/ult.md says why none is lost
  [[nodiscard]] Word wanted() noexcept {
    return std::atomic_ref<Word>(wanted_word).load(std::memory_order_relaxed);
  }
  /// A load first: the line stays the worker's as long as it is told already.
  void want(Word who) noexcept {
    if (wanted() != who) std::atomic_ref<Word>(wanted_word).store(who, std::memory_order_relaxed);
  }

  static constexpr Word kHungry = 1, kAsked = 2;
  static constexpr Word kNoStack = ~Word{0};  ///< as a limit: each fork–join goes the long way
};
static_assert(sizeof(LazyWorker) == Layout::kLazyBytes && offsetof(LazyWorker, newest) == 128);

}  // namespace kasane::ult

/// The calling OS thread's, or one that every fork–join goes the long way with. Programs read it inline.
extern "C" {
[[gnu::visibility("default"),
  gnu::tls_model("initial-exec")]] extern constinit thread_local kasane::ult::LazyWorker* kasane_lazy_worker;
}
