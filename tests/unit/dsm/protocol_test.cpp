// SPDX-License-Identifier: Apache-2.0
// The short questions that the coherence protocol of a block answers, against next(), in every state that a
// word can have.
#include <gtest/gtest.h>

#include "dsm/protocol.h"

namespace kasane::dsm {
namespace {

template <class F>
void for_each_state(const F& f) {
  for (const std::uint32_t pins : {0u, 1u, 7u}) {
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
      const BlockState s = BlockState::of(bits | pins << 8);
      if (s.check() && s.access <= Access::write) f(s);
    }
  }
}

TEST(Protocol, WhatIsShownNeedsNothingForAPinButToBeCounted) {
  int shown = 0, others = 0;
  for_each_state([&](const BlockState& s) {
    for (const Use use : {Use::read, Use::read_write, Use::write_only}) {
      for (const bool covered : {false, true}) {
        const BlockStep step = next(s, pin_event(use, covered));
        BlockState counted = s;
        ++counted.pins;
        const bool only_counts =
            step.verdict == Verdict::proceed && step.actions[0] == Action::end && step.after == counted;
        ASSERT_EQ(shows(s, use), only_counts)
            << s.word() << ", use " << static_cast<int>(use) << (covered ? ", covered" : "");
        ++(only_counts ? shown : others);
      }
    }
  });
  EXPECT_GT(shown, 50);
  EXPECT_GT(others, 50);
}

TEST(Protocol, AnUnpinOfAFreeBlockOnlyCounts) {
  for_each_state([](const BlockState& s) {
    if (s.busy || s.pins == 0) return;
    const BlockStep step = next(s, BlockEvent::unpin);
    BlockState counted = s;
    --counted.pins;
    ASSERT_TRUE(step.verdict == Verdict::proceed && step.actions[0] == Action::end && step.after == counted)
        << s.word();
  });
}

// Of a page of this rank's that readers have, retired blocks would else count as changed at each release.
TEST(Protocol, AWatchedPageHasNoBlockThatMayHaveChanged) {
  for_each_state([](const BlockState& s) {
    if (s.busy || !s.owned || s.saved || s.pins != 0) return;
    const BlockStep step = next(s, BlockEvent::watch);
    const BlockState after = step.verdict == Verdict::proceed ? step.after : s;
    ASSERT_TRUE(after.access == Access::read && !may_have_changed(after)) << s.word();
    ASSERT_EQ(next(after, BlockEvent::store).actions[0], Action::mark_page) << s.word();
  });
}

}  // namespace
}  // namespace kasane::dsm
