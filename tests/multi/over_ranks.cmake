# SPDX-License-Identifier: Apache-2.0
# kasane_add_rank_tests(NAME TIMEOUT): the test program NAME on 1, 2 and 4 ranks over shared memory, with one
# and two workers, as NAME_RANKSxWORKERS.
include_guard()

# In sanitizer builds operator new is the sanitizer's, so what threads allocate is not global: one rank only.
set(KASANE_RANKS_TESTED 1 2 4)
if(KASANE_SANITIZER)
  set(KASANE_RANKS_TESTED 1)
endif()

function(kasane_add_rank_tests name timeout)
  foreach(ranks IN LISTS KASANE_RANKS_TESTED)
    foreach(workers 1 2)
      add_test(NAME ${name}_${ranks}x${workers}
        COMMAND $<TARGET_FILE:kasane_command> run -n ${ranks} --workers ${workers} -- $<TARGET_FILE:${name}>)
      set_tests_properties(${name}_${ranks}x${workers} PROPERTIES TIMEOUT ${timeout} LABELS multi)
    endforeach()
  endforeach()
endfunction()
