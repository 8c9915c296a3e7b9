// SPDX-License-Identifier: Apache-2.0
// When an unlock releases: of a mutex that goes to and fro, not of one of many, and not where the same rank
// takes it again at once.
#include "ult/sync/release_guess.h"

#include <gtest/gtest.h>

namespace kasane::ult::test {
namespace {

constexpr std::uint64_t kLater = ReleaseGuess::kSoonNs;

/// A takeover after so many releases of the last rank, then the first unlock. Does it release?
bool turn(ReleaseGuess& guess, std::uint32_t releases) {
  guess.taken_over(releases);
  const bool releases_now = guess.releases();
  if (releases_now) guess.released();
  return releases_now;
}

TEST(ReleaseGuess, WhoHadToAskReleasesBeforeTheNext) {
  ReleaseGuess guess;
  EXPECT_TRUE(turn(guess, 0));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(turn(guess, 1)) << "the unlock's own release is the last one";
}

TEST(ReleaseGuess, OtherReleasesOfTheRankDo) {
  ReleaseGuess guess;
  EXPECT_FALSE(turn(guess, 1)) << "no unlock has released";
  EXPECT_TRUE(turn(guess, 0));
  EXPECT_FALSE(turn(guess, 2)) << "another one has come after the unlock's";
  EXPECT_FALSE(turn(guess, 1));
  EXPECT_TRUE(turn(guess, 0)) << "asked again";
}

TEST(ReleaseGuess, ARankThatTakesItAgainSoonDoesWithoutForAWhile) {
  ReleaseGuess guess;
  EXPECT_TRUE(turn(guess, 0));
  guess.unlocked_again(kLater - 1);
  for (std::uint64_t i = 0; i < ReleaseGuess::kWithout; ++i) EXPECT_FALSE(turn(guess, 0));
  EXPECT_TRUE(turn(guess, 0));
}

TEST(ReleaseGuess, LaterItTellsNothing) {
  ReleaseGuess guess;
  EXPECT_TRUE(turn(guess, 0));
  guess.unlocked_again(kLater);
  guess.unlocked_again(0);
  EXPECT_FALSE(turn(guess, 1)) << "that was not the release of the last unlock";
  EXPECT_TRUE(turn(guess, 0));
}

}  // namespace
}  // namespace kasane::ult::test
