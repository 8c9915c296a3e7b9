// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace kasane {
namespace {

TEST(Json, WritesMembersInOrder) {
  const std::string path = ::testing::TempDir() + "kasane_json_test." + std::to_string(::getpid());
  ASSERT_TRUE(write_json_file(path, Json{{"zeta", 1}, {"alpha", {1.5, "two"}}}));
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_LT(text.str().find("zeta"), text.str().find("alpha"));
  EXPECT_EQ(text.str().back(), '\n');
  EXPECT_EQ(Json::parse(text.str())["alpha"][1], "two");
  std::remove(path.c_str());
}

TEST(Json, TextThatIsNotUtf8IsReplaced) {
  const std::string path = ::testing::TempDir() + "kasane_json_utf8." + std::to_string(::getpid());
  EXPECT_TRUE(write_json_file(path, Json{{"file",
                                          "a\xff"
                                          "b"}}));
  std::remove(path.c_str());
}

TEST(Json, FailuresNameTheFileAndTheReason) {
  const auto missing = write_json_file("/nonexistent/dir/out.json", Json{});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::io);
  EXPECT_NE(missing.error().message.find("/nonexistent/dir/out.json"), std::string::npos);
  EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
}

TEST(Json, AFullDeviceIsAnError) {
  const auto full = write_json_file("/dev/full", Json{{"a", 1}});
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("No space left"), std::string::npos);
}

}  // namespace
}  // namespace kasane
