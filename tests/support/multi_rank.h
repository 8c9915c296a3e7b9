// SPDX-License-Identifier: Apache-2.0
// Runs a test body in several forked ranks and brings their failures back into the parent's GoogleTest
// result.
//
//   run_ranks(4, [](const comm::Job& job) { … EXPECT_EQ(…) … });
//
// A failed expectation in a rank appears in the parent with its file, line and rank; so does a rank that dies
// of a signal. At the deadline, or soon after one rank has failed, the parent kills the others: a hang is a
// failure, not a hang. The deadline only catches hangs; tests assert no times. Call it before the test
// process has other threads.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "comm/bootstrap/job.h"
#include "comm/shm/shm_transport.h"

namespace kasane::test {

namespace detail {

using Clock = std::chrono::steady_clock;

/// Sends the failures of a rank up its pipe, instead of printing them.
class PipeReporter final : public ::testing::EmptyTestEventListener {
 public:
  explicit PipeReporter(int fd) : fd_(fd) {}
  void report(const std::string& text) const {
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::write(fd_, text.data() + sent, text.size() - sent);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }

 private:
  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (!part.failed()) return;
    const char* file = part.file_name() == nullptr ? "?" : part.file_name();
    report(std::string(file) + ":" + std::to_string(part.line_number()) + ": " + part.message() + "\n");
  }
  int fd_;
};

[[noreturn]] inline void run_child(const comm::Job& job, const std::function<void(const comm::Job&)>& body,
                                   int pipe) {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* reporter = new PipeReporter(pipe);
  listeners.Append(reporter);
  bool threw = true;
  try {
    body(job);
    threw = false;
  } catch (const std::exception& e) {
    reporter->report(std::string("exception: ") + e.what() + "\n");
  }
  // _exit: the parent's atexit handlers and test listeners are not ours to run.
  ::_exit(threw || ::testing::Test::HasFailure() ? 1 : 0);
}

struct Child {
  pid_t pid = -1;
  int pipe = -1;  ///< read end; -1 once the rank has ended
  std::string text;
  int status = 0;
};

inline void close_job(const comm::Job& job) {
  ::close(job.shared_fd);
  for (const auto& box : job.sockets) {
    ::close(box.in);
    ::close(box.out);
  }
}

/// Takes what a rank has to say; true when it has ended.
inline bool drain(Child& child) {
  char buffer[4096];
  const ssize_t n = ::read(child.pipe, buffer, sizeof(buffer));
  if (n > 0) child.text.append(buffer, static_cast<std::size_t>(n));
  if (n > 0 || (n < 0 && errno == EINTR)) return false;
  ::close(child.pipe);
  child.pipe = -1;
  ::waitpid(child.pid, &child.status, 0);
  return true;
}

inline void report(const Child& child, std::uint32_t rank, bool killed_by_us) {
  if (!child.text.empty()) ADD_FAILURE() << "rank " << rank << ":\n" << child.text;
  if (WIFSIGNALED(child.status) && !killed_by_us) {
    ADD_FAILURE() << "rank " << rank << " died of signal " << WTERMSIG(child.status) << " ("
                  << ::strsignal(WTERMSIG(child.status)) << ")";
  }
  if (WIFEXITED(child.status) && WEXITSTATUS(child.status) != 0 && child.text.empty()) {
    ADD_FAILURE() << "rank " << rank << " exited with status " << WEXITSTATUS(child.status);
  }
}

}  // namespace detail

inline void run_ranks(std::uint32_t ranks, const std::function<void(const comm::Job&)>& body,
                      std::chrono::seconds limit = std::chrono::seconds(60)) {
  using detail::Clock;
  auto job = comm::create_job(ranks, comm::shm::job_bytes(ranks));
  ASSERT_TRUE(job) << job.error().message;
  std::vector<detail::Child> children(ranks);
  const pid_t parent = ::getpid();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    job->rank = Rank{r};
    children[r].pid = ::fork();
    ASSERT_GE(children[r].pid, 0);
    if (children[r].pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
      ::close(ends[0]);
      detail::run_child(*job, body, ends[1]);
    }
    ::close(ends[1]);
    children[r].pipe = ends[0];
  }
  detail::close_job(*job);

  auto deadline = Clock::now() + limit;
  bool killed = false, failed_early = false;
  for (std::uint32_t left = ranks; left != 0;) {
    std::vector<pollfd> fds;
    for (const auto& c : children) fds.push_back({.fd = c.pipe, .events = POLLIN, .revents = 0});
    ::poll(fds.data(), fds.size(), 100);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (fds[r].fd < 0 || fds[r].revents == 0 || !detail::drain(children[r])) continue;
      --left;
      detail::report(children[r], r, killed);
      if (children[r].status != 0 && !failed_early) {
        // The others may wait for this one for ever; give them a moment to fail by themselves.
        failed_early = true;
        deadline = std::min(deadline, Clock::now() + std::chrono::seconds(3));
      }
    }
    if (Clock::now() < deadline || killed) continue;
    killed = true;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (children[r].pipe < 0) continue;
      if (!failed_early)
        ADD_FAILURE() << "rank " << r << " had not ended after " << limit.count() << " s and was killed";
      ::kill(children[r].pid, SIGKILL);
    }
  }
}

}  // namespace kasane::test
