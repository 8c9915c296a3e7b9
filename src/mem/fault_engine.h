// SPDX-License-Identifier: Apache-2.0
// How accesses to V are noticed and allowed. One interface for uffd, mprotect, and checked (software-checked scripts over the simulator).
//
// An engine decides nothing: it reports an access that V does not allow to its FaultHandler and changes access rights when told.
// The block table says what is valid; a report is only a hint (another worker may have served it meanwhile).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

enum class Access : std::uint8_t { none = 0, read = 1, write = 2 };   ///< write includes read

/// What to do with an access at offset that V did not allow. Runs on the faulting thread's alternate stack: no malloc, no
/// locks held across waits, no touching of V. true: the access was made possible, run it again; false: it is wild.
using FaultHandler = bool (*)(void* context, std::uint64_t offset, Access wanted);

class FaultEngine {
 public:
  virtual ~FaultEngine() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// From now on faults in V go to handler.
  virtual Result<void> start(FaultHandler handler, void* context) = 0;
  virtual void stop() noexcept = 0;
  /// Before start(): V allows everything in the run, for good; no protect() of it may follow, and a fault there has no cure.
  virtual Result<void> leave_open(BlockRange run) = 0;
  /// Changes what V allows for the run; returns when no thread of this process can still use the old rights.
  /// Async-signal-safe, from any thread; the caller holds the busy bits of the blocks. False: the kernel's limit of mappings is
  /// reached (nothing or a part changed): drop clean cached blocks to merge runs, then call again.
  [[nodiscard]] virtual bool protect(BlockRange run, Access access) noexcept = 0;
  /// Frames of the range (bytes of V) will be punched under blocks that V does not allow: those are kept out by nothing but registration. Before any of them is shut out.
  virtual void expect_punches(std::uint64_t /*offset*/, std::uint64_t /*bytes*/) noexcept {}
  /// True when so many separate mappings exist that cached blocks should be dropped soon.
  [[nodiscard]] virtual bool crowded() const noexcept = 0;
};

}  // namespace kasane::mem
