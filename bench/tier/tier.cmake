# SPDX-License-Identifier: Apache-2.0
# kasane bench tier, and the programs of which it measures runs, besides the applications stencil and
# cilksort.
add_executable(player-tier tier/player_kasane.cpp)
target_link_libraries(player-tier PRIVATE kasane_apps kasane_warnings)
add_executable(player-tier-mapped tier/player_mapped.cpp scratch_file.cpp)
target_include_directories(player-tier-mapped
  PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/apps")
target_link_libraries(player-tier-mapped PRIVATE kasane_warnings Threads::Threads ${CMAKE_DL_LIBS})
# With -O3, like the stencil application.
set_source_files_properties(tier/player_kasane.cpp tier/player_mapped.cpp PROPERTIES COMPILE_OPTIONS -O3)

add_executable(kasane-bench-tier tier/tier.cpp tier/systems.cpp scratch_file.cpp)
target_include_directories(kasane-bench-tier PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(kasane-bench-tier
  PRIVATE kasane_mem bench_memory_group nlohmann_json::nlohmann_json kasane_warnings ${CMAKE_DL_LIBS})
add_dependencies(kasane-bench-tier player-tier player-tier-mapped stencil cilksort)
