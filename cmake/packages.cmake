# SPDX-License-Identifier: Apache-2.0
# Debian packages, one for each component that is installed: `make deb`, or `cpack -G DEB`.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kasane)
set(CPACK_PACKAGE_VENDOR "the authors of Kasane")
set(CPACK_PACKAGE_CONTACT "the authors of Kasane <kasane@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
# Reports name functions and lines of the library, so it keeps its symbols. gzip would take most of cpack's
# time for them.
set(CPACK_STRIP_FILES OFF)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libkasane comes from one of our own packages.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_BINARY_DIR}/lib")

get_cmake_property(installed COMPONENTS)
set(CPACK_COMPONENTS_ALL "")
# kasane_package(COMPONENT PACKAGE DESCRIPTION [DEPENDS-ON…]): if the component is there.
function(kasane_package component package description)
  if(NOT component IN_LIST installed)
    return()
  endif()
  string(TOUPPER ${component} upper)
  list(JOIN ARGN ", " depends)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "Kasane: ${description}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
endfunction()

set(same "(= ${PROJECT_VERSION})")
kasane_package(runtime kasane "the library, and the kasane command")
kasane_package(devel libkasane-dev "headers, CMake and pkg-config files" "kasane ${same}" libexpected-dev)
kasane_package(apps kasane-apps "the applications of kasane run" "kasane ${same}")
if(python IN_LIST installed)   # for this version of Python alone
  execute_process(COMMAND "${KASANE_SYSTEM_PYTHON}" -c "import sys; major, minor = sys.version_info[:2]
print(f'python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})', end='')"
    OUTPUT_VARIABLE python)
endif()
kasane_package(python python3-kasane "the Python package" "kasane ${same}" "${python}" python3-numpy)
foreach(mpi openmpi mpich)
  kasane_package(${mpi} kasane-${mpi} "ranks joined by ${mpi}" "kasane ${same}")
  kasane_package(ga-${mpi} kasane-ga-${mpi} "Global Arrays programs of ${mpi}" "kasane-${mpi} ${same}")
  string(TOUPPER ga-${mpi} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SUGGESTS libglobalarrays-dev)
endforeach()
kasane_package(pmix kasane-pmix "ranks started by Slurm or PRRTE" "kasane ${same}")
kasane_package(bench kasane-bench "the suites of kasane bench" "kasane ${same}" "kasane-apps ${same}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS kasane-apps)
# Loaded when a job asks for them, so nothing links them.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS
  "libucx0, kasane-openmpi, kasane-mpich, kasane-pmix, kasane-bench, python3-matplotlib")
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
include(CPack)

# `make deb` packs what `make install` installs.
set(packaged "${CMAKE_BINARY_DIR}/PackageInstalled.cmake")
file(WRITE "${packaged}" "include(\"\${CMAKE_CURRENT_LIST_DIR}/CPackConfig.cmake\")\n"
  "list(REMOVE_ITEM CPACK_COMPONENTS_ALL bench)\n")
add_custom_target(kasane_deb DEPENDS kasane_installed VERBATIM
  COMMAND "${CMAKE_CPACK_COMMAND}" --config "${packaged}" -B "${CMAKE_BINARY_DIR}/deb")
if(TARGET kasane_python)
  add_dependencies(kasane_deb kasane_python)
endif()
