# SPDX-License-Identifier: Apache-2.0
"""Indices that are distributed arrays: masks, and arrays of integers; where elements are."""
import math

import numpy as np

from . import _core
from ._array import Array
from ._blocks import PIECE, Lazy, Operand, broadcast_shape, distribution, elements, evaluate, finished, lazy
from ._blocks import pieces, share, text, together
from ._errors import ArgumentError
from ._index import fits, ranges


def has_arrays(index):
    """Whether an index has distributed arrays."""
    return (
        isinstance(index, Operand) or isinstance(index, tuple) and any(isinstance(i, Operand) for i in index)
    )


def select(x, index):
    """x[index], where a distributed array is in the index: an array of its own. Collective."""
    entries = index if isinstance(index, tuple) else (index,)
    while (
        entries and entries[-1] is Ellipsis or isinstance(entries[-1], slice) and entries[-1] == slice(None)
    ):
        entries = entries[:-1]
    if len(entries) == 1 and entries[0].dtype == bool:
        from ._manipulation import reshape
        mask = evaluate(entries[0])
        if mask.shape == x.shape:
            return _compressed(x, mask)
        _check_mask(x, mask)
        if mask.ndim == 0 and mask:
            return reshape(x, (1, *x.shape))
        if mask.size == 0 or mask.ndim == 0:
            shape = (0, *x.shape[mask.ndim:])
            return Array(shape, x.dtype, **distribution(shape, x.leaves))
        entries = nonzero(mask)
    return _at(x, _integers(entries))


def assign(x, index, values):
    """x[index] = values, where either is a distributed array. Collective."""
    if not has_arrays(index):
        return _assign_section(x, index, values)
    entries = index if isinstance(index, tuple) else (index,)
    if len(entries) == 1 and entries[0].dtype == bool:
        mask = evaluate(entries[0])
        entries = (mask,)
        if mask.shape == x.shape and (np.ndim(values) == 0 if not isinstance(values, Operand) else
                                      values.shape == ()):
            return _put_where(x, mask, values)
        _check_mask(x, mask)
        if mask.ndim == 0:
            return _assign_section(x, ..., values) if mask else None
        entries = nonzero(mask)
    _scatter(x, _integers(entries), values)


def _check_mask(x, mask):
    if not fits(mask, x.shape):
        raise IndexError(f"kasane: a mask of shape {mask.shape} for an array of shape {x.shape}")


def _integers(entries):
    entries = [e if isinstance(e, Operand) else np.asarray(e) for e in entries]
    if any(e.dtype.kind not in "iu" for e in entries):
        raise IndexError(
            "kasane: with a distributed array, an index has arrays of integers or one mask, for the "
            "first dimensions; or use take, or section"
        )
    return entries


# ---- masks ----------------------------------------------------------------------------------------------


def _put_where(x, mask, value):
    value = x._converted(value.item() if isinstance(value, Operand) else value)

    def work():
        for low, high, view in x.each_piece(1):
            view[mask.block(low, high)] = value

    together("kasane: a[mask] = value", [x, *mask.leaves], text(value), work)


def selected(call, mask, arrays, store):
    """Calls store(at, begin, end, chosen) for chunks of a mask in C's order, of which this rank has a share:
    what it chooses of elements begin to end are the ``at``-th of all and those behind. store(None, n):
    before, their number at all ranks. Returns what that does."""
    from ._manipulation import flat
    mine = range(mask.size * _core.rank() // _core.ranks(), mask.size * (_core.rank() + 1) // _core.ranks())
    chunks = [(b, min(b + PIECE, mine.stop)) for b in range(mine.start, mine.stop, PIECE)]
    counts = []

    def count():
        counts.extend(int(np.count_nonzero(flat(mask, b, e))) for b, e in chunks)
        return sum(counts).to_bytes(8, "little")

    everyone = [
        int.from_bytes(n, "little") for n in together(f"kasane: {call}", [*mask.leaves], b"", count, 8)
    ]
    made = store(None, sum(everyone))

    def write():
        at = sum(everyone[:_core.rank()])
        for (b, e), n in zip(chunks, counts):
            if n:
                store(at, b, e, flat(mask, b, e))
            at += n

    together(f"kasane: {call}", [*mask.leaves, *arrays], b"", write)
    return made


def _compressed(x, mask):
    from ._manipulation import flat
    results = []

    def store(at, begin, end=None, chosen=None):
        if at is None:
            results.append(Array((begin,), x.dtype, **distribution((begin,), x.leaves)))
        else:
            values = flat(x, begin, end)[chosen]
            results[0].put(slice(at, at + len(values)), values)

    selected("a[mask]", mask, x.leaves, store)
    return results[0]


def nonzero(x):
    """The indices of elements that are not zero: an array of integers for each dimension. Collective."""
    from ._blocks import pointwise
    if not x.ndim:
        raise ValueError("kasane.nonzero: give an array with dimensions")
    mask = pointwise(np.not_equal, [x, 0], name="nonzero")
    results = []

    def store(at, begin, end=None, chosen=None):
        if at is None:
            results.extend(Array((begin,), np.intp, **distribution((begin,), x.leaves)) for _ in x.shape)
        else:
            flat = begin + np.flatnonzero(chosen)
            for result, column in zip(results, np.unravel_index(flat, x.shape)):
                result.put(slice(at, at + len(flat)), column)

    selected("nonzero", mask, x.leaves, store)
    return tuple(results)


def argwhere(x):
    """nonzero() as one array: a row for each element. Collective."""
    from ._manipulation import stack
    return stack(nonzero(x), 1)


def flatnonzero(x):
    """The indices in C's order of elements that are not zero. Collective."""
    from ._manipulation import ravel
    return nonzero(ravel(x))[0]


# ---- arrays of integers ---------------------------------------------------------------------------------


def fetch(x, columns):
    """Elements of an array anywhere, as a NumPy array; columns: indices of each dimension, broadcast."""
    columns = np.broadcast_arrays(*columns)
    out = np.empty(columns[0].shape, x.dtype)
    if out.size:
        x._core.gather(_rows(x, columns), out)
    return out


def _positive(index, d, n):
    index = np.asarray(index)
    if index.size and not (-n <= int(index.min()) and int(index.max()) < n):
        raise IndexError(f"kasane: an index of dimension {d} is outside of its {n} elements")
    index = index.astype(np.int64)
    return np.where(index < 0, index + n, index)


def _columns(entries, n, low, high):
    """The indices of each dimension in a box of x[entries], whose first n dimensions are the entries'."""
    rest = len(low) - n
    columns = [np.asarray(elements(e, low[:n], high[:n])) for e in entries]
    columns = [c.reshape((*c.shape, *(1,) * rest)) for c in columns]
    for d, (b, e) in enumerate(zip(low[n:], high[n:])):
        columns.append(np.arange(b, e).reshape([-1 if i == d else 1 for i in range(rest)]))
    return columns


def _rows(x, columns):
    """A row of indices for each element."""
    rows = np.empty((columns[0].size, len(columns)), np.int64)
    for d, (column, n) in enumerate(zip(columns, x.shape)):
        rows[:, d] = _positive(column.ravel(), d, n)
    return rows


def _at(x, entries):
    """x[entries], arrays of integers for the first dimensions."""
    shape = np.broadcast_shapes(*(e.shape for e in entries))
    whole = (*shape, *x.shape[len(entries):])

    def block(low, high):
        return fetch(x, _columns(entries, len(shape), low, high))

    sources = [x, *(e for e in entries if isinstance(e, Operand))]
    return evaluate(Lazy(whole, x.dtype, sources, block, ("a[indices]",)))


def _fitting(x, shape, values):
    """A distributed array as values of some of x's elements, none of which it is."""
    if broadcast_shape("a[index] = array", values, np.broadcast_to(0, shape)) != shape:
        raise ArgumentError(22, f"kasane: an array of shape {values.shape} for elements of shape {shape}")
    if not np.can_cast(values.dtype, x.dtype, "same_kind"):
        raise TypeError(f"kasane: elements of {values.dtype} in an array of type {x.dtype}")
    if any(a is x for a in values.leaves):
        return evaluate(lazy(values), Array(values.shape, values.dtype, **distribution(values.shape, [x])))
    return values


def _scatter(x, entries, values):
    """x[entries] = values. Which of several values for one element stays is not said."""
    shape = np.broadcast_shapes(*(e.shape for e in entries))
    whole = (*shape, *x.shape[len(entries):])
    if isinstance(values, Operand):
        values = _fitting(x, whole, values)
    else:
        values = np.broadcast_to(x._converted(values), whole)

    def work():
        for k, (low, high) in enumerate(pieces((0,) * len(whole), whole, PIECE // 8)):
            if k % _core.ranks() == _core.rank():
                columns = np.broadcast_arrays(*_columns(entries, len(shape), low, high))
                block = np.broadcast_to(np.asarray(elements(values, low, high)), columns[0].shape)
                x._core.scatter(_rows(x, columns), np.ascontiguousarray(x._converted(block)))

    if math.prod(whole):
        sources = [o for o in (*entries, values) if isinstance(o, Operand)]
        together("kasane: a[indices] = values", [x, *sources], text(*whole), work)


def _assign_section(x, index, values):
    """x[index] = values, a distributed array: each rank puts what it has of them."""
    from ._manipulation import broadcast_to
    parts = ranges(index, x.shape)
    kept = [d for d, r in enumerate(parts) if isinstance(r, range)]
    shape = tuple(len(parts[d]) for d in kept)
    values = _fitting(x, shape, values)
    values = values if values.shape == shape else broadcast_to(values, shape)

    def work():
        for low, high in share(values):
            entries = list(parts)
            for d, b, e in zip(kept, low, high):
                r = parts[d][b:e]
                entries[d] = slice(r.start, r.stop if r.stop >= 0 else None, r.step)
            x.put(tuple(entries), values.block(low, high))

    together("kasane: a[index] = array", [x, *values.leaves], text(*shape), work)


def take(x, indices, axis=None):
    """Elements along a dimension at indices, a vector or more. Collective."""
    from ._creation import asarray
    from ._manipulation import axis_of, ravel
    x = x if isinstance(x, Operand) else asarray(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = axis_of(axis, x.ndim)
    if not isinstance(indices, Operand):
        indices = np.asarray(indices)
        indices = indices.astype(np.int64) if not indices.size else indices
    if indices.dtype.kind not in "iu":
        raise IndexError(f"kasane.take: indices of type {indices.dtype}")
    n, k = x.shape[axis], indices.ndim
    if not isinstance(indices, Operand):
        indices = _positive(indices, axis, n)  # what does not fit is refused before the ranks meet

    def block(low, high):
        at = np.asarray(elements(indices, low[axis:axis + k], high[axis:axis + k]))
        at = _positive(at, axis, n)
        rows = _along(x, low[:axis] + low[axis + k:], high[:axis] + high[axis + k:], at.ravel(), axis)
        return rows.reshape(rows.shape[:axis] + at.shape + rows.shape[axis + 1:])

    x = evaluate(x) if isinstance(x, Lazy) else x
    shape = x.shape[:axis] + indices.shape + x.shape[axis + 1:]
    sources = [x] + [indices] * isinstance(indices, Operand)
    return finished(Lazy(shape, x.dtype, sources, block, ("take", axis)), x)


def _along(x, low, high, at, axis):
    """The elements of a box without dimension axis, at some indices of that: a patch for each run of them."""
    across = math.prod(e - b for b, e in zip(low, high))
    ends = np.flatnonzero(np.diff(at) != 1) + 1 if at.size else []
    runs = np.split(at, ends) if at.size else []
    if len(runs) > 1 and across < 64:
        columns = [np.arange(b, e) for b, e in zip(low, high)]
        columns.insert(axis, at)
        return fetch(x, np.meshgrid(*columns, indexing="ij", sparse=True))
    parts = [x.block((*low[:axis], int(r[0]), *low[axis:]), (*high[:axis], int(r[-1]) + 1, *high[axis:]))
             for r in runs]
    extents = [e - b for b, e in zip(low, high)]
    return np.concatenate(parts, axis) if parts else np.empty(extents[:axis] + [0] + extents[axis:], x.dtype)


def take_along_axis(x, indices, axis=-1):
    """x's element at indices[i, j, …] along a dimension, for each index. Collective."""
    from ._creation import asarray
    from ._manipulation import axis_of
    axis = axis_of(axis, x.ndim)
    x = evaluate(x) if isinstance(x, Lazy) else x
    indices = indices if isinstance(indices, Operand) else asarray(indices)
    others = np.broadcast_shapes(
        *(tuple(1 if d == axis else n for d, n in enumerate(o.shape)) for o in (x, indices))
    )
    shape = tuple(indices.shape[axis] if d == axis else n for d, n in enumerate(others))

    def block(low, high):
        columns = [
            (
                np.arange(b, e).reshape([-1 if i == d else 1 for i in range(x.ndim)])
                if x.shape[d] != 1
                else np.zeros((1,) * x.ndim, int)
            )
            for d, (b, e) in enumerate(zip(low, high))
        ]
        columns[axis] = elements(indices, low, high)
        columns[axis] = np.broadcast_to(columns[axis], [e - b for b, e in zip(low, high)])
        return fetch(x, columns)

    return evaluate(Lazy(shape, x.dtype, [x, indices], block, ("take_along_axis", axis)))


def searchsorted(x1, x2, side="left", sorter=None):
    """Where x2's elements would be in x1, a sorted vector. Collective."""
    from ._creation import asarray
    x1 = x1 if isinstance(x1, Operand) else asarray(x1)
    x2 = x2 if isinstance(x2, Operand) else asarray(x2)
    if x1.ndim != 1:
        raise ArgumentError(22, "kasane.searchsorted: give a vector to look in")
    x1 = evaluate(x1) if isinstance(x1, Lazy) else x1
    order = np.less if side == "left" else np.less_equal

    def block(low, high):
        values = np.asarray(x2.block(low, high))
        first, last = np.zeros(values.shape, np.int64), np.full(values.shape, x1.size, np.int64)
        while (first < last).any():
            middle = (first + last) // 2
            at = np.minimum(middle, x1.size - 1)
            at = fetch(x1, [at if sorter is None else elements_at(sorter, at)])
            right = order(at, values) & (first < last)
            first, last = np.where(right, middle + 1, first), np.where(right, last, np.minimum(middle, last))
        return first

    return evaluate(Lazy(x2.shape, np.intp, [x1, x2], block, ("searchsorted", side)))


def elements_at(x, at):
    return fetch(x, [at]) if isinstance(x, Operand) else np.asarray(x)[at]
