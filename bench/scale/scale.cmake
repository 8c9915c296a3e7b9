# SPDX-License-Identifier: Apache-2.0
# kasane bench scale: scripts of programs over a simulated cluster (docs/design/scaling.md). The simulator
# lies among the tests; tests/unit/scale counts what these scripts send.
if(KASANE_BUILD_TESTS)
  add_library(bench_scale STATIC scale/cluster.cpp scale/programs.cpp
    "${PROJECT_SOURCE_DIR}/tests/support/checked_engine.cpp")
  target_include_directories(bench_scale PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(bench_scale PRIVATE kasane_warnings PUBLIC kasane_comm_sim kasane_comm_sim_clock
    kasane_comm_collectives kasane_dsm kasane_sched kasane_ult_sync)
  # The same scripts on ranks of a job, for what was predicted to be measured (calibrate.py).
  add_executable(kasane-stage-player scale/stage_player.cpp scale/programs.cpp)
  target_include_directories(kasane-stage-player PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(kasane-stage-player PRIVATE kasane_in_parts kasane_warnings)
  add_executable(kasane-bench-scale scale/scale.cpp)
  target_link_libraries(kasane-bench-scale PRIVATE bench_rows bench_scale kasane_warnings
    nlohmann_json::nlohmann_json)
  add_dependencies(kasane-bench-scale kasane-stage-player)
endif()
