# SPDX-License-Identifier: Apache-2.0
# kasane-bench-collectives, Kasane's player, and the same loop over each MPI whose compiler wrapper is found.
add_executable(player-collectives collectives_player.cpp)
target_link_libraries(player-collectives PRIVATE kasane::comm kasane_warnings)
add_executable(kasane-bench-collectives collectives.cpp)
target_link_libraries(kasane-bench-collectives PRIVATE bench_rows kasane_warnings)
add_dependencies(kasane-bench-collectives player-collectives)
foreach(mpi openmpi mpich)
  find_program(KASANE_MPICXX_${mpi} mpicxx.${mpi})
  if(KASANE_MPICXX_${mpi})
    set(out "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/peer-collectives-${mpi}")
    add_custom_command(OUTPUT "${out}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
      COMMAND "${KASANE_MPICXX_${mpi}}" -std=c++17 -O2 -o "${out}"
      "${CMAKE_CURRENT_LIST_DIR}/peers/collectives_mpi.cpp"
      DEPENDS peers/collectives_mpi.cpp collectives_cases.h VERBATIM)
    add_custom_target(peer-collectives-${mpi} DEPENDS "${out}")
    add_dependencies(kasane-bench-collectives peer-collectives-${mpi})
  endif()
endforeach()
