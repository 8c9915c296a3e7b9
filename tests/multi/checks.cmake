# SPDX-License-Identifier: Apache-2.0
# kasane_add_check_tests(NAME): the script NAME.sh of this folder, which checks what `kasane run` reports of
# NAME_program, over shared memory and where peers are not mapped.
include_guard()

function(kasane_add_check_tests name)
  add_executable(${name}_program program.cpp)
  target_link_libraries(${name}_program PRIVATE kasane kasane_warnings)
  if(KASANE_SANITIZER)   # a sanitizer's operator new is not global memory
    return()
  endif()
  set(command "${CMAKE_CURRENT_SOURCE_DIR}/${name}.sh" $<TARGET_FILE:kasane_command>
    $<TARGET_FILE:${name}_program>)
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(${name} PROPERTIES TIMEOUT 90 LABELS multi)
  if(UCX_FOUND)
    add_test(NAME ${name}_over_ucx COMMAND ${command})
    set_tests_properties(${name}_over_ucx PROPERTIES TIMEOUT 60 LABELS "multi;network"
      ENVIRONMENT KASANE_TRANSPORT=ucx)
  endif()
endfunction()
