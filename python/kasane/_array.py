# SPDX-License-Identifier: Apache-2.0
"""Distributed arrays."""
import functools
import math
import os

import numpy as np

from . import _core
from ._errors import ArgumentError
from ._index import Elements, parse
from ._job import _need

_PIECE = 256 << 10  # bytes of what is computed at once
_SLAB = 4 << 20  # bytes of what is put at once of a scalar
_READ, _READ_WRITE, _WRITE_ONLY = 0, 1, 2  # kasane_access
_LETTERS = {"int32": "i", "int64": "l", "float32": "f", "float64": "d", "complex64": "F", "complex128": "D"}

_ASSOCIATIVE = (np.add, np.multiply, np.minimum, np.maximum, np.fmin, np.fmax, np.logical_and, np.logical_or,
                np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def _together(call, arrays, values, work, length=0):
    """The ``length`` bytes that work() returns at each rank; by all ranks, between two meetings.

    An exception at one rank is raised there, and an Error that names the rank at the others.
    """
    _core.meet(call, [a._core for a in arrays], values + _text(*(str(a.dtype) for a in arrays)))
    failure, mine = None, bytes(length)
    try:
        mine = work() or mine
    except BaseException as e:
        failure = e
    text = None if failure is None else f"{type(failure).__name__}: {failure}"
    try:
        return _core.end(call, text, mine)
    except Exception:
        if failure is not None:
            raise failure from None
        raise


def _text(*values):
    """Bytes by which ranks compare what they were called with; of arrays the shapes and types."""
    return repr([v if np.ndim(v) == 0 else (np.shape(v), str(v.dtype)) for v in values]).encode()


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """A dense array that is distributed over all ranks. Made by zeros, full, empty, array, load.

    ``a[i:j, k:l]`` reads a patch, from whichever ranks have it, into a NumPy array; ``a[i:j, k:l] = x``
    writes one. accumulate and fetch_add change elements atomically. Any rank does this at any time,
    and no other rank waits for it; barrier() orders ranks.

    ``a.local`` and ``a.parts()`` are what lies at this rank, without copies.

    **Collective**: operators and NumPy's ufuncs, sum, min, max, dot, @, fill, copy, transpose,
    update_ghosts, save: all ranks make the same calls in the same order, and get the same results.
    """

    __hash__ = None
    __iter__ = None  # element by element would be slow: use parts(), or gather()

    def __init__(self, shape, dtype=np.float64, *, tiles=None, blocks=None, ghosts=0, periodic=False):
        """See empty()."""
        _need()
        shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
        self._shape = tuple(int(n) for n in shape)
        self._dtype = np.dtype(dtype).newbyteorder("=")
        if self._dtype.kind not in "biufc" or self._dtype.itemsize > 16 or self._dtype.char in "gG":
            raise TypeError(f"kasane: elements of type {np.dtype(dtype)}; use bool, integers, float16, "
                            "float32, float64, complex64 or complex128")
        if any(n < 0 for n in self._shape):
            raise ArgumentError(22, f"kasane: a shape of {self._shape}")
        if tiles is not None and blocks is not None:
            raise ArgumentError(22, "kasane: tiles and blocks; give one of them")
        self._how = {"tiles": _sizes(tiles), "blocks": _sizes(blocks), "ghosts": _sizes(ghosts) or [],
                     "periodic": bool(periodic)}
        self._core = _core.Array(list(self._shape), self._dtype.itemsize, self._how["tiles"],
                                 self._how["blocks"], self._how["ghosts"], self._how["periodic"])

    # ---- what it is ----

    @property
    def shape(self):
        """Elements along each dimension."""
        return self._shape

    @property
    def dtype(self):
        """NumPy's type of the elements."""
        return self._dtype

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self._shape)

    @property
    def size(self):
        """Number of elements, at all ranks together."""
        return math.prod(self._shape)

    @property
    def nbytes(self):
        """Bytes of the elements, at all ranks together."""
        return self.size * self._dtype.itemsize

    @property
    def tile(self):
        """The shape of a tile, or of a block: what lies together at one rank."""
        return tuple(self._core.tile)

    def __len__(self):
        return self._shape[0]

    def __repr__(self):
        kind = "tiles" if self._how["tiles"] else "blocks"
        return f"<kasane.Array {self._dtype} {self._shape} in {kind} of {self.tile}>"

    def __array__(self, *_, **__):
        raise TypeError(
            "a kasane.Array is distributed, and may be larger than this process's memory: a.gather() or "
            "a[...] copies it into a NumPy array, a.local is this rank's part without a copy")

    def __bool__(self):
        if self.size == 1:
            return bool(self[(0,) * self.ndim])
        raise ValueError("the truth of an array of several elements is ambiguous; use sum(), min() or max()")

    # ---- patches ----

    def __getitem__(self, index):
        return self.get(index)

    def __setitem__(self, index, values):
        self.put(index, values)

    def get(self, index=..., out=None):
        """Read the elements ``self[index]`` into a NumPy array; into ``out``, where given, which is returned.

        index: as NumPy's: integers, slices, ``...``, negative ones too. Steps other than 1, and arrays of
        integers (one for each dimension), read element by element.
        """
        box = self._box(index)
        if out is not None:
            return self._get_into(box, out)
        if isinstance(box, Elements):
            return self._gather(box, None)
        out = np.empty(box.shape, self._dtype)
        if out.size:
            self._core.get(box, out)
        return out if out.ndim else out[()]

    def put(self, index, values):
        """Write ``values``, an array or a number, to the elements ``self[index]``; complete on return.

        values: broadcast to the patch's shape, converted as numpy.copyto does (casting "same_kind").
        Raises ValueError: an integer that an element does not hold.
        """
        box, values = self._box(index), self._converted(values)
        if isinstance(box, Elements):
            return self._core.scatter(box.indices, np.ascontiguousarray(np.broadcast_to(values, box.shape)))
        self._to_patch(box, values, self._core.put)

    def accumulate(self, index, values, alpha=1):
        """Add ``alpha * values`` to the elements ``self[index]``, each element atomically.

        For int32, int64, float32, float64, complex64 and complex128. index: integers and slices of step 1.
        alpha: a number that an element holds: of integers a whole one, of real numbers a real one.
        """
        box = self._box(index)
        if isinstance(box, Elements):
            raise IndexError("kasane: accumulate is for patches: integers, and slices of step 1")
        letter, alpha = self._letter("accumulate"), self._number("alpha", alpha).tobytes()
        self._to_patch(box, self._converted(values), lambda b, x: self._core.accumulate(b, x, letter, alpha))

    def fetch_add(self, index, n=1):
        """Add n to one element, atomically; return the value before. For int32, int64, float32, float64."""
        box = self._box(index)
        if isinstance(box, Elements) or box.shape:
            raise IndexError("kasane: fetch_add is for one element: give an integer for each dimension")
        before = self._core.fetch_add(box, self._letter("fetch_add", "if"), self._number("n", n).tobytes())
        return np.frombuffer(before, self._dtype)[0]

    def gather(self):
        """All elements as a NumPy array at the calling rank. It has to fit in memory."""
        return self.get(...)

    def _letter(self, what, kinds="ifc"):
        if self._dtype.kind not in kinds or self._dtype.name not in _LETTERS:
            raise TypeError(f"kasane: {what} of elements of type {self._dtype}")
        return _LETTERS[self._dtype.name]

    def _converted(self, values):
        if isinstance(values, Array):
            raise TypeError("kasane: a distributed array as a patch's values; use kasane.copy, or gather()")
        large = isinstance(values, int)  # NumPy has no integer type for some
        values = np.asarray(values)
        if values.dtype != self._dtype:
            whole = values.ndim == 0 and (large or values.dtype.kind in "biu")  # it has no type of its own
            checked = _checked(values, self._dtype, large)
            values = values.astype(self._dtype, casting="unsafe" if whole or checked else "same_kind")
        return values

    def _number(self, what, value):
        """One element, which is value exactly, but for what floating point rounds."""
        if np.ndim(value):
            raise TypeError(f"kasane: {what} is an array of shape {np.shape(value)}; give one number")
        if self._dtype.kind in "iu" and isinstance(value, (float, np.floating)) and float(value).is_integer():
            value = int(value)
        try:
            return self._converted(value)
        except TypeError:
            raise TypeError(f"kasane: {what} is {value!r}, and elements are of type {self._dtype}") from None

    def _box(self, index):
        return self._core.box(index) or parse(index, self._shape)

    def _to_patch(self, box, values, transfer):
        shape = box.shape
        if values.ndim > 0:
            target = values if values.shape == shape else np.broadcast_to(values, shape)
            if target.size and not transfer(box, target):
                transfer(box, np.ascontiguousarray(target))
            return
        if 0 in shape:
            return
        for first, last in _pieces(box.first, box.last, _SLAB // self._dtype.itemsize):
            extents = [e - b for b, e in zip(first, last)]
            transfer(_core.Box(first, last, [True] * len(extents)), np.full(extents, values))

    def _get_into(self, box, out):
        self._check_out(out, box.shape)
        if isinstance(box, Elements):
            return self._gather(box, out)
        if out.size and not self._core.get(box, out):
            other = np.empty(box.shape, self._dtype)
            self._core.get(box, other)
            out[...] = other
        return out

    def _check_out(self, out, shape):
        if not isinstance(out, np.ndarray) or out.dtype != self._dtype or out.shape != shape:
            raise ArgumentError(22, f"kasane: out has to be a NumPy array of type {self._dtype} and shape "
                                    f"{shape}")

    def _gather(self, elements, out):
        result = np.empty(elements.shape, self._dtype)
        self._core.gather(elements.indices, result)
        if out is None:
            return result
        out[...] = result
        return out

    # ---- this rank's part ----

    def parts(self, ghosts=False):
        """This rank's tiles: pairs of an index, which is a tuple of slices, and a NumPy view of its elements.

            for where, part in a.parts():
                part[...] = f(where)

        Loads and stores through the views need no fence: others see them by ``a[...]`` at once. ghosts: the
        views have the ghost cells around, too. A view keeps the array's memory.
        """
        return [(_slices(first, last), self._view(first, last, ghosts)) for first, last in self._core.tiles()]

    @property
    def local(self):
        """This rank's part as a NumPy view, without a copy; it is empty where the rank has none.

        For arrays in blocks. In tiles a rank has many of them: ValueError, use parts().
        """
        tiles = self._core.tiles()
        if len(tiles) > 1:
            raise ArgumentError(22, f"kasane: this rank has {len(tiles)} tiles of the array; use parts()")
        if not tiles:
            return np.empty((0,) * self.ndim, self._dtype)
        return self._view(*tiles[0], False)

    def _view(self, first, last, ghosts):
        extents = [e - b for b, e in zip(first, last)]
        part = _core.Part(self._core, first, extents, _format(self._dtype), ghosts)
        return np.asarray(part)

    def _each_piece(self, access):
        """(first, last, view) for pieces of this rank's tiles, which are on their way."""
        for first, last in self._core.tiles():
            for low, high in _pieces(first, last, _PIECE // self._dtype.itemsize):
                self._core.expect(low, high, access)
                yield low, high, self._view(low, high, False)

    def _piece(self, model, low, high, its_view):
        """The elements of a box of model's: in place where they lie alike, else a copy."""
        if model is self:
            return its_view
        if not self._core.distributed_as(model._core):
            return self.get(_slices(low, high))
        self._core.expect(low, high, _READ)
        return self._view(low, high, False)

    def update_ghosts(self):
        """Copy the neighbours' elements into all ghost cells. Collective."""
        self._core.update_ghosts()

    # ---- whole arrays ----

    def _like(self, dtype=None):
        how = {**self._how, "ghosts": [], "periodic": False}
        return Array(self._shape, self._dtype if dtype is None else dtype, **how)

    def fill(self, value):
        """All elements, and all ghost cells, become value. Collective."""
        value = self._converted(value)
        if value.ndim:
            raise ArgumentError(22, "kasane: fill needs one number")

        def work():
            for _, _, view in self._each_piece(_WRITE_ONLY):
                view[...] = value
            for first, last in self._core.tiles():
                if any(self._core.ghosts):
                    _fill_around(self._view(first, last, True), self._core.ghosts, value)

        _together("kasane.Array.fill", [self], _text(value), work)

    def copy(self):
        """A new array with the same elements, distributed alike. Collective."""
        result = self._like()
        copy(self, result)
        return result

    def transpose(self):
        """A new array with the dimensions in reverse. Collective."""
        how = {k: v[::-1] if isinstance(v, list) else v for k, v in self._how.items()}
        how["ghosts"], how["periodic"] = [], False
        result = Array(self._shape[::-1], self._dtype, **how)

        def work():
            for low, high, to in result._each_piece(_WRITE_ONLY):
                to[...] = self.get(_slices(low[::-1], high[::-1])).T

        _together("kasane.Array.transpose", [self, result], b"", work)
        return result

    @property
    def T(self):
        """transpose()."""
        return self.transpose()

    def save(self, path):
        """Write all elements to a file of NumPy's format .npy, which rank 0 writes. Collective."""
        self._core.save(os.fspath(path), np.lib.format.dtype_to_descr(self._dtype))

    def sum(self, axis=None, dtype=None, out=None):
        """The sum of all elements, the same at all ranks. Collective."""
        _whole(axis, out)
        return self._reduce(np.add, {} if dtype is None else {"dtype": dtype})

    def min(self, axis=None, out=None):
        """The smallest element, the same at all ranks. Collective."""
        _whole(axis, out)
        return self._reduce(np.minimum, {})

    def max(self, axis=None, out=None):
        """The largest element, the same at all ranks. Collective."""
        _whole(axis, out)
        return self._reduce(np.maximum, {})

    def dot(self, other):
        """kasane.dot(self, other). Collective."""
        return dot(self, other)

    def _reduce(self, ufunc, options):
        kind = ufunc.reduce(np.empty(1, self._dtype), **options).dtype

        def piece(low, high, view):
            return ufunc.reduce(view, axis=None, **options)

        return _combined(f"kasane: {ufunc.__name__}.reduce", self, [self], ufunc, kind, piece)

    # ---- NumPy's functions ----

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if ufunc is np.matmul and method == "__call__":
            return matmul(*inputs, out=None if out is None else out[0])
        if method == "reduce" and len(inputs) == 1:
            axis = options.pop("axis", 0)
            _whole(None if inputs[0].ndim == 1 and axis == 0 else axis, None if out is None else out[0])
            return inputs[0]._reduce(ufunc, _reduction(ufunc, options))
        if method != "__call__" or ufunc.signature is not None:
            return NotImplemented
        if options.pop("where", True) is not True:
            raise TypeError("kasane: where= is not for distributed arrays")
        return _elementwise(ufunc, inputs, out, options)


# ---- operations on several arrays ------------------------------------------------------------------------


def _elementwise(ufunc, inputs, outs, options):
    """ufunc, part by part."""
    arrays = [x for x in (*inputs, *(outs or ())) if isinstance(x, Array)]
    model = arrays[0]
    for x in arrays:
        if x.shape != model.shape:
            raise ArgumentError(22, f"kasane: arrays of shapes {model.shape} and {x.shape} in "
                                    f"{ufunc.__name__}; distributed arrays are not broadcast")
    operands = [x if isinstance(x, Array) or np.ndim(x) == 0 else np.broadcast_to(np.asarray(x), model.shape)
                for x in inputs]
    if outs is None:
        outs = (None,) * ufunc.nout
    if any(o is not None and not isinstance(o, Array) for o in outs):
        raise TypeError("kasane: out= has to be a distributed array where an operand is one")
    empty = [np.empty((0,) * model.ndim, x.dtype) if isinstance(x, (Array, np.ndarray)) and np.ndim(x) else x
             for x in operands]
    into = tuple(None if o is None else np.empty((0,) * model.ndim, o.dtype) for o in outs)
    results = ufunc(*empty, out=into, **options)  # what does not fit is refused before the ranks meet
    kinds = [r.dtype for r in (results if isinstance(results, tuple) else (results,))]
    outs = [model._like(kind) if o is None else o for o, kind in zip(outs, kinds)]
    access = _READ_WRITE if any(x is outs[0] for x in operands) else _WRITE_ONLY

    def work():
        for low, high, view in outs[0]._each_piece(access):
            index = _slices(low, high)
            taken = [x._piece(outs[0], low, high, view) if isinstance(x, Array) else
                     x[index] if isinstance(x, np.ndarray) and x.ndim else x for x in operands]
            if all(outs[0]._core.distributed_as(o._core) for o in outs[1:]):
                ufunc(*taken, out=(view, *(o._piece(outs[0], low, high, None) for o in outs[1:])), **options)
                continue
            values = ufunc(*taken, **options)
            for o, value in zip(outs, values):
                o.put(index, value)

    scalars = [x for x in operands if not isinstance(x, Array)]
    _together(f"kasane: {ufunc.__name__}", [x for x in (*operands, *outs) if isinstance(x, Array)],
              _text(*scalars), work)
    return outs[0] if len(outs) == 1 else tuple(outs)


def _combined(call, model, arrays, ufunc, kind, piece):
    """The combination of piece(low, high, view) over all pieces of all ranks, in order; of type kind."""

    def work():
        mine = None
        for low, high, view in model._each_piece(_READ):
            value = piece(low, high, view)
            mine = value if mine is None else ufunc(mine, value)
        return None if mine is None else b"\1" + np.asarray(mine, kind).tobytes()

    everyone = _together(call, arrays, _text(str(kind)), work, 1 + kind.itemsize)
    values = [np.frombuffer(b, kind, 1, 1)[0] for b in everyone if b[0]]
    return functools.reduce(ufunc, values)


def dot(a, b):
    """The sum of a's elements times b's, over all dimensions, without conjugates. Collective.

    For vectors as numpy.dot; the product of matrices is ``a @ b``.
    """
    _same_shape("dot", a, b)
    kind = np.result_type(a.dtype, b.dtype)

    def piece(low, high, view):
        other = b._piece(a, low, high, view)
        return np.dot(view.ravel(), other.ravel()) if view.flags.c_contiguous else np.sum(view * other)

    return _combined("kasane.dot", a, [a, b], np.add, kind, piece)


def copy(source, target):
    """target = source, however the two are distributed. Collective.

    Raises ValueError: target's elements do not hold an integer of source's.
    """
    _same_shape("copy", source, target)
    if not np.can_cast(source.dtype, target.dtype, "same_kind"):
        raise TypeError(f"kasane.copy: from {source.dtype} to {target.dtype}")

    def work():
        if source is target:
            return  # and the hint that target is overwritten would discard what source has
        for low, high, view in target._each_piece(_WRITE_ONLY):
            piece = source._piece(target, low, high, view)
            _checked(piece, target.dtype)
            view[...] = piece

    _together("kasane.copy", [source, target], b"", work)


def matmul(a, b, out=None, alpha=1, beta=0):
    """``alpha a b + beta out`` for matrices, by the BLAS. Collective. Returns out, or a new array.

    Elements: float32, float64, complex64, complex128, of one type. Tiles of 512 x 512 or more suit it best.
    """
    for x in (a, b) if out is None else (a, b, out):
        if not isinstance(x, Array) or x.ndim != 2 or x.dtype != a.dtype:
            raise TypeError("kasane.matmul: give distributed matrices of one type of elements")
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(22, f"kasane.matmul: matrices of {a.shape} and {b.shape}")
    if out is None:
        tiles = (a.tile[0], b.tile[1]) if a._how["tiles"] and b._how["tiles"] else None
        out = Array((a.shape[0], b.shape[1]), a.dtype, tiles=tiles)
        beta = 0
    letter = a._letter("matmul", "fc")
    alpha, beta = (complex(out._number(*number)) for number in (("alpha", alpha), ("beta", beta)))
    _core.gemm(alpha, a._core, b._core, beta, out._core, letter)
    return out


# ---- making arrays ---------------------------------------------------------------------------------------


def empty(shape, dtype=np.float64, **how):
    """A new array whose elements are not initialised. Collective.

    shape: one number, or one for each of 1 to 8 dimensions. dtype: bool, integers, float16, float32, float64,
    complex64 or complex128; in this machine's byte order, whatever that of dtype is.

    How it is distributed: without more a block a rank, in a grid of about cubes.

    - ``blocks=(4, 2)``: a grid of blocks; block k lies at rank k modulo ranks()
    - ``tiles=(512, 512)``: tiles of that shape, dealt to the ranks in turn: for @, and for arrays larger than
      DRAM
    - ``ghosts=1``, ``ghosts=(1, 2)``: cells around each block or tile for copies of the neighbours' elements
      (update_ghosts); ``periodic=True``: beyond the edges of the array they are the opposite edge
    """
    return Array(shape, dtype, **how)


def full(shape, value, dtype=None, **how):
    """A new array of equal elements. Collective. How it is distributed: see empty()."""
    a = Array(shape, np.asarray(value).dtype if dtype is None else dtype, **how)
    a.fill(value)
    return a


def zeros(shape, dtype=np.float64, **how):
    """A new array of zeros. Collective. How it is distributed: see empty()."""
    return full(shape, 0, dtype, **how)


def array(values, dtype=None, **how):
    """A new array with the elements of a NumPy array that all ranks give. Collective. See empty()."""
    values = np.asarray(values, dtype)
    a = Array(values.shape or (1,), values.dtype, **how)

    def work():
        for where, part in a.parts():
            part[...] = values.reshape(a.shape)[where]

    _together("kasane.array", [a], b"", work)
    return a


def load(path, **how):
    """A new array with the elements of a .npy file, which rank 0 reads. Collective. See empty().

    Raises FileNotFoundError and the like at all ranks.
    """
    _need()
    path = os.fspath(path)
    shape, kind = _core.npy_shape(path)
    if np.dtype(kind).newbyteorder("=") != np.dtype(kind):
        raise ArgumentError(22, f"kasane.load: {path}: elements of type {kind}; give this machine's "
                                "byte order")
    a = Array(shape, kind, **how)
    a._core.load(path, kind)
    return a


# ---- small things ----------------------------------------------------------------------------------------

def _sizes(given):
    if given is None:
        return None
    return [int(n) for n in ((given,) if np.ndim(given) == 0 else given)]


def _slices(first, last):
    return tuple(slice(b, e) for b, e in zip(first, last))


def _pieces(first, last, most):
    """The box cut along its first dimension that has several elements, into pieces of at most ``most``."""
    extents = [e - b for b, e in zip(first, last)]
    d = next((d for d, n in enumerate(extents) if n > 1), len(extents) - 1)
    row = math.prod(extents[d + 1:])
    step = max(1, most // max(1, row))
    for begin in range(first[d], last[d], step):
        low, high = list(first), list(last)
        low[d], high[d] = begin, min(begin + step, last[d])
        if step == 1 and row > most:
            yield from _pieces(low, high, most)
        else:
            yield low, high


def _fill_around(view, widths, value):
    """The shell of a tile."""
    for d, width in enumerate(widths):
        if width:
            low = (slice(None),) * d + (slice(0, width),)
            high = (slice(None),) * d + (slice(view.shape[d] - width, None),)
            view[low], view[high] = value, value


def _same_shape(call, a, b):
    if not isinstance(a, Array) or not isinstance(b, Array):
        raise TypeError(f"kasane.{call}: give distributed arrays")
    if a.shape != b.shape:
        raise ArgumentError(22, f"kasane.{call}: arrays of shapes {a.shape} and {b.shape}")


def _checked(values, dtype, large=False):
    """Whether values, and dtype, are integers: none of them is beyond it. large: values is a Python int."""
    if dtype.kind not in "iu" or not (large or values.dtype.kind in "iu"):
        return False
    if values.size and not np.can_cast(values.dtype, dtype, "safe"):
        for number in (values.min(), values.max()):
            if not np.iinfo(dtype).min <= int(number) <= np.iinfo(dtype).max:
                raise ValueError(f"kasane: {number} in an array of type {dtype}")
    return True


def _whole(axis, out):
    if axis is not None:
        raise TypeError("kasane: reductions are over all elements: axis=None")
    if out is not None:
        raise TypeError("kasane: reductions return a number; out= is not for distributed arrays")


def _reduction(ufunc, options):
    """The options of ufunc.reduce that count. TypeError for those, and for ufuncs, that are not there."""
    if ufunc not in _ASSOCIATIVE:
        raise TypeError(f"kasane: {ufunc.__name__}.reduce depends on the order of elements, and ranks "
                        f"combine their parts; there are {', '.join(u.__name__ for u in _ASSOCIATIVE)}")
    options = dict(options)
    if options.pop("keepdims", False):
        raise TypeError("kasane: reductions return a number; keepdims= is not for distributed arrays")
    if options.pop("where", True) is not True:
        raise TypeError("kasane: where= is not for distributed arrays")
    dtype = options.pop("dtype", None)
    if options:
        raise TypeError(f"kasane: {next(iter(options))}= is not for reductions of distributed arrays")
    return {} if dtype is None else {"dtype": dtype}


@functools.lru_cache(None)
def _format(dtype):
    return memoryview(np.empty(1, dtype)).format
