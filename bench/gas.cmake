# SPDX-License-Identifier: Apache-2.0
# kasane bench gas: the harness, and the program of which it starts jobs.
add_executable(kasane-gas-player gas_player.cpp)
target_link_libraries(kasane-gas-player PRIVATE kasane_in_parts kasane_warnings)
add_executable(kasane-bench-gas gas.cpp)
target_link_libraries(kasane-bench-gas PRIVATE bench_rows kasane_warnings)
add_dependencies(kasane-bench-gas kasane-gas-player)
