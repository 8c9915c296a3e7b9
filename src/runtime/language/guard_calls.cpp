// SPDX-License-Identifier: Apache-2.0
// Function statics: __cxa_guard_acquire, _release and _abort of the C++ ABI (ult/sync/guard_word.h). A
// user-level thread that waits is suspended, so an initialiser may fork, join and move; and a guard that
// several ranks can reach lets one thread of the job initialise.
//
//   guard in private memory, or a job of one rank   the CPU's atomics; the byte that compilers test is set
//   guard in global memory                          at its owner; that byte stays 0. A rank that has acquired
//                                                   after the initialisation notes it in a table (Known), so
//                                                   later calls cost a look-up
//
// Thread safety: as the ABI demands, also before the runtime begins and after it has ended.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <cxxabi.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>

#include "runtime/language/atomics.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"
#include "ult/sync/guard_word.h"
#include "ult/sync/watch.h"

namespace kasane::runtime {
namespace {

using ult::GuardAction;
using ult::GuardEvent;
using ult::GuardWord;

/// Guards whose objects this rank sees initialised; not all of them, since the owner knows. A guard is the
/// program's for as long as it runs, so none is ever taken out.
class Known {
 public:
  [[nodiscard]] bool contains(const void* guard) const noexcept {
    for (std::size_t i = 0; i < kProbes; ++i) {
      // acquire: the object as the noting thread saw it.
      if (at(guard, i).load(std::memory_order_acquire) == guard) return true;
    }
    return false;
  }
  void insert(const void* guard) noexcept {
    for (std::size_t i = 0; i < kProbes; ++i) {
      const void* none = nullptr;
      if (at(guard, i).compare_exchange_strong(none, guard) || none == guard) return;
    }
  }

 private:
  static constexpr std::size_t kSlots = 4096, kProbes = 4;
  [[nodiscard]] std::atomic<const void*>& at(const void* guard, std::size_t i) const noexcept {
    return slots_[(reinterpret_cast<std::uintptr_t>(guard) / 8 + i) % kSlots];
  }
  mutable std::array<std::atomic<const void*>, kSlots> slots_{};
};
constinit Known g_known;

/// Unlike every other thread's that may wait for the same guard.
std::uint32_t this_thread(const Runtime* runtime) noexcept {
  const SlotId self = ult::Pool::self();
  if (self != kNoSlot) return raw(self);
  const auto id = static_cast<std::uint32_t>(::syscall(SYS_gettid)) & 0x3FFFFFu;
  return 0x80000000u | (runtime != nullptr ? raw(runtime->rank()) & 0x1FFu : 0) << 22 | id;
}

[[noreturn]] void tell_recursive() {
  throw std::logic_error("the initialiser of a function static calls the function again");
}

/// A guard of the program.
class Guard {
 public:
  explicit Guard(void* word) noexcept : word_(word), shared_(is_shared_atomic(word)) {}

  /// True: the caller initialises the object.
  [[nodiscard]] bool acquire() const {
    for (;;) {
      const GuardAction action = advance(GuardEvent::acquire);
      switch (action) {
        case GuardAction::recursive: tell_recursive();
        case GuardAction::wait: wait(); continue;
        default: break;
      }
      if (shared_) acquire_atomics();  // what was released before the word said so
      if (action == GuardAction::initialise) return true;
      if (shared_) g_known.insert(word_);
      return false;
    }
  }

  void release() const {
    if (shared_) release_atomics();
    leave(shared_ ? GuardEvent::release_shared : GuardEvent::release);
  }
  void abort() const {
    if (shared_) release_atomics();
    leave(GuardEvent::abort);
  }

 private:
  GuardAction advance(GuardEvent event) const {
    const std::uint32_t self = this_thread(runtime());
    std::uint64_t seen = load_atomic_word(word_);
    for (;;) {
      const ult::GuardStep step = next(GuardWord::unpack(seen), event, self);
      const std::uint64_t wanted = step.next.pack();
      if (wanted == seen || swap_atomic_word(word_, seen, wanted)) return step.action;
    }
  }
  void leave(GuardEvent event) const {
    if (advance(event) != GuardAction::wake) return;
    if (Runtime* const here = runtime()) watch(*here).notify_all(here->pool());
  }
  [[nodiscard]] ult::Watch watch(const Runtime& here) const {
    return {reinterpret_cast<std::uintptr_t>(word_) & ~std::uintptr_t{3}, here.ranks()};
  }
  [[nodiscard]] GuardWord word() const { return GuardWord::unpack(load_atomic_word(word_)); }
  void wait() const {
    Runtime* const here = runtime();
    if (here == nullptr) {  // before the job and after it
      const timespec nap{0, 50'000};
      while (word().busy) ::nanosleep(&nap, nullptr);
      return;
    }
    const ult::Watch list = watch(*here);
    const std::uint32_t epoch = list.prepare(here->pool());
    if (!may_sleep(word())) return;
    ult::Pool::may_wait() ? list.wait(epoch) : list.sleep(here->pool(), epoch);
  }

  /// Of the rank where the thread is now: an initialiser, a wait and each access to the word may move it.
  [[nodiscard]] static Runtime* runtime() noexcept {
    Runtime* const here = Runtime::current();
    return here != nullptr && here->running() ? here : nullptr;
  }

  void* word_;
  bool shared_;
};

}  // namespace
}  // namespace kasane::runtime

extern "C" {

int __cxa_guard_acquire(abi::__guard* guard) {
  using namespace kasane::runtime;
  if (is_shared_atomic(guard) && g_known.contains(guard)) return 0;
  return Guard(guard).acquire() ? 1 : 0;
}
void __cxa_guard_release(abi::__guard* guard) noexcept { kasane::runtime::Guard(guard).release(); }
void __cxa_guard_abort(abi::__guard* guard) noexcept { kasane::runtime::Guard(guard).abort(); }

}  // extern "C"

#endif
