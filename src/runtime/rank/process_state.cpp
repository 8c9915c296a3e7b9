// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/process_state.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "base/process.h"
#include "runtime/rank/crash_text.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

Process g_process;
pid_t g_pid = 0;  // whose process that is
std::atomic<diagnostics::Phase> g_phase{diagnostics::Phase::starting};
const std::byte* g_main_stack = nullptr;
pthread_t g_main_id = 0;  // no thread's
constinit Runtime* g_runtime_of_parent = nullptr;

/// A rank that does not run main ends the job here: rank 0, where exit() is orderly, cannot be told.
void exit_early(int code) {
  const bool supervised = g_process.status != nullptr;
  if (!supervised) {
    CrashText text;
    text.add("kasane: rank ")
        .decimal(raw(g_process.rank))
        .add(" called exit(")
        .signed_decimal(code)
        .add(") while the job was running\n");
    tell(text.data(), text.size());
  }
  note_end_of_process();
  std::fflush(nullptr);
  // exit() does not continue: destructors of the program's static objects would run while its threads run.
  // Without a supervisor the launcher has to take it for a failure, or it would wait for the other ranks.
  ::_exit(supervised || (code & 0xff) != 0 ? code : 1);
}

void at_exit(int code, void*) {
  if (g_process.rank == kNoRank || phase() != diagnostics::Phase::running) return;
  exit_early(code);
}

}  // namespace

void set_process(const Process& p) noexcept {
  g_process = p;
  g_pid = ::getpid();
}

void note_joined(Rank rank, std::uint32_t ranks, bool main_in_every_rank, const std::byte* space_base,
                 std::size_t space_bytes) noexcept {
  set_process_rank(rank);
  set_process({.rank = rank,
               .ranks = ranks,
               .main_here = raw(rank) == 0 || main_in_every_rank,
               .status = g_process.status,
               .threads = g_process.threads,
               .space_base = space_base,
               .space_bytes = space_bytes});
}

const Process& process() noexcept { return g_process; }

void forget_process() noexcept { g_process = Process{}; }

Runtime* runtime_of_parent() noexcept { return g_runtime_of_parent; }
void note_runtime_of_parent(Runtime& runtime) noexcept { g_runtime_of_parent = &runtime; }

bool in_space(const void* p) noexcept {
  return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(g_process.space_base) <
         g_process.space_bytes;
}

void set_phase(diagnostics::Phase phase) noexcept {
  // release: the text on the page is complete before the phase that makes the supervisor read it.
  g_phase.store(phase, std::memory_order_release);
  if (g_process.status != nullptr) g_process.status->phase.store(phase, std::memory_order_release);
}

diagnostics::Phase phase() noexcept { return g_phase.load(std::memory_order_acquire); }

void tell(const char* text, std::size_t bytes) noexcept {
  if (g_process.status != nullptr) {
    g_process.status->append({text, bytes});
    return;
  }
  [[maybe_unused]] const auto n = ::write(2, text, bytes);
}

void give_up(const Error& error) noexcept {
  CrashText text;
  if (process().status == nullptr) text.add("kasane: ");
  text.add("rank ").decimal(raw(process().rank)).add(": ").add(error.message.c_str()).add("\n");
  tell(text.data(), text.size());
  set_phase(diagnostics::Phase::gave_up);
  ::_exit(1);
}

void note_end_of_process() noexcept {
  // the child of vfork() or of a bare clone() runs on its parent's memory, or on a copy of it
  if (g_process.rank == kNoRank || phase() != diagnostics::Phase::running || ::getpid() != g_pid) return;
  set_phase(diagnostics::Phase::exited);
}

void install_exit_check() { ::on_exit(at_exit, nullptr); }

void note_main_thread() noexcept {
  g_main_stack = static_cast<const std::byte*>(__builtin_frame_address(0));
  g_main_id = ::pthread_self();
}

bool is_main_thread(pthread_t thread) noexcept { return thread == g_main_id; }

const std::byte* main_stack() noexcept { return g_main_stack; }

}  // namespace kasane::runtime
