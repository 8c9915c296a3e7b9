// SPDX-License-Identifier: Apache-2.0
// libarmci: ARMCI, on which Global Arrays is built, over Kasane's global memory (docs/design/armci.md). The
// library uses the public C interface and the MPI alone. ARMCI memory is global memory owned by the rank that
// allocated it; that rank loads and stores it, and others access it directly.
//
// This header: what all parts share. Thread safety: everything but start and end, if the MPI's thread level
// allows the MPI calls.
#pragma once

#include <kasane/kasane.h>
#include <cstddef>
#include <cstdint>

#include "armci/header.h"

namespace kasane::armci {

struct Library {
  int starts = 0;         ///< ARMCI_Init that no ARMCI_Finalize has ended
  bool attached = false;  ///< by ARMCI_Init, so ARMCI_Finalize detaches
  int me = 0;             ///< this process in the world group
  int size = 1;
  bool crowded = false;  ///< the processes of this host have not a processor each
  ARMCI_Group world = {};
  ARMCI_Group default_group = {};
};
/// The process's one ARMCI.
extern Library library;

/// Says what is wrong on standard error, with this process's number, and ends the job (MPI_Abort).
[[noreturn]] [[gnu::format(printf, 1, 2)]] void fatal(const char* format, ...);
/// After a call of Kasane's for `call` with `process` and its address failed with `code`: fatal().
[[noreturn]] void fatal_at(const char* call, int process, const void* address, int code);
/// fatal() outside of ARMCI_Init … ARMCI_Finalize.
void need_started(const char* call);

/// Waits a little, longer each time: spins first, for some milliseconds where each process has a processor,
/// then yields so often, then sleeps, for at most `longest` times 10 us.
class Patience {
 public:
  explicit Patience(unsigned yields = 16, unsigned longest = 20) noexcept
      : yields_(yields), longest_(longest) {}
  void wait() noexcept;
  [[nodiscard]] bool spins() const noexcept { return turns_ < kSpins; }

 private:
  [[nodiscard]] bool is_young() noexcept;

  static constexpr unsigned kSpins = 64;
  /// More than a time slice. Who sleeps wakes up on whichever processor is idle then, maybe that of another
  /// process; and as long as they share it, each message of the MPI, which spins, takes a time slice.
  static constexpr std::uint64_t kSpinNs = 5'000'000;

  unsigned yields_, longest_, turns_ = 0;
  std::uint64_t began_ns_ = 0;
};

/// Returns when each process of the group has called it.
void group_barrier(const ARMCI_Group& group);
/// Process p's `bytes` at `mine` come to all + p * bytes on every process of the group.
void group_gather(const ARMCI_Group& group, const void* mine, void* all, std::size_t bytes);
/// The number in the group of a process of the world; -1: it is no member.
int number_in(const ARMCI_Group& group, int process);
/// Fills in group from group.comm.
void describe_group(ARMCI_Group& group);

/// The library's own mutexes of each process. Collective. False: there is no memory for them.
bool create_own_mutexes();
/// A barrier of the world: all accesses of a process before it are seen by all after it. The MPI makes
/// progress meanwhile. False: this is before those mutexes, or after them; nothing happened.
bool meet_all();
/// Frees those, and what ARMCI_Create_mutexes allocated, if it did. Collective.
void destroy_mutexes();
/// Holds the library's own mutex of a process. What is done meanwhile is done by blocking calls: the end
/// waits for no pending operation.
class ProcessLock {
 public:
  ProcessLock(const char* call, int process);
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

 private:
  const char* call_;
  int process_;
};

}  // namespace kasane::armci
