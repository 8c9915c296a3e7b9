# SPDX-License-Identifier: Apache-2.0
"""The Python package beside NumPy: `python3 python_peers.py SECTION FOLDER [TURNS [MIB [cold]]]`, or on
several ranks by `kasane run --attach -n 2 -- python3 python_peers.py …`. Give OPENBLAS_NUM_THREADS=1.

  core    256 MiB in memory            NumPy
  small   ten elements; the import     NumPy
  files   256 MiB in .npy files        np.memmap; where need be by blocks
  beyond  arrays of 128 MiB with a quarter of that in memory: the same; std by blocks
  order   a sort of those              np.sort of a map
  product of matrices of 128 MiB with a quarter of all three: NumPy's in memory

MIB: of files, beyond, order and product. The page cache has the files; cold: it has none when a turn begins.

Files are in FOLDER. Rank 0 does the peer's part alone, all ranks ours, in turns. Prints medians of the time
on the clock, less that in which the thread waited for a processor that others had, and of all ranks'
processor time, in ms (small: in us), and what is ours over the peer's.
"""
import gc
import mmap
import os
import resource
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
SIZE = int(sys.argv[4]) if len(sys.argv) > 4 else 256 if SECTION == "files" else 128
COLD = "cold" in sys.argv
MAPS = []


def processor():
    """Seconds of all ranks."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    mine = struct.pack("d", time.process_time() + children.ru_utime + children.ru_stime)
    return sum(struct.unpack("d", b)[0] for b in _core.allgather(mine))


def drop():
    """The page cache has none of the files, which it keeps while they are in a process's page tables."""
    gc.collect()  # maps of what was loaded
    for m in MAPS:
        m.madvise(mmap.MADV_DONTNEED)
    kasane.barrier()
    for name in os.listdir(FOLDER) if kasane.rank() == 0 else ():
        if name.startswith("peers-"):
            with open(os.path.join(FOLDER, name), "rb+") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def waited():
    """Seconds in which this thread could have run, and others did."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9


def timed(f, times, here):
    if COLD:
        drop()
    kasane.barrier()
    before, begin = processor(), time.perf_counter() - waited()
    if here:
        for _ in range(times):
            f()
    taken = time.perf_counter() - waited() - begin
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
            random = np.random.default_rng(k)
            for first in range(0, shape[0], 1 + shape[0] // 64):
                part = made[first:first + 1 + shape[0] // 64]
                part[...] = random.random(part.shape)
    kasane.barrier()
    maps = [np.load(p, mmap_mode="r+") for p in paths]
    MAPS.extend(m._mmap for m in maps)
    return paths, maps


def by_blocks(f, x, *more):
    """f of blocks of 4 MiB."""
    for i in range(0, x.size, MIB // 2):
        yield f(*(v[i:i + MIB // 2] for v in (x, *more)))


def files():
    paths, (x, y, z) = in_files("abc", (SIZE * MIB // 8,))
    a, b, c = (kasane.open_memmap(p, "r+") for p in paths)
    MAPS.extend(m._source._mmap for m in (a, b, c))

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
    n = int((SIZE * MIB // 8) ** .5) // 512 * 512
    paths, (x, y, z) = in_files("abc", (n, n))
    a, b, c = (kasane.load(p, tiles=(512, 512)) for p in paths)

    def transpose():
        for i in range(0, n, 512):
            for j in range(0, n, 512):
                z[j:j + 512, i:i + 512] = x[i:i + 512, j:j + 512].T

    def add():
        for _ in by_blocks(lambda p, q, r: np.add(p, q, out=r), *(v.reshape(-1) for v in (x, y, z))):
            pass

    def std():
        mean, flat = x.mean(), x.reshape(-1)
        return (sum(by_blocks(lambda p: ((p - mean) ** 2).sum(), flat)) / x.size) ** .5

    row("sum", x.sum, a.sum)
    row("std", std, a.std)
    row("a + b, out=", add, lambda: np.add(a, b, out=c))
    row("((a - b) ** 2).sum()",
        lambda: sum(by_blocks(lambda p, q: ((p - q) ** 2).sum(), x.reshape(-1), y.reshape(-1))),
        lambda: ((kasane.lazy(a) - b) ** 2).sum())
    row("a.T copied", transpose, lambda: a.T)
    return paths


def order():
    paths, (x, z) = in_files("ab", (SIZE * MIB // 8,))
    a = kasane.load(paths[0], tiles=1 << 18)

    def sort():
        z[:] = x
        z.sort()

    row("sort", sort, lambda: kasane.sort(a))
    return paths


def product():
    n = int((SIZE * MIB // 8) ** .5)
    a, b = (kasane.random.random((n, n), seed=k, tiles=(512, 512)) for k in range(2))
    x, y, z, c = a.gather(), b.gather(), np.empty((n, n)), kasane.empty((n, n), tiles=(512, 512))
    row(f"matmul {n}", lambda: np.matmul(x, y, out=z), lambda: kasane.matmul(a, b, out=c))
    assert np.allclose(c[7], z[7])


DRAM = {"beyond": f"{SIZE // 4}M", "order": f"{SIZE // 4}M", "product": f"{SIZE * 3 // 4}M"}.get(SECTION)
kasane.attach(**({"dram": DRAM, "spill": FOLDER} if DRAM else {}))
if kasane.rank() == 0:
    print(f"{SECTION}, {kasane.ranks()} ranks: peer's time, processor time; ours; ours over the peer's")
made = globals()[SECTION]()
kasane.barrier()
if kasane.rank() == 0:
    for path in made or ():
        os.remove(path)
