# SPDX-License-Identifier: Apache-2.0
"""Arrays in files against NumPy, h5py and zarr, by every rank: `files.py FOLDER [hdf5] [zarr]`."""
import os
import resource
import shutil
import sys
import time

import numpy as np

import kasane

FOLDER = sys.argv[1]


def path_of(name):
    return os.path.join(FOLDER, f"files_{os.environ.get('KASANE_DRAM', '')}_{kasane.ranks()}_{name}")


def same(is_, right, what):
    """The elements, which no rank changes before all have looked."""
    is_ = is_.gather() if isinstance(is_, kasane.Array) else is_
    assert is_.dtype == right.dtype and np.array_equal(is_, right), f"{what}:\n{is_}\nnot\n{right}"
    kasane.barrier()


def refused(kind, part, f):
    try:
        f()
    except kind as e:
        assert part in str(e), f"{part!r} is not in {type(e).__name__}: {e}"
        kasane.barrier()
        return
    raise AssertionError(f"no {kind.__name__} with {part!r}")


def drawn(shape, dtype):
    return np.random.default_rng(3).integers(0, 100, shape).astype(dtype)


def used(m, x, what):
    """An array in a file, m, as an operand; x: the same elements."""
    same(m[3:5], x[3:5], f"{what}: a patch")
    assert m[2, 3] == x[2, 3] and len(m) == len(x) and m.ndim == 2 and m.nbytes == x.nbytes
    same(kasane.array(m, tiles=(7, 5)), x, f"{what}: an array")
    for got, right in ((m.sum(), x.sum()), (m.max(), x.max()), (m.argmax(), x.argmax())):
        assert got == right, what
    same(m + 1, x + 1, f"{what}: an operator")
    same(m.T, x.T, f"{what}: a transpose")
    same(np.maximum(m, m[0]), np.maximum(x, x[0]), f"{what}: a ufunc")
    same(m.sum(axis=0), x.sum(axis=0), f"{what}: sums of columns")
    same(kasane.sort(m, axis=0), np.sort(x, axis=0), f"{what}: a sort")
    same(m[m > 50] if isinstance(m, kasane.Array) else kasane.array(m)[m > 50], x[x > 50], f"{what}: a mask")
    expression = (kasane.lazy(m) - 3) ** 2
    assert expression.deferred and not expression.leaves, what  # no array was made
    assert np.isclose(expression.sum(), ((x - 3) ** 2).sum(), rtol=1e-6), what  # in the file's order


def changed(m, x, read, what):
    """Stores by all ranks; read(): what the package that made the format finds."""
    a = kasane.array(x, tiles=(9, 4))
    m[...] = a
    same(read(), x, f"{what}: stored")
    m[2:9, 3] = kasane.full(7, 5, x.dtype)
    x[2:9, 3] = 5
    m[11] = a[1:2] if not isinstance(a, kasane.Array) else kasane.section(a, np.s_[1])
    x[11] = a[1]
    same(read(), x, f"{what}: stored in parts")
    m[...] = kasane.lazy(m) * 2 + a
    x = x * 2 + a.gather()
    same(read(), x, f"{what}: of itself")
    m[...] = kasane.flip(kasane.lazy(m))
    x = np.flip(x)
    same(read(), x, f"{what}: turned")
    m[1:3] = kasane.lazy(a).sum(axis=0)
    x[1:3] = a.gather().sum(axis=0)
    same(read(), x, f"{what}: broadcast")
    refused(IndexError, "step 1", lambda: m.__setitem__(np.s_[::2], a))
    refused(TypeError, "complex", lambda: m.__setitem__(..., a * 1j))
    refused(ValueError, "", lambda: m.__setitem__(np.s_[:3], a))
    return x


def memmaps():
    for fortran in (False, True):
        for dtype in ("int64", "float32", "uint8"):
            path, x = path_of("map.npy"), drawn((23, 19), dtype)
            m = kasane.open_memmap(path, "w+", dtype, x.shape, fortran)
            same(m[...], np.zeros_like(x), "a new file")
            x = changed(m, x, lambda: np.load(path), f"npy {dtype}")
            assert np.load(path, mmap_mode="r").flags.f_contiguous == fortran
            if kasane.rank() == kasane.ranks() - 1:
                m[4, 5:7] = [1, 2]
                m.flush()
            x[4, 5:7] = 1, 2
            kasane.barrier()
            used(kasane.open_memmap(path, "r"), x, "npy")
            same(np.load(path), x, "by one rank")
            kasane.save(path, kasane.lazy(kasane.open_memmap(path)) + 1)
            same(np.load(path), x + 1, "a saved expression")
            np.save(path, kasane.array(x))  # NumPy calls ours
            same(kasane.load(path), x, "numpy.save")
    assert "int64 (23, 19)" in repr(kasane.open_memmap(path_of("map.npy"), "w+", int, (23, 19)))
    refused(ValueError, "needs shape=", lambda: kasane.open_memmap(path, "w+"))
    refused(ValueError, "mode 'c'", lambda: kasane.open_memmap(path, "c"))
    refused(FileNotFoundError, "name a file that is there", lambda: kasane.open_memmap(path + "x"))
    refused(FileNotFoundError, "create the directory", lambda: kasane.open_memmap("/no/x", "w+", int, 3))
    refused(ValueError, "", lambda: kasane.open_memmap(path, "r").__setitem__(0, 1))
    if kasane.ranks() > 1:
        refused(ValueError, "rank 1", lambda: kasane.open_memmap(path + str(min(kasane.rank(), 1))))
    kasane.barrier()
    if kasane.rank() == 0:
        os.remove(path)


def large():
    """A file of 32 MB, of which no rank has more in memory of its own than a part."""
    path = path_of("large.npy")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    m = kasane.open_memmap(path, "w+", float, (4_000_000,))
    m[...] = kasane.lazy(kasane.arange(4_000_000, dtype=float, tiles=1 << 17)) * 0.5
    assert m.sum() == 0.25 * 4_000_000 * 3_999_999
    a = kasane.load(path, tiles=1 << 17)
    a += 1
    a.save(path)
    assert kasane.open_memmap(path)[-1] == 0.5 * 3_999_999 + 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # maps of the file count
    kasane.barrier()
    if kasane.rank() == 0:
        os.remove(path)


def hdf5():
    import h5py
    path = path_of("a.h5")
    for chunks in (None, (5, 6)):
        x = drawn((23, 19), "int64")
        m = kasane.open_hdf5(path, "group/x", "w", "int64", x.shape, chunks)

        def read(m=m):
            m._source.close_all(path)
            kasane.barrier()
            with h5py.File(path, "r") as file:
                return file["group/x"][...]

        x = changed(m, x, read, f"hdf5 in chunks of {chunks}")
        used(kasane.open_hdf5(path, "group/x"), x, "hdf5")
        kasane.barrier()
    m = kasane.open_hdf5(path, "group/x", "r+")
    refused(ValueError, "no dataset 'y'", lambda: kasane.open_hdf5(path, "y"))
    refused(FileNotFoundError, "name a file", lambda: kasane.open_hdf5(path + "x", "y"))
    refused(TypeError, "in turn", lambda: m.__setitem__(0, 1))
    read_only = kasane.open_hdf5(path, "group/x")
    refused(Exception, "", lambda: read_only.__setitem__(..., kasane.zeros(x.shape, int)))
    kasane.barrier()
    if kasane.rank() == 0:
        os.remove(path)


def zarr():
    import zarr as package
    path = path_of("a.zarr")
    for options in ({}, {"shards": (10, 12)}):
        x = drawn((23, 19), "int64")
        m = kasane.open_zarr(path, "w", "int64", x.shape, (5, 6), **options)
        x = changed(m, x, lambda: package.open_array(path, mode="r")[...], f"zarr {options}")
        assert package.open_array(path, mode="r").metadata.zarr_format == 3
        used(kasane.open_zarr(path), x, "zarr")
        kasane.barrier()
    refused(FileNotFoundError, "", lambda: kasane.open_zarr(path + "x"))
    kasane.barrier()
    if kasane.rank() == 0:
        shutil.rmtree(path)


def missing():
    """A package that is not installed is named, with how to get it."""
    for name, call in (("h5py", lambda: kasane.open_hdf5("x.h5", "y")),
                       ("zarr", lambda: kasane.open_zarr("x"))):
        had = sys.modules.pop(name, None)
        sys.modules[name] = None
        refused(ImportError, f"pip install {name}", call)
        if had is None:
            del sys.modules[name]
        else:
            sys.modules[name] = had


if __name__ == "__main__":
    for case in [memmaps, large, missing, *(globals()[n] for n in sys.argv[2:])]:
        start = time.time()
        case()
        if kasane.rank() == 0:
            print(f"{case.__name__}: {time.time() - start:.2f} s", flush=True)
    if kasane.rank() == 0:
        print(f"files: passed on {kasane.ranks()} ranks", flush=True)
