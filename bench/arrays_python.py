# SPDX-License-Identifier: Apache-2.0
"""What patches cost in Python: `kasane run --attach -n 2 -- python3 arrays_python.py REPETITIONS`.

Rank 0 gets and puts patches of an array of two blocks, one at each rank, as player-arrays does in C++.
"into": into an array that is there; "new": what a[…] returns. Prints one JSON object with lists of GB/s.
"""
import json
import sys
import time

import numpy as np

import kasane

ROWS, COLUMNS = 1024, 2048  # of a block
SHAPES = {"1MiB": (64, 2048), "256x256": (256, 256), "1000x8": (1000, 8), "1x1": (1, 1)}


def rate(shape, f):
    size = 8 * shape[0] * shape[1]
    times = 10000 if size < 4096 else 200 if size < 100000 else 20
    for _ in range(3):  # so that the memory that NumPy takes is there
        f()
    start = time.perf_counter()
    for _ in range(times):
        f()
    return size * times / (time.perf_counter() - start) / 1e9


def measure(a, figures):
    for name, shape in SHAPES.items():
        values = np.zeros(shape)
        for where, begin in (("own", 7), ("other", ROWS + 7)):
            column = 0 if shape[1] == COLUMNS else 11
            patch = np.s_[begin:begin + shape[0], column:column + shape[1]]

            def put():
                a[patch] = values

            def accumulate():
                a.accumulate(patch, values)

            for what, f in (("put", put), ("get-into", lambda: a.get(patch, out=values)),
                            ("get-new", lambda: a[patch]), ("accumulate", accumulate)):
                figures.setdefault(f"{what}-{name}-{where}", []).append(rate(shape, f))


def main():
    a = kasane.zeros((2 * ROWS, COLUMNS), blocks=(2, 1))
    done = kasane.zeros(kasane.ranks(), "int32")
    figures = {}
    if kasane.rank() == 0:
        for _ in range(int(sys.argv[1])):
            measure(a, figures)
        print(json.dumps({"verified": kasane.ranks() == 2, **figures}))
        done[:] = 1
    while not done.local[0]:  # asleep, as a rank of the C++ player is
        time.sleep(0.05)


main()
