// SPDX-License-Identifier: Apache-2.0
// Interfaces of ult to the layers that it must not know. With one rank none of it is called, so ult alone is
// a complete thread library; sched and runtime implement it for several ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/time_spent.h"

namespace kasane::ult {

/// A moment in the history of a rank's releases: all that it had stored then is released when a later release
/// has ended. It is the number (below 2^32, the lower bits of it) of the last release that had begun.
using ReleaseMark = std::uint32_t;
inline constexpr ReleaseMark kNoMark = 0;

/// Fences at the edges of docs/design/sched.md. Called on a user-level stack or on a worker's own. Account:
/// whose time it is.
class Edges {
 public:
  virtual ~Edges() = default;
  /// Makes visible here what was written on source before the fact that the caller saw. mark: taken by source
  /// after these stores; if it has released since, it is not asked. Returns how many releases of source have
  /// ended since; 0: it was asked for one. Never called with the own rank.
  virtual std::uint32_t cross(Rank source, Account, ReleaseMark mark) = 0;
  /// The first half of cross() alone: source has released when this returns. For a steal, whose stack arrives
  /// between the release and acquire() (sched/steal.h); its time is the steal's. The default does more than
  /// needed: it acquires, too.
  virtual void ask_release(Rank source) { cross(source, Account::steal, kNoMark); }
  /// Before arriving at a barrier: what this rank wrote becomes visible to ranks that acquire afterwards.
  virtual void release(Account) = 0;
  /// Releases if at most `blocks` blocks have changes, and returns a mark since which this rank has released.
  /// kNoMark: more have changes, and nothing was done. The default never releases.
  virtual ReleaseMark release_little(std::uint32_t /*blocks*/, Account) { return kNoMark; }
  /// The number of the last release of this rank that has begun; null: not known. Each call returns the same
  /// pointer.
  [[nodiscard]] virtual const std::atomic<std::uint64_t>* releases_begun() const noexcept { return nullptr; }
  /// When a barrier lets go; the second half of a steal.
  virtual void acquire(Account) = 0;
  /// Answers what other ranks have asked of this one. By a worker, where it holds nothing.
  virtual void answer() {}
};

/// Moves the pages of a stack between ranks.
class StackMover {
 public:
  virtual ~StackMover() = default;
  /// Thief: own the stack's pages; bytes [live_lo, live_hi) (addresses in V) arrive from rank from.
  virtual void adopt(StackId, std::uintptr_t live_lo, std::uintptr_t live_hi, Rank from) = 0;
  /// A moved thread has exited here: give the pages back to the birth rank, without data.
  virtual void surrender(StackId) = 0;
  /// The birth rank takes a returned stack into use again.
  virtual void reclaim(StackId) = 0;
};

/// 64-bit atomic words of the threads region of any rank (sequentially consistent). offset is within the
/// region.
class Words {
 public:
  virtual ~Words() = default;
  /// The rank's region, if the CPU's atomics may change its words instead of the calls below; else null. Each
  /// call returns the same pointer.
  [[nodiscard]] virtual std::byte* region(Rank) noexcept { return nullptr; }
  virtual std::uint64_t load(Rank, std::uint64_t offset) = 0;
  virtual void store(Rank, std::uint64_t offset, std::uint64_t value) = 0;
  virtual std::uint64_t compare_swap(Rank, std::uint64_t offset, std::uint64_t expected,
                                     std::uint64_t desired) = 0;
  virtual std::uint64_t fetch_or(Rank, std::uint64_t offset, std::uint64_t operand) = 0;
  virtual std::uint64_t fetch_and(Rank, std::uint64_t offset, std::uint64_t operand) = 0;
};

}  // namespace kasane::ult
