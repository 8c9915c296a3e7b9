// SPDX-License-Identifier: Apache-2.0
// Lists of numbers, as the kernel and users write those of cores and NUMA nodes: "0-3,8".
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kasane::topo {

/// In the order of the text. Empty: it is no such list, is empty, or has a range of more than 65536 numbers.
[[nodiscard]] std::optional<std::vector<std::uint32_t>> parse_list(std::string_view text);
/// Ascending; "none" of no numbers.
[[nodiscard]] std::string list_text(std::vector<std::uint32_t> numbers);

}  // namespace kasane::topo
