// SPDX-License-Identifier: Apache-2.0
// Who shares a host, and what they share then. Ranks are threads here, hosts are domains or network namespaces (a thread may have its own).
#include "comm/bootstrap/rendezvous.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>

#include "comm/collectives.h"
#include "comm/shm/shm_transport.h"
#include "support/thread_ranks.h"

namespace kasane::comm {
namespace {

using kasane::test::run_thread_ranks;

RendezvousOptions options(std::string domain = {}) { return {.shared_bytes = shm::job_bytes, .domain = std::move(domain)}; }

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
  (*transport)->set_handler(kHello, [](void* c, const Message& m) noexcept {
    static_cast<std::atomic<std::uint64_t>*>(c)->fetch_add(raw(m.from) + 1);
  }, &heard);
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

TEST(Rendezvous, AFailureOfOneRankIsEverybodysAndIsNamed) {
  run_thread_ranks(3, [](OutOfBand& others) {
    const bool wrong = others.rank() == Rank{1};
    auto job = rendezvous(others, options(wrong ? std::string(41, 'x') : std::string()));
    ASSERT_FALSE(job);
    if (!wrong) {
      EXPECT_NE(job.error().message.find("failed on rank 1"), std::string::npos) << job.error().message;
    }
    EXPECT_NE(job.error().message.find("longer than 40"), std::string::npos) << job.error().message;
  });
}

TEST(Rendezvous, AFirstRankThatCannotMakeTheMemoryIsNamed) {
  run_thread_ranks(2, [](OutOfBand& others) {
    RendezvousOptions impossible = options();
    impossible.shared_bytes = [](std::uint32_t) { return ~std::size_t{0}; };   // no file is that long
    auto job = rendezvous(others, impossible);
    ASSERT_FALSE(job);
    EXPECT_NE(job.error().message.find("memory file kasane-job"), std::string::npos) << job.error().message;
    if (others.rank() == Rank{1}) {
      EXPECT_NE(job.error().message.find("failed on rank 0"), std::string::npos) << job.error().message;
    }
  });
}

/// Takes part up to the point where the first rank passes the memory, then says that all is well without having done it.
class SilentLeader final : public OutOfBand {
 public:
  explicit SilentLeader(OutOfBand& inner) : inner_(inner) {}
  [[nodiscard]] Rank rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return inner_.ranks(); }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    if (calls_++ < kUntilPassing) return inner_.allgather(mine);
    return fail(Errc::io, "the network is gone");
  }
  /// Key, names, neighbours, first ranks, their check, memory: then memory is passed.
  static constexpr int kUntilPassing = 5;

 private:
  OutOfBand& inner_;
  int calls_ = 0;
};

// The first rank gives up just before it passes the memory; its neighbour must not wait for ever.
TEST(Rendezvous, AFirstRankThatFallsSilentIsADeadlineNotAHang) {
  run_thread_ranks(2, [](OutOfBand& others) {
    RendezvousOptions brief = options();
    brief.limit_ns = 50'000'000;
    if (others.rank() == Rank{0}) {
      SilentLeader leader(others);
      auto job = rendezvous(leader, brief);
      EXPECT_FALSE(job);
      (void)others.allgather({});                      // what it would have said about the memory
      (void)others.allgather("the network is gone");   // … and about passing it
      return;
    }
    auto job = rendezvous(others, brief);
    ASSERT_FALSE(job);
    EXPECT_NE(job.error().message.find("rank 0 passed nothing to rank 1 within 50 ms"), std::string::npos) << job.error().message;
  });
}

/// The abstract names of jobs that are being joined in this network namespace.
std::vector<std::string> names() {
  std::vector<std::string> found;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (const auto at = line.find("@kasane."); at != std::string::npos) found.push_back(line.substr(at + 1));
  }
  return found;
}

/// Sends nonsense to every name it sees, while the ranks meet.
class Stranger final : public OutOfBand {
 public:
  explicit Stranger(OutOfBand& inner) : inner_(inner) {}
  [[nodiscard]] Rank rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept override { return inner_.ranks(); }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    for (const std::string& name : names()) {
      sockaddr_un to{};
      to.sun_family = AF_UNIX;
      std::memcpy(to.sun_path + 1, name.data(), name.size());
      const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      if (::sendto(fd, "nonsense", 8, 0, reinterpret_cast<const sockaddr*>(&to), bytes) == 8) ++sent();
    }
    ::close(fd);
    return inner_.allgather(mine);
  }
  static std::atomic<int>& sent() {
    static std::atomic<int> count{0};
    return count;
  }

 private:
  OutOfBand& inner_;
};

TEST(Rendezvous, WhatStrangersSendIsIgnored) {
  Stranger::sent() = 0;
  run_thread_ranks(3, [](OutOfBand& others) {
    Stranger stranger(others);
    auto job = rendezvous(stranger, options());
    ASSERT_TRUE(job) << job.error().message;
    talk(*job);
    (void)others.allgather({});
    close_job(*job);
  });
  EXPECT_GT(Stranger::sent(), 0) << "nobody was disturbed";
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
