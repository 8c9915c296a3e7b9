// SPDX-License-Identifier: Apache-2.0
#include "topo/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace kasane::topo {
namespace {

class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest() { std::filesystem::create_directories(root); }
  ~CgroupTest() override { std::filesystem::remove_all(root); }
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  [[nodiscard]] std::optional<double> quota() const { return cpu_quota(root + "/groups", root + "/fs"); }
  [[nodiscard]] std::optional<std::uint64_t> memory() const {
    return memory_limit(root + "/groups", root + "/fs");
  }
  std::string root = ::testing::TempDir() + "kasane_cgroup." + std::to_string(::getpid());
};

TEST_F(CgroupTest, WithoutGroupsThereIsNoQuota) {
  EXPECT_FALSE(quota());
  write("groups", "0::/");
  EXPECT_FALSE(quota());
}

TEST_F(CgroupTest, TheLeastQuotaUpwardsCounts) {
  write("groups", "0::/system/job");
  write("fs/system/job/cpu.max", "max 100000");
  EXPECT_FALSE(quota());
  write("fs/system/cpu.max", "150000 100000");
  EXPECT_DOUBLE_EQ(quota().value(), 1.5);
  write("fs/system/job/cpu.max", "50000 100000");
  EXPECT_DOUBLE_EQ(quota().value(), 0.5);
}

// In a container the path is the host's, and the mount is the container's own group.
TEST_F(CgroupTest, ThePathNeedNotBeMounted) {
  write("groups", "0::/docker/0123456789abcdef");
  write("fs/cpu.max", "200000 100000");
  EXPECT_DOUBLE_EQ(quota().value(), 2);
}

TEST_F(CgroupTest, VersionOne) {
  write("groups", "5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/job");
  write("fs/cpu/job/cpu.cfs_quota_us", "-1");
  write("fs/cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_FALSE(quota());
  write("fs/cpu/job/cpu.cfs_quota_us", "400000");
  EXPECT_DOUBLE_EQ(quota().value(), 4);
}

TEST_F(CgroupTest, TheLeastRoomForProcessesUpwardsCounts) {
  const auto limit = [this] { return process_limit(root + "/groups", root + "/fs"); };
  write("groups", "8:pids:/job\n0::/outer/job");
  EXPECT_FALSE(limit());
  write("fs/outer/job/pids.max", "max");
  write("fs/outer/job/pids.current", "3");
  EXPECT_FALSE(limit());
  write("fs/outer/pids.max", "100");
  write("fs/outer/pids.current", "40");
  ASSERT_TRUE(limit());
  EXPECT_EQ(limit()->room(), 60u);
  write("fs/pids/job/pids.max", "50");  // version 1
  write("fs/pids/job/pids.current", "51");
  EXPECT_EQ(limit()->room(), 0u);
  EXPECT_EQ(limit()->most, 50u);
  EXPECT_EQ(limit()->file, root + "/fs/pids/job/pids.max");
}

TEST_F(CgroupTest, TheLeastMemoryUpwardsCounts) {
  EXPECT_FALSE(memory());
  write("groups", "0::/system/job");
  write("fs/system/job/memory.max", "max");
  EXPECT_FALSE(memory());
  write("fs/system/memory.max", "4096000");
  EXPECT_EQ(memory(), 4096000u);
  write("fs/system/job/memory.high", "2048000");
  EXPECT_EQ(memory(), 2048000u);
}

TEST_F(CgroupTest, TheLeastRoomForMemoryUpwardsCounts) {
  const auto room = [this] { return memory_room(root + "/groups", root + "/fs"); };
  write("groups", "7:memory:/job\n0::/outer/job");
  EXPECT_FALSE(room());
  write("fs/outer/job/memory.max", "max");
  write("fs/outer/job/memory.current", "3000");
  EXPECT_FALSE(room());
  write("fs/outer/memory.max", "9000");
  write("fs/outer/memory.current", "8000");
  EXPECT_EQ(room(), 1000u);
  write("fs/outer/memory.stat", "anon 1500\ninactive_file 6500\nactive_file 0");
  EXPECT_EQ(room(), 7500u);
  write("fs/memory/job/memory.limit_in_bytes", "700");  // version 1
  write("fs/memory/job/memory.usage_in_bytes", "800");
  EXPECT_EQ(room(), 0u);
  write("fs/memory/job/memory.stat", "inactive_file 800\ntotal_inactive_file 300");
  EXPECT_EQ(room(), 200u);
}

TEST_F(CgroupTest, MemoryOfVersionOne) {
  write("groups", "5:memory:/job\n4:cpu,cpuacct:/job");
  write("fs/memory/memory.limit_in_bytes", "9223372036854771712");  // none
  EXPECT_FALSE(memory());
  write("fs/memory/job/memory.limit_in_bytes", "1048576");
  EXPECT_EQ(memory(), 1048576u);
}

TEST_F(CgroupTest, NonsenseIsNoQuota) {
  write("groups", "0::/job\nrubbish");
  write("fs/job/cpu.max", "ten 0");
  EXPECT_FALSE(quota());
}

}  // namespace
}  // namespace kasane::topo
