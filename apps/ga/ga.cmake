# SPDX-License-Identifier: Apache-2.0
# Programs in Global Arrays C, for tests and kasane bench ga: NAME-kasane-MPI on Kasane's libarmci, and
# NAME-armci-mpi-MPI on Debian's, the same source, where an MPI, Global Arrays and both are found. (Users
# link them by mpicc: docs/guide/global_arrays.md.)
find_path(KASANE_GA_HEADERS ga.h)
find_library(KASANE_GFORTRAN gfortran)
if(NOT KASANE_GFORTRAN)
  execute_process(COMMAND "${CMAKE_C_COMPILER}" -print-file-name=libgfortran.so
    OUTPUT_VARIABLE gfortran OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(IS_ABSOLUTE "${gfortran}")
    set(KASANE_GFORTRAN "${gfortran}" CACHE FILEPATH "" FORCE)
  endif()
endif()

set(mpis "")
foreach(mpi openmpi mpich)
  foreach(library ga scalapack armci)
    find_library(KASANE_GA_${library}_${mpi} ${library}-${mpi})
  endforeach()
  find_library(KASANE_GA_LAPACK lapack)
  find_library(KASANE_GA_BLAS blas)
  if(TARGET armci-${mpi} AND KASANE_GA_HEADERS AND KASANE_GA_ga_${mpi} AND KASANE_GA_scalapack_${mpi}
      AND KASANE_GA_armci_${mpi} AND KASANE_GA_LAPACK AND KASANE_GA_BLAS AND KASANE_GFORTRAN)
    list(APPEND mpis ${mpi})
  elseif(TARGET armci-${mpi})
    message(STATUS "Global Arrays programs for ${mpi}: not built (Debian: libglobalarrays-dev)")
  endif()
endforeach()
set(KASANE_GA_MPIS ${mpis} CACHE INTERNAL "The MPIs for which Global Arrays programs can be linked")
pkg_check_modules(ga_openmpi QUIET IMPORTED_TARGET GLOBAL ompi-c)
pkg_check_modules(ga_mpich QUIET IMPORTED_TARGET GLOBAL mpich)

# kasane_add_ga_program(NAME FOLDER SOURCE): the targets NAME-ARMCI-MPI, in FOLDER.
function(kasane_add_ga_program name folder source)
  foreach(mpi IN LISTS KASANE_GA_MPIS)
    foreach(armci kasane armci-mpi)
      set(target ${name}-${armci}-${mpi})
      add_executable(${target} ${source})
      set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${folder}")
      target_compile_options(${target} PRIVATE -O3)
      target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
      target_include_directories(${target} SYSTEM PRIVATE "${KASANE_GA_HEADERS}")
      if(armci STREQUAL "kasane")
        set(library armci-${mpi})
        target_link_options(${target} PRIVATE "LINKER:-rpath-link,${CMAKE_BINARY_DIR}/lib")
      else()
        set(library "${KASANE_GA_armci_${mpi}}")
      endif()
      target_link_libraries(${target} PRIVATE "${KASANE_GA_ga_${mpi}}" "${KASANE_GA_scalapack_${mpi}}"
        "${KASANE_GA_LAPACK}" "${KASANE_GA_BLAS}" ${library} "${KASANE_GFORTRAN}" m PkgConfig::ga_${mpi}
        kasane_warnings)
    endforeach()
  endforeach()
endfunction()
