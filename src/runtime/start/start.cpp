// SPDX-License-Identifier: Apache-2.0
// The load-time start of a program that links Kasane, called by the part of it that lies in the executable
// (start.h).
//
//   KASANE_RANKS set (by kasane run)   fork the ranks (launch.h), before the constructors of all libraries,
//                                      whose threads each rank then has
//   an MPI launcher's variables        this process is a rank already, made like its peers (same_image.h)
//   neither                            one rank, this process
//
//   --globals-of names libraries       they become parts of the program (program_libraries.h)
//
//   our main   creates the Runtime
//              on a rank that runs main: constructs the program → main → exit(): functions of atexit(),
//                destructors of the program, the end of the job, destructors of libraries
//              on other ranks: serves until main has ended → exit()
//
// Where the variables are each rank's own (--globals private, or none in V), all ranks construct the
// program.
//
// Code that runs in .preinit_array depends on no constructor, and libc has not read the environment yet.
//
// Thread safety: the process's first thread calls kasane_start_process.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/call_selector.h"
#include "base/environment.h"
#include "base/standard_descriptors.h"
#include "comm/mpi/place.h"
#include "runtime/api/thread_end.h"
#include "runtime/language/library_calls.h"
#include "runtime/process/forks.h"
#include "runtime/process/output.h"
#include "runtime/process/own_descriptors.h"
#include "runtime/process/signals.h"
#include "runtime/process/static_results.h"
#include "runtime/rank/options.h"
#include "runtime/rank/own_addresses.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/program_objects.h"
#include "runtime/rank/runtime.h"
#include "runtime/rank/symbols.h"
#include "runtime/report/crash.h"
#include "runtime/report/own_thread_locals.h"
#include "runtime/start/launch.h"
#include "runtime/start/program_image.h"
#include "runtime/start/program_libraries.h"
#include "runtime/start/same_image.h"
#include "runtime/start/start.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {

using Main = int (*)(int, char**, char**);

Main g_program_main = nullptr;
bool g_inline_atomics = false;  ///< of a part of the executable at least
std::optional<Launched> g_launched;
constinit std::vector<Image> g_loaded_at_start;      ///< where --globals-of is given
constinit std::optional<mem::ViewPart> g_preloaded;  ///< an installed program's start: its variables

/// Reports why the job cannot start: with status 2 where what it was told is wrong, else 1. For a rank the
/// supervisor prints it, once, with the rank's number.
[[noreturn]] void refuse(const Error& error) {
  std::string line = error.message + "\n";
  const std::string who =
      process().ranks > 1 ? "kasane: rank " + std::to_string(raw(process().rank)) + ": " : "kasane: ";
  if (process().status == nullptr) line.insert(0, who);
  tell(line.data(), line.size());
  ::_exit(error.code == Errc::invalid_argument ? 2 : 1);
}

/// The libraries that --globals-of names become the program's; those of --code-of are noted.
Result<void> take_named_libraries(const Options& o) {
  if (!o.code_of.empty()) {
    auto computing = computing_libraries(o.code_of, loaded_images());
    KASANE_TRY(computing);
    set_computing_images(std::move(*computing));
  }
  if (o.globals_of.empty()) return {};
#if defined(KASANE_SANITIZER_ADDRESS) || defined(KASANE_SANITIZER_THREAD)
  return fail(Errc::unsupported,
              "--globals-of (KASANE_GLOBALS_OF): with a sanitizer each rank has variables of its own");
#endif
  if (!o.globals_shared || o.main_in_every_rank)
    return fail(Errc::invalid_argument, std::string("--globals-of (KASANE_GLOBALS_OF): with ") +
                                            (o.main_in_every_rank ? "--main all" : "--globals private") +
                                            " each rank has variables of its own");
  g_loaded_at_start = loaded_images();
  auto libraries = choose_libraries(o.globals_of, g_loaded_at_start);
  KASANE_TRY(libraries);
  take_libraries(std::move(*libraries));
  return {};
}

Result<Launched> launch() {
  auto options = options_from_environment();
  KASANE_TRY(options);
  auto place = mpi_place(environ);
  place.agent = comm::mpi::take_agent(place);
  if (!place.launched() || place.rank == Rank{0}) {  // once a job: ranks of our own are not forked yet
    const std::string unknown = unknown_variables_text(*options);
    tell(unknown.data(), unknown.size());
  }
  KASANE_TRY(take_named_libraries(*options));
  if (place.launched()) return launch_by_mpi(std::move(*options), place);
  if (variable("KASANE_RANKS") != nullptr) return launch_ranks(std::move(*options));
  KASANE_TRY(comm::mpi::refuse_unjoined_tasks(environ));
  return launch_alone(std::move(*options));
}

/// status of a program that succeeded, but with data races that --check races found; as ThreadSanitizer's
constexpr int kRacesFound = 66;

/// This rank has constructed the program, and destroys it.
bool g_constructed = false;

int status_of_job(const Runtime& runtime, int status) {
  if (status != 0) return status;
  if (runtime.found_races()) return kRacesFound;
  return runtime.lost_trace() || !output_is_written() ? 1 : 0;
}

/// Runs after the destructors of the program's static objects, which may use global memory, and before those
/// of the shared libraries, whose objects remaining threads still use.
void end_job(int status, void*) {
  if (process().rank == kNoRank) return;  // a child of fork()
  if (g_constructed) destroy_program();
  Runtime* const runtime = Runtime::current();
  if (runtime == nullptr) return;
  const ult::RuntimeSection section;
  set_phase(diagnostics::Phase::ended);
  runtime->shut_down();
  const int end = status_of_job(*runtime, status);
  if (end == status && !runtime->threads_remain()) return;
  std::fflush(nullptr);
  ::_exit(end);
}

void construct(int argc, char** argv, char** envp) {
  g_constructed = true;
  leave_common_heap(Runtime::current()->ranks());  // what the start has freed
  construct_program(argc, argv, envp);
}

/// Copies the program's arguments to `to`, which has arguments_bytes(): global memory, as threads on other
/// ranks may read them.
char** copy_arguments(int argc, char** argv, void* to) {
  auto** const copy = static_cast<char**>(to);
  char* text = reinterpret_cast<char*>(copy + argc + 1);
  for (int i = 0; i < argc; ++i) {
    copy[i] = text;
    text = ::stpcpy(text, argv[i]) + 1;
  }
  copy[argc] = nullptr;
  return copy;
}
std::size_t arguments_bytes(int argc, char** argv) {
  std::size_t bytes = static_cast<std::size_t>(argc + 1) * sizeof(char*);
  for (int i = 0; i < argc; ++i) bytes += std::strlen(argv[i]) + 1;
  return bytes;
}

/// The program from its constructors on, on the stack that the runtime gave it.
int program_main(int argc, char** argv, char** envp) {
  note_main_thread();
  if (argv[0] != nullptr) argv = copy_arguments(argc, argv, __builtin_alloca(arguments_bytes(argc, argv)));
  construct(argc, argv, envp);
  std::exit(run_program(g_program_main, argc, argv, envp));
}

/// Once a job: what is not shared although the options ask for it.
void tell_private_variables(const Runtime& runtime, const ProgramVariables& found) {
  const Options& o = runtime.options();
  if (runtime.rank() != Rank{0} || runtime.ranks() == 1 || !o.globals_shared || o.main_in_every_rank) return;
  std::string text = found.refusal;
  if (!text.empty()) text.insert(0, "the program's variables are each rank's own: ");
  if (text.empty()) text = private_variables_text(found);
  if (text.empty() || o.log_level == "error" || o.log_level == "off") return;
  std::fputs(("kasane: warning: " + text + "\n").c_str(), stderr);
}

/// Once a job: the parts of the program whose atomics hold within a rank alone.
void tell_inline_atomics(const Runtime& runtime) {
  if (runtime.ranks() == 1 || raw(runtime.rank()) != 0) return;
  std::string parts = g_inline_atomics ? "part of this program" : "";
  const std::vector<Image> images = program_images();
  for (const Image& library : std::span(images).subspan(1)) {
    if (section_of(MappedFile(library.file), "kasane_atomics").find('i') == std::string_view::npos) continue;
    parts += parts.empty() ? "part of " : " and of ";
    parts += library.name();
  }
  if (parts.empty()) return;
  std::fputs(
      ("kasane: " + parts +
       " was compiled without -fno-inline-atomics, so its std::atomic and shared_ptr hold within a rank "
       "alone (docs/guide/programming.md, Atomics)\n")
          .c_str(),
      stderr);
}

/// The program's variables, and those of the libraries that --globals-of names.
Result<ProgramVariables> variables_to_share(const Options& options) {
  ProgramVariables variables = variables_of_program(g_preloaded);
  if (g_preloaded && !variables.refusal.empty())
    return fail(Errc::unsupported,
                "--preload: the program's variables cannot be shared: " + variables.refusal);
  if (options.globals_of.empty() || variables.refusal.empty()) return variables;
  return fail(Errc::unsupported,
              "--globals-of (KASANE_GLOBALS_OF): not even the program's own variables can be "
              "shared: " +
                  variables.refusal);
}

Runtime& make_runtime() {
  const auto variables = variables_to_share(g_launched->options);
  if (!variables) refuse(variables.error());
  auto created = Runtime::create(g_launched->options, std::move(g_launched->job), g_launched->space_base,
                                 variables->shared);
  if (!created) refuse(created.error());
  if (auto checked = check_later_libraries(g_loaded_at_start); !checked) refuse(checked.error());
  Runtime& runtime = *created->release();  // until the process ends
  tell_private_variables(runtime, *variables);
  tell_inline_atomics(runtime);
  return runtime;
}

/// libc calls it as main, in every rank.
int rank_main(int argc, char** argv, char** envp) {
  let_faults_through();
  auto alt_stack = AltStack::create();
  if (!alt_stack) refuse(alt_stack.error());
  if (auto installed = install_crash_handlers(process().rank); !installed) refuse(installed.error());
  install_fork_guard();
  ::on_exit(end_job, nullptr);
  const bool by_mpi = g_launched->job.launcher == comm::Launcher::mpi;
  Runtime& runtime = []() -> Runtime& {
    const PassedCalls passed;
    return make_runtime();
  }();
  if (by_mpi && process().main_here) let_user_signals_pass(false);
  set_phase(diagnostics::Phase::running);
  if (process().main_here) runtime.run_main(program_main, argc, argv, envp);
  if (!runtime.shares_variables()) construct(argc, argv, envp);
  install_exit_check();
  runtime.serve();
  set_phase(diagnostics::Phase::ended);
  return 0;
}

/// For __libc_start_main, which would construct the program: rank_main does it.
void construct_later() {}

/// Determines what this process is. The supervisor does not return from here.
void become_launched() {
  kasane::open_standard_descriptors();
  const PassedCalls passed;
  own_descriptors_of_libraries();
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
  if (process().ranks > 1) take_own_thread_locals(process().rank);  // last: errno has another address then
}

void kasane_start_built_with(const char* begin, const char* end) noexcept {
  g_inline_atomics = std::find(begin, end, 'i') != end;
}

void kasane_start_preloaded(void* variables, unsigned long bytes) noexcept {
  g_preloaded = {.at = static_cast<std::byte*>(variables), .bytes = bytes, .filled = bytes};
  note_libraries_of_program(loaded_images());
  refer_to_originals();
}

void kasane_start_static_results(void* results) noexcept {
  leave_results_in(*static_cast<StaticResults*>(results));
}

void kasane_start_library_words(void* words) noexcept {
  share_library_words(*static_cast<LibraryWords*>(words));
}

int kasane_start_main(Main main, int argc, char** argv, void (*)(), void (*fini)(), void (*rtld_fini)(),
                      void* stack_end) {
  using LibcStartMain = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto libc_start_main = reinterpret_cast<LibcStartMain>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  if (!g_launched) become_launched();  // under a sanitizer
  g_program_main = main;
  take_destructors_of_program();
  // Programs that a rank starts are jobs of one rank. Without this, inside an mpirun they would act as its
  // ranks.
  if (g_launched->job.launcher != kasane::comm::Launcher::alone) ::setenv("KASANE_RANKS", "1", 1);
  return libc_start_main(rank_main, argc, argv, construct_later, fini, rtld_fini, stack_end);
}
