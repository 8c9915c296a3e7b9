// SPDX-License-Identifier: Apache-2.0
#include "runtime/language/cancellation.h"

#include <unistd.h>

#include <mutex>
#include <utility>

#include "runtime/rank/hidden.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local Cancellation* t_here = nullptr;

constinit std::mutex g_lock;  ///< of the list
constinit CancelledByLibc* g_threads = nullptr;

constinit Hidden<void (*)()> g_test("pthread_testcancel");

template <class Wait>
int in_point(void* word, const Wait& wait) noexcept {
  Cancellation* const own = Cancellation::here();
  if (own == nullptr || calls() != Calls::caught) return wait();
  own->set_object(reinterpret_cast<std::uint64_t>(word));
  const CancelAction entered = own->step(CancelEvent::enter);
  const int error = entered != CancelAction::end ? wait() : EINTR;
  const bool left = entered == CancelAction::wait && own->step(CancelEvent::leave) == CancelAction::end;
  own->set_object(0);
  if (left) wake_word(word, false);
  return left ? EINTR : error;
}

}  // namespace

// Not inlined: a user-level thread may be on another OS thread after a wait.
[[gnu::noinline]] Cancellation* Cancellation::here() noexcept { return t_here; }
[[gnu::noinline]] void Cancellation::set_here(Cancellation* own) noexcept {
  if (t_here != nullptr) t_here->os_thread_.store(0, std::memory_order_relaxed);
  t_here = own;
  if (own != nullptr) own->os_thread_.store(::gettid(), std::memory_order_relaxed);  // it waits later
}

void Cancellation::forget_here() noexcept { t_here = nullptr; }

CancelAction Cancellation::step(CancelEvent event) noexcept {
  CancelState seen = state_.load();
  for (;;) {
    const CancelStep to = next(seen, event);
    if (to.next == seen || state_.compare_exchange_weak(seen, to.next)) return to.action;
  }
}

void Cancellation::test() {
  Cancellation* const own = here();
  if (own == nullptr) return g_test.get()();
  if (!own->is_libcs_) {
    if (own->step(CancelEvent::test) == CancelAction::end) ::pthread_exit(PTHREAD_CANCELED);
    return;
  }
  own->state_.store(CancelState::open);  // libc has been asked before
  g_test.get()();
}

int wait_in_point(void* word, std::uint32_t expected, const Deadline* deadline, const char* call) noexcept {
  return in_point(word, [&] { return wait_for_word(word, expected, deadline, call); });
}
int wait_in_point(void* word, const PreparedWait& prepared, const Deadline* deadline,
                  const char* call) noexcept {
  return in_point(word, [&] { return wait_prepared(word, prepared, deadline, call); });
}

CancelledByLibc::CancelledByLibc() : thread_(::pthread_self()) {
  const std::scoped_lock lock(g_lock);
  next_ = std::exchange(g_threads, this);
  Cancellation::set_here(&own_);
}
CancelledByLibc::~CancelledByLibc() {
  Cancellation::set_here(nullptr);
  const std::scoped_lock lock(g_lock);
  CancelledByLibc** at = &g_threads;
  while (*at != this) at = &(*at)->next_;
  *at = next_;
}

std::uint64_t CancelledByLibc::rouse(pthread_t thread, bool first) noexcept {
  const std::scoped_lock lock(g_lock);
  for (CancelledByLibc* t = g_threads; t != nullptr; t = t->next_) {
    if (t->thread_ != thread) continue;
    if (first) t->own_.step(CancelEvent::cancel);
    return t->own_.roused_by();
  }
  return 0;
}

void rouse_from_word(pthread_t thread) noexcept {
  const ult::RuntimeSection section;
  for (bool first = true;; first = false) {
    const std::uint64_t word = CancelledByLibc::rouse(thread, first);
    if (word == 0) return;
    wake_word(reinterpret_cast<void*>(word), true);
    ::usleep(kRouseAgainUs);
  }
}

}  // namespace kasane::runtime
