# SPDX-License-Identifier: Apache-2.0
"""Reductions over all elements, or along dimensions: each rank reads what lies there, once.

A reduction is a function of a block, which gives its state (NumPy arrays with an extent of 1 where the block
was reduced), and the combination of two states, the earlier one first. States are combined pairwise, so that
errors of rounding grow with the logarithm of the number of elements.
"""
import builtins
import functools
import math

import numpy as np

from . import _core
from ._array import Array
from ._blocks import (PIECE, WRITE_ONLY, Lazy, Operand, boxes_of_tiles, counted, distribution, elements,
                      pieces, pointwise, share, slices, text, tile_of, together)
from ._creation import array, asarray
from ._errors import ArgumentError

_READ = 1 << 18  # elements that are read at once where nothing is computed of them but the state
_SMALL = 1 << 20  # bytes of a result that every rank has, until they combine theirs


class _Partial:
    """The states of blocks, of one box of the result or of several."""

    def __init__(self, combine):
        self._combine, self._stacks = combine, {}

    def add(self, box, state):
        stack, n = self._stacks.setdefault(box, []), 1
        while stack and stack[-1][0] == n:
            state, n = self._combine(stack.pop()[1], state), 2 * n
        stack.append((n, state))

    def total(self, shape, kinds):
        """Where any state is, and the states, for all of the result."""
        seen, total = np.zeros(shape, bool), tuple(np.zeros(shape, k) for k in kinds)
        for box, stack in self._stacks.items():
            state = stack[-1][1]
            for _, earlier in reversed(stack[:-1]):
                state = self._combine(earlier, state)
            merge(self._combine, seen, total, slices(*box), np.ones(state[0].shape, bool), state)
        return seen, total


    def whole(self, box, n):
        """Whether there is any state of a box, and the state, as bytes; n: of these."""
        if box not in self._stacks:
            return bytes(n)
        state, *others = [s for _, s in reversed(self._stacks[box])]
        for earlier in others:
            state = self._combine(earlier, state)
        return b"".join([b"\1", *(s.tobytes() for s in state)])


def merge(combine, seen, total, at, some, state):
    """Combines a state, where there is some, with the total of a box."""
    before = seen[at]
    both = combine(tuple(t[at] for t in total), state) if before.any() else state
    for t, new, joint in zip(total, state, both):
        t[at] = np.where(before & some, joint, np.where(some, new, t[at]))
    seen[at] |= some


def _axes(axis, ndim):
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = []
    for d in given:
        if not -ndim <= d < ndim:
            raise np.AxisError(d, ndim) if hasattr(np, "AxisError") else np.exceptions.AxisError(d, ndim)
        axes.append(d % ndim)
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return tuple(axes)


def _reduced(box, axes):
    return tuple(tuple(end if d in axes else x for d, x in enumerate(xs)) for xs, end in zip(box, (0, 1)))


def reduce(
    call, x, axis, keepdims, kinds, block_state, combine, finish, dtype, empty=None, others=(), out=None,
    reads=False
):
    """The reduction of an operand; of axis None, or of all dimensions, a number, the same at all ranks.

    block_state(low, block, *blocks of others): the state. kinds: types of the state. finish(states):
    elements of type dtype. empty: the result where nothing is reduced; None: it is refused. reads: a state
    needs no memory of the size of the block.
    """
    axes = _axes(axis, x.ndim)
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    shape = kept if keepdims else tuple(n for d, n in enumerate(x.shape) if d not in axes)
    key = repr(
        [call, axes, shape, dtype.char, *(k.keys for k in (x, *others) if isinstance(k, Lazy))]
    ).encode()
    leaves = list(x.leaves) + [a for o in others if isinstance(o, Operand) for a in o.leaves]
    if empty is None and 0 in (x.shape[d] for d in axes) and math.prod(kept):
        raise ValueError(f"zero-size array to reduction operation {call} which has no identity")

    one = ((0,) * x.ndim, (1,) * x.ndim) if len(axes) == x.ndim else None

    as_they_are = reads and (not isinstance(x, Lazy) or builtins.any(f is x for f in x.files))
    most = _READ if as_they_are else None

    def partial(boxes=None):
        part = _Partial(combine)
        for low, high in share(x, most) if boxes is None else boxes:
            state = block_state(low, x.block(low, high), *[elements(o, low, high) for o in others])
            part.add(one or _reduced((low, high), axes), state)
        return part

    def done(seen, total):
        values = np.asarray(finish(*total)).astype(dtype, copy=False)
        return values if empty is None or seen.all() else np.where(seen, values, dtype.type(empty))

    each = builtins.sum([k.itemsize for k in kinds]) + 1
    with np.errstate(all="ignore"):
        if math.prod(kept) * each <= _SMALL:
            collect = _number if one and out is None else _small
            return collect(call, x, kept, shape, key, leaves, partial, done, combine, kinds, out)
        return _large(call, x, axes, kept, shape, key, leaves, partial, done, kinds, dtype, out)


def _number(call, x, kept, shape, key, reads, partial, done, combine, kinds, _):
    """All elements become one state, of which every rank has its own; all of them combine all."""
    length = 1 + builtins.sum([k.itemsize for k in kinds])
    total = None
    for theirs in together(f"kasane: {call}", reads, key,
                           lambda: partial().whole(((0,) * x.ndim, kept), length), length):
        if theirs[0]:
            state = _states(theirs, kinds, kept, 1)
            total = state if total is None else combine(total, state)
    seen = np.ones(kept, bool) if total else np.zeros(kept, bool)
    values = done(seen, total or tuple(np.zeros(kept, k) for k in kinds)).reshape(shape)
    return array(values) if shape else values[()]


def _states(theirs, kinds, kept, at):
    """The arrays of a state of which a rank has sent the bytes from ``at`` on."""
    n, state = math.prod(kept), []
    for k in kinds:
        state.append(np.frombuffer(theirs, k, n, at).reshape(kept))
        at += state[-1].nbytes
    return tuple(state)


def _small(call, x, kept, shape, key, reads, partial, done, combine, kinds, out):
    """Each rank reduces what it has, and all of them combine all states."""
    n = math.prod(kept)

    def work():
        seen, total = partial().total(kept, kinds)
        return b"".join([seen.tobytes(), *(t.tobytes() for t in total)])

    length = n * (1 + builtins.sum([k.itemsize for k in kinds]))
    seen, total = np.zeros(kept, bool), tuple(np.zeros(kept, k) for k in kinds)
    for theirs in together(f"kasane: {call}", reads, key, work, length):
        some = np.frombuffer(theirs, bool, n).reshape(kept)
        merge(combine, seen, total, ..., some, _states(theirs, kinds, kept, n))
    values = done(seen, total).reshape(shape)
    if out is not None:
        out.put(..., values)  # by every rank, the same
        _core.barrier()
        return out
    return array(values) if shape else values[()]


def _large(call, x, axes, kept, shape, key, reads, partial, done, kinds, dtype, out):
    """Each rank computes its pieces of the result of all elements that they need."""
    result = Array(shape, dtype, **distribution(shape, reads)) if out is None else out
    tile, most = tile_of(x), builtins.max(1, PIECE // x.dtype.itemsize)
    squeezed = [d for d in range(x.ndim) if d not in axes] if len(shape) != x.ndim else list(range(x.ndim))

    def work():
        for low, high, view in result.each_piece(WRITE_ONLY):
            first, last = [0] * x.ndim, list(x.shape)
            for d, b, e in zip(squeezed, low, high):
                if d not in axes:
                    first[d], last[d] = b, e
            boxes = (p for box in boxes_of_tiles(first, last, tile) for p in pieces(*box, most))
            part = partial(boxes)
            origin = [0 if d in axes else b for d, b in enumerate(first)]
            part._stacks = {
                (tuple(b - o for b, o in zip(lo, origin)), tuple(e - o for e, o in zip(hi, origin))): s
                for (lo, hi), s in part._stacks.items()
            }
            extents = tuple(1 if d in axes else e - b for d, (b, e) in enumerate(zip(first, last)))
            view[...] = done(*part.total(extents, kinds)).reshape(view.shape)

    together(f"kasane: {call}", [*reads, result], key, work)
    return result


# ---- by a ufunc -----------------------------------------------------------------------------------------

ASSOCIATIVE = (np.add, np.multiply, np.minimum, np.maximum, np.fmin, np.fmax, np.logical_and, np.logical_or,
               np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def by_ufunc(ufunc, x, axis=None, dtype=None, keepdims=False, out=None):
    """ufunc.reduce. TypeError: it depends on the order of elements."""
    if ufunc not in ASSOCIATIVE:
        raise TypeError(f"kasane: {ufunc.__name__}.reduce depends on the order of elements, and ranks "
                        f"combine their parts; there are {', '.join(u.__name__ for u in ASSOCIATIVE)}")
    options = {} if dtype is None else {"dtype": dtype}
    kind = _kind_of(ufunc, x.dtype, dtype)
    axes = _axes(axis, x.ndim)
    identity = ufunc.identity

    def state(_, block):
        return (np.asarray(ufunc.reduce(block, axis=axes, keepdims=True, **options)),)

    return reduce(ufunc.__name__, x, axes, keepdims, [kind], state, lambda s, t: (ufunc(s[0], t[0]),),
                  lambda s: s, kind, identity, out=out, reads=True)


@functools.lru_cache(None)
def _kind_of(ufunc, kind, dtype):
    return ufunc.reduce(np.empty(1, kind), dtype=dtype).dtype


def sum(x, axis=None, dtype=None, out=None, keepdims=False):  # noqa: A001
    """The sum, pairwise as NumPy's. Without axis a number, the same at all ranks. Collective."""
    return by_ufunc(np.add, _operand(x), axis, dtype, keepdims, out)


def prod(x, axis=None, dtype=None, out=None, keepdims=False):
    """The product. Collective."""
    return by_ufunc(np.multiply, _operand(x), axis, dtype, keepdims, out)


def min(x, axis=None, out=None, keepdims=False):  # noqa: A001
    """The smallest element. Collective."""
    return by_ufunc(np.minimum, _operand(x), axis, None, keepdims, out)


def max(x, axis=None, out=None, keepdims=False):  # noqa: A001
    """The largest element. Collective."""
    return by_ufunc(np.maximum, _operand(x), axis, None, keepdims, out)


def any(x, axis=None, out=None, keepdims=False):  # noqa: A001
    """Whether any element is not zero. Collective."""
    return by_ufunc(np.logical_or, _operand(x), axis, None, keepdims, out)


def all(x, axis=None, out=None, keepdims=False):  # noqa: A001
    """Whether no element is zero. Collective."""
    return by_ufunc(np.logical_and, _operand(x), axis, None, keepdims, out)


def count_nonzero(x, axis=None, keepdims=False):
    """How many elements are not zero. Collective."""
    return sum(pointwise(np.not_equal, [_operand(x), 0]), axis, np.intp, None, keepdims)


def dot(a, b):
    """The sum of a's elements times b's, over all dimensions, without conjugates. Collective.

    For vectors as numpy.dot; the product of matrices is ``a @ b``.
    """
    for x in (a, b):
        if not isinstance(x, Operand):
            raise TypeError("kasane.dot: give distributed arrays")
    if a.shape != b.shape:
        raise ArgumentError(22, f"kasane.dot: arrays of shapes {a.shape} and {b.shape}")
    kind = np.result_type(a.dtype, b.dtype)

    def state(_, x, y):
        value = np.dot(x.ravel(), y.ravel()) if x.flags.c_contiguous else np.sum(x * y)
        return (np.asarray(value, kind).reshape((1,) * a.ndim),)

    return reduce("dot", a, None, False, [kind], state, lambda s, t: (s[0] + t[0],), lambda s: s, kind, 0,
                  others=[b])


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are equal within a tolerance. Collective."""
    from ._elementwise import isclose
    return bool(all(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a, b):
    """Whether shapes and elements are equal. Collective."""
    a, b = _operand(a), _operand(b)
    return a.shape == b.shape and bool(all(pointwise(np.equal, [a, b])))


# ---- moments --------------------------------------------------------------------------------------------


def _of_mean(x, dtype):
    """The types in which a mean is computed and given."""
    given = np.dtype(dtype) if dtype is not None else x.dtype if x.dtype.kind in "fc" else np.dtype(float)
    return np.promote_types(given, np.float32), given


def mean(x, axis=None, dtype=None, out=None, keepdims=False):
    """The arithmetic mean. Collective."""
    x = _operand(x)
    work, kind = _of_mean(x, dtype)
    axes = _axes(axis, x.ndim)
    n = math.prod(x.shape[d] for d in axes)

    def state(_, block):
        return (np.add.reduce(block, axis=axes, keepdims=True, dtype=work),)

    return reduce("mean", x, axes, keepdims, [work], state, lambda s, t: (s[0] + t[0],),
                  lambda s: np.true_divide(s, n), kind, np.nan, out=out, reads=True)


def var(x, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, correction=None):
    """The variance: the mean of squares of differences from the mean, over n - correction. Collective."""
    return _moments(
        "var", x, axis, dtype, out, ddof if correction is None else correction, keepdims, lambda v: v
    )


def std(x, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, correction=None):
    """The standard deviation: the root of the variance. Collective."""
    return _moments("std", x, axis, dtype, out, ddof if correction is None else correction, keepdims, np.sqrt)


def _moments(call, x, axis, dtype, out, correction, keepdims, of_variance):
    """Counts, means and sums of squares are combined as Chan, Golub and LeVeque (1979) do."""
    x = _operand(x)
    work, kind = _of_mean(x, dtype)
    real = np.empty(0, work).real.dtype
    kind = np.empty(0, kind).real.dtype
    axes = _axes(axis, x.ndim)

    def state(_, block):
        n = math.prod(block.shape[d] for d in axes)
        middle = np.add.reduce(block, axis=axes, keepdims=True, dtype=work) / n
        away = np.asarray(block - middle)
        squares = (away * away.conj()).real if work.kind == "c" else np.multiply(away, away, out=away)
        return (np.full(middle.shape, n, float), middle.astype(work, copy=False),
                np.add.reduce(squares, axis=axes, keepdims=True, dtype=real))

    def combine(s, t):
        n, apart = s[0] + t[0], t[1] - s[1]
        of_apart = (apart * np.conj(apart)).real
        return (n, (s[1] + apart * (t[0] / n)).astype(work, copy=False),
                (s[2] + t[2] + of_apart * (s[0] * (t[0] / n))).astype(real, copy=False))

    def finish(n, _, squares):
        return of_variance(squares / np.maximum(n - correction, 0))

    return reduce(
        call, x, axes, keepdims, [np.dtype(float), work, real], state, combine, finish, kind, np.nan, out=out
    )


# ---- where the extremes are -----------------------------------------------------------------------------


def argmin(x, axis=None, out=None, keepdims=False):
    """The index of the smallest element along an axis, or in C's order of all; the first one. Collective."""
    return _extreme("argmin", np.argmin, np.less, x, axis, out, keepdims)


def argmax(x, axis=None, out=None, keepdims=False):
    """The index of the largest element along an axis, or in C's order of all; the first one. Collective."""
    return _extreme("argmax", np.argmax, np.greater, x, axis, out, keepdims)


def _extreme(call, find, better, x, axis, out, keepdims):
    x = _operand(x)

    def state(low, block):
        if axis is not None:
            at = np.expand_dims(np.asarray(find(block, axis=axis)), axis)
            return np.take_along_axis(block, at, axis), (at + low[axis]).astype(np.int64)
        at = find(block)
        index = tuple(int(i) + b for i, b in zip(np.unravel_index(at, block.shape), low))
        one = (1,) * block.ndim
        where = np.ravel_multi_index(index, x.shape) if index else 0
        return block.reshape(-1)[at].reshape(one), np.full(one, where, np.int64)

    def combine(s, t):
        nan_s, nan_t = s[0] != s[0], t[0] != t[0]
        later = np.where(
            nan_s == nan_t, (nan_s | (s[0] == t[0])) & (t[1] < s[1]) | better(t[0], s[0]) & ~nan_s, nan_t
        )
        return np.where(later, t[0], s[0]), np.where(later, t[1], s[1])

    if axis is not None and not isinstance(axis, tuple):
        axis, = _axes(axis, x.ndim)
    return reduce(call, x, axis, keepdims, [x.dtype, np.dtype(np.int64)], state, combine, lambda _, i: i,
                  np.dtype(np.intp), out=out)


# ---- running sums ---------------------------------------------------------------------------------------


def cumulative_sum(x, *, axis=None, dtype=None, include_initial=False):
    """Sums of the elements up to each one along an axis. Collective. Lines are dealt to the ranks."""
    return _scan("cumulative_sum", np.add, x, axis, dtype, include_initial, 0)


def cumulative_prod(x, *, axis=None, dtype=None, include_initial=False):
    """Products of the elements up to each one along an axis. Collective. Lines are dealt to the ranks."""
    return _scan("cumulative_prod", np.multiply, x, axis, dtype, include_initial, 1)


def cumsum(x, axis=None, dtype=None, out=None):
    """cumulative_sum; without axis of all elements in C's order. Collective."""
    return _cum(cumulative_sum, x, axis, dtype, out)


def cumprod(x, axis=None, dtype=None, out=None):
    """cumulative_prod; without axis of all elements in C's order. Collective."""
    return _cum(cumulative_prod, x, axis, dtype, out)


def _cum(scan, x, axis, dtype, out):
    from ._blocks import evaluate, lazy
    from ._manipulation import reshape
    x = _operand(x)
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (x, axis)
    made = scan(x, axis=axis, dtype=dtype)
    return made if out is None else evaluate(lazy(made), out)


def _scan(call, ufunc, x, axis, dtype, include_initial, initial):
    x = _operand(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"kasane.{call}: give the axis of an array of {x.ndim} dimensions")
        axis = 0
    axis, = _axes(axis, x.ndim)
    kind = ufunc.reduce(np.empty(1, x.dtype)).dtype if dtype is None else np.dtype(dtype)
    more = 1 if include_initial else 0
    shape = tuple(n + more if d == axis else n for d, n in enumerate(x.shape))
    result = Array(shape, kind, **distribution(shape, x.leaves))

    def work():
        carry = None
        if more:
            for low, high in lines(x, axis):
                at = slices(low, high)
                result.put(at[:axis] + (slice(0, 1),) + at[axis + 1:], initial)
        for begin, end in counted(step for line in lines(x, axis) for step in steps(x, *line, axis)):
            block = ufunc.accumulate(x.block(begin, end), axis=axis, dtype=kind)
            if begin[axis]:
                block = ufunc(block, carry, dtype=kind)
            carry = block[(slice(None),) * axis + (slice(-1, None),)].copy()
            to = slices(begin, end)
            result.put(
                to[:axis] + (slice(to[axis].start + more, to[axis].stop + more),) + to[axis + 1 :], block
            )

    together(f"kasane: {call}", [*x.leaves, result], text(axis, more), work)
    return result


def lines(x, axis, most=PIECE):
    """This rank's share of the lines along an axis: boxes that are whole along it."""
    first, last = [0] * x.ndim, list(x.shape)
    last[axis] = 1
    if math.prod(last) == 0:
        return
    line = builtins.max(1, x.shape[axis] * x.dtype.itemsize)
    bundle = builtins.max(1, builtins.min(math.prod(last) // _core.ranks(), builtins.max(most // line, 64)))
    for k, (low, high) in enumerate(pieces(first, last, bundle)):
        if k % _core.ranks() == _core.rank():
            yield low, tuple(x.shape[axis] if d == axis else e for d, e in enumerate(high))


def steps(x, low, high, axis):
    """A bundle of lines cut along them."""
    across = math.prod(e - b for d, (b, e) in enumerate(zip(low, high)) if d != axis)
    step = builtins.max(1, 4 * PIECE // x.dtype.itemsize // across)
    for begin in range(0, x.shape[axis], step):
        end = builtins.min(begin + step, x.shape[axis])
        yield (tuple(begin if d == axis else b for d, b in enumerate(low)),
               tuple(end if d == axis else e for d, e in enumerate(high)))


def _operand(x):
    return x if isinstance(x, Operand) else asarray(x)
