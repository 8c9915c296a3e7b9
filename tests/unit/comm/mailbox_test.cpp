// SPDX-License-Identifier: Apache-2.0
// The parts that transports have in common: slots for answers, and messages of a rank to itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "comm/mailbox_own.h"
#include "comm/mailbox_replies.h"

namespace kasane::comm {
namespace {

constexpr Rank kPeer{3};
constexpr auto kSent = [](std::uint32_t, std::uint64_t) { return Post::done; };
constexpr auto kHere = [](Rank) { return false; };
constexpr auto kLost = [](Rank) { return true; };

TEST(ReplySlots, AnAnswerEndsItsRequestOnce) {
  ReplySlots slots(2);
  PendingReply pending;
  ASSERT_EQ(slots.request(kPeer, pending, kSent), Post::pending);
  EXPECT_EQ(pending.to, kPeer);
  const PendingReply token = pending;
  std::uint64_t value = 0;
  EXPECT_FALSE(slots.test(pending, &value, kHere));
  EXPECT_FALSE(slots.answer(token.slot, token.stamp + 1, 7));  // of another request
  EXPECT_TRUE(slots.answer(token.slot, token.stamp, 8));
  EXPECT_FALSE(slots.answer(token.slot, token.stamp, 9));
  ASSERT_TRUE(slots.test(pending, &value, kHere));
  EXPECT_EQ(value, 8u);
  EXPECT_EQ(pending.status, Status::ok);
  EXPECT_DEATH((void)slots.test(pending, &value, kHere), "taken already");
}

TEST(ReplySlots, RefusesWhenAllAreInUseAndWhenTheMessageIsRefused) {
  ReplySlots slots(2);
  PendingReply a{.doorbell_delay_ns = 5}, b, c;
  const auto refused = [](std::uint32_t, std::uint64_t) { return Post::again; };
  EXPECT_EQ(slots.request(kPeer, a, refused), Post::again);
  EXPECT_EQ(a.stamp, 0u);
  EXPECT_EQ(a.doorbell_delay_ns, 5u);
  EXPECT_EQ(slots.request(kPeer, a, kSent), Post::pending);
  EXPECT_EQ(slots.request(kPeer, b, kSent), Post::pending);
  EXPECT_NE(a.slot, b.slot);
  EXPECT_EQ(slots.request(kPeer, c, kSent), Post::again);
  slots.answer_waiting(a.slot, 1);
  ASSERT_TRUE(slots.test(a, nullptr, kHere));
  EXPECT_EQ(slots.request(kPeer, c, kSent), Post::pending);
}

TEST(ReplySlots, AnAnswerThatComesAfterItsRequestWasGivenUpIsDropped) {
  ReplySlots slots(1);
  PendingReply old, next;
  ASSERT_EQ(slots.request(kPeer, old, kSent), Post::pending);
  const PendingReply token = old;
  ASSERT_TRUE(slots.test(old, nullptr, kLost));
  EXPECT_EQ(old.status, Status::peer_lost);
  EXPECT_FALSE(slots.answer(token.slot, token.stamp, 1));
  slots.answer_waiting(token.slot, 1);
  ASSERT_EQ(slots.request(kPeer, next, kSent), Post::pending);
  EXPECT_FALSE(slots.answer(token.slot, token.stamp, 1));
  EXPECT_FALSE(slots.test(next, nullptr, kHere));
  EXPECT_TRUE(slots.answer(next.slot, next.stamp, 2));
  EXPECT_TRUE(slots.test(next, nullptr, kLost));  // an answer that has come counts
  EXPECT_EQ(next.status, Status::ok);
}

TEST(ReplySlots, AnAnswersBytesGoWhereThereIsRoom) {
  ReplySlots slots(3);
  ASSERT_TRUE(slots.reserve_bytes());
  std::vector<std::byte> bytes(kMaxAnswer, std::byte{5}), into(100);
  for (const std::size_t sent : {std::size_t{0}, std::size_t{60}, kMaxAnswer}) {
    std::ranges::fill(into, std::byte{0});
    PendingReply pending{.into = into};
    ASSERT_EQ(slots.request(kPeer, pending, kSent), Post::pending);
    ASSERT_TRUE(slots.answer(pending.slot, pending.stamp, 1, std::span(bytes).first(sent)));
    ASSERT_TRUE(slots.test(pending, nullptr, kHere));
    EXPECT_EQ(pending.brought, std::min(sent, into.size()));
    EXPECT_EQ(std::ranges::count(into, std::byte{5}), static_cast<std::ptrdiff_t>(pending.brought));
  }
}

TEST(OwnMessages, EachIsTakenOnce) {
  OwnMessages messages;
  EXPECT_TRUE(messages.empty());
  std::uint32_t sent = 0;
  while (messages.put(HandlerId{1}, std::as_bytes(std::span(&sent, 1)), sent, sent)) ++sent;
  EXPECT_EQ(sent, 256u);
  std::set<std::uint64_t> taken;
  while (const OwnMessage* m = messages.front()) {
    EXPECT_EQ(m->bytes, sizeof(sent));
    EXPECT_EQ(m->slot, m->stamp);
    EXPECT_EQ(*reinterpret_cast<const std::uint32_t*>(m->payload), m->slot);
    taken.insert(m->stamp);
    messages.pop();
    if (taken.size() == 1) {
      EXPECT_TRUE(
          messages.put(HandlerId{1}, std::as_bytes(std::span(&sent, 1)), sent, sent));  // its slot is free
    }
  }
  EXPECT_EQ(taken.size(), sent + 1);
  EXPECT_TRUE(messages.empty());
}

}  // namespace
}  // namespace kasane::comm
