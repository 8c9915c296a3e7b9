// SPDX-License-Identifier: Apache-2.0
// What the kasane command prints: help, suggestions for mistyped words, and what the machine offers as text
// and as JSON.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "multi/launch/job.h"
#include "support/folder.h"

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

std::string warnings_of(const std::vector<std::string>& environment,
                        const std::vector<std::string>& options = {}) {
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

TEST(Command, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(kasane({"help"}).out, kasane({"--help"}).out);
  for (const char* command : {"run", "info", "bench", "plot", "help", "version"})
    EXPECT_EQ(kasane({"help", command}).out, kasane({command, "--help"}).out) << command;
  expect_refused({"help", "rum"}, "there is no command rum; did you mean run?\n");
  const Outcome version = kasane({"version"});
  EXPECT_TRUE(version.out.starts_with("kasane ") && version.out.ends_with("\n")) << version.out;
  EXPECT_EQ(kasane({"-V"}).out, version.out);
  EXPECT_EQ(kasane({"--version"}).out, version.out);
}

TEST(Command, SuggestsTheCommandThatWasMeant) {
  expect_refused({"rum"}, "there is no command rum; did you mean run?\n");
  expect_refused({"ifno", "--json"}, "there is no command ifno; did you mean info?\n");
  expect_refused({"frobnicate"}, "there is no command frobnicate\n");
}

TEST(Command, SuggestsTheOptionThatWasMeant) {
  expect_refused({"run", "--worker", "2", "--", kProgram, "return"},
                 "kasane run has no option --worker; did you mean --workers?\n");
  expect_refused({"run", "--trasnport=shm", kProgram, "return"},
                 "kasane run has no option --trasnport; did you mean --transport?\n");
  expect_refused({"run", "--frobnicate", kProgram}, "kasane run has no option --frobnicate\n");
  expect_refused({"run", "--seed", "2", "--", kProgram},
                 "kasane run has no option --seed; did you mean --debug seed=COUNT?\n");
  expect_refused({"run", "--check-races", "--", kProgram},
                 "kasane run has no option --check-races; did you mean --check?\n");
  expect_refused({"run", "--stats-every", "2s", "--", kProgram},
                 "kasane run has no option --stats-every; did you mean --stats?\n");
  expect_refused(
      {"run", "--check", "race", "--", kProgram},
      "--check race: there is no race; did you mean races? (known: races, globals, mixing, polling, "
      "threads, heap)");
  expect_refused({"run", "--debug", "help", "--", kProgram},
                 "--debug help: there is no help (known: relocate, ");
  expect_refused({"info", "--jsno"}, "kasane info has no option --jsno; did you mean --json?\n");
  expect_refused({"run", "--workers", "x", kProgram}, "--workers x: expected a whole number");
  expect_refused({"run", "--workers", "x", "--", kProgram}, "--workers x: expected a whole number");
  expect_refused({"run"}, "PROGRAM is required");
}

/// A shell's command line, with KASANE and PROGRAM in its environment.
Outcome shell(const std::string& line) {
  return Job({"sh", "-c", line}, {"KASANE=" KASANE_COMMAND, "PROGRAM=" + kProgram}).wait();
}

// A full disk takes nothing: the status says so, and a message.
TEST(Command, OutputThatCannotBeWrittenIsNoSuccess) {
  for (const char* line :
       {"$KASANE info", "$KASANE info --json", "$KASANE run --help", "$KASANE --version", "$KASANE",
        "$KASANE run -n 1 -- $PROGRAM hello", "$KASANE run -n 2 -- $PROGRAM hello", "$PROGRAM hello",
        "$KASANE run -n 2 --tag-output -- $PROGRAM hello"}) {
    const Outcome o = shell(std::string(line) + " >/dev/full");
    EXPECT_TRUE(o.code == 1 || o.code == 128 + SIGPIPE) << line << ": " << o.code << "\n" << o.err;
    EXPECT_NE(o.err.find("cannot "), std::string::npos) << line << "\n" << o.err;
  }
  const Outcome trace = shell("$KASANE run -n 2 --trace /dev/full -- $PROGRAM hello");
  EXPECT_EQ(trace.code, 1) << trace.err;
  EXPECT_NE(trace.err.find("--trace: writing /dev/full: No space left"), std::string::npos) << trace.err;
  EXPECT_EQ(shell("$KASANE run -n 2 -- $PROGRAM hello >/dev/null").code, 0);
  EXPECT_EQ(shell("$KASANE run -n 2 -- $PROGRAM hello >&-").code, 0) << "it was closed on purpose";
}

// MPICH's mpirun dies of SIGPIPE, and says nothing, if it passes input, or the end of it, to ranks that have
// ended. This mpirun tells what it has: 124 is neither.
TEST(Command, GivesMpichsMpirunNoEndOfInputToPassOn) {
  const test::Folder folder;
  const std::string mpirun = folder.file("mpirun.mpich");
  std::ofstream(mpirun) << R"(#!/bin/sh
[ "$1" = --version ] && exec echo HYDRA build details
timeout 0.3 head -c 1
echo " $?"
sh -c 'kill -PIPE $$ && echo not killed'
while [ "$1" != -n ]; do shift; done
shift 2
exec "$@"
)";
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  std::ofstream(folder.file("empty")).flush();
  const std::string run = "{ sleep 0.1; cd '" + folder.path() +
                          "'; PATH=.:$PATH $KASANE run -n 2 --attach "
                          "--mpi mpich -- sh -c 'wc -c; echo \"$0 $*\"; exit 3' 'a  b' '$c'; } ";
  for (const std::string& line : {run + "</dev/null", run + "<&-", "true | " + run,
                                  "cd '" + folder.path() + "' && " + run + "<empty"}) {
    const Outcome o = shell(line);
    EXPECT_EQ(o.out, " 124\n0\na  b $c\n") << line << "\n" << o.err;
    EXPECT_EQ(o.code, 3) << line;
  }
  const Outcome o = shell("echo a | " + run);
  EXPECT_EQ(o.out, "a 0\nnot killed\n1\na  b $c\n") << o.err;
}

TEST(Command, SaysThatPreloadingMakesNoProgramOfKasanes) {
  for (const char* ranks : {"1", "2"}) {
    const Outcome o =
        shell("LD_PRELOAD=" KASANE_LIBRARY " $KASANE run -n " + std::string(ranks) + " -- echo hello");
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(o.out, "") << "it did not run";
    EXPECT_NE(o.err.find("LD_PRELOAD names libkasane.so, but echo was not built with Kasane"),
              std::string::npos)
        << o.err;
  }
}

// What only the machine can say is wrong is found by the ranks, which say so with the same status.
TEST(Command, RefusesCoresThatThereAreNot) {
  expect_refused({"run", "-n", "2", "--bind", "0,4095", "--", kProgram, "return"},
                 "--bind (KASANE_BIND): this process may not use core 4095 (it has ");
  expect_refused({"run", "--bind", "nodes", "--", kProgram, "return"},
                 "--bind (KASANE_BIND): \"nodes\": none, core, numa, package, or cores such as 0-3,8");
}

TEST(Command, WarnsOfVariablesThatNobodyReads) {
  EXPECT_EQ(warnings_of({"KASANE_WORKRES=2"}),
            "kasane: warning: nothing here reads the variable KASANE_WORKRES; did you mean KASANE_WORKERS?\n")
      << "once a job";
  EXPECT_EQ(warnings_of({"KASANE_MINE=1"}), "kasane: warning: nothing here reads the variable KASANE_MINE\n")
      << "like none: no suggestion";
  EXPECT_EQ(warnings_of({"KASANE_=1"}), "kasane: warning: nothing here reads the variable KASANE_\n");
  EXPECT_EQ(warnings_of({"KASANE_WORKRES=2"}, {"--log", "error"}), "")
      << "a warning, and those were not wanted";
  EXPECT_EQ(warnings_of({"KASANE_WORKERS=1", "KASANE_ISSUE=direct", "KASANE_DEBUG=hosts=1",
                         "KASANE_CHECK=", "KASANE_JOB_KEY=k", "KASANE_STATS=0", "KASANELESS=1"}),
            "")
      << "what the runtime, the session, the engine or the start reads";
  const Outcome alone = Job({kProgram, "return3"}, {"KASANE_WORKRES=2"}).wait();
  EXPECT_EQ(count_of(alone.err, "did you mean KASANE_WORKERS?"), 1) << alone.err;
}

// Each option costs a reader; what only we turn is an item of --debug.
TEST(Command, RunHasFewOptions) {
  const Outcome help = kasane({"run", "--help"});
  const int options = count_of(help.out, "[KASANE_");
  EXPECT_LE(options, 28) << help.out;
  EXPECT_GE(options, 15) << help.out;
}

TEST(Command, AFlagWinsOverItsVariable) {
  const Outcome o = kasane_run({"-n", "1", "--workers", "1", "--stats", "--", kProgram, "return3"},
                               {"KASANE_WORKERS=2", "KASANE_STATS=0"});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("1 ranks x 1 workers"), std::string::npos) << o.err;
}

TEST(Command, InfoSaysTheSameAsJson) {
  const Outcome text = kasane({"info"}), json = kasane({"info", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto info = nlohmann::json::parse(json.out);
  const auto says = [&](const std::string& words) {
    EXPECT_NE(text.out.find(words), std::string::npos) << "missing: " << words << "\nin:\n" << text.out;
  };
  says("kasane " + info.at("version").get<std::string>() + "\n");
  says(info.at("machine").at("kernel").get<std::string>());
  says(std::to_string(info.at("machine").at("memory_bytes").get<std::uint64_t>() >> 20) + " MiB");
  says(info.at("machine").at("topology").get<std::string>());
  says(std::to_string(info.at("machine").at("numa_nodes").at(0).at("memory_bytes").get<std::uint64_t>() >>
                      20) +
       " MiB, cores");
  for (const auto& [name, transport] : info.at("transports").items()) {
    ASSERT_TRUE(transport.at("available").is_boolean()) << name;
    for (const char* key : {"use", "detail", "mpirun", "reason"}) {
      if (transport.contains(key) && transport.at(key).is_string())
        says(transport.at(key).get<std::string>());
    }
  }
  for (const char* section : {"faults", "spill"}) {
    for (const auto& engine : info.at(section).at("engines"))
      says((engine.at("available").get<bool>() ? "available: " : "not available: ") +
           engine.at("reason").get<std::string>());
  }
  says(info.at("faults").at("job_takes").get<std::string>() + " (KASANE_FAULTS=");
  const auto& limits = info.at("limits");
  says(std::to_string(limits.at("max_map_count").get<std::uint64_t>()) + " mappings a process");
  says(std::to_string(limits.at("default_workers").get<std::uint64_t>()) + " a job, shared by its ranks");
  says(std::to_string(limits.at("default_dram_bytes").get<std::uint64_t>() >> 20) + " MiB a host");
  for (const auto& disk : limits.at("spill_disks")) says(disk.at("setting").get<std::string>());
  // One key or more for each line that has a name.
  for (const char* key : {"overcommit_memory", "stack_guards_at_most", "page_tables_go_back", "frame_bytes",
                          "membarrier", "file_descriptors", "processes", "address_space_bytes"}) {
    EXPECT_TRUE(limits.contains(key)) << key;
  }
}

TEST(Command, InfoAsJsonSaysWhyAJobCannotStart) {
  const Outcome json = kasane({"info", "--json"}, {"KASANE_FAULTS=guesswork"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto faults = nlohmann::json::parse(json.out).at("faults");
  EXPECT_TRUE(faults.at("job_takes").is_null());
  EXPECT_NE(faults.at("reason").get<std::string>().find("KASANE_FAULTS=guesswork"), std::string::npos);
}

}  // namespace
}  // namespace kasane::launch_test
