# SPDX-License-Identifier: Apache-2.0
# System calls on global memory that is absent, signal masks, files. The programs check themselves.
include(../over_networks.cmake)
include(../over_ranks.cmake)

# kasane_test_calls(NAME PROGRAM [ARGS …] [OPTIONS …]): NAME_RANKS on 1, 2 and 4 ranks, with options of
# kasane run.
function(kasane_test_calls name program)
  cmake_parse_arguments(arg "" "" "ARGS;OPTIONS" ${ARGN})
  foreach(ranks IN LISTS KASANE_RANKS_TESTED)
    add_test(NAME ${name}_${ranks} COMMAND $<TARGET_FILE:kasane_command> run -n ${ranks} ${arg_OPTIONS}
      -- $<TARGET_FILE:${program}> ${arg_ARGS})
    set_tests_properties(${name}_${ranks} PROPERTIES TIMEOUT 240 LABELS multi)
  endforeach()
endfunction()

function(kasane_test_calls_over_ucx name program)
  add_test(NAME ${name}_over_ucx_2
    COMMAND $<TARGET_FILE:kasane_command> run -n 2 --transport ucx -- $<TARGET_FILE:${program}>)
  set_tests_properties(${name}_over_ucx_2 PROPERTIES TIMEOUT 240 LABELS "multi;network")
endfunction()

foreach(program system_calls streams descriptors close_descriptors files forks evicted_late waiting_calls
        live_registers)
  add_executable(program_${program} ${program}.cpp)
  target_link_libraries(program_${program} PRIVATE kasane kasane_warnings)
endforeach()
target_compile_options(program_system_calls PRIVATE -Wno-stringop-overread)   # wild pointers are meant

if(KASANE_SANITIZER)   # a sanitizer's operator new is not global memory, and calls are not caught
  return()
endif()

kasane_test_calls(calls program_system_calls)
kasane_test_calls(calls_dram program_system_calls OPTIONS --dram 24M --spill /dev/shm)
kasane_test_calls(live_registers program_live_registers)
kasane_test_calls(live_registers_dram program_live_registers OPTIONS --dram 24M --spill /dev/shm)
kasane_test_calls(calls_mprotect program_system_calls OPTIONS --faults mprotect)
add_test(NAME calls_evicted_late COMMAND $<TARGET_FILE:kasane_command> run -n 1 --spill /dev/shm
  -- $<TARGET_FILE:program_evicted_late>)
set_tests_properties(calls_evicted_late PROPERTIES TIMEOUT 240 LABELS multi)
kasane_test_calls(streams_dram program_streams ARGS 48 OPTIONS --dram 24M --spill /dev/shm)
kasane_test_calls(streams program_streams ARGS 16)
kasane_test_calls(streams_large program_streams ARGS 192 OPTIONS --dram 64M)
kasane_test_calls(descriptors program_descriptors)
kasane_test_calls(close_descriptors program_close_descriptors)
kasane_test_calls(close_descriptors_dram program_close_descriptors OPTIONS --dram 24M --spill /dev/shm)
# Where the runtime's descriptors lie beyond the program's limit, and where they cannot.
foreach(limit Sn\ 1024 n\ 200)
  string(REPLACE " " "_" name "${limit}")
  add_test(NAME close_descriptors_limit_${name} COMMAND sh -c "ulimit -${limit} && exec \"$@\"" sh
    $<TARGET_FILE:kasane_command> run -n 2 -- $<TARGET_FILE:program_close_descriptors>)
  set_tests_properties(close_descriptors_limit_${name} PROPERTIES TIMEOUT 240 LABELS multi)
endforeach()
kasane_test_calls(files program_files)
kasane_test_calls(waiting_calls program_waiting_calls OPTIONS --workers 1)
kasane_test_calls(waiting_calls_of_workers program_waiting_calls OPTIONS --workers 3)
kasane_test_calls(waiting_calls_at_the_end program_waiting_calls ARGS end OPTIONS --workers 1)
foreach(ranks IN LISTS KASANE_RANKS_TESTED)
  set_tests_properties(waiting_calls_at_the_end_${ranks} PROPERTIES
    PASS_REGULAR_EXPRESSION "the last thread has read")
endforeach()
kasane_test_calls(waiting_calls_mprotect program_waiting_calls OPTIONS --workers 1 --faults mprotect)
kasane_test_calls(waiting_calls_uffd_thread program_waiting_calls OPTIONS --workers 1 --faults uffd-thread)
kasane_test_calls(waiting_calls_dram program_waiting_calls OPTIONS --workers 1 --dram 24M --spill /dev/shm)
kasane_test_calls(forks program_forks)
kasane_test_calls(forks_dram program_forks OPTIONS --dram 24M --spill /dev/shm)
kasane_test_calls(files_dram program_files OPTIONS --dram 24M --spill /dev/shm)
foreach(how closed os_thread)
  add_test(NAME files_${how} COMMAND $<TARGET_FILE:kasane_command> run -n 2 --
    $<TARGET_FILE:program_files> ${how})
endforeach()
set_tests_properties(files_closed PROPERTIES TIMEOUT 60 LABELS multi
  PASS_REGULAR_EXPRESSION "(fputs|fwrite).. on rank 1: no stream .* is open")
set_tests_properties(files_os_thread PROPERTIES TIMEOUT 60 LABELS multi
  PASS_REGULAR_EXPRESSION "(fputs|fwrite).. on rank 0: the file or stream was opened on rank 1")

# As on a kernel that cannot catch calls: with uffd-thread, which the kernel may refuse, too.
add_executable(without_dispatch without_dispatch.c)
target_link_libraries(without_dispatch PRIVATE kasane_warnings)
foreach(lacks dispatch nor-userfaultfd)
  foreach(program files descriptors)
    add_test(NAME ${program}_without_${lacks} COMMAND without_dispatch ${lacks}
      $<TARGET_FILE:kasane_command> run -n 2 -- $<TARGET_FILE:program_${program}>)
    set_tests_properties(${program}_without_${lacks} PROPERTIES TIMEOUT 240 LABELS multi SKIP_RETURN_CODE 77)
  endforeach()
  add_test(NAME waiting_calls_without_${lacks} COMMAND without_dispatch ${lacks}
    $<TARGET_FILE:kasane_command> run -n 2 --workers 1 -- $<TARGET_FILE:program_waiting_calls> pipes)
  set_tests_properties(waiting_calls_without_${lacks} PROPERTIES TIMEOUT 240 LABELS multi SKIP_RETURN_CODE 77)
endforeach()
set(run $<TARGET_FILE:kasane_command> run -n 2 --dram 24M --spill /dev/shm --)
add_test(NAME streams_without_dispatch
  COMMAND without_dispatch dispatch ${run} $<TARGET_FILE:program_streams> 48)
add_test(NAME absent_without_nor-userfaultfd
  COMMAND without_dispatch nor-userfaultfd ${run} $<TARGET_FILE:program_files> absent)
set_tests_properties(streams_without_dispatch absent_without_nor-userfaultfd
  PROPERTIES TIMEOUT 240 LABELS multi SKIP_RETURN_CODE 77)
set_tests_properties(absent_without_nor-userfaultfd PROPERTIES
  PASS_REGULAR_EXPRESSION "fwrite[(][)] on rank .*EFAULT.*--faults uffd-thread")
if(UCX_FOUND)
  kasane_test_calls_over_ucx(calls program_system_calls)
  kasane_test_calls_over_ucx(live_registers program_live_registers)
  kasane_test_calls_over_ucx(descriptors program_descriptors)
  kasane_test_calls_over_ucx(close_descriptors program_close_descriptors)
  kasane_test_calls_over_ucx(files program_files)
  kasane_test_calls_over_ucx(forks program_forks)
endif()
kasane_add_network_tests(waiting_calls 2 240 $<TARGET_FILE:program_waiting_calls>)
kasane_long("streams_large" "waiting_calls_(of_workers|mprotect|uffd_thread|dram)_[14]$"
  "(files|forks)_dram_[12]" "calls_mprotect_[14]" "streams_[124]")
