# SPDX-License-Identifier: Apache-2.0
# The players of kasane bench core --only fork-join: one program a system, by the system's public interface
# alone. kasane_add_fork_join_player(NAME LIBS …): player-fork-join-NAME
function(kasane_add_fork_join_player name)
  add_executable(player-fork-join-${name} fork_join/player_${name}.cpp)
  target_include_directories(player-fork-join-${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(player-fork-join-${name} PRIVATE ${ARGN} kasane_warnings)
  # As a user compiles, without what this project adds for its profiles and guards.
  target_compile_options(player-fork-join-${name} PRIVATE -fomit-frame-pointer -fno-stack-clash-protection)
  add_dependencies(kasane-bench-core player-fork-join-${name})
endfunction()

find_package(TBB REQUIRED)
find_package(OpenMP REQUIRED)
kasane_add_fork_join_player(call)
kasane_add_fork_join_player(kasane kasane)
kasane_add_fork_join_player(tbb TBB::tbb)
kasane_add_fork_join_player(openmp OpenMP::OpenMP_CXX)
# No distribution packages the others: CMAKE_PREFIX_PATH says where they are.
find_package(libfork CONFIG QUIET)
if(libfork_FOUND)
  kasane_add_fork_join_player(libfork libfork::libfork)
endif()
find_package(citor CONFIG QUIET)
if(citor_FOUND)
  kasane_add_fork_join_player(citor citor::citor)
endif()
# Headers alone.
find_path(TMC_INCLUDE tmc/all_headers.hpp)
mark_as_advanced(TMC_INCLUDE)
if(TMC_INCLUDE)
  kasane_add_fork_join_player(tmc Threads::Threads)
  target_include_directories(player-fork-join-tmc SYSTEM PRIVATE "${TMC_INCLUDE}")
endif()
# In Rust; on demand, since cargo fetches chili: ninja player-fork-join-chili
find_program(CARGO cargo)
mark_as_advanced(CARGO)
if(CARGO)
  add_custom_target(player-fork-join-chili
    COMMAND "${CMAKE_COMMAND}" -E copy_directory "${CMAKE_CURRENT_SOURCE_DIR}/fork_join/chili" chili
    COMMAND "${CARGO}" build --quiet --release --manifest-path chili/Cargo.toml
    COMMAND "${CMAKE_COMMAND}" -E copy chili/target/release/player-fork-join-chili
      "$<TARGET_FILE_DIR:player-fork-join-call>/player-fork-join-chili"
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
    VERBATIM)
endif()
find_path(MASSIVETHREADS_INCLUDE myth/myth.h)
find_library(MASSIVETHREADS_LIBRARY myth)
mark_as_advanced(MASSIVETHREADS_INCLUDE MASSIVETHREADS_LIBRARY)
if(MASSIVETHREADS_INCLUDE AND MASSIVETHREADS_LIBRARY)
  kasane_add_fork_join_player(massivethreads "${MASSIVETHREADS_LIBRARY}")
  target_include_directories(player-fork-join-massivethreads SYSTEM PRIVATE "${MASSIVETHREADS_INCLUDE}")
endif()
