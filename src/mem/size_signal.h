// SPDX-License-Identifier: Apache-2.0
// For writes that may pass the limit of file sizes (ulimit -f), which may be lowered while a job runs. The
// kernel then sends SIGXFSZ, which ends the process without a message, before it returns EFBIG. While an
// object of this class lives, this thread's writes end with EFBIG only.
//
// The signal goes to the thread that writes, or that submits to io_uring.
//
// Thread safety: an object belongs to its thread, fault handlers too. Two system calls, three where the
// signal is discarded.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <ctime>

namespace kasane::mem {

class NoSizeSignal {
 public:
  NoSizeSignal() noexcept {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;
  ~NoSizeSignal() {
    if (sent_) {  // also where it was blocked before: the interrupted code must not get it later
      const int saved = errno;
      const timespec now{};
      (void)::sigtimedwait(&signal_, nullptr, &now);
      errno = saved;
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  /// The signal may have been sent, and is to be discarded.
  void may_be_sent() noexcept { sent_ = true; }

 private:
  sigset_t signal_{}, before_{};
  bool sent_ = false;
};

}  // namespace kasane::mem
