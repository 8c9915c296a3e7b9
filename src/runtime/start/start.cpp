// SPDX-License-Identifier: Apache-2.0
// The load-time start of a program that links Kasane. crt1.o calls __libc_start_main(main, …); that symbol is found here before libc's, so
// this runs when the dynamic loader has finished and before any constructor of the program.
//
//   KASANE_RANKS set (by kasane run)   fork the ranks (launch.h); each then goes on into libc with a main of ours
//   an MPI launcher's variables        this process is a rank already, made like its peers before (same_image.h)
//   neither                            one rank, this process
//
//   our main: build the Runtime → run the program's main, or serve until it has ended → exit
//
// It is a library of its own (kasane_start), which only the target kasane links: a unit test or a tool that links the runtime's code stays an
// ordinary process.
//
// Thread safety: called once, by the process's only thread.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/bootstrap/start_mark.h"
#include "runtime/crash.h"
#include "runtime/fork_guard.h"
#include "runtime/options.h"
#include "runtime/process_state.h"
#include "runtime/runtime.h"
#include "runtime/start/launch.h"
#include "runtime/start/same_image.h"

namespace kasane::runtime {
namespace {

/// Tells kasane run that this program knows how to become ranks.
[[gnu::used]] constexpr char kMark[] = KASANE_START_MARK_HEAD KASANE_START_MARK_TAIL;

using Main = int (*)(int, char**, char**);

Main g_program_main = nullptr;
std::optional<Launched> g_launched;

/// Says why the job cannot start. On a rank the supervisor prints it, once, with the rank's number.
[[noreturn]] void refuse(const Error& error) {
  std::string line = error.message + "\n";
  const std::string who = process().ranks > 1 ? "kasane: rank " + std::to_string(raw(process().rank)) + ": " : "kasane: ";
  if (process().status == nullptr) line.insert(0, who);
  tell(line.data(), line.size());
  ::_exit(1);
}

Result<Launched> launch() {
  auto options = options_from_environment();
  KASANE_TRY(options);
  if (const auto place = mpi_place(environ); place.launched()) return launch_by_mpi(std::move(*options), place);
  return std::getenv("KASANE_RANKS") != nullptr ? launch_ranks(std::move(*options)) : launch_alone(std::move(*options));
}

void end_job_from_exit() noexcept {
  if (Runtime* runtime = Runtime::current()) runtime->shut_down();
}

constexpr int kRacesFound = 66;   ///< status of a program that ended well, but with data races that --check-races found: ThreadSanitizer's

/// Comes after the destructors of the program's static objects and before those of the shared libraries, which would pull them from under threads that are left.
void end_early(int status, void*) {
  const Runtime* runtime = Runtime::current();
  if (runtime == nullptr) return;
  const bool races = status == 0 && runtime->found_races();
  if (!races && !runtime->left_standing()) return;
  std::fflush(nullptr);
  ::_exit(races ? kRacesFound : status);
}

/// The first constructor of the executable: what is registered here runs when all that was constructed after it has been destroyed.
[[gnu::constructor(101)]] void register_end_early() { ::on_exit(end_early, nullptr); }

/// The program's main, on the stack that the runtime gave it.
int program_main(int argc, char** argv, char** envp) {
  note_main_thread();
  return g_program_main(argc, argv, envp);
}

/// What libc calls as main, in every rank.
int rank_main(int argc, char** argv, char** envp) {
  auto alt_stack = AltStack::create();
  if (!alt_stack) refuse(alt_stack.error());
  if (auto installed = install_crash_handlers(process().rank); !installed) refuse(installed.error());
  install_fork_guard();
  const bool by_mpi = g_launched->job.launcher == comm::Launcher::mpi;
  auto runtime = Runtime::create(g_launched->options, std::move(g_launched->job), g_launched->space_base);
  if (!runtime) refuse(runtime.error());
  // Registered after the program's constructors ran and before its main: exit() comes here before destructors of the program's statics.
  install_exit_check(end_job_from_exit);
  if (by_mpi && process().main_here) let_user_signals_pass(false);
  set_phase(comm::Phase::running);
  int status = 0;
  if (process().main_here) {
    status = (*runtime)->run_main(program_main, argc, argv, envp);
  } else {
    (*runtime)->serve();
  }
  set_phase(comm::Phase::ended);
  if (status == 0 && (*runtime)->found_races()) status = kRacesFound;
  if ((*runtime)->left_standing()) (void)runtime->release();
  return status;
}

}  // namespace

/// Before libc starts: decides what this process is. The supervisor never returns from here.
void start(Main program_main_of_crt) {
  g_program_main = program_main_of_crt;
  auto launched = launch();
  if (!launched) refuse(launched.error());
  g_launched = std::move(*launched);
}

}  // namespace kasane::runtime

using LibcStartMain = int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);

extern "C" [[gnu::visibility("default")]] int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                                                                void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  const auto libc_start_main = reinterpret_cast<LibcStartMain>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  kasane::runtime::start(main);
  return libc_start_main(kasane::runtime::rank_main, argc, argv, init, fini, rtld_fini, stack_end);
}
