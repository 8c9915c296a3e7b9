// SPDX-License-Identifier: Apache-2.0
// Started by mpirun: joins the job as the environment says, exercises it, and prints on rank 0 what it found.
// Exit code 1: something failed, and it is said.
#include <cstdio>

#include "exercise.h"

namespace kasane::comm::test {
namespace {

int failed(const std::string& what) {
  std::fprintf(stderr, "session_program: %s\n", what.c_str());
  return 1;
}

int run() {
  SessionOptions options;
  OptionTable table;
  if (auto read = add_all_session_options(table, options).read_environment(); !read)
    return failed(read.error().message);
  Job job;
  job.launcher = Launcher::mpi;
  auto session = Session::join(options, job);
  if (!session) return failed(session.error().message);
  const bool first = raw((*session)->transport().rank()) == 0;
  const std::string what = Exercise(**session).run();
  if (!what.empty()) return failed("rank " + std::to_string(raw((*session)->job().rank)) + ": " + what);
  if (first) std::printf("session ok: %s\n", (*session)->describe().c_str());
  return 0;
}

}  // namespace
}  // namespace kasane::comm::test

int main() { return kasane::comm::test::run(); }
