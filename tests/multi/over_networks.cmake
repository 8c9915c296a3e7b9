# kasane_add_network_tests(NAME RANKS TIMEOUT COMMAND…): one CTest entry for each network that this build has, NAME_over_NETWORK_RANKS: the command as
# `kasane run` starts it with the ranks joined by that network instead of by shared memory.
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

function(kasane_add_network_tests name ranks timeout)
  if(KASANE_SANITIZER)   # a sanitizer's operator new is not global memory, and its start comes before ours
    return()
  endif()
  foreach(network IN LISTS KASANE_NETWORKS)
    set(flags --transport ucx)
    if(NOT network STREQUAL "ucx")
      set(flags --transport mpi --mpi ${network})
    endif()
    add_test(NAME ${name}_over_${network}_${ranks} COMMAND $<TARGET_FILE:kasane_command> run -n ${ranks} ${flags} -- ${ARGN})
    set_tests_properties(${name}_over_${network}_${ranks} PROPERTIES TIMEOUT ${timeout} LABELS "multi;network")
  endforeach()
endfunction()
