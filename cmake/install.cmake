# SPDX-License-Identifier: Apache-2.0
# cmake --install: a prefix that may be moved afterwards. The components are runtime (what programs need to
# run), devel (what programs are built with), apps (the applications, which `kasane run` knows by name),
# openmpi and mpich (the modules of these MPIs), ga-openmpi and ga-mpich (libarmci for Global Arrays programs
# of these MPIs), python (the package kasane), and bench (kasane bench, with oneTBB and OpenMP as peers). The
# Debian packages consist of the same components (packages.cmake).
include(CMakePackageConfigHelpers)

install(TARGETS kasane_library kasane_acp EXPORT KasaneTargets
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT devel
  ARCHIVE COMPONENT devel)
install(TARGETS kasane_entry kasane kasane_attaching kasane_comm_alone kasane_graph EXPORT KasaneTargets
  ARCHIVE COMPONENT devel)
file(GLOB public_headers "${PROJECT_SOURCE_DIR}/include/kasane/*.h"
  "${PROJECT_SOURCE_DIR}/include/kasane/*.hpp")
install(FILES ${public_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kasane" COMPONENT devel)
file(GLOB container_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kasane/containers/*.hpp")
install(FILES ${container_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kasane/containers"
  COMPONENT devel)

# <kasane/comm/…> include headers of the layers below. Only those headers are installed under
# include/kasane/comm/parts.
set(comm_parts "")
function(kasane_collect_includes file)
  file(STRINGS "${file}" lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" header "${line}")
    get_property(seen GLOBAL PROPERTY KASANE_COMM_PARTS)
    if(NOT header IN_LIST seen)
      set_property(GLOBAL APPEND PROPERTY KASANE_COMM_PARTS "${header}")
      kasane_collect_includes("${PROJECT_SOURCE_DIR}/src/${header}")
    endif()
  endforeach()
endfunction()
file(GLOB comm_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kasane/comm/*.hpp")
foreach(header IN LISTS comm_headers)
  kasane_collect_includes("${header}")
endforeach()
install(FILES ${comm_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kasane/comm" COMPONENT devel)
get_property(comm_parts GLOBAL PROPERTY KASANE_COMM_PARTS)
foreach(header IN LISTS comm_parts)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "src/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kasane/comm/parts/${folder}"
    COMPONENT devel)
endforeach()

# find_package(Kasane)
set(config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/Kasane")
install(EXPORT KasaneTargets NAMESPACE kasane:: DESTINATION "${config_folder}" COMPONENT devel)
# The names in small letters serve find_package(kasane), too.
configure_package_config_file(cmake/KasaneConfig.cmake.in "${CMAKE_BINARY_DIR}/cmake/kasane-config.cmake"
  INSTALL_DESTINATION "${config_folder}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/cmake/kasane-config-version.cmake"
  COMPATIBILITY SameMajorVersion)   # before 1.0 who needs one interface asks for 0.2...<0.3
install(FILES cmake/KasaneBlas.cmake "${CMAKE_BINARY_DIR}/cmake/kasane-config.cmake"
  "${CMAKE_BINARY_DIR}/cmake/kasane-config-version.cmake" DESTINATION "${config_folder}" COMPONENT devel)

# pkg-config kasane, kasane-attach, kasane-acp, kasane-comm, kasane-graph: the paths are relative to the .pc
# files, so that a moved prefix needs no --define-prefix.
set(static_libraries "")
set(program_flags "${KASANE_STACK_FLAGS} -fno-plt -mno-direct-extern-access ")
set(program_link_flags "-Wl,-z,now ")
if(KASANE_SHARED)
  # g++ -static takes it in place of libkasane.so, and says that it cannot find what it names.
  set(named "libkasane.so, since programs of Kasane are linked dynamically: leave out -static")
  file(WRITE "${CMAKE_BINARY_DIR}/cmake/libkasane.a" "INPUT(\"${named}\")\n")
  install(FILES "${CMAKE_BINARY_DIR}/cmake/libkasane.a" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT devel)
else()
  set(program_flags "${KASANE_STACK_FLAGS} ")
  set(program_link_flags "")
  set(static_libraries "-lspdlog -lfmt -lhwloc -luring -lstdc++ -lm -lpthread")
endif()
file(RELATIVE_PATH prefix_from_pc "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
foreach(name kasane kasane-attach kasane-acp kasane-comm kasane-graph)
  configure_file("cmake/${name}.pc.in" "${CMAKE_BINARY_DIR}/cmake/${name}.pc" @ONLY)
  install(FILES "${CMAKE_BINARY_DIR}/cmake/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
    COMPONENT devel)
endforeach()

# What make install needs built, and of this the libraries.
add_custom_target(kasane_libraries)
foreach(target kasane_library kasane_acp kasane_entry kasane_graph kasane_malloc kasane_preload
  kasane-mpi-openmpi kasane-mpi-mpich kasane-pmix armci-openmpi armci-mpich)
  if(TARGET ${target})
    add_dependencies(kasane_libraries ${target})
  endif()
endforeach()
add_custom_target(kasane_installed)
foreach(target kasane_libraries kasane_command kasane_pages)
  if(TARGET ${target})
    add_dependencies(kasane_installed ${target})
  endif()
endforeach()

# As they lie in the source tree, so that the README's links lead somewhere.
set(documents LICENSE README.md CHANGELOG.md SECURITY.md THIRD_PARTY.md CONTRIBUTING.md)
foreach(document IN LISTS documents)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${document}")
    install(FILES ${document} DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
  endif()
endforeach()
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime PATTERN site EXCLUDE)
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT devel)
