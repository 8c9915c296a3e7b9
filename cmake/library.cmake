# SPDX-License-Identifier: Apache-2.0
# libkasane, made of the objects of all layers, and the targets that programs link. The targets have the same
# names in this tree, in a parent project and in an installed Kasane.
#
#   kasane::kasane   the public headers, libkasane, and the part of the start that lies in the executable
#                    (src/runtime/entry): it takes over main
#   kasane::attach   the public headers and libkasane for a program with a start and an MPI of its own, which
#                    calls kasane_attach() (docs/guide/attach.md): nothing takes over main
#   kasane::comm     the communication layer alone (docs/guide/communication.md): nothing takes over main;
#                    the program calls comm::launch()
#   kasane::graph    kasane::kasane and <kasane/graph.hpp> (src/graph)

set(objects "")
get_property(layers GLOBAL PROPERTY KASANE_LAYERS_WITH_SOURCES)
foreach(layer IN LISTS layers)
  list(APPEND objects $<TARGET_OBJECTS:${layer}>)
endforeach()

if(KASANE_SHARED)
  add_library(kasane_library SHARED ${objects})
  # Calls inside the library bind inside it, except new and delete, which a program may replace, and those of
  # preloadable.list. No symbol is looked up after the start, since threads have small stacks.
  target_link_options(kasane_library PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/kasane.map"
    LINKER:-Bsymbolic-functions LINKER:--dynamic-list-cpp-new
    "LINKER:--dynamic-list=${PROJECT_SOURCE_DIR}/cmake/preloadable.list" LINKER:-z,now)
  # Programs call the library through their table of addresses instead of a stub. The stub was a third of what
  # a shared library costs a fork.
  target_compile_options(kasane_library INTERFACE -fno-plt)
  # The program's variables are shared by all ranks (src/runtime/start/program_image.h), but the libraries'
  # are not: so no copy of one of these may lie among the program's, and all of the table of addresses lies in
  # the read-only part.
  target_compile_options(kasane_library INTERFACE ${KASANE_NO_COPIES})
  target_link_options(kasane_library INTERFACE LINKER:-z,now)
  set_property(TARGET kasane_library APPEND PROPERTY LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/kasane.map")
else()
  add_library(kasane_library STATIC ${objects})
endif()
set_target_properties(kasane_library PROPERTIES OUTPUT_NAME kasane EXPORT_NAME library LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib" ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
target_include_directories(kasane_library
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(kasane_library INTERFACE cxx_std_20)
target_compile_options(kasane_library INTERFACE ${KASANE_STACK_FLAGS})
target_link_libraries(kasane_library
  PRIVATE tl::expected fmt::fmt spdlog::spdlog PkgConfig::hwloc PkgConfig::liburing Threads::Threads dl)

# A layer like the others for scripts/check_includes.py, but no layer links it. The executable contains it,
# and the library contains what it calls.
add_library(kasane_entry STATIC src/runtime/entry/entry.cpp)
target_include_directories(kasane_entry PRIVATE src)
target_link_libraries(kasane_entry PRIVATE $<BUILD_INTERFACE:kasane_warnings>)
set_target_properties(kasane_entry PROPERTIES OUTPUT_NAME kasane_start EXPORT_NAME start
  ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

# The start of an installed program (kasane run --preload), beside libkasane_malloc.so. initfirst: it makes
# the ranks before any library is constructed.
if(KASANE_SHARED AND NOT KASANE_SANITIZER)
  add_library(kasane_preload SHARED src/runtime/entry/preload.cpp)
  target_include_directories(kasane_preload PRIVATE src)
  target_link_libraries(kasane_preload PRIVATE kasane_library kasane_warnings)
  target_link_options(kasane_preload PRIVATE LINKER:-z,initfirst LINKER:-z,now)
  set_target_properties(kasane_preload PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${KASANE_HELPERS}"
    CXX_VISIBILITY_PRESET hidden BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS kasane_preload LIBRARY DESTINATION "${KASANE_INSTALL_HELPERS}" COMPONENT runtime)
endif()

add_library(kasane INTERFACE)
target_link_libraries(kasane INTERFACE kasane_entry kasane_library)
# The program's atomics become calls of libkasane.so, which executes them where the object lies. Only GCC can.
# Compilers must not keep the address of errno over a call that may move the thread.
# A target that precompiles <kasane/atomic_calls.h> and <kasane/errno.h> as its first headers says so by its
# property KASANE_ATOMIC_CALLS_PRECOMPILED, since forced headers would come before them.
set(gnu "$<COMPILE_LANG_AND_ID:CXX,GNU>,$<COMPILE_LANG_AND_ID:C,GNU>")
set(forced "$<NOT:$<BOOL:$<TARGET_PROPERTY:KASANE_ATOMIC_CALLS_PRECOMPILED>>>")
target_compile_options(kasane INTERFACE $<$<OR:${gnu}>:-fno-inline-atomics>
  "$<$<AND:${forced},$<OR:${gnu}>>:SHELL:-include kasane/atomic_calls.h>"
  "$<$<AND:${forced},$<COMPILE_LANGUAGE:C,CXX>>:SHELL:-include kasane/errno.h>")
add_library(kasane::kasane ALIAS kasane)

add_library(kasane_attaching INTERFACE)
set_target_properties(kasane_attaching PROPERTIES EXPORT_NAME attach)
target_link_libraries(kasane_attaching INTERFACE kasane_library)
add_library(kasane::attach ALIAS kasane_attaching)

add_library(kasane_comm_alone INTERFACE)
set_target_properties(kasane_comm_alone PROPERTIES EXPORT_NAME comm)
target_include_directories(kasane_comm_alone INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/kasane/comm/parts>)
target_link_libraries(kasane_comm_alone INTERFACE kasane_library tl::expected)
add_library(kasane::comm ALIAS kasane_comm_alone)

# The same as kasane, but from the layers' own archives: for tests that look inside the runtime, whose
# functions libkasane.so does not export.
add_library(kasane_in_parts INTERFACE)
target_link_libraries(kasane_in_parts INTERFACE kasane_entry kasane_start kasane_runtime)
