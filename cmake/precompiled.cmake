# SPDX-License-Identifier: Apache-2.0
# Headers of third parties that many programs include are parsed once for each set of compiler flags. Our own
# headers are never precompiled: they change, and each file shows what it uses. Eight sources of a target at a
# time form one unit, since headers take most of the time. Names in anonymous namespaces therefore differ
# within a folder. KASANE_QUICK_BUILD=OFF builds without both.
set(CMAKE_UNITY_BUILD ${KASANE_QUICK_BUILD})
if(NOT KASANE_QUICK_BUILD)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

# kasane_precompile(NAME LIBS … HEADERS …): afterwards kasane_use_precompiled(TARGET NAME) gives a program
# these headers.
function(kasane_precompile name)
  cmake_parse_arguments(arg "" "" "LIBS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp" CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
  # GCC takes precompiled headers only where all flags are the same (g++ 12 crashes where only -O differs).
  # The flags of a program differ from those of a library.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE)
  target_link_libraries(${name} PRIVATE kasane_warnings ${arg_LIBS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

# One with flags of its own sets DISABLE_PRECOMPILE_HEADERS.
function(kasane_use_precompiled target name)
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()
