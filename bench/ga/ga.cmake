# SPDX-License-Identifier: Apache-2.0
# kasane bench ga, and the programs in Global Arrays C that it runs: the player here, and the applications of
# apps/ga. Where there are none, the suite says so.
kasane_add_ga_program(player-ga "${KASANE_HELPERS}" ga/player.c)
add_executable(kasane-bench-ga ga/ga.cpp ga/runs.cpp)
target_link_libraries(kasane-bench-ga PRIVATE bench_memory_group kasane_warnings)
foreach(mpi IN LISTS KASANE_GA_MPIS)
  foreach(armci kasane armci-mpi)
    foreach(program player-ga stencil dgemm)
      add_dependencies(kasane-bench-ga ${program}-${armci}-${mpi})
    endforeach()
  endforeach()
endforeach()
