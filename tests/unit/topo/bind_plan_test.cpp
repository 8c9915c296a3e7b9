// SPDX-License-Identifier: Apache-2.0
// Plans on machines that hwloc is told of, and lists of nodes.
#include "topo/bind_plan.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "topo/numa.h"
#include "topo/number_list.h"

namespace kasane::topo {
namespace {

Machine described(const char* machine) {
  ::setenv("HWLOC_SYNTHETIC", machine, 1);
  auto found = Machine::discover();
  ::unsetenv("HWLOC_SYNTHETIC");
  EXPECT_TRUE(found) << found.error().message;
  return *found;
}

// 2 packages of 2 nodes of 4 cores with 2 hardware threads each.
Machine large() { return described("pack:2 [numa] group:2 [numa] core:4 pu:2"); }
Machine two_nodes() { return described("pack:2 [numa] core:2 pu:1"); }

BindTo to(const char* text, bool scatter = false) {
  auto parsed = BindTo::parse(text);
  EXPECT_TRUE(parsed) << text;
  parsed->scatter = scatter;
  return *parsed;
}

std::string text_of(const Machine& machine, const BindTo& bind, std::uint32_t ranks, std::uint32_t workers) {
  std::string text;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const auto rank = plan(machine, bind, r, ranks, workers);
    EXPECT_TRUE(rank) << rank.error().message;
    for (const auto& cores : rank->workers) {
      text += text.empty() || text.back() == '|' ? "" : " ";
      for (const Core& core : cores) text += (&core == cores.data() ? "" : ",") + std::to_string(core.cpu);
    }
    if (rank->node) text += "@" + std::to_string(*rank->node);
    text += "|";
  }
  return text;
}

TEST(BindPlan, AMachineThatIsDescribedIsForeign) {
  EXPECT_TRUE(two_nodes().foreign());
  EXPECT_EQ(two_nodes().cores().size(), 4u);
  EXPECT_EQ(two_nodes().numa_nodes().size(), 2u);
  const auto here = Machine::discover();
  ASSERT_TRUE(here);
  EXPECT_FALSE(here->foreign());
}

TEST(BindPlan, CoresAreTakenInTurn) {
  const Machine m = two_nodes();
  EXPECT_EQ(text_of(m, to("core"), 2, 2), "0 1|2 3|");
  EXPECT_EQ(text_of(m, to("core", true), 2, 2), "0 2|1 3|");
  EXPECT_EQ(text_of(m, to("core"), 3, 2), "0 1|2 3|0 1|") << "more workers than cores begin again";
  EXPECT_EQ(text_of(m, to("3,0-1"), 1, 4), "3 0 1 3|");
}

TEST(BindPlan, RanksAreDealtToNodes) {
  const Machine m = two_nodes();
  EXPECT_EQ(text_of(m, to("numa"), 2, 2), "0,1 0,1@0|2,3 2,3@1|");
  EXPECT_EQ(text_of(m, to("numa"), 4, 1), "0,1@0|0,1@0|2,3@1|2,3@1|");
  EXPECT_EQ(text_of(m, to("numa", true), 4, 1), "0,1@0|2,3@1|0,1@0|2,3@1|");
  EXPECT_EQ(text_of(m, to("numa"), 1, 2), "0,1 2,3|") << "one rank has both, and its memory no node";
  EXPECT_EQ(text_of(m, to("numa"), 3, 1), "0,1@0|0,1@0|2,3@1|");
}

TEST(BindPlan, WorkersHaveTheNodeOnWhichTheyStay) {
  using Nodes = std::vector<std::uint32_t>;
  const auto nodes = [](const Machine& m, const BindTo& bind, std::uint32_t rank, std::uint32_t ranks,
                        std::uint32_t workers) {
    return plan(m, bind, rank, ranks, workers).value().worker_nodes();
  };
  const Machine m = two_nodes();
  constexpr std::uint32_t kSeveral = RankPlan::kSeveralNodes;
  EXPECT_EQ(nodes(m, to("none"), 0, 1, 2), Nodes{});
  EXPECT_EQ(nodes(m, to("core"), 0, 1, 4), (Nodes{0, 0, 1, 1}));
  EXPECT_EQ(nodes(m, to("core", true), 0, 1, 4), (Nodes{0, 1, 0, 1}));
  EXPECT_EQ(nodes(m, to("3,0"), 0, 1, 2), (Nodes{1, 0}));
  EXPECT_EQ(nodes(m, to("numa"), 1, 2, 2), (Nodes{1, 1}));
  EXPECT_EQ(nodes(m, to("numa"), 0, 1, 2), (Nodes{0, 1}));
  EXPECT_EQ(nodes(large(), to("package"), 0, 2, 2), (Nodes{kSeveral, kSeveral}));
}

TEST(BindPlan, EachRankHasCoresWhateverTheNumbers) {
  const Machine m = large();
  for (const char* how : {"core", "numa", "package", "0-15"}) {
    for (const bool scatter : {false, true}) {
      for (std::uint32_t ranks = 1; ranks <= 20; ++ranks) {
        for (std::uint32_t workers = 1; workers <= 5; ++workers) {
          for (std::uint32_t r = 0; r < ranks; ++r) {
            const auto rank = plan(m, to(how, scatter), r, ranks, workers);
            ASSERT_TRUE(rank);
            ASSERT_EQ(rank->workers.size(), workers);
            for (const auto& cores : rank->workers) EXPECT_FALSE(cores.empty()) << how;
          }
        }
      }
    }
  }
}

TEST(BindPlan, NoneLeavesThreadsToTheKernel) {
  const auto rank = plan(two_nodes(), to("none"), 0, 1, 2);
  ASSERT_TRUE(rank);
  EXPECT_TRUE(rank->workers.at(1).empty());
  EXPECT_EQ(cores_text(rank->workers.at(1)), "any core");
  EXPECT_EQ(cores_text({{3, 0, 1}, {2, 0, 1}, {1500, 0, 1}}), "cores 2-3,1500 (NUMA node 1)");
  EXPECT_EQ(cores_text(two_nodes().cores()), "cores 0-3 (NUMA nodes 0-1)");
}

TEST(BindPlan, MistakesAreNamed) {
  for (const char* text : {"", "cores", "1-", "-1", "1,", "3-1", "1,,2", "0-99999999", "1x"}) {
    const auto parsed = BindTo::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find("0-3,8"), std::string::npos) << parsed.error().message;
  }
  const auto rank = plan(two_nodes(), to("9"), 0, 1, 1);
  ASSERT_FALSE(rank);
  EXPECT_NE(rank.error().message.find("core 9 (it has 0, 1, 2, 3)"), std::string::npos)
      << rank.error().message;
}

TEST(NumberList, IsReadInItsOrderAndWrittenAscending) {
  using Numbers = std::vector<std::uint32_t>;
  EXPECT_EQ(parse_list("8,0-2").value(), (Numbers{8, 0, 1, 2}));
  EXPECT_EQ(parse_list("4294967294-4294967295").value(), (Numbers{4294967294u, 4294967295u}));
  for (const char* text : {"", ",", "1,", " 1", "1 ", "2-1", "-2", "0-65536", "4294967296", "1-2-3"})
    EXPECT_FALSE(parse_list(text)) << text;
  EXPECT_EQ(list_text({8, 2, 0, 1, 2, 2000, 2001}), "0-2,8,2000-2001");
  EXPECT_EQ(list_text({}), "none");
}

TEST(Numa, ListsOfNodesAreRead) {
  EXPECT_EQ(nodes_text(parse_nodes("\t0-2,5\n")), "0-2,5");
  EXPECT_EQ(nodes_text(parse_nodes("1,5000")), "1");
  EXPECT_EQ(nodes_text(parse_nodes("\n")), "none");
  EXPECT_EQ(nodes_text(parse_nodes("")), "none");
  EXPECT_EQ(nodes_text(parse_nodes("7")), "7");
  EXPECT_TRUE(memory_nodes().any());
  const auto checked = check_nodes(NodeSet().set(900), NodeSet().set(0));
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("900"), std::string::npos);
}

}  // namespace
}  // namespace kasane::topo
