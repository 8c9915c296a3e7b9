// SPDX-License-Identifier: Apache-2.0
// A dying rank cannot allocate, so it writes C++ names mangled in its crash report; the supervisor demangles
// them. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kasane::diagnostics {

/// A longer name says less than it hides: those of nested lambdas and templates have thousands of characters.
inline constexpr std::size_t kLongestName = 160;

/// text with every mangled C++ name (_Z…) replaced by its demangled form; of a long one without
/// the arguments of templates and functions.
std::string demangle_all(std::string_view text);
/// The name, demangled if it is mangled, and without arguments if it is longer than `longest`.
std::string readable_name(const std::string& name, std::size_t longest = kLongestName);
/// A readable name without the arguments of templates and functions.
std::string without_arguments(const std::string& name);

}  // namespace kasane::diagnostics
