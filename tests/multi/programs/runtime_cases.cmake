# SPDX-License-Identifier: Apache-2.0
# What a program expects of its process: output, exit(), pthread_exit(), errno, threads of libraries. Each
# checks itself.
foreach(case print long_lines exits thread_exits errno_of_thread thread_locals process_state os_threads keys
    read_input exec_itself)
  kasane_job_program(case_${case} SOURCES ${case}.cpp)
endforeach()
target_sources(case_errno_of_thread PRIVATE errno_calls.c)
target_link_libraries(case_process_state PRIVATE ${CMAKE_DL_LIBS})

set(here "${CMAKE_CURRENT_SOURCE_DIR}")
kasane_job_test(case_print NETWORKS ucx COMMAND "${here}/print.py" $<TARGET_FILE:case_print> @RUN@ --)
kasane_job_test(case_print/tagged NETWORKS ucx OPTIONS --tag-output
  COMMAND "${here}/print.py" $<TARGET_FILE:case_print> @RUN@ --)
kasane_job_test(case_long_lines NETWORKS ucx UNDER "${here}/long_lines.sh")
kasane_job_test(case_exits NETWORKS ucx COMMAND "${here}/exits.py" $<TARGET_FILE:case_exits> @RUN@ --)
kasane_job_test(case_exits/hosts RANKS any
  COMMAND "${here}/exits.py" $<TARGET_FILE:case_exits> $<TARGET_FILE:kasane_command> run
    --agent "env HOST=%h" --hosts a,b -n 2 --)
foreach(how main-alone main-with-os-threads main-with-threads on-threads moving first-thread)
  kasane_job_test(case_thread_exits/${how} NETWORKS ucx ARGS ${how})
endforeach()
kasane_job_test(case_thread_exits/main-beyond-dram NETWORKS ucx DRAM "@RANKS * 8192@K" ARGS main-beyond-dram
  TIMEOUT 60)
foreach(how main-joined main-cancelled)
  kasane_job_test(case_thread_exits/${how} ARGS ${how})
  kasane_job_test(case_thread_exits/${how}/spread NETWORKS ucx ARGS ${how} OPTIONS --threads spread)
endforeach()
kasane_job_test(case_thread_exits/swallowed RANKS 2 ARGS swallowed TIMEOUT 60
  EXPECT "pthread_exit: a catch [(][.][.][.][)] did not rethrow")
kasane_job_test(case_errno_of_thread NETWORKS ucx OPTIONS --workers 2)
kasane_job_test(case_thread_locals NETWORKS ucx OPTIONS --workers 2 --check globals
  EXPECT "thread_local variables, which are their worker's, not theirs: .*counted, .*cached[.] Use"
  PROPERTIES FAIL_REGULAR_EXPRESSION "only_read|of_main|Error")
kasane_job_test(case_process_state NETWORKS ucx)
kasane_job_test(case_os_threads NETWORKS ucx ARGS 3000)
kasane_job_test(case_keys NETWORKS ucx)
kasane_job_test(case_keys/of_libstdcxx RANKS 2 ARGS pool TIMEOUT 60
  FAILS "std::pmr::synchronized_pool_resource.*unsynchronized_pool_resource")
kasane_job_test(case_read_input NETWORKS ucx UNDER "${here}/read_input.sh")

# exec: on one rank it becomes the program; on several it says what to do.
foreach(how link name thread other)
  set(again EXPECT "^again" PROPERTIES FAIL_REGULAR_EXPRESSION "kasane:" TIMEOUT 60)
  kasane_job_test(case_exec_itself/${how}_alone RANKS any COMMAND $<TARGET_FILE:case_exec_itself> ${how}
    ${again})
  kasane_job_test(case_exec_itself/${how} RANKS 1 ARGS ${how} ${again})
  kasane_job_test(case_exec_itself/${how} RANKS 2 ARGS ${how} TIMEOUT 60
    FAILS "rank [01]: exec: .* of this rank alone, of 2[.] Start it by posix_spawn")
endforeach()
# Its status is that of the job.
kasane_job_test(case_exec_itself/status RANKS 1 ARGS name TIMEOUT 60)
