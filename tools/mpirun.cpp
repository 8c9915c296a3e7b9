// SPDX-License-Identifier: Apache-2.0
#include "mpirun.h"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "execute.h"
#include "hosts.h"
#include "mem/engines.h"
#include "mem/uffd_engine.h"
#include "program_file.h"
#include "runtime/start/same_image.h"

namespace kasane::tools {
namespace {

/// By its output, since names are ambiguous: Open MPI 5 has only mpirun and mpiexec, as have MPIs for which
/// Kasane has no module.
std::string mpi_of(const std::string& launcher) {
  const std::string text = output_of({launcher, "--version"});
  for (const char* open_mpi : {"(Open MPI)", "(OpenRTE)"}) {
    if (text.find(open_mpi) != std::string::npos) return "openmpi";
  }
  return text.find("HYDRA build details") != std::string::npos ? "mpich" : "";
}

/// The first of the names that is in the PATH and belongs to that MPI.
std::string launcher_of(const std::string& mpi, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string file = find_program(name);
    if (!file.empty() && mpi_of(file) == mpi) return file;
  }
  return {};
}

std::vector<std::string> open_mpi_command(const MpiLauncher& launcher, const runtime::Options& options) {
  // Open MPI refuses root otherwise; running kasane as root is consent
  if (::geteuid() == 0) {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  // Ranks may be more than cores; a rank's workers and service thread share all of them, as with our own
  // launcher.
  std::vector<std::string> words{launcher.path, "--oversubscribe", "--bind-to", "none"};
  if (options.tag_output) words.emplace_back("--tag-output");
  return words;
}

/// Standard input has nothing, and never will: it is closed, /dev/null, a file at its end, or a pipe that
/// nobody writes to.
bool no_input() {
  struct stat s{};
  if (::fstat(0, &s) != 0) return true;
  if (S_ISREG(s.st_mode)) return ::lseek(0, 0, SEEK_CUR) >= s.st_size;
  if (S_ISCHR(s.st_mode)) return s.st_rdev == makedev(1, 3);
  pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, 0) == 1 && (input.revents & (POLLIN | POLLHUP)) == POLLHUP;
}

/// MPICH's mpirun passes its input, and the end of that, to the process that holds the ranks. If they have
/// ended by then, SIGPIPE ends mpirun before it has printed their last words and given their status. So
/// where there is no input, it waits for one that never comes, and the ranks read /dev/null. Else it goes on
/// to say at least that it could not write; not at a terminal, where input is rare, and SIGPIPE tells that
/// nobody reads the output. Returns the words to put before the command.
std::vector<std::string> guard_mpich_input() {
  if (::isatty(0) != 0) return {};
  int ends[2];
  if (!no_input() || ::pipe(ends) != 0) {
    ::signal(SIGPIPE, SIG_IGN);  // of mpirun alone: what starts the ranks sets it again
    return {};
  }
  if (ends[0] != 0) {
    ::dup2(ends[0], 0);
    ::close(ends[0]);
  }
  return {"/bin/sh", "-c", "exec \"$0\" \"$@\" </dev/null"};  // the writing end stays open in mpirun
}

std::vector<std::string> mpich_command(const MpiLauncher& launcher, const runtime::Options& options) {
  std::vector<std::string> words{launcher.path, "-bind-to", "none"};
  if (options.tag_output) words.emplace_back("-prepend-rank");
  return words;
}

int refuse(const std::string& mpi, const char* what) {
  const bool any = mpi == "auto";
  std::fprintf(stderr,
               "kasane: %s needs an mpirun of %s in the PATH, and there is none: install the package %s\n",
               what,
               any                ? "Open MPI or MPICH"
               : mpi == "openmpi" ? "Open MPI"
                                  : "MPICH",
               any                ? "openmpi-bin or mpich"
               : mpi == "openmpi" ? "openmpi-bin"
                                  : "mpich");
  return 127;
}

}  // namespace

void set_job_key() {
  std::array<std::uint64_t, 2> key = {};
  // the ranks then use the launcher's own key
  if (::getrandom(key.data(), sizeof key, 0) != static_cast<ssize_t>(sizeof key)) return;
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(key[0]),
                static_cast<unsigned long long>(key[1]));
  ::setenv(runtime::kJobKeyVariable, text, 1);
}

MpiLauncher mpi_launcher(const std::string& mpi) {
  if (mpi == "openmpi") {
    return {mpi, "openmpi-bin", launcher_of(mpi, {"mpirun.openmpi", "mpirun", "mpiexec", "orterun"})};
  }
  return {mpi, "mpich", launcher_of(mpi, {"mpirun.mpich", "mpirun", "mpiexec", "mpiexec.hydra"})};
}

Libraries libraries_of(const std::string& name) {
  const std::string text = loaded_by(find_program(name));
  const auto has = [&](const char* library) { return text.find(library) != std::string::npos; };
  return {has("libkasane.so"), has("libmpi.so") ? "openmpi" : has("libmpich.so") ? "mpich" : "auto"};
}

int run_attaching(runtime::Options options, const std::string& mpi, std::vector<std::string> command) {
  if (options.session.mpi == "auto") options.session.mpi = mpi;
  // What the program would have to set before it loads its MPI (UCX), and cannot.
  const bool waits =
      (options.faults == "auto" || options.faults == mem::kUffdThread) && mem::engine_for(mem::kUffdThread);
  if (!waits) ::setenv("UCX_TLS", "posix,self", 0);
  if (options.session.mpi == "auto" && mpi_launcher("openmpi").path.empty() &&
      mpi_launcher("mpich").path.empty())
    return run_attaching_here(options, std::move(command));
  return run_by_mpi(options, std::move(command), "a program that attaches");
}

int run_by_mpi(const runtime::Options& options, std::vector<std::string> command, const char* what) {
  if (options.session.mpi == "pmix") {
    std::fprintf(stderr, "kasane: --mpi pmix is for ranks that srun or prterun starts; %s needs an MPI\n",
                 what);
    return 2;
  }
  // mpirun's message about a missing program is less clear, and its status is another.
  const std::string program = find_program(command[0]);
  if (::access(program.c_str(), X_OK) != 0) return execute(std::move(command));
  command[0] = program;
  for (const char* mpi : kMpis) {
    if (options.session.mpi != "auto" && options.session.mpi != mpi) continue;
    const MpiLauncher launcher = mpi_launcher(mpi);
    if (launcher.path.empty()) continue;
    std::vector<std::string> words =
        launcher.mpi == "openmpi" ? open_mpi_command(launcher, options) : mpich_command(launcher, options);
    words.insert(words.end(), {"-n", std::to_string(options.ranks)});
    if (launcher.mpi == "mpich")
      for (std::string& word : guard_mpich_input()) words.push_back(std::move(word));
    words.insert(words.end(), command.begin(), command.end());
    set_job_key();
    ::unsetenv("KASANE_RANKS");  // else each rank would fork as many
    return execute(std::move(words));
  }
  return refuse(options.session.mpi, what);
}

}  // namespace kasane::tools
