# kasane_add_network_tests(NAME RANKS TIMEOUT COMMAND…): one CTest entry for each network that this build has, NAME_over_NETWORK_RANKS: the command as
# `kasane run` starts it with the ranks joined by that network instead of by shared memory.
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

# Four ranks that poll Open MPI take minutes on two cores. Long tests run on four over UCX and one MPI (what knows of ranks is the same over both; the modules themselves have tests on four,
# tests/multi/mpi), on two over all.
set(KASANE_NETWORKS_2 ${KASANE_NETWORKS})
set(KASANE_NETWORKS_4 ${KASANE_NETWORKS})
if("mpich" IN_LIST KASANE_NETWORKS)
  list(REMOVE_ITEM KASANE_NETWORKS_4 openmpi)
endif()

function(kasane_add_network_test network name ranks timeout)
  if(KASANE_SANITIZER)   # a sanitizer's operator new is not global memory, and its start comes before ours
    return()
  endif()
  set(flags --transport ucx)
  if(NOT network STREQUAL "ucx")
    set(flags --transport mpi --mpi ${network})
  endif()
  add_test(NAME ${name}_over_${network}_${ranks} COMMAND $<TARGET_FILE:kasane_command> run -n ${ranks} ${flags} -- ${ARGN})
  set_tests_properties(${name}_over_${network}_${ranks} PROPERTIES TIMEOUT ${timeout} LABELS "multi;network")
endfunction()

function(kasane_add_network_tests name ranks timeout)
  foreach(network IN LISTS KASANE_NETWORKS)
    kasane_add_network_test(${network} ${name} ${ranks} ${timeout} ${ARGN})
  endforeach()
endfunction()
