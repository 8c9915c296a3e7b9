// SPDX-License-Identifier: Apache-2.0
// Runs of pages of a rank's share, taken and given by any rank (docs/design/heap.md). Free runs lie on stacks
// by size; pages that were never used begin at `used`. A run that is larger than asked for is split.
// Neighbours are joined rarely: by a thread that finds no run that fits, when the share has grown by half
// since the last time or is used up. It takes all stacks, and all slabs that are wholly free, sorts, joins,
// and gives them back. So taking and giving cost O(1) on average.
//
// Thread safety: any thread of any rank, each with its own HeapAccess.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "gas/heap_access.h"

namespace kasane::gas {

struct HeapRun {
  std::uint64_t first = 0, pages = 0;
  bool fresh = false;  ///< never used before
};

/// What a share has left, for messages and reports.
struct HeapRoom {
  std::uint64_t free_pages = 0, largest_run = 0;
};

class HeapRuns {
 public:
  /// A run whose page record the caller must write. The error names rank, request and what is left.
  static Result<HeapRun> take(HeapAccess&, std::uint64_t pages);
  static void give(HeapAccess&, std::uint64_t first, std::uint64_t pages);
  /// As give(), for a run whose record says free already.
  static void push(HeapAccess&, std::uint64_t first, std::uint64_t pages);
  /// Takes pages behind the run, if they were never used. True: they are the caller's now.
  static bool extend(HeapAccess&, std::uint64_t first, std::uint64_t pages, std::uint64_t wanted);

 private:
  static bool take_free(HeapAccess&, std::uint64_t pages, const std::uint64_t* header, HeapRun& run);
  static bool take_unused(HeapAccess&, std::uint64_t pages, std::uint64_t used, HeapRun& run);
  static bool pop(HeapAccess&, unsigned size_class, StackHead known, HeapRun& run);
  enum class Joined { busy, done, found };
  static Joined join(HeapAccess&, std::uint64_t pages, HeapRoom& room, HeapRun& run);
};

}  // namespace kasane::gas
