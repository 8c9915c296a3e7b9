// SPDX-License-Identifier: Apache-2.0
// What the kasane command says to who types it: help, and suggestions for mistyped words.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "multi/launch/job.h"

namespace kasane::launch_test {
namespace {

const std::string kProgram = KASANE_LAUNCH_PROGRAM;

Outcome kasane(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), KASANE_COMMAND);
  return Job(std::move(arguments), std::move(environment)).wait();
}

/// Refused, with status 2, nothing on standard output, and this on standard error.
void expect_refused(const std::vector<std::string>& arguments, const std::string& says) {
  const Outcome o = kasane(arguments);
  EXPECT_EQ(o.code, 2) << says;
  EXPECT_EQ(o.out, "") << says;
  EXPECT_NE(o.err.find(says), std::string::npos) << "missing: " << says << "\nin:\n" << o.err;
}

std::string warnings_of(const std::vector<std::string>& environment, const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments{"-n", "3"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", kProgram, "return3"});
  const Outcome o = kasane_run(arguments, environment);
  EXPECT_EQ(o.code, 3) << "an unknown variable refuses nothing\n" << o.err;
  return without_sanitizer(o.err);
}

TEST(Command, AloneItPrintsItsHelp) {
  const Outcome alone = kasane({}), help = kasane({"--help"});
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.out, help.out);
  EXPECT_NE(alone.out.find("Subcommands:"), std::string::npos) << alone.out;
}

TEST(Command, SuggestsTheCommandThatWasMeant) {
  expect_refused({"rum"}, "there is no command rum; did you mean run?\n");
  expect_refused({"frobnicate"}, "there is no command frobnicate\n");
}

TEST(Command, SuggestsTheOptionThatWasMeant) {
  expect_refused({"run", "--worker", "2", "--", kProgram, "return"}, "kasane run has no option --worker; did you mean --workers?\n");
  expect_refused({"run", "--trasnport=shm", kProgram, "return"}, "kasane run has no option --trasnport; did you mean --transport?\n");
  expect_refused({"run", "--frobnicate", kProgram}, "kasane run has no option --frobnicate\n");
  expect_refused({"run", "--workers", "x", kProgram}, "--workers x: expected a whole number");
  expect_refused({"run", "--workers", "x", "--", kProgram}, "--workers x: expected a whole number");
  expect_refused({"run"}, "PROGRAM is required");
}

TEST(Command, WarnsOfVariablesThatNobodyReads) {
  EXPECT_EQ(warnings_of({"KASANE_WORKRES=2"}), "kasane: warning: nothing here reads the variable KASANE_WORKRES; did you mean KASANE_WORKERS?\n") << "once a job";
  EXPECT_EQ(warnings_of({"KASANE_MINE=1"}), "kasane: warning: nothing here reads the variable KASANE_MINE\n") << "like none: no suggestion";
  EXPECT_EQ(warnings_of({"KASANE_=1"}), "kasane: warning: nothing here reads the variable KASANE_\n");
  EXPECT_EQ(warnings_of({"KASANE_WORKRES=2"}, {"--log", "error"}), "") << "a warning, and those were not wanted";
  EXPECT_EQ(warnings_of({"KASANE_WORKERS=1", "KASANE_ISSUE=direct", "KASANE_HOSTS=1", "KASANE_JOB_KEY=k", "KASANE_STATS=0", "KASANELESS=1"}), "")
      << "what the runtime, the session, the engine or the start reads";
  const Outcome alone = Job({kProgram, "return3"}, {"KASANE_WORKRES=2"}).wait();
  EXPECT_EQ(count_of(alone.err, "did you mean KASANE_WORKERS?"), 1) << alone.err;
}


}  // namespace
}  // namespace kasane::launch_test
