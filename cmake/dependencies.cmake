# SPDX-License-Identifier: Apache-2.0
# All dependencies are packages of the distribution (scripts/install-dependencies.sh). Nothing is downloaded
# here.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(tl-expected REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
if(KASANE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(libelf REQUIRED IMPORTED_TARGET libelf)       # tools: kasane run --preload
pkg_check_modules(capstone REQUIRED IMPORTED_TARGET capstone)   # the same
pkg_check_modules(XXHASH REQUIRED libxxhash)
find_package(ZLIB)   # optional: apps/kmers
if(NOT ZLIB_FOUND)
  message(STATUS "apps/kmers is not built: there is no zlib (Debian: zlib1g-dev)")
endif()
pkg_check_modules(UCX ucx)   # optional: the ucx transport
if(NOT UCX_FOUND)
  message(STATUS "The transport ucx is not built: pkg-config knows no ucx (Debian: libucx-dev)")
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE}")
  # What it asks for where headers are precompiled (cmake/precompiled.cmake).
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    "${CCACHE}")
endif()
