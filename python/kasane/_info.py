# SPDX-License-Identifier: Apache-2.0
"""Types of elements, constants, and what this package is."""
import builtins
import importlib.util
import os
import shutil

import numpy as np

from . import _core

__array_api_version__ = "2024.12"
__version__ = _core.version()

bool, float16, float32, float64 = np.bool_, np.float16, np.float32, np.float64
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
complex64, complex128 = np.complex64, np.complex128
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi

_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
          "complex floating": "c", "numeric": "iufc"}


def _type(x):
    return x if isinstance(x, type) or not hasattr(x, "dtype") else x.dtype


def can_cast(from_, to, casting="safe"):
    """Whether elements of one type become those of another without loss, as numpy.can_cast."""
    return np.can_cast(_type(from_), to, casting)


def result_type(*arrays_and_dtypes):
    """The type of what operators make of these."""
    return np.result_type(*(_type(x) for x in arrays_and_dtypes))


def isdtype(dtype, kind):
    """Whether a type of elements is of a kind, or of one of a tuple of kinds."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"kasane.isdtype: {kind!r}; give one of {', '.join(_KINDS)}")
        return np.dtype(dtype).kind in _KINDS[kind]
    return np.dtype(dtype) == np.dtype(kind)


class finfo:  # noqa: N801
    """Limits of a type of floating point, as Python's numbers."""

    def __init__(self, type_):
        limits = np.finfo(_type(type_))
        self.bits, self.dtype = limits.bits, np.dtype(limits.dtype)
        self.eps, self.max, self.min = float(limits.eps), float(limits.max), float(limits.min)
        self.smallest_normal = float(limits.smallest_normal)


def iinfo(type_):
    """Limits of a type of integers."""
    return np.iinfo(_type(type_))


def show_config():
    """Prints the versions, and where the package's library is."""
    library = os.path.realpath(_core.library_file())
    print(f"kasane {__version__}\nlibrary: {library}\npackage: {os.path.dirname(__file__)}\n"
          f"numpy: {np.__version__}\nblas: {'yes' if _core.has_blas() else 'no'}")
    for mpi, package in (("openmpi", "openmpi-bin"), ("mpich", "mpich")):
        module = os.path.join(os.path.dirname(library), "kasane", f"kasane-mpi-{mpi}.so")
        found = shutil.which(f"mpirun.{mpi}") or shutil.which("mpirun")
        print(f"{mpi}: {module if os.path.exists(module) else 'no module of this build'}"
              f"{'' if found else f', but no mpirun on the PATH (Debian: {package})'}")
    for name in ("h5py", "zarr"):
        print(f"{name}: {'yes' if importlib.util.find_spec(name) else f'no (pip install {name})'}")


class _Info:
    """What the Array API standard asks about a package."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self):
        return "cpu"

    def devices(self):
        return ["cpu"]

    def default_dtypes(self, *, device=None):
        return {
            "real floating": float64,
            "complex floating": complex128,
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(self, *, device=None, kind=None):
        names = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
                 "float64", "complex64", "complex128")
        return {name: np.dtype(name) for name in names if kind is None or isdtype(np.dtype(name), kind)}


def __array_namespace_info__():
    """What the package can do."""
    return _Info()
