# SPDX-License-Identifier: Apache-2.0
add_library(kasane_warnings INTERFACE)
target_compile_options(kasane_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wcast-align -Wnull-dereference
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  # clang warns of what the algorithms of the standard library themselves use.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>
  # In a unit of several sources no source is the main file.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${KASANE_QUICK_BUILD}>>:-Wno-subobject-linkage>
  $<$<BOOL:${KASANE_WERROR}>:-Werror>)
# What runs on a thread's stack touches each OS page of a large frame in order, so it meets the guard and
# nothing beyond it. Programs get the same flag (cmake/library.cmake).
set(KASANE_STACK_FLAGS -fstack-clash-protection)
set(CMAKE_C_FLAGS "${CMAKE_C_FLAGS} -fno-omit-frame-pointer ${KASANE_STACK_FLAGS}")
set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} -fno-omit-frame-pointer ${KASANE_STACK_FLAGS}")

if(KASANE_SANITIZER)
  # GCC takes a sanitizer's own checks for proof that a pointer may be null.
  target_compile_options(kasane_warnings INTERFACE -Wno-null-dereference)
  add_compile_options(-fsanitize=${KASANE_SANITIZER} -g1)   # lines are enough for reports
  add_link_options(-fsanitize=${KASANE_SANITIZER})
  string(TOUPPER "${KASANE_SANITIZER}" upper)
  add_compile_definitions(KASANE_SANITIZER_${upper}=1)
endif()
if(KASANE_FUZZ)
  # Not vptr: it needs the types of libraries that were built without it.
  set(fuzz -fsanitize=fuzzer-no-link,undefined -fno-sanitize=vptr,function -fno-sanitize-recover=undefined)
  add_compile_options(${fuzz})
  add_link_options(${fuzz})
endif()

# For programs: no copy of a library's variable lies among the program's own (library.cmake).
if(KASANE_SHARED)
  set(KASANE_NO_COPIES
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:CXX>>:-mno-direct-extern-access>"
    "$<$<AND:$<C_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:C>>:-mno-direct-extern-access>"
    "$<$<AND:$<CXX_COMPILER_ID:Clang>,$<COMPILE_LANGUAGE:CXX>>:-fno-direct-access-external-data>"
    "$<$<AND:$<C_COMPILER_ID:Clang>,$<COMPILE_LANGUAGE:C>>:-fno-direct-access-external-data>")
endif()
