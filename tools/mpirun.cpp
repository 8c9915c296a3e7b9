// SPDX-License-Identifier: Apache-2.0
#include "mpirun.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "execute.h"
#include "program_file.h"
#include "runtime/start/same_image.h"

namespace kasane::tools {
namespace {

std::string first_program(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string file = find_program(name); !file.empty()) return file;
  }
  return {};
}

/// What no other job has: the ranks derive their stack guards from it (runtime/start/same_image.h).
void set_job_key() {
  std::array<std::uint64_t, 2> key = {};
  if (::getrandom(key.data(), sizeof key, 0) != static_cast<ssize_t>(sizeof key)) return;   // the launcher's own key has to do
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(key[0]), static_cast<unsigned long long>(key[1]));
  ::setenv(runtime::kJobKeyVariable, text, 1);
}

std::vector<std::string> open_mpi_command(const MpiLauncher& launcher, const runtime::Options& options) {
  if (::geteuid() == 0) {   // Open MPI refuses root otherwise; whoever runs kasane as root has decided that already
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  // Ranks may be more than cores; a rank's workers and service thread share all of them, as with our own launcher.
  std::vector<std::string> words{launcher.path, "--oversubscribe", "--bind-to", "none"};
  if (options.tag_output) words.emplace_back("--tag-output");
  return words;
}

std::vector<std::string> mpich_command(const MpiLauncher& launcher, const runtime::Options& options) {
  std::vector<std::string> words{launcher.path, "-bind-to", "none"};
  if (options.tag_output) words.emplace_back("-prepend-rank");
  return words;
}

int refuse(const runtime::Options& options) {
  const bool any = options.session.mpi == "auto";
  std::fprintf(stderr, "kasane: --transport mpi needs %s: install the package %s\n",
               any ? "mpirun, and none is in the PATH" : options.session.mpi == "openmpi" ? "mpirun.openmpi, which is not in the PATH" : "mpirun.mpich, which is not in the PATH",
               any ? "openmpi-bin or mpich" : options.session.mpi == "openmpi" ? "openmpi-bin" : "mpich");
  return 127;
}

}  // namespace

std::vector<MpiLauncher> mpi_launchers() {
  return {{"openmpi", "openmpi-bin", first_program({"mpirun.openmpi", "orterun"})}, {"mpich", "mpich", first_program({"mpirun.mpich", "mpiexec.hydra"})}};
}

int run_by_mpi(const runtime::Options& options, std::vector<std::string> command) {
  // mpirun would say less well what is wrong with the program, and end with another status.
  const std::string program = find_program(command[0]);
  if (::access(program.c_str(), X_OK) != 0) return execute(std::move(command));
  command[0] = program;
  for (const MpiLauncher& launcher : mpi_launchers()) {
    if (launcher.path.empty() || (options.session.mpi != "auto" && options.session.mpi != launcher.mpi)) continue;
    std::vector<std::string> words = launcher.mpi == "openmpi" ? open_mpi_command(launcher, options) : mpich_command(launcher, options);
    words.insert(words.end(), {"-n", std::to_string(options.ranks)});
    words.insert(words.end(), command.begin(), command.end());
    set_job_key();
    ::unsetenv("KASANE_RANKS");   // else each of them would fork as many
    return execute(std::move(words));
  }
  return refuse(options);
}

}  // namespace kasane::tools
