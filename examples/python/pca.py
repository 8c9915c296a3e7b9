# SPDX-License-Identifier: Apache-2.0
"""Principal components of a tall matrix: rows lie in tiles over the ranks, the covariance is small.

    kasane run --attach -n 2 -- python3 pca.py FOLDER
"""
import numpy as np
from plot import figure

import kasane

ROWS, COLUMNS, HIDDEN = 40_000, 30, 3

# Rows that are mixtures of three hidden variables, with noise.
mixing = np.random.default_rng(0).standard_normal((HIDDEN, COLUMNS)) * np.array([[5.0], [3.0], [2.0]])
hidden = kasane.random.standard_normal((ROWS, HIDDEN), seed=1, tiles=(4096, HIDDEN))
noise = kasane.random.standard_normal((ROWS, COLUMNS), seed=2, tiles=(4096, COLUMNS))
x = kasane.matmul(hidden, kasane.asarray(mixing)) + 0.5 * noise

x -= x.mean(axis=0)
covariance = (x.T @ x).gather() / (ROWS - 1)              # 30 x 30, at each rank
variances, directions = np.linalg.eigh(covariance)
variances, directions = variances[::-1], np.ascontiguousarray(directions[:, ::-1])
scores = x @ kasane.asarray(directions[:, :2])            # tall again, distributed

assert variances[HIDDEN - 1] > 20 * variances[HIDDEN] and abs(variances[-1] - 0.25) < 0.05
assert np.allclose(scores.var(axis=0, correction=1)[...], variances[:2])

some = scores[:2000]


def draw(axes):
    axes.scatter(some[:, 0], some[:, 1], s=2)
    axes.set_xlabel(f"component 1 ({variances[0] / variances.sum():.0%} of the variance)")
    axes.set_ylabel(f"component 2 ({variances[1] / variances.sum():.0%})")


figure("pca", draw)
if kasane.rank() == 0:
    print(f"variances {np.round(variances[:4], 2)}: passed")
