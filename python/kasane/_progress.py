# SPDX-License-Identifier: Apache-2.0
"""How far a pass over blocks is, on a terminal; and Ctrl-C, which ends a pass at all ranks.

A rank that left an operation by itself would leave the others waiting. So where another process drives the
ranks (kasane.start), the signal raises KeyboardInterrupt within a pass alone, and together() tells all ranks.
"""
import math
import signal
import sys
import time

_AFTER, _EACH = 2.0, 0.2  # seconds until it is shown, and between two times


def _on_terminal(text):
    sys.stderr.write("\r" + text if text else "\r\x1b[K")
    sys.stderr.flush()


class Pass:
    """Where this rank is, and how it tells of it; None: not at all."""

    call = ""
    working = interrupted = shown = False
    show = staticmethod(_on_terminal) if sys.stderr is not None and sys.stderr.isatty() else None


def _handle(*_):
    Pass.interrupted = True
    if Pass.working:
        raise KeyboardInterrupt


def only_in_passes():
    """From now on Ctrl-C ends passes alone."""
    signal.signal(signal.SIGINT, _handle)


def within(call, work):
    """work(), the pass of an operation, which the signal may end."""
    Pass.working = True
    try:
        if Pass.interrupted:
            raise KeyboardInterrupt
        return whole(call, work)
    finally:
        Pass.working = Pass.interrupted = False


def whole(call, work):
    """work(), which may tell how far it is, and which the signal does not end."""
    Pass.call = call
    try:
        return work()
    finally:
        if Pass.shown:
            Pass.shown = False
            Pass.show("")


class Meter:
    """Tells how far a pass of ``size`` elements is, where it takes longer than two seconds."""

    def __init__(self, size):
        self._size, self._done, self._begin, self._next = max(1, size), 0, time.monotonic(), _AFTER

    def __call__(self, elements):
        """So many more are done."""
        self._done += elements
        taken = time.monotonic() - self._begin
        if taken > self._next and Pass.show:
            self._next, Pass.shown = taken + _EACH, True
            Pass.show(f"{Pass.call}: {min(100, 100 * self._done // self._size)} %")


def volume(box):
    """Elements of a box."""
    return math.prod([e - b for b, e in zip(box[0], box[1])])


def watched(boxes, size):
    """Boxes of a pass as they are; tells how far it is. size: of all boxes, in elements."""
    meter = Meter(size)
    for box in boxes:
        yield box
        meter(volume(box))
