# SPDX-License-Identifier: Apache-2.0
# The threaded programs in macros (examples/pthreads): each gives the result of its build with Pthreads on
# 1, 2 and 4 ranks, over each network and fault engine, with more threads than workers, and with data beyond
# DRAM.

# pthreads_test(CASE ARGUMENTS …): of `program`.
function(pthreads_test case arguments)
  separate_arguments(list UNIX_COMMAND "${arguments}")
  kasane_job_test(${program}${case} PROGRAM example_${program} ARGS ${list} ${ARGN}
    UNDER "${CMAKE_CURRENT_SOURCE_DIR}/same_result.sh" ${program} $<TARGET_FILE:example_${program}_posix>
    "${arguments} ")   # with a blank, as an empty argument would be lost
endfunction()

# spread_test(CASE ARGUMENTS …): of `program` with the macros of Pthreads, whose threads run on all ranks.
function(spread_test case arguments)
  separate_arguments(list UNIX_COMMAND "${arguments}")
  kasane_job_test(${program}_spread${case} PROGRAM example_${program}_spread ARGS ${list} ${ARGN}
    OPTIONS --threads spread --malloc space UNDER "${CMAKE_CURRENT_SOURCE_DIR}/same_result.sh" ${program}
    $<TARGET_FILE:example_${program}_posix> "${arguments} ")
endfunction()

# With the sizes of the quick tests, others with another number of threads, and more than --dram 24M.
set(quick_lu 2,ucx)
set(quick_queues 2,mprotect)
foreach(sizes "lu|-n 96 -t|-n 64 -p 13 -t|-n 1792" "fft|-t|-m 32 -p 13 -t|-m 1024"
    "radix||-n 20000 -r 5 -p 13 -v|-n 6000000 -r 5" "grid|-s 1|-l 5 -s 1 -p 13 -v|-l 10 -s 1"
    "nbody||-n 777 -p 13 -v|-n 20000 -s 1" "queues||-n 200 -p 13 -v|-n 3000 -i 100")
  string(REPLACE "|" ";" sizes "${sizes}")
  list(POP_FRONT sizes program small many large)
  pthreads_test("" "${small}" NETWORKS ucx openmpi mpich ${KASANE_NETWORK_4} LONG ucx
    QUICK ${quick_${program}} SANITIZED 1)
  pthreads_test("" "${small}" FAULTS mprotect LONG all QUICK ${quick_${program}})
  pthreads_test(/many_threads "${many}" LONG 1 2)
  pthreads_test("" "${large}" DRAM 24M LONG all)
  spread_test("" "${small}" NETWORKS ucx openmpi mpich LONG ucx)
  spread_test(/many_threads "${many}" LONG 1 4)
  spread_test("" "${large}" DRAM 24M LONG all TIMEOUT 300)
endforeach()

# The macros that no program uses, and where threads begin.
foreach(kind kasane posix)
  add_executable(macros_${kind} macros.c)
  target_include_directories(macros_${kind} PRIVATE "${PROJECT_SOURCE_DIR}/examples/pthreads")
  target_compile_definitions(macros_${kind} PRIVATE MACROS="${kind}/macros.h")
  target_link_libraries(macros_${kind} PRIVATE kasane_warnings)
endforeach()
target_link_libraries(macros_kasane PRIVATE kasane)
target_link_libraries(macros_posix PRIVATE Threads::Threads)
kasane_job_test(macros_posix RANKS any SANITIZED any COMMAND macros_posix)
kasane_job_test(macros PROGRAM macros_kasane TIMEOUT 60 SANITIZED 1)
