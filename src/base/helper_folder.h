// SPDX-License-Identifier: Apache-2.0
// Where Kasane's own pieces lie that are loaded or started by name: the modules of MPIs, the library of --malloc space, the suites of kasane bench. An
// installation may be moved, so the place is relative to what runs:
//
//   PREFIX/lib[64|/MULTIARCH]/libkasane.so   PREFIX/lib…/kasane/…   beside the library
//   PREFIX/bin/kasane                        the same: lib/kasane, or as far from bin as it was to be installed
//   a program with a static libkasane        likewise, and where Kasane was to be installed
//
// Thread safety: any.
#pragma once

#include <string>
#include <vector>

namespace kasane {

/// Folders to look in, in this order, without a slash at the end.
[[nodiscard]] std::vector<std::string> helper_folders();

/// The first of them that has file, and file; empty if none has.
[[nodiscard]] std::string find_helper(const std::string& file);

}  // namespace kasane
