// SPDX-License-Identifier: Apache-2.0
// See watcher.h.
#if defined(KASANE_HAVE_UCX)
#include "comm/ucx/watcher.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/assert.h"
#include "topo/threads.h"

namespace kasane::comm::ucx {
namespace {

constexpr std::uint64_t kStop = ~std::uint64_t{0};

}  // namespace

Result<void> Watcher::start(OnEvent on_event, void* context) {
  on_event_ = on_event;
  context_ = context;
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  if (epoll_ < 0 || stop_ < 0)
    return fail_errno(Errc::limit, "cannot make the descriptors of UCX's watcher (epoll_create1, eventfd)");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kStop}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, stop_, &event) != 0)
    return fail_errno(Errc::limit, "cannot watch the watcher's own descriptor");
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread starts with every signal blocked
  auto thread = topo::start_thread("the thread that watches UCX", [this] { loop(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  KASANE_TRY(thread);
  thread_ = std::move(*thread);
  return {};
}

void Watcher::stop() noexcept {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    while (::write(stop_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  if (epoll_ >= 0) ::close(epoll_);
  if (stop_ >= 0) ::close(stop_);
  epoll_ = stop_ = -1;
}

Result<void> Watcher::add(int fd, std::uint32_t index) {
  epoll_event event{.events = EPOLLONESHOT, .data = {.u64 = index}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
    return fail_errno(Errc::limit, "cannot watch UCX's event descriptor " + std::to_string(fd));
  return {};
}

void Watcher::enable(int fd, std::uint32_t index) const noexcept {
  const int saved = errno;
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = index}};
  const int result = ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
  KASANE_CHECK(result == 0, "UCX's event descriptor cannot be enabled again");
  errno = saved;
}

void Watcher::loop() const noexcept {
  for (;;) {
    epoll_event events[8];
    const int n = ::epoll_wait(epoll_, events, 8, -1);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kStop) return;
      // Every event disabled the descriptor, also one without EPOLLIN (an error on a descriptor that was
      // added but not enabled).
      on_event_(context_, static_cast<std::uint32_t>(events[i].data.u64));
    }
  }
}

}  // namespace kasane::comm::ucx
#endif
