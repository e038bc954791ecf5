"""64-bit integers for targets without them: one int32 if interval arithmetic proves that all values fit, else two uint32 words.

Index arithmetic fits if the kernel's axes are short enough, and is then one instruction a node. Random words (Philox) and
the reduction of large angles use all 64 bits; their products are computed from 16-bit halves. A name of a kernel is an int32,
or two names, by what is known of its values (``KnownNames``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.scalar.expr import (
    COMPARISONS,
    INTEGERS,
    SIGNED,
    Expr,
    binary,
    bitcast,
    cast,
    const,
    eq,
    limits,
    minimum,
    ne,
    node,
    rarely,
    rebuilt,
    rewritten,
    select,
    steps,
    walk,
)

Bounds = tuple[int, int]
WIDE = ("int64", "uint64")
_TOP32 = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Words:
    """The lower and the upper 32 bits, uint32."""

    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What is known of the names of a kernel where expressions are evaluated.

    Attributes:
        bounds: The least and greatest value of integers.
        words: For 64-bit integers that are two names, of uint32, those of the lower and the upper word; others are int32.
    """

    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def split_int64(roots: Sequence[Expr], extents: Sequence[int], names: KnownNames | None = None) -> list[Expr | Words]:
    """Expressions without int64 and uint64: those of 64-bit integers as int32 if all values fit, else as two words.

    Args:
        roots: Expressions.
        extents: Sizes of the kernel's axes.
        names: Of a kernel.

    Raises:
        DTypeError: A 64-bit integer is loaded.
        UnsupportedError: An index does not fit in 32 bits.
    """
    names = names or KnownNames()
    bounds = bounds_of(roots, extents, names.bounds)
    narrow: dict[Expr, Expr] = {}  # node → its replacement: int32 for 64-bit integers, the same dtype for others
    pairs: dict[Expr, Words] = {}
    for e in walk(roots):
        if e.dtype in WIDE and e.op == "local":
            words = names.words.get(str(e.value))
            if words is None:
                narrow[e] = node("local", "int32", (), e.value)
            elif fits_int32(bounds[e]):
                narrow[e] = bitcast(node("local", "uint32", (), words[0]), "int32")
            else:
                pairs[e] = Words(*(node("local", "uint32", (), name) for name in words))
        elif e.dtype in WIDE and e.op == "element":
            raise DTypeError(
                "this target has no 64-bit integers", f"an element of {e.value}, {e.dtype}",
                f'pass {e.value}.astype("{"u" * (e.dtype == "uint64")}int32")',
            )  # fmt: skip
        elif e.dtype in WIDE and _fits(e, bounds, narrow):
            narrow[e] = _positive(e, narrow, bounds) or _as_int32(e, narrow, pairs)
        elif e.dtype in WIDE:
            operands = {a: _pair(a, narrow, pairs, bounds) for a in e.args if a.dtype in WIDE}
            pairs[e] = _as_words(e, narrow, operands)
            if fits_int32(bounds[e]):  # as a mask of two words does
                narrow[e] = bitcast(pairs[e].low, "int32")
        else:
            narrow[e] = _of_other_dtype(e, narrow, pairs, bounds)
    return [narrow[r] if r in narrow else pairs[r] for r in roots]


def fits_int32(bounds: Bounds) -> bool:
    """Whether all values between these fit in an int32."""
    return bounds[0] >= -_TOP32 - 1 and bounds[1] <= _TOP32


def saturated(x: Expr | Words) -> Expr:
    """A signed 64-bit integer as the nearest int32."""
    return _saturated(x) if isinstance(x, Words) else x


def as_pair(x: Expr | Words) -> Words:
    """An int32, or two words, as two words."""
    return x if isinstance(x, Words) else _extended(x, True)


def _unsupported(operation: str, dtype: str) -> DTypeError:
    return DTypeError("this target has no 64-bit integers", operation, f'cast it with x.astype("{dtype}")')


# bounds of values


def _hull(*parts: Bounds) -> Bounds:
    return min(p[0] for p in parts), max(p[1] for p in parts)


def _corners(f: Callable[[int, int], int], a: Bounds, b: Bounds) -> Bounds:
    values = [f(x, y) for x in a for y in b]
    return min(values), max(values)


def _masked(a: Bounds, b: Bounds) -> Bounds | None:
    tops = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(tops)) if tops else None


def _quotient(a: Bounds, b: Bounds) -> Bounds:
    if b[0] < 0:
        size = max(map(abs, a))
        return -size, size
    by = max(1, b[0]), max(1, b[1])
    found = [(abs(x) // y) * (1 if x >= 0 else -1) for x in a for y in by]
    return min(found + [0] * (b[0] == 0)), max(found + [0] * (b[0] == 0))


def _remainder(a: Bounds, b: Bounds) -> Bounds:
    size = max(abs(b[0]), abs(b[1]), 1) - 1
    if b[0] >= 0 and a[0] >= 0:
        return 0, min(a[1], size)
    return -size, size


def _order(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a < b, whose values are 0 and 1."""
    return int(a[1] < b[0]), int(a[0] < b[1])


def _equality(a: Bounds, b: Bounds) -> Bounds:
    return int(a[0] == a[1] == b[0] == b[1]), int(a[0] <= b[1] and b[0] <= a[1])


def _negated(a: Bounds) -> Bounds:
    return 1 - a[1], 1 - a[0]


def _chosen(c: Bounds, a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a where the condition c holds, and of b elsewhere."""
    if c[0] == c[1]:
        return a if c[0] else b
    return _hull(a, b)


def _of_bits(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a combination of the bits of two integers: as many bits as the longer one has."""
    top = (1 << max(abs(x).bit_length() for x in (*a, *b))) - 1
    return (0 if min(a[0], b[0]) >= 0 else -top - 1), top


_ARITHMETIC: dict[str, Callable[..., Bounds | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _corners(lambda x, y: x * y, a, b),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "and": _masked,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a))),
    "shr": lambda a, b: _corners(lambda x, y: x >> y, a, b) if b[0] >= 0 and b[1] < 64 else None,
    "shl": lambda a, b: _corners(lambda x, y: x << y, a, b) if b[0] >= 0 and b[1] < 64 else None,
    "div": _quotient,
    "rem": _remainder,
    "or": _of_bits,
    "xor": _of_bits,
    "not": lambda a: (-a[1] - 1, -a[0] - 1),
    "select": _chosen,
    "rarely": _chosen,
    "reduce": lambda a: a,
    "cast": lambda a: a,
    "bitcast": lambda a: a,
}
_TO_BOOL: dict[str, Callable[..., Bounds]] = {
    "lt": _order,
    "gt": lambda a, b: _order(b, a),
    "le": lambda a, b: _negated(_order(b, a)),
    "ge": lambda a, b: _negated(_order(a, b)),
    "eq": _equality,
    "ne": lambda a, b: _negated(_equality(a, b)),
    "and": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "or": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "xor": lambda a, b: _negated(_equality(a, b)),
    "not": _negated,
}
"""Operations with a bool result, whose bounds are of 0 and 1; others of bools are in ``_ARITHMETIC``."""


def bounds_of(
    roots: Sequence[Expr], extents: Sequence[int], names: Mapping[str, Bounds] | None = None
) -> dict[Expr, Bounds]:  # fmt: skip
    """The least and greatest value that each integer node may have, and each bool, which is 0 or 1.

    Args:
        roots: Expressions.
        extents: Sizes of the kernel's axes.
        names: The bounds of names of a kernel.
    """
    out: dict[Expr, Bounds] = {}
    for e in walk(roots):
        if e.dtype != "bool" and e.dtype not in INTEGERS:
            continue
        limits_ = limits(e.dtype)
        found: Bounds | None = None
        rules = _TO_BOOL if e.dtype == "bool" and e.op in _TO_BOOL else _ARITHMETIC
        if e.op == "const":
            found = int(e.value or 0), int(e.value or 0)
        elif e.op == "index" and extents:
            ends = [step * (extents[a] - 1) for a, step in enumerate(steps(e, len(extents)))]
            found = sum(min(v, 0) for v in ends), sum(max(v, 0) for v in ends)
        elif e.op == "bounded":
            found = 0, int(str(e.value).split(":")[0]) - 1
        elif e.op == "local" and names is not None:
            found = names.get(str(e.value))
        elif e.op in rules and all(a in out for a in e.args) and (e.op != "reduce" or e.value in ("min", "max")):
            found = rules[e.op](*(out[a] for a in e.args))
        inside = found is not None and limits_[0] <= found[0] and found[1] <= limits_[1]
        out[e] = found if found is not None and inside else limits_
    return out


def with_int32_limits(roots: Sequence[Expr], extents: Sequence[int]) -> list[Expr]:
    """Minima over rows with the largest int32 instead of the largest int64 as the value of excluded positions, if the other
    positions fit in int32."""
    reduced = {e.args[0] for e in walk(roots) if e.op == "reduce" and e.value == "min" and e.dtype == "int64"}
    if not reduced:
        return list(roots)
    bounds = bounds_of(roots, extents)
    limit, short = const((1 << 63) - 1, "int64"), const(_TOP32, "int64")
    wanted = {
        e.args for e in reduced
        if e.op == "select" and e.args[2] is limit and bounds[e.args[1]][0] >= -_TOP32 and bounds[e.args[1]][1] < _TOP32
    }  # fmt: skip
    if not wanted:
        return list(roots)

    def rule(e: Expr, args: tuple[Expr, ...]) -> Expr:
        return select(args[0], args[1], short) if e.op == "select" and e.args in wanted else rebuilt(e, args)

    return rewritten(roots, rule)


# one int32

_INT32_OPS = frozenset({
    "const", "index", "cast", "bitcast", "add", "sub", "mul", "min", "max", "neg", "abs", "and", "or", "xor", "not", "shr",
    "shl", "div", "rem", "select", "rarely", "bounded", "reduce",
})  # fmt: skip


def _fits(e: Expr, bounds: dict[Expr, Bounds], narrow: dict[Expr, Expr]) -> bool:
    """Whether a 64-bit node is computed in int32: its values and those of its operands fit."""
    low, high = bounds[e]
    if e.op not in _INT32_OPS or low < -_TOP32 - 1 or high > _TOP32:
        return False
    if e.op == "bounded":
        return True
    sources = [a for a in e.args if a.dtype != "bool"]
    return all(a in narrow and a.dtype in INTEGERS for a in sources if a.dtype in WIDE) and all(
        a.dtype in INTEGERS or e.op != "cast" for a in sources
    )


def _positive(e: Expr, narrow: dict[Expr, Expr], bounds: dict[Expr, Bounds]) -> Expr | None:
    """A quotient or remainder, if it is known to be of a number of at least 0 by a variable one of at least 1."""
    if e.op not in ("div", "rem") or e.args[1].op == "const" or bounds[e.args[0]][0] < 0 or bounds[e.args[1]][0] < 1:
        return None
    from firebrick.scalar.wide_quotients import of_positive

    return of_positive(narrow[e.args[0]], narrow[e.args[1]], bounds[e.args[0]][1])[e.op == "rem"]


def _as_int32(e: Expr, narrow: dict[Expr, Expr], pairs: dict[Expr, Words]) -> Expr:
    if e.op == "const":
        return const(int(e.value or 0), "int32")
    if e.op == "bounded" and e.args[0] in pairs:
        return node("bounded", "int32", (_saturated(pairs[e.args[0]]),), e.value)
    args = tuple(narrow[a] for a in e.args)
    if e.op in ("cast", "bitcast"):
        return cast(args[0], "int32")
    return node(e.op, "int32", args, e.value)


def _saturated(w: Words) -> Expr:
    """A signed pair of words, saturated to int32."""
    low = bitcast(w.low, "int32")
    sign = low >> 31
    high = bitcast(w.high, "int32")
    return select(eq(high, sign), low, select(high < 0, const(-_TOP32 - 1, "int32"), _TOP32))


def _pair(e: Expr, narrow: dict[Expr, Expr], pairs: dict[Expr, Words], bounds: dict[Expr, Bounds]) -> Words:
    """A 64-bit node as a pair of words, however it is computed."""
    if e in pairs:
        return pairs[e]
    return _extended(narrow[e], bounds[e][0] < 0)


def _extended(x: Expr, signed: bool) -> Words:
    low = cast(x, "uint32") if x.dtype != "int32" else bitcast(x, "uint32")
    return Words(low, bitcast(x >> 31, "uint32") if signed else const(0, "uint32"))


# two words


def _is_zero(x: Expr) -> bool:
    return x.op == "const" and not x.value


def _sum(a: Expr, b: Expr) -> Expr:
    return b if _is_zero(a) else a if _is_zero(b) else a + b


def _product(a: Expr, b: Expr) -> Expr:
    return a if _is_zero(a) else b if _is_zero(b) else a * b


def _or(a: Expr, b: Expr) -> Expr:
    return b if _is_zero(a) else a if _is_zero(b) else a | b


def product_of_words(a: Expr, b: Expr) -> Words:
    """The 64-bit product of two uint32 numbers, from the products of their 16-bit halves."""
    if _is_zero(a) or _is_zero(b):
        return Words(const(0, "uint32"), const(0, "uint32"))
    (ah, al), (bh, bl) = (((x >> 16), x & 0xFFFF) for x in (a, b))
    ll, lh, hl = (_product(x, y) for x, y in ((al, bl), (al, bh), (ah, bl)))
    middle = _sum(_sum(ll >> 16, lh & 0xFFFF), hl & 0xFFFF)  # below 2^18
    return Words(a * b, _sum(_sum(_product(ah, bh), lh >> 16), _sum(hl >> 16, middle >> 16)))


def _add(a: Words, b: Words) -> Words:
    low = _sum(a.low, b.low)
    exact = _is_zero(a.low) or _is_zero(b.low)
    carry = const(0, "uint32") if exact else cast(low < a.low, "uint32")
    return Words(low, _sum(_sum(a.high, b.high), carry))


def subtracted(a: Words, b: Words) -> Words:
    borrow = cast(a.low < b.low, "uint32")
    return Words(a.low - b.low, (a.high - b.high) - borrow)


def _multiply(a: Words, b: Words) -> Words:
    low = product_of_words(a.low, b.low)
    return Words(low.low, _sum(low.high, _sum(_product(a.low, b.high), _product(a.high, b.low))))


def _shift_amount(amount: Words) -> Expr:
    """The number of bits to shift by, at most 64."""
    clamped = minimum(amount.low, 64)
    return clamped if _is_zero(amount.high) else select(eq(amount.high, 0), clamped, 64)


def shifted_left(a: Words, amount: Words) -> Words:
    n = _shift_amount(amount)
    if n.op == "const":
        k = int(n.value or 0)
        if k == 0:
            return a
        if k >= 32:
            return Words(const(0, "uint32"), a.low << (k - 32))
        return Words(a.low << k, _or(a.high << k, a.low >> (32 - k)))
    # each of the shifts by n, 32 - n and n - 32 gives 0 if its amount is 32 or more, or wraps to a large number
    return Words(a.low << n, (a.high << n) | (a.low >> (32 - n)) | (a.low << (n - 32)))


def shifted_right(a: Words, amount: Words, signed: bool) -> Words:
    n = _shift_amount(amount)
    high = bitcast(a.high, "int32") if signed else a.high

    def down(x: Expr, amount: Expr | int) -> Expr:
        if signed and isinstance(amount, Expr):
            amount = bitcast(amount, "int32")
        out = x >> amount
        return bitcast(out, "uint32") if signed else out

    if n.op == "const":
        k = int(n.value or 0)
        if k == 0:
            return a
        rest = bitcast(high >> 31, "uint32") if signed else const(0, "uint32")
        if k >= 32:
            return Words(down(high, k - 32) if k < 64 else rest, rest)
        return Words(_or(a.low >> k, a.high << (32 - k)), down(high, k))
    near = (a.low >> n) | (a.high << (32 - n))
    return Words(select(n < 32, near, down(high, n - 32)), down(high, n))


def negated(a: Words) -> Words:
    return subtracted(Words(const(0, "uint32"), const(0, "uint32")), a)


def absolute_words(a: Words) -> Words:
    return select_words(bitcast(a.high, "int32") < 0, negated(a), a)


def words_of_float64(x: Expr) -> Words:
    """The bits of a float64."""
    return Words(*(node(op, "uint32", (x,)) for op in ("low_word", "high_word")))


def float64_of_words(w: Words) -> Expr:
    """The float64 of these bits."""
    return node("from_words", "float64", (w.low, w.high))


def select_words(condition: Expr, a: Words, b: Words, choice: Callable[..., Expr] = select) -> Words:
    return Words(choice(condition, a.low, b.low), choice(condition, a.high, b.high))


def less_words(a: Words, b: Words, signed: bool) -> Expr:
    ah, bh = (bitcast(w.high, "int32") if signed else w.high for w in (a, b))
    return (ah < bh) | (eq(ah, bh) & (a.low < b.low))


def _as_words(e: Expr, narrow: dict[Expr, Expr], operands: dict[Expr, Words]) -> Words:
    """A 64-bit node as a pair of words, from those of its operands."""
    signed = e.dtype in SIGNED
    v = [operands[a] for a in e.args if a.dtype in WIDE]
    if e.op in _WORD_OPS:
        return _WORD_OPS[e.op](*v)
    if e.op == "const":
        value = int(e.value or 0) & ((1 << 64) - 1)
        return Words(const(value & 0xFFFFFFFF, "uint32"), const(value >> 32, "uint32"))
    if e.op == "shr":
        return shifted_right(v[0], v[1], signed)
    if e.op in ("min", "max"):
        first = less_words(v[0], v[1], signed)
        return select_words(first, v[0], v[1]) if e.op == "min" else select_words(first, v[1], v[0])
    if e.op in ("select", "rarely"):
        return select_words(narrow[e.args[0]], v[0], v[1], select if e.op == "select" else rarely)
    if e.op in ("cast", "bitcast") and v:
        return v[0]
    if e.op == "bitcast":
        return words_of_float64(narrow[e.args[0]])
    if e.op == "cast" and e.args[0].dtype in INTEGERS:
        x = narrow[e.args[0]]
        low = cast(x, "uint32")
        return Words(low, bitcast(cast(x, "int32") >> 31, "uint32") if e.args[0].dtype in SIGNED else const(0, "uint32"))
    if e.op == "cast":
        from firebrick.scalar.wide_quotients import whole_words

        return whole_words(narrow[e.args[0]], signed)
    if e.op in ("div", "rem"):
        from firebrick.scalar.wide_quotients import divided

        return divided(v[0], v[1], signed)[e.op == "rem"]
    if e.op == "index":
        raise UnsupportedError(
            "this target has 32-bit indices only", "a kernel over more than 2³¹ elements", "split the operands along an axis"
        )
    raise _unsupported(f"{e.op} of {e.dtype}", "int32")


def _bitwise(op: str) -> Callable[[Words, Words], Words]:
    return lambda a, b: Words(binary(op, a.low, b.low), binary(op, a.high, b.high))


_WORD_OPS: dict[str, Callable[..., Words]] = {
    "add": _add, "sub": subtracted, "mul": _multiply, "shl": shifted_left, "neg": negated, "abs": absolute_words,
    "and": _bitwise("and"), "or": _bitwise("or"), "xor": _bitwise("xor"), "not": lambda a: Words(~a.low, ~a.high),
}  # fmt: skip


# nodes of other dtypes


def _of_other_dtype(e: Expr, narrow: dict[Expr, Expr], pairs: dict[Expr, Words], bounds: dict[Expr, Bounds]) -> Expr:
    if not any(a.dtype in WIDE for a in e.args):
        return rebuilt(e, tuple(narrow[a] for a in e.args))
    if e.op == "philox":
        key = [narrow[k] for k in e.args[:4]]
        return _philox(key, _pair(e.args[4], narrow, pairs, bounds))
    if e.op == "element":
        (at,) = e.args
        return node("element", e.dtype, (saturated(narrow.get(at) or pairs[at]),), e.value)
    if all(a in narrow for a in e.args) and e.op in (*COMPARISONS, "cast", "gather"):
        args = tuple(narrow[a] for a in e.args)
        return cast(args[0], e.dtype) if e.op == "cast" else node(e.op, e.dtype, args, e.value)
    if e.op == "gather":
        raise UnsupportedError(
            "this target has 32-bit indices only", f"positions of operand {e.value} beyond 2³¹ elements",
            "split the operand along an axis",
        )  # fmt: skip
    v = [_pair(a, narrow, pairs, bounds) for a in e.args]
    signed = e.args[0].dtype in SIGNED
    if e.op in COMPARISONS:
        return _comparison(e.op, v[0], v[1], signed)
    if e.op == "cast" and e.dtype in INTEGERS:
        return cast(v[0].low, e.dtype)
    if e.op == "cast" and e.dtype == "float32":
        return _as_float(v[0], signed)
    if e.op == "cast" and e.dtype == "float64":
        high = bitcast(v[0].high, "int32") if signed else v[0].high
        return cast(high, "float64") * 2.0**32 + cast(v[0].low, "float64")
    if e.op == "bitcast":
        return float64_of_words(v[0])
    raise _unsupported(f"{e.op} of {e.args[0].dtype}", "int32")


def _comparison(op: str, a: Words, b: Words, signed: bool) -> Expr:
    if op in ("eq", "ne"):
        same = eq(a.low, b.low) & eq(a.high, b.high)
        return same if op == "eq" else ~same
    less = less_words(a, b, signed) if op in ("lt", "ge") else less_words(b, a, signed)
    return less if op in ("lt", "gt") else ~less


def _as_float(w: Words, signed: bool) -> Expr:
    """A 64-bit integer rounded to float32: its leading 32 bits, with the last bit set if any lower bit is, are rounded once."""
    negative = bitcast(w.high, "int32") < 0
    size = absolute_words(w) if signed else w
    high, low, shift = size.high, size.low, const(0, "int32")
    for k in (32, 16, 8, 4, 2, 1):
        small = eq(high, 0) if k == 32 else high < (1 << (32 - k))
        up = low if k == 32 else (high << k) | (low >> (32 - k))
        high, low = select(small, up, high), select(small, low << k, low)
        shift = select(small, shift + k, shift)
    out = cast(high | cast(ne(low, 0), "uint32"), "float32") * bitcast((127 + 32 - shift) << 23, "float32")
    return select(negative, -out, out) if signed else out


def _philox(key: Sequence[Expr], position: Words) -> Expr:
    """``elements.philox_word``, in 32-bit arithmetic."""
    from firebrick.scalar.elements import PHILOX

    m0, m1, w0, w1 = PHILOX
    block = shifted_right(position, Words(const(2, "uint32"), const(0, "uint32")), signed=False)
    c = [block.low, block.high, key[2], key[3]]
    k0, k1 = key[0], key[1]
    for _ in range(10):
        p0, p1 = product_of_words(c[0], const(m0, "uint32")), product_of_words(c[2], const(m1, "uint32"))
        c = [p1.high ^ c[1] ^ k0, p1.low, p0.high ^ c[3] ^ k1, p0.low]
        k0, k1 = k0 + w0, k1 + w1
    word = position.low & 3
    return select(eq(word & 2, 0), select(eq(word & 1, 0), c[0], c[1]), select(eq(word & 1, 0), c[2], c[3]))
