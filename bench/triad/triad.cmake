# SPDX-License-Identifier: Apache-2.0
# kasane bench triad: the harness, and its two players, which run the same loop.
add_executable(player-triad-kasane triad/player_kasane.cpp)
target_link_libraries(player-triad-kasane PRIVATE kasane kasane_warnings)
add_executable(player-triad-stream triad/player_stream.cpp)
target_link_libraries(player-triad-stream PRIVATE OpenMP::OpenMP_CXX kasane_warnings)
foreach(player kasane stream)
  target_include_directories(player-triad-${player} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
endforeach()
set_source_files_properties(triad/player_kasane.cpp triad/player_stream.cpp PROPERTIES COMPILE_OPTIONS -O3)

add_executable(kasane-bench-triad triad/triad.cpp dialogue.cpp)
target_link_libraries(kasane-bench-triad PRIVATE bench_rows kasane_warnings)
add_dependencies(kasane-bench-triad player-triad-kasane player-triad-stream)
