// SPDX-License-Identifier: Apache-2.0
#include "topo/topo.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>
#include <thread>

#include "topo/numa.h"

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

constexpr std::size_t kOsPage = 4096;

/// A memory file of so many bytes, mapped twice; its pages are of byte 7, but for the last one, which is
/// absent.
struct MappedTwice {
  explicit MappedTwice(std::size_t n) : bytes(n), file(::memfd_create("topo-test", MFD_CLOEXEC)) {
    if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
    for (std::byte*& view : views)
      view = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    std::memset(views[0], 7, bytes - kOsPage);
  }
  ~MappedTwice() {
    for (std::byte* view : views) ::munmap(view, bytes);
    ::close(file);
  }
  [[nodiscard]] bool same() const {
    const auto part = std::span(views[0], bytes - kOsPage);
    return std::all_of(part.begin(), part.end(), [](std::byte b) { return b == std::byte{7}; });
  }
  std::size_t bytes;
  int file;
  std::array<std::byte*, 2> views{};
};

// To each node that there is, and back; also what only one of the mappings has touched.
TEST(Topo, PagesMoveToTheNodesThatAreNamed) {
  MappedTwice memory(kMovedAtOnce + 16 * kOsPage);
  for (std::size_t at = 0; at < kMovedAtOnce; at += 2 * kOsPage)
    (void)*static_cast<volatile std::byte*>(memory.views[1] + at);
  const NodeSet all = memory_nodes();
  for (std::uint32_t node = 0; node < kMostNumaNodes; ++node) {
    if (!all[node]) continue;
    const NodeSet wanted = NodeSet().set(node);
    NodeSet room = wanted;
    const auto stay = move_to_nodes(memory.views[0], memory.views[1], memory.bytes, wanted, room);
    ASSERT_TRUE(stay) << stay.error().message;
    EXPECT_EQ(*stay, 0u);
    NumaPages pages;
    ASSERT_TRUE(count_pages(memory.views[1], memory.bytes, wanted, pages));
    EXPECT_EQ(pages.on.at(node), memory.bytes / kOsPage - 1);
    EXPECT_EQ(pages.misplaced, 0u);
    EXPECT_EQ(pages.absent, 1u);
    EXPECT_TRUE(memory.same());
  }
}

TEST(Topo, PagesStayThatNoNodeTakes) {
  MappedTwice memory(kMovedAtOnce + 16 * kOsPage);
  const NodeSet nowhere = NodeSet().set(kMostNumaNodes - 1);
  ASSERT_FALSE(memory_nodes()[kMostNumaNodes - 1]);
  NodeSet room = nowhere;
  const auto stay = move_to_nodes(memory.views[0], memory.views[1], memory.bytes, nowhere, room);
  ASSERT_TRUE(stay) << stay.error().message;
  EXPECT_EQ(*stay, memory.bytes / kOsPage - 1) << "all that are present";
  EXPECT_TRUE(memory.same());
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
