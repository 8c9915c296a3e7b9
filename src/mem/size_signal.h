// SPDX-License-Identifier: Apache-2.0
// Writes beyond the limit of file sizes (ulimit -f), which may be lowered while a job runs: the kernel sends SIGXFSZ, which ends the process without a word, and only then says
// EFBIG. While one of these lives, this thread's writes just end with EFBIG.
//
// The signal goes to the thread that writes, or that submits to io_uring.
//
// Thread safety: an object belongs to its thread, fault handlers too. Two system calls, three where the signal is looked for.
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
    if (sent_) {   // also where it was blocked before: a fault handler would be followed by it
      const int saved = errno;
      const timespec now{};
      (void)::sigtimedwait(&signal_, nullptr, &now);
      errno = saved;
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  /// It may have been sent, and is to be forgotten.
  void may_be_sent() noexcept { sent_ = true; }

 private:
  sigset_t signal_{}, before_{};
  bool sent_ = false;
};

}  // namespace kasane::mem
