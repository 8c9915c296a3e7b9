// SPDX-License-Identifier: Apache-2.0
// What a transport owes to a rank whose peer is killed: every operation towards it ends, with peer_lost, and
// the program is told once.
#include <cstdlib>

#include "victim.h"

namespace kasane::comm::test {
namespace {

struct Outcome : Completion {
  std::atomic<int> times{0};
  Outcome() {
    fn = [](Completion* self) noexcept { static_cast<Outcome*>(self)->times.fetch_add(1); };
  }
};

struct Told {
  std::atomic<int> times{0};
  std::atomic<std::uint32_t> rank{99};
  std::atomic<std::size_t> words{0};
};

/// Posts one operation of each kind to rank 1 and returns how many are under way.
int post_one_of_each(Transport& t, std::vector<Outcome>& outcomes, std::byte* buffer) {
  const RemoteAddr at{Rank{1}, kRegion, 64};
  const Post posts[] = {t.write(at, buffer, 100'000, &outcomes[0]),
                        t.read(at, buffer, 100'000, &outcomes[1]),
                        t.atomic(AtomicOp::fetch_add, at, 1, 0, nullptr, &outcomes[2]),
                        t.write_notify(at, buffer, 100'000, 8, 1, &outcomes[3]),
                        t.write(at, buffer, 8, &outcomes[4]),
                        t.fence(Rank{1}, &outcomes[5])};
  int pending = 0;
  for (std::size_t i = 0; i < std::size(posts); ++i) {
    EXPECT_NE(posts[i], Post::again) << i;
    // A fence has nothing to wait for once everything before it has ended.
    if (i != 5) {
      EXPECT_EQ(posts[i], Post::pending) << i;
    }
    if (posts[i] == Post::pending) ++pending;
  }
  return pending;
}

void expect_all_lost(Transport& t, std::vector<Outcome>& outcomes, int pending) {
  PollWaiter waiter(t);
  waiter.until([&] {
    int ended = 0;
    for (auto& o : outcomes) ended += o.times.load();
    return ended >= pending;
  });
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_LE(outcomes[i].times.load(), 1) << i;
    if (outcomes[i].times.load() == 1) {
      EXPECT_EQ(outcomes[i].status, Status::peer_lost) << i;
    }
  }
}

void serve_sevens(Transport& t, int fd, std::byte* memory) {
  t.set_handler(
      HandlerId{1},
      [](void* self, const Message& m) noexcept { static_cast<Transport*>(self)->reply(m.token, 7); }, &t);
  ASSERT_TRUE(t.attach(kRegion, fd, memory, kRegionBytes));
}

class LostPeer : public ::testing::TestWithParam<Kind> {};

TEST_P(LostPeer, EndsEverythingTowardsItAndIsReportedOnce) {
  ::setenv("UCX_KEEPALIVE_INTERVAL", "100ms",
           1);  // how soon UCX's shared memory looks whether its peers live
  beside_a_victim(GetParam(), serve_sevens, [](Transport& t, pid_t victim) {
    if (!notices_lost_peers(t)) {
      ::kill(victim, SIGKILL);
      return;
    }
    Told told;
    t.set_peer_lost(
        [](void* context, Rank peer, std::string_view why) noexcept {
          auto& self = *static_cast<Told*>(context);
          self.rank.store(raw(peer));
          self.words.store(why.size());
          self.times.fetch_add(1);
        },
        &told);
    PollWaiter waiter(t);
    std::vector<std::byte> buffer(100'000);
    // While it lives, everything works.
    Blocking(t, waiter).write({Rank{1}, kRegion, 0}, buffer.data(), buffer.size());
    EXPECT_EQ(Blocking(t, waiter).request(Rank{1}, HandlerId{1}, {}), 7u);
    // Under way towards a peer that answers nothing any more, and then is killed.
    stop(victim);
    std::vector<Outcome> before(6), after(6);
    const int before_pending = post_one_of_each(t, before, buffer.data());
    PendingReply request;
    ASSERT_EQ(t.request(Rank{1}, HandlerId{1}, {}, request), Post::pending);
    ::kill(victim, SIGKILL);
    expect_all_lost(t, before, before_pending);
    std::uint64_t value = 0;
    waiter.until([&] { return t.test(request, &value); });
    EXPECT_EQ(request.status, Status::peer_lost);
    waiter.until([&] { return told.times.load() != 0; });
    EXPECT_EQ(told.rank.load(), 1u);
    EXPECT_GT(told.words.load(), 0u);
    // Later posts end the same way.
    expect_all_lost(t, after, post_one_of_each(t, after, buffer.data()));
    PendingReply late;
    ASSERT_EQ(t.request(Rank{1}, HandlerId{1}, {}, late), Post::pending);
    waiter.until([&] { return t.test(late, &value); });
    EXPECT_EQ(late.status, Status::peer_lost);
    EXPECT_EQ(t.send(Rank{1}, HandlerId{1}, {}), Post::done);
    t.wake(Rank{1}, Doorbell::messages);
    // Ourselves, we are still there.
    EXPECT_EQ(t.atomic(AtomicOp::fetch_add, {Rank{0}, kRegion, 8}, 5, 0, &value, nullptr), Post::done);
    for (int i = 0; i < 1000; ++i) t.progress();
    EXPECT_EQ(told.times.load(), 1);
  });
}

// Queues that the peer has left full let everything through: nothing is answered `again` for ever.
TEST_P(LostPeer, TakesAnyNumberOfMessages) {
  ::setenv("UCX_KEEPALIVE_INTERVAL", "100ms", 1);
  beside_a_victim(GetParam(), serve_sevens, [](Transport& t, pid_t victim) {
    if (!notices_lost_peers(t)) {
      ::kill(victim, SIGKILL);
      return;
    }
    PollWaiter waiter(t);
    // UCX notices nothing before its connection stands on all of its paths: hence the write.
    const std::vector<std::byte> large(100'000);
    Blocking(t, waiter).write({Rank{1}, kRegion, 0}, large.data(), large.size());
    EXPECT_EQ(Blocking(t, waiter).request(Rank{1}, HandlerId{1}, {}), 7u);
    stop(victim);
    std::vector<PendingReply> requests(10);
    for (auto& r : requests) ASSERT_EQ(t.request(Rank{1}, HandlerId{1}, {}, r), Post::pending);
    const std::vector<std::byte> payload(kMaxPayload);
    int sent = 0;
    while (sent < 10'000 && t.send(Rank{1}, HandlerId{1}, payload) == Post::done) ++sent;
    EXPECT_LT(sent, 10'000);  // it is full
    ::kill(victim, SIGKILL);
    waiter.until([&] { return t.send(Rank{1}, HandlerId{1}, payload) == Post::done; });
    for (int i = 0; i < 2000; ++i)
      waiter.until([&] { return t.send(Rank{1}, HandlerId{1}, payload) == Post::done; });
    for (int i = 0; i < 3000; ++i) {
      PendingReply& r = requests.emplace_back();
      waiter.until([&] { return t.request(Rank{1}, HandlerId{1}, payload, r) == Post::pending; });
      if (i < 500) continue;  // those wait together with the first ten
      std::uint64_t value = 0;
      waiter.until([&] { return t.test(r, &value); });
      EXPECT_EQ(r.status, Status::peer_lost);
      requests.pop_back();
    }
    for (auto& r : requests) {
      std::uint64_t value = 0;
      waiter.until([&] { return t.test(r, &value); });
      EXPECT_EQ(r.status, Status::peer_lost);
    }
  });
}

std::vector<Kind> networks() {
  std::vector<Kind> kinds;
  if (ucx::available()) kinds = {Kind::ucx, Kind::ucx_tcp};
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Transports, LostPeer, ::testing::ValuesIn(networks()),
                         [](const auto& param) { return name_of(param.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LostPeer);

}  // namespace
}  // namespace kasane::comm::test
