// SPDX-License-Identifier: Apache-2.0
// kasane info --ga MPI: how Global Arrays programs are linked with Kasane's libarmci.
#pragma once

#include <string>

namespace kasane::tools {

/// Prints lines for a shell: the variables by which compilers and the dynamic loader find the libarmci for
/// that MPI before any other. Returns the exit status; 2: there is none.
int print_ga_variables(const std::string& mpi);

}  // namespace kasane::tools
