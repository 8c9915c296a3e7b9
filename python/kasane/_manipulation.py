# SPDX-License-Identifier: Apache-2.0
"""Elements in other places: each box of the result is fetched from where its elements were."""
import math
import operator

import numpy as np

from ._array import Array
from ._blocks import Lazy, Operand, broadcast_shape, elements, evaluate, finished
from ._creation import asarray
from ._errors import ArgumentError


def _operand(x):
    return x if isinstance(x, Operand) else asarray(x)


def axis_of(axis, ndim):
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise ArgumentError(22, f"kasane: axis {axis} of an array of {ndim} dimensions")
    return axis % ndim


def axes_of(axis, ndim):
    axes = tuple(axis_of(d, ndim) for d in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ArgumentError(22, f"kasane: an axis twice in {axis}")
    return axes


# ---- dimensions -----------------------------------------------------------------------------------------


def permute_dims(x, axes=None):
    """Dimension i of the result is dimension axes[i] of x; without axes in reverse. Collective."""
    x = _operand(x)
    axes = tuple(reversed(range(x.ndim))) if axes is None else axes_of(axes, x.ndim)
    if len(axes) != x.ndim:
        raise ArgumentError(22, f"kasane.permute_dims: axes {axes} of an array of {x.ndim} dimensions")
    back = tuple(int(d) for d in np.argsort(axes))

    def block(low, high):
        return x.block(tuple(low[d] for d in back), tuple(high[d] for d in back)).transpose(axes)

    lazy = Lazy([x.shape[d] for d in axes], x.dtype, [x], block, ("permute_dims", axes))
    if isinstance(x, Lazy):
        return finished(lazy, x)
    how = {k: [v[d] for d in axes] for k, v in x.how.items() if k in ("tiles", "blocks") and v}
    return evaluate(lazy, Array(lazy.shape, x.dtype, **how))


def matrix_transpose(x):
    """The last two dimensions exchanged. Collective."""
    x = _operand(x)
    if x.ndim < 2:
        raise ArgumentError(22, "kasane.matrix_transpose: give two dimensions or more")
    return swapaxes(x, -1, -2)


def swapaxes(x, axis1, axis2):
    """Two dimensions exchanged. Collective."""
    axes = list(range(x.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return permute_dims(x, axes)


def moveaxis(x, source, destination):
    """Dimensions moved to other positions, the others in their order. Collective."""
    x = _operand(x)
    source, destination = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    if len(source) != len(destination):
        raise ArgumentError(22, "kasane.moveaxis: as many destinations as sources are needed")
    axes = [d for d in range(x.ndim) if d not in source]
    for to, d in sorted(zip(destination, source)):
        axes.insert(to, d)
    return permute_dims(x, axes)


def expand_dims(x, axis=0):
    """Dimensions of extent 1 more. Collective."""
    x = _operand(x)
    n = x.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1)
    new = axes_of(axis, n)
    old = iter(x.shape)
    return _reshaped(x, [1 if d in new else next(old) for d in range(n)], "expand_dims")


def squeeze(x, axis=None):
    """Without dimensions of extent 1. Collective."""
    x = _operand(x)
    gone = axes_of(axis, x.ndim) if axis is not None else [d for d, n in enumerate(x.shape) if n == 1]
    if any(x.shape[d] != 1 for d in gone):
        raise ValueError("kasane.squeeze: an axis whose extent is not 1")
    return _reshaped(x, [n for d, n in enumerate(x.shape) if d not in gone], "squeeze")


def _reshaped(x, shape, name):
    """x with other dimensions of extent 1, without a look at where rows end."""
    real = [d for d, n in enumerate(x.shape) if n != 1]
    at = [d for d, n in enumerate(shape) if n != 1]

    def block(low, high):
        first, last = [0] * x.ndim, [1] * x.ndim
        for d, to in zip(real, at):
            first[d], last[d] = low[to], high[to]
        return x.block(tuple(first), tuple(last)).reshape([e - b for b, e in zip(low, high)])

    return finished(Lazy(shape, x.dtype, [x], block, (name, tuple(shape))), x)


def broadcast_to(x, shape):
    """x repeated along dimensions of extent 1, and along new ones in front. Collective."""
    x, shape = _operand(x), (shape,) if np.ndim(shape) == 0 else tuple(shape)
    if broadcast_shape("broadcast_to", x, np.broadcast_to(0, shape)) != shape:
        raise ArgumentError(22, f"kasane.broadcast_to: {x.shape} is not broadcast to {shape}")

    def block(low, high):
        return np.broadcast_to(elements(x, low, high), [e - b for b, e in zip(low, high)])

    return finished(Lazy(shape, x.dtype, [x], block, ("broadcast_to", shape)), x)


def broadcast_arrays(*arrays):
    """All of one shape. Collective."""
    arrays = [_operand(a) for a in arrays]
    shape = broadcast_shape("broadcast_arrays", *arrays)
    return [broadcast_to(a, shape) for a in arrays]


def broadcast_shapes(*shapes):
    """The shape to which arrays of these shapes are broadcast."""
    return np.broadcast_shapes(*shapes)


# ---- in C's order ---------------------------------------------------------------------------------------


def flat(x, begin, end):
    """Elements begin to end in C's order, as a NumPy array."""
    if x.ndim == 0:
        return np.asarray(x.block((), ())).reshape(1)[begin:end]
    return np.concatenate([x.block(*box).ravel() for box in _boxes_of(begin, end, x.shape)]
                          or [np.empty(0, x.dtype)])


def _boxes_of(begin, end, shape):
    """Boxes that are consecutive in C's order, and together are the elements begin to end."""
    if begin >= end:
        return
    row = math.prod(shape[1:])
    first, last = -(-begin // row), end // row
    if first > last or (first == last and begin % row and end % row and begin // row == end // row):
        first = last = begin // row  # within one row
        for low, high in _boxes_of(begin - first * row, end - first * row, shape[1:]):
            yield (first, *low), (first + 1, *high)
        return
    if begin < first * row:
        for low, high in _boxes_of(begin % row, row, shape[1:]):
            yield (first - 1, *low), (first, *high)
    if first < last:
        yield (first, *(0,) * (len(shape) - 1)), (last, *shape[1:])
    if end > last * row:
        for low, high in _boxes_of(0, end % row, shape[1:]):
            yield (last, *low), (last + 1, *high)


def reshape(x, shape, order="C", copy=None):
    """The elements, in C's order, in another shape; one extent may be -1. A new array. Collective."""
    x = _operand(x)
    if copy is False:
        raise ValueError("kasane.reshape: arrays do not share memory, so a copy is made")
    if order != "C":
        raise ValueError("kasane.reshape: C's order is there")
    shape = [operator.index(n) for n in ((shape,) if np.ndim(shape) == 0 else shape)]
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known and x.size % known == 0:
        shape[shape.index(-1)] = x.size // known
    if math.prod(shape) != x.size or any(n < 0 for n in shape):
        raise ArgumentError(22, f"kasane.reshape: an array of {x.size} elements into shape {tuple(shape)}")
    if [n for n in shape if n != 1] == [n for n in x.shape if n != 1]:
        return _reshaped(x, shape, "reshape")
    behind = [math.prod(shape[d + 1:]) for d in range(len(shape))]

    def block(low, high):
        extents = [e - b for b, e in zip(low, high)]
        begin = sum(b * n for b, n in zip(low, behind))
        d = next((d for d in reversed(range(len(shape))) if extents[d] != shape[d]), -1)  # whole behind it
        if d < 0 or all(n == 1 for n in extents[:d]):
            return flat(x, begin, begin + math.prod(extents)).reshape(extents)
        rows = [begin + int(sum(i * n for i, n in zip(row, behind))) for row in np.ndindex(*extents[:d])]
        length = math.prod(extents[d:])
        return np.concatenate([flat(x, at, at + length) for at in rows]).reshape(extents)

    return finished(Lazy(shape, x.dtype, [x], block, ("reshape", tuple(shape))), x)


def ravel(x, order="C"):
    """reshape(x, -1). Collective."""
    return reshape(x, (-1,), order)


# ---- along dimensions -----------------------------------------------------------------------------------


def flip(x, axis=None):
    """In reverse along dimensions; without axis along all. Collective."""
    x = _operand(x)
    axes = range(x.ndim) if axis is None else axes_of(axis, x.ndim)

    def block(low, high):
        first, last = list(low), list(high)
        for d in axes:
            first[d], last[d] = x.shape[d] - high[d], x.shape[d] - low[d]
        return np.flip(x.block(tuple(first), tuple(last)), tuple(axes))

    return finished(Lazy(x.shape, x.dtype, [x], block, ("flip", tuple(axes))), x)


def roll(x, shift, axis=None):
    """Elements moved along dimensions; those beyond the end come first. Collective."""
    x = _operand(x)
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, 0), x.shape)
    shifts = [0] * x.ndim
    for s, d in np.broadcast(shift, axis):
        shifts[axis_of(d, x.ndim)] += int(s)

    def block(low, high):
        return _rolled(x, shifts, low, high, 0)

    return finished(Lazy(x.shape, x.dtype, [x], block, ("roll", tuple(shifts))), x)


def _rolled(x, shifts, low, high, d):
    """The box of the rolled x; dimensions below d are as they lie in x."""
    if d == x.ndim:
        return x.block(low, high)
    n, parts = x.shape[d], []
    begin = low[d]
    while begin < high[d]:
        at = (begin - shifts[d]) % n
        end = min(high[d], begin + n - at)
        first, last = list(low), list(high)
        first[d], last[d] = at, at + end - begin
        parts.append(_rolled(x, shifts, tuple(first), tuple(last), d + 1))
        begin = end
    return parts[0] if len(parts) == 1 else np.concatenate(parts, d)


def concat(arrays, axis=0):
    """Arrays one behind the other along a dimension; axis None: all elements in C's order. Collective."""
    arrays = [_operand(a) for a in arrays]
    if not arrays:
        raise ValueError("kasane.concat: give one array or more")
    if axis is None:
        arrays, axis = [reshape(a, (-1,)) for a in arrays], 0
    axis, first = axis_of(axis, arrays[0].ndim), arrays[0]
    if any(a.shape[:axis] + a.shape[axis + 1:] != first.shape[:axis] + first.shape[axis + 1:] or
           a.ndim != first.ndim for a in arrays):
        raise ArgumentError(
            22,
            f"kasane.concat: arrays of shapes {', '.join(str(a.shape) for a in arrays)} along "
            f"dimension {axis}",
        )
    dtype = np.result_type(*(a.dtype for a in arrays))
    ends = np.cumsum([a.shape[axis] for a in arrays])
    shape = first.shape[:axis] + (int(ends[-1]),) + first.shape[axis + 1:]

    def block(low, high):
        parts = []
        for a, end in zip(arrays, ends):
            begin = int(end) - a.shape[axis]
            b, e = max(low[axis], begin), min(high[axis], int(end))
            if b < e:
                at = slice(axis, axis + 1)
                lo, hi = list(low), list(high)
                lo[at], hi[at] = [b - begin], [e - begin]
                parts.append(a.block(tuple(lo), tuple(hi)))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)

    return finished(Lazy(shape, dtype, arrays, block, ("concat", axis)), *arrays)


concatenate = concat


def stack(arrays, axis=0):
    """Arrays of one shape along a new dimension. Collective."""
    arrays = [_operand(a) for a in arrays]
    if len({a.shape for a in arrays}) != 1:
        raise ArgumentError(22, "kasane.stack: give arrays of one shape")
    n = arrays[0].ndim + 1
    axis = axis_of(axis, n)
    dtype = np.result_type(*(a.dtype for a in arrays))
    shape = arrays[0].shape[:axis] + (len(arrays),) + arrays[0].shape[axis:]

    def block(low, high):
        box = low[:axis] + low[axis + 1:], high[:axis] + high[axis + 1:]
        return np.stack([a.block(*box) for a in arrays[low[axis]:high[axis]]], axis)

    return finished(Lazy(shape, dtype, arrays, block, ("stack", axis)), *arrays)


def unstack(x, axis=0):
    """A tuple of arrays, one for each index of a dimension. Collective."""
    x = _operand(x)
    axis = axis_of(axis, x.ndim)
    return tuple(_part(x, axis, i) for i in range(x.shape[axis]))


def _part(x, axis, i):
    def block(low, high):
        return x.block((*low[:axis], i, *low[axis:]), (*high[:axis], i + 1, *high[axis:])).squeeze(axis)

    return finished(Lazy(x.shape[:axis] + x.shape[axis + 1:], x.dtype, [x], block, ("unstack", axis, i)), x)


def repeat(x, repeats, axis=None):
    """Each element of a dimension several times. Collective."""
    from ._indexing import take
    x = _operand(x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    counts = repeats if np.ndim(repeats) == 0 and not isinstance(repeats, Operand) else np.asarray(repeats)
    counts = np.broadcast_to(np.asarray(counts), (x.shape[axis],)) if np.size(counts) == 1 else counts
    return take(x, np.repeat(np.arange(x.shape[axis]), counts), axis)


def tile(x, repetitions):
    """The whole array several times along its dimensions. Collective."""
    from ._indexing import take
    x = _operand(x)
    counts = (repetitions,) if np.ndim(repetitions) == 0 else tuple(repetitions)
    counts = (1,) * (x.ndim - len(counts)) + counts
    x = _reshaped(x, (1,) * (len(counts) - x.ndim) + x.shape, "tile")
    for d, n in enumerate(counts):
        if n != 1:
            x = take(x, np.arange(n * x.shape[d]) % max(1, x.shape[d]), d)
    return x


def diff(x, n=1, axis=-1, prepend=None, append=None):
    """Differences of neighbours along a dimension. Collective."""
    x = _operand(x)
    axis = axis_of(axis, x.ndim)
    parts = [p for p in (prepend, x, append) if p is not None]
    x = concat(parts, axis) if len(parts) > 1 else x
    for _ in range(n):
        x = _differences(x, axis)
    return x


def _differences(x, axis):
    def block(low, high):
        return np.diff(x.block(low, tuple(e + (d == axis) for d, e in enumerate(high))), axis=axis)

    shape = tuple(max(0, n - (d == axis)) for d, n in enumerate(x.shape))
    return finished(Lazy(shape, x.dtype, [x], block, ("diff", axis)), x)


def section(x, index):
    """The elements x[index] as a new distributed array; index: integers, slices, ``...``. Collective."""
    from ._index import ranges
    x = _operand(x)
    parts = ranges(index, x.shape)
    kept = [d for d, r in enumerate(parts) if isinstance(r, range)]

    def block(low, high):
        entries = list(parts)
        for d, b, e in zip(kept, low, high):
            r = parts[d][b:e]
            entries[d] = slice(r.start, r.stop if r.stop >= 0 else None, r.step) if len(r) else slice(0, 0)
        return np.asarray(x.get(tuple(entries)))

    x = evaluate(x) if isinstance(x, Lazy) else x
    return evaluate(Lazy([len(parts[d]) for d in kept], x.dtype, [x], block, ("section", str(parts))))
