// SPDX-License-Identifier: Apache-2.0
// Reports of the heap at the end of a job: a table of what each rank's share holds (--stats), and what was
// never freed, by the place that allocated it (--check heap).
// Thread safety: when no worker runs any more.
#pragma once

#include <span>
#include <string>

#include "gas/direct_access.h"
#include "gas/heap.h"
#include "mem/space.h"

namespace kasane::runtime {

/// Lines of the table, a column a rank.
std::string heap_table(std::span<gas::Heap* const>, comm::Blocking&, std::uint32_t ranks);
/// What was not freed of this rank's share. Called after all ranks have released, since the records lie in
/// the allocations.
std::string leak_report(std::span<gas::Heap* const>, comm::Blocking&, gas::DirectAccess&, const mem::Space&,
                        Rank);

}  // namespace kasane::runtime
