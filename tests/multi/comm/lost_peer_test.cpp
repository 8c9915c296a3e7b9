// SPDX-License-Identifier: Apache-2.0
// What a transport owes to a rank whose peer is killed: every operation towards it ends, with peer_lost, and the program is told once.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "every_transport.h"

namespace kasane::comm::test {
namespace {

struct Shared {
  std::atomic<int> victim{0};    ///< its process
};

/// Creates a network transport of this rank over shm, attaches kRegion, and runs body.
void with_network(const Job& job, Kind kind, const std::function<void(Transport&)>& body) {
  auto host = shm::create(job);
  ASSERT_TRUE(host) << host.error().message;
  PollWaiter host_waiter(**host);
  Collectives host_all(**host, host_waiter);
  OverTransport exchange(**host, host_all);
  Bells bells{};
  auto network = make_ucx(kind, exchange, bells);
  ASSERT_TRUE(network) << network.error().message;
  const int fd = make_memfd(kRegionBytes);
  auto* memory = static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_TRUE((*network)->attach(kRegion, fd, memory, kRegionBytes));
  body(**network);
}

pid_t fork_rank(Job job, std::uint32_t rank, int pipe, const std::function<void(const Job&)>& body) {
  job.rank = Rank{rank};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  kasane::test::detail::run_child(job, body, pipe);
}

/// Runs survivor as rank 0 of two; rank 1 serves until it is killed.
void beside_a_victim(Kind kind, const std::function<void(Transport&, pid_t victim)>& survivor) {
  void* p = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(p, MAP_FAILED);
  auto& shared = *new (p) Shared;
  auto job = create_job(2, shm::job_bytes(2));
  ASSERT_TRUE(job) << job.error().message;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t victim = fork_rank(*job, 1, ends[1], [&](const Job& j) {
    with_network(j, kind, [&](Transport& t) {
      t.set_handler(HandlerId{1}, [](void* self, const Message& m) noexcept { static_cast<Transport*>(self)->reply(m.token, 7); }, &t);
      shared.victim.store(::getpid());
      for (;;) t.progress();
    });
  });
  kasane::test::detail::Child child;
  child.pid = fork_rank(*job, 0, ends[1], [&](const Job& j) {
    with_network(j, kind, [&](Transport& t) {
      while (shared.victim.load() == 0) t.progress();
      survivor(t, shared.victim.load());
    });
  });
  ::close(ends[1]);
  kasane::test::detail::close_job(*job);
  child.pipe = ends[0];
  // The pipe ends when both have: the survivor kills the victim, and the deadline both.
  bool reaped = false;
  for (int tenths = 0; child.pipe >= 0; ++tenths) {
    // At once: UCX's shared memory looks for the process, and finds it until it was waited for.
    reaped = reaped || ::waitpid(victim, nullptr, WNOHANG) == victim;
    pollfd fd{.fd = child.pipe, .events = POLLIN, .revents = 0};
    if (::poll(&fd, 1, 100) > 0) kasane::test::detail::drain(child);
    if (tenths == 300) {
      ADD_FAILURE() << "the survivor had not ended after 30 s";
      ::kill(child.pid, SIGKILL);
      if (!reaped) ::kill(victim, SIGKILL);
    }
  }
  kasane::test::detail::report(child, 0, false);
  if (!reaped) ::waitpid(victim, nullptr, 0);
  ::munmap(p, sizeof(Shared));
}

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

/// Returns once the process runs no more: SIGSTOP alone only asks for it.
void stop(pid_t process) {
  ::kill(process, SIGSTOP);
  for (char state = '?'; state != 'T';) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string number, name;
    stat >> number >> name >> state;
  }
}

class LostPeer : public ::testing::TestWithParam<Kind> {};

TEST_P(LostPeer, EndsEverythingTowardsItAndIsReportedOnce) {
  ::setenv("UCX_KEEPALIVE_INTERVAL", "100ms", 1);   // how soon UCX's shared memory looks whether its peers live
  beside_a_victim(GetParam(), [](Transport& t, pid_t victim) {
    if (std::string(t.facts().detail).find("does not notice") != std::string::npos) {
      ::kill(victim, SIGKILL);
      return;
    }
    Told told;
    t.set_peer_lost([](void* context, Rank peer, std::string_view why) noexcept {
      auto& self = *static_cast<Told*>(context);
      self.rank.store(raw(peer));
      self.words.store(why.size());
      self.times.fetch_add(1);
    }, &told);
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

std::vector<Kind> networks() {
  std::vector<Kind> kinds;
  if (ucx::available()) kinds = {Kind::ucx, Kind::ucx_tcp};
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Transports, LostPeer, ::testing::ValuesIn(networks()), [](const auto& param) { return name_of(param.param); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LostPeer);

}  // namespace
}  // namespace kasane::comm::test
