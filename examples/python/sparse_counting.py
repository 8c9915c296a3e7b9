# SPDX-License-Identifier: Apache-2.0
"""Counts pairs that are few of very many: which two of ten thousand things come together, and how often.

    kasane run --attach -n 2 -- python3 sparse_counting.py FOLDER
"""
import numpy as np
from plot import figure

import kasane

PAIRS, THINGS = 300_000, 10_000

# Things are the rarer, the higher their number.
first, second = (kasane.floor(THINGS * kasane.random.random(PAIRS, seed=s, tiles=1 << 15) ** 6)
                 for s in (1, 2))
low = kasane.minimum(first, second).astype(np.int64)
high = kasane.maximum(first, second).astype(np.int64)
keys, counts = kasane.unique_counts(low * THINGS + high)     # of a hundred million that could be
assert counts.sum() == PAIRS and keys.size < PAIRS

often = kasane.nonzero(counts >= 100)[0]
order = kasane.argsort(counts[often], descending=True)
best, times = keys[often][order], counts[often][order]
if kasane.rank() == 0:
    for key, n in zip(best[:3], times[:3]):
        print(f"things {key // THINGS} and {key % THINGS}: {n} times")

# How often each thing comes at all: by counters anywhere, that any rank adds to.
total = kasane.zeros(THINGS, np.int64)
for _, part in first.parts():
    things, n = np.unique(part.astype(np.int64), return_counts=True)
    dense = np.bincount(things, n, THINGS).astype(np.int64)
    total.accumulate(..., dense)
kasane.barrier()
assert total.sum() == PAIRS and total[0] == (first == 0).sum()

ranked = kasane.sort(counts, descending=True).gather()


def draw(axes):
    axes.loglog(np.arange(1, len(ranked) + 1), ranked)
    axes.set_xlabel("rank of the pair")
    axes.set_ylabel("times")


figure("sparse_counting", draw)
if kasane.rank() == 0:
    print(f"{keys.size} pairs of {THINGS ** 2}, the most frequent {ranked[0]} times: passed")
