# SPDX-License-Identifier: Apache-2.0
"""What the package raises, beside OSError (files), MemoryError, TypeError and IndexError."""


class Error(RuntimeError):
    """A call of Kasane that could not do what it was asked. ``errno`` has the system's number."""

    def __init__(self, errno, text):
        super().__init__(text)
        self.errno = errno

    def __reduce__(self):
        return type(self), (self.errno, str(self))


class ArgumentError(Error, ValueError):
    """Arguments that do not fit: an index, a shape, a distribution; or ranks that give different ones."""
