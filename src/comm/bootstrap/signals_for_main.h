// SPDX-License-Identifier: Apache-2.0
// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 to a job are for the rank that runs main. A terminal,
// a batch system or mpirun sends them to each process, so the other ranks, which only serve, take them from
// processes of the job alone: a thread's raise(), another rank's kill(), a rank's child.
//
// Thread safety: any thread; async-signal-safe.
#pragma once

#include <signal.h>
#include <sys/types.h>

namespace kasane::comm {

inline constexpr int kForMain[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
[[nodiscard]] bool for_main(int signal) noexcept;

enum class Sender {
  other,       ///< the terminal's driver, or a process outside of the job
  supervisor,  ///< which ends the rank
  job          ///< this rank or a child of it, another rank of this host, a timer
};
[[nodiscard]] Sender sender_of(const siginfo_t& info) noexcept;

/// The action of a serving rank where the program has set none: the default one if the sender belongs to the
/// job or is its supervisor, else nothing. A handler rather than SIG_IGN, so that programs started from
/// threads begin with the default action.
[[nodiscard]] struct sigaction action_for_main() noexcept;
[[nodiscard]] bool is_action_for_main(const struct sigaction&) noexcept;
/// The handler of action_for_main().
void on_signal_for_main(int signal, siginfo_t* info, void* context);

/// This rank has made a child, which may have sent a signal and ended before sender_of() looks for it. The
/// last 64 are kept.
void note_child(pid_t child) noexcept;

/// The supervisor of this rank; called before the first of its signals may come.
void note_supervisor(pid_t supervisor) noexcept;

}  // namespace kasane::comm
