# SPDX-License-Identifier: Apache-2.0
"""How far a pass over blocks is, on a terminal; and Ctrl-C, which ends a pass at all ranks.

A rank that left an operation by itself would leave the others waiting. So where another process drives the
ranks (kasane.start), the signal raises KeyboardInterrupt within a pass alone, and together() tells all ranks.
"""
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
    Pass.call, Pass.working = call, True
    try:
        if Pass.interrupted:
            raise KeyboardInterrupt
        return work()
    finally:
        Pass.working = Pass.interrupted = False
        if Pass.shown:
            Pass.shown = False
            Pass.show("")


def watched(boxes, size):
    """Boxes of a pass as they are; tells how far it is, where it takes longer than two seconds. size: of all
    boxes, in elements."""
    begin, next_, done = time.monotonic(), _AFTER, 0
    for box in boxes:
        yield box
        part = 1
        for b, e in zip(box[0], box[1]):
            part *= e - b
        done += part
        taken = time.monotonic() - begin
        if taken > next_ and Pass.show:
            next_, Pass.shown = taken + _EACH, True
            Pass.show(f"{Pass.call}: {min(100, 100 * done // max(1, size))} %")
