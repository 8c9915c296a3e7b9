# SPDX-License-Identifier: Apache-2.0
"""Sorting, and the functions of sets, which sort.

Lines that fit into a run are sorted each by one rank. A longer vector is cut into runs. Each rank sorts its
runs; the ranks find by bisection which elements of each run belong to each tile of the result, bit by bit of
their values and all tiles at once; and merge those of each tile. No rank has more than a run in memory of
its own.
"""
import collections

import numpy as np

from ._array import Array
from ._blocks import READ, Lazy, Operand, counted, distribution, evaluate, finished, pointwise, slices
from ._blocks import text, together
from ._creation import asarray
from ._indexing import nonzero, select
from ._manipulation import axis_of, concat, diff, flip, ravel, reshape
from ._reductions import cumulative_sum, lines

_RUN = 32 << 20  # bytes of what is sorted at once
_SAMPLE = 4096  # a sorted run's elements from one that is kept in memory to the next


def _operand(x):
    x = x if isinstance(x, Operand) else asarray(x)
    return evaluate(x) if isinstance(x, Lazy) else x


def sort(x, axis=-1, kind=None, *, descending=False, stable=True):
    """A new array, sorted along a dimension; axis None: all elements. NaN comes last. Collective."""
    def of_block(block, d):
        block = np.sort(block, axis=d, kind="stable" if stable else None)
        return np.flip(block, d) if descending else block

    return _sorted("sort", x, axis, of_block, x.dtype, lambda v: flip(_of_runs(v)[0]) if descending else
                   _of_runs(v)[0])


def argsort(x, axis=-1, kind=None, *, descending=False, stable=True):
    """The indices along a dimension that sort it; equal elements stay in order. Collective."""
    def of_block(block, d):
        if not descending:
            return np.argsort(block, axis=d, kind="stable")
        n = block.shape[d]
        return n - 1 - np.flip(np.argsort(np.flip(block, d), axis=d, kind="stable"), d)

    def of_vector(v):
        if not descending:
            return _of_runs(v, True)[1]
        return v.size - 1 - flip(_of_runs(flip(v), True)[1])

    return _sorted("argsort", x, axis, of_block, np.dtype(np.intp), of_vector)


def _sorted(call, x, axis, of_block, dtype, of_vector):
    x = _operand(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_of(axis, x.ndim)
    if x.shape[axis] * x.dtype.itemsize > _RUN:
        if x.ndim == 1:
            return of_vector(x)
        return _line_by_line(x, axis, of_vector, dtype)
    result = Array(x.shape, dtype, **distribution(x.shape, [x]))

    def work():
        for low, high in counted(lines(x, axis)):
            result.put(slices(low, high), of_block(x.block(low, high), axis))

    together(f"kasane: {call}", [x, result], text(axis), work)
    return result


def _line_by_line(x, axis, of_vector, dtype):
    from ._manipulation import section
    result = Array(x.shape, dtype, **distribution(x.shape, [x]))
    for at in np.ndindex(*(x.shape[:axis] + x.shape[axis + 1:])):
        index = (*at[:axis], slice(None), *at[axis:])
        result[index] = of_vector(section(x, index))
    return result


# ---- runs -----------------------------------------------------------------------------------------------


def _keys(values):
    """Unsigned integers in the order of numbers; NaN last."""
    kind, bits = values.dtype.kind, values.dtype.itemsize * 8
    raw = values.view(f"u{values.dtype.itemsize}") if kind != "b" else values.view("u1")
    top = raw.dtype.type(1 << (bits - 1))
    if kind == "i":
        return raw ^ top
    if kind == "f":
        return np.where(raw & top, ~raw, raw | top)
    return raw


def _values(keys, dtype):
    """The numbers of keys; those that none has, beyond the infinities, are NaN."""
    bits = dtype.itemsize * 8
    top = keys.dtype.type(1 << (bits - 1))
    if dtype.kind == "b":
        return keys > 0
    if dtype.kind == "i":
        return (keys ^ top).view(dtype)
    if dtype.kind == "f":
        values = np.where(keys & top, keys ^ top, ~keys).view(dtype)
        return np.where(np.isnan(values) & (keys & top == 0), -np.inf, values).astype(dtype)
    return keys.view(dtype)


def _of_runs(x, indices=False):
    """The sorted vector, and where its elements were, if that is asked for."""
    if x.dtype.kind == "c":
        raise TypeError("kasane: complex numbers are sorted up to a run of 32 MiB")
    n, run = x.size, _RUN // max(8, x.dtype.itemsize)
    runs = Array((n,), x.dtype, tiles=run)
    order = Array((n,), np.intp, tiles=run) if indices else None
    mine, samples = runs.tiles(), []

    def sort_runs():
        for low, high in counted(mine):
            values = x.block(low, high)
            if indices:
                at = np.argsort(values, kind="stable")
                order.put(slices(low, high), at + low[0])
                values = values[at]
            else:
                values = np.sort(values, kind="stable")
            runs.put(slices(low, high), values)
            samples.append(values[::_SAMPLE].copy())

    used = [x, runs] + [order] * indices
    together("kasane: sort runs", used, b"", sort_runs)
    cuts = _cuts(runs, mine, samples, n, run)
    result = Array((n,), x.dtype, tiles=run)
    order_of_result = Array((n,), np.intp, tiles=run) if indices else None

    def merge():
        for low, high in counted(mine):
            k = low[0] // run
            parts = [
                (r * run + int(b), r * run + int(e))
                for r, (b, e) in enumerate(zip(cuts[k], cuts[k + 1]))
                if b < e
            ]
            values = np.concatenate([runs.get(slice(b, e)) for b, e in parts])
            if indices:
                at = np.argsort(values, kind="stable")
                where = np.concatenate([order.get(slice(b, e)) for b, e in parts])
                order_of_result.put(slices(low, high), where[at])
                values = values[at]
            else:
                values.sort(kind="stable")
            result.put(slices(low, high), values)

    together("kasane: merge runs", [*used, result] + [order_of_result] * indices, b"", merge)
    return result, order_of_result


def _count(run, sample, values, side):
    """np.searchsorted of a run by its samples, so that of each value a part of the run is read that is
    small: all of it may lie on SSD."""
    at = np.searchsorted(sample, values, side)
    low, high = np.maximum((at - 1) * _SAMPLE + 1, 0), np.minimum(at * _SAMPLE, run.size)
    last = values != values  # NaN
    while (low < high).any():
        middle = (low + high) // 2
        here = run[np.minimum(middle, run.size - 1)]
        before = here <= values if side == "right" else here < values
        before |= last if side == "right" else last & (here == here)
        before &= low < high
        low, high = np.where(before, middle + 1, low), np.where(before, high, middle)
    return low


def _cuts(runs, mine, samples, n, run):
    """Row k: how many elements of each run come before tile k of the result. Equal ones: the earlier
    runs'. samples: of each of this rank's runs every _SAMPLE-th element."""
    tiles, bits = -(-n // run), runs.dtype.itemsize * 8 if runs.dtype.kind != "b" else 1
    unsigned = np.dtype(f"u{runs.dtype.itemsize}")
    before = np.minimum(np.arange(tiles + 1) * run, n)
    views = [runs._here(low, high, READ) for low, high in mine]

    def counts(values, side):
        """Of each cut: how many elements of this rank's runs, and of all, are below, or not above."""
        own = np.array([_count(v, s, values, side) for v, s in zip(views, samples)])
        own = own.reshape(len(views), tiles + 1)

        def work():
            return own.sum(0, dtype=np.int64).tobytes()

        everyone = together("kasane: sort, cuts", [runs], b"", work, 8 * (tiles + 1))
        return own, sum(np.frombuffer(b, np.int64) for b in everyone)

    key = np.zeros(tiles + 1, unsigned)  # the largest with less than `before` elements below it
    for bit in reversed(range(bits)):
        tried = key | unsigned.type(1 << bit)
        _, below = counts(_values(tried, runs.dtype), "left")
        key = np.where(below < before, tried, key)
    low, below = counts(_values(key, runs.dtype), "left")
    high, _ = counts(_values(key, runs.dtype), "right")
    own = np.zeros((tiles, 2 * (tiles + 1)), np.int64)
    for (first, _), l, h in zip(mine, low, high):
        own[first[0] // run] = np.concatenate([l, h])
    everyone = together("kasane: sort, cuts", [runs], b"", own.tobytes, own.nbytes)
    both = sum(np.frombuffer(b, np.int64) for b in everyone).reshape(tiles, 2, tiles + 1)
    cuts, equal = both[:, 0], both[:, 1] - both[:, 0]
    left = np.maximum(before - below, 0) - (np.cumsum(equal, 0) - equal)  # for this run of the equal ones
    cuts = cuts + np.clip(left, 0, equal)
    cuts[:, 0] = 0
    cuts[:, -1] = np.minimum(n - np.arange(tiles) * run, run)
    return cuts.T


# ---- sets -----------------------------------------------------------------------------------------------


def _firsts(ordered, equal_nan=False):
    """Where a sorted vector has another element than before."""
    if not ordered.size:
        return asarray(np.zeros(0, bool))
    from ._manipulation import section
    if ordered.size == 1:
        return asarray(np.ones(1, bool))
    def differ(b, a):
        return (a != b) & ((a == a) | (b == b)) if equal_nan else a != b

    differs = pointwise(differ, [section(ordered, slice(1, None)), section(ordered, slice(0, -1))])
    return concat([asarray(np.ones(1, bool)), evaluate(differs)])


def unique_values(x):
    """The distinct elements, sorted; each NaN is one of its own. Collective."""
    ordered = sort(x, None)
    return select(ordered, _firsts(ordered))


def unique_counts(x):
    """(values, counts): how often each distinct element is there. Collective."""
    ordered = sort(x, None)
    first = _firsts(ordered)
    at, = nonzero(first)
    return UniqueCounts(select(ordered, first), _lengths(at, ordered.size))


def _lengths(at, n):
    return diff(concat([at, asarray(np.array([n]))])) if at.size else at


def unique_inverse(x):
    """(values, inverse_indices): which of the values each element is. Collective."""
    every = unique_all(x)
    return UniqueInverse(every.values, every.inverse_indices)


def unique_all(x):
    """(values, indices, inverse_indices, counts): indices are those of first occurrences. Collective."""
    return _unique(x, False)


def _unique(x, equal_nan):
    x = _operand(x)
    flat = ravel(x)
    order = argsort(flat)
    ordered = select(flat, order)
    first = _firsts(ordered, equal_nan)
    at, = nonzero(first)
    inverse = Array((flat.size,), np.intp, **distribution((flat.size,), [x]))
    if flat.size:
        inverse[order] = evaluate(pointwise(np.subtract, [cumulative_sum(first, dtype=np.intp), 1]))
    return UniqueAll(
        select(ordered, first), select(order, at), reshape(inverse, x.shape), _lengths(at, flat.size)
    )


def unique(x, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True):
    """As numpy.unique: the distinct elements, and what else is asked for. Collective."""
    if axis is not None:
        raise TypeError("kasane.unique: axis= is not there")
    if not (return_index or return_inverse or return_counts):
        ordered = sort(x, None)
        return select(ordered, _firsts(ordered, equal_nan))
    every = _unique(x, equal_nan)
    asked = (True, return_index, return_inverse, return_counts)
    return tuple(part for part, wanted in zip(every, asked) if wanted)


UniqueAll = collections.namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = collections.namedtuple("UniqueCounts", "values counts")
UniqueInverse = collections.namedtuple("UniqueInverse", "values inverse_indices")


def isin(x, values):
    """Which elements are among some values, a vector that fits into memory. Collective."""
    values = np.asarray(values.gather() if isinstance(values, Array) else values)
    return finished(pointwise(lambda block: np.isin(block, values), [_operand(x)], name="isin"))
