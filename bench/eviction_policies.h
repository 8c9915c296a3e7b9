// SPDX-License-Identifier: Apache-2.0
// The eviction policies that kasane bench eviction compares: those of the runtime (mem/eviction_policy.h) and
// others, which only this comparison has.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "mem/eviction_policy.h"

namespace kasane::bench {

/// The names of all: the runtime's s3-fifo first.
[[nodiscard]] std::vector<std::string_view> eviction_policies();

/// For at most `pages` pages at once. Null: no policy has this name.
[[nodiscard]] std::unique_ptr<mem::EvictionPolicy> make_eviction_policy(std::string_view name,
                                                                        std::uint32_t pages, mem::PageProbe&);

}  // namespace kasane::bench
