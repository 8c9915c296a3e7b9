# SPDX-License-Identifier: Apache-2.0
"""The Python package beside NumPy: `python3 python_peers.py SECTION FOLDER [TURNS]`, or on several ranks by
`kasane run --attach -n 2 -- python3 python_peers.py …`. Give OPENBLAS_NUM_THREADS=1.

  core    256 MiB in memory            NumPy
  small   ten elements; the import     NumPy
  files   256 MiB in .npy files        np.memmap; the page cache has them
  beyond  128 MiB with 64 MiB of memory: np.memmap, where need be by blocks; the page cache has them
  product of matrices of 128 MiB with 96 MiB of memory: NumPy's in memory

Files are in FOLDER. Rank 0 does the peer's part alone, all ranks ours, in turns. Prints medians of the time
on the clock and of all ranks' processor time, in ms (small: in us), and what is ours over the peer's.
"""
import os
import struct
import subprocess
import sys
import time

import numpy as np

import kasane
from kasane import _core

MIB = 1 << 20
SECTION, FOLDER = sys.argv[1], sys.argv[2]
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 5


def processor():
    """Seconds of all ranks."""
    mine = struct.pack("d", time.process_time())
    return sum(struct.unpack("d", b)[0] for b in _core.allgather(mine))


def timed(f, times, here):
    before, begin = processor(), time.perf_counter()
    if here:
        for _ in range(times):
            f()
    taken = time.perf_counter() - begin
    return np.array([taken, processor() - before]) / times


def row(name, peer, ours, times=1):
    """One line."""
    results = []
    for _ in range(TURNS + 1):  # the first is not counted
        results.append([timed(peer, times, kasane.rank() == 0), timed(ours, times, True)])
    medians = np.median(np.array(results[1:]), axis=0) * (1e3 if times == 1 else 1e6)
    (wall, used), (own_wall, own_used) = medians
    if kasane.rank() == 0:
        print(f"{name:24} {wall:8.2f} {used:8.2f}   {own_wall:8.2f} {own_used:8.2f}   {own_wall / wall:5.2f} "
              f"{own_used / used:5.2f}", flush=True)


def core():
    n = 32 * MIB
    x, y, z = np.random.default_rng(1).random(n), np.ones(n), np.empty(n)
    a, b, c = kasane.array(x), kasane.array(y), kasane.empty(n)
    row("a + b, out=", lambda: np.add(x, y, out=z), lambda: np.add(a, b, out=c))
    row("exp, out=", lambda: np.exp(x, out=z), lambda: np.exp(a, out=c))
    row("sum", x.sum, a.sum)
    row("std", x.std, a.std)
    row("((a - b) ** 2).sum()", lambda: ((x - y) ** 2).sum(), lambda: ((kasane.lazy(a) - b) ** 2).sum())
    m = x[:2048 ** 2].reshape(2048, 2048)
    p, q = kasane.array(m, tiles=(512, 512)), kasane.empty((2048, 2048), tiles=(512, 512))
    out = np.empty_like(m)
    row("matmul 2048", lambda: np.matmul(m, m, out=out), lambda: kasane.matmul(p, p, out=q))


def small():
    x, z = np.arange(10.0), np.empty(10)
    a, c = kasane.array(x), kasane.empty(10)
    for name, peer, ours in (("a + a", lambda: x + x, lambda: a + a),
                             ("a + a, out=", lambda: np.add(x, x, out=z), lambda: np.add(a, a, out=c)),
                             ("a += 1", lambda: x.__iadd__(1), lambda: a.__iadd__(1)),
                             ("sum", x.sum, a.sum), ("mean", x.mean, a.mean),
                             ("a[3]", lambda: x[3], lambda: a[3]),
                             ("a[2:5] = 1", lambda: x.__setitem__(np.s_[2:5], 1),
                              lambda: a.__setitem__(np.s_[2:5], 1)),
                             ("zeros", lambda: np.zeros(10), lambda: kasane.zeros(10)),
                             ("sort", lambda: np.sort(x), lambda: kasane.sort(a))):
        row(name, peer, ours, 1000)
    if kasane.ranks() == 1:
        run = [sys.executable, "-c"]
        row("import", lambda: subprocess.run([*run, "import numpy"], check=True),
            lambda: subprocess.run([*run, "import kasane"], check=True))


def in_files(names, shape):
    """NumPy's maps of files, and ours of the same."""
    paths = [os.path.join(FOLDER, f"peers-{name}.npy") for name in names]
    if kasane.rank() == 0:
        for k, path in enumerate(paths):
            made = np.lib.format.open_memmap(path, "w+", float, shape)
            made[...] = np.random.default_rng(k).random(shape)
    kasane.barrier()
    return paths, [np.load(p, mmap_mode="r+") for p in paths]


def by_blocks(f, x, *more):
    """f of blocks of 4 MiB."""
    for i in range(0, x.size, MIB // 2):
        yield f(*(v[i:i + MIB // 2] for v in (x, *more)))


def files():
    paths, (x, y, z) = in_files("abc", (32 * MIB,))
    a, b, c = (kasane.open_memmap(p, "r+") for p in paths)

    def add():
        for _ in by_blocks(lambda p, q, r: np.add(p, q, out=r), x, y, z):
            pass

    def store():
        c[...] = kasane.lazy(a) + b

    row("sum", x.sum, a.sum)
    row("mean", x.mean, a.mean)
    row("std", x.std, a.std)
    row("a + b into a third", add, store)
    row("((a - b) ** 2).sum()", lambda: sum(by_blocks(lambda p, q: ((p - q) ** 2).sum(), x, y)),
        lambda: ((kasane.lazy(a) - b) ** 2).sum())
    return paths


def beyond():
    n = 4096
    paths, (x, z) = in_files("ab", (n, n))
    a, other = kasane.load(paths[0], tiles=(512, 512)), z.reshape(-1)
    line = kasane.reshape(a, -1)

    def transpose():
        for i in range(0, n, 512):
            for j in range(0, n, 512):
                z[j:j + 512, i:i + 512] = x[i:i + 512, j:j + 512].T

    def sort():
        other[:] = x.reshape(-1)
        other.sort()

    row("a.T copied", transpose, lambda: a.T)
    row("sort", sort, lambda: kasane.sort(line))
    row("sum", x.sum, a.sum)
    return paths


def product():
    n = 4096
    a, b = (kasane.random.random((n, n), seed=k, tiles=(512, 512)) for k in range(2))
    x, y, z, c = a.gather(), b.gather(), np.empty((n, n)), kasane.empty((n, n), tiles=(512, 512))
    row("matmul 4096", lambda: np.matmul(x, y, out=z), lambda: kasane.matmul(a, b, out=c))
    assert np.allclose(c[7], z[7])


DRAM = {"beyond": "64M", "product": "96M"}.get(SECTION)
kasane.attach(**({"dram": DRAM, "spill": FOLDER} if DRAM else {}))
if kasane.rank() == 0:
    print(f"{SECTION}, {kasane.ranks()} ranks: peer's time, processor time; ours; ours over the peer's")
made = globals()[SECTION]()
kasane.barrier()
if kasane.rank() == 0:
    for path in made or ():
        os.remove(path)
