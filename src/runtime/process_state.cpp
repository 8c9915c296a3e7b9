// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_state.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/process.h"
#include "runtime/crash_text.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

Process g_process;
std::atomic<comm::Phase> g_phase{comm::Phase::starting};
void (*g_end_job)() noexcept = nullptr;
SlotId g_main_slot = kNoSlot;
const std::byte* g_main_stack = nullptr;

void exit_early(int code) {
  if (g_process.status != nullptr) {
    // relaxed: the supervisor reads it after this process has ended.
    g_process.status->exit_argument.store(code, std::memory_order_relaxed);
  } else {
    CrashText text;
    text.add("kasane: rank ")
        .decimal(raw(g_process.rank))
        .add(" called exit(")
        .signed_decimal(code)
        .add(") while the job was running\n");
    tell(text.data(), text.size());
  }
  set_phase(comm::Phase::leaving);
  std::fflush(nullptr);
  // exit() does not continue: destructors of the program's static objects would run while its threads still
  // run.
  ::_exit((code & 0xff) != 0 ? code : 1);
}

void at_exit(int code, void*) {
  if (g_process.rank == kNoRank || phase() != comm::Phase::running) return;
  const SlotId self = ult::Pool::self();
  const bool from_main = g_process.main_here && (self == kNoSlot || self == g_main_slot);
  if (!from_main) exit_early(code);
  set_phase(comm::Phase::ended);
  if (g_end_job != nullptr) g_end_job();
}

}  // namespace

void set_process(const Process& p) noexcept { g_process = p; }

void note_joined(Rank rank, std::uint32_t ranks, bool main_in_every_rank, const std::byte* space_base,
                 std::size_t space_bytes) noexcept {
  set_process_rank(rank);
  g_process = {.rank = rank,
               .ranks = ranks,
               .main_here = raw(rank) == 0 || main_in_every_rank,
               .status = g_process.status,
               .threads = g_process.threads,
               .space_base = space_base,
               .space_bytes = space_bytes};
}

const Process& process() noexcept { return g_process; }

void forget_process() noexcept { g_process = Process{}; }

bool in_space(const void* p) noexcept {
  return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(g_process.space_base) <
         g_process.space_bytes;
}

void set_phase(comm::Phase phase) noexcept {
  // release: the text on the page is complete before the phase that makes the supervisor read it.
  g_phase.store(phase, std::memory_order_release);
  if (g_process.status != nullptr) g_process.status->phase.store(phase, std::memory_order_release);
}

comm::Phase phase() noexcept { return g_phase.load(std::memory_order_acquire); }

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
  set_phase(comm::Phase::gave_up);
  ::_exit(1);
}

void install_exit_check(void (*end_job)() noexcept) {
  g_end_job = end_job;
  ::on_exit(at_exit, nullptr);
}

void note_main_thread() noexcept {
  g_main_slot = ult::Pool::self();
  g_main_stack = static_cast<const std::byte*>(__builtin_frame_address(0));
}

const std::byte* main_stack() noexcept { return g_main_stack; }

}  // namespace kasane::runtime
