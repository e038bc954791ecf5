"""Elementwise functions of the Array API standard, each derived from its entry in the op table.

All take ``out=``, a tensor of the result's shape, dtype and device whose handle is rebound to the result. Operands
broadcast; those of one kind promote to their common dtype; Python scalars take the dtype of the tensor beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from firebrick.core.bind import binary, bind, not_a_tensor, unary
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import KIND_TEXT, Op
from firebrick.core.tensor import Tensor
from firebrick.ops import OPS

Scalar = bool | int | float | complex


class Unary(Protocol):
    """A function of one tensor."""

    __name__: str

    def __call__(self, x: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...


class Binary(Protocol):
    """A function of two tensors, one of which may be a Python scalar."""

    __name__: str

    def __call__(self, x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor: ...


def _document(fn: Callable[..., Any], op: Op, args: str, example: str) -> None:
    kind = KIND_TEXT[op.operands[0].kind]
    out = "bool" if op.name in _BOOL_RESULTS else "the operands' common dtype"
    fn.__name__ = fn.__qualname__ = op.name
    fn.__module__ = __name__
    fn.__doc__ = f"""{op.doc}

    Args:
        {args} of {kind} dtype.
        out: Tensor to rebind to the result; may be an operand.

    Returns:
        Tensor of the operands' broadcast shape, {out}.

    Raises:
        DeviceMismatchError, DTypeError, ShapeError, OperandError: The operands do not fit together.

    Example:
        >>> import firebrick as fb
        >>> {example}
    """


_BOOL_RESULTS = frozenset({
    "isnan", "isinf", "isfinite", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
    "logical_or", "logical_xor", "logical_not",
})  # fmt: skip


def _unary(name: str, example: str) -> Unary:
    op = OPS[name]

    def function(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
        if out is None:
            return unary(op, x)  # type: ignore[no-any-return]
        return bind(op, (x,), {}, out)  # type: ignore[no-any-return]

    _document(function, op, "x: Tensor of any shape,", example)
    return function


def _binary(name: str, example: str) -> Binary:
    op = OPS[name]

    def function(x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor:
        if out is None:
            return binary(op, x1, x2)  # type: ignore[no-any-return]
        return bind(op, (x1, x2), {}, out)  # type: ignore[no-any-return]

    _document(function, op, "x1, x2: Tensors (or one of them a Python scalar) of broadcastable shapes,", example)
    return function


def _show(call: str, value: str) -> str:
    return f"{call}.tolist()\n        {value}"


_A = "fb.asarray"

add = _binary("add", _show(f"fb.add({_A}([1.0, 2.0]), 1.0)", "[2.0, 3.0]"))
subtract = _binary("subtract", _show(f"fb.subtract({_A}([1.0, 2.0]), 1.0)", "[0.0, 1.0]"))
multiply = _binary("multiply", _show(f"fb.multiply({_A}([1.0, 2.0]), 3.0)", "[3.0, 6.0]"))
divide = _binary("divide", _show(f"fb.divide({_A}([1.0, 2.0]), 2.0)", "[0.5, 1.0]"))
floor_divide = _binary("floor_divide", _show(f"fb.floor_divide({_A}([7, -7]), 2)", "[3, -4]"))
remainder = _binary("remainder", _show(f"fb.remainder({_A}([7, -7]), 3)", "[1, 2]"))
pow = _binary("pow", _show(f"fb.pow({_A}([2.0, 3.0]), 2.0)", "[4.0, 9.0]"))
maximum = _binary("maximum", _show(f"fb.maximum({_A}([1.0, 5.0]), 2.0)", "[2.0, 5.0]"))
minimum = _binary("minimum", _show(f"fb.minimum({_A}([1.0, 5.0]), 2.0)", "[1.0, 2.0]"))
equal = _binary("equal", _show(f"fb.equal({_A}([1, 2]), 2)", "[False, True]"))
not_equal = _binary("not_equal", _show(f"fb.not_equal({_A}([1, 2]), 2)", "[True, False]"))
less = _binary("less", _show(f"fb.less({_A}([1, 2]), 2)", "[True, False]"))
less_equal = _binary("less_equal", _show(f"fb.less_equal({_A}([1, 2]), 1)", "[True, False]"))
greater = _binary("greater", _show(f"fb.greater({_A}([1, 2]), 1)", "[False, True]"))
greater_equal = _binary("greater_equal", _show(f"fb.greater_equal({_A}([1, 2]), 2)", "[False, True]"))
logical_and = _binary("logical_and", _show(f"fb.logical_and({_A}([True, False]), True)", "[True, False]"))
logical_or = _binary("logical_or", _show(f"fb.logical_or({_A}([True, False]), False)", "[True, False]"))
logical_xor = _binary("logical_xor", _show(f"fb.logical_xor({_A}([True, False]), True)", "[False, True]"))

logical_not = _unary("logical_not", _show(f"fb.logical_not({_A}([True, False]))", "[False, True]"))
negative = _unary("negative", _show(f"fb.negative({_A}([1.0, -2.0]))", "[-1.0, 2.0]"))
abs = _unary("abs", _show(f"fb.abs({_A}([1.0, -2.0]))", "[1.0, 2.0]"))
sign = _unary("sign", _show(f"fb.sign({_A}([3.0, -2.0]))", "[1.0, -1.0]"))
exp = _unary("exp", _show(f"fb.exp({_A}([0.0]))", "[1.0]"))
expm1 = _unary("expm1", _show(f"fb.expm1({_A}([0.0]))", "[0.0]"))
log = _unary("log", _show(f"fb.log({_A}([1.0]))", "[0.0]"))
log1p = _unary("log1p", _show(f"fb.log1p({_A}([0.0]))", "[0.0]"))
sqrt = _unary("sqrt", _show(f"fb.sqrt({_A}([4.0]))", "[2.0]"))
sin = _unary("sin", _show(f"fb.sin({_A}([0.0]))", "[0.0]"))
cos = _unary("cos", _show(f"fb.cos({_A}([0.0]))", "[1.0]"))
tanh = _unary("tanh", _show(f"fb.tanh({_A}([0.0]))", "[0.0]"))
sigmoid = _unary("sigmoid", _show(f"fb.sigmoid({_A}([0.0]))", "[0.5]"))
erf = _unary("erf", _show(f"fb.erf({_A}([0.0]))", "[0.0]"))
relu = _unary("relu", _show(f"fb.relu({_A}([-1.0, 2.0]))", "[0.0, 2.0]"))
floor = _unary("floor", _show(f"fb.floor({_A}([1.5, -1.5]))", "[1.0, -2.0]"))
ceil = _unary("ceil", _show(f"fb.ceil({_A}([1.5, -1.5]))", "[2.0, -1.0]"))
round = _unary("round", _show(f"fb.round({_A}([0.5, 1.5]))", "[0.0, 2.0]"))
isnan = _unary("isnan", _show(f"fb.isnan({_A}([1.0, float('nan')]))", "[False, True]"))
isinf = _unary("isinf", _show(f"fb.isinf({_A}([1.0, float('inf')]))", "[False, True]"))
isfinite = _unary("isfinite", _show(f"fb.isfinite({_A}([1.0, float('inf')]))", "[True, False]"))


def positive(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """+x: x itself, as another handle.

    Example:
        >>> import firebrick as fb
        >>> fb.positive(fb.asarray([1, -2])).tolist()
        [1, -2]
    """
    # x + 0 would lose the sign of -0.0
    return bind(OPS["subtract"], (x, 0), {}, out)  # type: ignore[no-any-return]


def square(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """x · x.

    Example:
        >>> import firebrick as fb
        >>> fb.square(fb.asarray([3])).tolist()
        [9]
    """
    return bind(OPS["multiply"], (x, x), {}, out)  # type: ignore[no-any-return]


def where(condition: Tensor, x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor:
    """x1 where ``condition`` holds, else x2.

    Args:
        condition: Bool tensor.
        x1: Tensor or Python scalar; the three shapes broadcast.
        x2: Tensor or Python scalar, not both.
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.where(fb.asarray([True, False]), fb.asarray([1.0, 2.0]), 0.0).tolist()
        [1.0, 0.0]
    """
    return bind(OPS["where"], (condition, x1, x2), {}, out)  # type: ignore[no-any-return]


def clip(
    x: Tensor,
    /,
    min: Tensor | Scalar | None = None,
    max: Tensor | Scalar | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """x limited to [min, max]; a missing bound limits nothing; a gradient passes where x is at a bound.

    Example:
        >>> import firebrick as fb
        >>> fb.clip(fb.asarray([-1.0, 0.5, 3.0]), 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    if not isinstance(x, Tensor):
        raise not_a_tensor("clip", "x", x, None)
    if min is None or max is None:
        lowest, highest = _limits(x.dtype)
        min = lowest if min is None else min
        max = highest if max is None else max
    return bind(OPS["clip"], (x, min, max), {}, out)  # type: ignore[no-any-return]


def _limits(dt: DType) -> tuple[Any, Any]:
    if dt.is_integer:
        from firebrick.core.dtypes import iinfo

        info = iinfo(dt)
        return info.min, info.max
    return float("-inf"), float("inf")


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x as another dtype: floats round to nearest even, float → integer truncates and saturates, NaN becomes 0.

    Args:
        x: Tensor of any dtype.
        dtype: Target dtype.
        copy: Whether to make a new tensor even if the dtype is the same.
        device: Device of the result; that of x by default.

    Raises:
        DTypeError: Complex to real, which would drop the imaginary part, or a dtype the device cannot store.

    Example:
        >>> import firebrick as fb
        >>> fb.astype(fb.asarray([1.7, -300.0]), fb.int8).tolist()
        [1, -128]
    """
    from firebrick.core.errors import DTypeError

    if not isinstance(x, Tensor):
        raise not_a_tensor("astype", "x", x, None)
    goal = as_dtype(dtype)
    if device is not None:
        x = x.to(device)
    if x.dtype is goal and not copy:
        return x
    if x.dtype.kind == "complex" and goal.kind != "complex":
        raise DTypeError(
            "a complex tensor casts to complex dtypes only",
            f"{x.aval} to {goal.name}",
            "take its real part first",
        )
    from firebrick.backends.dispatch import check_storable

    check_storable(goal, x.device)
    return bind(OPS["cast"], (x,), {"dtype": goal})  # type: ignore[no-any-return]


def logsumexp(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """log Σ exp(x) over axes, without overflow.

    Example:
        >>> import firebrick as fb
        >>> round(fb.logsumexp(fb.asarray([1000.0, 1000.0])).item(), 3)
        1000.693
    """
    from firebrick.functions.reductions import max as max_
    from firebrick.functions.reductions import sum as sum_

    top = max_(x, axis=axis, keepdims=True).detach()
    top = where(isfinite(top), top, 0.0)
    total = log(sum_(exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else sum_(total, axis=axis)


def gelu(x: Tensor, /) -> Tensor:
    """x · Φ(x), with Φ the normal distribution function: 0.5 · x · (1 + erf(x / √2)).

    Source: Hendrycks, Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415.

    Example:
        >>> import firebrick as fb
        >>> fb.gelu(fb.asarray([0.0])).tolist()
        [0.0]
    """
    return x * 0.5 * (erf(x * 0.7071067811865476) + 1.0)


def silu(x: Tensor, /) -> Tensor:
    """x · sigmoid(x).

    Example:
        >>> import firebrick as fb
        >>> fb.silu(fb.asarray([0.0])).tolist()
        [0.0]
    """
    return x * sigmoid(x)


__all__ = [
    "abs", "add", "astype", "ceil", "clip", "cos", "divide", "equal", "erf", "exp", "expm1", "floor", "floor_divide",
    "gelu", "greater", "greater_equal", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log1p", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsumexp", "maximum", "minimum", "multiply", "negative", "not_equal",
    "positive", "pow", "relu", "remainder", "round", "sigmoid", "sign", "silu", "sin", "sqrt", "square", "subtract",
    "tanh", "where",
]  # fmt: skip
