# SPDX-License-Identifier: Apache-2.0
# What a program expects of its process: output, exit(), pthread_exit(), errno, threads of libraries.
include(../over_ranks.cmake)

# kasane_add_case(NAME [SOURCE …] [LIBS …] [ARGS …]): the program NAME on 1, 2 and 4 ranks, as NAME_RANKS, and
# on 2 over UCX. It checks itself.
function(kasane_add_case_program name)
  cmake_parse_arguments(arg "" "SOURCE" "LIBS" ${ARGN})
  if(NOT arg_SOURCE)
    set(arg_SOURCE ${name}.cpp)
  endif()
  add_executable(case_${name} ${arg_SOURCE})
  target_link_libraries(case_${name} PRIVATE kasane kasane_warnings ${arg_LIBS})
endfunction()

# kasane_test_case(NAME COMMAND … -- …): @RUN@ in the command stands for kasane run -n RANKS.
function(kasane_test_case name)
  if(KASANE_SANITIZER)   # a sanitizer's operator new is not global memory
    return()
  endif()
  set(networks "")
  if(UCX_FOUND)
    set(networks ucx)
  endif()
  foreach(network shm ${networks})
    foreach(ranks IN LISTS KASANE_RANKS_TESTED)
      set(test case_${name}_${ranks})
      set(run $<TARGET_FILE:kasane_command> run -n ${ranks})
      if(network STREQUAL "ucx")
        if(NOT ranks EQUAL 2)
          continue()
        endif()
        set(test case_${name}_over_ucx_2)
        list(APPEND run --transport ucx)
      endif()
      list(TRANSFORM ARGN REPLACE "^@RUN@$" "${run}" OUTPUT_VARIABLE command)
      add_test(NAME ${test} COMMAND ${command})
      set_tests_properties(${test} PROPERTIES TIMEOUT 120 LABELS multi)
    endforeach()
  endforeach()
endfunction()

kasane_add_case_program(print)
kasane_test_case(print "${CMAKE_CURRENT_SOURCE_DIR}/print.py" $<TARGET_FILE:case_print> @RUN@ --)
kasane_test_case(print_tagged
  "${CMAKE_CURRENT_SOURCE_DIR}/print.py" $<TARGET_FILE:case_print> @RUN@ --tag-output --)
kasane_add_case_program(long_lines)
kasane_test_case(long_lines
  "${CMAKE_CURRENT_SOURCE_DIR}/long_lines.sh" @RUN@ -- $<TARGET_FILE:case_long_lines>)
kasane_add_case_program(exits)
kasane_test_case(exits "${CMAKE_CURRENT_SOURCE_DIR}/exits.py" $<TARGET_FILE:case_exits> @RUN@ --)
kasane_add_case_program(thread_exits)
foreach(how main-alone main-with-os-threads main-with-threads on-threads moving first-thread)
  kasane_test_case(thread_exits_${how} @RUN@ -- $<TARGET_FILE:case_thread_exits> ${how})
endforeach()
if(NOT KASANE_SANITIZER)
  add_test(NAME case_thread_exits_swallowed COMMAND $<TARGET_FILE:kasane_command> run -n 2 --
    $<TARGET_FILE:case_thread_exits> swallowed)
  set_tests_properties(case_thread_exits_swallowed PROPERTIES TIMEOUT 60 LABELS multi
    PASS_REGULAR_EXPRESSION "pthread_exit: a catch [(][.][.][.][)] did not rethrow")
endif()
kasane_add_case_program(errno_of_thread)
target_sources(case_errno_of_thread PRIVATE errno_calls.c)
kasane_test_case(errno_of_thread @RUN@ --workers 2 -- $<TARGET_FILE:case_errno_of_thread>)
kasane_add_case_program(thread_locals)
kasane_test_case(thread_locals @RUN@ --workers 2 --check globals -- $<TARGET_FILE:case_thread_locals>)
if(NOT KASANE_SANITIZER)
  foreach(suffix 1 2 4)
    set_tests_properties(case_thread_locals_${suffix} PROPERTIES PASS_REGULAR_EXPRESSION
      "thread_local variables, which are their worker's, not theirs: .*counted, .*cached[.] Use"
      FAIL_REGULAR_EXPRESSION "only_read|of_main|Error")
  endforeach()
endif()
kasane_add_case_program(process_state LIBS ${CMAKE_DL_LIBS})
kasane_test_case(process_state @RUN@ -- $<TARGET_FILE:case_process_state>)
kasane_add_case_program(os_threads)
kasane_test_case(os_threads @RUN@ -- $<TARGET_FILE:case_os_threads> 3000)
kasane_add_case_program(keys)
kasane_test_case(keys @RUN@ -- $<TARGET_FILE:case_keys>)
if(NOT KASANE_SANITIZER)
  add_test(NAME keys_of_libstdcxx_2 COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/fails.sh"
    "std::pmr::synchronized_pool_resource.*unsynchronized_pool_resource"
    $<TARGET_FILE:kasane_command> run -n 2 -- $<TARGET_FILE:case_keys> pool)
  set_tests_properties(keys_of_libstdcxx_2 PROPERTIES TIMEOUT 60 LABELS multi)
endif()
kasane_add_case_program(read_input)
kasane_test_case(read_input
  "${CMAKE_CURRENT_SOURCE_DIR}/read_input.sh" @RUN@ -- $<TARGET_FILE:case_read_input>)

# exec: on one rank it becomes the program; on several it says what to do.
kasane_add_case_program(exec_itself)
if(NOT KASANE_SANITIZER)
  foreach(how link name thread other)
    add_test(NAME exec_itself_${how}_alone COMMAND case_exec_itself ${how})
    add_test(NAME exec_itself_${how}_1
      COMMAND $<TARGET_FILE:kasane_command> run -n 1 -- $<TARGET_FILE:case_exec_itself> ${how})
    add_test(NAME exec_itself_${how}_2 COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/fails.sh"
      "rank [01]: exec: .* of this rank alone, of 2[.] Start it by posix_spawn"
      $<TARGET_FILE:kasane_command> run -n 2 -- $<TARGET_FILE:case_exec_itself> ${how})
    set_tests_properties(exec_itself_${how}_alone exec_itself_${how}_1
      PROPERTIES PASS_REGULAR_EXPRESSION "^again" FAIL_REGULAR_EXPRESSION "kasane:")
    set_tests_properties(exec_itself_${how}_alone exec_itself_${how}_1 exec_itself_${how}_2
      PROPERTIES TIMEOUT 60 LABELS multi)
  endforeach()
  # Its status is that of the job.
  add_test(NAME exec_itself_status_1
    COMMAND $<TARGET_FILE:kasane_command> run -n 1 -- $<TARGET_FILE:case_exec_itself> name)
  set_tests_properties(exec_itself_status_1 PROPERTIES TIMEOUT 60 LABELS multi)
endif()

kasane_long()
