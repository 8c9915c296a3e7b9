# SPDX-License-Identifier: Apache-2.0
"""Factors of one matrix that is larger than a rank's memory, by panels: some columns of it, dealt to ranks.

One rank factorises a panel, by NumPy; then each rank changes its panels behind that one (right-looking). A
rank has some panels in its own memory at once, and no more of the matrix; ranks meet twice a panel.
"""
import numpy as np

from . import _core
from ._array import Array
from ._blocks import distribution, evaluate, lazy, meter, text, together
from ._creation import arange, triu
from ._manipulation import section

BYTES = 32 << 20  # of a panel
_WIDTHS = 64, 512  # of a panel, whatever its bytes: narrower ones are read too often
_PLAIN = 16  # columns that are eliminated one by one


def dtype_of(*arrays):
    """In which type NumPy computes."""
    return np.result_type(*(x.dtype if x.dtype.kind in "fc" else np.float64 for x in arrays))


def _panels(rows, dtype, *edges):
    """(begin, end) of panels, none of which crosses an edge."""
    width = min(_WIDTHS[1], max(_WIDTHS[0], BYTES // (rows * dtype.itemsize)))
    return [(b, min(b + width, last)) for first, last in zip((0, *edges), edges)
            for b in range(first, last, width)]


def _mine(panels, end=0):
    return [p for p in panels[_core.rank()::_core.ranks()] if p[0] >= end]


def _factorised(call, x, dtype, inner, factor, update):
    """A copy of x and its panels up to column ``inner``; each becomes factor(begin, panel) does with it, and
    those behind it what the function does that update(begin, panel) gives."""
    panels = _panels(x.shape[0], dtype, inner, x.shape[1])
    tile = panels[0][1]
    a = evaluate(lazy(x), Array(x.shape, dtype, tiles=(tile, tile)))
    steps = [p for p in panels if p[1] <= inner]
    told = meter(len(steps))
    for k, (begin, end) in enumerate(steps):
        where = np.s_[:, begin:end]

        def first(k=k, begin=begin, where=where):
            if k % _core.ranks() == _core.rank():
                panel = a.get(where)
                factor(begin, panel)
                a.put(where, panel)

        def others(begin=begin, end=end, where=where):
            change = None
            for low, high in _mine(panels, end):
                change = change or update(begin, a.get(where))
                other = a.get(np.s_[:, low:high])
                change(low, other)
                a.put(np.s_[:, low:high], other)
            if told:
                told(1)

        together(f"kasane: {call}", [a], text(begin), first)
        together(f"kasane: {call}", [a], text(begin), others)
    return a, steps


def _as(x, made):
    """An array like x of the elements of another one."""
    how = distribution(x.shape, x.leaves, x.chunks)
    out = Array(x.shape, made.dtype, **how)
    return made if out.how == made.how else evaluate(lazy(made), out)


def cholesky(x):
    """The lower triangle."""
    def factor(begin, p):
        end = begin + p.shape[1]
        p[:begin] = 0
        p[begin:end] = np.linalg.cholesky(p[begin:end])
        p[end:] = np.linalg.solve(p[begin:end], p[end:].conj().T).conj().T

    def update(_, p):
        def change(low, other):
            other[low:] -= p[low:] @ p[low:low + other.shape[1]].conj().T

        return change

    return _as(x, _factorised("cholesky", x, dtype_of(x), x.shape[1], factor, update)[0])


def _unit(p):
    """The unit lower triangle, or trapezium, of which p has the elements."""
    p = np.tril(p, -1)
    np.fill_diagonal(p, 1)
    return p


def _lu(p):
    """p becomes L and U of its rows in another order, which is returned; by halves (Toledo, 1997)."""
    rows, n = p.shape
    order = np.arange(rows)
    if n <= _PLAIN:
        for j in range(n):
            at = j + np.abs(p[j:, j]).argmax()
            if p[at, j] == 0:
                raise np.linalg.LinAlgError("Singular matrix")
            if at != j:
                p[[j, at]], order[[j, at]] = p[[at, j]], order[[at, j]]
            p[j + 1:, j] /= p[j, j]
            p[j + 1:, j + 1:] -= np.outer(p[j + 1:, j], p[j, j + 1:])
        return order
    half = n // 2
    left, right = p[:, :half], p[:, half:]
    order = _lu(left)
    right[...] = right[order]
    right[:half] = np.linalg.solve(_unit(left[:half]), right[:half])
    right[half:] -= left[half:] @ right[:half]
    then = _lu(right[half:])
    left[half:], order[half:] = left[half:][then], order[half:][then]
    return order


def solve(x, b, dtype):
    """x ** -1 b, for matrices b, by LU with pivots. Rows of the factors stay where they are in x; ``order``
    has where the pivots were."""
    order = arange(x.shape[0])

    def factor(begin, p):
        own = order.get(np.s_[begin:])
        rows = p[own]
        own = own[_lu(rows)]
        p[own] = rows
        order.put(np.s_[begin:], own)

    def update(begin, p):
        own = order.get(np.s_[begin:])
        lower = _unit(p[own])

        def change(_, other):
            rows = other[own]
            _forward(lower, rows)
            other[own] = rows

        return change

    a, steps = _factorised("solve", x, dtype, x.shape[1], factor, update)
    out = Array(b.shape, dtype, **distribution(b.shape, b.leaves, b.chunks))

    def work():
        rows_of = order.get()
        for low, high in _mine(_panels(b.shape[0], dtype, b.shape[1])):
            rows = np.asarray(b.block((0, low), (b.shape[0], high)))[rows_of].astype(dtype, copy=False)
            for begin, end in steps:
                _forward(_unit(a.get(np.s_[:, begin:end])[rows_of[begin:]]), rows[begin:])
            for begin, end in reversed(steps):
                upper = a.get(np.s_[:, begin:end])[rows_of[:end]]
                rows[begin:end] = np.linalg.solve(np.triu(upper[begin:]), rows[begin:end])
                rows[:begin] -= upper[:begin] @ rows[begin:end]
            out.put(np.s_[:, low:high], rows)

    together("kasane: solve", [a, order, *b.leaves, out], text(*b.shape), work)
    return out


def _forward(lower, rows):
    """rows become those with the columns of a unit lower trapezium eliminated."""
    n = lower.shape[1]
    rows[:n] = np.linalg.solve(lower[:n], rows[:n])
    rows[n:] -= lower[n:] @ rows[:n]


def _triangle(v, tau):
    """T of I - V T V*, which is the product of reflections (Schreiber and Van Loan, 1989)."""
    t, products = np.zeros((len(tau), len(tau)), v.dtype), v.conj().T @ v
    for j, factor in enumerate(tau):
        t[:j, j] = -factor * (t[:j, :j] @ products[:j, j])
        t[j, j] = factor
    return t


def qr(x, complete):
    """(Q, R), by Householder's reflections."""
    (m, n), dtype = x.shape, dtype_of(x)
    inner = min(m, n)
    triangles = Array((inner, _panels(m, dtype, inner)[0][1]), dtype)

    def factor(begin, p):
        h, tau = np.linalg.qr(p[begin:], mode="raw")
        p[begin:] = h.T
        triangles.put(np.s_[begin:begin + len(tau), :len(tau)], _triangle(_unit(p[begin:]), tau))

    def reflection(begin, p):
        v, n = _unit(p[begin:]), p.shape[1]
        return v, triangles.get(np.s_[begin:begin + n, :n])

    def update(begin, p):
        v, t = reflection(begin, p)

        def change(_, other):
            other[begin:] -= v @ (t.conj().T @ (v.conj().T @ other[begin:]))

        return change

    a, steps = _factorised("qr", x, dtype, inner, factor, update)
    q = Array((m, m if complete else inner), dtype, **distribution((m, m if complete else inner), [a]))

    def products():
        for low, high in _mine(_panels(m, dtype, q.shape[1])):
            part = np.zeros((m, high - low), dtype)
            np.fill_diagonal(part[low:], 1)
            for begin, end in reversed(steps):
                if begin < high:
                    v, t = reflection(begin, a.get(np.s_[:, begin:end]))
                    part[begin:] -= v @ (t @ (v.conj().T @ part[begin:]))
            q.put(np.s_[:, low:high], part)

    together("kasane: qr, products", [a, triangles, q], text(*q.shape), products)
    return (q if q.shape != x.shape else _as(x, q)), triu(section(a, np.s_[:q.shape[1]]))
