// SPDX-License-Identifier: Apache-2.0
// How accesses to V are noticed and allowed. One interface for uffd, mprotect, and checked (software-checked scripts over the simulator).
//
// An engine decides nothing: it reports an access that V does not allow to its FaultHandler and changes access rights when told.
// The block table says what is valid; a report is only a hint (another worker may have served it meanwhile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

enum class Access : std::uint8_t { none = 0, read = 1, write = 2 };   ///< write includes read

/// Where a FaultHandler runs: on the alternate stack of the thread whose access it was; or on a thread of the engine, for one that sleeps in the kernel.
enum class Served : std::uint8_t { in_place, for_another };

/// What to do with an access at offset that V did not allow: no malloc, no locks held across waits, no touching of V. true: run it again (it was made
/// possible, or should come again later); false: it is wild. for_another: one at a time, so it must not wait for what only another fault brings about; and what
/// it calls wild comes again in_place, if it was no system call's, so that the report is of the thread that did it.
using FaultHandler = bool (*)(void* context, std::uint64_t offset, Access wanted, Served served);

class FaultEngine {
 public:
  virtual ~FaultEngine() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// From now on faults in V go to handler. One that is called for another thread may run when that thread has gone on by another's help: see await_handlers().
  virtual Result<void> start(FaultHandler handler, void* context) = 0;
  /// Returns when no thread is in the handler any more.
  virtual void stop() noexcept = 0;
  /// Returns when handlers that were called for other threads, and had begun before, have returned.
  virtual void await_handlers() const noexcept {}
  /// Before start(): V allows everything in the run, for good; no protect() of it may follow, and a fault there has no cure.
  virtual Result<void> leave_open(BlockRange run) = 0;
  /// Changes what V allows for the run; returns when no thread of this process can still use the old rights.
  /// Async-signal-safe, from any thread; the caller holds the busy bits of the blocks. False: the kernel's limit of mappings is
  /// reached (nothing or a part changed): drop clean cached blocks to merge runs, then call again.
  [[nodiscard]] virtual bool protect(BlockRange run, Access access) noexcept = 0;
  /// Frames of the range (bytes of V) will be punched under blocks that V does not allow: those are kept out by nothing but registration. Before any of them is shut out.
  /// frame_bytes: of a frame that the kernel makes there.
  virtual void expect_punches(std::uint64_t /*offset*/, std::uint64_t /*bytes*/, std::uint64_t /*frame_bytes*/) noexcept {}
  /// Of blocks that have no rights, and whose bits the caller holds, those up to the first that has a frame get one of these bytes, a block large, and the right to be read, or written; how many.
  /// None: not by this engine, not where frames do not come and go, or no memory. The rest is as it was.
  virtual std::uint64_t fill(BlockRange /*run*/, const std::byte* /*bytes*/, Access /*right*/) noexcept { return 0; }
  /// No block of the run has rights, and the caller holds their busy bits. The kernel's page tables behind it go back, where they can: those that only the run has translations in.
  virtual void give_tables_back(BlockRange) noexcept {}
  /// True when so many separate mappings exist that cached blocks should be dropped soon.
  [[nodiscard]] virtual bool crowded() const noexcept = 0;
};

}  // namespace kasane::mem
