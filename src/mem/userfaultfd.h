// SPDX-License-Identifier: Apache-2.0
// One userfaultfd(2) of this process over a shared mapping of a memory file: what the uffd engine calls, with
// definitions that the headers of Debian 12 lack.
//
//   a page of a registered range      a load   a store
//   no translation                    fault    fault   whether the file has the page (minor) or not (missing)
//   mapped protected                  passes   fault
//   mapped                            passes   passes
//
//   a fault, by delivery    in user code                             in a system call
//   in_place                SIGBUS                                   EFAULT
//   thread                  the thread sleeps until it is woken      it sleeps; a signal does not end that
//
// The calls return 0 or an errno, never throw, and are async-signal-safe. A translation that a call removes
// is gone on every core when it returns.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace kasane::mem {

enum class Delivery { in_place, thread };

/// An access for which a thread sleeps (Delivery::thread).
struct UserFault {
  std::byte* address;
  bool write;
};

class Userfaultfd {
 public:
  /// Errc::unsupported with what is missing: userfaultfd itself (old kernel, seccomp), privileges
  /// (Delivery::thread), or one of its features.
  static Result<Userfaultfd> open(Delivery);
  Userfaultfd(Userfaultfd&&) noexcept;
  Userfaultfd& operator=(Userfaultfd&&) = delete;
  /// Takes its ranges back: they become plain mappings.
  ~Userfaultfd();

  /// Faults of the range come to this userfaultfd from now on; its translations stay as they are. Splits and
  /// merges mappings; ENOMEM: too many.
  [[nodiscard]] int add(std::byte* address, std::size_t bytes) const noexcept;
  /// The kernel serves the range itself again; nothing is protected in it any more. ENOMEM: too many.
  [[nodiscard]] int remove(std::byte* address, std::size_t bytes) const noexcept;

  /// Maps pages that the file has, protected or not, up to the first that the file lacks or that is mapped
  /// already. done: bytes mapped. EFAULT: the next page is a hole of the file; EEXIST: it is mapped; ENOENT:
  /// it is not registered here. Replaces a guard marker whose page the file has (mem/stack_guard.h).
  [[nodiscard]] int map(std::byte* address, std::size_t bytes, bool protect,
                        std::size_t& done) const noexcept;
  /// Makes pages of zeros that the file lacks, and maps them, up to the first that it has. done: bytes made.
  /// EEXIST: the file has the next page; ENOENT: the range is not registered here.
  [[nodiscard]] int make(std::byte* address, std::size_t bytes, std::size_t& done) const noexcept;
  /// As make(), but the pages get the bytes at `from`, and are mapped write-protected if `protect` says so.
  [[nodiscard]] int copy(std::byte* address, const std::byte* from, std::size_t bytes, bool protect,
                         std::size_t& done) const noexcept;
  /// Protects what is mapped in the range, or opens it to stores. After opening, the first store to each page
  /// takes a fault that the kernel serves itself (0.8 µs; Linux 6.18); pages that were mapped without
  /// protection do not.
  [[nodiscard]] int protect(std::byte* address, std::size_t bytes, bool on) const noexcept;

  /// Delivery::thread: returns the faults that were not received yet, and their number. Never waits: poll()
  /// the descriptor. Each fault comes once, unless its thread wakes and faults again.
  [[nodiscard]] std::size_t receive(std::span<UserFault>) const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return fd_; }
  /// All threads that sleep for a page of the range repeat their access. Only this and remove() wake them, so
  /// a faulting thread goes on after the serving thread has ended its step.
  void wake(std::byte* address, std::size_t bytes) const noexcept;

 private:
  explicit Userfaultfd(int fd) noexcept : fd_(fd) {}
  int fd_;
};

/// Tries what the engine needs on a page of its own. Empty: all is there; else what is missing.
[[nodiscard]] std::string probe_userfaultfd(Delivery);

}  // namespace kasane::mem
