# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms along dimensions, as numpy.fft: lines are dealt to the ranks, and each has to fit in
memory."""
import numpy as np

from ._array import Array
from ._blocks import Lazy, Operand, counted, distribution, evaluate, slices, text, together
from ._creation import array, asarray
from ._manipulation import axes_of, axis_of, roll
from ._reductions import lines

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn",
    "rfft", "rfftfreq", "rfftn",
]


def _along(f, x, n, axis, norm):
    x = x if isinstance(x, Operand) else asarray(x)
    x = evaluate(x) if isinstance(x, Lazy) else x
    axis = axis_of(axis, x.ndim)
    line = f(np.zeros(x.shape[axis], x.dtype), n, norm=norm)
    shape = tuple(line.size if d == axis else extent for d, extent in enumerate(x.shape))
    result = Array(shape, line.dtype, **distribution(shape, [x]))

    def work():
        for low, high in counted(lines(x, axis)):
            high_of_result = tuple(line.size if d == axis else e for d, e in enumerate(high))
            result.put(slices(low, high_of_result), f(x.block(low, high), n, axis, norm))

    together(f"kasane: {f.__name__}", [x, result], text(n, axis, norm), work)
    return result


def fft(x, n=None, axis=-1, norm=None):
    """The Fourier transform along a dimension. Collective."""
    return _along(np.fft.fft, x, n, axis, norm)


def ifft(x, n=None, axis=-1, norm=None):
    """The inverse of fft(). Collective."""
    return _along(np.fft.ifft, x, n, axis, norm)


def rfft(x, n=None, axis=-1, norm=None):
    """The Fourier transform of real numbers: the frequencies that are not negative. Collective."""
    return _along(np.fft.rfft, x, n, axis, norm)


def irfft(x, n=None, axis=-1, norm=None):
    """The inverse of rfft(). Collective."""
    return _along(np.fft.irfft, x, n, axis, norm)


def hfft(x, n=None, axis=-1, norm=None):
    """The Fourier transform of what is Hermitian. Collective."""
    return _along(np.fft.hfft, x, n, axis, norm)


def ihfft(x, n=None, axis=-1, norm=None):
    """The inverse of hfft(). Collective."""
    return _along(np.fft.ihfft, x, n, axis, norm)


def _axes(x, s, axes):
    axes = (
        range(x.ndim)
        if axes is None and s is None
        else range(x.ndim - len(s), x.ndim) if axes is None else axes
    )
    axes = axes_of(tuple(axes), x.ndim)
    return axes, [x.shape[d] for d in axes] if s is None else list(s)


def fftn(x, s=None, axes=None, norm=None):
    """fft() along several dimensions. Collective."""
    for axis, n in zip(*_axes(x, s, axes)):
        x = fft(x, n, axis, norm)
    return x


def ifftn(x, s=None, axes=None, norm=None):
    """The inverse of fftn(). Collective."""
    for axis, n in zip(*_axes(x, s, axes)):
        x = ifft(x, n, axis, norm)
    return x


def rfftn(x, s=None, axes=None, norm=None):
    """rfft() along the last of several dimensions, fft() along the others. Collective."""
    axes, s = _axes(x, s, axes)
    x = rfft(x, s[-1], axes[-1], norm)
    return fftn(x, s[:-1], axes[:-1], norm) if len(axes) > 1 else x


def irfftn(x, s=None, axes=None, norm=None):
    """The inverse of rfftn(). Collective."""
    given, (axes, s) = s, _axes(x, s, axes)
    x = ifftn(x, s[:-1], axes[:-1], norm) if len(axes) > 1 else x
    return irfft(x, None if given is None else s[-1], axes[-1], norm)


def fftfreq(n, d=1.0, dtype=None, device=None):
    """The frequencies of fft()'s elements. Collective."""
    return array(np.fft.fftfreq(n, d), dtype)


def rfftfreq(n, d=1.0, dtype=None, device=None):
    """The frequencies of rfft()'s elements. Collective."""
    return array(np.fft.rfftfreq(n, d), dtype)


def fftshift(x, axes=None):
    """Frequency zero in the middle. Collective."""
    axes = axes_of(tuple(range(x.ndim)) if axes is None else axes, x.ndim)
    return roll(x, tuple(x.shape[d] // 2 for d in axes), axes)


def ifftshift(x, axes=None):
    """The inverse of fftshift(). Collective."""
    axes = axes_of(tuple(range(x.ndim)) if axes is None else axes, x.ndim)
    return roll(x, tuple(-(x.shape[d] // 2) for d in axes), axes)
