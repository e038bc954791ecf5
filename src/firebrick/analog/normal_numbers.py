"""Normal and uniform numbers of a counter-based stream, in kernels and as tensors.

Source: Box, Muller, "A note on the generation of random normal deviates", 1958.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.analog.typed_kernel import reads, results, typed_kernel
from firebrick.compiler.kernel.language.calls import InlinedExpression
from firebrick.core.dtypes import float32, uint32
from firebrick.core.tensor import Tensor
from firebrick.functions.kernels import kernel
from firebrick.scalar.expr import Expr, bitcast, cast, const, load, ne, polynomial, select
from firebrick.scalar.math import log_of_normal

word_of: Any = uint32
"""The cast to uint32, in kernels."""
SINE = (0.9999999969177027, -0.1666665067399689, 0.00833203578560889, -0.0001950390425188647)
"""sin(x) / x by powers of x², for |x| ≤ π / 4: interpolated at the nodes of Chebyshev."""
COSINE = (
    0.9999999999524892, -0.4999999961485759, 0.041666616692532694, -0.001388661799974949, 2.437983126404197e-05,
)  # fmt: skip
"""cos(x) likewise."""


def _pair() -> tuple[Expr, Expr]:
    """Two normal numbers of two random words.

    The first word is the radius √(-2 log v), v = (⌊word / 2⌋ + 1) / 2^31. Of the second, 30 bits are an angle in [-π/4, π/4),
    and two bits turn the point by a multiple of a right angle. The square root is a reciprocal one by three steps of Newton's
    method, from an estimate by its exponent: a square root of the processor takes as long as all the rest.
    """
    of_radius, of_angle = load(0, "uint32"), load(1, "uint32")
    v = (cast(cast(of_radius >> 1, "int32"), "float32") + 1.0) * 2.0**-31
    square = log_of_normal(v) * -2.0
    inverse = bitcast(const(0x5F375A86, "int32") - (bitcast(square, "int32") >> 1), "float32")
    half = square * 0.5
    for _ in range(3):
        inverse = inverse * (1.5 - half * inverse * inverse)
    radius = square * inverse
    angle = cast(cast(of_angle & 0x3FFFFFFF, "int32") - 0x20000000, "float32") * (math.pi / 2**31)
    t = angle * angle
    sine = angle * polynomial(t, SINE)
    turned = bitcast(polynomial(t, COSINE), "uint32") ^ (of_angle & 0x80000000)
    cosine = bitcast(turned, "float32")
    swap = ne(of_angle & 0x40000000, 0)
    return select(swap, sine, cosine) * radius, select(swap, cosine, sine) * radius


_FIRST, _SECOND = (InlinedExpression("a normal number", e) for e in _pair())


@kernel.function
def normal_pair(key: Any, position: Any) -> Any:
    """Two normal numbers, from the random words at an even position and behind it."""
    a, b = kernel.random_bits(key, position), kernel.random_bits(key, position + 1)
    return _FIRST(a, b), _SECOND(a, b)


@kernel.function
def normal_block(key: Any, block: Any) -> Any:
    """Four normal numbers, from a block of four random words."""
    a, b = normal_pair(key, 4 * block)
    c, d = normal_pair(key, 4 * block + 2)
    return a, b, c, d


@kernel.function
def normal_of_block(key: Any, block: Any, number: Any) -> Any:
    """One of the four numbers of ``normal_block``."""
    a, b = kernel.random_bits(key, 4 * block), kernel.random_bits(key, 4 * block + 1)
    c, d = kernel.random_bits(key, 4 * block + 2), kernel.random_bits(key, 4 * block + 3)
    of_radius, of_angle = (c if number >= 2 else a), (d if number >= 2 else b)
    one, other = _FIRST(of_radius, of_angle), _SECOND(of_radius, of_angle)
    return other if number & 1 != 0 else one


_DRAW: dict[str, Any] = {
    "key": reads(uint32, "4"), "rows": int, "columns": int, "stream": int, "out": results(float32, "rows, columns"),
}  # fmt: skip
_OF_ROWS: dict[str, Any] = {
    "key": reads(uint32, "4"), "rows": int, "columns": int, "stream": int, "first": int,
    "out": results(float32, "rows, columns"),
}  # fmt: skip
LANES = 32
"""Blocks of numbers that are made together: two registers of AVX-512, each of which hides that the other one waits."""
VECTORS = 2
"""How many times as many a group makes."""


@typed_kernel(
    f"(rows * ((columns + 3) // 4) + {VECTORS * LANES - 1}) // {VECTORS * LANES}", group=LANES, unchecked=True,
    key=reads(uint32, "4"), rows=int, columns=int, stream=int, height=int, first=int,
    out=results(float32, "rows, columns", unread=True),
)  # fmt: skip
def _normals(key: Any, rows: Any, columns: Any, stream: Any, height: Any, first: Any, out: Any) -> None:
    """Normal numbers of rows ``first``, ``first`` + 1, … of a draw of ``height`` rows.

    Blocks of neighbouring rows follow each other, so lanes take them one after the other, and store row by row. Of each block a
    number is in each quarter of the row, so that neighbouring blocks store side by side.
    """
    blocks = (columns + 3) // 4
    lane = kernel.lane()
    for begin in range(VECTORS * LANES * kernel.group(), min(VECTORS * LANES * (kernel.group() + 1), rows * blocks), LANES):
        found = normal_block(key, (stream * height + first) * blocks + begin + lane)
        for i in range(begin // blocks, (min(begin + LANES, rows * blocks) - 1) // blocks + 1):
            before = i * blocks - begin  # lanes before the row
            place = word_of(lane) - word_of(max(before, 0))
            for c in kernel.unrolled(4):
                behind = min(before + min(blocks, columns - c * blocks), LANES)
                if place < word_of(max(behind - max(before, 0), 0)):
                    out[i, c * blocks - before + lane] = found[c]


def normals(key: Tensor, rows: int, columns: int, stream: Any) -> Tensor:
    """Independent normal numbers, float32 [rows, columns].

    Args:
        key: Of the stream.
        rows: Number of rows.
        columns: Number of columns.
        stream: Number of the draw with this key; different ones are independent.
    """
    found: Tensor = _normals(key, rows, columns, stream, rows, 0)
    return found


def normals_of_rows(key: Tensor, rows: int, columns: int, stream: Any, first: int) -> Tensor:
    """Normal numbers of rows ``first``, ``first`` + 1, … of a draw of 2^32 rows; other arguments as of ``normals``."""
    found: Tensor = _normals(key, rows, columns, stream, 1 << 32, first)
    return found


@typed_kernel("rows, columns", **_DRAW)
def uniforms(key: Any, rows: Any, columns: Any, stream: Any, out: Any) -> None:
    """Uniform numbers [rows, columns] in [0, 1); arguments as of ``normals``."""
    i, j = kernel.index()
    out[i, j] = kernel.random_uniform(key, (stream * rows + i) * (4 * ((columns + 3) // 4)) + j)


@typed_kernel("rows, columns", **_OF_ROWS)
def uniforms_of_rows(key: Any, rows: Any, columns: Any, stream: Any, first: Any, out: Any) -> None:
    """Uniform numbers in [0, 1) of rows ``first``, ``first`` + 1, … of 2^32 rows; other arguments as of ``normals``."""
    i, j = kernel.index()
    out[i, j] = kernel.random_uniform(key, ((stream << 32) + first + i) * (4 * ((columns + 3) // 4)) + j)
