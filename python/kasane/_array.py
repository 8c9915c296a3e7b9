# SPDX-License-Identifier: Apache-2.0
"""The distributed array: what it is, its patches, this rank's part."""
import functools
from multiprocessing.reduction import ForkingPickler

import numpy as np

from . import _core
from ._blocks import PIECE, READ, WRITE_ONLY, Operand, pieces, slices, text, together, tracked
from ._errors import ArgumentError
from ._index import Elements, Stepped, parse
from ._job import _need
from ._progress import Pass

_SLAB = 4 << 20  # bytes of what is put at once of a scalar
_GATHERED = 64 << 20  # bytes that numpy.asarray and pickle copy unasked
_LETTERS = {"int32": "i", "int64": "l", "float32": "f", "float64": "d", "complex64": "F", "complex128": "D"}


class Array(Operand):
    """A dense array that is distributed over all ranks. Made by zeros, full, empty, array, load.

    ``a[i:j, k:l]`` reads a patch, from whichever ranks have it, into a NumPy array; ``a[i:j, k:l] = x``
    writes one. accumulate and fetch_add change elements atomically. Any rank does this at any time,
    and no other rank waits for it; barrier() orders ranks.

    ``a.local`` and ``a.parts()`` are what lies at this rank, without copies.

    **Collective**: operators and NumPy's ufuncs, sum, min, max, dot, @, fill, copy, transpose,
    update_ghosts, save: all ranks make the same calls in the same order, and get the same results.
    """

    def __init__(self, shape, dtype=np.float64, *, tiles=None, blocks=None, ghosts=0, periodic=False):
        """See empty()."""
        _need()
        self._shape = tuple(map(int, shape if isinstance(shape, tuple) or np.ndim(shape) else (shape,)))
        self._dtype = np.dtype(dtype)
        if not self._dtype.isnative:
            self._dtype = self._dtype.newbyteorder("=")
        if self._dtype.kind not in "biufc" or self._dtype.itemsize > 16 or self._dtype.char in "gG":
            raise TypeError(f"kasane: elements of type {np.dtype(dtype)}; use bool, integers, float16, "
                            "float32, float64, complex64 or complex128")
        if min(self._shape, default=0) < 0:
            raise ArgumentError(22, f"kasane: a shape of {self._shape}")
        if tiles is not None and blocks is not None:
            raise ArgumentError(22, "kasane: tiles and blocks; give one of them")
        self._make({"tiles": _sizes(tiles), "blocks": _sizes(blocks), "ghosts": _sizes(ghosts) or [],
                    "periodic": bool(periodic)})

    @classmethod
    def alike(cls, shape, dtype, how):
        """An array that is made of others. how: of one of them."""
        _need()
        self = cls.__new__(cls)
        self._shape, self._dtype = shape, dtype
        self._make(how)
        return self

    def _make(self, how):
        self.how = how
        extents = [max(1, n) for n in self._shape] or [1]  # the layout has one element at least
        self._core = _core.Array(extents, self._dtype.itemsize, how["tiles"], how["blocks"], how["ghosts"],
                                 how["periodic"])
        self._plain = extents == list(self._shape)
        self._format = _format(self._dtype)

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
    def tile(self):
        """The shape of a tile, or of a block: what lies together at one rank."""
        return tuple(self._core.tile) if self._shape else ()

    @property
    def device(self):
        """Where the elements are, as the Array API standard has it."""
        return "cpu"

    def __repr__(self):
        kind = "tiles" if self.how["tiles"] else "blocks"
        return f"<kasane.Array {self._dtype} {self._shape} in {kind} of {self.tile}>"

    def __array__(self, dtype=None, copy=None):
        if self.nbytes > _GATHERED or copy is False:
            raise TypeError(
                "a kasane.Array is distributed, and may be larger than this process's memory: a.gather() or "
                "a[...] copies it into a NumPy array, a.local is this rank's part without a copy")
        return np.asarray(self.gather(), dtype)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.__array__().__dlpack__()

    def __dlpack_device__(self):
        return 1, 0  # this machine's memory

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over an array without dimensions")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value):
        return bool((self == value).any())

    def item(self):
        """The only element, as a number of Python's."""
        if self.size != 1:
            raise ValueError("kasane: an array of several elements is no number; use sum(), any(), all() or "
                             "a[i, j]")
        return self.gather().item()

    def __bool__(self):
        if self.size != 1:
            raise ValueError("the truth of an array of several elements is ambiguous; use any() or all()")
        return bool(self.item())

    def __int__(self):
        return int(self.item())

    def __float__(self):
        return float(self.item())

    def __complex__(self):
        return complex(self.item())

    def __index__(self):
        if self._shape or self._dtype.kind not in "iu":
            raise TypeError("only integer arrays without dimensions are an index")
        return int(self.item())

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, _):
        return self.copy()

    def __reduce__(self):
        """All elements, which the calling rank reads; all ranks make an array of them, as by array()."""
        if self.nbytes > _GATHERED:
            raise TypeError(
                f"kasane: an array of {self.nbytes} bytes is not pickled, since a pickle has all elements in "
                "one process's memory: kasane.save(path, a), and kasane.load(path); or pickle a.gather()"
            )
        return _unpickled, (self.gather(), self.how)

    # ---- patches ----

    def __getitem__(self, index):
        box = self._core.box(index) if self._plain else None
        if box is None:
            return _indexing.select(self, index) if _indexing.has_arrays(index) else self.get(index)
        out = self._patch(box)
        return out if out.ndim else out[()]

    def __setitem__(self, index, values):
        if _indexing.has_arrays(index) or isinstance(values, Operand):
            _indexing.assign(self, index, values)
        else:
            self.put(index, values)

    def get(self, index=..., out=None):
        """Read the elements ``self[index]`` into a NumPy array; into ``out``, where given, which is returned.

        index: as NumPy's: integers, slices, ``...``, arrays of integers, masks. Arrays and large steps read
        element by element.
        """
        box = self._box(index)
        if out is not None:
            return self._get_into(box, out)
        if isinstance(box, Stepped) and box.dense:
            return np.ascontiguousarray(self._patch(box.box)[box.steps])
        if isinstance(box, (Elements, Stepped)):
            return self._gather(box, None)
        out = self._patch(box)
        return out if out.ndim else out[()]

    def _patch(self, box):
        out = np.empty(box.shape, self._dtype)
        if out.size:
            self._core.get(box, out)
        return out

    def put(self, index, values):
        """Write ``values``, an array or a number, to the elements ``self[index]``; complete on return.

        values: broadcast to the patch's shape, converted as numpy.copyto does (casting "same_kind").
        Raises ValueError: an integer that an element does not hold.
        """
        box, values = self._box(index), self._converted(values)
        if isinstance(box, (Elements, Stepped)):
            return self._core.scatter(box.indices, np.ascontiguousarray(np.broadcast_to(values, box.shape)))
        self._to_patch(box, values, self._core.put)

    def accumulate(self, index, values, alpha=1):
        """Add ``alpha * values`` to the elements ``self[index]``, each element atomically.

        For int32, int64, float32, float64, complex64 and complex128. index: integers and slices of step 1.
        alpha: a number that an element holds: of integers a whole one, of real numbers a real one.
        """
        box = self._box(index)
        if isinstance(box, (Elements, Stepped)):
            raise IndexError("kasane: accumulate is for patches: integers, and slices of step 1")
        letter, alpha = self._letter("accumulate"), self._number("alpha", alpha).tobytes()
        self._to_patch(box, self._converted(values), lambda b, x: self._core.accumulate(b, x, letter, alpha))

    def fetch_add(self, index, n=1):
        """Add n to one element, atomically; return the value before. For int32, int64, float32, float64."""
        box = self._box(index)
        if isinstance(box, (Elements, Stepped)) or box.shape:
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
        if isinstance(values, Operand):
            raise TypeError(
                "kasane: a distributed array as a patch's values; use a[...] = values, or gather()"
            )
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
        return (self._core.box(index) if self._plain else None) or parse(index, self._shape)

    def _to_patch(self, box, values, transfer):
        shape = box.shape
        if values.ndim > 0:
            target = values if values.shape == shape else np.broadcast_to(values, shape)
            if target.size and not transfer(box, target):
                transfer(box, np.ascontiguousarray(target))
            return
        if 0 in shape:
            return
        for first, last in pieces(box.first, box.last, _SLAB // self._dtype.itemsize):
            extents = [e - b for b, e in zip(first, last)]
            transfer(_core.Box(list(first), list(last), [True] * len(extents)), np.full(extents, values))

    def _get_into(self, box, out):
        self._check_out(out, box.shape)
        if isinstance(box, (Elements, Stepped)):
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
        return [(slices(first, last), self._view(first, last, ghosts)) for first, last in self.tiles()]

    def tiles(self):
        """This rank's tiles: (first, last) each."""
        if not self.size:
            return []
        return [(tuple(b), tuple(e)) if self._shape else ((), ()) for b, e in self._core.tiles()]

    @property
    def local(self):
        """This rank's part as a NumPy view, without a copy; it is empty where the rank has none.

        For arrays in blocks. In tiles a rank has many of them: ValueError, use parts().
        """
        tiles = self.tiles()
        if len(tiles) > 1:
            raise ArgumentError(22, f"kasane: this rank has {len(tiles)} tiles of the array; use parts()")
        if not tiles:
            return np.empty((0,) * self.ndim, self._dtype)
        return self._view(*tiles[0], False)

    def _view(self, first, last, ghosts):
        extents = [e - b for b, e in zip(first, last)] or [1]
        part = np.asarray(_core.Part(self._core, list(first) or [0], extents, self._format, ghosts))
        return part if self._shape else part.reshape(())

    def each_piece(self, access):
        """(low, high, view) for pieces of this rank's tiles, which are on their way."""
        if self.nbytes <= PIECE and not Pass.show:  # else told of: a program's function may be slow
            return [(low, high, self._here(low, high, access)) for low, high in self.tiles()]
        return tracked(self._pieces(access), self)

    def _pieces(self, access):
        most = max(1, PIECE // self._dtype.itemsize)
        for first, last in self.tiles():
            for low, high in pieces(first, last, most):
                yield low, high, self._here(low, high, access)

    def _here(self, low, high, access):
        """A view of a box in one tile of this rank; None: of another one."""
        part = self._core.view(low or (0,), high or (1,), self._format, access)
        if part is None:
            return None
        return np.asarray(part) if self._shape else np.asarray(part).reshape(())

    # What makes it an Operand.
    pointwise = True

    @property
    def leaves(self):
        """The arrays that it reads: itself."""
        return [self]

    def block(self, low, high):
        """The elements of a box: in place where they are in one tile of this rank, else a copy."""
        view = self._here(low, high, READ)
        if view is not None:
            return view
        out = np.empty([e - b for b, e in zip(low, high)], self._dtype)
        if out.size:
            self._core.get(_core.Box(low or (0,), high or (1,), [True] * len(low) or [False]), out)
        return out

    def update_ghosts(self):
        """Copy the neighbours' elements into all ghost cells. Collective."""
        self._core.update_ghosts()

    # ---- whole arrays ----

    def fill(self, value):
        """All elements, and all ghost cells, become value. Collective."""
        value = self._converted(value)
        if value.ndim:
            raise ArgumentError(22, "kasane: fill needs one number")

        def work():
            for _, _, view in self.each_piece(WRITE_ONLY):
                view[...] = value
            for first, last in self.tiles():
                if any(self._core.ghosts):
                    _fill_around(self._view(first, last, True), self._core.ghosts, value)

        together("kasane.Array.fill", [self], text(value), work)


def _sizes(given):
    if given is None:
        return None
    return list(map(int, given if isinstance(given, (list, tuple)) or np.ndim(given) else (given,)))


def _fill_around(view, widths, value):
    """The shell of a tile."""
    for d, width in enumerate(widths):
        if width:
            low = (slice(None),) * d + (slice(0, width),)
            high = (slice(None),) * d + (slice(view.shape[d] - width, None),)
            view[low], view[high] = value, value


def _checked(values, dtype, large=False):
    """Whether values, and dtype, are integers: none of them is beyond it. large: values is a Python int."""
    if dtype.kind not in "iu" or not (large or values.dtype.kind in "iu"):
        return False
    if values.size and not np.can_cast(values.dtype, dtype, "safe"):
        for number in (values.min(), values.max()):
            if not np.iinfo(dtype).min <= int(number) <= np.iinfo(dtype).max:
                raise ValueError(f"kasane: {number} in an array of type {dtype}")
    return True


@functools.lru_cache(None)
def _format(dtype):
    return memoryview(np.empty(1, dtype)).format


def _unpickled(values, how):
    import kasane
    return kasane.array(values, **how)


def not_for_a_process(array):
    """What multiprocessing pickles by: one that cannot load what it is sent ends, and nobody is told."""
    raise TypeError(f"kasane: {array!r} for another process, which has no part in the job: give it "
                    "a.gather(), or what kasane.save wrote")


ForkingPickler.register(Array, not_for_a_process)

# The functions of whole arrays, which import Array from here.
from . import _indexing  # noqa: E402
