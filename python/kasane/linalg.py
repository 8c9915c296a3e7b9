# SPDX-License-Identifier: Apache-2.0
"""Linear algebra, as numpy.linalg and the Array API standard name it.

Products are computed by all ranks together. cholesky, inv, qr and solve of one large matrix are, too, and it
may be larger than memory (_panels); so are qr and svd of a tall one. All else is NumPy's, of each matrix by
one rank, in whose memory it has to fit: many small matrices are dealt to the ranks.
"""
import math
from collections import namedtuple

import numpy as np

from . import _core, _panels
from ._array import Array
from ._blocks import Lazy, Operand, counted, distribution, evaluate, finished, lazy, meter, pieces
from ._blocks import pointwise, slices, text, together
from ._creation import asarray, eye, zeros
from ._errors import ArgumentError
from ._linalg import diagonal, matmul, norm, outer, tensordot, trace, vecdot, vector_norm
from ._manipulation import matrix_transpose, reshape

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "norm", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]

_BLOCK = 32 << 20  # bytes of what one rank factorises at once

EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = namedtuple("SVDResult", "U S Vh")


def _each(call, f, arrays, values=()):
    """The arrays of what f gives of the matrices, or vectors, of stacks, each of them by one rank.

    arrays: pairs of an operand and the number of its dimensions that f takes.
    """
    given = [(evaluate(lazy(x)) if isinstance(x, Lazy) else x if isinstance(x, Operand) else asarray(x), n)
             for x, n in arrays]
    for x, n in given:
        if x.ndim < n:
            raise ArgumentError(22, f"kasane.linalg.{call}: an array of shape {x.shape}; give matrices")
    front = np.broadcast_shapes(*(x.shape[:x.ndim - n] for x, n in given))
    tiny = f(
        *(
            (
                np.eye(*x.shape[x.ndim - 2 :], dtype=x.dtype)
                if n == 2
                else np.ones(x.shape[x.ndim - n :], x.dtype)
            )
            for x, n in given
        )
    )
    several = isinstance(tiny, tuple)
    results = [Array((*front, *np.shape(t)), np.asarray(t).dtype) for t in (tiny if several else (tiny,))]

    def work():
        told = meter(-(-math.prod(front) // _core.ranks()))
        for k, at in enumerate(np.ndindex(*front)):
            if k % _core.ranks() != _core.rank():
                continue
            parts = []
            for x, n in given:
                own = at[len(at) - (x.ndim - n):]
                own = tuple(0 if extent == 1 else i for i, extent in zip(own, x.shape))
                parts.append(np.asarray(x.get((*own, ...))))
            made = f(*parts)
            for result, value in zip(results, made if several else (made,)):
                result.put((*at, ...), value)
            if told:
                told(1)

    together(f"kasane: {call}", [*(x for x, _ in given), *results], text(*values), work)
    return tuple(results) if several else results[0]


def cholesky(x, upper=False):
    """The lower, or the upper triangles whose products with their conjugate transposes are x. Collective."""
    if _is_large(x, True):
        lower = _panels.cholesky(x)
        return evaluate(pointwise(np.conjugate, [matrix_transpose(lower)])) if upper else lower

    def f(a):
        a = np.linalg.cholesky(a)
        return a.conj().T if upper else a

    return _each("cholesky", f, [(x, 2)], (upper,))


def det(x):
    """Determinants. Collective."""
    return _each("det", np.linalg.det, [(x, 2)])


def eigh(x):
    """(eigenvalues, eigenvectors) of symmetric or Hermitian matrices. Collective."""
    return EighResult(*_each("eigh", lambda a: tuple(np.linalg.eigh(a)), [(x, 2)]))


def eigvalsh(x):
    """Eigenvalues of symmetric or Hermitian matrices. Collective."""
    return _each("eigvalsh", np.linalg.eigvalsh, [(x, 2)])


def inv(x):
    """Inverses. Collective."""
    if _is_large(x, True):
        return solve(x, eye(len(x), dtype=_panels.dtype_of(x), **distribution(x.shape, x.leaves, x.chunks)))
    return _each("inv", np.linalg.inv, [(x, 2)])


def matrix_norm(x, keepdims=False, ord="fro"):  # noqa: A002
    """Norms of matrices; "fro" is the root of the sum of squares. Collective."""
    return _each(
        "matrix_norm", lambda a: np.linalg.norm(a, ord, keepdims=keepdims), [(x, 2)], (str(ord), keepdims)
    )


def matrix_power(x, n):
    """Matrices multiplied by themselves. Collective."""
    return _each("matrix_power", lambda a: np.linalg.matrix_power(a, n), [(x, 2)], (n,))


def matrix_rank(x, rtol=None):
    """How many singular values are larger than rtol, a number for each matrix, times the largest.
    Collective."""
    def f(a, rtol=None):
        s = np.linalg.svd(a, compute_uv=False)
        bound = max(a.shape) * np.finfo(s.dtype).eps if rtol is None else rtol
        return np.int64(np.count_nonzero(s > bound * s.max(initial=0)))

    return _each("matrix_rank", f, [(x, 2)] if rtol is None else [(x, 2), (rtol, 0)])


def pinv(x, rtol=None):
    """Pseudoinverses; singular values below rtol times the largest count as zero. Collective."""
    def f(a, rtol=None):
        return np.linalg.pinv(a, max(a.shape) * np.finfo(a.dtype).eps if rtol is None else rtol)

    return _each("pinv", f, [(x, 2)] if rtol is None else [(x, 2), (rtol, 0)])


def qr(x, mode="reduced"):
    """(Q, R): orthonormal columns and upper triangles whose products are x. Collective.

    A large matrix that is tall is cut into blocks of rows, which are dealt to the ranks; others are cut into
    panels of columns.
    """
    if mode == "reduced" and _is_tall(x):
        return QRResult(*_tall_qr(evaluate(x)))
    if mode in ("reduced", "complete") and _is_large(x):
        return QRResult(*_panels.qr(x, mode == "complete"))
    return QRResult(*_each("qr", lambda a: tuple(np.linalg.qr(a, mode)), [(x, 2)], (mode,)))


def _is_tall(x):
    """Whether its blocks of rows are matrices that are much smaller, and themselves tall."""
    return isinstance(x, Operand) and x.ndim == 2 and x.dtype.char in "fdFD" and x.nbytes > _BLOCK and \
        16 * x.shape[1] ** 2 * x.dtype.itemsize <= _BLOCK


def _is_large(x, square=False):
    """Whether it is one matrix, of which a rank is to have panels alone."""
    return isinstance(x, Operand) and x.ndim == 2 and x.nbytes > _BLOCK and x.dtype.char not in "e" and \
        (not square or x.shape[0] == x.shape[1])


def _tall_qr(x):
    """The blocks' own factors, those of their stacked triangles (Demmel, Grigori, Hoemmen and Langou, 2012),
    and the products."""
    rows, n = _BLOCK // (x.shape[1] * x.dtype.itemsize), x.shape[1]
    blocks = list(enumerate(pieces((0, 0), x.shape, rows * n)))[_core.rank()::_core.ranks()]
    q = Array(x.shape, x.dtype, **distribution(x.shape, [x]))
    full, rest = divmod(x.shape[0], rows)
    triangles = zeros((full * n + min(rest, n), n), x.dtype)

    def factors():
        for (low, high), k in told(blocks):
            own, triangle = np.linalg.qr(x.block(low, high))
            q.put(np.s_[low[0]:high[0], :own.shape[1]], own)
            triangles.put(np.s_[k * n:k * n + len(triangle)], triangle)

    def told(blocks):
        return zip(counted(box for _, box in blocks), (k for k, _ in blocks))

    together("kasane: qr of blocks", [x, q, triangles], text(rows), factors)
    whole, triangle = qr(triangles)

    def products():
        for (low, high), k in told(blocks):
            m = min(n, high[0] - low[0])
            q.put(slices(low, high), q.get(np.s_[low[0]:high[0], :m]) @ whole.get(np.s_[k * n:k * n + m]))

    together("kasane: qr, products", [q, whole], text(rows), products)
    return q, triangle


def slogdet(x):
    """(sign, logabsdet): signs of determinants, and logarithms of their absolute values. Collective."""
    return SlogdetResult(*_each("slogdet", lambda a: tuple(np.linalg.slogdet(a)), [(x, 2)]))


def solve(x1, x2):
    """What x1 is multiplied by to give x2, a vector or matrices. Collective."""
    if _is_large(x1, True) and x2.ndim in (1, 2) and x2.shape[0] == x1.shape[0]:
        x2 = x2 if isinstance(x2, Operand) else asarray(x2)
        b = x2 if x2.ndim == 2 else reshape(x2, (-1, 1))
        made = _panels.solve(x1, b, _panels.dtype_of(x1, x2))
        return made if x2.ndim == 2 else reshape(made, (-1,))
    return _each("solve", np.linalg.solve, [(x1, 2), (x2, 1 if x2.ndim == 1 else 2)])


def svd(x, full_matrices=True):
    """(U, S, Vh): orthonormal matrices and singular values, the largest first. Collective."""
    if not full_matrices and _is_tall(x):
        q, r = qr(x)
        u, s, vh = svd(r)
        return SVDResult(matmul(q, u), s, vh)
    return SVDResult(
        *_each("svd", lambda a: tuple(np.linalg.svd(a, full_matrices)), [(x, 2)], (full_matrices,))
    )


def svdvals(x):
    """Singular values, the largest first. Collective."""
    return _each("svdvals", lambda a: np.linalg.svd(a, compute_uv=False), [(x, 2)])


def cross(x1, x2, axis=-1):
    """Cross products of vectors of three elements. Collective."""
    from ._manipulation import broadcast_arrays
    a, b = broadcast_arrays(x1, x2)
    axis = axis % a.ndim
    if a.shape[axis] != 3:
        raise ArgumentError(22, f"kasane.linalg.cross: vectors of {a.shape[axis]} elements; give 3")

    def block(low, high):
        whole = tuple(0 if d == axis else i for d, i in enumerate(low)), tuple(
            3 if d == axis else i for d, i in enumerate(high))
        product = np.cross(a.block(*whole), b.block(*whole), axis=axis)
        return product[(slice(None),) * axis + (slice(low[axis], high[axis]),)]

    return finished(Lazy(a.shape, np.result_type(a.dtype, b.dtype), [a, b], block, ("cross", axis)), a, b)
