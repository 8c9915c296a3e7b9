# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, vectors and stacks of matrices, and what is made of them; ``kasane.linalg`` has it,
too."""
import math

import numpy as np

from . import _core
from ._array import Array
from ._blocks import Lazy, Operand, PIECE, distribution, evaluate, lazy, meter, pointwise
from ._creation import asarray
from ._errors import ArgumentError
from ._manipulation import axes_of, permute_dims, reshape
from ._progress import whole
from ._reductions import reduce, sum

_STEP = 512  # of the inner dimension, at once


def _array(x, call):
    if not isinstance(x, (Operand, np.ndarray, np.generic)):
        raise TypeError(f"kasane.{call}: give distributed arrays, matrices or vectors")
    x = x if isinstance(x, Operand) else asarray(x)
    return evaluate(x) if isinstance(x, Lazy) else x


def matmul(a, b, out=None, alpha=1, beta=0):
    """``alpha a b + beta out``, as numpy.matmul has it of vectors, matrices and stacks. Collective.

    Matrices of float32, float64, complex64 or complex128, of one type, are multiplied by the BLAS, and alpha
    and beta are for those. Tiles of 512 x 512 or more suit them best.
    """
    a, b = _array(a, "matmul"), _array(b, "matmul")
    if not a.ndim or not b.ndim:
        raise ArgumentError(22, "kasane.matmul: a number; use *")
    inner = b.shape[0] if b.ndim == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        raise ArgumentError(22, f"kasane.matmul: matrices of {a.shape} and {b.shape}")
    dtype = np.result_type(a.dtype, b.dtype)
    if a.ndim == b.ndim == 2 and a.dtype == b.dtype and dtype.name in ("float32", "float64", "complex64",
                                                                      "complex128") and a.size and b.size:
        return _by_blas(a, b, out, alpha, beta)
    if (alpha, beta) != (1, 0):
        raise TypeError("kasane.matmul: alpha and beta are for matrices of one type of floating point")
    if a.ndim + b.ndim <= 3:
        made = _with_vector(a, b, dtype)
    else:
        made = _of_stacks(a, b, dtype)
    return made if out is None else evaluate(lazy(made), out)


def _by_blas(a, b, out, alpha, beta):
    if out is None:
        tiles = (a.tile[0], b.tile[1]) if a.how["tiles"] and b.how["tiles"] else None
        out = Array((a.shape[0], b.shape[1]), a.dtype, tiles=tiles)
        beta = 0
    elif not isinstance(out, Array) or out.dtype != a.dtype or out.ndim != 2:
        raise TypeError("kasane.matmul: give distributed matrices of one type of elements")
    letter = a._letter("matmul", "fc")
    alpha, beta = (complex(out._number(*number)) for number in (("alpha", alpha), ("beta", beta)))
    whole("kasane: matmul", lambda: _core.gemm(alpha, a._core, b._core, beta, out._core, letter,
                                               meter(out.size // _core.ranks())))
    return out


def _with_vector(a, b, dtype):
    """A product where one is a vector, which reads a matrix where it lies."""
    matrix, vector, axis = (a, b, a.ndim - 1) if b.ndim == 1 else (b, a, 0)
    v = vector if matrix.ndim == 1 or axis else _column(vector)

    def state(_, block, part):
        part = np.asarray(part).reshape(-1)
        product = block @ part if axis == block.ndim - 1 else part @ block
        return (np.expand_dims(np.asarray(product, dtype), axis),)

    return reduce(
        "matmul",
        matrix,
        axis,
        False,
        [dtype],
        state,
        lambda s, t: (np.add(s[0], t[0], dtype=dtype),),
        lambda s: s,
        dtype,
        0,
        others=[v],
    )


def _column(v):
    return Lazy(
        (v.shape[0], 1), v.dtype, [v], lambda low, high: v.block(low[:1], high[:1])[:, None], ("column",)
    )


def _of_stacks(a, b, dtype):
    if a.ndim == 1 or b.ndim == 1:  # of a stack and a vector
        made = _of_stacks(
            a if a.ndim > 1 else reshape(a, (1, -1)), b if b.ndim > 1 else reshape(b, (-1, 1)), dtype
        )
        return reshape(made, made.shape[:-1] if b.ndim == 1 else (*made.shape[:-2], made.shape[-1]))
    front = _broadcast_front(a, b)
    shape = (*front, a.shape[-2], b.shape[-1])
    n, k = len(front), a.shape[-1]

    def block(low, high):
        rows, columns = high[n] - low[n], high[n + 1] - low[n + 1]
        stacked = math.prod(e - b for b, e in zip(low[:n], high[:n]))
        total = np.zeros([e - b for b, e in zip(low, high)], dtype)
        step = max(1, min(k, max(_STEP, 4 * PIECE // max(1, stacked * (rows + columns) * dtype.itemsize))))
        for begin in range(0, k, step):
            end = min(k, begin + step)
            left = _front(a, (*low[:n], low[n], begin), (*high[:n], high[n], end))
            right = _front(b, (*low[:n], begin, low[n + 1]), (*high[:n], end, high[n + 1]))
            total += np.matmul(left, right, dtype=dtype)
        return total

    return evaluate(Lazy(shape, dtype, [a, b], block, ("matmul",)))


def _broadcast_front(a, b):
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ArgumentError(22, f"kasane.matmul: stacks of {a.shape} and {b.shape}") from None


def _front(x, low, high):
    """The box of x, whose dimensions but the last two are broadcast."""
    skip = len(low) - x.ndim
    first, last = list(low[skip:]), list(high[skip:])
    for d in range(x.ndim - 2):
        if x.shape[d] == 1:
            first[d], last[d] = 0, 1
    return x.block(tuple(first), tuple(last))


def vecdot(x1, x2, axis=-1):
    """The sum of conj(x1) x2 along a dimension. Collective."""
    x1 = x1 if isinstance(x1, Operand) else asarray(x1)
    x2 = x2 if isinstance(x2, Operand) else asarray(x2)
    dtype = np.result_type(x1.dtype, x2.dtype)
    if x1.shape[axis] != x2.shape[axis]:
        raise ArgumentError(22, f"kasane.vecdot: vectors of {x1.shape[axis]} and {x2.shape[axis]} elements")
    left = pointwise(np.conjugate, [x1]) if x1.dtype.kind == "c" else x1
    return sum(pointwise(np.multiply, [left, x2]), axis, dtype=dtype)


def tensordot(x1, x2, axes=2):
    """The sum of products over some dimensions of each. Collective."""
    x1, x2 = _array(x1, "tensordot"), _array(x2, "tensordot")
    if np.ndim(axes) == 0:
        ours, theirs = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        ours, theirs = axes_of(axes[0], x1.ndim), axes_of(axes[1], x2.ndim)
    if [x1.shape[d] for d in ours] != [x2.shape[d] for d in theirs]:
        raise ArgumentError(22, f"kasane.tensordot: dimensions of {x1.shape} and {x2.shape} that do not fit")
    left = [d for d in range(x1.ndim) if d not in ours]
    right = [d for d in range(x2.ndim) if d not in theirs]
    shape = [x1.shape[d] for d in left] + [x2.shape[d] for d in right]
    rows, inner = math.prod(x1.shape[d] for d in left), math.prod(x1.shape[d] for d in ours)
    a = reshape(permute_dims(x1, [*left, *ours]), (rows, inner))
    b = reshape(permute_dims(x2, [*theirs, *right]), (inner, math.prod(shape) // rows if rows else
                                                      math.prod(x2.shape[d] for d in right)))
    return reshape(matmul(a, b), shape)


def outer(x1, x2):
    """All products of two vectors' elements. Collective."""
    from ._elementwise import multiply
    x1, x2 = _array(x1, "outer"), _array(x2, "outer")
    return multiply(reshape(x1, (-1, 1)), reshape(x2, (1, -1)))


def diagonal(x, offset=0):
    """The diagonals of matrices. Collective."""
    x = x if isinstance(x, Operand) else asarray(x)
    x = evaluate(x) if isinstance(x, Lazy) else x
    from ._indexing import fetch
    rows, columns = x.shape[-2:]
    n = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    shape = (*x.shape[:-2], n)

    def block(low, high):
        index = [np.arange(b, e).reshape([-1 if i == d else 1 for i in range(len(shape))])
                 for d, (b, e) in enumerate(zip(low, high))]
        return fetch(x, [*index[:-1], index[-1] - min(offset, 0), index[-1] + max(offset, 0)])

    return evaluate(Lazy(shape, x.dtype, [x], block, ("diagonal", offset)))


def trace(x, offset=0, dtype=None):
    """The sum of the diagonal of matrices. Collective."""
    return sum(diagonal(x, offset), -1, dtype)


def vector_norm(x, axis=None, keepdims=False, ord=2):  # noqa: A002
    """The norm of vectors: the root of the sum of squares, or another by its order. Collective."""
    from ._elementwise import abs, sqrt
    from ._reductions import count_nonzero, max, min
    size = abs(lazy(x if isinstance(x, Operand) else asarray(x)))
    if ord == math.inf:
        return max(size, axis, keepdims=keepdims)
    if ord == -math.inf:
        return min(size, axis, keepdims=keepdims)
    if ord == 0:
        return _as(count_nonzero(size, axis, keepdims), size.dtype)
    total = sum(pointwise(np.multiply, [size, size]) if ord == 2 else pointwise(np.power, [size, ord]), axis,
                dtype=size.dtype, keepdims=keepdims)
    if ord == 1:
        return total
    if ord == 2:
        return sqrt(total) if isinstance(total, Array) else np.sqrt(total)
    return total ** (1 / ord)


def _as(x, dtype):
    from ._elementwise import astype
    return astype(x, dtype) if isinstance(x, Array) else x.astype(dtype)


def norm(x, ord=None, axis=None, keepdims=False):  # noqa: A002
    """The root of the sum of squares, of all elements or along dimensions; of vectors another by its order.
    Collective."""
    if ord is not None and x.ndim > 1 and not isinstance(axis, int):
        raise TypeError(
            "kasane.linalg.norm: of matrices by ord=None; or matrix_norm, for each in one rank's memory"
        )
    return vector_norm(x, axis, keepdims, 2 if ord is None else ord)
