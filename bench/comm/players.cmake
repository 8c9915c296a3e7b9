# SPDX-License-Identifier: Apache-2.0
# What kasane bench pingpong and kasane bench comm consist of. Included by bench/CMakeLists.txt.
add_library(bench_players STATIC comm/order.cpp comm/control.cpp comm/player_threads.cpp)
target_include_directories(bench_players
  PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/comm")
target_link_libraries(bench_players PRIVATE kasane_warnings PUBLIC kasane_base)

add_library(bench_harness STATIC comm/pair.cpp comm/comparison.cpp comm/systems.cpp comm/report.cpp
  comm/suite.cpp)
target_link_libraries(bench_harness PRIVATE kasane_warnings PUBLIC bench_rows bench_players)

add_executable(kasane-bench-pingpong pingpong/pingpong.cpp)
target_link_libraries(kasane-bench-pingpong PRIVATE bench_harness kasane_warnings)

add_executable(kasane-bench-comm comm/comm.cpp)
target_link_libraries(kasane-bench-comm PRIVATE bench_harness kasane_warnings)

add_custom_target(kasane_players)   # everything that the harness may start
add_dependencies(kasane-bench-pingpong kasane_players)
add_dependencies(kasane-bench-comm kasane_players)

# kasane_add_player(NAME SOURCE LIBS …): build/…/bin/kasane-player-NAME
function(kasane_add_player name source)
  add_executable(kasane-player-${name} ${source})
  target_link_libraries(kasane-player-${name} PRIVATE bench_players kasane_warnings ${ARGN})
  add_dependencies(kasane_players kasane-player-${name})
endfunction()

kasane_add_player(raw comm/player_raw.cpp)
kasane_add_player(kasane comm/player_kasane.cpp kasane::comm)

pkg_check_modules(bench_ucx IMPORTED_TARGET ucx)
if(bench_ucx_FOUND)
  kasane_add_player(ucx comm/player_ucx.cpp PkgConfig::bench_ucx)
endif()
foreach(mpi openmpi:ompi-c mpich:mpich)
  string(REPLACE ":" ";" words ${mpi})
  list(GET words 0 name)
  list(GET words 1 package)
  pkg_check_modules(bench_${name} IMPORTED_TARGET ${package})
  if(bench_${name}_FOUND)
    kasane_add_player(${name} comm/player_mpi.cpp PkgConfig::bench_${name})
    # Neither MPI's withdrawn C++ interface.
    target_compile_definitions(kasane-player-${name} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  endif()
endforeach()
# Open MPI's OpenSHMEM lies beside it.
if(bench_openmpi_FOUND)
  find_library(BENCH_OSHMEM oshmem HINTS ${bench_openmpi_LIBRARY_DIRS})
  find_path(BENCH_OSHMEM_INCLUDE shmem.h HINTS ${bench_openmpi_INCLUDE_DIRS} NO_DEFAULT_PATH)
  if(BENCH_OSHMEM AND BENCH_OSHMEM_INCLUDE)
    kasane_add_player(openshmem comm/player_openshmem.cpp PkgConfig::bench_openmpi "${BENCH_OSHMEM}")
    target_include_directories(kasane-player-openshmem SYSTEM PRIVATE "${BENCH_OSHMEM_INCLUDE}")
    target_compile_definitions(kasane-player-openshmem PRIVATE OMPI_SKIP_MPICXX)
  endif()
endif()
# Not in the distribution: PKG_CONFIG_PATH says where a user has it.
pkg_check_modules(bench_gasnet IMPORTED_TARGET gasnet-smp-par)
if(bench_gasnet_FOUND)
  kasane_add_player(gasnet comm/player_gasnet.cpp PkgConfig::bench_gasnet)
  # Its headers are not ours to keep free of warnings.
  set_source_files_properties(comm/player_gasnet.cpp PROPERTIES COMPILE_OPTIONS -w)
endif()
pkg_check_modules(bench_gpi2 IMPORTED_TARGET GPI2)
if(bench_gpi2_FOUND)
  kasane_add_player(gpi2 comm/player_gpi2.cpp PkgConfig::bench_gpi2)
endif()
# Its pkg-config file names libraries that it does not have; LCI_DIR says where its CMake files are. Version 1
# had another interface.
find_package(LCI QUIET CONFIG)
if(LCI_FOUND AND LCI_VERSION VERSION_GREATER_EQUAL 2)
  kasane_add_player(lci comm/player_lci.cpp LCI::lci LCI::lct)
  # It is installed without a path to its own second library: the player has to name that one.
  target_link_options(kasane-player-lci PRIVATE LINKER:--no-as-needed)
endif()
# Kasane's player loads the module of the MPI that started it.
foreach(mpi openmpi mpich)
  if(TARGET kasane-mpi-${mpi})
    add_dependencies(kasane-player-kasane kasane-mpi-${mpi})
  endif()
endforeach()
