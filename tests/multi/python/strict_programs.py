# SPDX-License-Identifier: Apache-2.0
"""Random programs in the Array API standard's own words against array-api-strict: `strict_programs.py COUNT
[FIRST SEED [large]]`, by every rank. Each step is one function of the standard, called alike in both; with
`large` of arrays of some MB, for runs with less memory than they take."""
import sys
import time

import numpy as np

try:
    import array_api_strict as strict
except ImportError:
    print("skipped: array_api_strict is not installed (pip install array-api-strict)")
    sys.exit(0)

import kasane

LARGE = "large" in sys.argv
EXTENTS, KEPT = ((300, 700), 700_000) if LARGE else ((1, 9), 1000)
TYPES = ["bool", "int32", "int64", "uint8", "float32", "float64", "complex128"]


def values_of(x):
    return x.gather() if isinstance(x, kasane.Array) else np.asarray(x)


def compared(what, ours, right):
    ours, right = values_of(ours), np.asarray(right)
    kasane.barrier()
    assert ours.shape == right.shape and ours.dtype == right.dtype, \
        f"{what}: {ours.dtype} {ours.shape}, not {right.dtype} {right.shape}"
    near = 1e-3 if right.dtype in (np.float32, np.complex64) else 1e-9
    assert np.allclose(ours, right, near, near, equal_nan=True) if right.dtype.kind in "fc" else \
        np.array_equal(ours, right), f"{what}:\n{ours}\nnot\n{right}"


def step(random, a):
    """(name, arguments, options) of a function of one array, whose arguments begin with "a"."""
    kind, n = a.dtype.kind, a.ndim
    real, some = kind in "iuf", bool(a.size)
    axis = int(random.integers(-n, n)) if n else None
    names = ["logical_not"] if kind == "b" else ["square", "positive", "astype", "sum"]
    names += ["prod"] if kind != "b" and not LARGE else []  # of many: inf times 0 in some orders
    names += ["negative", "abs", "sign"] if kind in "if" else []
    names += ["floor", "isnan", "isfinite", "mean", "var", "std"] if kind == "f" and some else []
    names += ["max", "min", "argmax", "argmin"] if real and some else []
    names += ["any", "all", "count_nonzero", "expand_dims", "reshape"]
    names += ["flip", "roll", "permute_dims", "concat", "stack", "broadcast_to", "nonzero"] if n else []
    names += ["take", "repeat", "unstack"] + ["diff"] * (kind != "b") if n and some and a.size < 300 else []
    names += ["sort", "argsort", "cumulative_sum"] if n and real and some else []
    names += ["tril", "matrix_transpose", "vecdot"] if n > 1 and kind != "b" else []
    name = str(random.choice(names))
    if name in ("sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "count_nonzero"):
        chosen = None if random.integers(2) else axis
        return name, ("a",), {"axis": chosen, "keepdims": bool(random.integers(2))}
    if name in ("argmax", "argmin"):
        return name, ("a",), {"axis": axis if random.integers(2) else None}
    if name in ("sort", "argsort"):
        return name, ("a",), {"axis": axis, "descending": bool(random.integers(2))}
    if name == "cumulative_sum":
        return name, ("a",), {"axis": axis, "include_initial": bool(random.integers(2))}
    if name in ("flip", "diff", "unstack"):
        return name, ("a",), {"axis": axis}
    return {
        "astype": (name, ("a", "complex128" if kind == "c" else "float64"), {}),
        "expand_dims": (name, ("a",), {"axis": int(random.integers(-n - 1, n + 1))}),
        "reshape": (name, ("a", (-1,) if some else (0, 3)), {}),
        "roll": (name, ("a", int(random.integers(-5, 6))), {"axis": axis}),
        "permute_dims": (name, ("a", tuple(int(d) for d in random.permutation(n))), {}),
        "concat": (name, (["a", "a"],), {"axis": axis}),
        "stack": (name, (["a", "a", "a"] if a.size < 300 else ["a"],), {"axis": 0}),
        "broadcast_to": (name, ("a", (2, *a.shape) if a.size < 300 else a.shape), {}),
        "take": (name, ("a", random.integers(0, max(1, a.shape[axis] if n else 1), 5)), {"axis": axis}),
        "repeat": (name, ("a", 2), {"axis": axis}),
        "tril": (name, ("a",), {"k": int(random.integers(-2, 3))}),
        "vecdot": (name, ("a", "a"), {}),
    }.get(name, (name, ("a",), {}))


def called(package, array, x, name, arguments, options):
    def of(v):
        if isinstance(v, list):
            return [of(e) for e in v]
        if isinstance(v, np.ndarray):
            return array(v)
        return x if isinstance(v, str) and v == "a" else getattr(package, v) if isinstance(v, str) else v

    return getattr(package, name)(*(of(v) for v in arguments), **options)


def pairwise(random, x, y):
    """A function of two arrays; None where the standard has none."""
    kinds = {x.dtype.kind, y.dtype.kind}
    if x.dtype != y.dtype:
        return None
    if "b" in kinds:
        return str(random.choice(["logical_and", "logical_xor", "equal"]))
    names = ["add", "subtract", "multiply", "equal", "not_equal"]
    names += ["maximum", "minimum", "less", "greater_equal"] if "c" not in kinds else []
    names += ["bitwise_and", "bitwise_xor"] if kinds <= {"i", "u"} else ["matmul"] if x.ndim > 1 else []
    return str(random.choice(names))


def program(seed):
    random = np.random.default_rng(seed)
    n, m = (int(i) for i in random.integers(*EXTENTS, 2))
    pairs, said = [], []
    for shape in ((n, m), (m,), (2, n, m), (n, n)):
        dtype = str(random.choice(TYPES))
        values = random.integers(0, 7, shape).astype(dtype)
        tiles = {"tiles": tuple(int(random.integers(1, e + 1)) for e in shape)} if random.integers(2) else {}
        pairs.append((kasane.asarray(values, **tiles), strict.asarray(values)))
    try:
        for _ in range(14):
            ours, right = pairs[int(random.integers(len(pairs)))]
            plain = np.asarray(right)
            if random.integers(3):
                name, arguments, options = step(random, plain)
                said.append(f"{name} {arguments} {options} of {plain.dtype} {plain.shape}")
                got = called(kasane, kasane.asarray, ours, name, arguments, options)
                with np.errstate(all="ignore"):
                    want = called(strict, strict.asarray, right, name, arguments, options)
            else:
                others, other = pairs[int(random.integers(len(pairs)))]
                name = pairwise(random, plain, np.asarray(other))
                if name is None:
                    continue
                said.append(f"{name} of {plain.dtype} {plain.shape} and {other.shape}")
                try:
                    want = getattr(strict, name)(right, other)
                except (ValueError, IndexError):
                    try:
                        getattr(kasane, name)(ours, others)
                    except ValueError:
                        continue
                    raise AssertionError(f"{said[-1]}: not refused") from None
                got = getattr(kasane, name)(ours, others)
            several = isinstance(want, tuple)
            assert not several or len(got) == len(want), said[-1]
            for g, w in zip(got if several else [got], want if several else [want]):
                compared(said[-1], g, w)
                if isinstance(g, kasane.Array) and g.size < KEPT and g.ndim < 5 and \
                        np.asarray(w).dtype in TYPES:
                    pairs.append((g, w))
    except BaseException:
        print(f"rank {kasane.rank()}, seed {seed}: {said}", file=sys.stderr, flush=True)
        raise


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    begin = time.time()
    for s in range(first, first + count):
        program(s)
    if kasane.rank() == 0:
        print(f"strict programs: {count} passed on {kasane.ranks()} ranks, {time.time() - begin:.1f} s",
              flush=True)
