// SPDX-License-Identifier: Apache-2.0
// One userfaultfd(2) of this process over a shared mapping of a memory file, whose faults come as SIGBUS in place. Only what the uffd engine calls, with
// what is newer than the headers of Debian 12 defined here.
//
//   a page of a registered range       a load                 a store
//   no translation                     SIGBUS                 SIGBUS      whether the file has the page (minor) or not (missing)
//   mapped protected                   passes                 SIGBUS
//   mapped                             passes                 passes
//
// The calls return 0 or an errno, never throw, and are async-signal-safe. A translation that a call takes away is gone on every core when it returns.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace kasane::mem {

class Userfaultfd {
 public:
  /// Errc::unsupported with what is missing: userfaultfd itself (old kernel, seccomp) or one of its features.
  static Result<Userfaultfd> open();
  Userfaultfd(Userfaultfd&&) noexcept;
  Userfaultfd& operator=(Userfaultfd&&) = delete;
  /// Takes its ranges back: they become plain mappings.
  ~Userfaultfd();

  /// Faults of the range come to us from now on; its translations stay as they are. Splits and merges mappings; ENOMEM: too many.
  [[nodiscard]] int add(std::byte* address, std::size_t bytes) const noexcept;
  /// The kernel serves the range by itself again; nothing is protected in it any more. ENOMEM: as above.
  [[nodiscard]] int remove(std::byte* address, std::size_t bytes) const noexcept;

  /// Maps pages that the file has, protected or not, up to the first that it does not have or that is mapped already. done: bytes mapped. EFAULT: the next
  /// is a hole of the file; EEXIST: it is mapped; ENOENT: it is not in a range of ours. Replaces a guard marker whose page the file has (mem/stack_guard.h).
  [[nodiscard]] int map(std::byte* address, std::size_t bytes, bool protect, std::size_t& done) const noexcept;
  /// Protects what is mapped in the range, or opens it to stores.
  [[nodiscard]] int protect(std::byte* address, std::size_t bytes, bool on) const noexcept;

 private:
  explicit Userfaultfd(int fd) noexcept : fd_(fd) {}
  int fd_;
};

/// Tries on a page of its own what the engine needs. Empty: all is there; else what is missing.
[[nodiscard]] std::string probe_userfaultfd();

}  // namespace kasane::mem
