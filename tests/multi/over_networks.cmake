# SPDX-License-Identifier: Apache-2.0
# kasane_add_network_tests(NAME RANKS TIMEOUT COMMAND…): one CTest entry, NAME_over_NETWORK_RANKS, for each
# network that this build has. `kasane run` starts the command, and the network joins the ranks instead of
# shared memory.
# kasane_add_network_test(NETWORK NAME RANKS TIMEOUT COMMAND…): one of them.
include_guard()

set(KASANE_NETWORKS "")
if(UCX_FOUND)
  list(APPEND KASANE_NETWORKS ucx)
endif()
foreach(mpi openmpi mpich)
  if(TARGET kasane-mpi-${mpi})
    list(APPEND KASANE_NETWORKS ${mpi})
  endif()
endforeach()

# Four ranks that poll an MPI take minutes on two cores. Long tests run on two ranks over all networks, and on
# four ranks over the first of ucx, mpich, openmpi that this build has. The code that knows of ranks is the
# same over all networks, and the MPI modules have their own tests on four ranks (tests/multi/mpi).
set(KASANE_NETWORKS_2 ${KASANE_NETWORKS})
set(KASANE_NETWORKS_4 "")
foreach(network ucx mpich openmpi)
  if(network IN_LIST KASANE_NETWORKS AND NOT KASANE_NETWORKS_4)
    set(KASANE_NETWORKS_4 ${network})
  endif()
endforeach()

function(kasane_add_network_test network name ranks timeout)
  if(KASANE_SANITIZER)   # a sanitizer's operator new is not global memory, and its start comes before ours
    return()
  endif()
  set(flags --transport ucx)
  if(NOT network STREQUAL "ucx")
    set(flags --transport mpi --mpi ${network})
  endif()
  add_test(NAME ${name}_over_${network}_${ranks}
    COMMAND $<TARGET_FILE:kasane_command> run -n ${ranks} ${flags} -- ${ARGN})
  set_tests_properties(${name}_over_${network}_${ranks} PROPERTIES TIMEOUT ${timeout} LABELS "multi;network")
endfunction()

function(kasane_add_network_tests name ranks timeout)
  foreach(network IN LISTS KASANE_NETWORKS)
    kasane_add_network_test(${network} ${name} ${ranks} ${timeout} ${ARGN})
  endforeach()
endfunction()
