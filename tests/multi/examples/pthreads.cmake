# SPDX-License-Identifier: Apache-2.0
# The threaded programs in macros (examples/pthreads): each gives the result of its build with Pthreads on
# 1, 2 and 4 ranks, over each network and fault engine, with more threads than workers, and with data beyond
# DRAM.
include(../over_networks.cmake)

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

# kasane_add_pthreads_test(NAME PROGRAM SIZE RANKS [OPTIONS …]): NAME_RANKS.
function(kasane_add_pthreads_test name program size ranks)
  list(JOIN ${size}_${program} " " arguments)
  add_test(NAME ${name}_${ranks}
    COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/same_result.sh" ${program} $<TARGET_FILE:example_${program}_posix>
      "${arguments}" $<TARGET_FILE:kasane_command> run -n ${ranks} ${ARGN}
      -- $<TARGET_FILE:example_${program}> ${${size}_${program}})
  set_tests_properties(${name}_${ranks} PROPERTIES TIMEOUT 120 LABELS multi)
endfunction()

get_property(programs GLOBAL PROPERTY KASANE_PTHREADS_EXAMPLES)
foreach(program IN LISTS programs)
  foreach(ranks IN LISTS ranks_tested)
    kasane_add_pthreads_test(example_${program} ${program} small ${ranks})
    if(KASANE_SANITIZER)
      continue()
    endif()
    kasane_add_pthreads_test(example_${program}_many_threads ${program} many ${ranks})
    kasane_add_pthreads_test(example_${program}_mprotect ${program} small ${ranks} --faults mprotect)
    kasane_add_pthreads_test(example_${program}_dram ${program} large ${ranks} --dram 24M --spill /dev/shm)
    if(ranks EQUAL 1)
      continue()
    endif()
    foreach(network IN LISTS KASANE_NETWORKS_${ranks})
      set(flags --transport ucx)
      if(NOT network STREQUAL "ucx")
        set(flags --transport mpi --mpi ${network})
      endif()
      kasane_add_pthreads_test(example_${program}_over_${network} ${program} small ${ranks} ${flags})
      set_property(TEST example_${program}_over_${network}_${ranks} APPEND PROPERTY LABELS network)
    endforeach()
  endforeach()
endforeach()
kasane_long("_many_threads_[12]$" "_mprotect_[124]$" "_dram_[124]$" "_over_.*_[24]$"
  EXCEPT "^example_lu_over_ucx_2$" "^example_queues_mprotect_2$")

# The macros that no program uses, and where threads begin.
foreach(kind kasane posix)
  add_executable(macros_${kind} macros.c)
  target_include_directories(macros_${kind} PRIVATE "${PROJECT_SOURCE_DIR}/examples/pthreads")
  target_compile_definitions(macros_${kind} PRIVATE MACROS="${kind}/macros.h")
  target_link_libraries(macros_${kind} PRIVATE kasane_warnings)
endforeach()
target_link_libraries(macros_kasane PRIVATE kasane)
target_link_libraries(macros_posix PRIVATE Threads::Threads)
add_test(NAME macros_posix COMMAND macros_posix)
foreach(ranks IN LISTS ranks_tested)
  add_test(NAME macros_${ranks}
    COMMAND $<TARGET_FILE:kasane_command> run -n ${ranks} -- $<TARGET_FILE:macros_kasane>)
  set_tests_properties(macros_${ranks} PROPERTIES TIMEOUT 60 LABELS multi)
endforeach()
