# SPDX-License-Identifier: Apache-2.0
# kasane_skip_without_uffd_thread(TEST…): skips tests that force the fault engine uffd-thread, instead of
# failing them, where the kernel does not permit it to this user.
include_guard()

function(kasane_skip_without_uffd_thread)
  set_tests_properties(${ARGN} PROPERTIES
    SKIP_REGULAR_EXPRESSION "the fault engine uffd-thread .* cannot be had here")
endfunction()

# kasane_add_uffd_thread_test(NAME TIMEOUT COMMAND…): NAME_uffd_thread.
function(kasane_add_uffd_thread_test name timeout)
  add_test(NAME ${name}_uffd_thread COMMAND ${ARGN})
  set_tests_properties(${name}_uffd_thread PROPERTIES TIMEOUT ${timeout} LABELS multi
    ENVIRONMENT KASANE_FAULTS=uffd-thread)
  kasane_skip_without_uffd_thread(${name}_uffd_thread)
endfunction()
