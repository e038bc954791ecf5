"""``window``: one number of each window of a plane, by an operation of two numbers: pooling of two spatial axes.

An item has a result. Neighbouring items read neighbouring elements, which the caches keep for the windows that overlap.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.intrinsics import group, lane
from firebrick.compiler.templates.epilogues import Elementwise, same
from firebrick.compiler.templates.template import Template, constant, holds, operand, result, template
from firebrick.compiler.templates.tiled_convolution import GEOMETRY, OUT_SIZES, within_reach
from firebrick.core.dtypes import DType


@lru_cache(maxsize=64)
def window(combine: Elementwise, first: float, prologue: Elementwise = same, epilogue: Elementwise = same) -> Template:
    """The template of a reduction of windows.

    Args:
        combine: Operation of two numbers.
        first: Its neutral element, which the padding has too.
        prologue: What each element is replaced by.
        epilogue: What each result is replaced by.

    Returns:
        Kernel of ``x`` [planes, height, width] → ``out`` [planes, positions], with the constants of ``GEOMETRY``.
    """

    @template(
        {
            "x": operand(None, "planes, height, width"),
            "out": result("x", f"planes, {OUT_SIZES['h']} * {OUT_SIZES['w']}"), "group_size": constant(int),
            "of": constant(DType), **GEOMETRY,
        },
        f"planes, ({OUT_SIZES['h']} * {OUT_SIZES['w']} + group_size - 1) // group_size", "group_size",
        lambda launch: within_reach(launch) and holds(first, launch),
    )  # fmt: skip
    def window(
        x: Any, out: Any, group_size: int, of: Any, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, padding_h: int,
        padding_w: int, dilation_h: int, dilation_w: int,
    ) -> None:  # fmt: skip
        plane, block = group()
        place = block * group_size + lane()
        out_w = (x.shape[2] + 2 * padding_w - dilation_w * (kernel_w - 1) - 1) // stride_w + 1
        if place < out.shape[1]:
            from_h = place // out_w * stride_h - padding_h
            from_w = place % out_w * stride_w - padding_w
            total = of(first)
            for i in range(kernel_h):
                at_h = from_h + i * dilation_h
                if at_h >= 0 and at_h < x.shape[1]:
                    for j in range(kernel_w):
                        at_w = from_w + j * dilation_w
                        if at_w >= 0 and at_w < x.shape[2]:
                            total = combine(total, prologue(of(x[plane, at_h, at_w])))
            out[plane, place] = epilogue(total)

    return window
