// SPDX-License-Identifier: Apache-2.0
#include "player_threads.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

namespace kasane::bench {

void Patience::give_way() noexcept { ::sched_yield(); }

unsigned usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT(&set));
}

void run_player_threads(int harness_fd, unsigned threads, const std::function<void(unsigned)>& fn) {
  const int ended = ::eventfd(0, EFD_CLOEXEC);
  std::atomic<unsigned> playing{threads};
  std::vector<std::jthread> running;
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      fn(t);
      // acq_rel: the last one's event comes after everything that all of them did.
      if (playing.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      const std::uint64_t one = 1;
      if (::write(ended, &one, sizeof one) != sizeof one) std::abort();
    });
  }
  // Input is not looked at: orders that come meanwhile wait.
  pollfd fds[]{{.fd = ended, .events = POLLIN, .revents = 0},
               {.fd = harness_fd, .events = POLLRDHUP, .revents = 0}};
  while (fds[0].revents == 0) {
    ::poll(fds, 2, -1);
    if (fds[0].revents == 0 && (fds[1].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0) ::_exit(1);
  }
  running.clear();
  ::close(ended);
}

}  // namespace kasane::bench
