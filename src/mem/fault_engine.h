// SPDX-License-Identifier: Apache-2.0
// How accesses to V are detected and allowed. One interface for uffd, mprotect, and the checked engine of the
// tests.
//
// An engine decides nothing. It reports an access that V does not allow to its FaultHandler, and changes
// access rights when it is told to. The block table says what is valid; a report is only a hint, as another
// worker may have served it meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

enum class Access : std::uint8_t { none = 0, read = 1, write = 2 };  ///< write includes read

/// Where a FaultHandler runs: on the alternate stack of the thread that faulted; or on a thread of the
/// engine, for a thread that sleeps in the kernel.
enum class Served : std::uint8_t { in_place, for_another };

/// Handles an access at offset that V did not allow. No malloc, no locks held across waits, no access to V.
/// true: run the access again (it was made possible, or should come again later); false: it is wild.
/// for_another: called for one fault at a time, so it must not wait for what only another fault brings about.
/// What it calls wild comes again in_place, unless it was a system call's, so that the report names the
/// thread that did it.
using FaultHandler = bool (*)(void* context, std::uint64_t offset, Access wanted, Served served);

class FaultEngine {
 public:
  virtual ~FaultEngine() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// From now on faults in V go to handler. A call for another thread may still run after another call has
  /// let that thread go on: see await_handlers().
  virtual Result<void> start(FaultHandler handler, void* context) = 0;
  /// Returns when no thread runs the handler any more.
  virtual void stop() noexcept = 0;
  /// Returns when the calls for other threads that had begun before have returned.
  virtual void await_handlers() const noexcept {}
  /// Before start(): V allows everything in the run from now on; no protect() of it may follow, and a fault
  /// there cannot be cured.
  virtual Result<void> leave_open(BlockRange run) = 0;
  /// Changes what V allows for the run. When it returns, no thread of this process can use the old rights.
  /// Async-signal-safe, from any thread; the caller holds the busy bits of the blocks. False: the kernel's
  /// limit of mappings is reached (nothing or a part changed). Then drop clean cached blocks, to merge runs,
  /// and call again.
  [[nodiscard]] virtual bool protect(BlockRange run, Access access) noexcept = 0;
  /// Frames of the range (bytes of V) will be punched under blocks that V does not allow; only registration
  /// keeps accesses out of those. Called before such a block is shut out. frame_bytes: the size of the frames
  /// that the kernel makes there.
  virtual void expect_punches(std::uint64_t /*offset*/, std::uint64_t /*bytes*/,
                              std::uint64_t /*frame_bytes*/) noexcept {}
  /// Does this engine make the frame of a block when it becomes writable? Else the kernel makes it when it is
  /// touched.
  [[nodiscard]] virtual bool makes_frames(BlockId) const noexcept { return false; }
  /// The blocks of `run` have no rights, and the caller holds their bits. Fills them with `bytes`, up to the
  /// first block that has a frame, gives the filled blocks `right`, and returns their number. 0: this engine
  /// cannot, frames do not come and go there, or there is no memory. The other blocks are unchanged.
  virtual std::uint64_t fill(BlockRange /*run*/, const std::byte* /*bytes*/, Access /*right*/) noexcept {
    return 0;
  }
  /// The kernel may keep translations of blocks without rights, by which it counts their frames as mapped
  /// here. They go; those of other blocks of the run may go, too, and the kernel makes them again for the
  /// next access. Rights stay, and no bit need be held.
  virtual void drop_kept_translations(BlockRange) const noexcept {}
  /// Gives back the kernel's page tables of the run, as far as no other blocks use them. No block of the run
  /// has rights, and the caller holds their busy bits.
  virtual void give_tables_back(BlockRange) noexcept {}
  /// So many separate mappings exist that cached blocks should be dropped soon.
  [[nodiscard]] virtual bool crowded() const noexcept = 0;
};

}  // namespace kasane::mem
