# SPDX-License-Identifier: Apache-2.0
"""Arrays distributed over the processes of a job, larger than memory if need be.

    import kasane
    a = kasane.zeros((4000, 4000), tiles=(512, 512))     # by all ranks
    a[10:20, :] = kasane.rank()                          # from anywhere
    b = 2 * a + 1                                        # where the elements lie
    print((a @ b).sum())

Start it by ``mpirun -n 4 python3 program.py``, or alone. docs/guide/python.md is a guide.
"""
from ._array import Array, array, copy, dot, empty, full, load, matmul, zeros
from ._errors import ArgumentError, Error
from ._job import attach, attached, barrier, detach, rank, ranks

__all__ = ["Array", "ArgumentError", "Error", "array", "attach", "attached", "barrier", "copy", "detach",
           "dot", "empty", "full", "load", "matmul", "rank", "ranks", "zeros"]
