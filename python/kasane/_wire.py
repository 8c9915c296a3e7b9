# SPDX-License-Identifier: Apache-2.0
"""What a process that drives ranks and the ranks say to each other: pickles, each behind its length.

Distributed arrays go as numbers. Functions that no module has, such as those of a notebook's cells, go by
value: their code, what they close over, and the global variables that they name.
"""
import importlib
import io
import marshal
import pickle
import struct
import types


def send(socket, data):
    """One message."""
    socket.sendall(struct.pack("<Q", len(data)))
    socket.sendall(data)


def receive(socket):
    """The next message; None: the other end has gone."""
    head = _exactly(socket, 8)
    return None if head is None else _exactly(socket, struct.unpack("<Q", head)[0])


def _exactly(socket, n):
    data, at = bytearray(n), 0
    view = memoryview(data)
    while at < n:
        try:
            got = socket.recv_into(view[at:], min(n - at, 1 << 24))
        except ConnectionError:
            got = 0
        if got == 0:
            return None
        at += got
    return data


def packed(value, number_of=lambda _: None):
    """The pickle. number_of(object): what stands for it; None: it goes by value."""
    file = io.BytesIO()
    _Pickler(file, number_of).dump(value)
    return file.getbuffer()


def unpacked(data, of_number=None):
    """The value of a pickle. of_number: the object for which something stands."""
    return _Unpickler(data, of_number).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, data, of_number):
        super().__init__(io.BytesIO(data))
        self._of_number = of_number

    def persistent_load(self, pid):
        return self._of_number(pid)


class _Pickler(pickle.Pickler):
    def __init__(self, file, number_of):
        super().__init__(file, 5)
        self._number_of = number_of

    def persistent_id(self, obj):
        return self._number_of(obj)

    def reducer_override(self, value):
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, types.FunctionType) and not _of_module(value):
            return _function, (marshal.dumps(value.__code__), value.__name__, value.__defaults__,
                               value.__kwdefaults__, _contents(value)), {"globals": _named(value)}, \
                None, None, _set_globals
        return NotImplemented


def _of_module(function):
    """Whether ranks find a function by its name."""
    found = None
    if function.__module__ not in (None, "__main__"):
        try:
            found = importlib.import_module(function.__module__)
            for name in function.__qualname__.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError):
            found = None
    return found is function


def _contents(function):
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


def _named(function):
    """The global variables that a function and those in it name."""
    names, codes = set(), [function.__code__]
    for code in codes:
        names |= set(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return {name: function.__globals__[name] for name in names if name in function.__globals__}


def _function(code, name, defaults, keywords, contents):
    function = types.FunctionType(marshal.loads(code), {"__builtins__": __builtins__}, name, defaults,
                                  tuple(types.CellType(c) for c in contents))
    function.__kwdefaults__ = keywords
    return function


def _set_globals(function, state):
    function.__globals__.update(state["globals"])
