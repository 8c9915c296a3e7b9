# SPDX-License-Identifier: Apache-2.0
"""Arrays in files: NumPy's .npy, HDF5 and zarr. All ranks read and write, each of them other blocks."""
import errno
import importlib
import math
import os
import weakref

import numpy as np

from . import _core
from ._array import Array
from ._blocks import Lazy, Operand, boxes_of_tiles, evaluate, lazy, pieces, share, slices, text, together
from ._blocks import PIECE
from ._creation import asarray
from ._errors import ArgumentError
from ._index import ranges
from ._job import _need

_CHUNK = 8 << 20  # bytes of what a file has together, where nobody says
_TEXT = 1024  # bytes of an error that rank 0 tells the others
_CACHED = 64 << 20  # bytes of a compressed chunk that is kept to read the rest of it
_REMEDIES = {
    errno.ENOENT: ("name a file that is there", "create the directory, or name another file"),
    errno.ENOTDIR: ("name a file that is there", "create the directory, or name another file"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), ("name a file that this user may use",) * 2),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), ("free space there, or name another directory",) * 2),
}


class Stored(Lazy):
    """An array in a file, made by open_memmap, open_hdf5 and open_zarr.

    Operators and functions of it read each block once, on all ranks, and give distributed arrays; so does
    ``kasane.array(m, tiles=…)``. ``m[i:j]`` reads a patch into a NumPy array. ``m[i:j] = x`` writes: by all
    ranks together where x is a distributed array or a lazy expression, else by the calling rank.
    """

    deferred = False

    def __init__(self, path, shape, dtype, source, chunks, whole, writer=None):
        """source: what has the elements, read by slices. whole: a chunk is read, and written, as a whole.
        writer(): a context with what one rank at a time stores into; None: all ranks into source."""
        self.path, self._source, self._whole, self._writer = path, source, whole, writer
        self._kept = None
        self._plain = np.asarray(source) if isinstance(source, np.memmap) else source  # cut in less time
        super().__init__(shape, np.dtype(dtype).newbyteorder("="), [], self._read, ("file", path), None, True)
        self.chunks = tuple(chunks) if chunks and 0 not in self.shape else None

    @property
    def files(self):
        """Itself."""
        return [self]

    def __repr__(self):
        return f"<kasane file {self.path!r} {self.dtype} {self.shape}>"

    def _read(self, low, high):
        if 0 in (e - b for b, e in zip(low, high)):
            return np.empty([e - b for b, e in zip(low, high)], self.dtype)
        if not self._whole:
            return np.asarray(self._plain[slices(low, high)], self.dtype)
        first = [b // c * c for b, c in zip(low, self.chunks)]
        last = [min(b + c, n) for b, c, n in zip(first, self.chunks, self.shape)]
        if any(e > end for e, end in zip(high, last)) or \
                math.prod(self.chunks) * self.dtype.itemsize > _CACHED:
            return np.asarray(self._source[slices(low, high)], self.dtype)
        kept = self._kept  # another thread may keep another one
        if kept is None or kept[0] != first:
            self._kept = kept = (first, np.asarray(self._source[slices(first, last)], self.dtype))
        return kept[1][tuple(slice(b - f, e - f) for b, e, f in zip(low, high, first))]

    def __getitem__(self, index):
        return np.array(self._source[index], self.dtype)[()]

    def __setitem__(self, index, values):
        if not isinstance(values, Operand):
            if self._writer:
                raise TypeError(
                    f"kasane: {self!r} is written by all ranks in turn: store a distributed array")
            self._source[index] = values
            self._kept = None
            return
        entries = ranges(index, self.shape)
        if any(isinstance(r, range) and r.step != 1 for r in entries):
            raise IndexError("kasane: of a file, store into integers and slices of step 1")
        store(self, entries, values)

    def flush(self):
        """What the calling rank has stored is on the disk, or with the operating system's buffers of it."""
        if hasattr(self._source, "flush"):
            self._source.flush()


def store(file, entries, values):
    """The elements of a range or an integer of each dimension become values. Collective."""
    from ._manipulation import broadcast_to
    kept = [d for d, r in enumerate(entries) if isinstance(r, range)]
    shape = tuple(len(entries[d]) for d in kept)
    if values.shape != shape:
        values = broadcast_to(lazy(values), shape)
    if not np.can_cast(values.dtype, file.dtype, "same_kind"):
        raise TypeError(f"kasane: elements of {values.dtype} in {file!r}")
    if any(f.path == file.path for f in values.files) and not values.pointwise:
        values = evaluate(values)
    first = [r.start if isinstance(r, range) else r for r in entries]
    last = [max(r.start, r.stop) if isinstance(r, range) else r + 1 for r in entries]

    def boxes():
        if not file._whole:
            yield from share(values)
        elif math.prod(shape):
            for k, (low, high) in enumerate(boxes_of_tiles(first, last, file.chunks)):
                if k % _core.ranks() == _core.rank():
                    yield tuple(low[d] - first[d] for d in kept), tuple(high[d] - first[d] for d in kept)

    def write(target):
        for low, high in boxes():
            at = list(first)
            for d, b, e in zip(kept, low, high):
                at[d] = slice(first[d] + b, first[d] + e)
            if isinstance(target, np.ndarray) and isinstance(values, Lazy):
                values.into(low, high, target[tuple(at)])
                continue
            block = values.block(low, high)
            # Compressors and HDF5 use system calls and threads: they get memory of this process.
            target[tuple(at)] = np.array(block) if file._whole or file._writer else block

    def close():
        file._kept = None
        if file._writer:
            _Dataset.close_all(file.path)

    call, key = "kasane: file[…] = array", repr([file.keys, values.keys, first, last]).encode() \
        if isinstance(values, Lazy) else text(file.path, *first, *last)
    together(call, values.leaves, key, close)
    if not file._writer:
        together(call, values.leaves, key, lambda: write(file._plain))
        return
    for turn in range(_core.ranks()):
        def work(turn=turn):
            if turn == _core.rank():
                with file._writer() as target:
                    write(target)

        together(call, values.leaves, key, work)


def _done(call, path, f, reading):
    """What f() returns; its errors name the file, and say what to do."""
    try:
        return f()
    except OSError as failure:
        if isinstance(failure, FileNotFoundError):  # zarr's has no number
            failure.errno = errno.ENOENT
        if failure.errno is None:  # of h5py: a text alone
            raise ArgumentError(22, f"kasane.{call}: {path}: {failure}") from None
        remedy = _REMEDIES.get(failure.errno, ("", ""))[0 if reading else 1]
        said = failure.strerror or str(failure)
        raise OSError(
            failure.errno, f"kasane.{call}: {path}: {said}" + (f"; {remedy}" if remedy else "")) from None


def _at_all(call, path, key, work):
    """What work() returns, by every rank."""
    made = []
    together(f"kasane.{call}", [], text(path, *key), lambda: made.append(_done(call, path, work, True)))
    return made[0]


def _at_first(call, path, key, work):
    """work() by rank 0, whose OSError all ranks get."""
    def first():
        if _core.rank() != 0:
            return None
        try:
            _done(call, path, work, False)
        except OSError as failure:
            said = failure.strerror.encode()[:_TEXT - 4]
            return failure.errno.to_bytes(4, "little") + said.ljust(_TEXT - 4, b"\0")
        return None

    said = together(f"kasane.{call}", [], text(path, *key), first, _TEXT)[0]
    code = int.from_bytes(said[:4], "little")
    if code:
        raise OSError(code, said[4:].rstrip(b"\0").decode(errors="replace"))


def _shape_of(call, shape, dtype):
    if shape is None:
        raise ArgumentError(22, f"kasane.{call}: a new array needs shape=")
    return (int(shape),) if np.ndim(shape) == 0 else tuple(int(n) for n in shape), np.dtype(dtype or float)


def _chunks_of(shape, dtype, last_first=False):
    """Rows that are contiguous in a file, or columns, as many as are read at once."""
    chunk, room = [1] * len(shape), max(1, _CHUNK // dtype.itemsize)
    for d in range(len(shape)) if last_first else reversed(range(len(shape))):
        chunk[d] = max(1, min(shape[d], room))
        room //= chunk[d]
    return tuple(chunk)


def _begun(call, path, mode, modes):
    if mode not in modes:
        raise ValueError(f"kasane.{call}: mode {mode!r}; give one of {', '.join(modes)}")
    _need()
    return os.fspath(path)


# ---- .npy -----------------------------------------------------------------------------------------------


def _header(call, path):
    """Shape, type, whether in Fortran's order, and where the elements begin."""
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = read(file)
        except (ValueError, KeyError):
            dtype = None
        if dtype is None or dtype.kind not in "biufc" or dtype.itemsize > 16:
            raise ArgumentError(22, f"kasane.{call}: {path} is no .npy file of format 1.0 or 2.0 with "
                                    "elements of one type; write it by numpy.save")
        begin = file.tell()
        if os.fstat(file.fileno()).st_size < begin + math.prod(shape) * dtype.itemsize:
            raise OSError(errno.EIO, "it was cut off; write it again")
        return shape, dtype, fortran, begin


def _mapped(call, path, mode):
    shape, dtype, fortran, begin = _header(call, path)
    if not math.prod(shape):
        source = np.empty(shape, dtype)
    else:  # without dimensions the map has one
        source = np.memmap(path, dtype, mode, begin, shape or (1,), "F" if fortran else "C")
    source = source if shape else source.reshape(())
    return Stored(os.fspath(path), shape, dtype, source, _chunks_of(shape, dtype, fortran), False)


def _create_npy(path, shape, dtype, fortran):
    with open(path, "wb") as file:
        np.lib.format.write_array_header_2_0(
            file, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
        ) if len(repr(shape)) > 60000 else np.lib.format.write_array_header_1_0(
            file, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape})
        file.flush()
        if math.prod(shape):  # a full disk is told now, and not by a signal when a page is stored
            os.posix_fallocate(file.fileno(), file.tell(), math.prod(shape) * dtype.itemsize)


def open_memmap(path, mode="r+", dtype=None, shape=None, fortran_order=False):
    """A .npy file as an array, which is not read before its elements are needed. Collective. See Stored.

    mode: "r", "r+", or "w+", which makes a new file of zeros, of the shape and type given, in C's order or
    Fortran's. Every rank maps the file: each host has to have it under this name.
    Raises FileNotFoundError and the like at all ranks.
    """
    path, key = _begun("open_memmap", path, mode, ("r", "r+", "w+")), ()
    if mode == "w+":
        shape, dtype = _shape_of("open_memmap", shape, dtype)
        key = (*shape, str(dtype), bool(fortran_order))
        _at_first("open_memmap", path, key, lambda: _create_npy(path, shape, dtype, fortran_order))
    return _at_all("open_memmap", path, (mode, *key),
                   lambda: _mapped("open_memmap", path, mode.replace("w", "r")))


def load(path, **how):
    """A new array with the elements of a .npy file, of which each rank reads what it gets. Collective.

    how: see empty(). Raises FileNotFoundError and the like at all ranks.
    """
    _need()
    path = os.fspath(path)
    file = _at_all("load", path, (), lambda: _mapped("load", path, "r"))
    return evaluate(file, Array(file.shape, file.dtype, **how))


def save(path, x):
    """Write all elements to a file of NumPy's format .npy, each rank what it has. Collective.

    The file gets its name when it is complete. x: a distributed array, a lazy expression, or an array of
    NumPy that all ranks give.
    """
    x, path = x if isinstance(x, Operand) else asarray(x), os.fspath(path)
    unfinished = path + ".kasane-new"

    def write():
        _at_first("save", path, (*x.shape, str(x.dtype)),
                  lambda: _create_npy(unfinished, x.shape, x.dtype, False))
        file = _at_all("save", path, (), lambda: _mapped("save", unfinished, "r+"))
        store(file, [range(n) for n in x.shape], x)
        _at_all("save", path, (), file.flush)
        _at_first("save", path, (), lambda: os.replace(unfinished, path))

    try:
        write()
    except BaseException:
        if _core.rank() == 0 and os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


# ---- packages of others ---------------------------------------------------------------------------------


def _package(name, call):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"kasane.{call} needs the package {name}: pip install {name}"
                          + (" (Debian: python3-h5py)" if name == "h5py" else "")) from None


class _Dataset:
    """A dataset of an HDF5 file, which stays open from when it is read until the file is written."""

    _all = weakref.WeakSet()

    def __init__(self, h5py, path, name):
        self._open, self._name, self._file = lambda mode: h5py.File(path, mode), name, None
        self._path = os.path.realpath(path)
        _Dataset._all.add(self)

    @staticmethod
    def close_all(path):
        """No dataset of the file is open in this process: HDF5 refuses to write otherwise."""
        for one in list(_Dataset._all):
            if one._path == os.path.realpath(path) and one._file is not None:
                one._file.close()
                one._file = None

    def __getitem__(self, index):
        if self._file is None:
            self._file = self._open("r")
        return self._file[self._name][index]

    def writer(self):
        """A context with the dataset to store into."""
        return _Writing(self._open, self._name)


class _Writing:
    def __init__(self, open_, name):
        self._open, self._name = open_, name

    def __enter__(self):
        self._file = self._open("r+")
        return self._file[self._name]

    def __exit__(self, *_):
        self._file.close()


def open_hdf5(path, name, mode="r", dtype=None, shape=None, chunks=None):
    """A dataset of an HDF5 file as an array; by the package h5py. Collective. See Stored.

    mode: "r", "r+", or "w" and "a", which make a new dataset of the shape and type given, in a new file or in
    one that may be there. The ranks write in turn, as the library demands; they read together.
    """
    h5py = _package("h5py", "open_hdf5")
    path = _begun("open_hdf5", path, mode, ("r", "r+", "w", "a"))
    if mode in ("w", "a"):
        shape, dtype = _shape_of("open_hdf5", shape, dtype)

        def create():
            with h5py.File(path, mode) as file:
                file.create_dataset(name, shape, dtype, chunks=chunks)

        _at_all("open_hdf5", path, (name,), lambda: _Dataset.close_all(path))
        _at_first("open_hdf5", path, (name, *shape, str(dtype)), create)

    def open_():
        source = _Dataset(h5py, path, name)
        with h5py.File(path, "r") as file:
            if name not in file or not hasattr(file[name], "shape"):
                raise ArgumentError(22, f"kasane.open_hdf5: {path} has no dataset {name!r}")
            set_ = file[name]
            shape, dtype, own = set_.shape, set_.dtype, set_.chunks
        return Stored(path, shape, dtype, source, own or _chunks_of(shape, dtype), own is not None,
                      source.writer if mode != "r" else _read_only(path))

    return _at_all("open_hdf5", path, (name, mode), open_)


def _read_only(path):
    def refuse():
        raise ArgumentError(22, f'kasane: {path} is open to read; open it with mode="r+"')

    return refuse


def open_zarr(path, mode="r", dtype=None, shape=None, chunks=None, **options):
    """A zarr array, version 3 or 2, as an array; by the package zarr. Collective. See Stored.

    mode: "r", "r+", or "w", which makes a new array of the shape and type given. A chunk, or a shard, is read
    and written by one rank. options: those of zarr.create_array (shards, compressors, …).
    """
    zarr = _package("zarr", "open_zarr")
    path = _begun("open_zarr", path, mode, ("r", "r+", "w"))
    if not hasattr(zarr, "create_array"):
        raise ImportError(f"kasane.open_zarr needs zarr 3 or later, and this is {zarr.__version__}")
    if mode == "w":
        shape, dtype = _shape_of("open_zarr", shape, dtype)
        _at_first("open_zarr", path, (*shape, str(dtype)), lambda: zarr.create_array(
            path, shape=shape, dtype=dtype, overwrite=True, chunks=chunks or _chunks_of(shape, dtype),
            **options))

    def open_():
        source = zarr.open_array(path, mode=mode.replace("w", "r+"))
        return Stored(path, source.shape, source.dtype, source, getattr(source, "shards", None) or
                      source.chunks, True)

    return _at_all("open_zarr", path, (mode,), open_)


def _save(self, path):
    """Write all elements to a .npy file, each rank what it has. Collective."""
    save(path, self)


Operand.save = _save
