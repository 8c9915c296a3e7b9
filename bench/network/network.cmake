# SPDX-License-Identifier: Apache-2.0
# kasane bench network: the harness, and the program of which it starts a job.
add_executable(kasane-network-player network/network_player.cpp)
target_link_libraries(kasane-network-player PRIVATE kasane_in_parts kasane_warnings)
add_executable(kasane-bench-network network/network.cpp)
target_link_libraries(kasane-bench-network PRIVATE bench_rows kasane_warnings nlohmann_json::nlohmann_json)
add_dependencies(kasane-bench-network kasane-network-player)
