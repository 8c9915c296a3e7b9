// SPDX-License-Identifier: Apache-2.0
// Adds source files and lines to reports: of each "(/path/of/object+0x1234)", by addr2line(1) where it is
// installed and the object has debug information. In the supervisor, since a rank that reports may do little.
// Thread safety: one thread; starts a process.
#pragma once

#include <string>
#include <string_view>

namespace kasane::comm {

/// The text with " at file.cpp:12" behind each such place whose line is known: of code that was inlined, the
/// innermost line outside of headers of the system and of Kasane.
std::string with_source_lines(std::string_view text);

}  // namespace kasane::comm
