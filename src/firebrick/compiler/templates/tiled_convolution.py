"""Convolutions of two spatial axes, and their gradients, as implicit products (``tiles``): the matrix of patches is not stored.

Rows are outputs (forward and of weights) or channels (of inputs), steps and columns are positions of arrays and of the kernel,
which the functions that read an operand decode. Arrays are [batch, channels, height, width]. The sizes of the kernel, its
strides, dilations and the padding are compile-time constants, so most divisions are by constants; indices are int32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction, IndexedFunction
from firebrick.compiler.kernel.language.intrinsics import group, registers, shared
from firebrick.compiler.templates.epilogues import ElementwiseOfOperands, by_index, same
from firebrick.compiler.templates.template import Template, TemplateSizes, constant, operand, result, template
from firebrick.compiler.templates.tiles import PADDING, TYPES, no_notes, store_results, tiled, whole_tiles
from firebrick.core import dtypes

int32: Any = dtypes.int32
int64: Any = dtypes.int64

_AXES = ("kernel", "stride", "padding", "dilation")
GEOMETRY = {f"{what}_{axis}": constant(int, 0 if what == "padding" else 1) for what in _AXES for axis in "hw"}
"""The constants of a convolution, for each axis."""
OUT_SIZES = {
    axis: f"(({size} + 2 * padding_{axis} - dilation_{axis} * (kernel_{axis} - 1) - 1) // stride_{axis} + 1)"
    for axis, size in (("h", "height"), ("w", "width"))
}
"""The size of a result along each axis."""
TAPS = "kernel_h * kernel_w"
"""The number of elements of the kernel."""
_OUTSIDE = -(1 << 30)
"""A position that is outside of every array, whatever a kernel adds to it."""


def within_reach(launch: TemplateSizes) -> bool:
    """Whether the window fits the padded array, and positions are so far from the limits of int32 that ``_OUTSIDE`` is."""
    s = launch.sizes
    padded = {axis: s[size] + 2 * s[f"padding_{axis}"] for axis, size in (("h", "height"), ("w", "width"))}
    steps = (s[f"{what}_{a}"] for what in ("stride", "dilation") for a in "hw")
    return max(steps) < -_OUTSIDE and all(
        s[f"dilation_{a}"] * (s[f"kernel_{a}"] - 1) < n < -_OUTSIDE for a, n in padded.items()
    )


def valid_for(launch: TemplateSizes) -> bool:
    """Arrays and tiles whose positions are int32; any other sizes. There is one group of channels."""
    s = launch.sizes
    positions = max(launch.elements, s["kernel_h"] * s["kernel_w"]) + max(s["tile_m"], s["tile_n"], s["tile_k"])
    return positions < 1 << 31 and within_reach(launch) and whole_tiles(s, 1)


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


def position_writer(epilogue: IndexedFunction) -> HelperFunction:
    """The function that stores a result [batch, rows, positions], of which a column of tiles is a position of all images.

    Args:
        epilogue: What each result is replaced by, with operands.
    """

    @HelperFunction
    def write_position(arrays: Any, row: Any, column: Any, value: Any) -> None:
        out, operands = arrays
        image = int32(column) // int32(out.shape[2])
        if row < out.shape[1] and image < int32(out.shape[0]):
            at = (image, row, int32(column) % int32(out.shape[2]))
            out[at] = epilogue(value, operands, at)

    return write_position


@lru_cache(maxsize=64)
def convolution(prologue: ElementwiseOfOperands = same, epilogue: ElementwiseOfOperands = same) -> Template:
    """The template of a convolution.

    Args:
        prologue: What each element of ``x`` is replaced by; its axes are batch, channels, height, width.
        epilogue: What each result is replaced by; its axes are batch, outputs, positions.

    Returns:
        Kernel of ``x`` [batch, channels, height, width] and ``weight`` [outputs, channels · kernel_h · kernel_w] → ``out``
        [batch, outputs, positions], with the constants of ``TYPES`` and ``GEOMETRY``. Operands of the functions are in front of
        ``out``.
    """
    positions = f"{OUT_SIZES['h']} * {OUT_SIZES['w']}"
    of_x, more_x = by_index(prologue, {n: n for n in ("batch", "channels", "height", "width")})
    of_out, more_out = by_index(epilogue, {"batch": "batch", "outputs": "outputs", "positions": positions})
    write = position_writer(of_out)

    @HelperFunction
    def read_weight(arrays: Any, notes: Any, held: Any, part: Any, row: Any, step: Any) -> None:
        weight, of = arrays
        held[part, 0] = of(0)
        if row < weight.shape[0] and step < weight.shape[1]:
            held[part, 0] = of(weight[row, step])

    @HelperFunction
    def read_patch(arrays: Any, notes: Any, held: Any, part: Any, column: Any, step: Any) -> None:
        x, more, kernel_h, kernel_w, dilation_h, dilation_w, of = arrays[0]
        taps = kernel_h * kernel_w
        channel = int32(step) // taps
        tap = int32(step) % taps
        at_h = notes[part, 1] + int64(tap // kernel_w) * dilation_h
        at_w = notes[part, 2] + int64(tap % kernel_w) * dilation_w
        held[part, 0] = of(0)
        if channel < int32(x.shape[1]) and at_h >= 0 and at_h < x.shape[2] and at_w >= 0 and at_w < x.shape[3]:
            at = (notes[part, 0], channel, at_h, at_w)
            held[part, 0] = of_x(of(x[at]), more, at)

    @template(
        {
            "x": operand(None, "batch, channels, height, width"), "weight": operand("x", f"outputs, channels * ({TAPS})"),
            "x_operands": more_x, "operands": more_out, "out": result("x", f"batch, outputs, {positions}"), **TYPES, **GEOMETRY,
        },
        f"(outputs + tile_m - 1) // tile_m, (batch * ({positions}) + tile_n - 1) // tile_n", "group_size", valid_for,
        floating=True,
    )  # fmt: skip
    def convolution(
        x: Any, weight: Any, x_operands: Any, operands: Any, out: Any, group_size: int, tile_m: int, tile_n: int, tile_k: int,
        rows: int, columns: int, of: Any, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, padding_h: int,
        padding_w: int, dilation_h: int, dilation_w: int,
    ) -> None:  # fmt: skip
        block_m, block_n = group()
        tile_x = shared(of, 2 * tile_k * (tile_m + PADDING))
        tile_y = shared(of, 2 * tile_k * (tile_n + PADDING))
        total = registers(of(0), (rows, columns))
        sizes = (group_size, tile_m, tile_n, tile_k, rows, columns, of, 0)
        out_w = (x.shape[3] + 2 * padding_w - dilation_w * (kernel_w - 1) - 1) // stride_w + 1
        out_h = (x.shape[2] + 2 * padding_h - dilation_h * (kernel_h - 1) - 1) // stride_h + 1
        places = (x.shape[0], out_h, out_w, stride_h, stride_w, -padding_h, -padding_w)
        patches = ((x, x_operands, kernel_h, kernel_w, dilation_h, dilation_w, of), places)
        tiled(
            ((weight, of), no_notes, read_weight, True, 1), (patches, note_position, read_patch, False, 1), total, tile_x,
            tile_y, block_m * tile_m, block_n * tile_n, 0, weight.shape[1], sizes,
        )  # fmt: skip
        store_results(total, block_m * tile_m, block_n * tile_n, write, (out, operands), sizes)

    return convolution


@lru_cache(maxsize=64)
def input_gradient(epilogue: ElementwiseOfOperands = same) -> Template:
    """The template of the gradient by the input.

    Taps that meet no element of the cotangent are products with 0, which are NaN for weights that are not finite;
    ``spec.parts.Part.omits`` leaves them out.

    Args:
        epilogue: What each result is replaced by; its axes are batch, channels, positions.

    Returns:
        Kernel of ``cotangent`` [batch, outputs, out_h, out_w], ``weight`` [outputs, channels, kernel_h · kernel_w] and the
        numbers ``height`` and ``width`` → ``out`` [batch, channels, height · width]. Operands of the epilogue are in front of
        ``out``.
    """
    of_out, more = by_index(epilogue, {"batch": "batch", "channels": "channels", "positions": "height * width"})
    write = position_writer(of_out)

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

    @template(
        {
            "cotangent": operand(None, f"batch, outputs, {OUT_SIZES['h']}, {OUT_SIZES['w']}"),
            "weight": operand("cotangent", f"outputs, channels, {TAPS}"), "height": int, "width": int, "operands": more,
            "out": result("cotangent", "batch, channels, height * width"), **TYPES, **GEOMETRY,
        },
        "(channels + tile_m - 1) // tile_m, (batch * height * width + tile_n - 1) // tile_n", "group_size", valid_for,
        floating=True,
    )  # fmt: skip
    def input_gradient(
        cotangent: Any, weight: Any, height: Any, width: Any, operands: Any, out: Any, group_size: int, tile_m: int,
        tile_n: int, tile_k: int, rows: int, columns: int, of: Any, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int,
        padding_h: int, padding_w: int, dilation_h: int, dilation_w: int,
    ) -> None:  # fmt: skip
        block_m, block_n = group()
        tile_x = shared(of, 2 * tile_k * (tile_m + PADDING))
        tile_y = shared(of, 2 * tile_k * (tile_n + PADDING))
        total = registers(of(0), (rows, columns))
        sizes = (group_size, tile_m, tile_n, tile_k, rows, columns, of, 0)
        places = (cotangent.shape[0], height, width, 1, 1, padding_h, padding_w)
        patches = ((cotangent, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, of), places)
        tiled(
            ((weight, kernel_h * kernel_w, of), no_notes, read_weight, True, 1),
            (patches, note_position, read_cotangent, False, 1), total, tile_x, tile_y,
            block_m * tile_m, block_n * tile_n, 0, weight.shape[0] * (kernel_h * kernel_w), sizes,
        )  # fmt: skip
        store_results(total, block_m * tile_m, block_n * tile_n, write, (out, operands), sizes)

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
            "cotangent": operand(None, f"batch, outputs, {OUT_SIZES['h']}, {OUT_SIZES['w']}"),
            "x": operand("cotangent", "batch, channels, height, width"),
            "out": result("x", f"splits, outputs, channels * ({TAPS})"), "splits": constant(int), **TYPES, **GEOMETRY,
        },
        f"splits, (outputs + tile_m - 1) // tile_m, (channels * ({TAPS}) + tile_n - 1) // tile_n", "group_size", valid_for,
        floating=True,
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
        sizes = (group_size, tile_m, tile_n, tile_k, rows, columns, of, 0)
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
