// SPDX-License-Identifier: Apache-2.0
// Which known word a mistyped one was meant to be: "rum" → "run".
// Thread safety: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kasane {

/// The known word that takes the fewest letters changed, left out, put in or swapped with their neighbour: at most a third of the word's, or one. Empty: none
/// is that near.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// "; did you mean run?", or nothing.
[[nodiscard]] std::string suggestion(std::string_view word, const std::vector<std::string>& known);

}  // namespace kasane
