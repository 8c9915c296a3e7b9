// SPDX-License-Identifier: Apache-2.0
// The scripts of kasane bench scale: what programs touch and wait for, with times for what they compute.
// Thread safety: none.
#pragma once

#include <string>
#include <vector>

#include "mem/pages.h"
#include "scale/stage.h"

namespace kasane::scale {

struct Script {
  const char* name;
  const char* what;
  /// Of one rank's memory; the whole heap is ranks times that, and at least `together`.
  std::uint64_t heap_each = 0, together = 0;
  /// Runs it on a stage with that heap. Returns what the same work takes on one rank, ns. quick: less of
  /// it.
  Result<std::uint64_t> (*run)(Stage&, bool quick);
  std::uint64_t page_bytes = mem::kPageBytes;
};

[[nodiscard]] const std::vector<Script>& scripts();

}  // namespace kasane::scale
