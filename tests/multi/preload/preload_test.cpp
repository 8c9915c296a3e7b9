// SPDX-License-Identifier: Apache-2.0
// kasane run --preload and kasane info PROGRAM: which programs run on several ranks as they are, which run
// once, and which are refused, each with its reason.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "multi/launch/job.h"
#include "support/folder.h"

namespace kasane::launch_test {
namespace {

namespace fs = std::filesystem;

std::string program(const std::string& kind) { return KASANE_PRELOAD_PROGRAMS "preload_" + kind; }

Outcome preloaded(const std::vector<std::string>& command, const std::string& option = "--preload",
                  const std::vector<std::string>& environment = {}) {
  std::vector<std::string> arguments{"-n", "2", option, "--"};
  arguments.insert(arguments.end(), command.begin(), command.end());
  return kasane_run(arguments, environment);
}

nlohmann::json info(const std::string& file, int status) {
  const Outcome o = Job({KASANE_COMMAND, "info", "--json", file}).wait();
  EXPECT_EQ(o.code, status) << file << "\n" << o.err;
  return nlohmann::json::parse(o.out).at("program");
}

void has(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "missing: " << words << "\nin:\n" << text;
}

/// Refused by name, with these words, and kasane info says so, too.
void expect_refused(const std::string& file, const std::string& why) {
  for (const char* option : {"--preload", "--preload=unchecked"}) {
    const Outcome o = preloaded({file}, option);
    EXPECT_EQ(o.code, 2) << file << "\n" << o.err;
    EXPECT_EQ(o.out, "") << file;
    has(o.err, "kasane: --preload: " + file + " cannot run on several ranks: ");
    has(o.err, why);
  }
  const auto said = info(file, 1);
  EXPECT_EQ(said.at("spreads"), false) << file;
  has(said.at("reason"), why);
}

TEST(Preload, WhatAFileForbidsIsRefusedWithItsReason) {
  expect_refused(program("lock"), "its code has lock ");
  expect_refused(program("exchange"), "its code has xchg ");
  expect_refused(program("library"), "libpreload_counts.so has lock ");
  expect_refused(program("copy"), "a copy of of_library, a variable of a library");
  expect_refused(program("environ"), "environ, a variable of a library");
  expect_refused(program("go"), "it is a Go program");
  expect_refused(program("rust"), "it contains Rust's standard library");
  expect_refused(program("java"), "libjli.so starts a Java machine");
  expect_refused(program("openmp"), "runs OpenMP's threads");
  expect_refused(program("static"), "it is linked statically");
}

TEST(Preload, WhatIsNotAProgramOrHasItsOwnRightsIsRefused) {
  const test::Folder folder;
  const std::string script = folder.file("script"), with_rights = folder.file("with_rights");
  std::ofstream(script) << "#!/bin/sh\ntrue\n";
  fs::permissions(script, fs::perms::owner_all);
  expect_refused(script, "(a script?): name the program that it starts");
  fs::copy(program("threads"), with_rights);
  ASSERT_EQ(::chmod(with_rights.c_str(), S_ISUID | S_IRWXU), 0);
  expect_refused(with_rights, "it is set-user-id");
}

TEST(Preload, OtherProgramsRunOnceUnlessTheUserTakesTheRisk) {
  const std::string threads = program("threads");
  const Outcome once = preloaded({threads});
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(once.out, "right in 1 processes\n");
  has(once.err, "kasane: note: " + threads + " runs once, as it is: ");
  has(once.err, "--preload=unchecked takes the risk");
  const Outcome spread = preloaded({threads}, "--preload=unchecked");
  EXPECT_EQ(spread.code, 0) << spread.err;
  EXPECT_EQ(spread.out, "right in 2 processes\n");
  EXPECT_EQ(spread.err, "");
  const auto said = info(threads, 0);
  EXPECT_EQ(said.at("spreads"), true);
  EXPECT_TRUE(said.at("examined").is_null());
}

TEST(Preload, AnotherVersionIsAnotherProgram) {
  const test::Folder folder;
  const std::string pigz = folder.file("pigz");
  fs::copy(program("threads"), pigz);
  const Outcome o = preloaded({pigz});
  EXPECT_EQ(o.out, "right in 1 processes\n") << o.err;
  has(o.err, "runs once, as it is: this program, or this version,");
}

TEST(Preload, WhatTheProgramStartsIsNoJob) {
  const std::string say = "echo \"[$LD_PRELOAD] $KASANE_RANKS\"; exec " + program("threads");
  for (const char* const before : {"", "libutil.so.1"}) {
    const Outcome o =
        preloaded({program("threads"), say}, "--preload=unchecked", {std::string("LD_PRELOAD=") + before});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, "right in 2 processes\n[" + std::string(before) + "] 1\nright in 1 processes\n")
        << o.err;
  }
}

TEST(Preload, ItIsNotForOtherWaysToStart) {
  for (const char* option : {"--main=all", "--transport=mpi", "--attach"}) {
    const Outcome o = kasane_run({"-n", "2", "--preload=unchecked", option, "--", program("threads")});
    EXPECT_EQ(o.code, 2) << option;
    has(o.err, "cannot be started with --main all, --transport mpi or --attach");
  }
  has(preloaded({KASANE_LAUNCH_PROGRAM}).err, "is built with Kasane: start it by --threads spread");
  has(preloaded({program("threads")}, "--preload=all").err, "is neither --preload nor --preload=unchecked");
  EXPECT_EQ(preloaded({"no-such-program"}).code, 127);
}

}  // namespace
}  // namespace kasane::launch_test
