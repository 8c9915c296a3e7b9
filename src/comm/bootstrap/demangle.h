// SPDX-License-Identifier: Apache-2.0
// A dying rank cannot allocate, so it writes C++ names mangled in its crash report; the supervisor demangles
// them. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kasane::comm {

/// text with every mangled C++ name (_Z…) replaced by its demangled form; of a long one without the arguments
/// of templates and functions.
std::string demangle_all(std::string_view text);

}  // namespace kasane::comm
