# SPDX-License-Identifier: Apache-2.0
# kasane::blas: kasane::kasane and a BLAS with the functions of cblas.h, for programs that call kasane::gemm.
# There is no such target where none is found. -DKASANE_BLAS_LIBRARY=FILE chooses one (integers of 32 bits).
find_library(KASANE_BLAS_LIBRARY NAMES openblas flexiblas mkl_rt cblas
  DOC "BLAS with the functions of cblas.h")
mark_as_advanced(KASANE_BLAS_LIBRARY)
if(KASANE_BLAS_LIBRARY AND NOT TARGET kasane::blas)
  add_library(kasane::blas INTERFACE IMPORTED GLOBAL)
  set_target_properties(kasane::blas PROPERTIES
    INTERFACE_LINK_LIBRARIES "kasane::kasane;${KASANE_BLAS_LIBRARY}")
endif()
