// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/shared_process.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/process/signals.h"
#include "traps/caught_calls.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {
constinit std::atomic<SharedProcess*> g_shared_process{nullptr};
constinit std::atomic<pid_t> g_ended_process{0}, g_ended_by{0};  ///< a job whose threads were on all ranks
}  // namespace

SharedProcess::SharedProcess(comm::Transport& transport, bool spread)
    : signal_actions_(transport), process_calls_(transport), random_numbers_(transport), pid_(::getpid()) {
  if (spread) threads_.emplace(transport);
}

SharedProcess* SharedProcess::current() noexcept {
  SharedProcess* const shared = g_shared_process.load(std::memory_order_acquire);  // acquire: its contents
  return shared != nullptr && traps::issue_call(SYS_getpid, {}) == shared->pid_ ? shared : nullptr;
}
void SharedProcess::begin(ThreadContexts& contexts, const cpu_set_t& cpus) noexcept {
  contexts_ = &contexts;
  if (threads_) threads_->begin(contexts, cpus);
  g_shared_process.store(this);
  tell_actions_by([](int signal, const struct sigaction& action) noexcept {
    if (SharedProcess* const shared = current()) shared->tell_signal_action(signal, action);
  });
}
void SharedProcess::end() noexcept {
  if (threads_) {
    g_ended_by.store(::gettid());
    g_ended_process.store(pid_);
  }
  g_shared_process.store(nullptr);
}
void SharedProcess::await_exit() noexcept {
  if (g_ended_process.load() != ::getpid() || g_ended_by.load() == ::gettid()) return;
  for (;;) traps::issue_call(SYS_pause, {});
}

void SharedProcess::tell_signal_action(int signal, const struct sigaction& action) noexcept {
  const ult::RuntimeSection section;
  signal_actions_.tell_all(contexts_->here().io, signal, action);
}

ProcessCalls::Refusal SharedProcess::tell_process_call(ProcessCall& call) noexcept {
  const ult::RuntimeSection section;
  return process_calls_.tell_all(contexts_->here().io, call);
}

std::uint64_t SharedProcess::draw(const RandomCall& call) noexcept {
  const ult::RuntimeSection section;
  return random_numbers_.draw(contexts_->here().io, call);
}

}  // namespace kasane::runtime
