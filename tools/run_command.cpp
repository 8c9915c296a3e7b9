// SPDX-License-Identifier: Apache-2.0
// kasane run: turns the flags into KASANE_* variables and becomes the program, whose load-time start
// (src/runtime/start) then forks the ranks. With --transport mpi it becomes mpirun instead, which starts each
// rank (tools/mpirun.h); likewise for a program that attaches (src/runtime/attach).
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "base/helper_folder.h"
#include "base/options_cli.h"
#include "base/text_table.h"
#include "commands.h"
#include "execute.h"
#include "hosts.h"
#include "mpirun.h"
#include "program_file.h"
#include "runtime/language/malloc/hooks.h"
#include "runtime/rank/options.h"
#include "runtime/start/preloaded.h"
#include "spread.h"
#include "usage.h"

namespace kasane::tools {
namespace {

struct Run {
  runtime::Options options;
  OptionTable table = runtime::option_table(options);
  std::vector<std::string> command;
  bool attach = false;
  std::string preload;  ///< empty: no; examined, or unchecked
  std::string hosts;    ///< empty: this one
  std::string agent = "ssh -T -x -o BatchMode=yes -o ConnectTimeout=20 %h";
  const CLI::Option* ranks_given = nullptr;
};

/// Puts `word` before what the variable has, which is a list with colons.
void prepend(const char* variable, const std::string& word) {
  const char* others = std::getenv(variable);
  ::setenv(variable, (others == nullptr || *others == '\0' ? word : word + ":" + others).c_str(), 1);
}

/// Preloads a library, before others. The loader splits LD_PRELOAD at spaces and colons, and LD_LIBRARY_PATH
/// at colons and semicolons. False: its folder has one of these.
bool preload(const std::string& library, const char* option) {
  const std::size_t slash = library.rfind('/');
  const std::string folder = library.substr(0, slash);
  if (folder.find_first_of(":;$") != std::string::npos) {
    std::fprintf(stderr,
                 "kasane: %s: the loader cannot preload %s, since a colon, a semicolon or a $ in its path "
                 "means something else there: move the installation to a path without one\n",
                 option, library.c_str());
    return false;
  }
  const bool spaces = folder.find_first_of(" \t\n") != std::string::npos;
  if (spaces) prepend("LD_LIBRARY_PATH", folder);
  prepend("LD_PRELOAD", spaces ? library.substr(slash + 1) : library);
  return true;
}

/// --malloc space: the library by which the program's malloc takes global memory.
bool preload_malloc() {
  return preload(find_helper(runtime::kMallocLibrary), "--malloc space (KASANE_MALLOC)");
}

/// libkasane.so is preloaded into a program that does not need it: that does not make it a program of
/// Kasane's.
bool preloads_into_another(const std::string& program) {
  const char* const preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr || std::strstr(preloaded, "libkasane.so") == nullptr) return false;
  const std::string before = preloaded;
  ::unsetenv("LD_PRELOAD");
  const bool needs_it = libraries_of(program).kasane;
  ::setenv("LD_PRELOAD", before.c_str(), 1);
  return !needs_it;
}

int refuse_preload(const std::string& program, const std::string& why) {
  std::fprintf(stderr, "kasane: --preload: %s %s\n", program.c_str(), why.c_str());
  return 2;
}

/// --preload: becomes the program with the libraries that make it a job (src/runtime/entry/preload.cpp).
int run_preloaded(Run& state) {
  const std::string& program = state.command[0];
  if (state.preload != "examined" && state.preload != "unchecked")
    return refuse_preload("=" + state.preload, "is neither --preload nor --preload=unchecked");
  if (state.options.main_in_every_rank || state.options.session.transport == "mpi" || state.attach)
    return refuse_preload(program, "cannot be started with --main all, --transport mpi or --attach");
  if (built_with(program))
    return refuse_preload(program, "is built with Kasane: start it by --threads spread, without --preload");
  const Spread spread = may_spread(program);
  if (spread.file.empty()) return execute(std::move(state.command));
  if (!spread.refusal.empty())
    return refuse_preload(program, "cannot run on several ranks: " + spread.refusal);
  const bool once = spread.examined.empty() && state.preload != "unchecked";
  ::setenv("KASANE_RANKS", once ? "1" : std::to_string(state.options.ranks).c_str(), 1);
  if (once) {
    std::fprintf(stderr,
                 "kasane: note: %s runs once, as it is: this program, or this version, is none of those that "
                 "were examined (%s). Its threads may have a race that x86 hides, and on several ranks that "
                 "gives wrong bytes without a message; --preload=unchecked takes the risk "
                 "(docs/guide/threads.md)\n",
                 program.c_str(), spread.all_examined.c_str());
    return execute(std::move(state.command));
  }
  // Its variables, what it allocates and its threads are everyone's, as in one process.
  for (const auto& [name, value] : {std::pair{"KASANE_THREADS", "spread"},
                                    {"KASANE_MALLOC", "space"},
                                    {"KASANE_NEW", "space"},
                                    {"KASANE_GLOBALS", "shared"}})
    ::setenv(name, value, 1);
  // No call writes to the program's variables.
  ::setenv("LD_BIND_NOW", "1", 1);
  const std::string start = find_helper(runtime::kPreloadLibrary);
  if (start.empty()) return refuse_preload(program, "needs libkasane_preload.so, and this build has none");
  const std::string runtime = start.substr(0, start.rfind('/', start.rfind('/') - 1) + 1) + KASANE_SONAME;
  const bool done = preload(runtime, "--preload") &&
                    preload(find_helper(runtime::kMallocLibrary), "--preload") && preload(start, "--preload");
  return done ? execute(std::move(state.command)) : 2;
}

/// --hosts: the ranks of several hosts, which an agent on each starts (hosts.h).
int run_hosts(Run& state) {
  const std::string& program = state.command[0];
  const auto refuse = [](const std::string& why) {
    std::fprintf(stderr, "kasane: --hosts (KASANE_HOSTS): %s\n", why.c_str());
    return 2;
  };
  if (state.attach || state.options.session.transport == "mpi")
    return refuse(
        "there is no MPI between ranks that it starts: start them by mpirun (docs/guide/cluster.md)");
  if (!may_be_kasane_program(program))
    return refuse(program + " is not linked with Kasane (CMake target kasane::kasane)");
  const bool ranks_given = state.ranks_given->count() != 0 || std::getenv("KASANE_RANKS") != nullptr;
  const auto hosts = hosts_of(state.hosts, ranks_given ? state.options.ranks : 0);
  if (!hosts) {
    std::fprintf(stderr, "kasane: %s\n", hosts.error().message.c_str());
    return 2;
  }
  return run_on_hosts(state.options, *hosts, state.agent, std::move(state.command));
}

/// A name that the PATH lacks may be one of Kasane's applications (docs/guide/apps.md).
void name_application(std::string& name) {
  if (!find_program(name).empty()) return;
  if (std::string path = find_helper("apps/" + name); !path.empty()) name = std::move(path);
}

int run(Run& state) {
  // Refused here too, so that the message does not depend on the program.
  if (auto read = state.table.read_environment(); !read) {
    std::fprintf(stderr, "kasane: %s\n", read.error().message.c_str());
    return 2;
  }
  state.table.write_environment();
  name_application(state.command[0]);
  if (!state.preload.empty()) return run_preloaded(state);
  if (state.options.malloc_in_space && !preload_malloc()) return 2;
  // Calls of such a library do not write to its memory then (src/runtime/start/program_libraries.h).
  if (!state.options.globals_of.empty()) ::setenv("LD_BIND_NOW", "1", 0);
  if (!state.hosts.empty()) return run_hosts(state);
  ::unsetenv("KASANE_AGENT");  // for whoever uses --hosts at times
  const bool linked = may_be_kasane_program(state.command[0]);
  if (!linked && preloads_into_another(state.command[0])) {
    std::fprintf(
        stderr,
        "kasane: LD_PRELOAD names libkasane.so, but %s was not built with Kasane, and preloading does "
        "not make it such a program. Without LD_PRELOAD, kasane run --preload -n %llu -- %s runs a program "
        "as it is installed (docs/guide/threads.md); others are built with the flags of pkg-config --cflags "
        "--libs kasane, or CMake's kasane::kasane (docs/guide/programming.md)\n",
        state.command[0].c_str(), static_cast<unsigned long long>(state.options.ranks),
        state.command[0].c_str());
    return 2;
  }
  if (linked && state.options.session.transport == "mpi")
    return run_by_mpi(state.options, std::move(state.command));
  const Libraries libraries = linked && !state.attach ? Libraries{} : libraries_of(state.command[0]);
  // Without an MPI it is one rank.
  if (state.attach || (libraries.kasane && (libraries.mpi != "auto" || state.options.ranks > 1)))
    return run_attaching(state.options, libraries.mpi, std::move(state.command));
  // The load-time start reads only this variable, so it is set even to the default.
  ::setenv("KASANE_RANKS", std::to_string(state.options.ranks).c_str(), 1);
  if (state.options.ranks > 1 && !linked) {
    std::fprintf(
        stderr,
        "kasane: note: %s is not linked with Kasane (CMake target kasane::kasane); it runs once, as it is\n",
        state.command[0].c_str());
  }
  return execute(std::move(state.command));
}

std::string counters_list() {
  std::string text = "\n## Counters\n\n" +
                     wrapped("", "",
                             "What `--stats` prints, those that are not 0, and `kasane::counter(name)` "
                             "gives. bytes_: bytes; ns_: nanoseconds, summed over a rank's threads "
                             "(`--stats` calls them time_).") +
                     "\n";
#define X(name, help) text += wrapped("- ", "  ", "`" #name "`: " help);
  KASANE_COUNTERS(X)
#undef X
  return text;
}

std::string options_page(const OptionTable& table) {
  const std::string paragraphs[] = {
      "# Options",
      "Made by `kasane run --help-markdown` from the table that the runtime reads (`make docs`; a test "
      "compares them).",
      "Each option of `kasane run` has a variable, which works without `kasane run`, too; a flag wins. "
      "Options that are on or off (`--stats`) have `--no-…` as well, and 1 and 0 in "
      "the variable. Lists, `--check races,heap` and `--debug seed=3,hosts=2`, have the items below them, "
      "and the same text in the variable (`KASANE_CHECK=races,heap`).",
      "SIZE: 4096, 64K, 512M, 1T, powers of 1024. TIME: 20us, 1.5s, 2min. A value that cannot be used is "
      "refused before the program starts; of a variable `KASANE_…` that is not "
      "here the job warns.",
      "`--preload` ([threads.md](threads.md#installed-programs)) and `--attach` ([attach.md](attach.md)) say "
      "how `kasane run` starts a program, and have no variables; `--hosts` and `--agent` "
      "([cluster.md](cluster.md#several-hosts)) say where, and have `KASANE_HOSTS` and `KASANE_AGENT`."};
  std::string text;
  for (const std::string& paragraph : paragraphs) text += wrapped("", "", paragraph) + "\n";
  return text + table.markdown() + counters_list();
}

}  // namespace

Command make_run(CLI::App& kasane) {
  auto state = std::make_shared<Run>();
  CLI::App* app =
      kasane.add_subcommand("run", "Start a program over several ranks of this host and supervise it");
  set_usage(*app, "kasane run [OPTIONS] [--] PROGRAM [ARGUMENTS...]");
  app->footer(
      "main runs in rank 0; the other ranks serve. The exit status is main's. A rank that dies ends the job: "
      "128 + signal, or its exit code.\n"
      "With --transport mpi the ranks are started by mpirun, which then speaks for the job and has its own "
      "ways of ending it.\n"
      "Each option can be given by its variable as well; a flag wins.");
  add_flags(*app, state->table);
  app->add_flag_callback(
         "--help-markdown",
         [state] {
           std::fputs(options_page(state->table).c_str(), stdout);
           throw CLI::Success();
         },
         "Print all options and variables as docs/guide/options.md has them, and exit")
      ->group("");
  app->add_flag("--attach", state->attach,
                "Start a program that calls kasane_attach, by the mpirun of its MPI; without an MPI, on this "
                "host alone. Implied where the program needs libkasane.so, and not Kasane's start.");
  app->add_flag("--preload{examined}", state->preload,
                "Start a program as it is installed, on several ranks: its threads spread (--threads), and "
                "share its variables and what it allocates. Programs that were not examined for this run "
                "once, unless --preload=unchecked says otherwise.");
  app->add_option("--hosts", state->hosts,
                  "Start the ranks on these hosts, host:2,other:2 (a number of ranks each; else -n in equal "
                  "parts, else one), by ssh and without an MPI; main runs on the first")
      ->envname("KASANE_HOSTS");
  app->add_option("--agent", state->agent,
                  "With --hosts, the command that runs another one on host %h, its words divided by spaces")
      ->envname("KASANE_AGENT")
      ->capture_default_str();
  state->ranks_given = app->get_option("-n");
  app->add_option("PROGRAM", state->command,
                  "the program, or the name of one of Kasane's applications, and what follows is its own "
                  "command line")
      ->required();
  app->positionals_at_end();  // from the first word that is none of our flags
  return {app, [state] { return run(*state); }, &state->table};
}

}  // namespace kasane::tools
