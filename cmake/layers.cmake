# SPDX-License-Identifier: Apache-2.0
# The one table of the architecture: which layer may include (and is linked against) which.
# scripts/check_includes.py reads the same rows. A row: NAME | folder | layers it may include.
# An arrow is transitive: what a layer includes, its users may include too.
set(KASANE_LAYERS
  "base       | src/base           | "
  "topo       | src/topo           | base"
  "diagnostics | src/diagnostics   | base topo"
  "comm       | src/comm           | base topo"
  "comm_shm   | src/comm/shm       | comm bootstrap"
  "comm_mpi   | src/comm/mpi       | comm"
  "comm_ucx   | src/comm/ucx       | comm"
  "comm_composed | src/comm/composed | comm"
  "bootstrap  | src/comm/bootstrap | comm diagnostics"
  "comm_collectives | src/comm/collectives | comm"
  "comm_session | src/comm/session | comm comm_shm comm_ucx comm_mpi comm_composed bootstrap comm_collectives"
  "comm_launch | src/comm/launch | comm_session"
  "comm_offload | src/comm/offload | comm"
  "comm_engine | src/comm/engine   | comm comm_offload"
  "comm_examples | examples/comm | comm_api"
  "traps      | src/traps          | base"
  "mem        | src/mem            | base topo traps"
  "gas        | src/gas            | comm_engine mem"
  "dsm        | src/dsm            | gas"
  "ult        | src/ult            | base topo"
  "ult_sync   | src/ult/sync       | ult"
  "sched      | src/sched          | ult gas"
  "checkpoint | src/checkpoint     | base"
  "rank       | src/runtime/rank   | dsm ult comm_session"
  "language   | src/runtime/language | rank ult_sync api"
  "process    | src/runtime/process | language"
  "report     | src/runtime/report | process"
  "c_api      | src/runtime/api    | report checkpoint api"
  "job        | src/runtime/job    | c_api sched"
  "start      | src/runtime/start  | job"
  "attach     | src/runtime/attach | start comm_mpi"
  "entry      | src/runtime/entry  | start bootstrap"
  "api        | include/kasane     | "
  "arrays     | src/arrays         | api"
  "graph      | src/graph          | api"
  "posts      | src/posts          | c_api"
  "armci      | src/armci          | api"
  "acp        | src/acp            | api"
  "comm_api   | include/kasane/comm | comm_launch comm_engine"
)

function(kasane_layer_row name out_folder out_deps)
  foreach(row IN LISTS KASANE_LAYERS)
    string(REPLACE "|" ";" cells "${row}")
    list(GET cells 0 row_name)
    list(GET cells 1 folder)
    list(LENGTH cells n)
    set(deps "")
    if(n GREATER 2)
      list(GET cells 2 deps)
    endif()
    string(STRIP "${row_name}" row_name)
    string(STRIP "${folder}" folder)
    string(STRIP "${deps}" deps)
    string(REPLACE " " ";" deps "${deps}")
    if(row_name STREQUAL name)
      set(${out_folder} "${folder}" PARENT_SCOPE)
      set(${out_deps} "${deps}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "layer '${name}' is not in cmake/layers.cmake")
endfunction()

# Adds the layer's static library kasane_NAME from every source in its folder (not its sub-folders,
# which are layers of their own), linked against exactly the layers of its row.
function(kasane_add_layer name)
  kasane_layer_row(${name} folder deps)
  file(GLOB sources
    CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cpp" "${PROJECT_SOURCE_DIR}/${folder}/*.S")
  if(sources)
    add_library(kasane_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(kasane_${name} PRIVATE kasane_warnings)
    set_property(GLOBAL APPEND PROPERTY KASANE_LAYERS_WITH_SOURCES kasane_${name})
  else()
    add_library(kasane_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  if(name STREQUAL "api")
    target_include_directories(kasane_api INTERFACE "${PROJECT_SOURCE_DIR}/include")
  else()
    target_include_directories(kasane_${name} ${scope} "${PROJECT_SOURCE_DIR}/src")
  endif()
  foreach(dep IN LISTS deps)
    target_link_libraries(kasane_${name} ${scope} kasane_${dep})
  endforeach()
  target_link_libraries(kasane_${name} ${scope} ${ARGN})
endfunction()
