# SPDX-License-Identifier: Apache-2.0
# How a test of a job is declared.
#
# kasane_job_test(PROGRAM[/CASE] …) adds one test for each combination of these lists:
#   RANKS     of a job over shared memory: 4, or with workers 4x2 (default: 1 2 4). each: 1, 2 and 4 with one
#             and two workers; any: the COMMAND says how many; none: over NETWORKS only
#   NETWORKS  ucx, openmpi, mpich, or hosts, which are two that the ranks count as being on; with two ranks,
#             or as ucx/4, ucx/2x1 or ucx/any says
#   FAULTS    auto (default), uffd, mprotect or uffd-thread; skipped where the engine cannot be had
#   DEBUG     items of --debug, or none (default)
#   DRAM      of the job, with spill files in /dev/shm, or none (default)
# Its name is FOLDER/PROGRAM[/CASE]/RANKS[xWORKERS][/NETWORK][/FAULTS][/DEBUG][/DRAM], without defaults:
# `ctest -R ^tiers/room` runs tiers/room_test/2x2/mprotect/10240K and its neighbours.
#
# The test runs `[UNDER] kasane run -n RANKS … [OPTIONS] -- PROGRAM [ARGS]` and passes with status 0.
#   PROGRAM   its target, where the name does not begin with it
#   SOURCES   of the target, a program of users, or GTEST, of one of GoogleTest; else it is made elsewhere
#   UNDER     a command that starts this one
#   COMMAND   another command: @RUN@ in it stands for `kasane run -n RANKS …`. Without @RUN@ it is a script,
#             and the combination's settings are in its environment.
#   ENV       variables, each A=B
#   EXPECT    a regular expression that the output matches, in place of the status
#   FAILS     one that a line of the output matches, when the status is not 0
#   TIMEOUT   in seconds, and another over networks (default: 120)
#   LABELS    in place of the kind, which is the first folder of the path; network comes beside them
#   PROPERTIES any others of CTest
#   SANITIZED ranks on which builds with a sanitizer have it, too, over shared memory (default: none. There
#             operator new is the sanitizer's, so that what threads allocate is not global.)
# In these @RANKS@ stands for the number of ranks, and so do expressions such as @RANKS * 5120@.
#
# Quick (`make test`) are tests on 1, 2 and 4 ranks over shared memory with default settings, over UCX on two
# ranks, and of each network and fault engine a few. Long (`make test-long`) are by default those of
# KASANE_LONG_JOBS, and rare (`make test-rare`) those of KASANE_RARE_JOBS: what knows of an MPI is
# src/comm/mpi and how a job is started. Both MPIs run all tests of that, and one program of each kind.
#   QUICK, LONG, RARE  the combinations that are otherwise: 2, 2x1, ucx, uffd, 16M and so on; 2,ucx where both
#                      must hold; or all. QUICK holds before RARE, RARE before LONG, these before the default.
#
# kasane_job_program(NAME SOURCES … [LIBS …]): a program of users that such tests start.
include_guard()

set(KASANE_LONG_JOBS 1x2 2x1 4x1 openmpi mpich ucx,4)
set(KASANE_RARE_JOBS mpich openmpi,4)

# The networks that this build has, and how kasane run is told of each.
if(UCX_FOUND)
  set(KASANE_NETWORKS ucx)
endif()
set(KASANE_SETTINGS_ucx transport=ucx)
set(KASANE_SETTINGS_hosts debug=hosts=2)
# The MPIs among them, and the packages by which pkg-config finds them.
set(KASANE_PACKAGE_openmpi ompi-c)
set(KASANE_PACKAGE_mpich mpich)
foreach(mpi openmpi mpich)
  if(TARGET kasane-mpi-${mpi})
    list(APPEND KASANE_NETWORKS ${mpi})
    list(APPEND KASANE_MPIS ${mpi})
  endif()
  set(KASANE_SETTINGS_${mpi} transport=mpi mpi=${mpi})
endforeach()
# The first, on four ranks, for tests that know nothing of networks: four that poll an MPI take minutes.
list(JOIN KASANE_NETWORKS "/4;" KASANE_NETWORK_4)
string(REGEX MATCH "^[^;]*" KASANE_NETWORK_4 "${KASANE_NETWORK_4}/4")

# The thread sanitizer does not see an order that goes through another process: of the tests of communication
# its builds run only those of the simulator.
if(KASANE_SANITIZER STREQUAL "thread")
  set(KASANE_SIM_ONLY "--gtest_filter=*/sim*")
endif()

function(kasane_job_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} kasane kasane_warnings)
endfunction()

# Whether one of the PATTERNS holds for a combination, whose parts are PARTS.
function(kasane_job_matches out parts)
  set(${out} FALSE PARENT_SCOPE)
  foreach(pattern IN LISTS ARGN)
    string(REPLACE "," ";" pattern "${pattern}")
    list(REMOVE_ITEM pattern ${parts})
    if(NOT pattern)
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# Replaces @…RANKS…@ in the variable by its value.
function(kasane_job_expand variable ranks)
  set(text "${${variable}}")
  while(text MATCHES "@([^@]*RANKS[^@]*)@")
    set(found "${CMAKE_MATCH_0}")
    string(REPLACE "RANKS" "${ranks}" value "${CMAKE_MATCH_1}")
    math(EXPR value "${value}")
    string(REPLACE "${found}" "${value}" text "${text}")
  endwhile()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# The test of one combination; arg_X are the arguments of kasane_job_test.
function(kasane_job_combination name network size faults debug dram)
  string(REGEX MATCH "^([0-9]+|any)x?([0-9]*)$" matched "${size}")
  set(ranks ${CMAKE_MATCH_1})
  set(workers ${CMAKE_MATCH_2})
  if(KASANE_SANITIZER AND NOT (ranks IN_LIST arg_SANITIZED AND network STREQUAL "shm"))
    return()
  endif()
  foreach(variable name dram arg_OPTIONS arg_ARGS arg_UNDER arg_COMMAND arg_ENV arg_EXPECT)
    kasane_job_expand(${variable} ${ranks})
  endforeach()

  set(settings workers=${workers} ${KASANE_SETTINGS_${network}} faults=${faults} debug=${debug} dram=${dram})
  list(FILTER settings EXCLUDE REGEX "=(auto|none)?$")
  if(NOT dram STREQUAL "none")
    list(APPEND settings spill=/dev/shm)
  endif()
  set(run $<TARGET_FILE:kasane_command> run -n ${ranks})
  set(environment "")
  foreach(setting IN LISTS settings)
    string(REGEX MATCH "^([a-z]+)=(.*)$" matched "${setting}")
    list(APPEND run --${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    string(TOUPPER "${CMAKE_MATCH_1}" variable)
    list(APPEND environment KASANE_${variable}=${CMAKE_MATCH_2})
  endforeach()
  list(APPEND run ${arg_OPTIONS})
  if(NOT arg_COMMAND)
    set(arg_COMMAND ${arg_UNDER} @RUN@ -- $<TARGET_FILE:${arg_PROGRAM}> ${arg_ARGS})
  endif()
  if("@RUN@" IN_LIST arg_COMMAND)
    set(environment "")
    list(TRANSFORM arg_COMMAND REPLACE "^@RUN@$" "${run}")
  endif()

  set(parts ${size} ${network} ${faults} ${debug} ${dram})
  list(REMOVE_ITEM parts shm auto none any)
  string(JOIN "/" test ${name} ${parts})
  add_test(NAME ${test} COMMAND ${arg_COMMAND})

  list(GET arg_TIMEOUT 0 timeout)
  if(NOT network STREQUAL "shm")
    list(GET arg_TIMEOUT -1 timeout)
    list(APPEND arg_LABELS network)
  endif()
  list(APPEND parts ${ranks} ${network} ${faults} all)
  kasane_job_matches(quick "${parts}" ${arg_QUICK})
  kasane_job_matches(long "${parts}" ${arg_LONG})
  kasane_job_matches(rare "${parts}" ${arg_RARE})
  kasane_job_matches(long_by_default "${parts}" ${KASANE_LONG_JOBS})
  kasane_job_matches(rare_by_default "${parts}" ${KASANE_RARE_JOBS})
  if(NOT quick)
    if(rare OR (rare_by_default AND NOT long))
      list(APPEND arg_LABELS rare)
    elseif(long OR long_by_default)
      list(APPEND arg_LABELS long)
    endif()
  endif()
  set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} LABELS "${arg_LABELS}"
    ENVIRONMENT "${arg_ENV};${environment}" ${arg_PROPERTIES})
  if(arg_EXPECT)
    string(REPLACE ";" "[;]" arg_EXPECT "${arg_EXPECT}")   # not a list of two, of which one suffices
    set_tests_properties(${test} PROPERTIES PASS_REGULAR_EXPRESSION "${arg_EXPECT}")
  endif()
  if(NOT faults STREQUAL "auto")
    set_tests_properties(${test} PROPERTIES
      SKIP_REGULAR_EXPRESSION "the fault engine ${faults} .* cannot be had here")
  endif()
endfunction()

function(kasane_job_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PROGRAM;EXPECT;FAILS"
    "RANKS;NETWORKS;FAULTS;DEBUG;DRAM;OPTIONS;ARGS;UNDER;COMMAND;ENV;TIMEOUT;LABELS;PROPERTIES;SANITIZED;\
QUICK;LONG;RARE;SOURCES;GTEST")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${name}: what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REGEX MATCH "^[^/]+" kind "${folder}")
  string(REGEX MATCH "[^/]+$" folder "${folder}")
  string(REGEX MATCH "^[^/]+" program "${name}")
  foreach(default "RANKS;1;2;4" FAULTS\;auto DEBUG\;none DRAM\;none TIMEOUT\;120 LABELS\;${kind}
      PROGRAM\;${program})
    list(POP_FRONT default argument)
    if(NOT arg_${argument})
      set(arg_${argument} ${default})
    endif()
  endforeach()
  if(arg_SOURCES)
    kasane_job_program(${arg_PROGRAM} SOURCES ${arg_SOURCES})
  elseif(arg_GTEST)
    kasane_add_test(${arg_PROGRAM} SOURCES ${arg_GTEST} LIBS kasane NO_CTEST)
  endif()
  if(arg_FAILS)
    list(PREPEND arg_UNDER "${PROJECT_SOURCE_DIR}/tests/multi/programs/fails.sh" "${arg_FAILS}")
  endif()
  list(REMOVE_ITEM arg_RANKS none)
  list(TRANSFORM arg_RANKS REPLACE "^each$" "1x1;1x2;2x1;2x2;4x1;4x2")
  list(TRANSFORM arg_RANKS PREPEND shm/)
  foreach(place IN LISTS arg_RANKS arg_NETWORKS)
    if(NOT place MATCHES "^(|shm|ucx|openmpi|mpich|hosts)/?(|any|[1-9][0-9]*x?[0-9]*)$")
      message(FATAL_ERROR "${name}: what is ${place}?")
    endif()
    set(network ${CMAKE_MATCH_1})
    set(size ${CMAKE_MATCH_2})
    string(REPLACE "hosts" "ucx" needs "${network}")   # between them
    if(NOT needs IN_LIST KASANE_NETWORKS AND NOT network STREQUAL "shm")
      continue()
    elseif(NOT size)
      set(size 2)
    endif()
    foreach(faults IN LISTS arg_FAULTS)
      foreach(debug IN LISTS arg_DEBUG)
        foreach(dram IN LISTS arg_DRAM)
          kasane_job_combination(${folder}/${name} ${network} ${size} ${faults} ${debug} "${dram}")
        endforeach()
      endforeach()
    endforeach()
  endforeach()
endfunction()
