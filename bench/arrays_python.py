# SPDX-License-Identifier: Apache-2.0
"""What patches cost in Python: `kasane run --attach -n 2 -- python3 arrays_python.py REPETITIONS`.

Rank 0 puts and gets patches of an array of two blocks, one at each rank, as player-arrays does in C++.
"get-into": into an array that is there; "get-new": what a[…] returns. 1x1: one element, a[i, j]. Prints one
JSON object with lists of GB/s.
"""
import json
import sys
import time

import numpy as np

import kasane

ROWS, COLUMNS = 1024, 2048  # of a block
SHAPE = (64, 2048)  # 1 MiB
PLACES = (("own", 7), ("other", ROWS + 7))  # the first row


def rate(size, f):
    times = 10000 if size < 4096 else 20
    for _ in range(3):  # so that the memory that NumPy takes is there
        f()
    start = time.perf_counter()
    for _ in range(times):
        f()
    return size * times / (time.perf_counter() - start) / 1e9


def measure(a, figures):
    values = np.zeros(SHAPE)
    for where, row in PLACES:
        patch = np.s_[row:row + SHAPE[0]]

        def put():
            a[patch] = values

        for what, f in (("put", put), ("get-into", lambda: a.get(patch, out=values)),
                        ("get-new", lambda: a[patch])):
            figures.setdefault(f"{what}-1MiB-{where}", []).append(rate(values.nbytes, f))
        figures.setdefault(f"get-new-1x1-{where}", []).append(rate(8, lambda: a[row, 11]))


def right(a):
    """Whether the calls that are measured put and get what they should, and nothing beside it."""
    is_ = np.zeros(a.shape)
    values, out = np.arange(1.0, SHAPE[0] * SHAPE[1] + 1).reshape(SHAPE), np.empty(SHAPE)
    good = True
    for _, row in PLACES:
        patch = np.s_[row:row + SHAPE[0]]
        a[patch] = is_[patch] = values
        good = good and np.array_equal(a.get(patch, out=out), values) and np.array_equal(a[patch], values)
        good = good and a[row, 11] == values[0, 11]
    return bool(good) and np.array_equal(a.gather(), is_)


def main():
    a = kasane.zeros((2 * ROWS, COLUMNS), blocks=(2, 1))
    done = kasane.zeros(kasane.ranks(), "int32")
    figures = {}
    if kasane.rank() == 0:
        verified = kasane.ranks() == 2 and right(a)
        for _ in range(int(sys.argv[1])):
            measure(a, figures)
        print(json.dumps({"verified": verified, **figures}))
        done[:] = 1
    while not done.local[0]:  # asleep, as a rank of the C++ player is
        time.sleep(0.05)


main()
