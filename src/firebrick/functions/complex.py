"""Complex numbers: made of their parts, taken apart, conjugated. Real tensors pass as they are, at no cost."""

from __future__ import annotations

from firebrick.autodiff.tape import own_handle
from firebrick.core.aval import Aval
from firebrick.core.bind import bind, unary
from firebrick.core.dtypes import real_of
from firebrick.core.operands import check_operand, check_out, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import Scalar, atan2, isnan, positive, where
from firebrick.ops import OPS

_REAL, _IMAG, _CONJ = OPS["real"], OPS["imag"], OPS["conj"]


def _is_complex(where_: str, x: Tensor) -> bool:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where_, "x", x, None)
    return x.dtype.kind == "complex"


def _as_it_is(where_: str, x: Tensor, out: Tensor | None) -> Tensor:
    """x through another handle, or its values in ``out``."""
    if out is not None:
        check_out(where_, out, x.device, x.aval)
        return positive(x, out=out)
    return own_handle(x)


@answers_arguments
def real(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The real part of x; a real x as it is.

    Args:
        x: Tensor of any shape, of a numeric dtype.
        out: Tensor to rebind to the result.

    Returns:
        Tensor of x's shape: float32 for complex64, float64 for complex128.

    Example:
        >>> import firebrick as fb
        >>> fb.real(fb.asarray([1.0 + 2.0j])).tolist()
        [1.0]
    """
    if not _is_complex("real", x):
        return _as_it_is("real", x, out)
    return unary(_REAL, x) if out is None else bind(_REAL, (x,), {}, out)  # type: ignore[no-any-return]


@answers_arguments
def imag(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The imaginary part of x; zeros for a real x.

    Args:
        x: Tensor of any shape, of a numeric dtype.
        out: Tensor to rebind to the result.

    Returns:
        Tensor of x's shape: float32 for complex64, float64 for complex128.

    Example:
        >>> import firebrick as fb
        >>> fb.imag(fb.asarray([1.0 + 2.0j])).tolist()
        [2.0]
    """
    if not _is_complex("imag", x):
        from firebrick.functions.creation import zeros_like

        return _as_it_is("imag", zeros_like(x), out)
    return unary(_IMAG, x) if out is None else bind(_IMAG, (x,), {}, out)  # type: ignore[no-any-return]


@answers_arguments
def conj(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate of x; a real x as it is, without a copy.

    Args:
        x: Tensor of any shape, of a numeric dtype.
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.conj(fb.asarray([1.0 + 2.0j])).tolist()
        [(1-2j)]
    """
    if not _is_complex("conj", x):
        return _as_it_is("conj", x, out)
    return unary(_CONJ, x) if out is None else bind(_CONJ, (x,), {}, out)  # type: ignore[no-any-return]


@answers_arguments
def angle(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The angle of x in the complex plane, in radians in [-π, π]: atan2(imag, real). Of a real x: π where it is negative.

    A real -0.0 is not negative: its angle is 0, as in PyTorch. NumPy's is π, that of the complex number -0.0 + 0.0j.

    Args:
        x: Tensor of any shape, of a floating or complex dtype.
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> [round(a, 4) for a in fb.angle(fb.asarray([1.0j, -1.0 + 0.0j])).tolist()]
        [1.5708, 3.1416]
    """
    plane = _is_complex("angle", x)
    check_operand("angle", x, "inexact")
    if out is not None:
        check_out("angle", out, x.device, Aval(x.shape, real_of(x.dtype)))
    if plane:
        return atan2(imag(x), real(x), out=out)
    flat = where(x < 0.0, 3.141592653589793, where(isnan(x), x, 0.0))
    return _as_it_is("angle", flat, out)


@answers_arguments
def complex(re: Tensor | Scalar, im: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor:
    """re + i · im.

    Args:
        re: Real parts: floating tensor, or Python scalar beside one.
        im: Imaginary parts, of a shape that broadcasts with that of ``re``.
        out: Tensor to rebind to the result.

    Returns:
        Tensor of the broadcast shape: complex128 from float64, else complex64.

    Example:
        >>> import firebrick as fb
        >>> fb.complex(fb.asarray([1.0]), fb.asarray([2.0])).tolist()
        [(1+2j)]
    """
    return bind(OPS["complex"], (re, im), {}, out)  # type: ignore[no-any-return]


__all__ = ["angle", "complex", "conj", "imag", "real"]
