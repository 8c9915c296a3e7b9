// SPDX-License-Identifier: Apache-2.0
// The kernel's settings of frame sizes, read from a folder like the kernel's.
#include "mem/large_frames.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/folder.h"

namespace kasane::mem {
namespace {

class LargeFrames : public testing::Test {
 protected:
  void set(const std::string& size, const std::string& words) {
    const std::string folder = size.empty() ? settings_.path() : settings_.file("hugepages-" + size);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/shmem_enabled") << words << "\n";
  }
  test::Folder settings_;
};

TEST_F(LargeFrames, AreWhatTheKernelGivesToWhoAsks) {
  EXPECT_EQ(large_frame_bytes(settings_.path()), 0u);  // older than Linux 6.10
  set("", "always within_size advise [never] deny force");
  set("64kB", "always inherit within_size advise [never]");
  set("2048kB", "always [inherit] within_size advise never");
  EXPECT_EQ(large_frame_bytes(settings_.path()), 0u);
  set("64kB", "always inherit within_size [advise] never");
  EXPECT_EQ(large_frame_bytes(settings_.path()), 64u << 10);
  set("", "always within_size [advise] never deny force");
  EXPECT_EQ(large_frame_bytes(settings_.path()), 2u << 20);
}

}  // namespace
}  // namespace kasane::mem
