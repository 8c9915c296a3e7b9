# SPDX-License-Identifier: Apache-2.0
"""What stands between the brackets of an array."""
import math
import operator

import numpy as np

from . import _core


class Elements:
    """Elements anywhere: an array of indices, one row each."""

    def __init__(self, indices, shape):
        self.indices, self.shape = indices, shape


class Stepped:
    """The elements of slices with steps: those of a Box of which every so many are left."""

    def __init__(self, entries):
        along = [r for r in entries if isinstance(r, range)]
        self.shape = tuple(len(r) for r in along)
        self.steps = tuple(slice(None, None, r.step) for r in along)
        self._entries = [r if isinstance(r, range) else range(r, r + 1) for r in entries]
        self._kept = [isinstance(r, range) for r in entries]

    @property
    def dense(self):
        """Whether the box has few elements more than are left."""
        return 0 not in self.shape and math.prod(abs(s.step) for s in self.steps) <= 8

    @property
    def box(self):
        return _core.Box(
            [min(r[0], r[-1]) for r in self._entries],
            [max(r[0], r[-1]) + 1 for r in self._entries],
            self._kept,
        )

    @property
    def indices(self):
        grid = np.meshgrid(*(np.arange(r.start, r.stop, r.step) for r in self._entries), indexing="ij")
        return np.stack([g.ravel() for g in grid], axis=1).astype(np.int64)


def _integer(d, index, extent):
    if isinstance(index, (bool, np.bool_)):
        raise TypeError("a bool is a mask to NumPy")
    i = operator.index(index)
    if not -extent <= i < extent:
        raise IndexError(f"kasane: index {i} of dimension {d}, which has {extent} elements")
    return i + extent if i < 0 else i


def _expanded(index, shape, new=0):
    """One entry for each dimension, and for the new ones."""
    index = index if isinstance(index, tuple) else (index,)
    dots = [k for k, i in enumerate(index) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexError("kasane: an index has one Ellipsis at most")
    given = len(index) - len(dots) - new
    if given > len(shape):
        raise IndexError(f"kasane: {given} indices for an array of {len(shape)} dimensions")
    fill = (slice(None),) * (len(shape) - given)
    if dots:
        return index[:dots[0]] + fill + index[dots[0] + 1:]
    return index + fill


def ranges(index, shape):
    """A range or an integer for each dimension."""
    entries = []
    for d, (entry, extent) in enumerate(zip(_expanded(index, shape), shape)):
        if isinstance(entry, slice):
            entries.append(range(*entry.indices(extent)))
            continue
        entries.append(_checked_integer(d, entry, extent))
    return entries


def _checked_integer(d, entry, extent):
    try:
        return _integer(d, entry, extent)
    except TypeError:
        raise IndexError(
            f"kasane: {entry!r} is no index; use integers, slices or arrays of integers"
        ) from None


def fits(mask, shape):
    """Whether a mask is for the first dimensions; one without elements may be for those along some, as
    NumPy's."""
    return len(shape) >= mask.ndim and all(m in (n, 0) for m, n in zip(mask.shape, shape)) and \
        (mask.size == 0 or mask.shape == tuple(shape[:mask.ndim]))


def _arrays(index, shape):
    """The entries of an index, with arrays of integers for masks; None: it has neither arrays nor newaxis."""
    entries, advanced = [], False
    for entry in index if isinstance(index, tuple) else (index,):
        if isinstance(entry, (list, np.ndarray)) and np.ndim(entry) > 0:
            entry, advanced = np.asarray(entry), True
            if entry.dtype == bool:
                d = sum(e is not None and e is not Ellipsis for e in entries)
                if Ellipsis in [e for e in entries if e is Ellipsis]:
                    d = len(shape) - entry.ndim
                if not fits(entry, shape[d:]):
                    raise IndexError(f"kasane: a mask of shape {entry.shape} for dimensions of {shape}")
                entries += np.nonzero(entry)
                continue
            if entry.size == 0:
                entry = entry.astype(np.int64)
            if entry.dtype.kind not in "iu":
                raise IndexError(f"kasane: an index of type {entry.dtype}; give integers or a mask")
        advanced = advanced or entry is None
        entries.append(entry)
    return tuple(entries) if advanced else None


def _anywhere(index, shape):
    """Where NumPy puts the elements of an index with arrays: it tells so itself, of a stand-in that has as
    many elements along each dimension as the index takes of it."""
    new = tuple(k for k, e in enumerate(index) if e is None)
    entries = list(_expanded(index, shape, len(new)))
    arrays = [k for k, e in enumerate(entries) if isinstance(e, np.ndarray)]
    d, dimension = 0, []
    for k, e in enumerate(entries):
        dimension.append(d)
        if e is None:
            continue
        if arrays and not isinstance(e, (slice, np.ndarray)):
            entries[k] = e = np.asarray(_checked_integer(d, e, shape[d]))
        elif not isinstance(e, (slice, np.ndarray)):
            entries[k] = _checked_integer(d, e, shape[d])
        if isinstance(e, np.ndarray):
            entries[k] = _within(d, e, shape[d])
        elif isinstance(e, slice):
            entries[k] = range(*e.indices(shape[d]))
        d += 1
    arrays = [k for k, e in enumerate(entries) if isinstance(e, np.ndarray)]
    common = np.broadcast_shapes(*(entries[k].shape for k in arrays)) if arrays else ()
    extents, stand_in = [], []
    for k, e in enumerate(entries):
        if e is None:
            stand_in.append(None)
            continue
        if isinstance(e, range):
            extents.append(len(e))
            stand_in.append(slice(None))
        elif isinstance(e, np.ndarray):
            first = k == arrays[0]
            extents.append(math.prod(common) if first else 1)
            stand_in.append(np.arange(extents[-1]).reshape(common) if first else np.zeros(common, np.int64))
        else:
            extents.append(1)
            stand_in.append(0)

    def along(d):
        one = np.arange(extents[d]).reshape([-1 if i == d else 1 for i in range(len(extents))])
        return np.broadcast_to(one, extents)[tuple(stand_in)]

    columns = []
    for k, e in enumerate(entries):
        if isinstance(e, range):
            columns.append(e.start + e.step * along(dimension[k]))
        elif isinstance(e, np.ndarray):
            columns.append(np.broadcast_to(e, common).ravel()[along(dimension[arrays[0]])])
        elif e is not None:
            columns.append(np.full_like(along(dimension[k]), e))
    rows = np.empty((columns[0].size, len(shape)), np.int64)
    for d, column in enumerate(columns):
        rows[:, d] = column.ravel()
    return Elements(rows, columns[0].shape)


def _within(d, column, extent):
    if column.size and not (-extent <= int(column.min()) and int(column.max()) < extent):
        raise IndexError(f"kasane: an index of dimension {d} is outside of its {extent} elements")
    column = column.astype(np.int64)
    return np.where(column < 0, column + extent, column)


def parse(index, shape):
    """The Box, or the Stepped, or the Elements that index, as NumPy reads it, means in an array of this
    shape."""
    if isinstance(index, (bool, np.bool_)) or getattr(index, "shape", None) == () and index.dtype == bool:
        if not index:
            return Elements(np.empty((0, max(1, len(shape))), np.int64), (0, *shape))
        index = None
    arrays = _arrays(index, shape)
    if arrays is not None:
        return _anywhere(arrays if shape else (0, *arrays), shape or (1,))
    entries = ranges(index, shape)
    if any(isinstance(r, range) and r.step != 1 for r in entries):
        return Stepped(entries)
    if not shape:
        return _core.Box([0], [1], [False])
    kept = [isinstance(r, range) for r in entries]
    return _core.Box([r.start if k else r for r, k in zip(entries, kept)],
                     [max(r.start, r.stop) if k else r + 1 for r, k in zip(entries, kept)], kept)
