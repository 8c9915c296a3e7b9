// SPDX-License-Identifier: Apache-2.0
// A job of two ranks over a network, of which rank 0 outlives rank 1: for what is owed to a rank whose peer
// is killed.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "every_transport.h"

namespace kasane::comm::test {

struct Shared {
  std::atomic<int> victim{0};  ///< its process
};

/// Attaches kRegion, sets handlers and whatever else comes before the first message; both ranks run it.
using Prepare = std::function<void(Transport&, int fd, std::byte* memory)>;

/// Makes a network transport of this rank, prepares it, and runs body.
inline void with_prepared_network(const Job& job, Kind kind, const Prepare& prepare,
                                  const std::function<void(Transport&)>& body) {
  with_network(job, make_ucx(kind), Leave::alone, [&](Transport& network) {
    const int fd = make_memfd(kRegionBytes);
    auto* memory =
        static_cast<std::byte*>(::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(memory, MAP_FAILED);
    prepare(network, fd, memory);
    body(network);
  });
}

inline pid_t fork_rank(Job job, std::uint32_t rank, int pipe, const std::function<void(const Job&)>& body) {
  job.rank = Rank{rank};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  kasane::test::detail::run_child(job, body, pipe);
}

/// Runs survivor as rank 0 of two; rank 1 serves until it is killed.
inline void beside_a_victim(Kind kind, const Prepare& prepare,
                            const std::function<void(Transport&, pid_t victim)>& survivor) {
  void* p = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(p, MAP_FAILED);
  auto& shared = *new (p) Shared;
  auto job = create_job(2, shm::job_bytes(2));
  ASSERT_TRUE(job) << job.error().message;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t victim = fork_rank(*job, 1, ends[1], [&](const Job& j) {
    with_prepared_network(j, kind, prepare, [&](Transport& t) {
      shared.victim.store(::getpid());
      for (;;) t.progress();
    });
  });
  kasane::test::detail::Child child;
  child.pid = fork_rank(*job, 0, ends[1], [&](const Job& j) {
    with_prepared_network(j, kind, prepare, [&](Transport& t) {
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

/// Does this network tell of lost peers at all?
inline bool notices_lost_peers(const Transport& t) {
  return t.facts().detail.find("does not notice") == std::string_view::npos;
}

/// Returns once the process runs no more: SIGSTOP alone only asks for it.
inline void stop(pid_t process) {
  ::kill(process, SIGSTOP);
  for (char state = '?'; state != 'T';) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string number, name;
    stat >> number >> name >> state;
  }
}

}  // namespace kasane::comm::test
