"""Kernels written by hand, each with a launch and what NumPy makes of the same arrays."""

from __future__ import annotations

import math as pymath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from firebrick.compiler.kernel import ArrayParameter, Assign, Check, For, Function, If, Let, ScalarParameter, Store, While
from firebrick.scalar import math
from firebrick.scalar.expr import Expr, Number, binary, cast, const, eq, local, maximum, minimum, ne, select
from firebrick.scalar.storage import STORAGE, computed

Array = np.ndarray[Any, Any]
DTYPES = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in STORAGE}
ITEM = local("i", "int64")
N = ScalarParameter("n")


@dataclass(frozen=True)
class Launch:
    """A kernel, the arguments of a launch, and the arrays that it makes."""

    function: Function
    arrays: dict[str, Array]
    want: dict[str, Array]
    grid: int | tuple[int, ...]
    scalars: dict[str, Number] = field(default_factory=dict)


def whole(value: int) -> Expr:
    """An int64 constant."""
    return const(value, "int64")


def _rng() -> np.random.Generator:
    return np.random.default_rng(3)


def saxpy() -> Launch:
    x, y, a = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "read_write"), ScalarParameter("a", "float32")
    f = Function("saxpy", (x, y), (a,), "i", (Store("y", ITEM, a.value * x[ITEM] + y[ITEM]),))
    xs, ys = _rng().normal(size=(2, 100)).astype(np.float32)
    return Launch(f, {"x": xs, "y": ys}, {"y": np.float32(1.5) * xs + ys}, 100, {"a": 1.5})


def row_sum() -> Launch:
    x, y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write")
    total, stride = Let("total", const(0.0, "float32")), ScalarParameter("stride")
    j = local("j", "int64")
    add = For("j", whole(0), N.value, 1, (Assign("total", total.local + x[ITEM * stride.value + j]),))
    f = Function("row_sum", (x, y), (N, stride), "i", (total, add, Store("y", ITEM, total.local)))
    xs = _rng().normal(size=(20, 17)).astype(np.float32)
    want = np.zeros(20, np.float32)
    for k in range(13):
        want = want + xs[:, k]
    return Launch(f, {"x": xs.ravel(), "y": np.zeros(20, np.float32)}, {"y": want}, 20, {"n": 13, "stride": 17})


def gcd() -> Launch:
    x, y, z = ArrayParameter("x", "int64"), ArrayParameter("y", "int64"), ArrayParameter("z", "int64", "write")
    a, b = Let("a", x[ITEM]), Let("b", y[ITEM])
    rest = Let("rest", binary("rem", a.local, b.local))
    loop = While(ne(b.local, 0), (rest, Assign("a", b.local), Assign("b", rest.local)))
    f = Function("gcd", (x, y, z), (), "i", (a, b, loop, Store("z", ITEM, a.local)))
    xs, ys = _rng().integers(0, 10_000, (2, 300))
    return Launch(f, {"x": xs, "y": ys, "z": np.zeros(300, np.int64)}, {"z": np.gcd(xs, ys)}, 300)


def prefix_sum() -> Launch:
    """One item a row; each sum is stored and read again."""
    x, y = ArrayParameter("x", "int32"), ArrayParameter("y", "int32", "read_write")
    j = local("j", "int64")
    at = Let("at", ITEM * N.value + j)
    before = Let("before", const(0, "int32"))
    add = If(j > 0, (Assign("before", y[at.local - 1]),))
    loop = For("j", whole(0), N.value, 1, (at, before, add, Store("y", at.local, before.local + x[at.local])))
    f = Function("prefix_sum", (x, y), (N,), "i", (loop,))
    xs = _rng().integers(-(2**31), 2**31, (9, 11), np.int32)
    want = np.cumsum(xs, 1, dtype=np.int32).ravel()
    return Launch(f, {"x": xs.ravel(), "y": np.zeros(99, np.int32)}, {"y": want}, 9, {"n": 11})


def collatz() -> Launch:
    """Branches in a loop, both of which assign."""
    x, y = ArrayParameter("x", "uint32"), ArrayParameter("y", "uint8", "write")
    n, steps = Let("n", x[ITEM]), Let("steps", const(0, "uint8"))
    even = If(
        eq(n.local & 1, 0), (Assign("n", n.local >> 1),), (Assign("n", n.local * 3 + 1), Assign("steps", steps.local + 1))
    )
    loop = While(n.local > 1, (even, Assign("steps", steps.local + 1)))
    f = Function("collatz", (x, y), (), "i", (n, steps, loop, Store("y", ITEM, steps.local)))
    xs = _rng().integers(1, 1000, 200, np.uint32)

    def count(n: int) -> int:
        found = 0
        while n > 1:
            n, found = (n // 2, found + 1) if n % 2 == 0 else (3 * n + 1, found + 2)
        return found

    want = np.array([count(int(n)) for n in xs]).astype(np.uint8)
    return Launch(f, {"x": xs, "y": np.zeros(200, np.uint8)}, {"y": want}, 200)


def clamped_or_not() -> Launch:
    """If and else that store to different arrays."""
    x, low, high = (ArrayParameter(n, "float64", "read" if n == "x" else "write") for n in ("x", "low", "high"))
    value = Let("value", x[ITEM])
    split = If(value.local < 0.0, (Store("low", ITEM, -value.local),), (Store("high", ITEM, value.local),))
    f = Function("clamped_or_not", (x, low, high), (), "i", (value, split))
    xs = _rng().normal(size=64)
    want = {"low": np.where(xs < 0, -xs, 0), "high": np.where(xs < 0, 0, xs)}
    return Launch(f, {"x": xs, "low": np.zeros(64), "high": np.zeros(64)}, want, 64)


def gather() -> Launch:
    """Indices counted from the end if negative, reported if out of range, and clamped."""
    x, at, y = ArrayParameter("x", "float32"), ArrayParameter("at", "int16"), ArrayParameter("y", "float32", "write")
    given = Let("given", cast(at[ITEM], "int64"))
    front = Let("front", select(given.local < 0, given.local + N.value, given.local))
    inside = Check((front.local >= 0) & (front.local < N.value), 7, given.local)
    safe = minimum(maximum(front.local, 0), N.value - 1)
    f = Function("gather", (x, at, y), (N,), "i", (given, front, inside, Store("y", ITEM, x[safe])))
    xs, places = _rng().normal(size=10).astype(np.float32), _rng().integers(-10, 10, 50, np.int16)
    return Launch(f, {"x": xs, "at": places, "y": np.zeros(50, np.float32)}, {"y": xs[places]}, 50, {"n": 10})


def halves() -> Launch:
    """Sums of both half precisions, in float32, rounded by the store."""
    parameters = tuple(ArrayParameter(n, d, a) for n, d, a in (
        ("x", "float16", "read"), ("y", "bfloat16", "read"), ("p", "float16", "write"), ("q", "bfloat16", "write"),
    ))  # fmt: skip
    x, y, _, _ = parameters
    total = Let("total", x[ITEM] * 3.0 + y[ITEM])
    f = Function("halves", parameters, (), "i", (total, Store("p", ITEM, total.local), Store("q", ITEM, total.local)))
    # every bit pattern of a float16, denormals, infinities and NaN included
    xs = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    ys = np.arange(1 << 16, dtype=np.uint16)[::-1].copy().view(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        sums = xs.astype(np.float32) * np.float32(3) + ys.astype(np.float32)
        want = {"p": sums.astype(np.float16), "q": sums.astype(ml_dtypes.bfloat16)}
    return Launch(f, {"x": xs, "y": ys, "p": np.zeros_like(xs), "q": np.zeros_like(ys)}, want, 1 << 16)


def copies(dtype: str) -> Launch:
    """Elements of a dtype in reverse order, and a scalar argument of it beyond them."""
    x, y = ArrayParameter("x", dtype), ArrayParameter("y", dtype, "write")
    fill = ScalarParameter("fill", computed(dtype))
    inside = If(~(N.value <= ITEM), (Store("y", ITEM, x[N.value - 1 - ITEM]),), (Store("y", ITEM, fill.value),))
    f = Function(f"copies_{dtype}", (x, y), (N, fill), "i", (inside,))
    raw = _rng().integers(0, 256, 64 * DTYPES[dtype].itemsize).astype(np.uint8)
    xs = (raw & 1).astype(bool) if dtype == "bool" else raw.view(DTYPES[dtype])
    one: Number = True if dtype == "bool" else 1.0 if "float" in dtype else 1
    want = np.concatenate([xs[:60][::-1], np.full(10, one, DTYPES[dtype])])
    return Launch(f, {"x": xs, "y": np.zeros(70, DTYPES[dtype])}, {"y": want}, 70, {"n": 60, "fill": one})


def exponentials() -> Launch:
    """A long expression, and one more inside a loop that counts in threes."""
    x, y = ArrayParameter("x", "float64"), ArrayParameter("y", "float64", "write")
    total, j = Let("total", const(0.0, "float64")), local("j", "int64")
    loop = For("j", whole(-5), N.value, 3, (Assign("total", total.local + math.exp(x[ITEM] * cast(j, "float64"))),))
    f = Function("exponentials", (x, y), (N,), "i", (total, loop, Store("y", ITEM, total.local)))
    xs = _rng().normal(size=40)
    want = np.array([sum(pymath.exp(v * k) for k in range(-5, 6, 3)) for v in xs])
    return Launch(f, {"x": xs, "y": np.zeros(40)}, {"y": want}, 40, {"n": 6})


WRITTEN: dict[str, Callable[[], Launch]] = {
    f.__name__: f
    for f in (saxpy, row_sum, gcd, prefix_sum, collatz, clamped_or_not, gather, halves, exponentials)
} | {f"copies of {d}": lambda d=d: copies(d) for d in STORAGE}  # fmt: skip
