# SPDX-License-Identifier: Apache-2.0
"""What all functions of whole arrays are made of: blocks of elements, and passes over them by all ranks.

    Operand       what has a shape, a type, and a NumPy array for each box of its elements: an Array, a Lazy
    Lazy          computes the elements of a box when it is asked for them
    evaluate      makes an array of a Lazy: each rank its pieces, each of them once
    together      what each rank does for itself, between two meetings of all

A box is two tuples, the first index and the one behind the last.
"""
import functools
import math

import numpy as np

from . import _core
from ._errors import ArgumentError
from ._progress import Meter, Pass, volume, watched, within

PIECE = 512 << 10  # bytes of what is computed at once
READ, READ_WRITE, WRITE_ONLY = 0, 1, 2  # kasane_access


def together(call, arrays, values, work, length=0):
    """The ``length`` bytes that work() returns at each rank; by all ranks, between two meetings.

    An exception at one rank is raised there, and an Error that names the rank at the others.
    """
    types = "".join([a.dtype.char for a in arrays])
    _core.meet(call[:47], [a._core for a in arrays], values + types.encode())
    failure, mine = None, bytes(length)
    try:
        mine = within(call, work) or mine
    except BaseException as e:
        failure = e
    said = None if failure is None else f"{type(failure).__name__}: {failure}"
    try:
        return _core.end(call[:47], said, mine)
    except Exception:
        if failure is not None:
            raise failure from None
        raise


def text(*values):
    """Bytes by which ranks compare what they were called with; of arrays the shapes and types."""
    return repr([v if not isinstance(v, np.ndarray) else (v.shape, v.dtype.char) if v.ndim else v.item()
                 for v in values]).encode()


def slices(low, high):
    return tuple(slice(b, e) for b, e in zip(low, high))


def pieces(first, last, most):
    """The box cut along its first dimension that has several elements, into pieces of at most ``most``."""
    extents = [e - b for b, e in zip(first, last)]
    if 0 < math.prod(extents) <= most:
        yield tuple(first), tuple(last)
        return
    d = next((d for d, n in enumerate(extents) if n > 1), len(extents) - 1)
    if d < 0:
        yield (), ()
        return
    row = math.prod(extents[d + 1:])
    step = max(1, most // max(1, row))
    for begin in range(first[d], last[d], step):
        low, high = list(first), list(last)
        low[d], high[d] = begin, min(begin + step, last[d])
        if step == 1 and row > most:
            yield from pieces(low, high, most)
        else:
            yield tuple(low), tuple(high)


def boxes_of_tiles(first, last, tile):
    """The box cut at the borders of tiles."""
    if not first:
        yield (), ()
        return
    for begin in range(first[0] // tile[0] * tile[0], last[0], tile[0]):
        for low, high in boxes_of_tiles(first[1:], last[1:], tile[1:]):
            yield (max(first[0], begin), *low), (min(last[0], begin + tile[0]), *high)


# ---- operands -------------------------------------------------------------------------------------------


class Operand(np.lib.mixins.NDArrayOperatorsMixin):
    """Has ``shape`` and ``dtype``, ``block(low, high)``: the elements of a box as a NumPy array, in place if
    need be; and ``leaves``, the arrays that it reads."""

    __hash__ = None
    files, chunks = (), None

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self):
        """Number of elements, at all ranks together."""
        return math.prod(self.shape)

    @property
    def nbytes(self):
        """Bytes of the elements, at all ranks together."""
        return self.size * self.dtype.itemsize

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]


class Lazy(Operand):
    """Elements that are computed where and when they are needed: kasane.lazy(), kasane.evaluate()."""

    deferred = True  # functions of it are expressions, too

    def __init__(self, shape, dtype, sources, block, key, into=None, pointwise=False, fresh=False):
        """block: of low and high. key: what ranks compare. into: block(low, high, out), which stores
        there. fresh: nobody else has what block gives."""
        self.fresh = fresh
        self.shape, self.dtype, self.block, self._into = tuple(shape), np.dtype(dtype), block, into
        leaves, self.keys, self._files = {}, [key], []
        self.chunks = None  # of the file from which the elements come in the same order
        for s in sources:
            self._files += s.files
            self.chunks = self.chunks or (s.chunks if s.shape == self.shape else None)
            leaves.update([(id(a), a) for a in s.leaves])
            self.keys.append(s.keys if isinstance(s, Lazy) else s.shape)
        self.leaves = list(leaves.values())
        self.pointwise = pointwise and all(s.pointwise for s in sources)

    @property
    def files(self):
        """The arrays in files that it reads."""
        return self._files

    def __repr__(self):
        return f"<kasane.lazy {self.dtype} {self.shape}>"

    def __array__(self, *_, **__):
        raise TypeError("a lazy expression: kasane.evaluate makes an array of it")

    def __copy__(self):
        return self

    def __deepcopy__(self, _):
        return evaluate(self)

    def __reduce__(self):
        raise TypeError(f"kasane: {self!r} is not pickled: kasane.evaluate makes an array of it")

    def into(self, low, high, view):
        """view = the elements of the box."""
        if self._into:
            self._into(low, high, view)
        else:
            view[...] = self.block(low, high)


def elements(x, low, high):
    """The elements of an operand, of what is broadcast, in a box; a number as it is."""
    if isinstance(x, Operand) and len(x.shape) == len(low) and 1 not in x.shape:
        return x.block(low, high)
    if not isinstance(x, (Operand, np.ndarray)) or (isinstance(x, np.ndarray) and x.ndim == 0):
        return x
    skip = len(low) - x.ndim
    first = tuple(0 if n == 1 else b for n, b in zip(x.shape, low[skip:]))
    last = tuple(1 if n == 1 else e for n, e in zip(x.shape, high[skip:]))
    if isinstance(x, np.ndarray):
        return x[slices(first, last)]
    block = x.block(first, last)
    return block if x.ndim or not low else block.reshape((1,) * len(low))  # its type counts as others' does


def broadcast_shape(call, *operands):
    try:
        return np.broadcast_shapes(
            *(np.shape(x) if not isinstance(x, Operand) else x.shape for x in operands)
        )
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in operands if isinstance(x, (Operand, np.ndarray)))
        raise ArgumentError(
            22, f"kasane: arrays of shapes {shapes} in {call}, which are not broadcast to one shape"
        ) from None


def pointwise(f, operands, options=None, name=None):
    """The Lazy f(*operands), element by element; f: a ufunc, or a function of NumPy arrays and numbers."""
    options, name, shape, kinds = options or {}, name or f.__name__, None, []
    for x in operands if not options and isinstance(f, np.ufunc) else ():
        if isinstance(x, Operand) and x.shape and (shape is None or x.shape == shape):
            shape = x.shape
        elif type(x) not in (bool, int, float, complex):
            break
        kinds.append(x.dtype if isinstance(x, Operand) else x)
    if shape is not None and len(kinds) == len(operands):  # arrays of one shape, and numbers
        dtype = _type_of(f, *kinds)
    else:
        shape = broadcast_shape(name, *operands)
        dtype = _type_of_tiny(f, operands, options, shape)

    # A block that an operand has computed for this one alone gets the result, which saves memory of its size.
    elided = next((k for k, x in enumerate(operands) if isinstance(x, Lazy) and x.fresh and x.shape == shape
                   and x.dtype == dtype), None) if isinstance(f, np.ufunc) and not options else None

    def block(low, high):
        blocks = [elements(x, low, high) for x in operands]
        return np.asarray(f(*blocks, **options) if elided is None else f(*blocks, out=blocks[elided]))

    def into(low, high, view):
        f(*[elements(x, low, high) for x in operands], out=view, **options)

    given = [x for x in operands if not isinstance(x, Operand)]
    sources = [x for x in operands if isinstance(x, Operand)]
    return Lazy(shape, dtype, sources, block, (name, text(*given), sorted(options.items(), key=str)),
                into if isinstance(f, np.ufunc) else None, True, isinstance(f, np.ufunc))


@functools.lru_cache(4096, typed=True)
def _type_of(ufunc, *kinds):
    """The type that a ufunc makes of arrays of these types, and of numbers of Python's, whose values count
    before NumPy 2."""
    return ufunc(*(np.empty(0, k) if isinstance(k, np.dtype) else k for k in kinds)).dtype


def _type_of_tiny(f, operands, options, shape):
    tiny = [x if not isinstance(x, (Operand, np.ndarray)) or (isinstance(x, np.ndarray) and not x.ndim) else
            np.empty((0,) * len(shape), x.dtype) if x.ndim else np.ones((1,) * len(shape), x.dtype)
            for x in operands]
    return np.asarray(f(*tiny, **options)).dtype  # what does not fit is refused before the ranks meet


# ---- passes ---------------------------------------------------------------------------------------------


def how_of(shape, arrays):
    """How the first one that has this shape is distributed."""
    for a in arrays:
        if a.shape == shape:
            return {**a.how, "ghosts": [], "periodic": False}
    return None


def distribution(shape, arrays, chunks=None):
    """How an array of that shape is distributed that is made of some: as one of this shape; as a file is cut;
    where they are in tiles, in tiles of as many elements; else in blocks."""
    if how := how_of(tuple(shape), arrays):
        return how
    if chunks:
        return {"tiles": chunks}
    volume = next((math.prod(a.tile) for a in arrays if a.how["tiles"] and math.prod(a.tile) > 1), None)
    if volume is None or not shape:
        return {}
    tile = []
    for n in reversed(shape):
        tile.append(max(1, min(n, volume)))
        volume //= tile[-1]
    return {"tiles": tuple(reversed(tile))}


def evaluate(x, out=None, casting="same_kind"):
    """An array of the elements of a lazy expression; ``out``, where given, gets them. Collective.

        kasane.evaluate((kasane.lazy(a) - b) ** 2, out=c)

    reads each block of a and b once, and makes no other array.
    """
    from ._array import Array
    if isinstance(x, Array):
        return x if out is None else evaluate(lazy(x), out)
    if out is None:
        how = how_of(x.shape, x.leaves)
        out = Array.alike(x.shape, x.dtype, how) if how else Array(
            x.shape, x.dtype, **distribution(x.shape, x.leaves, x.chunks))
    elif not isinstance(out, Array):
        raise TypeError("kasane: out= has to be a distributed array where an operand is one")
    elif out.shape != x.shape:
        raise ArgumentError(22, f"kasane: out= of shape {out.shape} for elements of shape {x.shape}")
    elif x.dtype != out.dtype and not np.can_cast(x.dtype, out.dtype, casting):
        raise TypeError(f"Cannot cast elements from {x.dtype} to {out.dtype} of out=")
    used = any(a is out for a in x.leaves)
    if used and not x.pointwise:
        return evaluate(evaluate(x), out)

    def work():
        for low, high, view in out.each_piece(READ_WRITE if used else WRITE_ONLY):
            x.into(low, high, view)

    together(f"kasane: {x.keys[0][0]}", [*x.leaves, out], repr(x.keys).encode(), work)
    return out


def lazy(a):
    """An expression that is computed block by block, when evaluate() or a reduction needs it.

        ((kasane.lazy(a) - b) ** 2).sum()

    Operators, NumPy's ufuncs and kasane's functions of an expression are expressions.
    """
    if isinstance(a, Lazy) and a.deferred:
        return a
    return Lazy(a.shape, a.dtype, [a], a.block, ("lazy",), None, True)


def finished(x, *operands):
    """An array of the Lazy x; x itself where an operand is one."""
    return x if any(isinstance(o, Lazy) and o.deferred for o in operands) else evaluate(x)


def share(x, most=None):
    """This rank's boxes of an operand: where its elements lie, or those of an array of its shape."""
    return tracked(_share(x, most), x)


def tracked(boxes, x):
    """This rank's boxes of an operand, of which rank 0 tells how far it is."""
    return watched(boxes, x.size // _core.ranks()) if _shows() else boxes


def counted(boxes):
    """This rank's boxes, however they are dealt to the ranks; rank 0 counts them, and tells how far it is."""
    boxes = list(boxes) if _shows() else boxes
    return watched(boxes, sum(map(volume, boxes))) if _shows() else boxes


def meter(size):
    """What rank 0 calls with the number of elements that it has done; else None."""
    return Meter(size) if _shows() else None


def _shows():
    return Pass.show and _core.rank() == 0


def _share(x, most):
    most = max(1, PIECE // x.dtype.itemsize) if most is None else most
    for a in x.leaves:
        if a.shape == x.shape:
            for first, last in a.tiles():
                yield from pieces(first, last, most)
            return
    if x.size:
        whole, cut = ((0,) * x.ndim, x.shape), x.chunks is not None
        for k, box in enumerate(boxes_of_tiles(*whole, x.chunks) if cut else pieces(*whole, most)):
            if k % _core.ranks() == _core.rank():
                yield from pieces(*box, most) if cut else (box,)


def tile_of(x):
    """The shape of tiles in which an operand's elements lie."""
    return next((a.tile for a in x.leaves if a.shape == x.shape), tuple(max(1, n) for n in x.shape))
