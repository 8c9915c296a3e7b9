# SPDX-License-Identifier: Apache-2.0
"""Several ranks behind one process: kasane.start(), for a REPL, a notebook or a script.

The ranks are processes of their own (_server), which this one drives: each call of the package goes to all of
them, and what rank 0 answers comes back. This process is no rank and has no global memory: its arrays are
numbers that stand for the ranks'.
"""
import atexit
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import weakref
from multiprocessing.reduction import ForkingPickler

import numpy as np

from . import _blocks, _command, _info, _job, _progress, _wire
from ._array import Array, not_for_a_process
from ._errors import Error

# Calls of an array that one rank does for itself.
_BY_ONE = ("get", "put", "accumulate", "fetch_add", "gather", "item", "__array__", "__bool__", "__int__",
           "__float__", "__complex__", "__index__", "__reduce__")
_ALONE = 10.0  # seconds in which ranks answer after one has failed


class Remote(np.lib.mixins.NDArrayOperatorsMixin):
    """A distributed array of the ranks that kasane.start() has started: see kasane.Array."""

    __hash__ = None

    def __init__(self, job, number, shape, dtype, text):
        self._job, self._number, self.shape, self.dtype, self._text = job, number, shape, dtype, text
        weakref.finalize(self, job.gone.append, number)

    ndim = _blocks.Operand.ndim
    size = _blocks.Operand.size
    nbytes = _blocks.Operand.nbytes
    __len__ = _blocks.Operand.__len__
    __iter__ = Array.__iter__

    def __repr__(self):
        return self._text

    def __getattr__(self, name):
        of_class = getattr(Array, name, None)
        if name in ("local", "parts", "tiles"):
            raise AttributeError(f"kasane: {name} is memory of a rank, which this process is not: "
                                 "a[…] reads a copy")
        if name.startswith("_") or (of_class is None and name not in ("flush", "path", "chunks")):
            raise AttributeError(f"kasane.Array has no attribute {name!r}")
        if isinstance(of_class, property) or name in ("path", "chunks"):
            return self._job.call(("get", name), (self,), {})
        return lambda *arguments, **options: self._method(name, *arguments, **options)

    def _method(self, name, *arguments, **options):
        return self._job.call(("method", name), (self, *arguments), options, 0 if name in _BY_ONE else None)

    def get(self, index=..., out=None):
        """See kasane.Array.get."""
        values = self._job.call(("method", "__getitem__"), (self, index), {}, 0)
        if out is None:
            return values
        out[...] = values
        return out

    def __getitem__(self, index):
        several = index if isinstance(index, tuple) else (index,)
        by_all = any(isinstance(i, Remote) for i in several)
        return self._job.call(("method", "__getitem__"), (self, index), {}, None if by_all else 0)

    def __setitem__(self, index, values):
        several = index if isinstance(index, tuple) else (index,)
        by_all = any(isinstance(i, Remote) for i in (*several, values))
        self._job.call(("method", "__setitem__"), (self, index, values), {}, None if by_all else 0)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return self._job.call(("kasane._remote", "_ufunc"), (ufunc, method, inputs, options), {})

    def __array_function__(self, function, _, arguments, options):
        return self._job.call(("kasane._remote", "_apply"), (function, arguments, options), {})

    def __array_namespace__(self, *, api_version=None):
        return sys.modules["kasane"]

    def __deepcopy__(self, _):
        return self.copy()


def _own(name):
    return lambda self, *arguments: self._method(name, *arguments)


for _name in ("__array__", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__",
              "__copy__", "__pow__", "__reduce__"):
    setattr(Remote, _name, _own(_name))
ForkingPickler.register(Remote, not_for_a_process)


def _ufunc(ufunc, method, inputs, options):
    return getattr(ufunc, method)(*inputs, **options)


def _apply(function, arguments, options):
    return function(*arguments, **options)


class Job:
    """The ranks, and how they are told what to do."""

    def __init__(self, ranks, options):
        self.gone, self._arrays = [], weakref.WeakValueDictionary()
        self._lock, self._process_of, self._connections, self.pids = threading.Lock(), os.getpid(), [], []
        self._lines = []
        folder = tempfile.mkdtemp(prefix="kasane-")  # of this user alone
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(os.path.join(folder, "door"))
                door.listen(ranks)
                self._process = self._started(ranks, options, os.path.join(folder, "door"))
                self._joined(door, ranks)
        except BaseException:
            self.end()
            raise
        finally:
            shutil.rmtree(folder)

    def _started(self, ranks, options, path):
        environment = {**os.environ, **{f"KASANE_{k.upper()}": str(v) for k, v in options.items()}}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)  # modules of the script
        # Not of the terminal's group, so that Ctrl-C is for this process alone.
        process = subprocess.Popen(
            [_command.program(), "run", "--attach", "-n", str(ranks), "--", sys.executable, "-m",
             "kasane._server", path, "show" if _progress.Pass.show else "silent"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True)
        threading.Thread(target=self._forward, args=(process.stdout,), daemon=True).start()
        return process

    def _forward(self, stream):
        """What ranks print: to where this process prints now, which may be a notebook's cell."""
        for line in stream:
            text = line.decode(errors="replace")
            self._lines = [*self._lines[-20:], text]
            sys.stdout.write(text)
            sys.stdout.flush()

    def _joined(self, door, ranks):
        door.settimeout(0.2)
        found = {}
        while len(self._connections) < ranks:
            try:
                self._connections.append(door.accept()[0])
            except TimeoutError:
                if self._process.poll() is not None:
                    raise self._lost("the ranks did not start") from None
        for connection in self._connections:
            connection.settimeout(None)
            message = _wire.receive(connection)
            if message is None:
                raise self._lost("the ranks did not start")
            rank, _, pid = _wire.unpacked(message)
            found[rank] = connection, pid
        self._connections = [found[r][0] for r in range(ranks)]
        self.pids = [found[r][1] for r in range(ranks)]

    def _lost(self, what):
        time.sleep(0.2)  # what they said last is on its way
        said = "".join(self._lines[-5:]).strip()
        return Error(1, f"kasane: {what}{': ' + said if said else ''}; kasane.start() starts others")

    @property
    def ranks(self):
        """Their number."""
        return len(self.pids)

    def _number_of(self, value):
        if not isinstance(value, Remote):
            return None
        if value._job is not self:
            raise Error(1, "kasane: an array of a job that has ended")
        return value._number

    def _array(self, said):
        number, kind, shape, dtype, text = said
        array = self._arrays.get(number)
        if array is None:
            if number in self.gone:  # the one that stood for it went while the ranks worked
                self.gone.remove(number)
            self._arrays[number] = array = Remote(self, number, shape, dtype, text)
        return array

    def call(self, what, arguments, options, of_rank=None):
        """What a call gives at rank 0. of_rank: only that one does it."""
        if os.getpid() != self._process_of:
            raise Error(1, "kasane: a forked process does not drive its parent's ranks; kasane.start() "
                           "starts others")
        with self._lock:
            if self._process is None:
                raise Error(1, "kasane: the ranks have ended; kasane.start() starts others")
            gone = [self.gone.pop() for _ in range(len(self.gone))]
            try:
                message = _wire.packed((gone, of_rank, what, arguments, options), self._number_of)
            except BaseException:
                self.gone += gone
                raise
            interrupts = _Interrupts(self)
            with interrupts:
                for connection in self._connections:
                    try:
                        _wire.send(connection, message)
                    except OSError:
                        raise self._ended() from None
                how, value = self._answers(interrupts)
        if interrupts.count:
            raise KeyboardInterrupt
        if how == "failed":
            raise value
        return value

    def _answers(self, interrupts):
        """Rank 0's, when all have answered."""
        waiting, failed, mine = dict(enumerate(self._connections)), None, None
        with selectors.DefaultSelector() as selector:
            for rank, connection in waiting.items():
                selector.register(connection, selectors.EVENT_READ, rank)
            while waiting:
                ready = selector.select(0.5 if failed else None)
                for key, _ in ready:
                    message = _wire.receive(key.fileobj)
                    if message is None:
                        raise self._ended()
                    answer = _wire.unpacked(message, self._array)
                    if answer[0] == "progress":
                        _progress.Pass.show(answer[1])
                        continue
                    selector.unregister(waiting.pop(key.data))
                    if answer[0] == "failed" and failed is None:
                        failed = key.data, answer[1], time.monotonic()
                    mine = answer if key.data == 0 else mine
                if interrupts.count > 2:
                    self.end(True)
                    raise KeyboardInterrupt
                if failed and waiting and time.monotonic() - failed[2] > _ALONE and not ready:
                    self.end(True)
                    raise Error(5, f"kasane: rank {failed[0]} failed alone, so the ranks have been ended: "
                                   f"{failed[1]}; kasane.start() starts others")
        if failed and mine[0] != "failed":
            raise Error(5, f"kasane: failed at rank {failed[0]}: {failed[1]}")
        return mine

    def _ended(self):
        self.end(True)
        return self._lost("a rank has ended, and the job with it")

    def end(self, now=False):
        """The ranks leave; now: by force, if need be."""
        process, self._process = self.__dict__.get("_process"), None
        for connection in self._connections:
            connection.close()
        if process is None or os.getpid() != self._process_of:
            return
        try:
            process.wait(2 if now else 20)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class _Interrupts:
    """While ranks work, Ctrl-C is for them; this process waits until they have answered."""

    def __init__(self, job):
        self._job, self.count = job, 0

    def __enter__(self):
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)

    def _handle(self, *_):
        self.count += 1
        for pid in self._job.pids:
            try:
                os.kill(pid, signal.SIGINT)
            except ProcessLookupError:
                pass

    def __exit__(self, *_):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


# ---- the package, while it drives ranks -------------------------------------------------------------------

_replaced = []  # (module, name, what it was)
current = None  # the job that the package's functions go to


def start(ranks=None, **options):
    """Start ranks behind this process, and do all that follows there: for a REPL, a notebook, a script.

    ranks: by default as many as the process has processors, 4 at most. options: those of attach(),
    ``dram="2G"``.

    Arrays are used as ever; their elements are in the ranks, and ``a[i:j]`` copies them here. Functions that
    ranks call, as fromfunction's, are sent by value. Ctrl-C ends the call, not the ranks. detach(), and the
    end of this process, end them.
    """
    import kasane
    global current
    if _job.attached() or current is not None:
        raise Error(1, "kasane.start: the process has joined a job already; call start before, or detach()")
    if any(variable in os.environ for variable in (*_job.LAUNCHERS, *_job.BY_AGENT)):
        raise Error(1, "kasane.start: this process is a rank itself, started by mpirun or kasane run")
    _job.check_options("start", options)
    ranks = min(4, len(os.sched_getaffinity(0))) if ranks is None else int(ranks)
    if ranks < 1:
        raise ValueError(f"kasane.start: {ranks} ranks")
    current = job = Job(ranks, options)
    for module in (kasane, kasane.linalg, kasane.fft, kasane.random):
        for name in module.__all__:
            f = getattr(module, name)
            here = f.__module__ if isinstance(f, types.FunctionType) else __name__
            if here not in (_info.__name__, _job.__name__, __name__):
                _replace(module, name, _forward(job, module.__name__, name, f))
    _replace(kasane, "Array", Remote)
    _replace(kasane, "rank", lambda: 0)
    _replace(kasane, "ranks", lambda: job.ranks)
    _replace(kasane, "attached", lambda: True)
    _replace(kasane, "barrier", _forward(job, "kasane", "barrier", kasane.barrier))
    _replace(kasane, "detach", lambda: _leave(job))
    _replace(_job, "attach", _refuse)  # what the first use of a function does that was imported before
    atexit.register(_leave, job)


def _forward(job, module, name, original):
    def call(*arguments, **options):
        return job.call((module, name), arguments, options)

    call.__name__, call.__doc__ = name, original.__doc__
    return call


def _refuse(*_, **__):
    raise Error(1, "kasane: this function was imported before kasane.start(): use it as kasane.NAME")


def _replace(module, name, new):
    _replaced.append((module, name, getattr(module, name)))
    setattr(module, name, new)


def _leave(job):
    """End the ranks that start() has started; the package is as before."""
    global current
    current = None
    atexit.unregister(_leave)
    while _replaced:
        setattr(*_replaced.pop())
    job.end()
