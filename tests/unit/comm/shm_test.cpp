// SPDX-License-Identifier: Apache-2.0
// The shared-memory transport where one rank suffices: its errors, its checks, and its use from fault
// handlers. (What it shares with every transport: tests/multi/comm.)
#include "comm/shm/shm_transport.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/blocking.h"
#include "comm/collectives/collectives.h"

namespace kasane::comm::shm {
namespace {

constexpr RegionId kRegion{1};
constexpr HandlerId kEcho{1}, kOther{2};
constexpr std::size_t kBytes = 4096;

/// A job of one rank, with one region.
class OneRank : public ::testing::Test {
 protected:
  void SetUp() override {
    auto job = create_job(1, job_bytes(1));
    ASSERT_TRUE(job) << job.error().message;
    job_ = *job;
    auto t = create(job_);
    ASSERT_TRUE(t) << t.error().message;
    transport_ = std::move(*t);
    fd_ = ::memfd_create("kasane-test", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd_, kBytes), 0);
    memory_ = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    const auto attached = transport_->attach(kRegion, fd_, memory_, kBytes);
    ASSERT_TRUE(attached) << attached.error().message;
  }
  void TearDown() override {
    transport_.reset();
    ::munmap(memory_, kBytes);
    for (const int fd : {fd_, job_.shared_fd, job_.sockets[0].in, job_.sockets[0].out}) ::close(fd);
  }

  Job job_;
  std::unique_ptr<Transport> transport_;
  int fd_ = -1;
  std::byte* memory_ = nullptr;
};

using ShmTest = OneRank;
using ShmDeathTest = OneRank;

TEST(ShmJob, WhatDoesNotFitTogetherIsAnError) {
  EXPECT_FALSE(create_job(0, 4096));
  auto job = create_job(2, job_bytes(2));
  ASSERT_TRUE(job) << job.error().message;
  Job bad = *job;
  bad.rank = Rank{2};
  EXPECT_FALSE(create(bad));
  bad = *job;
  bad.shared_bytes = job_bytes(1);
  EXPECT_FALSE(create(bad));
  bad = *job;
  ASSERT_EQ(::ftruncate(bad.shared_fd, 4096), 0);  // the file is shorter than it says
  EXPECT_FALSE(create(bad));
  ::close(job->shared_fd);
  for (const auto& box : job->sockets) {
    ::close(box.in);
    ::close(box.out);
  }
}

/// Sends bytes and descriptors to a socket pair, as a rank does in attach().
void post(int to, const std::string& bytes, const std::vector<int>& fds) {
  std::string copy = bytes;
  iovec part{copy.data(), copy.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    auto* const rights = reinterpret_cast<cmsghdr*>(control);  // the first
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  ASSERT_EQ(::sendmsg(to, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

std::string note(std::uint32_t region, std::uint32_t position) {
  std::string bytes(sizeof region + sizeof position, '\0');
  std::memcpy(bytes.data(), &region, sizeof region);
  std::memcpy(bytes.data() + sizeof region, &position, sizeof position);
  return bytes;
}

TEST(ShmJob, WhatArrivesInAPostboxIsLookedAt) {
  const auto file = [](std::size_t bytes) {
    const int fd = ::memfd_create("kasane-test", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
    return fd;
  };
  const int good = file(kBytes), small = file(10), no_file = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const std::uint32_t region = 1;
  struct Case {
    std::uint32_t to;  ///< rank 0 awaits rank 1's descriptor, rank 1 the table of two
    std::string bytes;
    std::vector<int> fds;
    const char* message;
  };
  for (const Case& c :
       std::vector<Case>{{0, "abc", {}, "a malformed message of 3 bytes"},
                         {0, "abc", {good}, "a malformed message of 3 bytes"},
                         {0, note(region, 1).append("and more"), {good}, "a malformed message of 16 bytes"},
                         {0, note(9, 1), {good}, "about region 9"},
                         {0, note(region, 2), {good}, "a malformed message"},
                         {0, note(region, ~0u), {good}, "a malformed message"},
                         {0, note(region, 0), {good}, "region 1 of rank 0 was offered twice"},
                         {0, note(region, 1), {good, good}, "region 1 of rank 1 was offered twice"},
                         {0, note(region, 1), {}, "without all of their descriptors"},
                         {0, note(region, 1), {small}, "region 1 of rank 1: its file has 10 bytes"},
                         {0, note(region, 1), {no_file}, "region 1 of rank 1: its file has 0 bytes"},
                         {1, note(region, 1), {good}, "begins at 1 instead of 0"},
                         {1, note(region, 0), {good, good, good}, "a table of region 1"},
                         {1, note(region, 0), {small, good}, "region 1 of rank 0: its file has 10 bytes"}}) {
    auto job = create_job(2, job_bytes(2));
    ASSERT_TRUE(job) << job.error().message;
    job->rank = Rank{c.to};
    auto transport = create(*job);
    ASSERT_TRUE(transport) << transport.error().message;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, good, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const int unused = ::dup(good);
    ::close(unused);
    post(job->sockets[c.to].out, c.bytes, c.fds);
    const auto attached = (*transport)->attach(kRegion, good, static_cast<std::byte*>(memory), kBytes);
    ASSERT_FALSE(attached) << c.message;
    EXPECT_NE(attached.error().message.find(c.message), std::string::npos) << attached.error().message;
    const int unused_now = ::dup(good);
    EXPECT_EQ(unused_now, unused) << "it keeps a descriptor open: " << c.message;
    ::close(unused_now);
    transport->reset();
    ::munmap(memory, kBytes);
    close_job(*job);
  }
  for (const int fd : {good, small, no_file}) ::close(fd);
}

TEST_F(ShmTest, ARegionIsAttachedOnce) {
  EXPECT_EQ(transport_->mapped(Rank{0}, kRegion), memory_);
  EXPECT_EQ(transport_->mapped(Rank{0}, RegionId{2}), nullptr);
  EXPECT_FALSE(transport_->attach(kRegion, fd_, memory_, kBytes));
  EXPECT_FALSE(transport_->attach(RegionId{kMaxRegions}, fd_, memory_, kBytes));
  EXPECT_FALSE(transport_->attach(RegionId{2}, fd_, memory_, 0));
  EXPECT_FALSE(transport_->attach(RegionId{2}, fd_, nullptr, kBytes));
}

TEST_F(ShmDeathTest, WhatTheCallerGotWrongIsACheck) {
  std::uint64_t word = 0;
  const std::vector<std::byte> large(kMaxPayload + 1);
  Transport& t = *transport_;
  EXPECT_DEATH((void)t.read({Rank{0}, kRegion, kBytes - 7}, &word, 8, nullptr), "bytes");
  EXPECT_DEATH((void)t.read({Rank{0}, kRegion, kBytes + 1}, &word, 0, nullptr), "offset");
  EXPECT_DEATH((void)t.write({Rank{0}, kRegion, ~std::uint64_t{0} - 3}, &word, 8, nullptr), "offset");
  EXPECT_DEATH((void)t.write({Rank{1}, kRegion, 0}, &word, 8, nullptr), "ranks");
  EXPECT_DEATH((void)t.write({Rank{0}, RegionId{3}, 0}, &word, 8, nullptr), "not attached");
  EXPECT_DEATH((void)t.write({Rank{0}, RegionId{99}, 0}, &word, 8, nullptr), "kMaxRegions");
  EXPECT_DEATH((void)t.atomic(AtomicOp::swap, {Rank{0}, kRegion, 4}, 0, 0, &word, nullptr), "offset");
  EXPECT_DEATH((void)t.send(Rank{1}, kEcho, {}), "ranks");
  EXPECT_DEATH((void)t.send(Rank{0}, HandlerId{kMaxHandlers}, {}), "kMaxHandlers");
  EXPECT_DEATH((void)t.send(Rank{0}, kEcho, large), "kMaxPayload");
  EXPECT_DEATH(
      {
        (void)t.send(Rank{0}, kEcho, {});
        t.progress();
      },
      "never set");
}

// The process that dies shares its memory with the one that watches: nothing may be expected of the transport
// after that.
TEST_F(ShmDeathTest, ARequestIsAnsweredOnce) {
  transport_->set_handler(
      kEcho,
      [](void* c, const Message& m) noexcept {
        static_cast<Transport*>(c)->reply(m.token, 1);
        static_cast<Transport*>(c)->reply(m.token, 2);
      },
      transport_.get());
  PendingReply pending;
  ASSERT_EQ(transport_->request(Rank{0}, kEcho, {}, pending), Post::pending);
  EXPECT_DEATH(transport_->progress(), "answered twice");
}

TEST_F(ShmDeathTest, AnAnswerIsTakenOnce) {
  transport_->set_handler(
      kEcho, [](void* c, const Message& m) noexcept { static_cast<Transport*>(c)->reply(m.token, 1); },
      transport_.get());
  PendingReply pending;
  ASSERT_EQ(transport_->request(Rank{0}, kEcho, {}, pending), Post::pending);
  std::uint64_t value = 0;
  EXPECT_FALSE(transport_->test(pending, &value));
  EXPECT_TRUE(transport_->progress());
  ASSERT_TRUE(transport_->test(pending, &value));
  EXPECT_EQ(value, 1u);
  EXPECT_DEATH((void)transport_->test(pending, &value), "taken already");
}

// ---- reentrance -------------------------------------------------------------------------------------------

TEST_F(ShmTest, AHandlerThatCallsProgressGetsFalseAndMaySend) {
  struct State {
    Transport* t;
    bool inner = true;
    int others = 0;
  } state{.t = transport_.get()};
  transport_->set_handler(
      kEcho,
      [](void* c, const Message&) noexcept {
        auto& s = *static_cast<State*>(c);
        s.inner = s.t->progress();
        EXPECT_EQ(s.t->send(Rank{0}, kOther, {}), Post::done);
      },
      &state);
  transport_->set_handler(
      kOther, [](void* c, const Message&) noexcept { ++static_cast<State*>(c)->others; }, &state);
  ASSERT_EQ(transport_->send(Rank{0}, kEcho, {}), Post::done);
  while (transport_->progress()) {
  }
  EXPECT_FALSE(state.inner);
  EXPECT_EQ(state.others, 1);
}

TEST_F(ShmTest, WhoLeavesProgressRingsForWhatItLeavesBehind) {
  struct State {
    Transport* t;
    int left = 300;
  } state{.t = transport_.get()};
  // A handler that always sends one more: the ring is never empty when the batch ends.
  transport_->set_handler(
      kEcho,
      [](void* c, const Message&) noexcept {
        auto& s = *static_cast<State*>(c);
        if (--s.left == 0) return;
        EXPECT_EQ(s.t->send(Rank{0}, kEcho, {}), Post::done);
      },
      &state);
  ASSERT_EQ(transport_->send(Rank{0}, kEcho, {}), Post::done);
  const int before = state.left;
  const std::uint32_t rung = transport_->activity(Doorbell::messages);
  ASSERT_TRUE(transport_->progress());
  ASSERT_GT(state.left, 0) << "progress() is not bounded";
  // One ring a message that was sent, and one for what was left behind.
  EXPECT_EQ(transport_->activity(Doorbell::messages) - rung,
            static_cast<std::uint32_t>(before - state.left) + 1);
  while (transport_->progress()) {
  }
  EXPECT_EQ(state.left, 0);
}

/// What the SIGSEGV handler below needs; signal handlers have no context.
struct Fault {
  Transport* transport = nullptr;
  std::byte* page = nullptr;
  std::uint64_t answer = 0;
  int faults = 0;
  bool progressed = false;
};
Fault fault;

/// Uses the transport on an alternate stack, as the fault engine does, then makes the page accessible.
void on_fault(int, siginfo_t*, void*) {
  ++fault.faults;
  PollWaiter waiter(*fault.transport, 1000);
  const std::uint64_t number = 41;
  fault.answer = Blocking(*fault.transport, waiter).request(Rank{0}, kEcho, as_payload(number));
  ::mprotect(fault.page, 4096, PROT_READ | PROT_WRITE);
}

/// A fault inside a message handler: this thread is in progress() already, so another one must serve.
void on_nested_fault(int, siginfo_t*, void*) {
  ++fault.faults;
  fault.progressed = fault.transport->progress();
  (void)fault.transport->send(Rank{0}, kOther, {});
  ::mprotect(fault.page, 4096, PROT_READ | PROT_WRITE);
}

class ShmFaultTest : public OneRank {
 protected:
  void SetUp() override {
    OneRank::SetUp();
    stack_.resize(256 * 1024);
    stack_t alternate{};
    alternate.ss_sp = stack_.data();
    alternate.ss_size = stack_.size();
    ASSERT_EQ(::sigaltstack(&alternate, &old_stack_), 0);
    page_ = static_cast<std::byte*>(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(page_, MAP_FAILED);
    fault = {.transport = transport_.get(), .page = page_};
  }
  void TearDown() override {
    ::sigaction(SIGSEGV, &old_action_, nullptr);
    ::sigaltstack(&old_stack_, nullptr);
    ::munmap(page_, 4096);
    OneRank::TearDown();
  }
  void handle_with(void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action{};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, &old_action_), 0);
  }
  std::vector<char> stack_;
  stack_t old_stack_{};
  struct sigaction old_action_{};
  std::byte* page_ = nullptr;
};

TEST_F(ShmFaultTest, AFaultHandlerMayAskAndWaitForTheAnswer) {
  transport_->set_handler(
      kEcho,
      [](void* c, const Message& m) noexcept {
        std::uint64_t n;
        std::memcpy(&n, m.payload.data(), 8);
        static_cast<Transport*>(c)->reply(m.token, n + 1);
      },
      transport_.get());
  handle_with(&on_fault);
  *reinterpret_cast<volatile std::byte*>(page_) = std::byte{5};
  EXPECT_EQ(fault.faults, 1);
  EXPECT_EQ(fault.answer, 42u);
  EXPECT_EQ(*page_, std::byte{5});
}

TEST_F(ShmFaultTest, AFaultInsideAMessageHandlerDoesNotDeadlock) {
  std::atomic<int> others{0};
  transport_->set_handler(
      kEcho,
      [](void* page, const Message&) noexcept { *static_cast<volatile std::byte*>(page) = std::byte{6}; },
      page_);
  transport_->set_handler(
      kOther, [](void* c, const Message&) noexcept { static_cast<std::atomic<int>*>(c)->fetch_add(1); },
      &others);
  handle_with(&on_nested_fault);
  ASSERT_EQ(transport_->send(Rank{0}, kEcho, {}), Post::done);
  while (transport_->progress()) {
  }
  EXPECT_EQ(fault.faults, 1);
  EXPECT_FALSE(fault.progressed);
  EXPECT_EQ(others.load(), 1);
}

// ---- threads of one rank ----------------------------------------------------------------------------------

TEST_F(ShmTest, FourThreadsSendAndConsumeAndNothingIsLost) {
  constexpr std::uint64_t kEach = 20'000;
  struct Sum {
    std::atomic<std::uint64_t> messages{0}, total{0};
    std::atomic<int> inside{0}, overlaps{0};
  } sum;
  transport_->set_handler(
      kEcho,
      [](void* c, const Message& m) noexcept {
        auto& s = *static_cast<Sum*>(c);
        if (s.inside.fetch_add(1) != 0) s.overlaps.fetch_add(1);
        std::uint64_t n;
        std::memcpy(&n, m.payload.data(), 8);
        s.total.fetch_add(n);
        s.messages.fetch_add(1);
        s.inside.fetch_sub(1);
      },
      &sum);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      PollWaiter waiter(*transport_, 2000);
      Blocking ops(*transport_, waiter);
      for (std::uint64_t n = 1; n <= kEach; ++n) ops.send(Rank{0}, kEcho, as_payload(n));
      waiter.until([&] { return sum.messages.load() == 4 * kEach; });
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(sum.total.load(), 4 * (kEach * (kEach + 1) / 2));
  EXPECT_EQ(sum.overlaps.load(), 0);
  EXPECT_FALSE(transport_->progress());
}

TEST_F(ShmTest, CollectivesOfOneRankReturnAtOnce) {
  PollWaiter waiter(*transport_);
  Collectives all(*transport_, waiter);
  std::array<std::uint64_t, 3> values{1, 2, 3};
  all.barrier();
  all.broadcast(Rank{0}, std::as_writable_bytes(std::span(values)));
  all.allreduce(Collectives::Reduce::sum, values);
  std::array<std::uint64_t, 3> gathered{};
  all.allgather(std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(gathered)));
  EXPECT_EQ(values, (std::array<std::uint64_t, 3>{1, 2, 3}));
  EXPECT_EQ(gathered, values);
}

}  // namespace
}  // namespace kasane::comm::shm
