# SPDX-License-Identifier: Apache-2.0
"""Functions of each element: NumPy's ufuncs, and what NumPy composes of them. Operands are broadcast."""
import numpy as np

from ._blocks import Operand, evaluate, finished, lazy, pointwise, together
from ._errors import ArgumentError

# The Array API standard's name: NumPy's ufunc, where that has another one.
_RENAMED = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh", "pow": "power", "abs": "absolute", "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "conj": "conjugate",
}
_SAME = (
    "add bitwise_and bitwise_or bitwise_xor ceil copysign cos cosh divide equal exp exp2 expm1 floor "
    "floor_divide greater greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 "
    "logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter "
    "not_equal positive reciprocal remainder signbit sin sinh sqrt square subtract tan tanh trunc fmax fmin "
    "rint cbrt deg2rad rad2deg degrees radians gcd lcm heaviside ldexp fmod absolute fabs conjugate power "
    "invert left_shift right_shift mod true_divide float_power logaddexp2 sign"
).split()


def call_ufunc(ufunc, inputs, out=None, options=None):
    """ufunc of arrays, element by element; into out where given. Collective."""
    if options and options.pop("where", True) is not True:
        raise TypeError("kasane: where= is not for distributed arrays; use kasane.where")
    if out is not None and any(o is not None and not isinstance(o, Operand) for o in out):
        raise TypeError("kasane: out= has to be a distributed array where an operand is one")
    outs = (None,) * ufunc.nout if out is None else out
    if ufunc.nout > 1:  # an output may be an input of the next one
        made = [finished(pointwise(lambda *x, k=k, **o: ufunc(*x, **o)[k], inputs, options,
                                   f"{ufunc.__name__} {k}"), *inputs) for k in range(ufunc.nout)]
        return tuple(m if o is None else evaluate(lazy(m), o) for m, o in zip(made, outs))
    expression = pointwise(ufunc, inputs, options)
    if outs[0] is None:
        return finished(expression, *inputs)
    return evaluate(expression, outs[0], (options or {}).get("casting", "same_kind"))


def _function(name, ufunc):
    from ._creation import asarray

    def call(*operands, out=None, dtype=None):
        if len(operands) != ufunc.nin:
            raise TypeError(f"{name}() takes {ufunc.nin} positional arguments but {len(operands)} were given")
        if not any(isinstance(x, Operand) for x in operands):
            operands = (asarray(operands[0]), *operands[1:])
        return call_ufunc(ufunc, operands, None if out is None else (out,),
                          None if dtype is None else {"dtype": dtype})

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"numpy.{ufunc.__name__} of each element. Collective."
    return call


for _name in _SAME:
    globals()[_name] = _function(_name, getattr(np, _name))
for _name, _of in _RENAMED.items():
    globals()[_name] = _function(_name, getattr(np, _of))


def _of_blocks(name, f, operands, **options):
    from ._creation import asarray
    if not any(isinstance(x, Operand) for x in operands):
        operands = (asarray(operands[0]), *operands[1:])
    return finished(pointwise(f, operands, options, name), *operands)


def round(x, decimals=0):  # noqa: A001
    """Rounded to the nearest, halves to even. Collective."""
    return _of_blocks("round", np.round, (x,), decimals=decimals)


def real(x):
    """The real parts. Collective."""
    return _of_blocks("real", np.real, (x,))


def imag(x):
    """The imaginary parts. Collective."""
    return _of_blocks("imag", np.imag, (x,))


def angle(x):
    """The arguments of complex numbers. Collective."""
    return _of_blocks("angle", np.angle, (x,))


def clip(x, min=None, max=None):  # noqa: A002
    """Elements below min become min, those above max become max. Collective."""
    if min is None and max is None:
        return _of_blocks("clip", np.array, (x,))
    if min is None or max is None:
        one, name = (max, "clip to max") if min is None else (min, "clip to min")
        f = np.minimum if min is None else np.maximum
        return _of_blocks(name, lambda a, b: f(a, b).astype(a.dtype, copy=False), (x, one))
    return _of_blocks("clip", lambda a, b, c: np.minimum(np.maximum(a, b), c).astype(a.dtype, copy=False),
                      (x, min, max))


def where(condition, x, y):
    """x where the condition holds, y elsewhere. Collective."""
    return _of_blocks("where", np.where, (condition, x, y))


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Which elements are equal within a tolerance. Collective."""
    return _of_blocks("isclose", np.isclose, (a, b), rtol=rtol, atol=atol, equal_nan=equal_nan)


def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """NaN and infinities replaced by numbers. Collective."""
    return _of_blocks("nan_to_num", np.nan_to_num, (x,), nan=nan, posinf=posinf, neginf=neginf)


def astype(x, dtype, copy=True, casting="unsafe", device=None):
    """Elements of another type, converted as NumPy does. Collective."""
    dtype = np.dtype(dtype)
    if dtype == x.dtype and not copy:
        return x
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(f"Cannot cast elements from {x.dtype} to {dtype} according to the rule {casting!r}")
    return finished(pointwise(lambda a: np.asarray(a).astype(dtype), (x,), name=f"astype {dtype}"), x)


def copy(source, target=None):
    """target = source, however the two are distributed; without target a new array. Collective.

    Raises ValueError: target's elements do not hold an integer of source's.
    """
    from ._array import Array, _checked
    if target is None:
        if isinstance(source, Array):
            target = Array(source.shape, source.dtype, **{**source.how, "ghosts": [], "periodic": False})
        else:
            return evaluate(source)
    for x in (source, target):
        if not isinstance(x, Operand):
            raise TypeError("kasane.copy: give distributed arrays")
    if source.shape != target.shape:
        raise ArgumentError(22, f"kasane.copy: arrays of shapes {source.shape} and {target.shape}")
    if not np.can_cast(source.dtype, target.dtype, "same_kind"):
        raise TypeError(f"kasane.copy: from {source.dtype} to {target.dtype}")
    if source is target:
        together("kasane: copy", [source, target], b"", lambda: None)
        return target

    def converted(block):
        _checked(block, target.dtype)
        return np.asarray(block).astype(target.dtype, copy=False)

    evaluate(pointwise(converted, (source,), name="copy"), target)
    return target


__all__ = [
    *_SAME, *_RENAMED, "angle", "astype", "clip", "copy", "imag", "isclose", "nan_to_num", "real", "round",
    "where",
]
