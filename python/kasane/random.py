# SPDX-License-Identifier: Apache-2.0
"""Random numbers by the elements' indices: the same ones on however many ranks.

Element i, in C's order, takes number i of the generator Philox with the given seed (Salmon et al. 2011),
which computes any of its numbers without those before.
"""
import math

import numpy as np

from ._blocks import Lazy, evaluate
from ._array import Array

__all__ = ["integers", "random", "standard_normal"]


def _numbers(seed, begin, n):
    """Numbers begin to begin + n of 64 bits; a step of the generator makes four."""
    generator = np.random.Philox(key=seed)
    generator.advance(begin // 4)
    return generator.random_raw(begin % 4 + n)[begin % 4:]


def _drawn(call, shape, dtype, seed, of_numbers, how, each=1):
    a = Array(shape, dtype, **how)
    row = a.shape[-1] if a.ndim else 1

    def block(low, high):
        extents = [e - b for b, e in zip(low, high)]
        if not a.ndim:
            return of_numbers(_numbers(seed, 0, each)).reshape(())
        out = np.empty(extents, dtype)
        for at in np.ndindex(*extents[:-1]):
            line = int(np.ravel_multi_index([i + b for i, b in zip(at, low)], a.shape[:-1])) if at else 0
            out[at] = of_numbers(_numbers(seed, (line * row + low[-1]) * each, extents[-1] * each))
        return out

    return evaluate(Lazy(a.shape, a.dtype, [], block, (call, seed)), a)


def _uniform(numbers):
    return (numbers >> np.uint64(11)) * 2.0**-53


def random(shape, seed=0, dtype=np.float64, **how):
    """Numbers of [0, 1), each as likely. Collective. How it is distributed: see empty()."""
    return _drawn("random", shape, dtype, seed, _uniform, how)


def standard_normal(shape, seed=0, dtype=np.float64, **how):
    """Normally distributed numbers of mean 0 and variance 1, by Box and Muller. Collective. See empty()."""
    def normal(numbers):
        u = _uniform(numbers)
        return np.sqrt(-2 * np.log1p(-u[::2])) * np.cos(2 * math.pi * u[1::2])

    return _drawn("standard_normal", shape, dtype, seed, normal, how, 2)


def integers(low, high, shape, seed=0, dtype=np.int64, **how):
    """Integers of [low, high), each as likely but for 2^-64 of their number. Collective. See empty()."""
    width = high - low
    if not 0 < width < 1 << 63:
        raise ValueError(f"kasane.random.integers: from {low} up to {high}")
    return _drawn("integers", shape, dtype, seed,
                  lambda numbers: ((numbers % np.uint64(width)).astype(np.int64) + low).astype(dtype), how)
