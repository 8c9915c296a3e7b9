# SPDX-License-Identifier: Apache-2.0
"""What NumPy calls of arrays that are not its own, and which functions are methods as well."""
import numpy as np

from . import _elementwise, _linalg, _manipulation, _reductions, _sorting
from ._blocks import Operand, evaluate

_METHODS = {
    _reductions: "all any argmax argmin cumprod cumsum dot max mean min prod std sum var",
    _elementwise: "astype clip copy round",
    _manipulation: "ravel repeat reshape squeeze swapaxes",
}


def _ufunc(self, ufunc, method, *inputs, out=None, **options):
    if ufunc is np.matmul and method == "__call__":
        return _linalg.matmul(*inputs, out=None if out is None else out[0])
    if ufunc.__name__ == "vecdot" and method == "__call__" and out is None:
        return _linalg.vecdot(*inputs, **options)
    if method == "reduce" and len(inputs) == 1:
        for name, neutral in (("where", True), ("initial", getattr(np, "_NoValue", None))):
            if options.pop(name, neutral) is not neutral:
                raise TypeError(f"kasane: {name}= is not for reductions of distributed arrays")
        return _reductions.by_ufunc(
            ufunc, inputs[0], options.pop("axis", 0), out=None if out is None else out[0], **options
        )
    if method == "accumulate" and ufunc in (np.add, np.multiply) and out is None:
        scan = _reductions.cumulative_sum if ufunc is np.add else _reductions.cumulative_prod
        return scan(inputs[0], axis=options.pop("axis", 0), **options)
    if method != "__call__" or ufunc.signature is not None:
        return NotImplemented
    return _elementwise.call_ufunc(ufunc, inputs, out, options)


def _dot(a, b, out=None):
    """numpy.dot: of vectors the sum of products, else the product of matrices."""
    if a.ndim == b.ndim == 1:
        return _reductions.dot(a, b)
    return _linalg.matmul(a, b, out)


# NumPy's functions that are ours by another name, or not as functions.
_OWN = {
    "dot": _dot,
    "transpose": _manipulation.permute_dims,
    "amax": _reductions.max,
    "amin": _reductions.min,
    "around": _elementwise.round,
    "copy": lambda x, order="K", subok=False: _elementwise.copy(x),
    "ndim": lambda x: x.ndim,
    "shape": lambda x: x.shape,
    "size": lambda x, axis=None: x.size if axis is None else x.shape[axis],
}


def _of_matrix(f):
    def call(x, offset=0):
        if x.ndim != 2:
            raise TypeError(
                f"kasane: numpy.{f.__name__} of {x.ndim} dimensions; use kasane.linalg.{f.__name__}, of the "
                "last two"
            )
        return f(x, offset)

    return call


def _function(self, function, types, arguments, options):
    import kasane
    name, module = function.__name__, kasane
    if function.__module__ in ("numpy.linalg", "numpy.fft"):
        module = getattr(kasane, function.__module__[6:])
    ours = _OWN.get(name) or (getattr(module, name) if name in module.__all__ else None)
    if ours is None:
        return NotImplemented
    return ours(*arguments, **{k: v for k, v in options.items() if v is not getattr(np, "_NoValue", None)})


_OWN |= {"trace": _of_matrix(_linalg.trace), "diagonal": _of_matrix(_linalg.diagonal)}


def _transpose(self, *axes):
    """A new array with the dimensions in another order; without axes in reverse. Collective."""
    axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return _manipulation.permute_dims(self, axes or None)


def _reshape(self, *shape, order="C"):
    """The elements, in C's order, in another shape. Collective."""
    return _manipulation.reshape(self, shape[0] if len(shape) == 1 else shape, order)


def _sort(self, axis=-1):
    """Sorts in place along a dimension. Collective."""
    evaluate(_sorting.sort(self, axis), self)


def _power(self, exponent):
    """self ** exponent; squares as NumPy computes them."""
    if type(exponent) is int and exponent == 2 and self.dtype.kind != "b":
        return _elementwise.square(self)
    return _elementwise.power(self, exponent)


for _module, _names in _METHODS.items():
    for _name in _names.split():
        setattr(Operand, _name, getattr(_module, _name))
Operand.__array_ufunc__ = _ufunc
Operand.__array_function__ = _function
Operand.__array_namespace__ = lambda self, *, api_version=None: __import__("kasane")
Operand.__pow__ = _power
Operand.transpose = _transpose
Operand.reshape = _reshape
Operand.sort = _sort
Operand.argsort = _sorting.argsort
Operand.nonzero = lambda self: __import__("kasane").nonzero(self)
Operand.take = lambda self, indices, axis=None: __import__("kasane").take(self, indices, axis)
Operand.conj = Operand.conjugate = lambda self: _elementwise.conj(self)
Operand.T = property(_manipulation.permute_dims, doc="permute_dims(): a new array. Collective.")
Operand.mT = property(_manipulation.matrix_transpose, doc="matrix_transpose(): a new array. Collective.")
Operand.real = property(_elementwise.real, doc="The real parts, as a new array. Collective.")
Operand.imag = property(_elementwise.imag, doc="The imaginary parts, as a new array. Collective.")
Operand.to_device = lambda self, device, stream=None: self
