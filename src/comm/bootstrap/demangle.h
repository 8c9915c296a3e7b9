// SPDX-License-Identifier: Apache-2.0
// C++ names in a crash report are written mangled, since a dying rank cannot allocate; the supervisor makes them readable. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kasane::comm {

/// text with every mangled C++ name (_Z…) replaced by what it means.
std::string demangle_all(std::string_view text);

}  // namespace kasane::comm
