// SPDX-License-Identifier: Apache-2.0
// create_job: the descriptors that ranks of one host inherit. None has a name in any file system, so a crash
// leaves nothing behind: the kernel frees them with the last process.
#include "comm/bootstrap/job.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "base/memory_file.h"

namespace kasane::comm {
namespace {

/// Closes what was opened so far, unless keep() was called.
class Cleanup {
 public:
  explicit Cleanup(Job& job) noexcept : job_(&job) {}
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  ~Cleanup() {
    if (job_ != nullptr) close_job(*job_);
  }
  void keep() noexcept { job_ = nullptr; }

 private:
  Job* job_;
};

}  // namespace

std::vector<Rank> Job::host_ranks() const {
  std::vector<Rank> found;
  for (std::uint32_t r = 0; r < sockets.size(); ++r) {
    if (on_this_host(Rank{r})) found.push_back(Rank{r});
  }
  return found;
}

void close_job(const Job& job) noexcept {
  if (job.shared_fd >= 0) ::close(job.shared_fd);
  for (const Job::SocketPair& box : job.sockets) {
    if (box.in >= 0) ::close(box.in);
    if (box.out >= 0) ::close(box.out);
  }
}

Result<Job> create_job(std::uint32_t ranks, std::size_t shared_bytes) {
  if (ranks == 0) return fail(Errc::invalid_argument, "a job needs at least one rank (got 0)");
  Job job;
  job.ranks = ranks;
  job.launcher = ranks == 1 ? Launcher::alone : Launcher::fork;
  job.shared_bytes = shared_bytes;
  Cleanup cleanup(job);

  auto shared = memory_file("kasane-job", shared_bytes);
  KASANE_TRY(shared);
  job.shared_fd = *shared;
  job.sockets.resize(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    int ends[2];
    // Datagrams: a message with its descriptor arrives whole or not at all, and many ranks may write to one
    // socket.
    if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return fail_errno(Errc::limit, "socketpair for rank " + std::to_string(r) + " of " +
                                         std::to_string(ranks) +
                                         " (two descriptors a rank; raise the limit with ulimit -n)");
    }
    job.sockets[r] = {.in = ends[0], .out = ends[1]};
    // A rank that waits for room wakes now and then, and checks whether the reader is still alive.
    const timeval limit{.tv_sec = 0, .tv_usec = 50'000};
    if (::setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0)
      return fail_errno(Errc::unsupported, "SO_SNDTIMEO");
  }
  cleanup.keep();
  return job;
}

}  // namespace kasane::comm
