// SPDX-License-Identifier: Apache-2.0
// This process as one of the ranks that an mpirun started: test programs are started on every rank, run the
// same tests in the same order, and each test meets its peers over a transport of its own. A failure on any
// rank ends the job, since the others may wait for that rank for ever.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "comm/mpi/library.h"
#include "comm/mpi/mpi_transport.h"

namespace kasane::comm::mpi::test {

/// The MPI of this process; set by start().
inline std::shared_ptr<Library>& library() {
  static std::shared_ptr<Library> loaded;
  return loaded;
}

/// --rma automatic|windows|messages
inline Options& options() {
  static Options chosen;
  return chosen;
}

/// Prints as "[rank] …" and ends the job at the end of a test that failed here.
class EndJobOnFailure final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (!part.failed()) return;
    std::fprintf(stderr, "rank %u: %s:%d: %s\n", raw(library()->rank()),
                 part.file_name() == nullptr ? "?" : part.file_name(), part.line_number(), part.message());
  }
  void OnTestEnd(const ::testing::TestInfo& info) override {
    if (info.result()->Passed() || info.result()->Skipped()) return;
    std::fprintf(stderr, "rank %u: %s.%s failed\n", raw(library()->rank()), info.test_suite_name(),
                 info.name());
    library()->abort(1);
  }
};

/// Loads the MPI; false, and says why, if it cannot be. Only rank 0 prints the course of the tests.
inline bool start(int* argc, char*** argv) {
  for (int i = 1; i + 1 < *argc; ++i) {
    if (std::string((*argv)[i]) != "--rma") continue;
    const std::string how = (*argv)[i + 1];
    options().rma = how == "windows"    ? Options::Rma::windows
                    : how == "messages" ? Options::Rma::messages
                                        : Options::Rma::automatic;
  }
  auto loaded = load("auto", argc, argv);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return false;
  }
  library() = *loaded;
  return true;
}

inline int run_all_tests() {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (library()->rank() != Rank{0}) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new EndJobOnFailure);
  const int result = RUN_ALL_TESTS();
  library().reset();  // MPI_Finalize, on every rank
  return result;
}

}  // namespace kasane::comm::mpi::test
