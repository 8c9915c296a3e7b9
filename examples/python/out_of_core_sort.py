# SPDX-License-Identifier: Apache-2.0
"""Sorts a file that is larger than the memory it gets: 32 MB with a budget of 16 MiB.

    KASANE_DRAM=16M KASANE_SPILL=/mnt/ssd python3 out_of_core_sort.py FOLDER
"""
import os
import sys

import numpy as np
from plot import figure

import kasane

N, TILE = 4_000_000, 1 << 16

folder = sys.argv[1] if len(sys.argv) > 1 else "."
names = [os.path.join(folder, f"sort_{which}_{kasane.ranks()}.npy") for which in ("in", "out")]
file = kasane.open_memmap(names[0], "w+", np.float64, (N,))
file[...] = kasane.random.standard_normal(N, seed=1, tiles=TILE)    # written by all ranks, block by block

a = kasane.load(names[0], tiles=TILE)
b = kasane.sort(a)
kasane.save(names[1], b)

result = kasane.open_memmap(names[1], "r")
quantiles = result[::N // 1000]                                     # a thousand elements
assert abs(result.sum() - file.sum()) < 1e-6 and (np.diff(quantiles) >= 0).all()
assert (np.diff(b[N // 2:N // 2 + 9999]) >= 0).all()
assert abs(quantiles[500]) < 0.01 and abs(quantiles[841] - 1) < 0.02


def draw(axes):
    axes.plot(np.linspace(0, 1, len(quantiles)), quantiles)
    axes.set_xlabel("share of the elements")
    axes.set_ylabel("below")


figure("out_of_core_sort", draw)
kasane.barrier()
if kasane.rank() == 0:
    for name in names:
        os.remove(name)
    print(f"smallest {b[0]:.2f}, largest {b[-1]:.2f}: passed")
