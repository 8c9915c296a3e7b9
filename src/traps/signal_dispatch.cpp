// SPDX-License-Identifier: Apache-2.0
// The table of ranges and the one handler of SIGSEGV and SIGBUS.
//
// Thread safety: a slot is changed only under the registration lock. The handler enters a slot by counting
// itself in `users`, and reads `live` after that; unregister_range() clears `live`, and reads `users` after
// that. Both are sequentially consistent, so one sees the other.
// Invariants: the fields of a slot are constant while it is live or used.
#include "traps/signal_dispatch.h"

#include <sched.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/call_selector.h"
#include "traps/caught_calls.h"

extern "C" int __sigaction(int, const struct sigaction*, struct sigaction*) noexcept;

namespace kasane::traps {
namespace {

struct Slot {
  std::atomic<bool> live{false};
  std::atomic<std::uint32_t> users{0};
  // Atomic only because the handler compares them before it has entered the slot; it compares them again
  // inside.
  std::atomic<std::uintptr_t> base{0};
  std::atomic<std::size_t> bytes{0};
  FaultFunction function = nullptr;
  void* context = nullptr;
  FaultSignals signals = FaultSignals::segv;

  bool holds(std::uintptr_t address) const {
    // relaxed: `live` orders them. For a slot that is not live the result only leads to a second check.
    return address - base.load(std::memory_order_relaxed) < bytes.load(std::memory_order_relaxed);
  }
};

constexpr std::size_t kSlots = 64;
constinit Slot slots[kSlots];
constinit std::mutex registration;
constinit std::atomic<FaultFallback> fallback{nullptr};
struct sigaction previous_segv;  // what was installed before; written before ours is installed
struct sigaction previous_bus;

// The ucontext of the fault for which this thread runs a range's function; null: it runs none. initial-exec:
// the access must not call the dynamic linker in a handler. A handler stays on its OS thread, so no compiler
// can cache the address across a move.
[[gnu::tls_model("initial-exec")]] constinit thread_local const void* serving = nullptr;

struct AccessKind {
  bool served;  // a load or store that changed access rights can make possible
  bool write;
};

AccessKind access_kind([[maybe_unused]] const void* ucontext) {
#if defined(__x86_64__)
  // The page fault's error code: bit 1 a store, bit 4 an instruction fetch, bit 5 a protection key. No range
  // can cure the last two (the space is never executable), so "true, run again" would never end.
  const auto error = static_cast<const ucontext_t*>(ucontext)->uc_mcontext.gregs[REG_ERR];
  return {.served = (error & 0x30) == 0, .write = (error & 2) != 0};
#else
  // Unknown: a store. Correct, since write access includes read; it costs twins that a load would not have
  // needed.
  return {.served = true, .write = true};
#endif
}

// True only for a page fault: si_code names the origin of the signal, and only then si_addr is the address of
// an access.
bool is_page_fault(int signal, const siginfo_t& info) {
  return signal == SIGSEGV ? info.si_code == SEGV_ACCERR || info.si_code == SEGV_MAPERR
                           : info.si_code == BUS_ADRERR;
}

bool call(Slot& slot, int signal, std::uintptr_t address, bool write, const void* ucontext) {
  // seq_cst, both: see the top of the file (store to users, then load of live, against the reverse in
  // unregister_range).
  slot.users.fetch_add(1, std::memory_order_seq_cst);
  bool answered = false;
  if (slot.live.load(std::memory_order_seq_cst) && slot.holds(address) &&
      (signal == SIGSEGV || slot.signals == FaultSignals::segv_and_bus)) {
    serving = ucontext;
    answered = slot.function(slot.context, reinterpret_cast<void*>(address), write, signal);
    serving = nullptr;
  }
  // release: what the function did with its context comes before unregister_range() returns.
  slot.users.fetch_sub(1, std::memory_order_release);
  return answered;
}

bool serve(int signal, const siginfo_t& info, void* ucontext) {
  if (serving != nullptr || !is_page_fault(signal, info)) return false;
  const AccessKind kind = access_kind(ucontext);
  if (!kind.served) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  for (Slot& slot : slots)
    if (slot.holds(address)) return call(slot, signal, address, kind.write, ucontext);
  return false;
}

void default_fault_action(int signal, siginfo_t* info, void* ucontext) {
  const struct sigaction& previous = signal == SIGSEGV ? previous_segv : previous_bus;
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, ucontext);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  // The default where it was SIG_IGN, too: the kernel does not ignore a fault.
  struct sigaction plain{};
  plain.sa_handler = SIG_DFL;
  raw_sigaction(signal, &plain, nullptr);
  // A process sent the signal: running the instruction again does not raise it.
  if (info->si_code <= 0) ::syscall(SYS_tgkill, ::getpid(), ::syscall(SYS_gettid), signal);
}

void on_signal(int signal, siginfo_t* info, void* ucontext) {
  const int saved = std::exchange(errno, 0);
  const PassedInHandler passed;
  if (!serve(signal, *info, ucontext) && !end_named_copy(ucontext)) {
    // acquire: what its installer prepared for it.
    const FaultFallback chosen = fallback.load(std::memory_order_acquire);
    (chosen ? chosen : default_fault_action)(signal, info, ucontext);
  }
  errno = saved;
}

// Installs our handler unless it is installed: other code may have replaced it since the last registration.
bool install(int signal, struct sigaction& previous) {
  struct sigaction current{};
  if (raw_sigaction(signal, nullptr, &current) != 0) return false;
  if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_signal) return true;
  previous = current;
  return install_own_handler(signal, on_signal);
}

// The slot that holds any byte of [base, base+bytes), or null.
const Slot* overlapping(std::uintptr_t base, std::size_t bytes) {
  for (const Slot& slot : slots)
    // relaxed: under the registration lock.
    if (slot.live.load(std::memory_order_relaxed) &&
        (slot.holds(base) || slot.base.load(std::memory_order_relaxed) - base < bytes))
      return &slot;
  return nullptr;
}

Slot* free_slot() {
  for (Slot& slot : slots)
    if (!slot.live.load(std::memory_order_relaxed)) return &slot;  // relaxed: under the registration lock
  return nullptr;
}

}  // namespace

const void* faulting_context() noexcept { return serving; }

int raw_sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  return ::__sigaction(signal, action, old);
}

Result<void> register_range(const void* base, std::size_t bytes, FaultFunction function, void* context,
                            FaultSignals signals) {
  KASANE_CHECK(bytes != 0 && function != nullptr);
  const auto start = reinterpret_cast<std::uintptr_t>(base);
  std::lock_guard lock(registration);
  if (overlapping(start, bytes))
    return fail(Errc::invalid_argument,
                "faults at " + std::to_string(start) + " are already answered for by another range");
  Slot* slot = free_slot();
  if (!slot) return fail(Errc::limit, "all " + std::to_string(kSlots) + " ranges for faults are taken");
  if (!install(SIGSEGV, previous_segv) || !install(SIGBUS, previous_bus))
    return fail_errno(Errc::internal, "cannot install the handlers of SIGSEGV and SIGBUS");
  slot->function = function;
  slot->context = context;
  slot->signals = signals;
  // relaxed: published by live.
  slot->base.store(start, std::memory_order_relaxed);
  slot->bytes.store(bytes, std::memory_order_relaxed);
  slot->live.store(true, std::memory_order_seq_cst);
  return {};
}

void unregister_range(const void* base) noexcept {
  KASANE_CHECK(serving == nullptr);  // it would wait for itself
  std::lock_guard lock(registration);
  for (Slot& slot : slots) {
    // relaxed: under the registration lock.
    if (!slot.live.load(std::memory_order_relaxed) ||
        slot.base.load(std::memory_order_relaxed) != reinterpret_cast<std::uintptr_t>(base))
      continue;
    // seq_cst: see the top of the file. The load also acquires what the last user did.
    slot.live.store(false, std::memory_order_seq_cst);
    while (slot.users.load(std::memory_order_seq_cst) != 0) ::sched_yield();
    // An empty range: the handler skips it without entering.
    slot.bytes.store(0, std::memory_order_relaxed);
    return;
  }
}

// release: what the caller prepared.
void set_fallback(FaultFallback chosen) noexcept { fallback.store(chosen, std::memory_order_release); }

}  // namespace kasane::traps
