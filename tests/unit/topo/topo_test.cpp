// SPDX-License-Identifier: Apache-2.0
#include "topo/topo.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>

namespace kasane::topo {
namespace {

TEST(Topo, KnowsTheCoresOfTheAffinityMask) {
  const auto machine = Machine::discover();
  ASSERT_TRUE(machine) << machine.error().message;
  const auto mask = affinity();
  ASSERT_TRUE(mask);
  std::vector<std::uint32_t> cpus;
  for (const Core& core : machine->cores()) cpus.push_back(core.cpu);
  std::sort(cpus.begin(), cpus.end());
  EXPECT_EQ(cpus, *mask);
  EXPECT_GE(usable_cores(), 1u);
  EXPECT_LE(usable_cores(), mask->size());
}

TEST(Topo, EveryCoreIsOnAKnownNumaNode) {
  const auto machine = Machine::discover();
  ASSERT_TRUE(machine);
  std::set<std::uint32_t> nodes;
  for (const NumaNode& node : machine->numa_nodes()) nodes.insert(node.number);
  EXPECT_FALSE(nodes.empty());
  for (const Core& core : machine->cores()) EXPECT_TRUE(nodes.count(core.numa_node)) << core.cpu;
}

// Neighbouring workers do not share a physical core as long as there is another.
TEST(Topo, FirstThreadsOfPhysicalCoresComeFirst) {
  const auto machine = Machine::discover();
  ASSERT_TRUE(machine);
  std::set<std::uint32_t> all, first;
  for (const Core& core : machine->cores()) all.insert(core.physical);
  for (std::size_t i = 0; i < all.size(); ++i) first.insert(machine->cores()[i].physical);
  EXPECT_EQ(first.size(), all.size());
}

TEST(Topo, APinnedThreadRunsThere) {
  const auto machine = Machine::discover();
  ASSERT_TRUE(machine);
  for (const Core& core : machine->cores()) {
    std::thread([&] {
      const auto pinned = pin(core);
      ASSERT_TRUE(pinned) << pinned.error().message;
      EXPECT_EQ(affinity().value(), std::vector<std::uint32_t>{core.cpu});
      EXPECT_EQ(::sched_getcpu(), static_cast<int>(core.cpu));
      EXPECT_EQ(usable_cores(), 1u) << "the calling thread's mask counts";
    }).join();
  }
}

TEST(Topo, ACoreThatIsNotThereIsNamed) {
  std::thread([] {
    const auto pinned = pin(Core{60'000, 0, 0, 0});
    ASSERT_FALSE(pinned);
    EXPECT_EQ(pinned.error().code, Errc::limit);
    EXPECT_NE(pinned.error().message.find("60000"), std::string::npos);
  }).join();
}

TEST(Topo, DescribesItself) {
  const auto machine = Machine::discover();
  ASSERT_TRUE(machine);
  const std::string text = machine->describe();
  EXPECT_NE(text.find("physical"), std::string::npos) << text;
  EXPECT_NE(text.find("NUMA node"), std::string::npos) << text;
}

}  // namespace
}  // namespace kasane::topo
