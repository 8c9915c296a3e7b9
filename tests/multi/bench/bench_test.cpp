// SPDX-License-Identifier: Apache-2.0
// The harness that compares communication systems: players start, play what they are asked, and deliver what
// was sent; those that lose data, hang, die or never start are noticed within their deadline, and nothing of
// them is left running.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <map>
#include <set>

#include "comm/comparison.h"

namespace kasane::bench {
namespace {

using std::chrono::seconds;

Launch bad(const std::string& manner) { return {{KASANE_BIN "bench_bad_player", manner}, false, {}}; }

Order pingpong(unsigned threads, std::uint64_t bytes, bool verify) {
  Order order;
  order.threads = threads;
  order.bytes = bytes;
  order.iterations = 20;
  order.verify = verify;
  return order;
}

bool has_children() { return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

TEST(Order, SurvivesItsText) {
  Order order;
  order.task = Task::operate;
  order.op = Op::atomic;
  order.measure = Measure::rate;
  order.threads = 7;
  order.bytes = 4096;
  order.iterations = 12345;
  order.together = order.attended = true;
  EXPECT_EQ(to_text(parse_order(to_text(order))), to_text(order));
  EXPECT_EQ(parse_order(to_text(order)).op, Op::atomic);
  EXPECT_THROW((void)parse_order("do=nothing"), std::runtime_error);
  EXPECT_THROW((void)parse_order("threads=17"), std::runtime_error);
}

TEST(Report, TakesMediansAndQuartiles) {
  const Summary s = summarize({5, 1, 4, 2, 3});
  EXPECT_EQ(s.median, 3);
  EXPECT_EQ(s.low, 2);
  EXPECT_EQ(s.high, 4);
  EXPECT_EQ(s.repetitions, 5u);
  EXPECT_EQ(summarize({}).repetitions, 0u);
}

TEST(Pair, RawMemoryPlaysEverything) {
  const auto systems = choose(installed_systems(KASANE_BIN, Over::memory), {"raw"});
  Pair raw("raw", systems.front().launch, 2, 4096);
  ASSERT_FALSE(raw.lost()) << raw.why();
  EXPECT_TRUE(raw.together(pingpong(2, 4096, true), seconds(20)).ok());
  EXPECT_GT(raw.together(pingpong(2, 4096, false), seconds(20)).seconds, 0);
  Order order = pingpong(1, 8, false);
  order.task = Task::operate;
  for (const Op op : {Op::read, Op::write, Op::atomic}) {
    order.op = op;
    for (const Measure measure : {Measure::latency, Measure::overhead, Measure::cpu, Measure::rate}) {
      order.measure = measure;
      EXPECT_TRUE(raw.alone(order, false, seconds(20)).ok());
    }
  }
  order.op = Op::request;
  EXPECT_EQ(raw.alone(order, true, seconds(20)).kind, Answer::Kind::unsupported);
  EXPECT_EQ(raw.together(pingpong(9, 8, false), seconds(20)).kind, Answer::Kind::unsupported)
      << "was started for two threads";
}

TEST(Pair, NoticesLostData) {
  {
    Pair liar("liar", bad("loses data"), 1, 4096);
    ASSERT_FALSE(liar.lost()) << liar.why();
    const Answer answer = liar.together(pingpong(1, 64, true), seconds(20));
    EXPECT_EQ(answer.kind, Answer::Kind::broken);
    EXPECT_NE(answer.text.find("byte"), std::string::npos) << answer.text;
    EXPECT_FALSE(liar.lost()) << "it may still be right elsewhere";
  }
  EXPECT_FALSE(has_children());
}

TEST(Pair, GivesUpWhoHangs) {
  Pair pair("hanging", bad("hangs"), 1, 4096);
  ASSERT_FALSE(pair.lost()) << pair.why();
  EXPECT_EQ(pair.together(pingpong(1, 8, true), seconds(1)).kind, Answer::Kind::lost);
  EXPECT_FALSE(has_children());
  EXPECT_EQ(pair.together(pingpong(1, 8, true), seconds(1)).kind, Answer::Kind::lost);
}

TEST(Pair, GivesUpWhoDies) {
  Pair pair("dying", bad("dies"), 1, 4096);
  ASSERT_FALSE(pair.lost()) << pair.why();
  EXPECT_EQ(pair.together(pingpong(1, 8, false), seconds(20)).kind, Answer::Kind::lost);
  EXPECT_FALSE(has_children());
}

TEST(Pair, SaysWhyItDidNotStart) {
  Pair pair("absent", bad("refuses to start"), 1, 4096);
  EXPECT_TRUE(pair.lost());
  EXPECT_NE(pair.why().find("not today"), std::string::npos) << pair.why();
  EXPECT_FALSE(has_children());
  Pair missing("missing", {{"/no/such/player"}, true, {}}, 1, 4096);
  EXPECT_TRUE(missing.lost());
}

/// Some run over TCP alone, and are there all the same.
TEST(Systems, AreHereOnceWhateverTheyRunOver) {
  std::multiset<std::string> here;
  for (const System& system : installed_systems(KASANE_BIN)) here.insert(system.name);
  std::set<std::string> expected;
  for (const Over over : {Over::memory, Over::tcp}) {
    for (const System& system : installed_systems(KASANE_BIN, over)) expected.insert(system.name);
  }
  EXPECT_EQ(here, std::multiset<std::string>(expected.begin(), expected.end()));
  EXPECT_EQ(here.count("raw"), 1u);
}

/// Kasane plays in each mode of its engine, on every transport that is here, and each player is told which.
TEST(Systems, KasanePlaysInEachMode) {
  std::map<std::string, std::string> modes;
  for (const System& system : installed_systems(KASANE_BIN)) {
    for (const auto& [variable, value] : system.launch.environment) {
      if (variable == "KASANE_ISSUE") modes[system.name] = value;
    }
    EXPECT_EQ(modes.count(system.name) != 0, system.ours) << system.name;
  }
  std::size_t transports = 0;
  for (const std::string transport : {"kasane-shm", "kasane-ucx", "kasane-mpi", "kasane-mpich"}) {
    if (modes.count(transport) == 0) continue;  // its library is not here
    ++transports;
    EXPECT_EQ(modes[transport], "direct") << transport;
    EXPECT_EQ(modes[transport + "-offload"], "offload") << transport;
  }
  EXPECT_EQ(modes.size(), 2 * transports);
  EXPECT_GE(transports, 1u);
}

/// Every system that is built and installed here delivers what was sent, over everything that it runs on.
TEST(Systems, DeliverData) {
  for (const Over over : {Over::memory, Over::tcp}) {
    for (const System& system : installed_systems(KASANE_BIN, over)) {
      SCOPED_TRACE(system.name + (over == Over::tcp ? " over tcp" : ""));
      Pair pair(system.name, system.launch, 2, 65536);
      if (pair.lost()) {
        // A library that does not work on this machine is no failure of ours; ours must.
        if (system.ours) ADD_FAILURE() << pair.why();
        continue;
      }
      for (const std::uint64_t bytes : {8, 56, 4096, 65536}) {
        Order order = pingpong(2, bytes, true);
        order.together = bytes <= kTogetherBytes && system.one_sided;
        const Answer answer = pair.together(order, seconds(20));
        EXPECT_TRUE(!system.ours || answer.ok()) << bytes << " bytes: " << answer.text;
        if (answer.kind == Answer::Kind::lost) break;
      }
    }
  }
  EXPECT_FALSE(has_children());
}

}  // namespace
}  // namespace kasane::bench
