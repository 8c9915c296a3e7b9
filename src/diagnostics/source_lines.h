// SPDX-License-Identifier: Apache-2.0
// Adds source files and lines to reports: of each "(/path/of/object+0x1234)", by addr2line(1) where it is
// installed and the object has debug information. In the supervisor, since a rank that reports may do little.
// Thread safety: one thread; starts a process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kasane::diagnostics {

struct SourceLine {
  std::string function;  ///< mangled
  std::string place;     ///< "path/file.cpp:12"
};
/// Of each address in the file of an object the line, then, if that is of inlined code, the lines into which
/// it was inlined. Empty where they are not known, and where a control group leaves too little memory for
/// addr2line. Of at most 256 addresses.
std::map<std::uint64_t, std::vector<SourceLine>> source_lines(const std::string& object,
                                                              const std::vector<std::uint64_t>& addresses);
/// Whether the place is in a header of the system or of Kasane: what it was inlined into says more.
bool is_library(std::string_view place);

/// The text with " at file.cpp:12" behind each such place whose line is known: of code that was inlined, the
/// innermost line outside of headers of the system and of Kasane.
std::string with_source_lines(std::string_view text);

}  // namespace kasane::diagnostics
