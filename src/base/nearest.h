// SPDX-License-Identifier: Apache-2.0
// Finds the known word that a mistyped one was meant to be: "rum" → "run".
// Thread safety: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kasane {

/// The known word at the least distance: letters changed, left out, added or swapped with their neighbour. At
/// most a third of the word's letters, or one. Where there is none: the longest known word that is a part of
/// the word, as "trace" is of "trace-all". Empty: there is none either.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// "; did you mean run?", or nothing.
[[nodiscard]] std::string suggestion(std::string_view word, const std::vector<std::string>& known);

}  // namespace kasane
