// SPDX-License-Identifier: Apache-2.0
// Graphs of what a machine has: Debian's packages, and the files of a program. Edges go from what needs to
// what is needed.
//
// Thread safety: none; main calls them. Errors are std::runtime_error, with what to do.
#pragma once

#include <istream>
#include <kasane/graph.hpp>
#include <string>

namespace apps::graph {

/// Packages and what they depend on (Depends and Pre-Depends, every alternative), by name, as `apt-cache
/// dumpavail` lists them. A name that no package has, such as a virtual package's, is a vertex too.
/// Throws: there is no apt-cache, it fails, or knows no package.
kasane::graph::file<> debian_packages();
/// The same from such a list. Empty, if it has no package.
kasane::graph::file<> packages_of(std::istream& list);

/// The C and C++ files under the folder, by their paths in it, and what they include of each other. An
/// include in quotes is looked for beside the file that has it, then as others are: from the folder, then
/// under any sub-folder, of several the one with the shortest path. Links are not followed.
/// Throws: the folder or something in it cannot be read, or it has no such file.
kasane::graph::file<> includes_under(const std::string& folder);

}  // namespace apps::graph
