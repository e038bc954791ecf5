"""Elementwise functions of the Array API standard, each derived from its entry in the op table.

All take ``out=``, a tensor of the result's shape, dtype and device whose handle is rebound to the result. Operands
broadcast; those of one kind promote to their common dtype; Python and NumPy scalars take the dtype of the other operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Never, Protocol, overload

from firebrick.backends.contract import check_storable
from firebrick.core.aval import Aval
from firebrick.core.bind import binary, bind, unary
from firebrick.core.constants import constant
from firebrick.core.dtypes import DType, bool_, complex64, complex128, dtype_argument, float32, limits, promote
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import KIND_TEXT, Op
from firebrick.core.operands import check_operand, check_out, not_a_tensor
from firebrick.core.other_arguments import answers_arguments, unknown_argument
from firebrick.core.precision import in_wide_float32
from firebrick.core.settings import number
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, as_tensor, weak_scalar
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


def _document(fn: Callable[..., Any], op: Op, args: str, example: str, kind: str = "") -> None:
    kind = kind or KIND_TEXT[op.operands[0].kind]
    out = "bool" if op.name in _BOOL_RESULTS else "the operands' common dtype"
    out = "the dtype of x, or that of its parts" if op.name == "abs" else out
    also = "; numbers other than 0 are true" if kind is _LOGICAL else ""
    fn.__name__ = fn.__qualname__ = op.name
    fn.__module__ = __name__
    fn.__doc__ = f"""{op.doc}

    Args:
        {args} of {kind} dtype{also}.
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


_NUMBERS = frozenset({"int", "uint", "float", "complex"})
_LOGICAL = "a bool, integer, floating or complex"


def _unary(name: str, example: str) -> Unary:
    op = OPS[name]

    def function(x: Tensor, /, *, out: Tensor | None = None, **_other: Never) -> Tensor:
        if _other:
            raise unknown_argument(function, _other)
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


def _true(x: Any) -> Any:
    """An operand of a logical function: a tensor of numbers as whether each is other than 0, anything else as it is."""
    return binary(OPS["not_equal"], x, 0) if isinstance(x, Tensor) and x.dtype.kind in _NUMBERS else x


def _logical(name: str, example: str) -> Binary:
    op = OPS[name]

    def function(x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor:
        if not isinstance(x1, Tensor) or not isinstance(x2, Tensor) or x1.device is x2.device:  # else an error that shows both
            x1, x2 = _true(x1), _true(x2)
        if out is None:
            return binary(op, x1, x2)  # type: ignore[no-any-return]
        return bind(op, (x1, x2), {}, out)  # type: ignore[no-any-return]

    _document(function, op, "x1, x2: Tensors (or one of them a Python bool) of broadcastable shapes,", example, _LOGICAL)
    return function


def _logical_not(example: str) -> Unary:
    op = OPS["logical_not"]

    def function(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
        if out is None:
            return unary(op, _true(x))  # type: ignore[no-any-return]
        return bind(op, (_true(x),), {}, out)  # type: ignore[no-any-return]

    _document(function, op, "x: Tensor of any shape,", example, _LOGICAL)
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
_power = _binary("pow", _show(f"fb.pow({_A}([2.0, 3.0]), 2.0)", "[4.0, 9.0]"))
maximum = _binary("maximum", _show(f"fb.maximum({_A}([1.0, 5.0]), 2.0)", "[2.0, 5.0]"))
minimum = _binary("minimum", _show(f"fb.minimum({_A}([1.0, 5.0]), 2.0)", "[1.0, 2.0]"))
equal = _binary("equal", _show(f"fb.equal({_A}([1, 2]), 2)", "[False, True]"))
not_equal = _binary("not_equal", _show(f"fb.not_equal({_A}([1, 2]), 2)", "[True, False]"))
less = _binary("less", _show(f"fb.less({_A}([1, 2]), 2)", "[True, False]"))
less_equal = _binary("less_equal", _show(f"fb.less_equal({_A}([1, 2]), 1)", "[True, False]"))
greater = _binary("greater", _show(f"fb.greater({_A}([1, 2]), 1)", "[False, True]"))
greater_equal = _binary("greater_equal", _show(f"fb.greater_equal({_A}([1, 2]), 2)", "[False, True]"))
hypot = _binary("hypot", _show(f"fb.hypot({_A}([3.0, 0.0]), 4.0)", "[5.0, 4.0]"))
atan2 = _binary("atan2", _show(f"fb.atan2({_A}([0.0, -0.0]), 1.0)", "[0.0, -0.0]"))
copysign = _binary("copysign", _show(f"fb.copysign({_A}([1.0, -2.0]), -0.0)", "[-1.0, -2.0]"))
logaddexp = _binary("logaddexp", _show(f"fb.logaddexp({_A}([1000.0]), float('-inf'))", "[1000.0]"))
bitwise_and = _binary("bitwise_and", _show(f"fb.bitwise_and({_A}([6, 7]), 3)", "[2, 3]"))
bitwise_or = _binary("bitwise_or", _show(f"fb.bitwise_or({_A}([6, 8]), 3)", "[7, 11]"))
bitwise_xor = _binary("bitwise_xor", _show(f"fb.bitwise_xor({_A}([6, 7]), 3)", "[5, 4]"))
bitwise_left_shift = _binary("bitwise_left_shift", _show(f"fb.bitwise_left_shift({_A}([1, 3]), 2)", "[4, 12]"))
bitwise_right_shift = _binary("bitwise_right_shift", _show(f"fb.bitwise_right_shift({_A}([12, -5]), 2)", "[3, -2]"))
logical_and = _logical("logical_and", _show(f"fb.logical_and({_A}([True, False]), True)", "[True, False]"))
logical_or = _logical("logical_or", _show(f"fb.logical_or({_A}([True, False]), False)", "[True, False]"))
logical_xor = _logical("logical_xor", _show(f"fb.logical_xor({_A}([True, False]), True)", "[False, True]"))

logical_not = _logical_not(_show(f"fb.logical_not({_A}([True, False]))", "[False, True]"))
negative = _unary("negative", _show(f"fb.negative({_A}([1.0, -2.0]))", "[-1.0, 2.0]"))
abs = _unary("abs", _show(f"fb.abs({_A}([1.0, -2.0]))", "[1.0, 2.0]"))
exp = _unary("exp", _show(f"fb.exp({_A}([0.0]))", "[1.0]"))
expm1 = _unary("expm1", _show(f"fb.expm1({_A}([0.0]))", "[0.0]"))
log = _unary("log", _show(f"fb.log({_A}([1.0]))", "[0.0]"))
log2 = _unary("log2", _show(f"fb.log2({_A}([8.0]))", "[3.0]"))
log10 = _unary("log10", _show(f"fb.log10({_A}([1.0]))", "[0.0]"))
log1p = _unary("log1p", _show(f"fb.log1p({_A}([0.0]))", "[0.0]"))
sqrt = _unary("sqrt", _show(f"fb.sqrt({_A}([4.0]))", "[2.0]"))
sin = _unary("sin", _show(f"fb.sin({_A}([0.0]))", "[0.0]"))
cos = _unary("cos", _show(f"fb.cos({_A}([0.0]))", "[1.0]"))
tan = _unary("tan", _show(f"fb.tan({_A}([0.0]))", "[0.0]"))
asin = _unary("asin", _show(f"fb.asin({_A}([0.0]))", "[0.0]"))
acos = _unary("acos", _show(f"fb.acos({_A}([1.0]))", "[0.0]"))
atan = _unary("atan", _show(f"fb.atan({_A}([0.0]))", "[0.0]"))
sinh = _unary("sinh", _show(f"fb.sinh({_A}([0.0]))", "[0.0]"))
cosh = _unary("cosh", _show(f"fb.cosh({_A}([0.0]))", "[1.0]"))
asinh = _unary("asinh", _show(f"fb.asinh({_A}([0.0]))", "[0.0]"))
acosh = _unary("acosh", _show(f"fb.acosh({_A}([1.0]))", "[0.0]"))
atanh = _unary("atanh", _show(f"fb.atanh({_A}([0.0]))", "[0.0]"))
bitwise_invert = _unary("bitwise_invert", _show(f"fb.bitwise_invert({_A}([0, 5]))", "[-1, -6]"))
tanh = _unary("tanh", _show(f"fb.tanh({_A}([0.0]))", "[0.0]"))
sigmoid = _unary("sigmoid", _show(f"fb.sigmoid({_A}([0.0]))", "[0.5]"))
erf = _unary("erf", _show(f"fb.erf({_A}([0.0]))", "[0.0]"))
relu = _unary("relu", _show(f"fb.relu({_A}([-1.0, 2.0]))", "[0.0, 2.0]"))
floor = _unary("floor", _show(f"fb.floor({_A}([1.5, -1.5]))", "[1.0, -2.0]"))
ceil = _unary("ceil", _show(f"fb.ceil({_A}([1.5, -1.5]))", "[2.0, -1.0]"))
trunc = _unary("trunc", _show(f"fb.trunc({_A}([1.5, -1.5]))", "[1.0, -1.0]"))
isnan = _unary("isnan", _show(f"fb.isnan({_A}([1.0, float('nan')]))", "[False, True]"))
isinf = _unary("isinf", _show(f"fb.isinf({_A}([1.0, float('inf')]))", "[False, True]"))
isfinite = _unary("isfinite", _show(f"fb.isfinite({_A}([1.0, float('inf')]))", "[True, False]"))


def _check(where_: str, x: Any, kind: str, out: Any, dtype: DType | None = None) -> None:
    """Check the operand and the destination of a function that is made of others."""
    check_operand(where_, x, kind)
    if out is not None:
        check_out(where_, out, x.device, Aval(x.shape, dtype or x.dtype))


@answers_arguments
def positive(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """+x: x itself, as another handle.

    Args:
        x: Tensor of any shape, of a numeric dtype.
        out: Tensor to rebind to the result; of the same dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.positive(fb.asarray([1, -2])).tolist()
        [1, -2]
    """
    _check("positive", x, "numeric", out)
    # x + 0 would lose the sign of -0.0
    return bind(OPS["subtract"], (x, 0), {}, out)  # type: ignore[no-any-return]


@answers_arguments
def sign(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """-1, 0 or 1; NaN for NaN. Of a complex x: x / |x|, and 0 at 0.

    Args:
        x: Tensor of any shape, of a numeric dtype.
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.sign(fb.asarray([3.0, -2.0])).tolist()
        [1.0, -1.0]
        >>> fb.sign(fb.asarray([2.0j])).tolist()
        [1j]
    """
    given: Any = x
    if not isinstance(given, Tensor) or given.dtype.kind != "complex":
        return unary(_SIGN, x) if out is None else bind(_SIGN, (x,), {}, out)  # type: ignore[no-any-return]
    _check("sign", x, "numeric", out)
    re, im = bind(OPS["real"], (x,), {}), bind(OPS["imag"], (x,), {})
    # relative to the larger part, whose own size cancels, the modulus neither overflows nor is subnormal
    top = maximum(abs(re), abs(im)).detach()
    zero = equal(top, 0.0)
    top = where(zero, 1.0, top)
    re, im = where(zero, 0.0, re) / top, where(zero, 0.0, im) / top
    size = where(zero, 1.0, hypot(re, im))
    return bind(OPS["complex"], (re / size, im / size), {}, out)  # type: ignore[no-any-return]


_SIGN = OPS["sign"]


@answers_arguments
def round(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The nearest integer, halves to the even one; of a complex x, of its two parts.

    Args:
        x: Tensor of any shape, of a numeric dtype.
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.round(fb.asarray([0.5, 1.5])).tolist()
        [0.0, 2.0]
        >>> fb.round(fb.asarray([1.5 - 0.5j])).tolist()
        [(2-0j)]
    """
    given: Any = x
    if not isinstance(given, Tensor) or given.dtype.kind != "complex":
        return unary(_ROUND, x) if out is None else bind(_ROUND, (x,), {}, out)  # type: ignore[no-any-return]
    _check("round", x, "numeric", out)
    parts = (bind(_ROUND, (bind(OPS[part], (x,), {}),), {}) for part in ("real", "imag"))
    return bind(OPS["complex"], tuple(parts), {}, out)  # type: ignore[no-any-return]


_ROUND = OPS["round"]


@answers_arguments
def signbit(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """Whether the sign bit of a floating x is set: True for negative numbers and -0.0.

    Args:
        x: Tensor of any shape, of a floating dtype.
        out: Bool tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.signbit(fb.asarray([-0.0, 0.0, -3.0])).tolist()
        [True, False, True]
    """
    _check("signbit", x, "floating", out, bool_)
    return less(copysign(1.0, x), 0.0, out=out)


@answers_arguments
def nextafter(x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor:
    """The neighbour of x1 towards x2 among the numbers of their dtype; x2 where they are equal.

    Args:
        x1: Tensor of a floating dtype, or a Python scalar if x2 is a tensor.
        x2: Tensor of a shape that broadcasts with that of x1, or Python scalar.
        out: Tensor to rebind to the result; may be an operand.

    Example:
        >>> import firebrick as fb
        >>> (fb.nextafter(fb.asarray(1.0), 2.0) - 1.0).item() == fb.finfo(fb.float32).eps
        True
    """
    tensors = [x.dtype for x in (x1, x2) if isinstance(x, Tensor)]
    common = tensors[0] if tensors else None
    for other in tensors[1:]:
        common = promote(common, other) or common
    return bind(OPS["nextafter"], (x1, x2), {"dtype": common}, out)  # type: ignore[no-any-return]


@answers_arguments
def reciprocal(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """1 / x, of a floating or complex x.

    Args:
        x: Tensor of any shape, of a floating or complex dtype.
        out: Tensor to rebind to the result; of the same dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.reciprocal(fb.asarray([2.0, 4.0])).tolist()
        [0.5, 0.25]
    """
    _check("reciprocal", x, "inexact", out)
    return divide(1.0, x, out=out)


@answers_arguments
def rsqrt(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """1 / √x, of a floating or complex x.

    Args:
        x: Tensor of any shape, of a floating or complex dtype.
        out: Tensor to rebind to the result; of the same dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.rsqrt(fb.asarray([4.0])).tolist()
        [0.5]
    """
    _check("rsqrt", x, "inexact", out)
    return divide(1.0, sqrt(x), out=out)


@answers_arguments
def exp2(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """2 to the power x, of a floating or complex x.

    Args:
        x: Tensor of any shape, of a floating or complex dtype.
        out: Tensor to rebind to the result; of the same dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.exp2(fb.asarray([3.0, -1.0])).tolist()
        [8.0, 0.5]
    """
    _check("exp2", x, "inexact", out)
    return pow(2.0, x, out=out)


@answers_arguments
def pow(x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor:
    # a square is a product, which takes a tenth of the time and is rounded once
    if type(x2) in (int, float) and x2 == 2 and isinstance(x1, Tensor):
        kind = x1.dtype.kind
        if kind in ("float", "complex") or (type(x2) is int and kind in ("int", "uint")):
            return multiply(x1, x1, out=out)
    return _power(x1, x2, out=out)


pow.__doc__ = _power.__doc__


@answers_arguments
def square(x: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """x · x.

    Args:
        x: Tensor of any shape, of a numeric dtype.
        out: Tensor to rebind to the result; of the same dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.square(fb.asarray([3])).tolist()
        [9]
    """
    _check("square", x, "numeric", out)
    return bind(OPS["multiply"], (x, x), {}, out)  # type: ignore[no-any-return]


@overload
def where(condition: Tensor, /) -> tuple[Tensor, ...]: ...


@overload
def where(condition: Tensor, x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, out: Tensor | None = None) -> Tensor: ...


@answers_arguments
def where(
    condition: Tensor, x1: Tensor | Scalar | None = None, x2: Tensor | Scalar | None = None, /, *, out: Tensor | None = None
) -> Tensor | tuple[Tensor, ...]:
    """x1 where ``condition`` holds, else x2; of a condition alone, the indices where it holds, which is ``fb.nonzero``.

    Args:
        condition: Bool tensor; alone, any tensor of at least one axis.
        x1: Tensor or Python scalar; the three shapes broadcast.
        x2: Tensor or Python scalar. Two scalars give bool, or the device's default integer, float or complex dtype.
        out: Tensor to rebind to the result.

    Example:
        >>> import firebrick as fb
        >>> fb.where(fb.asarray([True, False]), fb.asarray([1.0, 2.0]), 0.0).tolist()
        [1.0, 0.0]
        >>> fb.where(fb.asarray([True, False, True]))[0].tolist()
        [0, 2]
    """
    if x1 is None and x2 is None and out is None:
        from firebrick.functions.searching import nonzero  # which needs this module

        return nonzero(condition)
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        x1 = _beside(condition, x1, x2)
    return bind(OPS["where"], (condition, x1, x2), {}, out)  # type: ignore[no-any-return]


def _beside(x: Any, value: Any, other: Any) -> Any:
    """One of two numbers, on the device of a tensor, in the default dtype for both; anything else as it is."""
    value, other = weak_scalar(value), weak_scalar(other)
    kinds = [next((k for k, t in enumerate((bool, int, float, complex)) if isinstance(v, t)), -1) for v in (value, other)]
    if not isinstance(x, Tensor) or min(kinds) < 0:
        return value
    engine = x.device.backend
    float_ = as_dtype(engine.default_float(x.device))
    complex_ = complex64 if float_ is float32 else complex128
    dt = (bool_, as_dtype(engine.default_int(x.device)), float_, complex_)[max(kinds)]
    return as_tensor(value, dt, x.device) if isinstance(value, Weak) else constant(value, dt, x.device)


@answers_arguments
def clip(
    x: Tensor,
    /,
    min: Tensor | Scalar | None = None,
    max: Tensor | Scalar | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """x limited to [min, max]; a missing bound limits nothing; a gradient passes where x is at a bound.

    Args:
        x: Real tensor.
        min: Lower bound, a number or a tensor that broadcasts with x; None for none.
        max: Upper bound likewise.
        out: Handle to rebind to the result; of its dtype and shape.

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
    if dt.kind == "bool":  # refused as an operand, not for a bound that nobody wrote
        return False, True
    return float("-inf"), float("inf")


@answers_arguments
def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x as another dtype: floats round to nearest even; float → integer truncates, saturates, NaN becomes 0; integers wrap.

    What is too large for a float becomes infinite. ``float8_e4m3fn`` has no infinity: what would round to more than 448, its
    largest number, becomes NaN, so clip or scale before.

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
        >>> fb.astype(fb.asarray([448.0, 500.0]), fb.float8_e4m3fn).astype(fb.float32).tolist()
        [448.0, nan]
    """
    from firebrick.core.errors import DTypeError

    if not isinstance(x, Tensor):
        raise not_a_tensor("astype", "x", x, None)
    goal = dtype_argument("astype", dtype)
    if device is not None:
        x = x.to(device)
    if x.dtype is goal and not copy:
        return x
    if x.dtype.kind == "complex" and goal.kind != "complex":
        raise DTypeError(
            "astype: a complex tensor casts to complex dtypes only",
            f"{x.aval} to {goal.name}",
            f"take its real part first: fb.astype(fb.real(x), fb.{goal.name})",
        )
    check_storable(goal, x.device)
    return bind(OPS["cast"], (x,), {"dtype": goal})  # type: ignore[no-any-return]


@answers_arguments
def nan_to_num(x: Tensor, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with numbers in place of NaN and infinities, where the gradient is 0.

    Args:
        x: Floating tensor of any shape.
        nan: In place of NaN.
        posinf: In place of ∞; the largest number of the dtype by default.
        neginf: In place of -∞; the smallest by default.

    Example:
        >>> import firebrick as fb
        >>> fb.nan_to_num(fb.asarray([fb.nan, fb.inf, 2.0]), posinf=9.0).tolist()
        [0.0, 9.0, 2.0]
    """
    check_operand("nan_to_num", x, "floating")
    top = float(limits(x.dtype).max)
    high = top if posinf is None else number("nan_to_num", "posinf", posinf)
    low = -top if neginf is None else number("nan_to_num", "neginf", neginf)
    found = where(isnan(x), number("nan_to_num", "nan", nan), x)
    found = where(equal(x, math.inf), high, found)
    return where(equal(x, -math.inf), low, found)


@in_wide_float32
def logsumexp(x: Tensor, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """log Σ exp(x) over axes, without overflow.

    Args:
        x: Floating tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> round(fb.logsumexp(fb.asarray([1000.0, 1000.0])).item(), 3)
        1000.693
    """
    from firebrick.core.shapes import normalize_axes
    from firebrick.functions.axes import nonempty
    from firebrick.functions.statistical import max as max_
    from firebrick.functions.statistical import sum as sum_

    check_operand("logsumexp", x, "floating")
    axis = normalize_axes(axis, x.ndim, "logsumexp")
    nonempty("logsumexp", x, axis)
    top = max_(x, axis=axis, keepdims=True).detach()
    top = where(isfinite(top), top, 0.0)
    total = log(sum_(exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else sum_(total, axis=axis)


__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "copysign", "cos", "cosh",
    "divide", "equal", "erf", "exp", "exp2", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot",
    "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsumexp", "maximum", "minimum", "multiply", "nan_to_num", "negative",
    "nextafter", "not_equal", "positive", "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "sigmoid", "sign",
    "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc", "where",
]  # fmt: skip
