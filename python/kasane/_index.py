# SPDX-License-Identifier: Apache-2.0
"""What stands between the brackets of an array."""
import operator

import numpy as np

from . import _core


class Elements:
    """Elements anywhere: an array of indices, one row each."""

    def __init__(self, indices, shape):
        self.indices, self.shape = indices, shape


def _slice(d, index, extent):
    """(first, last, step) of a slice."""
    begin, end, step = index.indices(extent)
    if step > 0:
        return begin, max(begin, end), step
    return begin, min(begin, end), step


def _integer(d, index, extent):
    if isinstance(index, (bool, np.bool_)):
        raise TypeError("a bool is a mask to NumPy")
    i = operator.index(index)
    if not -extent <= i < extent:
        raise IndexError(f"kasane: index {i} of dimension {d}, which has {extent} elements")
    return i + extent if i < 0 else i


def _expanded(index, shape):
    """One entry for each dimension."""
    index = index if isinstance(index, tuple) else (index,)
    dots = [k for k, i in enumerate(index) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexError("kasane: an index has one Ellipsis at most")
    if any(i is None for i in index):
        raise IndexError("kasane: numpy.newaxis is not for distributed arrays; use it on what they give")
    given = len(index) - len(dots)
    if given > len(shape):
        raise IndexError(f"kasane: {given} indices for an array of {len(shape)} dimensions")
    fill = (slice(None),) * (len(shape) - given)
    if dots:
        return index[:dots[0]] + fill + index[dots[0] + 1:]
    return index + fill


def _anywhere(index, shape):
    """Arrays of integers, one for each dimension."""
    if any(isinstance(i, slice) for i in index):
        raise IndexError("kasane: arrays as indices are given for every dimension, without slices")
    columns = np.broadcast_arrays(*(np.asarray(i) for i in index))
    rows = np.empty((columns[0].size, len(shape)), np.int64)
    for d, column in enumerate(columns):
        if column.dtype.kind not in "iu":
            raise IndexError(f"kasane: the index of dimension {d} is of type {column.dtype}; give integers "
                             "(numpy.nonzero makes them of a mask)")
        if column.size and not (-shape[d] <= int(column.min()) and int(column.max()) < shape[d]):
            raise IndexError(f"kasane: an index of dimension {d} is outside of its {shape[d]} elements")
        flat = column.ravel().astype(np.int64)
        rows[:, d] = np.where(flat < 0, flat + shape[d], flat)
    return Elements(rows, columns[0].shape)


def _stepped(ranges, shape):
    """The elements of ranges with steps."""
    grid = np.meshgrid(*(np.arange(*r) for r in ranges), indexing="ij")
    return Elements(np.stack([g.ravel() for g in grid], axis=1).astype(np.int64), shape)


def parse(index, shape):
    """The Box or the Elements that index, as NumPy reads it, means in an array of this shape."""
    entries = _expanded(index, shape)
    if any(isinstance(i, (list, np.ndarray)) and np.ndim(i) > 0 for i in entries):
        return _anywhere(entries, shape)
    ranges, kept = [], []
    for d, (entry, extent) in enumerate(zip(entries, shape)):
        if isinstance(entry, slice):
            first, last, step = _slice(d, entry, extent)
            ranges.append((first, last, step))
            kept.append(len(range(first, last, step)))
        else:
            try:
                i = _integer(d, entry, extent)
            except TypeError:
                raise IndexError(f"kasane: {entry!r} is no index; use integers, slices or arrays of "
                                 "integers") from None
            ranges.append((i, i + 1, 1))
    if any(step != 1 for _, _, step in ranges):
        return _stepped(ranges, tuple(kept))
    return _core.Box([r[0] for r in ranges], [r[1] for r in ranges], [isinstance(e, slice) for e in entries])
