# SPDX-License-Identifier: Apache-2.0
# The threaded programs in macros (examples/pthreads): each gives the result of its build with Pthreads on
# 1, 2 and 4 ranks, over each network and fault engine, with more threads than workers, and with data beyond
# DRAM.
# Sizes: those of the quick tests, others with another number of threads, and more than --dram 24M.
set(small_lu -n 96 -t)
set(many_lu -n 64 -p 13 -t)
set(large_lu -n 1792)
set(small_fft -t)
set(many_fft -m 32 -p 13 -t)
set(large_fft -m 1024)
set(small_radix)
set(many_radix -n 20000 -r 5 -p 13 -v)
set(large_radix -n 6000000 -r 5)
set(small_grid -s 1)
set(many_grid -l 5 -s 1 -p 13 -v)
set(large_grid -l 10 -s 1)
set(small_nbody)
set(many_nbody -n 777 -p 13 -v)
set(large_nbody -n 20000 -s 1)
set(small_queues)
set(many_queues -n 200 -p 13 -v)
set(large_queues -n 3000 -i 100)


# pthreads_test(PROGRAM[/CASE] SIZE …)
function(pthreads_test name size)
  string(REGEX MATCH "^[^/]+" program ${name})
  set(arguments ${${size}_${program}})
  string(JOIN " " joined "" ${arguments} "")   # with a blank, as an empty argument would be lost
  kasane_job_test(${name} PROGRAM example_${program} ARGS ${arguments} ${ARGN}
    UNDER "${CMAKE_CURRENT_SOURCE_DIR}/same_result.sh" ${program} $<TARGET_FILE:example_${program}_posix>
    "${joined}")
endfunction()

set(quick_lu 2,ucx)
set(quick_queues 2,mprotect)
get_property(programs GLOBAL PROPERTY KASANE_PTHREADS_EXAMPLES)
foreach(program IN LISTS programs)
  pthreads_test(${program} small NETWORKS ucx openmpi mpich ${KASANE_NETWORK_4} LONG ucx
    QUICK ${quick_${program}} SANITIZED 1)
  pthreads_test(${program}/many_threads many LONG 1 2)
  pthreads_test(${program} small FAULTS mprotect LONG all QUICK ${quick_${program}})
  pthreads_test(${program} large DRAM 24M LONG all)
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
