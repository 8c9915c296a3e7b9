# SPDX-License-Identifier: Apache-2.0
# kasane bench containers: the harness, and a player for each system that is found, by the system's public
# interface alone. kasane_add_containers_player(NAME LIBS …): player-containers-NAME
add_executable(kasane-bench-containers containers/containers.cpp)
target_link_libraries(kasane-bench-containers PRIVATE bench_rows kasane_warnings)
function(kasane_add_containers_player name)
  add_executable(player-containers-${name} containers/player_${name}.cpp)
  target_include_directories(player-containers-${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(player-containers-${name} PRIVATE ${ARGN} Threads::Threads kasane_warnings)
  add_dependencies(kasane-bench-containers player-containers-${name})
endfunction()

kasane_add_containers_player(kasane kasane)
kasane_add_containers_player(std)
kasane_add_containers_player(tbb TBB::tbb)   # found for the players of core
find_package(mimalloc CONFIG QUIET)
if(mimalloc_FOUND)
  kasane_add_containers_player(mimalloc mimalloc)
endif()
# Headers alone. CMAKE_PREFIX_PATH says where others are than the distribution's.
function(kasane_add_containers_header_player name header)
  string(MAKE_C_IDENTIFIER "KASANE_BENCH_${name}_INCLUDE" variable)
  string(TOUPPER ${variable} variable)
  find_path(${variable} "${header}")
  mark_as_advanced(${variable})
  if(${variable})
    kasane_add_containers_player(${name})
    target_include_directories(player-containers-${name} SYSTEM PRIVATE "${${variable}}")
  endif()
endfunction()
kasane_add_containers_header_player(boost boost/unordered/unordered_flat_map.hpp)
kasane_add_containers_header_player(boost-concurrent boost/unordered/concurrent_flat_map.hpp)
kasane_add_containers_header_player(cuckoo libcuckoo/cuckoohash_map.hh)
