# SPDX-License-Identifier: Apache-2.0
"""Random programs of whole arrays against NumPy: `random_programs.py COUNT [FIRST SEED]`, by every rank.

A program draws a few arrays of related shapes, however distributed, and then applies functions to what it
has: each result is compared with NumPy's, element by element and in type, and is an operand of later steps.
"""
import sys
import time

import numpy as np

import kasane

TYPES = ["bool", "int8", "uint8", "int32", "int64", "float32", "float64", "complex64", "complex128"]


class Pair:
    """A distributed array, and NumPy's of the same elements."""

    def __init__(self, ours, numpys):
        self.ours, self.numpys = ours, numpys


def drawn(random, shape, dtype):
    x = random.integers(0 if dtype in ("bool", "uint8") else -6, 7, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * random.integers(-3, 4, shape)
    return np.asarray(x).astype(dtype)


def distribution(random, shape):
    kind = random.integers(3)
    if kind == 0 or 0 in shape or not shape:
        return {}
    if kind == 1:
        return {"tiles": tuple(int(random.integers(1, n + 1)) for n in shape)}
    return {"blocks": tuple(int(random.integers(1, 3)) for _ in shape)}


def compared(what, ours, numpys):
    values = ours.gather() if isinstance(ours, kasane.Array) else ours
    numpys = np.asarray(numpys)
    if isinstance(ours, kasane.Array):
        kasane.barrier()
    assert np.shape(values) == numpys.shape, f"{what}: shape {np.shape(values)}, not {numpys.shape}"
    assert np.asarray(values).dtype == numpys.dtype, f"{what}: {np.asarray(values).dtype}, not {numpys.dtype}"
    close = {"rtol": 2e-4, "atol": 2e-4} if numpys.dtype.itemsize <= 8 and numpys.dtype.kind in "fc" else {}
    same = np.allclose(values, numpys, equal_nan=True, **close) if numpys.dtype.kind in "fc" else \
        np.array_equal(values, numpys)
    assert same, f"{what}:\n{values}\nnot\n{numpys}"


# ---- steps: each takes the generator and NumPy's array, and gives what to do with one of either package ----


def axis(random, x):
    return int(random.integers(-x.ndim, x.ndim))


def unary(random, x):
    name = str(random.choice(["negative", "abs", "square", "isfinite", "logical_not", "conj"]
                             if x.dtype.kind != "b" else ["logical_not", "isfinite", "abs"]))
    return name, lambda m, a: getattr(np, {"abs": "absolute", "conj": "conjugate"}.get(name, name))(a)


def astype(random, x):
    to = str(random.choice(["int64", "float64"] if x.dtype.kind != "c" else ["complex128"]))
    return f"astype {to}", lambda m, a: a.astype(to)


def reduction(random, x):
    names = ["sum", "any", "all", "count_nonzero", "mean"] if x.size else ["sum", "any", "all"]
    if x.size and x.dtype.kind in "iuf":
        names += ["min", "max", "argmin", "argmax", "std", "var"]
    name = str(random.choice(names))
    options = {"axis": None if random.integers(2) or not x.ndim else axis(random, x)}
    if random.integers(2) and name != "count_nonzero":
        options["keepdims"] = True
    if name in ("min", "max", "mean", "std", "var", "argmin", "argmax") and options["axis"] is not None and \
            not x.shape[options["axis"]]:
        return None
    return f"{name} {options}", lambda m, a: getattr(m, name)(a, **options)


def running(random, x):
    if not x.ndim or x.dtype.kind == "b":
        return None
    d = axis(random, x)
    return f"cumsum {d}", lambda m, a: m.cumsum(a, axis=d)


def reshaped(random, x):
    n, shape = x.size, []
    while n > 1 and len(shape) < 3:
        factors = [f for f in range(1, n + 1) if n % f == 0]
        shape.append(int(random.choice(factors)))
        n //= shape[-1]
    shape = tuple([*shape, n] if x.size else x.shape[::-1])
    return f"reshape {shape}", lambda m, a: m.reshape(a, shape)


def moved(random, x):
    if not x.ndim:
        return None
    d, k = axis(random, x), int(random.integers(-5, 6))
    which = random.integers(5)
    if which == 0:
        axes = tuple(int(i) for i in random.permutation(x.ndim))
        return f"transpose {axes}", lambda m, a: np.transpose(a, axes)
    if which == 1:
        return f"flip {d}", lambda m, a: m.flip(a, d)
    if which == 2:
        return f"roll {k} {d}", lambda m, a: m.roll(a, k, d)
    if which == 3:
        return f"repeat {d}", lambda m, a: m.repeat(a, 2, axis=d) if a.size < 500 else m.repeat(a, 1, axis=d)
    return f"expand_dims {d}", lambda m, a: m.expand_dims(a, d) if a.ndim < 4 else a


def joined(random, x):
    if not x.ndim or x.size > 2000:
        return None
    d = axis(random, x)
    which = str(random.choice(["concatenate", "stack"] if x.ndim < 4 else ["concatenate"]))
    return f"{which} {d}", lambda m, a: getattr(np, which)([a, a, a], axis=d)


def taken(random, x):
    if not x.ndim or 0 in x.shape:
        return None
    d = axis(random, x)
    at = random.integers(-x.shape[d], x.shape[d], int(random.integers(1, 9)))
    return f"take {at} {d}", lambda m, a: m.take(a, at, axis=d)


def ordered(random, x):
    if not x.ndim or x.dtype.kind == "c":
        return None
    d = axis(random, x)
    if random.integers(2):
        return f"argsort {d}", lambda m, a: m.argsort(a, axis=d, kind="stable")
    return f"sort {d}", lambda m, a: m.sort(a, axis=d)


def distinct(random, x):
    if x.dtype.kind == "c":
        return None
    return "unique", lambda m, a: m.unique(a, return_counts=True)[int(x.size % 2)]


def masked(random, x):
    if not x.ndim:
        return None
    return "a[a != 1]", lambda m, a: a[a != 1]


def chosen(random, x):
    """An index: NumPy's, which reads a patch; the whole of x stays an operand."""
    entries = []
    for n in x.shape:
        b, e = (int(i) for i in random.integers(-n - 1, n + 2, 2))
        step = int(random.choice([-3, -2, -1, 1, 2, 3]))
        entries.append(slice(b, e, step) if random.integers(3) or not n else int(random.integers(-n, n)))
    if x.ndim and x.shape[0] and random.integers(3) == 0:
        entries[0] = random.integers(-x.shape[0], x.shape[0], 4)
    index = tuple(entries)
    return f"[{index}]", lambda m, a: a[index]


def section(random, x):
    name, f = chosen(random, x)
    if "array" in name:
        return None
    index = eval(name[1:-1])  # the tuple that chosen() has drawn
    return f"section {index}", lambda m, a: kasane.section(a, index) if m is kasane else np.asarray(a[index])


UNARY = [unary, astype, reduction, running, reshaped, moved, joined, taken, ordered, distinct, masked, chosen,
         section]
BINARY = ["add", "subtract", "multiply", "maximum", "less", "equal", "logical_and"]


def binary(random, x, y):
    """(name, f(module, a, b)), or None where NumPy has none."""
    which = random.integers(4)
    if which == 0 and x.numpys.ndim and y.numpys.ndim and x.numpys.dtype.kind != "b" != y.numpys.dtype.kind:
        if x.numpys.shape[-1] == (y.numpys.shape[-2] if y.numpys.ndim > 1 else y.numpys.shape[0]):
            return "@", lambda m, a, b: a @ b
    if which == 1:
        return "where", lambda m, a, b: m.where(a != 0, a, b)
    name = str(random.choice(BINARY))
    if name == "subtract" and "b" in (x.numpys.dtype.kind, y.numpys.dtype.kind):
        name = "add"
    if name in ("maximum", "less") and "c" in (x.numpys.dtype.kind, y.numpys.dtype.kind):
        name = "equal"
    return name, lambda m, a, b: getattr(np, name)(a, b)


def numpys_of(operands):
    """The type of an array without dimensions counts as others' does, as in NumPy 2."""
    most = max(p.numpys.ndim for p in operands)
    return [p.numpys if p.numpys.ndim or not most else p.numpys.reshape(1) for p in operands]


def fused(x):
    a = kasane.lazy(x.ours)
    compared("fused", ((a * a + x.ours) * 2).sum(), ((x.numpys * x.numpys + x.numpys) * 2).sum())


def changed(random, x):
    """Stores through masks and arrays of integers."""
    ours, numpys = kasane.copy(x.ours), x.numpys.copy()
    value = numpys.dtype.type(3)
    ours[ours == 0] = value
    numpys[numpys == 0] = value
    if numpys.ndim and numpys.size:
        at = random.permutation(numpys.shape[0])[:3]
        rows = numpys[at]
        ours[kasane.asarray(at)] = rows + rows
        numpys[at] = rows + rows
        half = numpys.shape[0] // 2
        ours[half:] = kasane.asarray(numpys[half:][::-1])
        numpys[half:] = numpys[half:][::-1].copy()
    compared("stores", ours, numpys)


def limits(small):
    """What is cut into pieces, runs and results of some size is so in small arrays, too."""
    from kasane import _array, _blocks, _indexing, _linalg, _reductions, _sorting
    for module in (_array, _blocks, _indexing, _linalg, _reductions):
        module.PIECE = 160 if small else 512 << 10
    _reductions._SMALL = 100 if small else 1 << 20
    _sorting._RUN, _sorting._SAMPLE = (320, 5) if small else (32 << 20, 4096)


def program(seed, steps=14):
    limits(seed % 2)
    random = np.random.default_rng(seed)
    n, m, k = (int(i) for i in random.integers(1, 14, 3))
    shapes = [(n, m), (m,), (n, 1), (m, k), (k, n, m), (), (n * m * 9,), (0, m)]
    pairs = []
    for shape in (shapes[int(i)] for i in random.integers(0, len(shapes), 4)):
        values = drawn(random, shape, str(random.choice(TYPES)))
        pairs.append(Pair(kasane.array(values, **distribution(random, shape)), values))
    said = []
    try:
        for _ in range(steps):
            x, y = (pairs[int(i)] for i in random.integers(0, len(pairs), 2))
            if random.integers(2):
                step = UNARY[int(random.integers(len(UNARY)))](random, x.numpys)
                operands = (x,)
            else:
                step, operands = binary(random, x, y), (x, y)
            if step is None:
                continue
            name, f = step
            said.append(
                f"{name} of {', '.join(str((p.numpys.shape, str(p.numpys.dtype))) for p in operands)}"
            )
            try:
                with np.errstate(all="ignore"):
                    right = f(np, *numpys_of(operands))
            except ValueError:  # shapes that do not fit: ours are refused alike
                try:
                    f(kasane, *(p.ours for p in operands))
                except ValueError:
                    continue
                raise AssertionError(f"{said[-1]}: not refused") from None
            result = f(kasane, *(p.ours for p in operands))
            compared(said[-1], result, right)
            if isinstance(result, kasane.Array) and result.size <= 4000:
                pairs.append(Pair(result, np.asarray(right)))
        for p in pairs[:2]:
            if p.numpys.dtype.kind != "b" and p.numpys.size:
                fused(p)
            changed(random, p)
    except BaseException:
        print(f"rank {kasane.rank()}, seed {seed}: {said}", file=sys.stderr, flush=True)
        raise


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    start = time.time()
    for seed in range(first, first + count):
        program(seed)
    if kasane.rank() == 0:
        print(f"random programs: {count} passed on {kasane.ranks()} ranks, {time.time() - start:.1f} s",
              flush=True)
