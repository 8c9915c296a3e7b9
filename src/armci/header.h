// SPDX-License-Identifier: Apache-2.0
// Debian's armci.h, armcix.h and message.h (package libarmci-mpi-dev) for C++: C linkage, and visible
// outside of the library. KASANE_WEAK_ALIAS defines the second name of a function of the profiling
// interface, which a tool may replace.
#pragma once

#include <mpi.h>
#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {
#include <armci.h>
#include <armcix.h>

// Of Global Arrays 5.9's armci.h.
int PARMCI_Init_mpi_comm(MPI_Comm comm);
int ARMCI_Init_mpi_comm(MPI_Comm comm);
void PARMCI_GroupFence(ARMCI_Group* group);
void ARMCI_GroupFence(ARMCI_Group* group);
MPI_Comm armci_group_comm(ARMCI_Group* group);
}
#pragma GCC visibility pop
// What armciconf.h leaves behind.
#undef PACKAGE
#undef VERSION
#undef restrict

// NOLINTBEGIN(bugprone-macro-parentheses): names of functions
#define KASANE_WEAK_ALIAS(alias_name, name) \
  extern "C" __attribute__((weak, alias(#name), visibility("default"))) decltype(name) alias_name
// NOLINTEND(bugprone-macro-parentheses)
