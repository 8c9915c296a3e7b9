# SPDX-License-Identifier: Apache-2.0
"""The Python package against NumPy, by every rank: `arrays.py CASE… [--mpi4py] [--folder FOLDER]`."""
import os
import re
import sys
import threading
import time

if "--mpi4py" in sys.argv:
    from mpi4py import MPI

import numpy as np

import kasane

FOLDER = sys.argv[sys.argv.index("--folder") + 1] if "--folder" in sys.argv else "."
TYPES = ["int32", "int64", "float32", "float64", "complex64", "complex128"]


def drawn(random, shape, dtype):
    x = random.integers(-8, 9, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * random.integers(-3, 4, shape)
    return x.astype(dtype)


def distributions(shape):
    yield {}
    yield {"tiles": tuple(n // 3 + 1 for n in shape)}
    yield {"blocks": (2,) + (1,) * (len(shape) - 1), "ghosts": 1}


def same(a, right, what):
    """a's elements, which no rank changes before all have looked."""
    is_ = a.gather() if isinstance(a, kasane.Array) else a
    assert is_.dtype == right.dtype and np.array_equal(is_, right), f"{what}:\n{is_}\nnot\n{right}"
    kasane.barrier()


def refused(kind, part, f):
    try:
        f()
    except kind as e:
        assert part in str(e), f"{part!r} is not in {type(e).__name__}: {e}"
        return e
    raise AssertionError(f"no {kind.__name__} with {part!r}")


# ---- cases ----------------------------------------------------------------------------------------------


def patches():
    random = np.random.default_rng(1)
    for dtype in TYPES:
        for shape in [(1000,), (37, 41), (7, 9, 11)]:
            for how in distributions(shape):
                right = drawn(random, shape, dtype)
                a = kasane.array(right, **how)
                same(a, right, "array")
                same(a[3:7], right[3:7], "rows")
                same(a[..., -3:], right[..., -3:], "the last ones")
                same(a[-1], right[-1], "an integer takes a dimension away")
                same(a[2:5, ...], right[2:5], "dots")
                same(a[::3], right[::3], "steps")
                same(a[::-2], right[::-2], "negative steps")
                index = (2,) * len(shape)
                assert a[index] == right[index] and a[index].dtype == right.dtype and np.ndim(a[index]) == 0
                where = tuple(random.integers(0, n, 20) for n in shape)
                same(a[where], right[where], "elements anywhere")
                assert a[5:3].shape == right[5:3].shape
                kasane.barrier()
                value, row = drawn(random, right[1:6].shape, dtype), drawn(random, right[0].shape, dtype)
                if kasane.rank() == kasane.ranks() - 1:
                    a[1:6] = value
                    a[0] = 3
                    a[-2] = row
                    a[-5::2] = 5
                right[1:6], right[0], right[-2] = value, 3, row
                right[-5::2] = 5
                kasane.barrier()
                same(a, right, "puts")
                a.accumulate(np.s_[2:7], np.ones_like(right[2:7]), alpha=2)
                kasane.barrier()
                right[2:7] += 2 * kasane.ranks()
                same(a, right, "accumulate by all ranks")
                out = np.empty_like(right[1:5])
                assert a.get(np.s_[1:5], out=out) is out
                same(out, right[1:5], "get into out")
                wide = np.zeros((*right.shape[:-1], right.shape[-1] + 5), dtype)
                inside = wide[..., 2:-3]
                a.get(..., out=inside)
                same(inside, right, "get into a part of an array")
                turned = np.empty(right.shape[::-1], dtype).T
                same(a.get(..., out=turned), right, "get into an array in Fortran's order")
                if kasane.rank() == 0:
                    a[...] = 0
                    a[...] = inside
                kasane.barrier()
                same(a, right, "put from a part of an array")


def numbers():
    """A number that an element cannot hold is refused, and others are stored as they are."""
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
        a, range_ = kasane.zeros(4, dtype), np.iinfo(dtype)
        for number in (range_.max + 1, range_.min - 1, 2**70, -2**70):
            refused(ValueError, str(number), lambda: a.put(0, number))
            refused(ValueError, str(number), lambda: a.fill(number))
        assert a[0] == 0
        kasane.barrier()
        a[1], a[2] = range_.max, range_.min
        kasane.barrier()
        assert a[1] == range_.max and a[2] == range_.min
    refused(ValueError, "1000", lambda: kasane.zeros(4, "int8").put(0, np.int64(1000)))
    refused(ValueError, str(2**31), lambda: kasane.zeros(4, "int32").fetch_add(0, 2**31))
    same(kasane.full(3, 2**70, float), np.full(3, 2.0**70), "an integer in floating point")


def casts():
    """What an element does not hold is refused, or rounded as NumPy rounds: nothing else is stored."""
    n = kasane.ranks()
    for dtype, alpha in (("int64", 2**53 + 1), ("int64", 2**62 // n + 1), ("int64", -2**60 // n - 1),
                         ("int32", 2.0), ("int32", np.int8(-3)), ("int32", True), ("float32", 0.5),
                         ("float64", 2**60), ("float64", np.int64(3)), ("complex64", 1 + 2j),
                         ("complex128", 2)):
        a = kasane.zeros((3, 4), dtype)
        a.accumulate(np.s_[1:, 1:3], np.full((2, 2), 1, dtype), alpha=alpha)
        kasane.barrier()
        right = np.zeros((3, 4), dtype)
        right[1:, 1:3] = np.asarray(alpha).astype(dtype) * n
        same(a, right, f"alpha {alpha} of {dtype}")
    for kind, dtype, alpha in ((TypeError, "int64", 0.5), (TypeError, "int32", 1.9),
                               (TypeError, "float64", 1j), (TypeError, "float32", 1 + 2j),
                               (ValueError, "int32", 2**40), (ValueError, "int64", 2**63),
                               (TypeError, "int64", float("nan")),
                               (ValueError, "int32", 1e300), (TypeError, "float64", np.ones(2)),
                               (TypeError, "float64", "2"), (TypeError, "int64", None)):
        a = kasane.zeros(4, dtype)
        refused(kind, "", lambda: a.accumulate(..., np.ones(4, dtype), alpha=alpha))
        assert a.sum() == 0
    a = kasane.zeros(4, "int32")
    for number in (np.array([1, 2], "int32"), np.array([1], "int32"), 0.5, 1j, "1", None):
        refused(TypeError, "n is", lambda: a.fetch_add(0, number))
    for number in (2.5, 2.0, float("nan"), np.ones(4), 1j, "5", None):
        refused(TypeError, "", lambda: a.put(1, number))
    for values in (np.array([2**31]), np.array([0, -2**31 - 1]), np.array([2**63], "uint64"),
                   np.full(2, 2**40)):
        refused(ValueError, "in an array of type int32", lambda: a.put(np.s_[:values.size], values))
        refused(ValueError, "", lambda: a.accumulate(np.s_[:values.size], values))
    refused(ValueError, "300 in an array", lambda: kasane.zeros(3, "uint8").put(1, np.array(300)))
    refused(ValueError, "-1 in an array", lambda: kasane.zeros(3, "uint64").put([0], np.array([-1])))
    kasane.barrier()
    assert a.sum() == 0
    kasane.barrier()
    a[1:3] = np.array([2**31 - 1, -2**31])  # of a larger type
    kasane.barrier()
    same(a, np.array([0, 2**31 - 1, -2**31, 0], "int32"), "a patch of a larger type")
    large = kasane.full(9, 2**40)
    narrow = kasane.zeros(9, "int32")
    refused((ValueError, kasane.Error), "", lambda: kasane.copy(large, narrow))
    for dtype in ("float16", ">f8", ">i4"):
        b = kasane.full(5, 3, dtype)
        assert b.sum() == 15 and (b + b)[4] == 6 and b.dtype == np.dtype(dtype).newbyteorder("=")
    for dtype in ("longdouble", "clongdouble", "datetime64[s]", "S3", "U3", "V4", object):
        refused(TypeError, "elements of type", lambda: kasane.zeros(5, dtype))


def counters():
    for dtype in TYPES[:4]:
        a = kasane.zeros(7, dtype)
        got = [a.fetch_add(3, 2) for _ in range(50)]
        assert got == sorted(got) and got[0].dtype == a.dtype
        kasane.barrier()
        assert a[3] == 100 * kasane.ranks(), a[3]
        assert a.sum() == 100 * kasane.ranks()
    refused(TypeError, "fetch_add", lambda: kasane.zeros(3, "complex64").fetch_add(0))


def elementwise():
    random = np.random.default_rng(2)
    for dtype in TYPES:
        for how in distributions((33, 29)):
            x, y = drawn(random, (33, 29), dtype), drawn(random, (33, 29), dtype)
            a, b = kasane.array(x, **how), kasane.array(y, tiles=(10, 7))
            row = drawn(random, 29, dtype)
            same(a + b, x + y, "+")
            same(2 * a - b * a, 2 * x - y * x, "operators")
            same(a / 3, x / 3, "a division")
            same(row + a, row + x, "a row that all ranks give")
            same(np.square(a), np.square(x), "a ufunc")
            same(a == b, x == y, "a comparison")
            same(np.conjugate(a) if "complex" in dtype else np.exp(a),
                 np.conjugate(x) if "complex" in dtype else np.exp(x), "a ufunc")
            c = kasane.empty((33, 29), (x + y).dtype, tiles=(5, 29))
            assert np.add(a, b, out=c) is c
            same(c, x + y, "out")
            a += b
            x += y
            same(a, x, "in place")
            assert a.sum() == x.sum() and a.sum().dtype == x.sum().dtype
            assert np.sum(a) == x.sum() and np.add.reduce(a, axis=None) == x.sum()
            assert kasane.dot(a, b) == np.sum(x * y) and a.dot(b) == np.sum(x * y)
            if "complex" not in dtype:
                assert a.min() == x.min() and a.max() == x.max() and np.max(a) == x.max()
                for got, right in zip(np.divmod(a, 3), np.divmod(x, 3)):
                    same(got, right, "two results")
            same(a.T, x.T, "transpose")
            d = a.copy()
            d.fill(7)
            same(a, x, "the copied one")
            same(d, np.full_like(x, 7), "fill")
            kasane.copy(b, d)
            same(d, y, "copy")
            kasane.copy(d, d)
            same(d, y, "a copy of an array into itself")
    same(kasane.full((3, 4), 2.5), np.full((3, 4), 2.5), "full")
    same(np.minimum(kasane.full(9, 4), 2), np.full(9, 2), "minimum")


def reductions():
    """The same values as NumPy's, on however many ranks; what would depend on their number is refused."""
    random = np.random.default_rng(5)
    x = random.integers(1, 4, (9, 7)).astype(float)
    x[4, 4] = np.nan
    n = random.integers(0, 64, (9, 7))
    a, b = kasane.array(x, tiles=(2, 3)), kasane.array(n)
    for ufunc in (np.fmin, np.fmax, np.logical_and, np.logical_or, np.logical_xor):
        assert ufunc.reduce(a, axis=None) == ufunc.reduce(x, axis=None), ufunc
    for ufunc in (np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.add):
        got = ufunc.reduce(b, axis=None, keepdims=False, where=True)
        assert got == ufunc.reduce(n, axis=None) and got.dtype == ufunc.reduce(n, axis=None).dtype, ufunc
    assert np.multiply.reduce(b, axis=None, dtype=float) == np.multiply.reduce(n, axis=None, dtype=float) == 0
    assert np.any(b) and np.prod(kasane.full(9, 2)) == 512
    for ufunc in (np.subtract, np.true_divide, np.power, np.arctan2, np.less):
        refused(TypeError, "depends on the order", lambda: ufunc.reduce(b, axis=None))
    refused(TypeError, "initial", lambda: np.add.reduce(b, axis=None, initial=5))
    refused(TypeError, "initial", lambda: np.prod(b, initial=5))
    same(np.add.reduce(b, axis=None, keepdims=True), np.add.reduce(n, axis=None, keepdims=True), "keepdims")
    refused(TypeError, "where", lambda: np.add.reduce(b, axis=None, where=n > 3))


def products():
    random = np.random.default_rng(3)
    for dtype in TYPES[2:]:
        x, y = drawn(random, (60, 50), dtype), drawn(random, (50, 70), dtype)
        a, b = kasane.array(x, tiles=(16, 16)), kasane.array(y, tiles=(16, 20))
        same(a @ b, x @ y, "@")
        c = kasane.full((60, 70), 1, dtype)
        kasane.matmul(a, b, out=c, alpha=2, beta=3)
        same(c, (2 * (x @ y) + 3).astype(dtype), "matmul")
        same(np.matmul(a, b), x @ y, "numpy.matmul")
        if "complex" not in dtype:
            for numbers in ({"alpha": 1j}, {"beta": 1j}, {"alpha": np.ones(1)}, {"beta": "1"}):
                refused(TypeError, "a is", lambda: kasane.matmul(a, b, out=c, **numbers))
    refused(ValueError, "(60, 50) and (60, 50)", lambda: a @ a)
    refused(TypeError, "matrices", lambda: a @ 3)


def local():
    n = kasane.ranks()
    a = kasane.full((8 * n, 5), -1, "int64", blocks=(n, 1))
    a.local[...] = kasane.rank()
    kasane.barrier()
    same(a, np.repeat(np.arange(n), 8)[:, None] * np.ones((1, 5), np.int64), "stores into local")
    if kasane.rank() == 0:
        a[...] = 9
    kasane.barrier()
    assert (a.local == 9).all()  # loads of what another rank has put, without a fence
    part = a.local
    a = None
    kasane.zeros((8 * n, 5), "int64", blocks=(n, 1))  # would take the memory
    assert (part == 9).all()
    b = kasane.zeros((31, 17), tiles=(4, 5))
    for where, view in b.parts():
        view[...] = np.arange(31 * 17).reshape(31, 17)[where]
    kasane.barrier()
    same(b, np.arange(31 * 17.0).reshape(31, 17), "stores into parts")
    g = kasane.full((6 * n, 10), 0.0, blocks=(n, 1), ghosts=1, periodic=True)
    g.local[...] = kasane.rank()
    g.update_ghosts()
    (_, view), = g.parts(ghosts=True)
    assert view.shape == (8, 12)
    assert (view[0] == (kasane.rank() - 1) % n).all() and (view[-1] == (kasane.rank() + 1) % n).all()


def files():
    path = os.path.join(FOLDER, f"python_{kasane.ranks()}.npy")
    random = np.random.default_rng(4)
    for dtype in TYPES + ["bool", "uint8"]:
        x = drawn(random, (23, 19), dtype)
        kasane.array(x, tiles=(6, 6)).save(path)
        same(np.load(path), x, "NumPy reads it")
        same(kasane.load(path, blocks=(1, 2)), x, "load")
    kasane.barrier()
    if kasane.rank() == 0:
        np.save(path, np.asfortranarray(x))
    kasane.barrier()
    same(kasane.load(path, tiles=(6, 6)), x, "load in Fortran's order")
    for values in (np.arange(12).reshape(3, 4).astype(">f8"), np.array(3.0), np.zeros((3, 0))):
        kasane.barrier()
        if kasane.rank() == 0:
            np.save(path, values)
        kasane.barrier()
        same(kasane.load(path), values.astype(values.dtype.newbyteorder("=")), "load")
        kasane.load(path).save(path)
        same(np.load(path), values.astype(values.dtype.newbyteorder("=")), "save")
    for values, text in ((np.zeros((1,) * 9), "9 dimensions"), (np.zeros(3, "i4,f8"), "of one type")):
        kasane.barrier()
        if kasane.rank() == 0:
            np.save(path, values)
        kasane.barrier()
        refused(ValueError, text, lambda: kasane.load(path))
    kasane.barrier()
    if kasane.rank() == 0:
        with open(path, "wb") as file:
            np.lib.format.write_array(file, x, (2, 0))
    kasane.barrier()
    same(kasane.load(path), x, "load of format 2.0")
    kasane.barrier()
    if kasane.rank() == 0:
        np.save(path, np.zeros(5000))
        os.truncate(path, 9000)
    kasane.barrier()
    e = refused(OSError, "it was cut off", lambda: kasane.load(path))
    assert e.errno == 5 and not isinstance(e, kasane.Error)
    kasane.barrier()
    if kasane.rank() == 0:
        os.remove(path)
    kasane.barrier()
    e = refused(FileNotFoundError, "python_", lambda: kasane.load(path))
    assert e.errno == 2 and "; name a file that is there" in str(e), e
    refused(FileNotFoundError, "create the directory", lambda: kasane.zeros(3).save("/nowhere/at/all.npy"))


def errors():
    a = kasane.zeros((10, 20))
    refused(TypeError, "a.gather()", lambda: np.asarray(kasane.empty(10_000_000)))
    refused(IndexError, "index 10 of dimension 0, which has 10", lambda: a[10])
    refused(IndexError, "3 indices", lambda: a[1, 2, 3])
    refused(IndexError, "no index", lambda: a["x"])
    for far in (2**70, -2**70, 2**63, -2**63):
        refused(IndexError, f"index {far} of dimension 0", lambda: a[far])
        refused(IndexError, f"index {far} of dimension 1", lambda: a.put((3, far), 1))
    refused(IndexError, "outside of its 10", lambda: a[np.array([2**64 - 1], "uint64"), [0]])
    refused(IndexError, "outside of its 20", lambda: a[[0], [-21]])
    for mask in (True, False, np.True_):
        refused(IndexError, "is no index", lambda: a[3, mask])
        refused(IndexError, "is no index", lambda: a.put((3, mask), 1))
    refused(ValueError, "broadcast", lambda: a.put(np.s_[0:2], np.zeros(3)))
    refused(TypeError, "complex128", lambda: a.put(..., 1j * np.ones((10, 20))))
    refused(ValueError, "axis 2", lambda: a.sum(axis=2))
    refused(TypeError, "no implementation found", lambda: np.median(a))
    refused(ValueError, "ambiguous", lambda: bool(a))
    refused(ValueError, "not broadcast", lambda: a + kasane.zeros((20, 10)))
    refused(TypeError, "Cannot cast", lambda: np.add(kasane.zeros(9, int), 0.5, out=kasane.zeros(9, int)))
    refused(ValueError, "9 dimensions", lambda: kasane.zeros((1,) * 9))
    refused(ValueError, "one number for each dimension", lambda: kasane.zeros((3, 3), tiles=(2, 2, 2)))
    refused(TypeError, "object", lambda: kasane.zeros(3, object))
    refused(MemoryError, "", lambda: kasane.empty((1 << 57,), "int8"))
    assert issubclass(kasane.ArgumentError, ValueError) and issubclass(kasane.ArgumentError, kasane.Error)
    last = kasane.rank() == kasane.ranks() - 1
    if kasane.ranks() > 1:
        refused(ValueError, "other arrays", lambda: a.fill(int(last)))
        refused(ValueError, "same ones in the same order", lambda: a.sum() if last else a.fill(1))
        row = np.ones(20, int if last else float)
        refused(ValueError, "other arrays", lambda: a * row)
        refused(ValueError, "other arrays", lambda: a.sum(dtype=int if last else float))
        b = kasane.empty(9, int if last else float)
        refused(ValueError, "other arrays", lambda: np.sqrt(a[0, :9], out=b, casting="unsafe"))
        refused(ValueError, "other arrays", b.min)
        refused(ValueError, "other arrays", lambda: np.add(a, 1, casting="unsafe",
                                                             dtype="l" if last else "d"))
        def fails(i, j):
            if last:
                raise ZeroDivisionError("here alone")
            return i + j

        refused(ZeroDivisionError if last else kasane.Error, "here alone",
                lambda: kasane.fromfunction(fails, (10, 20), blocks=(kasane.ranks(), 1)))
    a.fill(1)
    assert a.sum() == 200


def options():
    """attach() takes what the guide lists, and nothing else."""
    from kasane._job import _OPTIONS
    guide = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../docs/guide/options.md")
    listed = re.findall(r"^- .*?`KASANE_([A-Z_]+)`[,:]", open(guide, encoding="utf-8").read(), re.MULTILINE)
    assert sorted(_OPTIONS) == sorted(name.lower() for name in listed), set(_OPTIONS) ^ set(listed)


def ends():
    a = kasane.zeros(1000)
    view = a.local
    refused(kasane.Error, "views of parts are alive", kasane.detach)
    del view
    kasane.detach()
    assert not kasane.attached()
    refused(kasane.Error, "has detached", lambda: a[3])
    del a
    b = kasane.zeros(1000)  # joins again
    assert b.sum() == 0 and kasane.attached()
    del b
    kasane.detach()
    kasane.attach(space="4G")
    refused(kasane.Error, "joined a job already", kasane.attach)
    refused(MemoryError, "", lambda: kasane.empty(1 << 33, "int8"))
    kasane.detach()
    del os.environ["KASANE_SPACE"]
    refused(TypeError, "did you mean dram?", lambda: kasane.attach(drem="1G"))
    refused(ValueError, "lots", lambda: kasane.attach(dram="lots"))  # and later calls are without it
    kasane.attach()


def threads():
    """While one thread waits for the other ranks, the process's others run."""
    done = threading.Event()
    count = [0]

    def counting():
        while not done.is_set():
            count[0] += 1
            time.sleep(0.0005)

    other = threading.Thread(target=counting)
    other.start()
    if kasane.rank() == 0:
        time.sleep(0.3)
    before = count[0]
    kasane.barrier()
    if kasane.ranks() > 1 and kasane.rank() != 0:
        assert count[0] > before + 20, f"{count[0] - before} turns of another thread in a barrier of 0.3 s"
    done.set()
    other.join()
    a = kasane.zeros((64, 64), "int64")
    workers = [threading.Thread(target=lambda: [a.accumulate(..., 1 + np.zeros((64, 64), "int64"))
                                                for _ in range(10)]) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    kasane.barrier()
    assert a.min() == a.max() == 40 * kasane.ranks()


def large():
    """Three arrays of 13 MB a rank."""
    n = 1600 * kasane.ranks()
    a = kasane.empty((n, 1000), tiles=(128, 128))
    for where, part in a.parts():
        part[...] = np.arange(where[0].start, where[0].stop)[:, None]
    b = a * 2 + 1
    assert b.sum() == 1000 * (n * (n - 1) + n)
    same(b[n - 3:, 17], 2.0 * np.arange(n - 3, n) + 1, "beyond DRAM")
    c = b.T
    same(c[500, :9], 2.0 * np.arange(9) + 1, "a transpose beyond DRAM")


def nothing():
    """Patches and arrays without an element, and arrays without a dimension."""
    a = kasane.full((7, 9), 4, tiles=(3, 3))
    for index in (np.s_[3:3], np.s_[7:], np.s_[:, 9:], np.s_[5:2, 3], np.s_[2:2, 3:3]):
        x = np.zeros((7, 9), a.dtype)[index]
        assert a[index].shape == a.get(index, out=x).shape == x.shape and x.size == 0
        a[index] = 5
        a[index] = x
        a.accumulate(index, x)
    nowhere = np.zeros(0, int)
    for index in (np.s_[3:3, ::-1], (nowhere, nowhere)):
        assert a[index].size == 0
        a[index] = 5
    kasane.barrier()
    assert a.min() == a.max() == 4
    for shape in (0, (3, 0), (0, 3, 3)):
        empty = kasane.zeros(shape)
        same(empty, np.zeros(shape), "no element")
        same(empty + 1, np.zeros(shape), "a sum of nothing")
        assert empty.sum() == 0 and empty.parts() == []
    refused(ValueError, "no identity", empty.max)
    one = kasane.full((), 3)
    same(one, np.full((), 3), "no dimension")
    one[...] = 4
    kasane.barrier()
    assert one == 4 and int(one) == one.item() == one[()] == one.sum() == 4 and [1, 2, 3, 4, 5][one] == 5


def many():
    """More elements than 32 bits number, in memory that is mostly not touched."""
    for dtype, n, how in (("int32", 2**32 + 1000, {}), ("int64", 2**31 + 1000, {"tiles": 1 << 20})):
        a = kasane.empty(n, dtype, **how)
        assert len(a) == a.size == n and a.nbytes == n * a.dtype.itemsize
        for at in {2**31 - 50, n - 100, min(2**32, n) - 100}:
            if kasane.rank() == 0:
                a[at:at + 100] = np.arange(100)
            kasane.barrier()
            a.accumulate(np.s_[at:at + 100], np.ones(100, dtype), alpha=2)
            kasane.barrier()
            right = np.arange(100).astype(dtype) + 2 * kasane.ranks()
            same(a[at:at + 100], right, "a patch")
            same(a[at - n:at - n + 99], right[:99], "from the end on")
            same(a[[at + 7, at]], right[[7, 0]], "elements")
            same(a[at:at + 100:7], right[::7], "steps")
            a.fetch_add(at + 99, 1)
            kasane.barrier()
            assert a[at + 99] == right[99] + kasane.ranks()
            kasane.barrier()
        refused(IndexError, f"index {n} of dimension 0", lambda: a[n])
    b = kasane.full((2, 2**30 + 500), 1, "uint8")  # all of it is touched
    assert b.sum() == b.size > 2**31 and b[1, -1] == 1


def mpi4py_too():
    """A communicator, and both packages' arrays in one program."""
    assert MPI.COMM_WORLD.rank == kasane.rank() and MPI.COMM_WORLD.size == kasane.ranks()
    a = kasane.array(np.arange(50.0))
    assert MPI.COMM_WORLD.allreduce(a.local.sum()) == a.sum() == 1225
    sent = np.empty(1)
    rank, ranks = kasane.rank(), kasane.ranks()
    MPI.COMM_WORLD.Sendrecv(a.local[:1] if a.local.size else np.zeros(1), (rank + 1) % ranks,
                            recvbuf=sent, source=(rank - 1) % ranks)
    del a
    kasane.detach()
    half = MPI.COMM_WORLD.Split(kasane.rank_of_world % 2, 0)
    kasane.attach(half)
    assert kasane.ranks() == half.size and kasane.rank() == half.rank
    assert kasane.full(10, 2).sum() == 20
    kasane.detach()
    MPI.COMM_WORLD.Barrier()
    kasane.attach()


def fails():
    """One rank raises while the others wait: the job ends."""
    a = kasane.zeros(10)
    if kasane.rank() == kasane.ranks() - 1:
        raise RuntimeError("this rank alone")
    a.fill(1)


ALL = [patches, numbers, casts, counters, elementwise, reductions, products, local, files, nothing, errors,
       options, ends, threads]

if __name__ == "__main__":
    names = [n for n in sys.argv[1:] if n in globals()]
    if "--mpi4py" in sys.argv:
        kasane.rank_of_world = MPI.COMM_WORLD.rank
    for case in (ALL if "all" in sys.argv else []) + [globals()[n] for n in names]:
        start = time.time()
        case()
        if kasane.rank() == 0:
            print(f"{case.__name__}: {time.time() - start:.2f} s", flush=True)
    if kasane.rank() == 0:
        print(f"python: passed on {kasane.ranks()} ranks", flush=True)
