// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/process.h"

namespace kasane {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    set_log_level(LogLevel::warning);
    set_process_rank(kNoRank);
    set_thread_role("");
  }
};

TEST_F(LogTest, ALineSaysLevelRankThreadAndText) {
  set_process_rank(Rank{3});
  set_thread_role("service");
  ::testing::internal::CaptureStderr();
  log(LogLevel::warning, "page {} of {}", 7, std::string("heap"));
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(" warning [rank 3 service] page 7 of heap\n"), std::string::npos) << line;
}

TEST_F(LogTest, BelowTheLevelNothingIsWritten) {
  set_log_level(LogLevel::error);
  ::testing::internal::CaptureStderr();
  log(LogLevel::warning, "not {}", "seen");
  log(LogLevel::error, "{}", "seen");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("not"), std::string::npos);
  EXPECT_NE(text.find("seen"), std::string::npos);
  EXPECT_FALSE(log_enabled(LogLevel::off));
}

TEST_F(LogTest, LongMessagesAndBracesArriveWhole) {
  std::string body(3000, 'y');
  body += "{}%n";
  ::testing::internal::CaptureStderr();
  log(LogLevel::error, "{}", body);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(body), std::string::npos);
}

TEST_F(LogTest, LinesOfThreadsDoNotMix) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) log(LogLevel::error, "<{}>", std::string(40, static_cast<char>('a' + t)));
    });
  for (auto& t : threads) t.join();
  const std::string text = ::testing::internal::GetCapturedStderr();
  std::size_t whole = 0;
  for (int t = 0; t < 4; ++t) {
    const std::string line = "<" + std::string(40, static_cast<char>('a' + t)) + ">\n";
    for (std::size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++whole;
  }
  EXPECT_EQ(whole, 200u);
}

TEST_F(LogTest, LevelsByName) {
  EXPECT_EQ(parse_log_level("trace").value(), LogLevel::trace);
  EXPECT_EQ(parse_log_level("off").value(), LogLevel::off);
  const auto wrong = parse_log_level("loud");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("loud"), std::string::npos);
  EXPECT_NE(wrong.error().message.find("warning"), std::string::npos);
}

}  // namespace
}  // namespace kasane
