# SPDX-License-Identifier: Apache-2.0
"""Waves on a membrane by finite differences: blocks with ghost cells, and this rank's part without copies.

    kasane run --attach -n 2 -- python3 finite_differences.py FOLDER
"""
import numpy as np
from plot import figure

import kasane

N, STEPS, C2 = 200, 150, 0.25  # c² dt² / dx²


def drop(i, j):
    return np.exp(-((i - N / 3) ** 2 + (j - N / 2) ** 2) / 40)


u = kasane.fromfunction(drop, (N, N), ghosts=1, periodic=True)
before, after = (kasane.empty((N, N), ghosts=1, periodic=True) for _ in range(2))
kasane.copy(u, before)
total = u.sum()
for _ in range(STEPS):
    u.update_ghosts()                                    # collective: the neighbours' edges
    for (_, v), (_, old), (_, new) in zip(u.parts(ghosts=True), before.parts(), after.parts()):
        here = v[1:-1, 1:-1]
        new[...] = 2 * here - old + C2 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:] - 4 * here)
    before, u, after = u, after, before
kasane.barrier()                                         # others read what was stored
assert abs(u.sum() - total) < 1e-6 * total               # nothing leaves a periodic membrane
assert u.max() < 0.5

wave = u.gather()


def draw(axes):
    axes.imshow(wave, cmap="coolwarm", vmin=-0.1, vmax=0.1)
    axes.set_title(f"a drop on a membrane after {STEPS} steps")


figure("finite_differences", draw)
if kasane.rank() == 0:
    print(f"highest {wave.max():.3f}, lowest {wave.min():.3f}: passed")
