"""Normal and uniform numbers of a counter-based stream, in kernels and as tensors.

Source: Box, Muller, "A note on the generation of random normal deviates", 1958.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.analog.typed_kernel import reads, results, typed_kernel
from firebrick.core.dtypes import float32, uint32
from firebrick.functions.kernels import kernel


@kernel.function
def normal_pair(key: Any, position: Any) -> Any:
    """Two normal numbers, from the uniform ones at an even position and behind it."""
    radius = math.sqrt(-2.0 * math.log(1.0 - kernel.random_uniform(key, position)))
    angle = 6.283185307179586 * kernel.random_uniform(key, position + 1)
    return radius * math.cos(angle), radius * math.sin(angle)


@kernel.function
def normal_block(key: Any, block: Any) -> Any:
    """Four normal numbers, from a block of four random words."""
    a, b = normal_pair(key, 4 * block)
    c, d = normal_pair(key, 4 * block + 2)
    return a, b, c, d


_DRAW: dict[str, Any] = {
    "key": reads(uint32, "4"), "rows": int, "columns": int, "stream": int, "out": results(float32, "rows, columns"),
}  # fmt: skip


@typed_kernel("rows, (columns + 1) // 2", **_DRAW)
def normals(key: Any, rows: Any, columns: Any, stream: Any, out: Any) -> None:
    """Independent normal numbers [rows, columns].

    Args:
        key: Of the stream.
        rows: Number of rows.
        columns: Number of columns.
        stream: Number of the draw with this key; different ones are independent.
        out: The numbers.
    """
    i, half = kernel.index()
    place = 2 * ((stream * rows + i) * ((columns + 1) // 2) + half)
    first, second = normal_pair(key, place)
    out[i, 2 * half] = first
    if 2 * half + 1 < columns:
        out[i, 2 * half + 1] = second


@typed_kernel("rows, columns", **_DRAW)
def uniforms(key: Any, rows: Any, columns: Any, stream: Any, out: Any) -> None:
    """Uniform numbers [rows, columns] in [0, 1); arguments as of ``normals``."""
    i, j = kernel.index()
    out[i, j] = kernel.random_uniform(key, (stream * rows + i) * (2 * ((columns + 1) // 2)) + j)
