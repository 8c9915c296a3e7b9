# SPDX-License-Identifier: Apache-2.0
"""A rank that another process drives: `python -m kasane._server SOCKET`, started by kasane.start().

It does what it is told, as all other ranks do, and answers how it went; rank 0 also with the result. It ends
when the process that drives it has gone.
"""
import os
import select
import signal
import socket
import sys
import threading
import time

import kasane

from . import _core, _progress, _wire
from ._blocks import Operand


class Server:
    """The arrays that the other process has, by number, which is the same at all ranks."""

    def __init__(self, connection):
        self._connection, self._arrays, self._numbers, self._next = connection, {}, {}, 0

    def number_of(self, value):
        """What goes instead of an array: its number, and what its user wants to know without asking."""
        if not isinstance(value, Operand):
            return None
        if id(value) not in self._numbers:
            self._numbers[id(value)], self._arrays[self._next] = self._next, value
            self._next += 1
        return self._numbers[id(value)], type(value).__name__, value.shape, value.dtype, repr(value)

    def _forget(self, numbers):
        for number in numbers:
            del self._numbers[id(self._arrays.pop(number))]

    def serve(self):
        """Until the other end has gone."""
        while (message := _wire.receive(self._connection)) is not None:
            try:
                gone, of_rank, call, arguments, options = _wire.unpacked(message, self._arrays.__getitem__)
                self._forget(gone)
                _progress.Pass.interrupted = False  # that was for the call before
                result = None
                if of_rank in (None, _core.rank()):
                    result = _called(call, arguments, options)
                answer = "done", result
            except BaseException as failure:  # Ctrl-C, and SystemExit of a user's function, too
                answer = "failed", failure
            try:
                self._answer(*answer)
            except OSError:  # nobody waits for it
                return
            result = answer = None  # what only this variable has goes now

    def _answer(self, how, value):
        try:
            data = _wire.packed((how, value), self.number_of)
        except Exception as failure:
            text = f"{type(value).__name__}: {value}" if how == "failed" else \
                f"a result is not sent: {failure}"
            data = _wire.packed(("failed", RuntimeError(text)), self.number_of)
        if _core.rank() != 0:
            data = _wire.packed((how, str(value) if how == "failed" else None), self.number_of)
        _wire.send(self._connection, data)


def _called(call, arguments, options):
    kind, name = call
    if kind == "method":
        return getattr(arguments[0], name)(*arguments[1:], **options)
    if kind == "get":
        return getattr(arguments[0], name)
    return getattr(sys.modules[kind], name)(*arguments, **options)


def _end_with(connection):
    """Ends a call whose result nobody waits for, and the job, if it does not end in time."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
    os._exit(1)


def main(path, shows):
    """Joins the ranks, and serves."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    kasane.attach()
    _progress.only_in_passes()
    _progress.Pass.show = None
    if shows == "show" and kasane.rank() == 0:
        _progress.Pass.show = staticmethod(
            lambda text: _wire.send(connection, _wire.packed(("progress", text))))
    _wire.send(connection, _wire.packed((kasane.rank(), kasane.ranks(), os.getpid())))
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    Server(connection).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
