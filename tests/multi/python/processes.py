# SPDX-License-Identifier: Apache-2.0
"""Processes and threads of a program that has joined a job, by every rank: `processes.py`."""
import multiprocessing
import multiprocessing.pool
import os
import pickle
import threading
import time

import numpy as np

import kasane


def norm(x):
    return float(np.linalg.norm(x))


def refused_in_child(_):
    """A child that multiprocessing has forked has no part in the job, and does not wait for it."""
    said = []
    for f in (lambda: ARRAYS[0][3], lambda: ARRAYS[0].sum(), lambda: ARRAYS[0].put(3, 1),
              lambda: kasane.ones(5), kasane.barrier,
              kasane.detach, lambda: ARRAYS[0].local, lambda: ARRAYS[0].update_ghosts(),
              lambda: pickle.dumps(ARRAYS[0]), lambda: pickle.loads(PICKLES[0])):
        try:
            f()
            said.append("not refused")
        except kasane.Error as e:
            said.append("forked" in str(e) or str(e))
    ARRAYS.clear()  # the parent's is not freed
    return said


def alone(pickled):
    """A new process is a job of its own, of one rank."""
    return kasane.ranks(), float(kasane.ones(5).sum()), float(pickle.loads(pickled).sum())


def array_of(_):
    """What a process cannot send."""
    return kasane.ones(5)


def not_sent(pool):
    """Neither as an argument nor as a result: in words, and without an end to wait for."""
    for f, argument in ((norm, ARRAYS[0]), (array_of, 0)):
        try:
            pool.apply_async(f, (argument,)).get(60)
            raise AssertionError("not refused")
        except (TypeError, multiprocessing.pool.MaybeEncodingError) as e:
            assert "for another process" in str(e), e


ARRAYS, PICKLES = [], []


def processes():
    x = np.arange(5.0)
    ARRAYS.append(kasane.ones((60, 50), ghosts=1))
    PICKLES.append(pickle.dumps(ARRAYS[0]))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(norm, [x] * 4).get(60) == [norm(x)] * 4
        for said in pool.map_async(refused_in_child, range(2)).get(60):
            assert said == [True] * 10, said
    assert ARRAYS[0].sum() == 3000
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map_async(alone, PICKLES * 2).get(60) == [(1, 5.0, 3000.0)] * 2
            not_sent(pool)
    assert (ARRAYS[0] + 1).sum() == 6000


def exits_of_children():
    """A forked child that ends as a program does, or by an exception, takes nothing with it."""
    a = kasane.ones(100)
    for end in (lambda: None, lambda: 1 / 0):
        pid = os.fork()
        if pid == 0:
            import atexit
            import sys
            try:
                end()
                status = 0
            except ZeroDivisionError:
                status = 3
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, 3)
    assert a.sum() == 100


def threads():
    """Threads of every rank read, write and count, while the main thread computes with all ranks."""
    a, counter = kasane.zeros((64, 64), "int64"), kasane.zeros(1, "int64")
    b = kasane.array(np.arange(1000.0))
    wrong, begun = [], threading.Event()

    def work(k):
        begun.wait()
        for i in range(30):
            counter.fetch_add(0)
            a.accumulate(np.s_[k * 4:k * 4 + 4], np.ones((4, 64), "int64"))
            if b[i * 10] != i * 10 or b[5:9].tolist() != [5, 6, 7, 8]:
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    begun.set()
    for i in range(10):
        assert (b * i).sum() == 499500 * i
    for w in workers:
        w.join()
    kasane.barrier()
    assert not wrong and counter[0] == 120 * kasane.ranks()
    assert a.sum() == 120 * kasane.ranks() * 4 * 64
    kasane.barrier()


def callbacks():
    """Exceptions of callbacks: at the rank that raised as they are, at others with its text. All goes on."""
    last = kasane.ranks() - 1
    for kind in (ZeroDivisionError, KeyboardInterrupt, SystemExit, MemoryError):
        def fails(i, kind=kind):
            if kasane.rank() == last:
                raise kind("here alone")
            return i

        try:
            kasane.fromfunction(fails, (1000,))
            raise AssertionError("not raised")
        except (kind, kasane.Error) as e:
            assert "here alone" in str(e) and isinstance(e, kind if kasane.rank() == last else kasane.Error)
        assert kasane.ones(10).sum() == 10

    def other_shape(i):
        return np.zeros(len(i) + 1)

    try:
        kasane.fromfunction(other_shape, (1000,))
        raise AssertionError("not raised")
    except ValueError as e:
        assert "broadcast" in str(e)
    assert kasane.ones(10).sum() == 10


if __name__ == "__main__":
    for case in (processes, exits_of_children, threads, callbacks):
        start = time.time()
        case()
        if kasane.rank() == 0:
            print(f"{case.__name__}: {time.time() - start:.2f} s", flush=True)
    if kasane.rank() == 0:
        print(f"processes: passed on {kasane.ranks()} ranks", flush=True)
