# SPDX-License-Identifier: Apache-2.0
"""What random programs do not reach: by every rank, against NumPy."""
import contextlib
import copy
import io
import pickle
import sys
import time

import numpy as np

import kasane
from kasane import _core, _panels, _progress, _sorting, linalg
from arrays import refused, same


def sorts():
    """Runs of all types, with all that numbers have at their ends."""
    _sorting._RUN, _sorting._SAMPLE = 400, 7
    random = np.random.default_rng(0)
    for kind in "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split():
        for n in (51, 401):
            if kind == "bool":
                x = random.integers(0, 2, n).astype(kind)
            elif kind[0] in "iu":
                ends = np.iinfo(kind)
                x = random.integers(ends.min, ends.max, n, dtype=kind, endpoint=True)
                x[::3], x[1::5] = ends.min, ends.max
            else:
                x = random.standard_normal(n).astype(kind)
                x[::7], x[1::9], x[2::9], x[3::5], x[4::11] = np.nan, np.inf, -np.inf, -0.0, 0.0
            a = kasane.array(x)
            for ours, right in ((kasane.sort(a), np.sort(x)),
                                (kasane.sort(a, descending=True), np.sort(x)[::-1])):
                assert np.array_equal(ours.gather(), right, equal_nan=kind[0] == "f"), (kind, n)
                kasane.barrier()
            same(kasane.argsort(a), np.argsort(x, kind="stable"), f"argsort of {n} {kind}")
    equal = kasane.zeros(333)
    same(kasane.argsort(equal), np.arange(333), "equal elements stay in order")
    down = kasane.argsort(equal, descending=True)
    same(down, np.arange(333), "equal elements stay in order, downwards")
    _sorting._RUN, _sorting._SAMPLE = 32 << 20, 4096


def accuracy():
    """Sums lose no more than NumPy's pairwise ones."""
    a = kasane.full(3_000_000, np.float32(0.1))
    assert abs(float(a.sum()) - 300_000) < 0.1 and abs(float(a.mean()) - 0.1) < 1e-7
    b = kasane.arange(1_000_000, dtype="float64") + 1e9
    assert abs(b.var() - (1e12 - 1) / 12) < 1e-2 * (1e12 / 12) ** 0.5
    assert abs(b.std(correction=1) - np.std(np.arange(1e6) + 1e9, ddof=1)) < 1e-3


def fusion():
    """An expression reads each block once, and makes no array."""
    x, y = np.arange(300_000.0).reshape(300, 1000), np.ones((300, 1000))
    a, b = kasane.array(x), kasane.array(y, tiles=(100, 1000))
    whole = (kasane.lazy(a) - b) ** 2
    assert type(whole).__name__ == "Lazy" and whole.shape == a.shape
    reads = []
    once = kasane.Array._here
    made = kasane.Array.__init__
    kasane.Array._here = lambda self, low, *more: reads.append((id(self), low)) or once(self, low, *more)
    kasane.Array.__init__ = lambda *_, **__: (_ for _ in ()).throw(AssertionError("an array is made"))
    try:
        total = whole.sum()
    finally:
        kasane.Array._here, kasane.Array.__init__ = once, made
    assert total == ((x - y) ** 2).sum() and len(reads) == len(set(reads))
    same(kasane.evaluate(whole), (x - y) ** 2, "evaluate")
    out = kasane.empty_like(a)
    assert kasane.evaluate(kasane.lazy(a) * 2 + b, out=out) is out
    same(out, x * 2 + y, "evaluate into an array")
    kasane.evaluate(kasane.flip(kasane.lazy(a), 0), out=a)
    same(a, x[::-1], "evaluate into an operand whose elements move")
    both = np.sqrt(kasane.lazy(b)) + kasane.where(kasane.lazy(b) > 0, 1, 0)
    same(kasane.evaluate(both), np.full_like(y, 2), "where")
    same(kasane.lazy(a).mean(axis=0), x.mean(axis=0), "a mean along an axis")


def numbers_by_index():
    """Random numbers do not depend on the distribution."""
    for f in (kasane.random.random, kasane.random.standard_normal,
              lambda *s, **o: kasane.random.integers(-5, 5, *s, **o)):
        one = f((40, 50), seed=7).gather()
        kasane.barrier()
        same(f((40, 50), seed=7, tiles=(7, 9)), one, "another distribution")
        assert not np.array_equal(f((40, 50), seed=8).gather(), one)
        kasane.barrier()
    normal = kasane.random.standard_normal(200_000)
    assert abs(normal.mean()) < 0.01 and abs(normal.std() - 1) < 0.01
    fair = kasane.random.integers(0, 6, 60_000)
    assert all(abs(n - 10_000) < 600 for n in kasane.unique_counts(fair).counts)


def numpys():
    """NumPy's functions of distributed arrays give distributed arrays."""
    x = np.arange(60.0).reshape(5, 12) % 7
    a = kasane.array(x, tiles=(2, 5))
    for f in (lambda m, v: np.mean(v, axis=1), lambda m, v: np.concatenate([v, v], axis=1),
              lambda m, v: np.transpose(v), lambda m, v: np.where(v > 3, v, 0), lambda m, v: np.clip(v, 1, 5),
              lambda m, v: np.reshape(v, (12, 5)), lambda m, v: np.sort(v, axis=0), lambda m, v: np.cumsum(v),
              lambda m, v: np.tensordot(v, v, axes=([0], [0])), lambda m, v: np.roll(v, 3, axis=1),
              lambda m, v: np.add.accumulate(v, axis=1), lambda m, v: np.logaddexp(v, v[0]),
              lambda m, v: np.stack([v, v]), lambda m, v: np.full_like(v, 3), lambda m, v: np.ravel(v),
              lambda m, v: np.diff(v, 2), lambda m, v: np.sort(v, 0, "stable"),
              lambda m, v: np.linalg.norm(v, axis=0),
              lambda m, v: np.unique(np.where(v == 0, np.nan, v)), lambda m, v: np.copy(v, "C"),
              lambda m, v: np.nan_to_num(v, False), lambda m, v: np.squeeze(np.expand_dims(v, 1))):
        result = f(kasane, a)
        assert isinstance(result, kasane.Array), type(result)
        values = result.gather()
        assert np.allclose(values, f(np, x), equal_nan=True), (values, f(np, x))
        kasane.barrier()
    assert np.shape(a) == (5, 12) and np.ndim(a) == 2 and np.size(a) == 60
    assert np.asarray(a).tolist() == x.tolist() and a.__array_namespace__() is kasane
    for back, forward in ((np.fft.ifft, np.fft.fft), (np.fft.irfft, np.fft.rfft)):
        assert np.allclose(back(forward(a)).gather(), x)
        kasane.barrier()


def matrices():
    random = np.random.default_rng(1)
    x, y = random.standard_normal((6, 5, 4)), random.standard_normal((4, 3))
    v, w = random.standard_normal(4), random.standard_normal((700, 900))
    a, b = kasane.array(x), kasane.array(y)
    for ours, right in ((a @ b, x @ y), (a @ kasane.array(v), x @ v), (kasane.array(w) @ w[0], w @ w[0]),
                        (w[:, 0] @ kasane.array(w, tiles=(100, 64)), w[:, 0] @ w),
                        (kasane.tensordot(a, b, axes=1), np.tensordot(x, y, axes=1)),
                        (kasane.vecdot(a, a), (x * x).sum(-1)), (kasane.outer(v, v), np.outer(v, v)),
                        (kasane.trace(kasane.array(y[:3])), np.trace(y[:3])),
                        (kasane.linalg.norm(b), np.linalg.norm(y)),
                        (kasane.linalg.solve(kasane.array(x[:, :4]), kasane.array(v)),
                         np.linalg.solve(x[:, :4], np.broadcast_to(v, (6, 4))[..., None])[..., 0])):
        assert np.allclose(ours.gather() if isinstance(ours, kasane.Array) else ours, right)
        kasane.barrier()
    q, r = kasane.linalg.qr(a)
    assert np.allclose((q @ r).gather(), x)
    kasane.barrier()
    refused(ValueError, "matrices of (6, 5, 4) and (6, 5, 4)", lambda: a @ a)
    tall()


def tall():
    """Factors by blocks of rows, of which the last has fewer than columns; triangles in blocks, too."""
    linalg._BLOCK = 16 * 4 * 4 * 16
    random = np.random.default_rng(2)
    for kind, rows in (("float64", 643), ("float64", 25600), ("complex128", 448), ("float32", 999)):
        x = random.standard_normal((rows, 4)).astype(kind)
        x = x + 1j * x[::-1] if kind[0] == "c" else x
        a, near = kasane.array(x, tiles=(50, 3)), 1e-4 if kind == "float32" else 1e-10
        q, r = kasane.linalg.qr(a)
        assert q.dtype == r.dtype == kind and np.array_equal(r.gather(), np.triu(r.gather())), kind
        assert np.allclose((q @ r).gather(), x, atol=near), (kind, rows)
        assert np.allclose((kasane.conj(q).T @ q).gather(), np.eye(4), atol=near), (kind, rows)
        u, s, vh = kasane.linalg.svd(a, full_matrices=False)
        assert np.allclose(s.gather(), np.linalg.svd(x, compute_uv=False), rtol=near)
        assert np.allclose(((u * s) @ vh).gather(), x, atol=near)
        kasane.barrier()
    linalg._BLOCK = 32 << 20


def panels():
    """Factors by panels of columns, of which the last is narrower; of all types and kinds of matrices."""
    before = linalg._BLOCK, _panels.BYTES, _panels._WIDTHS
    linalg._BLOCK, _panels.BYTES, _panels._WIDTHS = 1000, 1000, (40, 50)
    random = np.random.default_rng(3)
    for kind, near in (("float64", 1e-9), ("float32", 2e-3), ("complex128", 1e-9), ("complex64", 2e-3),
                       ("int64", 1e-9)):
        for rows, columns, how in ((170, 170, {}), (130, 210, {"tiles": (40, 40)}),
                                   (210, 130, {"tiles": (9, 70)})):
            x = random.standard_normal((rows, columns)) * (100 if kind == "int64" else 1)
            x = (x + 1j * x[::-1] if kind[0] == "c" else x).astype(kind)
            a = kasane.array(x, **how)
            for mode in ("reduced", "complete"):
                q, r = linalg.qr(a, mode)
                right = np.linalg.qr(x, mode)
                assert (q.shape, r.shape) == (right[0].shape, right[1].shape) and q.dtype == right[0].dtype
                assert np.array_equal(r.gather(), np.triu(r.gather()))
                assert np.allclose(q.gather() @ r.gather(), x, atol=near * 100), (kind, rows, columns, mode)
                assert np.allclose(q.gather().conj().T @ q.gather(), np.eye(q.shape[1]), atol=near)
                kasane.barrier()
            if rows != columns:
                continue
            b = random.standard_normal((rows, 95)).astype(kind)
            for given in (b, b[:, 0]):
                y = linalg.solve(a, kasane.array(given))
                right = np.linalg.solve(x, given)
                assert y.dtype == right.dtype, kind
                assert np.allclose(y.gather(), right, rtol=near, atol=near * 10), kind
                kasane.barrier()
            assert np.allclose(linalg.inv(a).gather(), np.linalg.inv(x), atol=near * 10)
            spd = (x @ x.conj().T + 100 * np.eye(rows)).astype(kind)
            lower = linalg.cholesky(kasane.array(np.tril(spd), **how))  # what is above is not read
            right = np.linalg.cholesky(spd)
            assert lower.dtype == right.dtype and np.allclose(lower.gather(), right, atol=near * 100), kind
            upper = linalg.cholesky(kasane.array(spd, **how), upper=True)
            assert np.allclose(upper.gather(), right.conj().T, atol=near * 100), kind
            kasane.barrier()
    once = kasane.array(np.ones((120, 120)) + np.diag(np.arange(120.0)))  # with rank 1 at its begin
    q, r = linalg.qr(kasane.zeros((120, 110)) + 1)
    assert np.allclose((q @ r).gather(), 1) and np.allclose((q.T @ q).gather(), np.eye(110))
    assert np.allclose((once @ linalg.solve(once, kasane.ones(120))).gather(), 1)
    kasane.barrier()
    turned = np.roll(np.eye(120), 45, 0)  # its diagonal has zeros alone
    assert np.array_equal(linalg.solve(kasane.array(turned), kasane.arange(120.0)).gather(),
                          turned.T @ np.arange(120.0))
    kasane.barrier()
    kinds = np.linalg.LinAlgError, kasane.Error
    refused(kinds, "Singular matrix", lambda: linalg.solve(kasane.ones((120, 120)), kasane.ones(120)))
    refused(kinds, "ositive definite", lambda: linalg.cholesky(-once))
    linalg._BLOCK, _panels.BYTES, _panels._WIDTHS = before


def large():
    """Matrices of 20 MB, whatever memory there is for them."""
    n, before, how = 1600, (linalg._BLOCK, _panels.BYTES), {"tiles": (256, 256)}
    linalg._BLOCK, _panels.BYTES = 1 << 20, 5 << 20
    a, one = kasane.random.standard_normal((n, n), seed=1, **how), kasane.ones(n)
    x = linalg.solve(a, a @ one)
    assert abs(x - one).max() < 1e-8
    q, r = linalg.qr(a)
    assert abs(q.T @ (q @ one) - one).max() < 1e-12 and abs(q @ (r @ one) - a @ one).max() < 1e-10
    spd = kasane.fromfunction(lambda i, j: 0.9 ** abs(i - j), (n, n), **how)
    lower = linalg.cholesky(spd)
    assert abs(lower @ (one @ lower) - spd @ one).max() < 1e-11
    assert np.allclose(lower[:300, :300], np.linalg.cholesky(spd[:300, :300]))
    linalg._BLOCK, _panels.BYTES = before


def progress():
    """What takes long tells how far it is: rank 0, from 0 to 100 %."""
    told, before = [], (_progress.Pass.show, _progress._AFTER, _progress._EACH, _sorting._RUN, linalg._BLOCK)
    _progress.Pass.show, _progress._AFTER, _progress._EACH = told.append, 0, 0
    _sorting._RUN, linalg._BLOCK = 4000, 4096
    a, b = kasane.random.random((300, 300), seed=1), kasane.random.random(30_000, seed=1)
    stack = kasane.array(np.broadcast_to(np.eye(4), (9, 4, 4)))
    wide = kasane.random.random((99, 99), seed=1)
    tall = kasane.random.random((600, 4), seed=1)  # its triangles are one block
    calls = [("sort", lambda: kasane.sort(a, axis=0)), ("sort runs", lambda: kasane.sort(b)),
             ("merge runs", lambda: kasane.argsort(b)), ("cumulative_sum", lambda: kasane.cumsum(a, axis=1)),
             ("cumulative_sum", lambda: kasane.cumulative_sum(b, include_initial=True)),
             ("fft", lambda: kasane.fft.fft(a)), ("cholesky", lambda: kasane.linalg.cholesky(stack)),
             ("solve", lambda: kasane.linalg.solve(wide, wide)),
             ("qr of blocks", lambda: kasane.linalg.qr(tall)),
             ("qr, products", lambda: kasane.linalg.svd(tall, False)),
             ("add", lambda: a.sum()), ("exp", lambda: kasane.exp(a))]
    if _core.has_blas():
        calls.append(("matmul", lambda: a @ a.T))
    for name, call in calls:
        told.clear()
        call()
        parts = [int(t[8:].split()[-2]) for t in told if t.startswith(f"kasane: {name}: ")]
        if kasane.rank() == 0:
            assert parts and parts[-1] == 100 and parts == sorted(parts) and told[-1] == "", (name, told)
        else:
            assert not told, (name, told)
    _progress.Pass.show, _progress._AFTER, _progress._EACH, _sorting._RUN, linalg._BLOCK = before


def indices():
    """Distributed arrays as indices; all that NumPy takes in a patch."""
    x = np.arange(210).reshape(5, 6, 7)
    a = kasane.array(x, tiles=(2, 3, 4))
    at, rows = np.array([3, -1, 0]), np.array([[0], [2]])
    for index in (np.s_[at], np.s_[:, at], np.s_[..., at], np.s_[at, :, at], np.s_[rows, at], np.s_[1, :, at],
                  np.s_[x[:, 0, 0] > 50], np.s_[:, x[0, :, 0] > 10, 1], np.s_[None, 1:3, ..., None],
                  np.s_[at, None],
                  np.s_[::-1, 4:1:-2, ::3], np.s_[x % 3 == 0], np.s_[..., x[0] > 20]):
        same(a[index], x[index], f"index {index}")
    same(a[a % 3 == 0], x[x % 3 == 0], "a distributed mask")
    for mask in (np.array(True), np.array(False), np.zeros((5, 0), bool), np.zeros(0, bool)):
        same(a[mask], x[mask], f"a mask of shape {mask.shape}")
        same(a[kasane.asarray(mask)], x[mask], f"a distributed mask of shape {mask.shape}")
    same(a[True], x[True], "all of it")
    c, z = kasane.ones(3), np.ones(3)
    for mask, value in ((True, 5), (np.False_, 7)):
        c[mask], z[mask] = value, value
        c[kasane.asarray(mask)] = kasane.full(3, value)
        same(c, z, f"stores by {mask}")
    refused(IndexError, "a mask of shape", lambda: a[np.zeros((0, 9), bool)])
    same(a[kasane.asarray(at)], x[at], "distributed integers")
    same(a[kasane.asarray(rows), kasane.asarray(at)], x[rows, at], "distributed integers, broadcast")
    same(kasane.section(a, np.s_[::-2, 1, 2:]), x[::-2, 1, 2:], "a section")
    same(kasane.take_along_axis(a, kasane.argsort(-a, axis=1), 1),
         np.take_along_axis(x, np.argsort(-x, 1), 1), "take_along_axis")
    sevens = np.arange(0, 100, 7)
    same(kasane.searchsorted(kasane.array(sevens), a), np.searchsorted(sevens, x), "searchsorted")
    for ours, right in zip(kasane.nonzero(a > 99), np.nonzero(x > 99)):
        same(ours, right, "nonzero")
    b, y = kasane.copy(a), x.copy()
    b[b > 100], y[y > 100] = -1, -1
    b[kasane.lazy(b) == 7], y[y == 7] = 8, 8
    b[kasane.asarray(at)], y[at] = kasane.section(b, 1), y[1].copy()
    b[1:4, 2], y[1:4, 2] = kasane.flip(kasane.section(b, np.s_[1:4, 3]), 1), y[1:4, 3, ::-1].copy()
    n = (y < 5).sum()
    b[b < 5], y[y < 5] = kasane.section(kasane.ravel(b), np.s_[:n]), y.ravel()[:n].copy()
    same(b, y, "stores of distributed arrays")
    same(b.sum(axis=0, out=kasane.empty((6, 7), y.dtype)), y.sum(axis=0), "out=")
    same(kasane.evaluate(a > 9, out=kasane.empty_like(a, bool)), x > 9, "a copy by out=")
    rows, ones = kasane.asarray(at), kasane.ones((3, 6, 7))
    refused(TypeError, "elements of float64", lambda: b.__setitem__(rows, ones))
    refused(ValueError, "for elements of shape", lambda: b.__setitem__(..., kasane.ones((2, 5, 6, 7), int)))
    large, small = kasane.full(9, 300), kasane.zeros(9, "int8")
    refused((ValueError, kasane.Error), "", lambda: small.__setitem__(..., large))
    refused(IndexError, "a mask of shape", lambda: a[kasane.zeros(3, bool)])
    refused(IndexError, "outside of its 5", lambda: kasane.take(a, [5], 0))


def python():
    """What Python itself asks."""
    a = kasane.array(np.arange(6).reshape(2, 3))
    assert len(a) == 2 and [list(row) for row in a] == [[0, 1, 2], [3, 4, 5]]
    for twin in (copy.copy(a), copy.deepcopy(a)):
        same(twin, a.gather(), "a copy")
    pickled()
    assert "int64 (2, 3)" in repr(a) and (4 in a) and (9 not in a)
    assert kasane.__version__.count(".") == 2
    with contextlib.redirect_stdout(io.StringIO()) as text:
        kasane.show_config()
    assert kasane.__version__ in text.getvalue() and "libkasane.so" in text.getvalue()


def pickled():
    """One rank reads all elements; all make an array that is distributed in the same way."""
    random = np.random.default_rng(5)
    for x, how in ((random.random((7, 5)), {"tiles": (2, 3)}), (np.arange(6, dtype="int16"), {}),
                   (random.random((4, 4)).astype("complex64"), {"blocks": (2, 2), "ghosts": 1}),
                   (np.array(2.5), {}), (np.zeros((0, 3), bool), {}), (np.float16(random.random(9)), {})):
        a = kasane.array(x, **how)
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            both, twin = pickle.loads(pickle.dumps([a, a], protocol))
            assert both is twin and both is not a and isinstance(both, kasane.Array) and both.tile == a.tile
            assert both.how == a.how and both.dtype == x.dtype
            same(both, x, f"a pickle of {x.dtype} {x.shape}")
        a.fill(1)
        same(both, x, "an array that was loaded has elements of its own")
    kasane.barrier()
    if kasane.rank() == 0:  # the others do not wait
        assert len(pickle.dumps(a)) > a.nbytes
    kasane.barrier()
    large = kasane.empty((64 << 20) // 8 + 1)
    refused(TypeError, "kasane.save(path, a)", lambda: pickle.dumps(large))
    x = kasane.lazy(a) + 1
    refused(TypeError, "kasane.evaluate", lambda: pickle.dumps(x))
    assert copy.copy(x) is x
    twin = copy.deepcopy(x)
    a.fill(5)
    same(twin, np.full(a.shape, 2, a.dtype), "a deep copy of an expression")
    del large


def beyond():
    """What is computed of an array of 32 MB, whatever memory there is for it."""
    x = np.arange(4_000_000.0).reshape(2000, 2000) % 1013
    a = kasane.array(x, tiles=(100, 2000))
    for ours, right in ((a.mean(axis=0), x.mean(axis=0)), (a.std(), x.std()), (a.max(axis=1), x.max(axis=1)),
                        (((kasane.lazy(a) - 3) ** 2).sum(), ((x - 3) ** 2).sum()), (a @ x[0], x @ x[0]),
                        (kasane.section(a[a > 1000], np.s_[:9]), x[x > 1000][:9])):
        assert np.allclose(ours.gather() if isinstance(ours, kasane.Array) else ours, right)
        kasane.barrier()
    same(a.T[17:20, :50], x.T[17:20, :50], "a transpose")
    same(kasane.sort(a, None)[::1_000_000], np.sort(x, None)[::1_000_000], "a sort")


ALL = [sorts, accuracy, fusion, numbers_by_index, numpys, matrices, panels, progress, indices, python, beyond]

if __name__ == "__main__":
    names = [n for n in sys.argv[1:] if n in globals()]
    for case in [globals()[n] for n in names] or ALL:
        start = time.time()
        case()
        if kasane.rank() == 0:
            print(f"{case.__name__}: {time.time() - start:.2f} s", flush=True)
    if kasane.rank() == 0:
        print(f"functions: passed on {kasane.ranks()} ranks", flush=True)
