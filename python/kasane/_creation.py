# SPDX-License-Identifier: Apache-2.0
"""What makes arrays: of nothing but numbers, of NumPy's arrays, of files. All of it is collective."""
import math
import operator

import numpy as np

from ._array import Array
from ._blocks import Lazy, Operand, WRITE_ONLY, evaluate, finished, pointwise, slices, together


def empty(shape, dtype=np.float64, device=None, **how):
    """A new array whose elements are not initialised. Collective.

    shape: one number, or one for each of up to 8 dimensions. dtype: bool, integers, float16, float32,
    float64, complex64 or complex128; in this machine's byte order, whatever that of dtype is.

    How it is distributed: without more a block a rank, in a grid of about cubes.

    - ``blocks=(4, 2)``: a grid of blocks; block k lies at rank k modulo ranks()
    - ``tiles=(512, 512)``: tiles of that shape, dealt to the ranks in turn: for @, and for arrays larger than
      DRAM
    - ``ghosts=1``, ``ghosts=(1, 2)``: cells around each block or tile for copies of the neighbours' elements
      (update_ghosts); ``periodic=True``: beyond the edges of the array they are the opposite edge
    """
    return Array(shape, np.float64 if dtype is None else dtype, **how)


def full(shape, fill_value, dtype=None, device=None, **how):
    """A new array of equal elements. Collective. How it is distributed: see empty()."""
    a = empty(shape, np.asarray(fill_value).dtype if dtype is None else dtype, **how)
    a.fill(fill_value)
    return a


def zeros(shape, dtype=np.float64, device=None, **how):
    """A new array of zeros. Collective. How it is distributed: see empty()."""
    return full(shape, 0, np.float64 if dtype is None else dtype, **how)


def ones(shape, dtype=np.float64, device=None, **how):
    """A new array of ones. Collective. How it is distributed: see empty()."""
    return full(shape, 1, np.float64 if dtype is None else dtype, **how)


def _like(x, how):
    return how or {**x.how, "ghosts": [], "periodic": False} if isinstance(x, Array) else how


def empty_like(x, dtype=None, device=None, **how):
    """empty() of x's shape, type and distribution, where not given. Collective."""
    return Array(x.shape, x.dtype if dtype is None else dtype, **_like(x, how))


def full_like(x, fill_value, dtype=None, device=None, **how):
    """full() of x's shape, type and distribution, where not given. Collective."""
    a = empty_like(x, dtype, **how)
    a.fill(fill_value)
    return a


def zeros_like(x, dtype=None, device=None, **how):
    """zeros() of x's shape, type and distribution, where not given. Collective."""
    return full_like(x, 0, dtype, **how)


def ones_like(x, dtype=None, device=None, **how):
    """ones() of x's shape, type and distribution, where not given. Collective."""
    return full_like(x, 1, dtype, **how)


def array(values, dtype=None, device=None, **how):
    """A new array with the elements of a NumPy array that all ranks give, or of a distributed array, or of a
    file. Collective. See empty()."""
    if isinstance(values, Operand):
        source = pointwise(lambda a: np.asarray(a).astype(dtype or values.dtype, copy=False), (values,),
                           name="array")
        return evaluate(source, Array(source.shape, source.dtype, **how) if how else None)
    values = np.asarray(values, dtype)
    a = Array(values.shape, values.dtype, **how)

    def work():
        for low, high, view in a.each_piece(WRITE_ONLY):
            view[...] = values[slices(low, high)]

    together("kasane.array", [a], b"", work)
    return a


def asarray(obj, dtype=None, device=None, copy=None, **how):
    """obj, where it is a distributed array of that type and no copy is asked for; else a new one.
    Collective."""
    if isinstance(obj, Operand):
        if copy or isinstance(obj, Lazy) or (dtype is not None and np.dtype(dtype) != obj.dtype):
            if copy is False:
                raise ValueError("kasane.asarray: a copy is needed")
            return evaluate(pointwise(lambda a: np.asarray(a).astype(dtype or obj.dtype), (obj,),
                                      name=f"asarray {dtype}"))
        return obj
    if copy is False:
        raise ValueError(
            "kasane.asarray: a copy is needed, since distributed arrays have memory of their own"
        )
    if isinstance(obj, (list, tuple)):
        obj = _plain(obj)
    return array(obj, dtype, **how)


from_numpy = array


def _plain(values):
    return [
        _plain(v) if isinstance(v, (list, tuple)) else v.item() if isinstance(v, Array) else v for v in values
    ]


def from_dlpack(x, device=None, copy=None):
    """A new array of what another package has, which all ranks give. Collective."""
    return array(np.from_dlpack(x))


# ---- of indices -----------------------------------------------------------------------------------------


def _computed(shape, dtype, block, key, how):
    a = Array(shape, dtype, **how)
    return evaluate(Lazy(a.shape, a.dtype, [], block, key), a)


def fromfunction(function, shape, dtype=float, device=None, **how):
    """function(i, j, …) of the indices of each element, which are NumPy arrays. Collective. See empty()."""
    def block(low, high):
        index = np.meshgrid(*(np.arange(b, e) for b, e in zip(low, high)), indexing="ij", sparse=True)
        return function(*index)

    return _computed(shape, dtype, block, ("fromfunction",), how)


def arange(start, stop=None, step=1, dtype=None, device=None, **how):
    """start, start + step …, below stop. Collective. See empty()."""
    start, stop = (0, start) if stop is None else (start, stop)
    if dtype is None:
        dtype = np.result_type(*(np.asarray(x).dtype for x in (start, stop, step)))
    dtype = np.dtype(dtype)
    n = max(0, math.ceil((stop - start) / step) if not all(isinstance(x, (int, np.integer))
                                                           for x in (start, stop, step))
            else -(-(int(stop) - int(start)) // int(step)))
    whole = dtype.kind in "iu"

    def block(low, high):
        i = np.arange(low[0], high[0])
        if whole and isinstance(start, (int, np.integer)) and isinstance(step, (int, np.integer)):
            first = int(start) + low[0] * int(step)  # of Python's integers: 64 bits may not hold it
            return np.asarray(first).astype(dtype) + (np.arange(high[0] - low[0]) * int(step)).astype(dtype)
        return (start + i * step).astype(dtype)

    return _computed((n,), dtype, block, ("arange", start, stop, step), how)


def linspace(start, stop, num=50, endpoint=True, dtype=None, device=None, **how):
    """num numbers from start to stop, which is the last where endpoint is true. Collective. See empty()."""
    kind = np.result_type(np.asarray(start).dtype, np.asarray(stop).dtype, np.float64)
    parts = num - 1 if endpoint else num
    step = (stop - start) / parts if parts > 0 else 0

    def block(low, high):
        values = np.arange(low[0], high[0]).astype(kind) * step + start
        if endpoint and num > 1 and high[0] == num:
            values[-1] = stop
        return values if dtype is None or np.dtype(dtype).kind not in "iu" else np.floor(values)

    return _computed((num,), kind if dtype is None else dtype, block, ("linspace", start, stop, num), how)


def eye(n_rows, n_cols=None, k=0, dtype=np.float64, device=None, **how):
    """Ones on diagonal k, zeros elsewhere. Collective. See empty()."""
    n_cols = n_rows if n_cols is None else n_cols

    def block(low, high):
        return np.arange(low[0], high[0])[:, None] + k == np.arange(low[1], high[1])

    return _computed((n_rows, n_cols), np.float64 if dtype is None else dtype, block, ("eye", k), how)


def identity(n, dtype=np.float64, device=None, **how):
    """The identity matrix. Collective. See empty()."""
    return eye(n, dtype=dtype, **how)


def _triangle(x, name, keeps, k):
    def block(low, high):
        below = np.arange(low[-2], high[-2])[:, None] + k
        return np.where(keeps(np.arange(low[-1], high[-1]), below), x.block(low, high), x.dtype.type(0))

    return finished(Lazy(x.shape, x.dtype, [x], block, (name, k)), x)


def tril(x, k=0):
    """Elements above diagonal k become zero. Collective."""
    return _triangle(x, "tril", np.less_equal, operator.index(k))


def triu(x, k=0):
    """Elements below diagonal k become zero. Collective."""
    return _triangle(x, "triu", np.greater_equal, operator.index(k))


def meshgrid(*arrays, indexing="xy"):
    """For each vector an array of the grid's shape that varies along its dimension alone. Collective."""
    from ._manipulation import broadcast_to, reshape
    if indexing not in ("xy", "ij"):
        raise ValueError(f"kasane.meshgrid: indexing {indexing!r}; give 'xy' or 'ij'")
    n, swapped = len(arrays), indexing == "xy" and len(arrays) > 1
    at = [1 - d if swapped and d < 2 else d for d in range(n)]
    shape = [0] * n
    for a, d in zip(arrays, at):
        shape[d] = a.size
    return [
        broadcast_to(reshape(a, [-1 if i == d else 1 for i in range(n)]), shape) for a, d in zip(arrays, at)
    ]
