"""Convolutions of two spatial axes, and their gradients, as implicit products (``tiles``): the matrix of patches is not stored.

Rows are outputs (forward and of weights) or channels (of inputs), steps and columns are positions of arrays and of the kernel,
which the functions that read an operand decode. Arrays are [batch, channels, height, width]. The sizes of the kernel, its
strides, dilations and the padding are compile-time constants, so most divisions are by constants; indices are int32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import group, registers, shared
from firebrick.compiler.templates.epilogues import Elementwise, same
from firebrick.compiler.templates.template import Template, TemplateProblem, constant, operand, result, template
from firebrick.compiler.templates.tiles import PADDING, TYPES, no_notes, store_results, tiled, whole_tiles
from firebrick.core import dtypes

int32: Any = dtypes.int32
int64: Any = dtypes.int64

_AXES = ("kernel", "stride", "padding", "dilation")
GEOMETRY = {f"{what}_{axis}": constant(int) for what in _AXES for axis in "hw"}
"""The constants of a convolution, for each axis."""
OUT_SIZES = {
    axis: f"(({size} + 2 * padding_{axis} - dilation_{axis} * (kernel_{axis} - 1) - 1) // stride_{axis} + 1)"
    for axis, size in (("h", "height"), ("w", "width"))
}
"""The size of a result along each axis."""
_OUTSIDE = -(1 << 30)
"""A position that is outside of every array, whatever a kernel adds to it."""


def valid_for(problem: TemplateProblem, constants: Mapping[str, Any]) -> bool:
    """One group of channels; arrays of fewer than 2^31 elements; any other sizes."""
    return problem.sizes.get("groups", 1) == 1 and problem.sizes.get("elements", 0) < 1 << 31 and whole_tiles(constants)


@HelperFunction
def note_position(arrays: Any, notes: Any, part: Any, column: Any) -> None:
    """Note image, row and column of a position of all images: ``arrays`` ends in the number of them, height and width, and
    strides and offsets of the two axes."""
    images, height, width, stride_h, stride_w, offset_h, offset_w = arrays[1]
    size = height * width
    image = int32(column) // int32(size)
    place = int32(column) % int32(size)
    inside = image < int32(images)
    notes[part, 0] = int64(image)
    notes[part, 1] = int64(place // int32(width)) * stride_h + offset_h if inside else _OUTSIDE
    notes[part, 2] = int64(place % int32(width)) * stride_w + offset_w if inside else _OUTSIDE


@lru_cache(maxsize=64)
def convolution(prologue: Elementwise = same, epilogue: Elementwise = same) -> Template:
    """The template of a convolution.

    Args:
        prologue: What each element of ``x`` is replaced by.
        epilogue: What each result is replaced by.

    Returns:
        Kernel of ``x`` [batch, channels, height, width] and ``weight`` [outputs, channels · kernel_h · kernel_w] → ``out``
        [batch, outputs, positions], with the constants of ``TYPES`` and ``GEOMETRY``.
    """

    @HelperFunction
    def read_weight(arrays: Any, notes: Any, held: Any, part: Any, row: Any, step: Any) -> None:
        weight, of = arrays
        held[part, 0] = of(0)
        if row < weight.shape[0] and step < weight.shape[1]:
            held[part, 0] = of(weight[row, step])

    @HelperFunction
    def read_patch(arrays: Any, notes: Any, held: Any, part: Any, column: Any, step: Any) -> None:
        x, kernel_h, kernel_w, dilation_h, dilation_w, of = arrays[0]
        taps = kernel_h * kernel_w
        channel = int32(step) // taps
        tap = int32(step) % taps
        at_h = notes[part, 1] + int64(tap // kernel_w) * dilation_h
        at_w = notes[part, 2] + int64(tap % kernel_w) * dilation_w
        held[part, 0] = of(0)
        if channel < int32(x.shape[1]) and at_h >= 0 and at_h < x.shape[2] and at_w >= 0 and at_w < x.shape[3]:
            held[part, 0] = prologue(of(x[notes[part, 0], channel, at_h, at_w]))

    @HelperFunction
    def write(arrays: Any, row: Any, column: Any, value: Any) -> None:
        out = arrays
        image = int32(column) // int32(out.shape[2])
        if row < out.shape[1] and image < int32(out.shape[0]):
            out[image, row, int32(column) % int32(out.shape[2])] = epilogue(value)

    @template(
        {
            "x": operand(None, "batch, channels, height, width"), "weight": operand("x", "outputs, depth"),
            "out": result("x", f"batch, outputs, {OUT_SIZES['h']} * {OUT_SIZES['w']}"), **TYPES, **GEOMETRY,
        },
        f"(outputs + tile_m - 1) // tile_m, (batch * ({OUT_SIZES['h']} * {OUT_SIZES['w']}) + tile_n - 1) // tile_n",
        "group_size", valid_for,
    )  # fmt: skip
    def convolution(
        x: Any, weight: Any, out: Any, group_size: int, tile_m: int, tile_n: int, tile_k: int, rows: int, columns: int, of: Any,
        kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, padding_h: int, padding_w: int, dilation_h: int,
        dilation_w: int,
    ) -> None:  # fmt: skip
        block_m, block_n = group()
        tile_x = shared(of, 2 * tile_k * (tile_m + PADDING))
        tile_y = shared(of, 2 * tile_k * (tile_n + PADDING))
        total = registers(of(0), (rows, columns))
        sizes = (group_size, tile_m, tile_n, tile_k, rows, columns, of)
        out_w = (x.shape[3] + 2 * padding_w - dilation_w * (kernel_w - 1) - 1) // stride_w + 1
        out_h = (x.shape[2] + 2 * padding_h - dilation_h * (kernel_h - 1) - 1) // stride_h + 1
        places = (x.shape[0], out_h, out_w, stride_h, stride_w, -padding_h, -padding_w)
        patches = ((x, kernel_h, kernel_w, dilation_h, dilation_w, of), places)
        tiled(
            ((weight, of), no_notes, read_weight, True, 1), (patches, note_position, read_patch, False, 1), total, tile_x,
            tile_y, block_m * tile_m, block_n * tile_n, 0, weight.shape[1], sizes,
        )  # fmt: skip
        store_results(total, block_m * tile_m, block_n * tile_n, write, out, sizes)

    return convolution


@lru_cache(maxsize=64)
def input_gradient(epilogue: Elementwise = same) -> Template:
    """The template of the gradient by the input.

    Taps that meet no element of the cotangent are products with 0, which are NaN for weights that are not finite;
    ``spec.parts.Part.omits`` leaves them out.

    Args:
        epilogue: What each result is replaced by.

    Returns:
        Kernel of ``cotangent`` [batch, outputs, out_h, out_w], ``weight`` [outputs, channels, kernel_h · kernel_w] and the
        numbers ``height`` and ``width`` → ``out`` [batch, channels, height · width].
    """

    @HelperFunction
    def read_weight(arrays: Any, notes: Any, held: Any, part: Any, row: Any, step: Any) -> None:
        weight, taps, of = arrays
        output = int32(step) // taps
        held[part, 0] = of(0)
        if row < weight.shape[1] and output < int32(weight.shape[0]):
            held[part, 0] = of(weight[output, row, int32(step) % taps])

    @HelperFunction
    def read_cotangent(arrays: Any, notes: Any, held: Any, part: Any, column: Any, step: Any) -> None:
        y, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, of = arrays[0]
        taps = kernel_h * kernel_w
        output = int32(step) // taps
        tap = int32(step) % taps
        from_h = int32(notes[part, 1]) - tap // kernel_w * dilation_h
        from_w = int32(notes[part, 2]) - tap % kernel_w * dilation_w
        at_h, at_w = from_h // stride_h, from_w // stride_w
        held[part, 0] = of(0)
        on_grid = at_h * stride_h == from_h and at_w * stride_w == from_w
        if (
            on_grid and output < int32(y.shape[1]) and at_h >= 0 and at_h < int32(y.shape[2])
            and at_w >= 0 and at_w < int32(y.shape[3])
        ):  # fmt: skip
            held[part, 0] = of(y[notes[part, 0], output, at_h, at_w])

    @HelperFunction
    def write(arrays: Any, row: Any, column: Any, value: Any) -> None:
        out = arrays
        image = int32(column) // int32(out.shape[2])
        if row < out.shape[1] and image < int32(out.shape[0]):
            out[image, row, int32(column) % int32(out.shape[2])] = epilogue(value)

    @template(
        {
            "cotangent": operand(None, "batch, outputs, out_h, out_w"),
            "weight": operand("cotangent", "outputs, channels, taps"), "height": int, "width": int,
            "out": result("cotangent", "batch, channels, height * width"), **TYPES, **GEOMETRY,
        },
        "(channels + tile_m - 1) // tile_m, (batch * height * width + tile_n - 1) // tile_n", "group_size", valid_for,
    )  # fmt: skip
    def input_gradient(
        cotangent: Any, weight: Any, height: Any, width: Any, out: Any, group_size: int, tile_m: int, tile_n: int, tile_k: int,
        rows: int, columns: int, of: Any, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, padding_h: int,
        padding_w: int, dilation_h: int, dilation_w: int,
    ) -> None:  # fmt: skip
        block_m, block_n = group()
        tile_x = shared(of, 2 * tile_k * (tile_m + PADDING))
        tile_y = shared(of, 2 * tile_k * (tile_n + PADDING))
        total = registers(of(0), (rows, columns))
        sizes = (group_size, tile_m, tile_n, tile_k, rows, columns, of)
        places = (cotangent.shape[0], height, width, 1, 1, padding_h, padding_w)
        patches = ((cotangent, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, of), places)
        tiled(
            ((weight, kernel_h * kernel_w, of), no_notes, read_weight, True, 1),
            (patches, note_position, read_cotangent, False, 1), total, tile_x, tile_y,
            block_m * tile_m, block_n * tile_n, 0, weight.shape[0] * (kernel_h * kernel_w), sizes,
        )  # fmt: skip
        store_results(total, block_m * tile_m, block_n * tile_n, write, out, sizes)

    return input_gradient


@lru_cache(maxsize=64)
def weight_gradient() -> Template:
    """The template of the gradient by the weight.

    Returns:
        Kernel of ``cotangent`` [batch, outputs, out_h, out_w] and ``x`` [batch, channels, height, width] → ``out`` [splits,
        outputs, channels · kernel_h · kernel_w], whose sum over the first axis is the gradient: the constant ``splits`` is the
        number of parts that the positions of all images are cut into.
    """

    @HelperFunction
    def read_cotangent(arrays: Any, notes: Any, held: Any, part: Any, row: Any, step: Any) -> None:
        y, end, of = arrays
        positions = int32(y.shape[2] * y.shape[3])
        place = int32(step) % positions
        held[part, 0] = of(0)
        if row < y.shape[1] and step < end:
            held[part, 0] = of(y[int32(step) // positions, row, place // int32(y.shape[3]), place % int32(y.shape[3])])

    @HelperFunction
    def note_tap(arrays: Any, notes: Any, part: Any, column: Any) -> None:
        x, _, kernel_h, kernel_w, _, _, padding_h, padding_w, dilation_h, dilation_w, _, _ = arrays
        taps = kernel_h * kernel_w
        channel = int32(column) // taps
        tap = int32(column) % taps
        notes[part, 0] = int64(channel)
        notes[part, 1] = int64(tap // kernel_w) * dilation_h - padding_h if channel < int32(x.shape[1]) else _OUTSIDE
        notes[part, 2] = int64(tap % kernel_w) * dilation_w - padding_w

    @HelperFunction
    def read_patch(arrays: Any, notes: Any, held: Any, part: Any, column: Any, step: Any) -> None:
        x, y, _, _, stride_h, stride_w, _, _, _, _, end, of = arrays
        positions = int32(y.shape[2] * y.shape[3])
        place = int32(step) % positions
        at_h = notes[part, 1] + int64(place // int32(y.shape[3])) * stride_h
        at_w = notes[part, 2] + int64(place % int32(y.shape[3])) * stride_w
        held[part, 0] = of(0)
        if step < end and at_h >= 0 and at_h < x.shape[2] and at_w >= 0 and at_w < x.shape[3]:
            held[part, 0] = of(x[int32(step) // positions, notes[part, 0], at_h, at_w])

    @HelperFunction
    def write(arrays: Any, row: Any, column: Any, value: Any) -> None:
        out, split = arrays
        if row < out.shape[1] and column < out.shape[2]:
            out[split, row, column] = value

    @template(
        {
            "cotangent": operand(None, "batch, outputs, out_h, out_w"),
            "x": operand("cotangent", "batch, channels, height, width"),
            "out": result("x", "splits, outputs, channels * kernel_h * kernel_w"), "splits": constant(int), **TYPES, **GEOMETRY,
        },
        "splits, (outputs + tile_m - 1) // tile_m, (channels * kernel_h * kernel_w + tile_n - 1) // tile_n", "group_size",
        valid_for,
    )  # fmt: skip
    def weight_gradient(
        cotangent: Any, x: Any, out: Any, splits: int, group_size: int, tile_m: int, tile_n: int, tile_k: int, rows: int,
        columns: int, of: Any, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, padding_h: int, padding_w: int,
        dilation_h: int, dilation_w: int,
    ) -> None:  # fmt: skip
        split, block_m, block_n = group()
        tile_x = shared(of, 2 * tile_k * (tile_m + PADDING))
        tile_y = shared(of, 2 * tile_k * (tile_n + PADDING))
        total = registers(of(0), (rows, columns))
        sizes = (group_size, tile_m, tile_n, tile_k, rows, columns, of)
        steps = cotangent.shape[0] * cotangent.shape[2] * cotangent.shape[3]
        each = (steps + splits * tile_k - 1) // (splits * tile_k) * tile_k
        begin = min(split * each, steps)
        end = min(begin + each, steps)
        patches = (
            x, cotangent, kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, end, of,
        )  # fmt: skip
        tiled(
            ((cotangent, end, of), no_notes, read_cotangent, True, 1), (patches, note_tap, read_patch, True, 1), total, tile_x,
            tile_y, block_m * tile_m, block_n * tile_n, begin, end, sizes,
        )  # fmt: skip
        store_results(total, block_m * tile_m, block_n * tile_n, write, (out, split), sizes)

    return weight_gradient
