# SPDX-License-Identifier: Apache-2.0
# System calls on global memory that is absent, signal masks, files. The programs check themselves.
foreach(program system_calls streams descriptors close_descriptors files forks evicted_late waiting_calls
        live_registers)
  kasane_job_program(program_${program} SOURCES ${program}.cpp)
endforeach()
target_compile_options(program_system_calls PRIVATE -Wno-stringop-overread)   # wild pointers are meant
if(KASANE_SANITIZER)   # a sanitizer's operator new is not global memory, and calls are not caught
  return()
endif()

foreach(program system_calls live_registers descriptors close_descriptors files forks)
  kasane_job_test(program_${program} NETWORKS ucx TIMEOUT 240)
endforeach()
set(little DRAM 24M TIMEOUT 240)
foreach(program system_calls live_registers close_descriptors)
  kasane_job_test(program_${program} ${little})
endforeach()
kasane_job_test(program_files ${little} LONG 1 2)
kasane_job_test(program_forks ${little} LONG 1 2)
kasane_job_test(program_system_calls FAULTS mprotect TIMEOUT 240 LONG 1 4)
kasane_job_test(program_evicted_late RANKS 1 OPTIONS --spill /dev/shm TIMEOUT 240)
kasane_job_test(program_streams ${little} ARGS 48)
kasane_job_test(program_streams ARGS 16 TIMEOUT 240 LONG all)
kasane_job_test(program_streams/large ARGS 192 OPTIONS --dram 64M TIMEOUT 240 LONG all)
# Where the runtime's descriptors lie beyond the program's limit, and where they cannot.
foreach(limit -Sn\ 1024 -n\ 200)
  string(REGEX MATCH "[0-9]+" name "${limit}")
  kasane_job_test(program_close_descriptors/limit_${name} RANKS 2 TIMEOUT 240
    UNDER sh -c "ulimit ${limit} && exec \"$@\"" sh)
endforeach()
kasane_job_test(program_waiting_calls RANKS 1x1 2x1 4x1 1x3 2x3 4x3 TIMEOUT 240 LONG 1x3 4x3
  QUICK 1x1 2x1 4x1)
kasane_job_test(program_waiting_calls NETWORKS ucx openmpi mpich RANKS none TIMEOUT 240)
kasane_job_test(program_waiting_calls/at_the_end RANKS 1x1 2x1 4x1 ARGS end TIMEOUT 240 QUICK all
  EXPECT "the last thread has read")
kasane_job_test(program_waiting_calls RANKS 1x1 2x1 4x1 FAULTS mprotect uffd-thread TIMEOUT 240 LONG 1 4
  QUICK 2)
kasane_job_test(program_waiting_calls RANKS 1x1 2x1 4x1 ${little} LONG 1 4 QUICK 2)
kasane_job_test(program_files/closed RANKS 2 ARGS closed TIMEOUT 60
  EXPECT "(fputs|fwrite).. on rank 1: no stream .* is open")
kasane_job_test(program_files/os_thread RANKS 2 ARGS os_thread TIMEOUT 60
  EXPECT "(fputs|fwrite).. on rank 0: the file or stream was opened on rank 1")

# As on a kernel that cannot catch calls: with uffd-thread, which the kernel may refuse, too.
add_executable(without_dispatch without_dispatch.c)
target_link_libraries(without_dispatch PRIVATE kasane_warnings)
foreach(lacks dispatch nor-userfaultfd)
  set(without UNDER $<TARGET_FILE:without_dispatch> ${lacks} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 240)
  kasane_job_test(program_files/without_${lacks} RANKS 2 ${without})
  kasane_job_test(program_descriptors/without_${lacks} RANKS 2 ${without})
  kasane_job_test(program_waiting_calls/without_${lacks} RANKS 2x1 ${without} ARGS pipes QUICK all)
  if(lacks STREQUAL "dispatch")
    kasane_job_test(program_streams/without_${lacks} RANKS 2 DRAM 24M ${without} ARGS 48)
  else()
    kasane_job_test(program_files/absent_without_${lacks} RANKS 2 DRAM 24M ${without} ARGS absent
      EXPECT "fwrite[(][)] on rank .*EFAULT.*--faults uffd-thread")
  endif()
endforeach()
