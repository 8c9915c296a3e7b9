# SPDX-License-Identifier: Apache-2.0
"""Arrays distributed over the processes of a job, larger than memory if need be.

    import kasane
    a = kasane.zeros((2000, 2000), tiles=(512, 512))     # by all ranks
    a[10:20, :] = kasane.rank()                          # from anywhere
    b = 2 * a + 1                                        # where the elements lie
    print((a @ b).sum())

Start it by ``mpirun -n 4 python3 program.py``, or alone. docs/guide/python.md is a guide.

Functions and their names are those of NumPy and of the Array API standard: _creation, _elementwise,
_reductions, _manipulation, _indexing, _sorting and _linalg have them.
"""
from . import _elementwise, _numpy, fft, linalg, random
from ._array import Array
from ._blocks import evaluate, lazy
from ._creation import (
    arange, array, asarray, empty, empty_like, eye, from_dlpack, from_numpy, fromfunction, full, full_like,
    identity, linspace, meshgrid, ones, ones_like, tril, triu, zeros, zeros_like,
)
from ._elementwise import *  # noqa: F403
from ._errors import ArgumentError, Error
from ._files import load, open_hdf5, open_memmap, open_zarr, save
from ._indexing import argwhere, flatnonzero, nonzero, searchsorted, take, take_along_axis
from ._info import (
    __array_api_version__, __array_namespace_info__, __version__, bool, can_cast, complex64, complex128, e,
    finfo, float16, float32, float64, iinfo, inf, int8, int16, int32, int64, isdtype, nan, newaxis, pi,
    result_type, show_config, uint8, uint16, uint32, uint64,
)
from ._job import attach, attached, barrier, detach, rank, ranks
from ._linalg import diagonal, matmul, outer, tensordot, trace, vecdot
from ._manipulation import (
    broadcast_arrays, broadcast_shapes, broadcast_to, concat, concatenate, diff, expand_dims, flip,
    matrix_transpose, moveaxis, permute_dims, ravel, repeat, reshape, roll, section, squeeze, stack,
    swapaxes, tile, unstack,
)
from ._reductions import (all, allclose, any, argmax, argmin, array_equal, count_nonzero, cumprod, cumsum,
                          cumulative_prod, cumulative_sum, dot, max, mean, min, prod, std, sum, var)
from ._remote import start
from ._sorting import argsort, isin, sort, unique, unique_all, unique_counts, unique_inverse, unique_values

__all__ = sorted({name for name in globals() if not name.startswith("_")} | set(_elementwise.__all__))
del _numpy
