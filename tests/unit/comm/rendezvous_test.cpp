// SPDX-License-Identifier: Apache-2.0
// Which ranks share a host, and what they share then. Ranks are threads here, hosts are domains or network
// namespaces (a thread may have its own).
#include "comm/bootstrap/rendezvous.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/collectives/collectives.h"
#include "comm/shm/shm_transport.h"
#include "support/thread_ranks.h"

namespace kasane::comm {
namespace {

using kasane::test::run_thread_ranks;

RendezvousOptions options(std::string domain = {}) {
  return {.shared_bytes = shm::job_bytes, .domain = std::move(domain)};
}

std::uint64_t inode(int fd) {
  struct stat st{};
  return ::fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/// An attached region through which the host's ranks see each other, and a message to each.
void talk(const Job& job) {
  auto transport = shm::create(job);
  ASSERT_TRUE(transport) << transport.error().message;
  constexpr HandlerId kHello{1};
  std::atomic<std::uint64_t> heard{0};
  (*transport)
      ->set_handler(
          kHello,
          [](void* c, const Message& m) noexcept {
            static_cast<std::atomic<std::uint64_t>*>(c)->fetch_add(raw(m.from) + 1);
          },
          &heard);
  const int fd = ::memfd_create("kasane-test", 0);
  ASSERT_EQ(::ftruncate(fd, 4096), 0);
  std::uint64_t own[512] = {};
  own[0] = raw(job.rank) + 100;
  ASSERT_EQ(::pwrite(fd, own, 8, 0), 8);
  const auto attached = (*transport)->attach(RegionId{1}, fd, reinterpret_cast<std::byte*>(own), 4096);
  ::close(fd);
  ASSERT_TRUE(attached) << attached.error().message;
  std::uint64_t expected = 0;
  for (std::uint32_t r = 0; r < job.ranks; ++r) {
    if (!job.on_this_host(Rank{r})) {
      EXPECT_EQ((*transport)->mapped(Rank{r}, RegionId{1}), nullptr);
      continue;
    }
    expected += r + 1;
    std::uint64_t found = 0;
    EXPECT_EQ((*transport)->read({Rank{r}, RegionId{1}, 0}, &found, 8, nullptr), Post::done);
    EXPECT_EQ(found, r + 100);
    EXPECT_EQ((*transport)->send(Rank{r}, kHello, {}), Post::done);
  }
  PollWaiter waiter(**transport);
  waiter.until([&] { return heard.load() == expected; });
}

TEST(Rendezvous, RanksOfOneHostShareOneMemory) {
  for (const std::uint32_t ranks : {1u, 2u, 5u}) {
    std::atomic<std::uint64_t> memory{0};
    run_thread_ranks(ranks, [&](OutOfBand& others) {
      auto job = rendezvous(others, options());
      ASSERT_TRUE(job) << job.error().message;
      EXPECT_EQ(job->hosts, 1u);
      EXPECT_EQ(job->ranks, ranks);
      EXPECT_EQ(job->rank, others.rank());
      EXPECT_EQ(job->host_ranks().size(), ranks);
      const std::uint64_t ours = inode(job->shared_fd);
      std::uint64_t nobodys = 0;
      if (!memory.compare_exchange_strong(nobodys, ours)) {
        EXPECT_EQ(ours, nobodys);
      }
      talk(*job);
      (void)others.allgather({});
      close_job(*job);
    });
  }
}

TEST(Rendezvous, RanksOfSeveralHostsShareNothing) {
  constexpr std::uint32_t kRanks = 5;
  std::vector<std::uint64_t> memory(kRanks);
  run_thread_ranks(kRanks, [&](OutOfBand& others) {
    const std::uint32_t me = raw(others.rank());
    auto job = rendezvous(others, options(me % 2 == 0 ? "even" : "odd"));
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(job->hosts, 2u);
    for (std::uint32_t r = 0; r < kRanks; ++r) EXPECT_EQ(job->on_this_host(Rank{r}), r % 2 == me % 2);
    EXPECT_EQ(job->shared_bytes, shm::job_bytes(me % 2 == 0 ? 3 : 2));
    memory[me] = inode(job->shared_fd);
    talk(*job);
    (void)others.allgather({});
    close_job(*job);
  });
  EXPECT_EQ(memory[0], memory[2]);
  EXPECT_EQ(memory[0], memory[4]);
  EXPECT_EQ(memory[1], memory[3]);
  EXPECT_NE(memory[0], memory[1]);
}

// More descriptors a rank than one message carries.
TEST(Rendezvous, ManyRanksOfOneHost) {
  constexpr std::uint32_t kRanks = 24;
  run_thread_ranks(kRanks, [&](OutOfBand& others) {
    auto job = rendezvous(others, options());
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(job->host_ranks().size(), kRanks);
    (void)others.allgather({});
    close_job(*job);
  });
}

TEST(Rendezvous, ANetworkNamespaceIsAHost) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may make network namespaces";
  std::atomic<bool> refused{false};
  run_thread_ranks(4, [&](OutOfBand& others) {
    const std::uint32_t me = raw(others.rank());
    // Ranks 2 and 3 each get a namespace of their own, which ends with the thread.
    if (me >= 2 && ::unshare(CLONE_NEWNET) != 0) refused = true;
    (void)others.allgather({});
    if (refused) return;
    auto job = rendezvous(others, options());
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(job->hosts, 3u);
    EXPECT_EQ(job->host_ranks().size(), me < 2 ? 2u : 1u);
    talk(*job);
    (void)others.allgather({});
    close_job(*job);
  });
  if (refused) GTEST_SKIP() << "this container allows no network namespaces";
}

/// Says something of its own in one exchange.
class Wrong final : public OutOfBand {
 public:
  Wrong(OutOfBand& inner, int call, std::string what) : inner_(inner), call_(call), what_(std::move(what)) {}
  [[nodiscard]] Rank rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return inner_.ranks(); }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    return inner_.allgather(call_-- == 0 ? what_ : mine);
  }

 private:
  OutOfBand& inner_;
  int call_;
  std::string what_;
};

TEST(Rendezvous, WhatARankTellsIsLookedAtAndTheRankIsNamed) {
  struct Case {
    int call;  ///< name taken, told, first found, told
    const char *told, *message;
  };
  for (const Case& c : {Case{1, "short", "rank 1 told its name in 5 bytes"},
                        Case{3, "7", "rank 1 names '7' as the first rank"},
                        Case{3, "x", "rank 1 names 'x' as the first rank"},
                        Case{3, "", "rank 1 names '' as the first rank"}}) {
    run_thread_ranks(3, [&](OutOfBand& others) {
      Wrong wrong(others, others.rank() == Rank{1} ? c.call : -1, c.told);
      auto job = rendezvous(wrong, options());
      ASSERT_FALSE(job);
      EXPECT_NE(job.error().message.find(c.message), std::string::npos) << job.error().message;
    });
  }
}

TEST(Rendezvous, AFirstRankThatCannotMakeTheMemoryIsNamed) {
  run_thread_ranks(2, [](OutOfBand& others) {
    RendezvousOptions impossible = options();
    impossible.shared_bytes = [](std::uint32_t) { return ~std::size_t{0}; };  // no file is that long
    auto job = rendezvous(others, impossible);
    ASSERT_FALSE(job);
    EXPECT_NE(job.error().message.find("memory file kasane-job"), std::string::npos) << job.error().message;
    if (others.rank() == Rank{1}) {
      EXPECT_NE(job.error().message.find("failed on rank 0"), std::string::npos) << job.error().message;
    }
  });
}

/// Takes part up to the point where the first rank passes the memory, then says that all is well without
/// having done it: as one that hangs, until the other has given up, or as one that is gone.
class SilentLeader final : public OutOfBand {
 public:
  SilentLeader(OutOfBand& inner, bool hangs) : inner_(inner), hangs_(hangs) {}
  [[nodiscard]] Rank rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return inner_.ranks(); }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    if (calls_++ < kUntilPassing) return inner_.allgather(mine);
    if (hangs_) say_that_all_is_well();
    return fail(Errc::io, "the network is gone");
  }
  void say_that_all_is_well() {
    (void)inner_.allgather({});                     // what it would have said about the memory
    (void)inner_.allgather("the network is gone");  // … and about passing it
  }
  /// Name taken, told, first rank found, told: then memory is made and passed.
  static constexpr int kUntilPassing = 4;

 private:
  OutOfBand& inner_;
  bool hangs_;
  int calls_ = 0;
};

// The first rank gives up just before it passes the memory; its neighbour must not wait for ever.
TEST(Rendezvous, AFirstRankThatFallsSilentIsADeadlineNotAHang) {
  for (const bool hangs : {true, false}) {
    run_thread_ranks(2, [hangs](OutOfBand& others) {
      RendezvousOptions brief = options();
      if (hangs) brief.limit_ns = 50'000'000;
      if (others.rank() == Rank{0}) {
        SilentLeader leader(others, hangs);
        auto job = rendezvous(leader, brief);
        EXPECT_FALSE(job);
        if (!hangs) leader.say_that_all_is_well();
        return;
      }
      auto job = rendezvous(others, brief);
      ASSERT_FALSE(job);
      const char* message =
          hangs ? "rank 0 passed nothing to rank 1 within 50 ms" : "asking rank 0 for the host's memory";
      EXPECT_NE(job.error().message.find(message), std::string::npos) << job.error().message;
    });
  }
}

TEST(Rendezvous, ARankThatDoesNotAskIsNamed) {
  run_thread_ranks(2, [](OutOfBand& others) {
    RendezvousOptions brief = options();
    brief.limit_ns = 50'000'000;
    if (others.rank() == Rank{1}) {
      SilentLeader silent(others, true);
      EXPECT_FALSE(rendezvous(silent, brief));
      return;
    }
    auto job = rendezvous(others, brief);
    ASSERT_FALSE(job);
    EXPECT_NE(job.error().message.find("rank 1 did not ask rank 0 for the host's memory within 50 ms"),
              std::string::npos)
        << job.error().message;
  });
}

// ---- other users ------------------------------------------------------------------------------------------

/// The abstract names of jobs that are being joined in this thread's network namespace.
std::vector<std::string> names() {
  std::vector<std::string> found;
  std::ifstream sockets("/proc/thread-self/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const auto at = line.find("@kasane.");
    if (at != std::string::npos && std::find(found.begin(), found.end(), line.substr(at + 1)) == found.end())
      found.push_back(line.substr(at + 1));
  }
  return found;
}

struct Address {
  sockaddr_un name{};
  socklen_t bytes;
  explicit Address(const std::string& text)
      : bytes(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) {
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, text.data(), text.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

constexpr uid_t kNobody = 65534;

/// This thread is another user meanwhile, if root runs the test.
class AsUser {
 public:
  // of this thread alone, unlike the function
  explicit AsUser(uid_t user) { ::syscall(SYS_setresuid, -1, user, -1); }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;
  ~AsUser() { ::syscall(SYS_setresuid, -1, ::getuid(), -1); }
};

/// What a stranger holds open until the job has met.
struct Sockets {
  std::vector<int> fds;
  ~Sockets() {
    for (const int fd : fds) ::close(fd);
  }
  int open(int type) {
    fds.push_back(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    return fds.back();
  }
};

/// A descriptor and some bytes.
bool send_junk(int fd, const void* bytes, std::size_t size, const Address* to) {
  const int passed = ::memfd_create("kasane-test", MFD_CLOEXEC);
  iovec part{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (to != nullptr) {
    message.msg_name = const_cast<sockaddr*>(to->get());
    message.msg_namelen = to->bytes;
  }
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &passed, sizeof passed);
  const bool sent = ::sendmsg(fd, &message, MSG_NOSIGNAL) >= 0;
  ::close(passed);
  return sent;
}

/// Did anybody pass it anything?
bool got_something(int fd) {
  char byte = 0;
  return ::recv(fd, &byte, 1, MSG_DONTWAIT) > 0;
}

/// Disturbs every name it sees whenever the ranks talk, then does what they would.
class Stranger final : public OutOfBand {
 public:
  using Disturb = std::function<void(const std::vector<std::string>&)>;
  /// after: the others have gone on for a while.
  Stranger(OutOfBand& inner, uid_t user, Disturb before, Disturb after = {})
      : inner_(inner), user_(user), before_(std::move(before)), after_(std::move(after)) {}
  [[nodiscard]] Rank rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return inner_.ranks(); }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    disturb(before_);
    auto all = inner_.allgather(mine);
    if (after_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    disturb(after_);
    return all;
  }

 private:
  void disturb(const Disturb& how) const {
    if (!how) return;
    const AsUser another(user_);
    how(names());
  }
  OutOfBand& inner_;
  uid_t user_;
  Disturb before_, after_;
};

TEST(Rendezvous, WhatStrangersSendIsIgnoredAndTheyGetNothing) {
  for (const uid_t user : {kNobody, ::getuid()}) {  // as this user's other programs, too: they have no key
    std::atomic<int> sent{0}, got{0};
    run_thread_ranks(3, [&](OutOfBand& others) {
      Sockets held;
      Stranger stranger(others, user, [&](const std::vector<std::string>& seen) {
        const std::string junk(20, '\1'), longer(4000, '\2');  // the first has the size of a request
        for (const std::string& name : seen) {
          const Address to(name);
          sent += send_junk(held.open(SOCK_DGRAM), junk.data(), junk.size(), &to);
          for (const std::string* text : {&junk, &longer}) {
            const int fd = held.open(SOCK_SEQPACKET);
            if (::connect(fd, to.get(), to.bytes) == 0)
              sent += send_junk(fd, text->data(), text->size(), nullptr);
          }
          const int silent = held.open(SOCK_SEQPACKET);
          if (::connect(silent, to.get(), to.bytes) == 0) ++sent;
        }
      });
      auto job = rendezvous(stranger, options());
      ASSERT_TRUE(job) << job.error().message;
      talk(*job);
      (void)others.allgather({});
      for (const int fd : held.fds) got += got_something(fd);
      close_job(*job);
    });
    EXPECT_GT(sent, 0) << "nobody was disturbed";
    EXPECT_EQ(got, 0);
  }
}

// A process that sees one rank's name must not be able to derive another's, and take it before that rank
// does.
TEST(Rendezvous, NamesCannotBeTakenAhead) {
  std::atomic<bool> seen_one{false};
  run_thread_ranks(2, [&](OutOfBand& others) {
    Sockets held;
    const Stranger::Disturb take_next = [&](const std::vector<std::string>& seen) {
      for (const std::string& name : seen) {
        seen_one = true;
        if (const auto at = name.rfind(".0."); at != std::string::npos) {
          const Address next(name.substr(0, at) + ".1." + name.substr(at + 3));
          ::bind(held.open(SOCK_DGRAM), next.get(), next.bytes);
        }
      }
    };
    // Rank 1 is late at each step, so that the stranger sees what rank 0 has done.
    Stranger stranger(others, kNobody, {}, others.rank() == Rank{1} ? take_next : Stranger::Disturb{});
    auto job = rendezvous(stranger, options());
    EXPECT_TRUE(job) << job.error().message;
    (void)others.allgather({});
    if (job) close_job(*job);
  });
  EXPECT_TRUE(seen_one);
}

// A name that is seen on one host is bound on another, so that each rank believes that the other is here: the
// first would pass its memory to a stranger.
TEST(Rendezvous, NobodyOnAnotherHostIsTakenForARank) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may make network namespaces";
  for (const uid_t user : {kNobody, uid_t{0}}) {  // root of another container is root here
    std::atomic<bool> refused{false};
    std::atomic<int> bound{0}, got{0};
    std::mutex mutex;
    std::vector<std::string> everywhere;
    run_thread_ranks(2, [&](OutOfBand& others) {
      if (::unshare(CLONE_NEWNET) != 0) refused = true;
      (void)others.allgather({});
      if (refused) return;
      Sockets held;
      Stranger stranger(others, user, [&](const std::vector<std::string>& seen) {
        const std::lock_guard lock(mutex);
        everywhere.insert(everywhere.end(), seen.begin(), seen.end());
        for (const std::string& name : everywhere) {
          const Address at(name);
          for (const int type : {SOCK_DGRAM, SOCK_SEQPACKET}) {
            const int fd = held.open(type);
            if (::bind(fd, at.get(), at.bytes) != 0) continue;
            ++bound;
            ::listen(fd, 16);
          }
        }
      });
      RendezvousOptions brief = options();
      brief.limit_ns = 500'000'000;
      auto job = rendezvous(stranger, brief);
      EXPECT_TRUE(job) << job.error().message;
      if (job) {
        EXPECT_EQ(job->hosts, 2u);
        close_job(*job);
      }
      (void)others.allgather({});
      for (const int fd : held.fds) got += got_something(fd);
    });
    if (refused) GTEST_SKIP() << "this container allows no network namespaces";
    EXPECT_GE(bound, 2) << "nobody was disturbed";
    EXPECT_EQ(got, 0) << "a stranger has the host's memory";
  }
}

// In a user namespace without a map every process has user 65534.
TEST(Rendezvous, AUserWhomTheNamespaceDoesNotKnowVouchesForNobody) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(77);
    std::atomic<int> hosts{0};
    run_thread_ranks(2, [&](OutOfBand& others) {
      auto job = rendezvous(others, options());
      if (job) hosts += static_cast<int>(job->hosts);
      (void)others.allgather({});
      if (job) close_job(*job);
    });
    ::_exit(hosts == 4 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "this container allows no user namespaces";
  EXPECT_EQ(status, 0) << "they share memory, though the kernel cannot say whose they are";
}

TEST(Rendezvous, NothingIsLeftOpen) {
  auto open_descriptors = [] {
    int count = 0;
    for (int fd = 0; fd < 512; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  const int before = open_descriptors();
  run_thread_ranks(3, [](OutOfBand& others) {
    auto job = rendezvous(others, options());
    ASSERT_TRUE(job) << job.error().message;
    close_job(*job);
    RendezvousOptions impossible = options();
    impossible.shared_bytes = [](std::uint32_t) { return ~std::size_t{0}; };
    EXPECT_FALSE(rendezvous(others, impossible));
  });
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace kasane::comm
