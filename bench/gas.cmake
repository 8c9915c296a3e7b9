# kasane bench gas: the harness, and the program of which it starts jobs.
add_executable(kasane-gas-player gas_player.cpp)
target_link_libraries(kasane-gas-player PRIVATE kasane::kasane kasane_warnings)
add_executable(kasane-bench-gas gas.cpp)
target_link_libraries(kasane-bench-gas PRIVATE kasane_base CLI11::CLI11 nlohmann_json::nlohmann_json kasane_warnings)
set_source_files_properties(gas.cpp PROPERTIES COMPILE_OPTIONS -Wno-null-dereference)   # as core.cpp
add_dependencies(kasane-bench-gas kasane-gas-player)
