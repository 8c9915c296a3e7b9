// SPDX-License-Identifier: Apache-2.0
// The disk of a directory, and its setting, in folders like the kernel's.
#include "mem/spill_disk.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include "support/folder.h"

namespace kasane::mem {
namespace {

namespace fs = std::filesystem;

class SpillDiskTest : public testing::Test {
 protected:
  SpillDiskTest() { fs::create_directories(numbers()); }
  [[nodiscard]] fs::path numbers() const { return fs::path(kernel_.path()) / "dev" / "block"; }
  [[nodiscard]] fs::path devices() const { return fs::path(kernel_.path()) / "devices"; }
  void disk(const std::string& name, int rq_affinity) {
    fs::create_directories(devices() / name / "queue");
    fs::create_directories(devices() / name / "slaves");
    std::ofstream(devices() / name / "queue" / "rq_affinity") << rq_affinity << "\n";
  }
  void partition(const std::string& name) {
    fs::create_directories(devices() / name);
    std::ofstream(devices() / name / "partition") << "1\n";
  }
  /// The spill directory is on this device.
  void mount(const std::string& name) {
    struct stat s{};
    ASSERT_EQ(::stat(kernel_.path().c_str(), &s), 0);
    fs::create_directory_symlink(devices() / name,
                                 numbers() / fmt::format("{}:{}", major(s.st_dev), minor(s.st_dev)));
  }
  [[nodiscard]] std::optional<SpillDisk> look() const { return spill_disk(kernel_.path(), numbers()); }

  test::Folder kernel_;
};

TEST_F(SpillDiskTest, ADisk) {
  disk("vda", 1);
  mount("vda");
  ASSERT_TRUE(look());
  EXPECT_FALSE(look()->ends_where_asked);
  EXPECT_EQ(fs::path(look()->setting), fs::canonical(devices() / "vda/queue/rq_affinity"));
  disk("vda", 2);
  EXPECT_TRUE(look()->ends_where_asked);
}

TEST_F(SpillDiskTest, APartitionIsOfItsDisk) {
  disk("sda", 2);
  partition("sda/sda1");
  mount("sda/sda1");
  ASSERT_TRUE(look());
  EXPECT_TRUE(look()->ends_where_asked);
}

TEST_F(SpillDiskTest, AVolumeIsOfWhatItLiesOn) {
  disk("nvme0n1", 2);
  partition("nvme0n1/nvme0n1p3");
  disk("dm-0", 1);
  fs::create_directory_symlink(devices() / "nvme0n1/nvme0n1p3", devices() / "dm-0/slaves/nvme0n1p3");
  mount("dm-0");
  ASSERT_TRUE(look());
  EXPECT_TRUE(look()->ends_where_asked);
  disk("sdb", 1);
  fs::create_directory_symlink(devices() / "sdb", devices() / "dm-0/slaves/sdb");
  EXPECT_FALSE(look());  // of several
}

TEST_F(SpillDiskTest, NoDiskThatIsKnown) {
  EXPECT_FALSE(look());
  EXPECT_FALSE(spill_disk(kernel_.file("missing"), numbers()));
}

}  // namespace
}  // namespace kasane::mem
