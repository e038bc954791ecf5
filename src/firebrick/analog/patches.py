"""Patches of images as rows, and sums of such rows back into images, line by line of the patches.

A *line* of an image, or of a patch, is its elements along the last axis: of a patch these are neighbours in the image and in
the result, so they are read and written as vectors. A *row* of patches has one position along all axes but the last. Lines of
an image are sums of lines of patches, in the order of the patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from firebrick.analog.typed_kernel import reads
from firebrick.compiler.kernel.language.annotations import ArrayType, ConstantType, sizes_of
from firebrick.core.bind import bind
from firebrick.core.dtypes import float32, float64, int32, int64
from firebrick.core.hooks import hooks
from firebrick.core.op import Batching, Forward, Op, Vjp
from firebrick.core.tensor import Tensor
from firebrick.functions.kernels import Kernel, kernel, operation
from firebrick.functions.movement import reshape
from firebrick.functions.windows import Widths, pad, patch_rows, patch_sizes

int32_of: Any = int32
"""The cast to int32, in kernels."""
LANES = 16
"""Elements of a line of an image that are summed together."""
_TABLES: dict[str, Any] = {"row_at": reads(int64, "rows"), "line_at": reads(int64, "lines")}
_CONSTANTS: dict[str, Any] = {"step": ConstantType(int), "channels": ConstantType(int)}
_IMAGES, _PATCHES = sizes_of("batch, image_lines, length"), sizes_of("batch, rows, across, lines, width")


def _of(function: Any, grid: str, group: int = 0, **types: Any) -> Kernel:
    function.__annotations__ = types
    return kernel(grid=grid, group=group, unchecked=True)(function)  # tables are made below


def _taken(x: Any, row_at: Any, line_at: Any, across: Any, width: Any, step: Any, channels: Any, out: Any) -> None:
    b, row, patch, j = kernel.index()
    for line in range(line_at.shape[0]):
        out[b, row, patch, line, j] = x[b, row_at[row] + line_at[line], patch * step + j]


def _summed(patches: Any, row_at: Any, line_at: Any, image_lines: Any, length: Any, step: Any, channels: Any, out: Any) -> None:
    b, part = kernel.group()
    i, width = part * LANES + kernel.lane(), patches.shape[4]
    begin = max((part * LANES - width) // step + 1, 0)  # the patches that reach these elements
    end = min((part * LANES + LANES - 1) // step + 1, patches.shape[2])
    lines = patches.shape[3] // channels
    for row in range(row_at.shape[0]):
        for line in range(lines):
            for c in range(channels):  # neighbouring lines of an image would wait for each other
                if i < length:
                    at = row_at[row] + line_at[c * lines + line]
                    total = out[b, at, i]
                    for patch in range(begin, end):
                        inside = 0 <= int32_of(i) - int32_of(patch * step) < int32_of(width)
                        total += patches[b, row, patch, c * lines + line, i - patch * step] if inside else 0.0
                    out[b, at, i] = total


taken = _of(
    _taken, "batch, rows, across, width", x=ArrayType("In", None, _IMAGES), **_TABLES, across=int, width=int,
    **_CONSTANTS, out=ArrayType("Out", "x", _PATCHES, unread=True),  # the loop stores all lines
)  # fmt: skip
summed = _of(
    _summed, f"batch, (length + {LANES - 1}) // {LANES}", LANES, patches=ArrayType("In", None, _PATCHES), **_TABLES,
    image_lines=int, length=int, **_CONSTANTS, out=ArrayType("Out", "patches", _IMAGES, 0),
)  # fmt: skip


def _rows(x: Tensor, tables: Sequence[Tensor], across: int, width: int, **constants: int) -> Tensor:
    """The patches [batch, rows, across, lines, width] of images [batch, lines, length]."""
    _, operands, params = taken.operation(x, *tables, across, width, **constants)
    found: Tensor = bind(_operation(True), operands, params)
    return found


def _images(patches: Tensor, tables: Sequence[Tensor], lines: int, length: int, **constants: int) -> Tensor:
    """The images that patches sum to."""
    _, operands, params = summed.operation(patches, *tables, lines, length, **constants)
    found: Tensor = bind(_operation(False), operands, params)
    return found


@lru_cache(maxsize=2)
def _operation(taking: bool) -> Op:
    """``taken`` or ``summed`` as an operation that is linear in its first operand: each is the gradient of the other."""

    def pull(g: Any, r: Vjp) -> tuple[Tensor | None, ...]:
        g, (x, *tables), constants = g[0] if isinstance(g, tuple) else g, r.inputs, dict(r.params["constants"])
        back = (
            _images(g, tables, *x.shape[1:], **constants) if taking else _rows(g, tables, x.shape[2], x.shape[4], **constants)
        )
        return back, None, None

    def push(r: Forward) -> Any:
        return None if r.tangents[0] is None else r.op(r.tangents[0], *r.operands[1:], **r.params)

    def of_examples(b: Batching) -> Any:
        if not b.mapped[0] or any(b.mapped[1:]):
            return None
        (x, *tables), batch = b.operands, b.shapes[0][0]
        found = b.op(reshape(x, (b.size * batch, *x.shape[2:])), *tables, **b.params)
        return reshape(found, (b.size, batch, *found.shape[1:]))

    own = taken if taking else summed
    program = own.program((float32, int64, int64), {"constants": (("step", 1), ("channels", 1)), "captures": None})
    return replace(operation(own, program, elementwise=False), vjp=pull, jvp=push, batch=of_examples, residuals=("inputs",))


@lru_cache(maxsize=256)
def _tables(
    image: tuple[int, ...], sizes: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Numbers of the lines of an image: where each row of patches begins, and each line of a patch, from where that begins.

    Args:
        image: Channels, and sizes of the axes of the image but the last.
        sizes: Patches along each of these axes.
        kernel: As of ``patch_rows``, of these axes.
        stride: Likewise.
        dilation: Likewise.
    """
    rows, lines = np.zeros(1, np.int64), np.arange(image[0])
    for n, many, k, s, d in zip(image[1:], sizes, kernel, stride, dilation, strict=True):
        rows = (rows[:, None] * n + np.arange(many) * s).reshape(-1)
        lines = (lines[:, None] * n + np.arange(k) * d).reshape(-1)
    return rows, lines


def patches(
    where: str, x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], padding: Widths, dilation: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    """The patches that a convolution looks at, as rows: what ``patch_rows`` returns, of the same arguments."""
    fits = x.size > 0 and x.dtype in (float32, float64) and dilation[-1] == 1 and kernel[-1] > 1
    if not fits or x.device.engine != "cpu":
        return patch_rows(where, x, kernel, stride, padding, dilation)
    sizes = patch_sizes(where, x.shape[2:], kernel, stride, padding, dilation)
    x = pad(x, ((0, 0), (0, 0), *padding)) if any(map(any, padding)) else x
    (batch, channels, *image), length = x.shape[:-1], x.shape[-1]
    made = _tables((channels, *image), sizes[:-1], kernel[:-1], stride[:-1], dilation[:-1])
    tables = [hooks.from_host(t, x.device) for t in made]
    lines = reshape(x, (batch, channels * prod(image), length))
    rows = _rows(lines, tables, sizes[-1], kernel[-1], step=stride[-1], channels=channels)
    return reshape(rows, (batch, prod(sizes), channels * prod(kernel))), sizes
