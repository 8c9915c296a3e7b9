// SPDX-License-Identifier: Apache-2.0
// How bytes are transferred between memory and a spill file: the contract of the two engines, and the choice
// between them.
//
//   io_uring   one system call for many transfers, no threads   Linux ≥ 5.6 that allows it (containers'
//                                                               seccomp filters often do not)
//   threads    pread and pwrite by a few threads                any kernel
//
// A transfer is named by a slot, a small number that the user passes and gets back with the result. Frames
// are never registered: that would pin them, and they could not be punched any more (rule 9). The kernel
// holds a frame only while its own transfer is under way. Other memory that is used repeatedly may be
// registered.
//
// Thread safety: start() and flush() by one thread at a time; reap(), ready() and sleep() by one thread at a
// time; both sides may run at once. Nothing allocates or locks: fault handlers may call all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "mem/engines.h"

namespace kasane::mem {

enum class SpillOp : std::uint8_t { read, write };

struct SpillTransfer {
  SpillOp op = SpillOp::read;
  int fd = -1;
  std::byte* memory = nullptr;
  std::uint64_t offset = 0;  ///< in the file
  std::uint32_t bytes = 0;
};

/// How a transfer ended: the bytes moved, perhaps fewer than asked for, or -errno.
struct SpillResult {
  std::uint32_t slot;
  std::int32_t result;
};

class SpillEngine {
 public:
  virtual ~SpillEngine() = default;  ///< nothing may be under way

  /// Registers memory, not of frames, that many transfers will use as long as the engine lives: the kernel
  /// pins it once instead of for each transfer. Called once, before the first transfer. False: it is not
  /// registered, and transfers work all the same.
  virtual bool register_memory(std::span<std::byte>) noexcept { return false; }
  /// Accepts the transfer; it may wait for flush(). At most `depth` slots are between start() and reap().
  virtual void start(std::uint32_t slot, const SpillTransfer&) noexcept = 0;
  /// Submits everything that was started.
  virtual void flush() noexcept = 0;
  /// Returns finished transfers, in any order, as many as there is room for.
  virtual unsigned reap(std::span<SpillResult>) noexcept = 0;
  /// Has reap() something to return now? In user space, called by the reaping thread; may be called
  /// repeatedly.
  [[nodiscard]] virtual bool ready() noexcept = 0;
  /// Sleeps until reap() has something to return. Only while something that was flushed has not been reaped.
  virtual void sleep() noexcept = 0;
};

/// All engines, the preferred one first. Probes the kernel; not for fault handlers.
[[nodiscard]] std::vector<EngineInfo> spill_engines();

/// By name, or "auto": the first available one. Errc::unsupported says what the kernel lacks. depth: a power
/// of two up to 256.
Result<std::unique_ptr<SpillEngine>> make_spill_engine(std::string_view name, unsigned depth);

}  // namespace kasane::mem
