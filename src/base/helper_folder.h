// SPDX-License-Identifier: Apache-2.0
// The folders of Kasane's files that are loaded or started by name: the modules of MPIs, the library of
// --malloc space, the suites of kasane bench. An installation may be moved, so the folders are relative to
// the running file:
//
//   PREFIX/lib[64|/MULTIARCH]/libkasane.so   PREFIX/lib…/kasane/…   beside the library
//   PREFIX/bin/kasane                        likewise: ../lib/kasane, or as it was to be installed
//   a program with a static libkasane        likewise, and the installation's folder
//
// Thread safety: any.
#pragma once

#include <string>
#include <vector>

namespace kasane {

/// The folders to search, in this order, without a slash at the end.
[[nodiscard]] std::vector<std::string> helper_folders();

/// The path of `file` in the first folder that has it; empty if none has.
[[nodiscard]] std::string find_helper(const std::string& file);

}  // namespace kasane
