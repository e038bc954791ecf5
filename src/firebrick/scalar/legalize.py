"""``legalize``: rewrites expressions for a target that lacks operations they use, with the same values.

A rewrite may use operations that later rewrites legalize, which determines their order: first float operations that a target
does not round correctly, then 64-bit integers (``wide``), then narrow integers, and last operands for which targets leave
operations undefined: NaN, shifts, casts. Those of float64 precede the 64-bit integers that its bits are. float64 that a target
lacks, and 64-bit integers that are loaded, stored or index more than 2³¹ elements, cannot be rewritten, and are reported as
errors. A ``reduce`` is left to its kernel, which must handle NaN and reassociation.

Source of the float rewrites: see ``double_word``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from firebrick.core.errors import DTypeError
from firebrick.scalar.capabilities import Capabilities
from firebrick.scalar.expr import (
    BITS,
    CANCELS,
    COMPARISONS,
    FLOATS,
    IN_RANGE,
    INTEGERS,
    SIGNED,
    VAST,
    Expr,
    Operand,
    Rule,
    absolute,
    binary,
    bitcast,
    cast,
    const,
    copysign,
    eq,
    fma,
    kept,
    maximum,
    minimum,
    ne,
    node,
    rarely,
    rebuilt,
    rewritten,
    select,
    unary,
    walk,
)
from firebrick.scalar.math import FORMATS, INFINITY
from firebrick.scalar.wide import WIDE, KnownNames, Words, split_int64, with_int32_limits


def legalize(roots: Sequence[Expr], capabilities: Capabilities, extents: Sequence[int] = ()) -> list[Expr]:
    """Expressions with the same values that use only operations of a target.

    For a target without ``narrow_integers``, integers of 8 and 16 bits are loaded, and returned, as 32-bit integers of the same
    value.

    Args:
        roots: Expressions.
        capabilities: The target's capabilities.
        extents: The sizes of the kernel's axes, which bound its ``index`` nodes. If empty, index arithmetic needs ``int64``.

    Raises:
        DTypeError: float64 or int64 is loaded, computed or stored, and the target has no such dtype.
        UnsupportedError: Elements beyond position 2³¹ are indexed, and the target has no 64-bit integers.
    """
    found = legalize_values(roots, capabilities, extents)
    out: list[Expr] = []
    for r, x in zip(roots, found, strict=True):
        if isinstance(x, Words) or (r.dtype in WIDE and not capabilities.int64):
            raise DTypeError("this target has no 64-bit integers", f"a result of {r.dtype}", 'cast it with x.astype("int32")')
        out.append(x)
    return out


def legalize_values(
    roots: Sequence[Expr], capabilities: Capabilities, extents: Sequence[int] = (), names: KnownNames | None = None
) -> list[Expr | Words]:
    """``legalize`` of expressions whose values may be 64-bit integers: int32 if all values fit, else two words, uint32.

    Args:
        roots: Expressions.
        capabilities: The target's capabilities.
        extents: As for ``legalize``.
        names: What is known of the names of a kernel.

    Raises:
        DTypeError: As for ``legalize``.
        UnsupportedError: As for ``legalize``.
    """
    out = list(roots)
    if not capabilities.float64:
        _refuse_float64(out)
    flushes = not capabilities.denormals
    out = _rewritten(
        out,
        (True, {"where_flushed"}, _chosen if flushes else _dropped),
        (flushes, {"mul", "muladd", "fma"}, _scale_operand),
        (flushes, {"floor", "ceil"}, _whole_of_bits),
        (flushes and capabilities.exact_division, {"div"}, _quotient_of_denormals),
        (not capabilities.exact_division, {"div"}, _correct_quotient),
        (flushes and capabilities.exact_sqrt, {"sqrt"}, _root_of_denormals),
        (flushes and not capabilities.exact_sqrt, {"sqrt"}, _correct_root_of_denormals),
        (not flushes and not capabilities.exact_sqrt, {"sqrt"}, _correct_root),
        (flushes, {"scale"}, _scale_denormals),
        (not capabilities.scaling, {"scale"}, _two_products),
        (capabilities.reassociates or not capabilities.exact_fma, {"nearest", "nearest_bits"}, _round_by_rint),
        (not capabilities.exact_fma, {"fma", "muladd"}, _emulate_fma),
        (flushes, {"mul"}, _decode_denormals),
    )
    in_words = not capabilities.int64 and any(e.dtype == "float64" for e in walk(out))
    if in_words:
        out = _rewritten(out, *((needed, ops, _where(_of_float64, rule)) for needed, ops, rule in _undefined(capabilities)))
    split: list[Expr | Words] = list(out)
    if not capabilities.int64 and any(e.dtype in WIDE for e in walk(out)):
        split = split_int64(with_int32_limits(out, extents), extents, names)
    out = [e for x in split for e in ((x.low, x.high) if isinstance(x, Words) else (x,))]
    if not capabilities.narrow_integers and any(e.dtype in _WIDER for e in walk(out)):
        out = rewritten(out, _widen_integers)
    left = _undefined(capabilities)
    if in_words:
        left = [(needed, ops, _where(lambda e: not _of_float64(e), rule)) for needed, ops, rule in left]
    out = _rewritten(
        out,
        *left,
        (not capabilities.total_integers, {"shl", "shr", "div", "rem"}, _define_integers),
        (not capabilities.reassociates, {"kept"}, _drop_fences),
    )
    rest = iter(out)
    return [Words(next(rest), next(rest)) if isinstance(x, Words) else next(rest) for x in split]


_Rewrite = tuple[bool, Collection[str], Rule]
"""Whether a target needs it, the operations that it is for, and the rule."""


def _rewritten(roots: list[Expr], *rewrites: _Rewrite) -> list[Expr]:
    """Expressions after the rewrites that are needed, one after the other."""
    found = {e.op for e in walk(roots)}
    for needed, ops, rule in rewrites:
        if needed and not found.isdisjoint(ops):
            roots = rewritten(roots, rule)
            found = {e.op for e in walk(roots)}
    return roots


def _undefined(capabilities: Capabilities) -> list[_Rewrite]:
    """The rewrites of operations that a target leaves undefined for some floats."""
    flushes = not capabilities.denormals
    return [
        (flushes or not capabilities.nan_min_max, ("min", "max"), _nan_min_max),
        (flushes, COMPARISONS, _comparison_of_bits),
        (not capabilities.nan_comparisons, COMPARISONS, _nan_comparison),
        (not capabilities.saturating_casts, ("cast",), _saturate_cast),
    ]


def _of_float64(e: Expr) -> bool:
    """Whether a node computes with float64, but for casts to 64-bit integers, which become two words in another way."""
    return e.args[0].dtype == "float64" and e.dtype not in WIDE if e.args else e.dtype == "float64"


def _where(condition: Callable[[Expr], bool], rule: Rule) -> Rule:
    """A rule for the nodes that meet a condition."""
    return lambda e, args: rule(e, args) if condition(e) else rebuilt(e, args)


def missing(roots: Sequence[Expr], capabilities: Capabilities) -> str:
    """The first node that a target cannot compute, as text; empty if there is none."""
    dtypes = {
        "int64": capabilities.int64, "uint64": capabilities.int64, "float64": capabilities.float64,
    } | dict.fromkeys(("int8", "int16", "uint8", "uint16"), capabilities.narrow_integers)  # fmt: skip
    ops = {
        "fma": capabilities.exact_fma, "muladd": capabilities.exact_fma, "scale": capabilities.scaling,
        "nearest": capabilities.exact_fma and not capabilities.reassociates,
        "nearest_bits": capabilities.exact_fma and not capabilities.reassociates,
        "philox": capabilities.int64, "kept": capabilities.reassociates,
    }  # fmt: skip
    for e in walk(roots):
        if not dtypes.get(e.dtype, True):
            return f"{e.op} of {e.dtype}"
        if not ops.get(e.op, True):
            return e.op
    return ""


def _refuse_float64(roots: Sequence[Expr]) -> None:
    for e in walk(roots):
        if e.dtype == "float64":
            raise DTypeError(
                "this target has no float64",
                f"{e.op} of float64",
                'cast the operands with x.astype("float32"), or run the program on a device that has it',
            )


# floats

_SMALLEST_NORMAL = 2.0**-126
"""Of float32."""


def _finite(x: Expr) -> Expr:
    """Whether x is neither infinite nor NaN, by its bits."""
    f = FORMATS[x.dtype]
    return (bitcast(x, f.integer) & _magnitude(x.dtype)) < bitcast(const(INFINITY, x.dtype), f.integer)


def _is_ordinary(x: Expr) -> Expr:
    """Whether x is neither zero nor infinite nor NaN, by its bits."""
    f = FORMATS[x.dtype]
    return _inside(bitcast(x, f.integer) & _magnitude(x.dtype), 0, bitcast(const(INFINITY, x.dtype), f.integer))


def _is_nan(x: Expr) -> Expr:
    f = FORMATS[x.dtype]
    return (bitcast(x, f.integer) & _magnitude(x.dtype)) > bitcast(const(INFINITY, x.dtype), f.integer)


def _magnitude(dtype: str) -> int:
    return (1 << (BITS[dtype] - 1)) - 1


def _scale_operand(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A product with 2^n as a ``scale``: 2^n may be denormal, and replaced by 0, although the product is not."""
    if e.op not in ("mul", "muladd", "fma"):
        return rebuilt(e, args)
    for a, b in (args[:2], args[1::-1]):
        if a.op == "scale" and a.args[0].op == "const" and a.args[0].value == 1.0:
            product = binary("scale", b, a.args[1])
            return product if e.op == "mul" else product + args[2]
    return rebuilt(e, args)


def _chosen(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """``where_flushed`` on a target that flushes denormal numbers."""
    return select(*args) if e.op == "where_flushed" else rebuilt(e, args)


def _dropped(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """``where_flushed`` on a target that supports denormal numbers."""
    return args[2] if e.op == "where_flushed" else rebuilt(e, args)


def _is_denormal(x: Expr) -> Expr:
    """Whether x is denormal, by its bits; 0 is not."""
    f = FORMATS[x.dtype]
    return _inside(bitcast(x, f.integer) & _magnitude(x.dtype), 0, 1 << f.fraction_bits)


def _inside(n: Expr, low: int, high: Operand) -> Expr:
    """low < n < high, for integers."""
    return (n > low) & (n < high)


def _normal(x: Expr) -> Expr:
    """The smallest normal number of its sign for a denormal number, else x itself."""
    return select(_is_denormal(x), copysign(const(FORMATS[x.dtype].smallest, x.dtype), x), x)


def _correct_quotient(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A quotient corrected by its remainder, of operands scaled to [1, 2), so that no step overflows or underflows.

    Where one operand is 0, infinite or NaN, the other stands for its sign: the reciprocal of a small number overflows, and zero
    times that is NaN.
    """
    if e.op != "div" or e.dtype not in FLOATS:
        return rebuilt(e, args)
    signs = (select(_is_ordinary(x), copysign(const(1.0, x.dtype), x), x) for x in args)
    return _scaled_quotient(args[0], args[1], rebuilt(e, tuple(signs)))


def _quotient_of_denormals(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A quotient of operands that are scaled to [1, 2) if one of them is denormal."""
    if e.op != "div" or e.dtype not in FLOATS or not any(map(_may_be_denormal, args)):
        return rebuilt(e, args)
    rare = [_is_denormal(x) for x in args if _may_be_denormal(x)]
    special = rebuilt(e, (_normal(args[0]), _normal(args[1])))
    return rarely(
        rare[0] if len(rare) == 1 else rare[0] | rare[1], _scaled_quotient(args[0], args[1], special, False), rebuilt(e, args)
    )


def _scaled_quotient(a: Expr, b: Expr, special: Expr, corrected: bool = True) -> Expr:
    """A quotient of operands scaled to [1, 2); ``special`` if one of them is 0, infinite or NaN."""
    f = FORMATS[a.dtype]
    (top, top_exponent), (bottom, bottom_exponent) = _near_one(a), _near_one(b)
    q = top / bottom
    if corrected:
        sign, top, bottom = q, absolute(top), absolute(bottom)
        q = absolute(q)
        q = q + fma(-q, bottom, top) / bottom
        q = copysign(_rounded(q, fma(-q, bottom, top), bottom * 0.5), sign)
    n = cast(minimum(maximum(top_exponent - bottom_exponent, -2 * f.bias), 2 * f.bias), a.dtype)  # beyond, 0 or infinity
    return select(_is_ordinary(a) & _is_ordinary(b), binary("scale", q, n), special)


_PASSES_ON = frozenset({"neg", "abs", "copysign", "select", "rarely", "min", "max"})
"""Operations that keep a denormal operand as it is."""


def _may_be_denormal(x: Expr) -> bool:
    """Whether x may be denormal on a target whose arithmetic has no denormal results."""
    if x.op == "const":
        return 0.0 < abs(float(x.value or 0.0)) < FORMATS[x.dtype].smallest
    if x.op in _PASSES_ON:
        return any(a.dtype == x.dtype and _may_be_denormal(a) for a in (x.args[:1] if x.op == "copysign" else x.args))
    return x.op in ("load", "gather", "local", "element", "bitcast", "reduce")


def _near_one(x: Expr) -> tuple[Expr, Expr]:
    """A float of magnitude [1, 2) and an integer n with x = float · 2^n, for finite x other than 0."""
    f = FORMATS[x.dtype]
    bits = bitcast(x, f.integer)
    exponent = (bits >> f.fraction_bits) & (2 * f.bias + 1)
    denormal = eq(exponent, 0)
    # the value of a denormal number is its fraction, an integer, times the smallest denormal number
    fraction = cast(bits & ((1 << f.fraction_bits) - 1), x.dtype)
    fraction_float = bitcast(fraction, f.integer)
    field = select(denormal, fraction_float, bits)
    shift = select(denormal, const(1 - f.bias - f.fraction_bits, f.integer), 0)
    exponent_bits = (field >> f.fraction_bits) & (2 * f.bias + 1)
    sign = bits & (-1 << (BITS[x.dtype] - 1))
    one = (field & ((1 << f.fraction_bits) - 1)) | (f.bias << f.fraction_bits) | sign
    return bitcast(one, x.dtype), exponent_bits - f.bias + shift


def _correct_root(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A square root corrected by its remainder, of a number scaled to [1, 4)."""
    return _scaled_root(args[0], rebuilt(e, args)) if e.op == "sqrt" else rebuilt(e, args)


def _correct_root_of_denormals(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """``_correct_root`` for targets that take denormal operands for zeros: the root of a negative one is NaN."""
    return _scaled_root(args[0], rebuilt(e, (_normal(args[0]),))) if e.op == "sqrt" else rebuilt(e, args)


def _root_of_denormals(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A square root of a number that is scaled to [1, 4) if it is denormal."""
    if e.op != "sqrt" or not _may_be_denormal(args[0]):
        return rebuilt(e, args)
    return rarely(_is_denormal(args[0]), _scaled_root(args[0], rebuilt(e, (_normal(args[0]),)), False), rebuilt(e, args))


def _scaled_root(x: Expr, special: Expr, corrected: bool = True) -> Expr:
    """A square root of a number scaled to [1, 4); ``special`` for 0, infinity, NaN and negative numbers."""
    one, n = _near_one(x)
    is_odd = n & 1
    one = select(ne(is_odd, 0), one + one, one)
    s = unary("sqrt", one)
    if corrected:
        s = s + fma(-s, s, one) / (s + s)
        s = _rounded(s, fma(-s, s, one), s)
    bits = bitcast(x, FORMATS[x.dtype].integer)
    return select(_finite(x) & (bits > 0), binary("scale", s, cast((n - is_odd) >> 1, x.dtype)), special)


def _rounded(x: Expr, rest: Expr, slope: Expr) -> Expr:
    """A positive quotient or root of numbers near 1, correctly rounded, from a neighbour of it or itself.

    Args:
        x: The neighbour.
        rest: What its product with the divisor, or its square, leaves of the operand; exact.
        slope: What x plus half of a gap between floats would take from ``rest``, for each unit of the gap. Of a root it is what
            the square of the half does not add, which is less than the last place of ``rest``.
    """
    bits = bitcast(x, FORMATS[x.dtype].integer)
    above, below = bitcast(bits + 1, x.dtype), bitcast(bits - 1, x.dtype)
    up, down = rest > kept(above - x) * slope, -rest >= kept(x - below) * slope
    return select(up, above, select(down, below, x))


def _whole_of_bits(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """``floor`` and ``ceil`` of denormal numbers, which a target may take for zeros."""
    if e.op not in ("floor", "ceil") or not _may_be_denormal(args[0]):
        return rebuilt(e, args)
    (x,) = args
    f = FORMATS[x.dtype]
    bits = bitcast(x, f.integer)
    if e.op == "ceil":
        return select(_inside(bits, 0, 1 << f.fraction_bits), const(1.0, x.dtype), rebuilt(e, args))
    lowest = -1 << (BITS[x.dtype] - 1)
    return select(_inside(bits, lowest, lowest + (1 << f.fraction_bits)), const(-1.0, x.dtype), rebuilt(e, args))


def _scale_denormals(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """a · 2^n of an operand that may be denormal: it is converted from the integer that its fraction is."""
    if e.op != "scale" or not _may_be_denormal(args[0]) or args[0].op == "const":
        return rebuilt(e, args)
    a, n = args
    f = FORMATS[e.dtype]
    fraction = cast(bitcast(a, f.integer) & ((1 << f.fraction_bits) - 1), e.dtype)
    unit = f.bias + f.fraction_bits - 1  # a denormal number is its fraction times 2^-unit
    up = 2 * f.bias - 4  # such a small number, so that exponents stay in the range of ``scale``
    less = select(n < float(unit - up), const(float(-up), e.dtype), n - float(unit))
    denormal = _is_denormal(a)
    return binary("scale", select(denormal, copysign(fraction, a), a), select(denormal, less, n))


def _two_products(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """a · 2^n by two products with powers of 2, of which only the second one may round."""
    if e.op != "scale":
        return rebuilt(e, args)
    a, n = args
    f = FORMATS[e.dtype]
    whole = node("cast", "int32", (n,), IN_RANGE)
    half = whole >> 1
    first, second = (
        bitcast(cast(k + f.bias, f.integer) << f.fraction_bits, e.dtype) for k in (half, whole - half)
    )  # fmt: skip
    return select(_is_nan(n), n, kept(a * first) * second)


def _round_by_rint(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """Rounding to an integer by ``rint``."""
    if e.op == "nearest":
        return unary("rint", args[0] * args[1])
    return cast(unary("rint", args[0] * args[1]), e.dtype) if e.op == "nearest_bits" else rebuilt(e, args)


def _emulate_fma(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """a · b + c from an exact product and an exact sum, both as sums of two floats."""
    if e.op == "muladd":
        return args[0] * args[1] + args[2]
    if e.op != "fma":
        return rebuilt(e, args)
    from firebrick.scalar.double_word import two_sum

    a, b, c = args
    if e.value == CANCELS and b.op == "const":
        number = np.asarray(b.value, e.dtype)
        first = _without_low_bits(number)  # of which a product with 12 bits is exact, as of the rest
        return kept(kept(c + kept(a * float(first))) + kept(a * float(number - first)))
    if e.value == VAST:  # such a product is of numbers of which the second one, and the sum, can be divided by 4
        by_quarters = node("fma", e.dtype, (a, b * 0.25, c * 0.25))
        plain = node("fma", e.dtype, (a, b, c))
        p, quarter = kept(a * b), kept(a * (b * 0.25))
        return select(
            _finite(p) | ~_finite(quarter), _emulate_fma(plain, plain.args), _emulate_fma(by_quarters, by_quarters.args) * 4.0
        )
    p = kept(a * b)
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    rest = kept(kept(kept(kept(ah * bh) - p) + kept(ah * bl)) + kept(al * bh))
    error = kept(rest + kept(al * bl))
    s, t = two_sum(p, c)
    return select(_finite(s) & _finite(p), kept(s + kept(t + error)), s)


def _without_low_bits(x: Any) -> Any:
    """A float without its lowest 12 bits."""
    bits = np.uint32 if x.dtype == np.float32 else np.uint64
    return (x.view(bits) & ~bits(0xFFF)).view(x.dtype)


def _halves(x: Expr) -> tuple[Expr, Expr]:
    """A float as a sum of two floats whose products are exact: of at most 12 bits each, or 26 of a float64.

    The upper half of a float64 is the nearest one, so that the lower half needs one bit less, but for numbers that would round
    to infinity: a finite product has one of these at most.
    """
    if x.dtype == "float32":
        high = bitcast(bitcast(x, "uint32") & 0xFFFFF000, "float32")
        return high, kept(x - high)
    bits = bitcast(x, "uint64")
    largest = ((bits >> 32) & 0x7FFFFFFF) >= 0x7FEFFFFF
    high = bitcast(select(largest, bits, bits + (1 << 26)) & -(1 << 27), "float64")
    return high, kept(x - high)


def _decode_denormals(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A float that may be denormal, times a constant that makes it normal: a denormal number is converted from the integer that
    its fraction is, since arithmetic may replace it by 0. ``storage.decode`` and logarithms have such products."""
    out = rebuilt(e, args)
    if e.op != "mul" or e.dtype != "float32" or args[0].op == "const" or not _may_be_denormal(args[0]):
        return out
    factor = _small_unit(args[1])
    if factor is None or factor.value == 0.0:
        return out
    bits = bitcast(args[0], "uint32")
    denormal = (bits & 0x7F800000) < (1 << 23)
    size = cast(bits & 0x7FFFFF, "float32") * factor
    return select(denormal, copysign(size, args[0]), out)


def _small_unit(factor: Expr) -> Expr | None:
    """A constant factor, or one of several, times the smallest denormal number; 0 for those whose product is denormal."""
    if factor.op == "const":
        unit = float(factor.value or 0.0) * 2.0**-149
        return const(unit if _SMALLEST_NORMAL <= unit < INFINITY else 0.0, "float32")
    if factor.op != "select":
        return None
    a, b = _small_unit(factor.args[1]), _small_unit(factor.args[2])
    return None if a is None or b is None else select(factor.args[0], a, b)


# operations that some targets leave undefined


def _widen_integers(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """Integers of 8 and 16 bits as 32-bit ones of the same value."""
    wider = _WIDER.get(e.dtype)
    if wider is None:  # comparisons and casts of the widened integers give the same values
        return cast(args[0], e.dtype) if e.op == "cast" else rebuilt(e, args)
    if e.op == "const":
        return const(int(e.value or 0), wider)
    if e.op == "cast" and args[0].dtype in FLOATS:
        low, high = (
            (-(1 << (BITS[e.dtype] - 1)), (1 << (BITS[e.dtype] - 1)) - 1) if wider == "int32" else (0, (1 << BITS[e.dtype]) - 1)
        )
        return minimum(maximum(cast(args[0], wider), low), high)
    out = cast(args[0], wider) if e.op in ("cast", "bitcast") else node(e.op, wider, args, e.value)
    if e.op in ("load", "gather", "local", "element", "min", "max", "select", "rarely", "and", "or", "xor", "shr", "rem"):
        return out
    spare = 32 - BITS[e.dtype]
    return (out << spare) >> spare if wider == "int32" else out & ((1 << BITS[e.dtype]) - 1)


_WIDER = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}


def _nan_min_max(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A minimum or maximum of floats by a comparison; NaN is detected by its bits."""
    if e.op not in ("min", "max") or e.dtype not in FLOATS:
        return rebuilt(e, args)
    a, b = args
    out = select(binary("lt" if e.op == "min" else "gt", a, b), a, b)
    for x in (b, a):
        if x.op != "const":
            out = select(_is_nan(x), x, out)
        elif x.value != x.value:
            return x
    return out


def _comparison_of_bits(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A comparison of float32 by their bits, as denormal operands may be replaced by zeros in one of floats. Compared with a
    number that is larger than those, zero is what they are."""
    large = any(x.op == "const" and abs(float(x.value or 0.0)) >= _SMALLEST_NORMAL for x in args)
    if e.op not in COMPARISONS or args[0].dtype != "float32" or args[0] is args[1] or large:
        return rebuilt(e, args)
    keys: list[Expr] = []
    nan: Expr | None = None
    for x in args:
        bits = bitcast(x, "int32")
        size = bits & 0x7FFFFFFF
        keys.append(select(bits < 0, -size, size))  # of both zeros 0
        if x.op != "const" or x.value != x.value:
            found = size > 0x7F800000
            nan = found if nan is None else nan | found
    out = eq(*keys) if e.op == "ne" else binary(e.op, *keys)
    if nan is not None:
        out = out & ~nan
    return ~out if e.op == "ne" else out


def _nan_comparison(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A comparison of floats that tests for NaN first."""
    if e.op not in COMPARISONS or args[0].dtype not in FLOATS:
        return rebuilt(e, args)
    nan: Expr | None = None
    for x in dict.fromkeys(args):
        if x.op != "const" or x.value != x.value:
            nan = _is_nan(x) if nan is None else nan | _is_nan(x)
    if args[0] is args[1] and nan is not None:
        return {"ne": nan, "lt": const(False, "bool"), "gt": const(False, "bool")}.get(e.op, ~nan)
    out = eq(*args) if e.op == "ne" else rebuilt(e, args)
    if nan is not None:
        out = out & ~nan
    return ~out if e.op == "ne" else out


def _saturate_cast(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A float as an integer: NaN and values out of range are detected by the float's bits."""
    if e.op != "cast" or e.value == IN_RANGE or e.dtype not in INTEGERS or args[0].dtype not in FLOATS:
        return rebuilt(e, args)
    x, signed = args[0], e.dtype in SIGNED
    bits = BITS[e.dtype] - signed
    top, bottom = const((1 << bits) - 1, e.dtype), const(-(1 << bits) if signed else 0, e.dtype)
    f = FORMATS[x.dtype]
    size = bitcast(x, f.integer) & _magnitude(x.dtype)
    negative = bitcast(x, f.integer) < 0
    large = size >= bitcast(const(2.0**bits, x.dtype), f.integer)
    inside = select(large if signed else large | negative, const(0.0, x.dtype), x)
    out = select(large, select(negative, bottom, top), cast(inside, e.dtype))
    return select(_is_nan(x), const(0, e.dtype), out)


def _define_integers(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """Shifts and quotients of integers with operands for which they are defined on every target."""
    if e.op not in ("shl", "shr", "div", "rem") or e.dtype not in INTEGERS:
        return rebuilt(e, args)
    a, by = args
    if e.op in ("shl", "shr"):
        if by.op == "const" and 0 <= int(by.value or 0) < BITS[e.dtype]:
            return rebuilt(e, args)
        inside = (by >= 0) & (by < BITS[e.dtype]) if e.dtype in SIGNED else by < BITS[e.dtype]
        out = binary(e.op, a, select(inside, by, 0))
        shifted_out = a >> (BITS[e.dtype] - 1) if e.op == "shr" and e.dtype in SIGNED else const(0, e.dtype)
        return select(inside, out, shifted_out)
    if by.op == "const" and by.value not in (0, -1):
        return rebuilt(e, args)
    is_zero = eq(by, 0)
    is_minus_one = eq(by, -1) if e.dtype in SIGNED else None
    out = binary(e.op, a, select(is_zero if is_minus_one is None else is_zero | is_minus_one, 1, by))
    if e.op == "rem":
        return select(is_zero if is_minus_one is None else is_zero | is_minus_one, 0, out)
    return select(is_zero, 0, out if is_minus_one is None else select(is_minus_one, -a, out))


def _drop_fences(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """Expressions without ``kept``, for targets that do not reassociate."""
    return args[0] if e.op == "kept" else rebuilt(e, args)
