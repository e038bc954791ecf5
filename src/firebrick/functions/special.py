"""Special functions: log Γ and its derivatives, the inverse of the error function, modified Bessel functions."""

from __future__ import annotations

from typing import Any

from firebrick.core.bind import bind
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import _show, _unary
from firebrick.ops import OPS

lgamma = _unary("lgamma", _show("fb.lgamma(fb.asarray([1.0, 2.0]))", "[0.0, 0.0]"))
digamma = _unary("digamma", "round(fb.digamma(fb.asarray(1.0)).item(), 4)\n        -0.5772")
erfinv = _unary("erfinv", _show("fb.erfinv(fb.asarray([0.0, 1.0]))", "[0.0, inf]"))
i0 = _unary("i0", _show("fb.i0(fb.asarray([0.0]))", "[1.0]"))
i1 = _unary("i1", _show("fb.i1(fb.asarray([0.0]))", "[0.0]"))


@answers_arguments
def polygamma(n: Any, x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The derivative number n of ψ(x) = Γ'(x) / Γ(x); ``polygamma(0, x)`` is ``digamma(x)``.

    Args:
        n: Order, an int ≥ 0.
        x: Tensor of any shape, of a floating dtype.
        out: Tensor to rebind to the result; may be an operand.

    Returns:
        Tensor of the shape and dtype of x.

    Raises:
        ConfigError: n is no int ≥ 0.
        DTypeError, OperandError: x is no floating tensor.

    Example:
        >>> import firebrick as fb
        >>> round(fb.polygamma(1, fb.asarray(1.0)).item(), 4)  # π² / 6
        1.6449
    """
    order = whole("polygamma", "n", n, least=0)
    if order == 0:
        return digamma(x, out=out)
    return bind(OPS["polygamma"], (x,), {"n": order}, out)  # type: ignore[no-any-return]


__all__ = ["digamma", "erfinv", "i0", "i1", "lgamma", "polygamma"]
