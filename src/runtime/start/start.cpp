// SPDX-License-Identifier: Apache-2.0
// The load-time start of a program that links Kasane, called by the part of it that lies in the executable
// (start.h).
//
//   KASANE_RANKS set (by kasane run)   fork the ranks (launch.h), before the constructors of all libraries,
//                                      whose threads each rank then has
//   an MPI launcher's variables        this process is a rank already, made like its peers (same_image.h)
//   neither                            one rank, this process
//
//   our main: create the Runtime → run the program's main, or serve until it has ended → exit
//
// Code that runs in .preinit_array depends on no constructor, and libc has not read the environment yet.
//
// Thread safety: the process's first thread calls kasane_start_process and kasane_start_constructors.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/environment.h"
#include "base/standard_descriptors.h"
#include "comm/mpi/place.h"
#include "runtime/crash.h"
#include "runtime/fork_guard.h"
#include "runtime/options.h"
#include "runtime/process_state.h"
#include "runtime/runtime.h"
#include "runtime/signals.h"
#include "runtime/start/launch.h"
#include "runtime/start/same_image.h"
#include "runtime/start/start.h"

namespace kasane::runtime {
namespace {

using Main = int (*)(int, char**, char**);

Main g_program_main = nullptr;
std::optional<Launched> g_launched;

/// Reports why the job cannot start. For a rank the supervisor prints it, once, with the rank's number.
[[noreturn]] void refuse(const Error& error) {
  std::string line = error.message + "\n";
  const std::string who =
      process().ranks > 1 ? "kasane: rank " + std::to_string(raw(process().rank)) + ": " : "kasane: ";
  if (process().status == nullptr) line.insert(0, who);
  tell(line.data(), line.size());
  ::_exit(1);
}

Result<Launched> launch() {
  auto options = options_from_environment();
  KASANE_TRY(options);
  const auto place = mpi_place(environ);
  if (!place.launched() || place.rank == Rank{0}) {  // once a job: ranks of our own are not forked yet
    const std::string unknown = unknown_variables_text(*options);
    tell(unknown.data(), unknown.size());
  }
  if (place.launched()) return launch_by_mpi(std::move(*options), place);
  if (variable("KASANE_RANKS") != nullptr) return launch_ranks(std::move(*options));
  KASANE_TRY(comm::mpi::refuse_unjoined_tasks(environ));
  return launch_alone(std::move(*options));
}

void end_job_from_exit() noexcept {
  if (Runtime* runtime = Runtime::current()) runtime->shut_down();
}

/// status of a program that succeeded, but with data races that --check races found; as ThreadSanitizer's
constexpr int kRacesFound = 66;

/// Runs after the destructors of the program's static objects and before those of the shared libraries, whose
/// objects remaining threads still use.
void end_early(int status, void*) {
  const Runtime* runtime = Runtime::current();
  if (runtime == nullptr) return;
  const bool races = status == 0 && runtime->found_races();
  if (!races && !runtime->threads_remain()) return;
  std::fflush(nullptr);
  ::_exit(races ? kRacesFound : status);
}

/// The program's main, on the stack that the runtime gave it.
int program_main(int argc, char** argv, char** envp) {
  note_main_thread();
  return g_program_main(argc, argv, envp);
}

/// libc calls it as main, in every rank.
int rank_main(int argc, char** argv, char** envp) {
  let_faults_through();
  auto alt_stack = AltStack::create();
  if (!alt_stack) refuse(alt_stack.error());
  if (auto installed = install_crash_handlers(process().rank); !installed) refuse(installed.error());
  install_fork_guard();
  const bool by_mpi = g_launched->job.launcher == comm::Launcher::mpi;
  auto runtime = Runtime::create(g_launched->options, std::move(g_launched->job), g_launched->space_base);
  if (!runtime) refuse(runtime.error());
  // Registered after the program's constructors ran and before its main: exit() comes here before destructors
  // of the program's statics.
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
  if ((*runtime)->threads_remain()) (void)runtime->release();
  return status;
}

/// Determines what this process is. The supervisor does not return from here.
void become_launched() {
  kasane::open_standard_descriptors();
  auto launched = launch();
  if (!launched) refuse(launched.error());
  g_launched = std::move(*launched);
}

}  // namespace
}  // namespace kasane::runtime

using namespace kasane::runtime;

// No canary: the value changes meanwhile.
[[gnu::no_stack_protector]] void kasane_start_process(int, char** argv, char** environment) noexcept {
  become_same_image(argv, environment);
  if (environ == nullptr) environ = environment;  // libc's own constructor sets it to the same value later
  become_launched();
}

void kasane_start_constructors() noexcept {
  ::on_exit(end_early, nullptr);  // runs after the destructors of all that is constructed from here on
}

int kasane_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                      void* stack_end) {
  using LibcStartMain = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto libc_start_main = reinterpret_cast<LibcStartMain>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  if (!g_launched) become_launched();  // under a sanitizer
  g_program_main = main;
  // Programs that a rank starts are jobs of one rank. Without this, inside an mpirun they would act as its
  // ranks.
  if (g_launched->job.launcher != kasane::comm::Launcher::alone) ::setenv("KASANE_RANKS", "1", 1);
  return libc_start_main(rank_main, argc, argv, init, fini, rtld_fini, stack_end);
}
