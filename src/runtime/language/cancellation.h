// SPDX-License-Identifier: Apache-2.0
// pthread_cancel() of the program's OS threads, deferred. With --threads spread it is the runtime's, since
// most of what a thread waits in is, and libc would unwind functions of the runtime's own. A thread ends in a
// cancellation point, in code of the program: before the wait, or after one that was broken off.
//
//   event     open     off     waits         asked        held     told           over
//   cancel    asked    held    told ¹        -            -        -              -
//   enter     waits    -       -             -: end       -        -              -
//   leave     -        -       open          -            -        asked: end     -
//   test      -        -       -             over: end    -        -              -
//   disable   off      -       -             held         -        -              -
//   enable    -        open    -             -            asked    -              -
//   exit      over     over    over          over         over     over           -
//
// end: test() is to be called, where functions of the program alone are left. ¹ Who cancels the thread rouses
// it until it has left its wait: what rouses it may come before the wait begins. A signal handler of the
// program's in a wait enters nothing. tests/model/cancellation_test.cpp walks it.
//
// Elsewhere libc cancels, and rouses no thread that waits for a word: rouse_from_word() does.
//
// Thread safety: the words are atomic; what is said of the calling OS thread is its own.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/call_selector.h"
#include "runtime/language/futex_calls.h"

namespace kasane::runtime {

enum class CancelState : std::uint8_t { open, off, waits, asked, held, told, over };
enum class CancelEvent : std::uint8_t { cancel, enter, leave, test, disable, enable, exit };
enum class CancelAction : std::uint8_t { none, wait, end };
struct CancelStep {
  CancelState next = CancelState::open;
  CancelAction action = CancelAction::none;
};

[[nodiscard]] constexpr CancelStep next(CancelState state, CancelEvent event) noexcept {
  using enum CancelState;
  using enum CancelAction;
  switch (event) {
    case CancelEvent::cancel:
      return {state == open ? asked : state == off ? held : state == waits ? told : state, none};
    case CancelEvent::enter:
      return state == open ? CancelStep{waits, wait} : CancelStep{state, state == asked ? end : none};
    case CancelEvent::leave:
      return state == told ? CancelStep{asked, end} : CancelStep{state == waits ? open : state, none};
    case CancelEvent::test: return state == asked ? CancelStep{over, end} : CancelStep{state, none};
    case CancelEvent::disable: return {state == open ? off : state == asked ? held : state, none};
    case CancelEvent::enable: return {state == off ? open : state == held ? asked : state, none};
    case CancelEvent::exit: break;
  }
  return {over, none};
}

class Cancellation {
 public:
  explicit Cancellation(bool is_libcs = false) noexcept : is_libcs_(is_libcs) {}
  /// Of the calling OS thread; null: libc's alone.
  [[nodiscard]] static Cancellation* here() noexcept;
  static void set_here(Cancellation*) noexcept;
  /// In the child of a fork: its thread's is the parent's, in memory that both have.
  static void forget_here() noexcept;
  [[nodiscard]] pid_t os_thread() const noexcept { return os_thread_.load(std::memory_order_relaxed); }
  /// Null also where libc's functions cancel, and in the runtime.
  [[nodiscard]] static Cancellation* of_calls_here() noexcept {
    Cancellation* const own = here();
    return own != nullptr && !own->is_libcs_ && calls() == Calls::caught ? own : nullptr;
  }
  CancelAction step(CancelEvent) noexcept;
  /// What rouses the thread: 0: it does not have to be; kSignal; else what it waits for, set_object().
  static constexpr std::uint64_t kSignal = 1;
  [[nodiscard]] std::uint64_t roused_by() const noexcept {
    if (state_.load() != CancelState::told) return 0;
    const std::uint64_t object = object_.load(std::memory_order_relaxed);
    return object != 0 ? object : kSignal;
  }
  /// What the thread waits for now, if not for the kernel.
  void set_object(std::uint64_t object) noexcept { object_.store(object, std::memory_order_relaxed); }

  /// What the thread waits for, for reports; null: no word.
  struct Wait {
    const char* call = nullptr;
    const void* word = nullptr;
  };
  void note_wait(const Wait& wait) noexcept {
    word_.store(wait.word, std::memory_order_relaxed);  // relaxed, all: told as it is at some recent time
    call_.store(wait.call, std::memory_order_relaxed);
  }
  [[nodiscard]] Wait wait() const noexcept {
    return {call_.load(std::memory_order_relaxed), word_.load(std::memory_order_relaxed)};
  }

  /// pthread_testcancel(). May end the thread, as pthread_exit() does.
  static void test();

 private:
  // seq_cst, as its steps are: who cancels a thread that waits sees for what
  std::atomic<CancelState> state_{CancelState::open};
  std::atomic<std::uint64_t> object_{0};
  std::atomic<pid_t> os_thread_{0};
  std::atomic<const char*> call_{nullptr};
  std::atomic<const void*> word_{nullptr};
  const bool is_libcs_;
};

/// wait_for_word() in a cancellation point. EINTR: test() is to be called, and then to be waited again. A
/// wake-up that the thread may have taken from another one is passed on.
int wait_in_point(void* word, std::uint32_t expected, const Deadline*, const char* call) noexcept;
/// wait_prepared() as well.
int wait_in_point(void* word, const PreparedWait&, const Deadline*, const char* call) noexcept;

/// call(), by the kernel, in a cancellation point; broken_off(result): a signal has ended it.
template <class Call, class BrokenOff>
auto call_in_point(const Call& call, const BrokenOff& broken_off) {
  Cancellation* const own = Cancellation::of_calls_here();
  if (own == nullptr) [[likely]]
    return call();
  const CancelAction entered = own->step(CancelEvent::enter);
  if (entered == CancelAction::end) Cancellation::test();
  const auto result = call();
  if (entered == CancelAction::wait && own->step(CancelEvent::leave) == CancelAction::end &&
      broken_off(result))
    Cancellation::test();
  return result;
}
template <class Call>
auto call_in_point(const Call& call) {
  return call_in_point(call, [](auto result) { return result == -1 && errno == EINTR; });
}

/// An OS thread whose cancellation is libc's, while it runs user code.
class CancelledByLibc {
 public:
  CancelledByLibc();
  ~CancelledByLibc();
  CancelledByLibc(const CancelledByLibc&) = delete;
  CancelledByLibc& operator=(const CancelledByLibc&) = delete;

 private:
  friend void rouse_from_word(pthread_t) noexcept;
  /// As Cancellation::roused_by().
  static std::uint64_t rouse(pthread_t, bool first) noexcept;
  Cancellation own_{true};
  const pthread_t thread_;
  CancelledByLibc* next_;
};
inline constexpr unsigned kRouseAgainUs = 50;
/// After libc's pthread_cancel().
void rouse_from_word(pthread_t) noexcept;

}  // namespace kasane::runtime
