// SPDX-License-Identifier: Apache-2.0
// Output does not go through a link that another user has put where all may write.
#include "base/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace kasane {
namespace {

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "output" + std::to_string(::getpid());
    std::filesystem::create_directory(path_);
    std::ofstream(path_ + "/own") << "mine";
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string own() const {
    std::string text;
    std::getline(std::ifstream(path_ + "/own"), text);
    return text;
  }
  void link_of(uid_t user) const {
    ::unlink((path_ + "/link").c_str());
    std::filesystem::create_symlink(path_ + "/own", path_ + "/link");
    ASSERT_TRUE(user == 0 || ::lchown((path_ + "/link").c_str(), user, user) == 0);
  }

  std::string path_;
};

TEST_F(Folder, OwnLinksAreFollowed) {
  ASSERT_EQ(::chmod(path_.c_str(), 01777), 0);
  link_of(0);
  std::FILE* const file = open_output(path_ + "/link");
  ASSERT_NE(file, nullptr);
  std::fputs("new", file);
  std::fclose(file);
  EXPECT_EQ(own(), "new");
}

TEST_F(Folder, LinksOfOthersAreNotFollowedWhereAllMayWrite) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make a link of another user";
  ASSERT_EQ(::chmod(path_.c_str(), 01777), 0);
  link_of(65534);
  EXPECT_EQ(open_output(path_ + "/link"), nullptr);
  EXPECT_EQ(errno, EACCES);
  EXPECT_FALSE(write_json_file(path_ + "/link", Json::object()).has_value());
  EXPECT_EQ(own(), "mine");
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);  // who may write there is trusted
  std::FILE* const file = open_output(path_ + "/link");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
}

TEST_F(Folder, NewFilesAndDevices) {
  for (const std::string& path : {path_ + "/new", std::string("/dev/null"), std::string("/dev/fd/2")}) {
    std::FILE* const file = open_output(path);
    EXPECT_NE(file, nullptr) << path;
    if (file != nullptr) std::fclose(file);
  }
  EXPECT_EQ(open_output(path_ + "/none/new"), nullptr);
}

}  // namespace
}  // namespace kasane
