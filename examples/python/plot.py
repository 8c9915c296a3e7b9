# SPDX-License-Identifier: Apache-2.0
"""What the programs here share: a figure that rank 0 draws, where matplotlib is installed."""
import sys

import kasane


def figure(name, draw):
    """NAME.png in the folder that the program was given: `program.py FOLDER`; else no figure."""
    if kasane.rank() != 0 or len(sys.argv) < 2:
        return
    try:
        import matplotlib
    except ImportError:
        print("no figure: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    _, axes = pyplot.subplots(figsize=(6, 4))
    draw(axes)
    pyplot.savefig(f"{sys.argv[1]}/{name}.png", dpi=100)
    print(f"{sys.argv[1]}/{name}.png")
