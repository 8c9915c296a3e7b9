# SPDX-License-Identifier: Apache-2.0
# kasane bench bfs: the harness, Kasane's player, and that of igraph where it is found. GAPBS and the Graph500
# reference are what --gapbs and --graph500 name when it runs.
add_executable(kasane-bench-bfs graphs/bfs.cpp graphs/peers.cpp)
target_link_libraries(kasane-bench-bfs PRIVATE bench_rows bench_memory_group kasane_warnings)
add_executable(player-graph-kasane graphs/player_kasane.cpp)
target_link_libraries(player-graph-kasane PRIVATE kasane::graph kasane_warnings)
add_dependencies(kasane-bench-bfs player-graph-kasane)
pkg_check_modules(bench_igraph IMPORTED_TARGET igraph)
if(bench_igraph_FOUND)
  add_executable(player-graph-igraph graphs/player_igraph.cpp)
  target_link_libraries(player-graph-igraph PRIVATE PkgConfig::bench_igraph kasane_warnings)
  add_dependencies(kasane-bench-bfs player-graph-igraph)
endif()
foreach(player kasane igraph)
  if(TARGET player-graph-${player})
    target_include_directories(player-graph-${player} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
endforeach()
