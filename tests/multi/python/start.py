# SPDX-License-Identifier: Apache-2.0
"""kasane.start(): ranks behind a script and a REPL: `start.py FOLDER [CASE…]`."""
import copy
import os
import pickle
import pty
import re
import select
import signal
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler

import numpy as np

import kasane

FOLDER = sys.argv[1]
RANKS = 3


def refused(kind, part, f):
    try:
        f()
    except kind as e:
        assert part in str(e), f"{part!r} is not in {type(e).__name__}: {e}"
        return
    raise AssertionError(f"no {kind.__name__} with {part!r}")


def until(what, f, seconds=60):
    end = time.monotonic() + seconds
    while not f():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def files_of(pids):
    """Of shared memory, which the ranks have mapped."""
    found = set()
    for pid in pids:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            found |= {line.split()[5] for line in maps if " /dev/shm/" in line}
    return found


def all_end(pids, files):
    until("the ranks end", lambda: not any(alive(p) for p in pids))
    until("their files go", lambda: not any(os.path.exists(f) for f in files))


# ---- a script -------------------------------------------------------------------------------------------


def used():
    """What is done with arrays, as if they were here."""
    x = np.arange(20.0).reshape(4, 5)
    a = kasane.array(x, tiles=(2, 2))
    assert isinstance(a, kasane.Array) and a.shape == (4, 5) and len(a) == 4 and a.dtype == float
    assert (a.ndim, a.size, a.nbytes, a.tile) == (2, 20, 160, (2, 2)) and "(4, 5) in tiles" in repr(a)
    assert kasane.ranks() == RANKS and kasane.rank() == 0 and kasane.attached()
    for ours, right in ((a + 1, x + 1), (2 * a, 2 * x), (a @ a.T, x @ x.T), (np.exp(a), np.exp(x)),
                        (np.sum(a, axis=0), x.sum(axis=0)), (a[a > 7], x[x > 7]), (a ** 2, x ** 2),
                        (kasane.linalg.norm(a, axis=1), np.linalg.norm(x, axis=1)), (a.T, x.T),
                        (kasane.where(a > 3, a, -1), np.where(x > 3, x, -1)),
                        (a.reshape(2, -1), x.reshape(2, -1)), (copy.deepcopy(a), x), (copy.copy(a), x),
                        (kasane.concat([a, a]), np.concatenate([x, x])),
                        (kasane.evaluate(kasane.lazy(a) * 2 - a), x)):
        assert np.allclose(ours[...], right), right
    assert a.sum() == x.sum() and np.linalg.norm(a) == np.linalg.norm(x) and a.argmax() == 19
    assert a[2, 3] == x[2, 3] and [list(row) for row in a] == x.tolist() and 7 in a and bool(kasane.ones(1))
    assert np.array_equal(np.asarray(a), x) and float(kasane.full((), 2.5)) == 2.5
    a[1] = 5
    x[1] = 5
    a[a > 15] = 0
    x[x > 15] = 0
    assert np.array_equal(a.gather(), x)
    b = a
    a += 1
    assert a is b and np.add(a, 1, out=b) is a and np.array_equal(a.get(), x + 2)
    c = kasane.zeros(7, int)
    assert [c.fetch_add(3, 2) for _ in range(3)] == [0, 2, 4] and c.sum() == 6
    c.accumulate(np.s_[:3], np.ones(3, int))
    assert c.sum() == 9 and kasane.isdtype(c.dtype, "integral")
    values, counts = kasane.unique_counts(c)
    assert values[...].tolist() == [0, 1, 6] and counts.gather().tolist() == [3, 3, 1]
    out = np.empty(3)
    assert a.get(np.s_[0, :3], out=out) is out and np.array_equal(out, x[0, :3] + 2)
    path = os.path.join(FOLDER, "start.npy")
    m = kasane.open_memmap(path, "w+", float, (4, 5))
    m[...] = a
    assert np.array_equal(np.load(path), a.gather()) and m.path == path and m[1, 1] == a[1, 1]
    twin, again = pickle.loads(pickle.dumps([a, a]))
    assert twin is again and isinstance(twin, kasane.Array) and twin.tile == (2, 2) and twin.dtype == float
    assert np.array_equal(twin.gather(), a.gather())
    twin += 1
    assert np.array_equal(twin.gather(), a.gather() + 1)
    large = kasane.empty((64 << 20) // 8 + 1)
    refused(TypeError, "kasane.save(path, a)", lambda: pickle.dumps(large))
    refused(TypeError, "for another process", lambda: ForkingPickler.dumps(a))
    refused(AttributeError, "which this process is not", lambda: a.local)
    refused(AttributeError, "no attribute 'spam'", lambda: a.spam)
    kasane.barrier()
    os.remove(path)


def callbacks():
    """Functions of this script, with what they close over and the globals that they name."""
    n = 3
    a = kasane.fromfunction(lambda i, j: i * n + scaled(j), (3, 4))
    assert np.array_equal(a[...], np.arange(3)[:, None] * 3.0 + np.arange(4) * 10)

    def fails(i):
        raise ZeroDivisionError(f"at {n}")

    refused(ZeroDivisionError, "at 3", lambda: kasane.fromfunction(fails, (5,)))
    refused(Exception, "", lambda: kasane.fromfunction(lambda i: Local() + i, (5,)))
    assert a.sum() == 216


def of_module():
    """A module beside the script."""
    folder = os.path.join(FOLDER, "start_module")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "start_helper.py"), "w", encoding="utf-8") as f:
        f.write("def twice(i):\n    return 2 * i\n")
    text = "import kasane, start_helper\nkasane.start(ranks=2)\n" \
           "print(kasane.fromfunction(start_helper.twice, 5).sum())\n"
    with open(os.path.join(folder, "start_script.py"), "w", encoding="utf-8") as f:
        f.write(text)
    done = subprocess.run([sys.executable, os.path.join(folder, "start_script.py")], capture_output=True,
                          text=True, timeout=90, check=False)
    assert done.stdout.split() == ["20.0"], (done.stdout, done.stderr)


def scaled(j):
    return np.multiply(j, TEN)


TEN = 10


class Local:
    """No rank knows it."""


def errors():
    a = kasane.zeros((3, 4))
    refused(kasane.ArgumentError, "not broadcast", lambda: a + kasane.zeros(5))
    refused(IndexError, "index 9", lambda: a[9])
    refused(FileNotFoundError, "name a file", lambda: kasane.load("/nowhere.npy"))
    refused(TypeError, "no implementation", lambda: np.median(a))
    refused(kasane.Error, "joined a job already", kasane.start)
    refused(kasane.Error, "before kasane.start", lambda: ONES(3))
    before = ONES.__module__
    assert before == "kasane._creation"
    pid = os.fork()
    if pid == 0:
        try:
            a.sum()
        except kasane.Error as e:
            os._exit(17 if "forked" in str(e) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
    assert a.sum() == 0


ONES = kasane.ones


def memory():
    """Arrays that this process has no more take no memory at the ranks."""
    for _ in range(40):
        a = kasane.ones(1 << 20)  # with the one before 16 MiB of 64
    assert a.sum() == 1 << 20


def lost():
    """A rank that is killed: an error, and others can be started."""
    from kasane import _remote
    job = _remote.current
    a = kasane.zeros(100)
    pids = list(job.pids)
    os.kill(pids[1], signal.SIGKILL)
    refused(kasane.Error, "kasane.start() starts others", lambda: [a.sum() for _ in range(1000)])
    refused(kasane.Error, "have ended", a.sum)
    all_end(pids, ())
    kasane.detach()
    kasane.start(ranks=2)
    refused(kasane.Error, "have ended", a.sum)
    refused(kasane.Error, "of a job that has ended", lambda: kasane.zeros(100) + a)
    assert kasane.ranks() == 2 and kasane.ones(9).sum() == 9


def script():
    refused(TypeError, "did you mean dram?", lambda: kasane.start(drem="1G"))
    refused(kasane.Error, "lots", lambda: kasane.start(ranks=2, dram="lots"))
    kasane.start(ranks=RANKS, dram="192M")
    for case in (used, callbacks, errors, memory, lost):
        start = time.time()
        case()
        print(f"{case.__name__}: {time.time() - start:.2f} s", flush=True)
    kasane.detach()
    assert not kasane.attached() and kasane.ones is ONES and kasane.ones(3).sum() == 3 and kasane.ranks() == 1


# ---- a REPL ---------------------------------------------------------------------------------------------


class Repl:
    """Python with a terminal."""

    def __init__(self):
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ["PYTHON_BASIC_REPL"] = "1"
            os.execv(sys.executable, [sys.executable, "-q"])
        self.text, self._read = "", 0

    def send(self, line):
        os.write(self._terminal, line.encode())

    def expect(self, pattern, seconds=90):
        """The match of what comes next."""
        end = time.monotonic() + seconds
        while not (found := re.compile(pattern, re.MULTILINE).search(self.text, self._read)):
            ready, _, _ = select.select([self._terminal], [], [], 0.2)
            if ready:
                try:
                    self.text += os.read(self._terminal, 65536).decode(errors="replace").replace("\r\n", "\n")
                except OSError:
                    raise AssertionError(f"ended before {pattern!r}:\n{self.text}") from None
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.text}"
        self._read = found.end()
        return found

    def says(self, line, pattern):
        self.expect(">>> ")
        self.send(line + "\n")
        return self.expect(pattern)

    def ended(self):
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._terminal)
        return status


def begun():
    repl = Repl()
    repl.says("import kasane, numpy as np, time, os", "")
    repl.says("kasane.start(ranks=2)", "")
    pids = repl.says("from kasane import _remote; print(_remote.current.pids)", r"^\[(\d+), (\d+)\]")
    return repl, [int(p) for p in pids.groups()]


def slow(repl):
    repl.says("def slow(i): time.sleep(0.3); return i", r"\.\.\. ")
    repl.send("\n")


def repl():
    """Many prompts, progress, Ctrl-C, the end."""
    r, pids = begun()
    r.says("a = kasane.ones((30, 40)); a", r"<kasane.Array float64 \(30, 40\)")
    for k in range(10):
        r.says("a += 1; a.sum()", rf"^{1200 * (k + 2)}\.0")
    slow(r)
    r.says("b = kasane.fromfunction(slow, 40, tiles=2); b.sum()", r"fromfunction: \d+ %")
    r.expect(r"780\.0")
    r.says("c = kasane.fromfunction(slow, 4000, tiles=2)", r"fromfunction: \d+ %")
    r.send("\x03")
    r.expect("KeyboardInterrupt")
    r.says("a.sum() + b.sum()", r"^13980\.0")  # the job goes on
    r.says("1 / 0", "ZeroDivisionError")
    r.says("a[3, 4] = 100; a.max()", r"^100\.0")
    files = files_of(pids)
    r.expect(">>> ")
    r.send("\x04")
    all_end(pids, files)
    assert r.ended() == 0, r.text


def killed():
    """The process that drives the ranks is killed while they work: they end."""
    r, pids = begun()
    slow(r)
    r.says("c = kasane.fromfunction(slow, 4000, tiles=2)", r"fromfunction: \d+ %")
    files = files_of(pids)
    os.kill(r.pid, signal.SIGKILL)
    assert r.ended() == -signal.SIGKILL
    all_end(pids, files)


def exits():
    """A script that ends without detach, and one that raises."""
    for end, status in (("", 0), ("1 / 0", 1), ("sys.exit(3)", 3)):
        text = "import kasane, sys\nkasane.start(ranks=2)\na = kasane.ones(5)\n" \
               f"print(a.sum(), flush=True)\n{end}"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=90,
                              check=False)
        assert done.returncode == status and "5.0" in done.stdout, (done.stdout, done.stderr)


if __name__ == "__main__":
    for one in [globals()[n] for n in sys.argv[2:]] or [script, repl, killed, exits, of_module]:
        begin = time.time()
        one()
        print(f"{one.__name__}: {time.time() - begin:.2f} s", flush=True)
    print("start: passed", flush=True)
