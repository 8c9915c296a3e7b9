#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NumPy reads what arrays save, and arrays load what NumPy saves. Exits 77 without NumPy.

Usage: numpy_files.py KASANE NPY_PROGRAM
"""
import glob
import os
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    print("skipped: no NumPy (Debian: python3-numpy)")
    sys.exit(77)

TYPES = ["b1", "i1", "u1", "i2", "u4", "i8", "f4", "f8", "c8", "c16"]
SHAPES = [(1000,), (37, 53), (7, 11, 13), (3, 1, 5, 8)]


def right(kind, shape):
    k = numpy.arange(numpy.prod(shape))
    values = (k % 100 - 1j * (k % 7)) if kind[0] == "c" else k % 100
    return values.astype(kind).reshape(shape)


def main(kasane, program):
    with tempfile.TemporaryDirectory() as folder:
        def run(action):
            subprocess.run([kasane, "run", "-n", "2", "--", program, action, folder], check=True, timeout=60)

        run("save")
        for kind in TYPES:
            for shape in SHAPES:
                array = numpy.load(f"{folder}/{kind}_{len(shape)}.npy", mmap_mode="r")
                assert array.dtype == kind and array.shape == shape, (kind, shape, array.dtype, array.shape)
                assert (array == right(kind, shape)).all(), (kind, shape)
        for file in glob.glob(f"{folder}/*"):
            os.remove(file)
        for kind in TYPES:
            for shape in SHAPES:
                with open(f"{folder}/{kind}_{len(shape)}.npy", "wb") as file:
                    version = (2, 0) if len(shape) % 2 == 0 else (1, 0)
                    numpy.lib.format.write_array(file, right(kind, shape), version)
        run("load")


main(*sys.argv[1:])
