# SPDX-License-Identifier: Apache-2.0
"""Statistics of a stack of images: each image lies at one rank, and what is seen of all is small.

    kasane run --attach -n 2 -- python3 image_stack.py FOLDER
"""
import numpy as np
from plot import figure

import kasane

IMAGES, ROWS, COLUMNS = 60, 120, 160


def star(k, i, j):
    """A spot that moves from image to image."""
    return 200 * np.exp(-((i - 30 - k) ** 2 + (j - 20 - 2 * k) ** 2) / 50)


noise = kasane.random.standard_normal((IMAGES, ROWS, COLUMNS), seed=1, tiles=(4, ROWS, COLUMNS))
stack = kasane.fromfunction(star, noise.shape, tiles=(4, ROWS, COLUMNS))
stack += 10 * noise + 50

mean, brightest = stack.mean(axis=0), stack.max(axis=0)
background = stack.mean(axis=(1, 2))                 # one number for each image
clean = kasane.clip(kasane.lazy(stack) - mean, 0)    # computed block by block, when it is read
moved = clean.argmax(axis=2).max(axis=1)             # where each image differs most
assert abs(background[...].mean() - stack.mean()) < 1e-9 and stack.std() > 10

image = brightest.gather()                           # 150 KiB, at each rank
assert image[60, 80] > 200 > image[110, 5]


def draw(axes):
    axes.imshow(image, cmap="magma")
    axes.set_title(f"the brightest of {IMAGES} images at each place")


figure("image_stack", draw)
if kasane.rank() == 0:
    print(f"mean {background[...].mean():.1f}, brightest {image.max():.0f}, "
          f"last at column {moved[-1]}: passed")
