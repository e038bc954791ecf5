"""Convolutions over one to three axes, and their transposes.

x is [batch, channels, *image]; ``stride``, ``padding`` and ``dilation`` are an int for all axes of the image, or one for each.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.autocast import narrow
from firebrick.core.bind import bind
from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.ops import OPS
from firebrick.ops.convolution import places_of
from firebrick.ops.movement import reshape

Sizes = int | tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}
_KERNELS = {1: "kernel", 2: "kernel height, kernel width", 3: "kernel depth, kernel height, kernel width"}
_LAYOUTS = (
    {rank: f"[channels, out / groups, {kernel}]" for rank, kernel in _KERNELS.items()},
    {rank: f"[out, channels / groups, {kernel}]" for rank, kernel in _KERNELS.items()},
)


@answers_arguments
def conv1d(
    x: Tensor, weight: Tensor, /, bias: Tensor | None = None, *, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution (cross-correlation) over one axis; arguments as for ``fb.conv2d``.

    Args:
        x: Signals [batch, channels, length].
        weight: Kernels [out, channels / groups, kernel].
        bias: Tensor [out], or None.
        stride: An int.
        padding: An int, a pair ((before, after),), "same" (for stride 1) or "valid".
        dilation: An int.
        groups: Number of groups that channels are split into.

    Returns:
        Tensor [batch, out, out length].

    Example:
        >>> import firebrick as fb
        >>> fb.conv1d(fb.ones((1, 1, 4)), fb.ones((1, 1, 2))).tolist()
        [[[2.0, 2.0, 2.0]]]
    """
    return _conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


@answers_arguments
def conv2d(
    x: Tensor, weight: Tensor, /, bias: Tensor | None = None, *, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution (cross-correlation) over two axes.

    Args:
        x: Images [batch, channels, height, width].
        weight: Kernels [out, channels / groups, kernel height, kernel width].
        bias: Tensor [out], or None.
        stride: An int or (vertical, horizontal).
        padding: An int, (vertical, horizontal), ((top, bottom), (left, right)), "same" (for stride 1) or "valid" (none).
        dilation: An int or (vertical, horizontal).
        groups: Number of groups that channels are split into.

    Returns:
        Tensor [batch, out, out height, out width].

    Raises:
        ShapeError: Channels do not fit, groups do not divide them, padding is negative, or the dilated kernel is larger
            than the padded image.

    Example:
        >>> import firebrick as fb
        >>> fb.conv2d(fb.ones((1, 1, 3, 3)), fb.ones((1, 1, 2, 2))).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    return _conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


@answers_arguments
def conv3d(
    x: Tensor, weight: Tensor, /, bias: Tensor | None = None, *, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution (cross-correlation) over three axes; arguments as for ``fb.conv2d``.

    Args:
        x: Volumes [batch, channels, depth, height, width].
        weight: Kernels [out, channels / groups, kernel depth, kernel height, kernel width].
        bias: Tensor [out], or None.
        stride: An int, or three.
        padding: An int, three, three pairs, "same" (for stride 1) or "valid" (none).
        dilation: An int, or three.
        groups: Number of groups that channels are split into.

    Returns:
        Tensor [batch, out, out depth, out height, out width].

    Example:
        >>> import firebrick as fb
        >>> fb.conv3d(fb.ones((1, 1, 2, 2, 2)), fb.ones((1, 1, 2, 2, 2))).tolist()
        [[[[[8.0]]]]]
    """
    return _conv("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


@answers_arguments
def conv_transpose1d(
    x: Tensor, weight: Tensor, /, bias: Tensor | None = None, *, stride: Sizes = 1, padding: Any = 0,
    output_padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution over one axis; arguments as for ``fb.conv_transpose2d``.

    Args:
        x: Signals [batch, channels, length].
        weight: Kernels [channels, out / groups, kernel].
        bias: Tensor [out], or None.
        stride: An int.
        padding: An int or a pair ((before, after),).
        output_padding: An int.
        dilation: An int.
        groups: Number of groups that channels are split into.

    Returns:
        Tensor [batch, out, out length].

    Example:
        >>> import firebrick as fb
        >>> fb.conv_transpose1d(fb.ones((1, 1, 2)), fb.ones((1, 1, 2)), stride=2).tolist()
        [[[1.0, 1.0, 1.0, 1.0]]]
    """
    return _transposed("conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, dilation, groups)


@answers_arguments
def conv_transpose2d(
    x: Tensor, weight: Tensor, /, bias: Tensor | None = None, *, stride: Sizes = 1, padding: Any = 0,
    output_padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution over two axes: the gradient of ``fb.conv2d`` with these settings by its input.

    The result's sizes are (size - 1) · stride - before - after + dilation · (kernel - 1) + output_padding + 1.

    Args:
        x: Images [batch, channels, height, width].
        weight: Kernels [channels, out / groups, kernel height, kernel width].
        bias: Tensor [out], or None.
        stride: An int or (vertical, horizontal).
        padding: An int, (vertical, horizontal) or ((top, bottom), (left, right)): what is cut off the result.
        output_padding: An int or (vertical, horizontal) below the stride or the dilation: rows and columns that the result
            has more at its end, to choose among the sizes that a strided convolution maps to x's.
        dilation: An int or (vertical, horizontal).
        groups: Number of groups that channels are split into.

    Returns:
        Tensor [batch, out, out height, out width].

    Example:
        >>> import firebrick as fb
        >>> fb.conv_transpose2d(fb.ones((1, 1, 2, 2)), fb.ones((1, 1, 2, 2))).tolist()
        [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
    """
    return _transposed("conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, dilation, groups)


@answers_arguments
def conv_transpose3d(
    x: Tensor, weight: Tensor, /, bias: Tensor | None = None, *, stride: Sizes = 1, padding: Any = 0,
    output_padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution over three axes; arguments as for ``fb.conv_transpose2d``.

    Args:
        x: Volumes [batch, channels, depth, height, width].
        weight: Kernels [channels, out / groups, kernel depth, kernel height, kernel width].
        bias: Tensor [out], or None.
        stride: An int, or three.
        padding: An int, three, or three pairs.
        output_padding: An int, or three.
        dilation: An int, or three.
        groups: Number of groups that channels are split into.

    Returns:
        Tensor [batch, out, out depth, out height, out width].

    Example:
        >>> import firebrick as fb
        >>> fb.conv_transpose3d(fb.ones((1, 1, 1, 1, 1)), fb.ones((1, 3, 2, 2, 2))).shape
        (1, 3, 2, 2, 2)
    """
    return _transposed("conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, dilation, groups)


def per_axis(where: str, name: str, value: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """An int ≥ ``least`` for each of ``rank`` axes, from one int or as many."""
    if type(value) is int and value >= least:
        return (value,) * rank
    if type(value) is tuple and len(value) == rank:
        for v in value:
            if type(v) is not int or v < least:
                break
        else:
            return value
    each = tuple(map(python_scalar, value)) if isinstance(value, (tuple, list)) else (python_scalar(value),) * rank
    if len(each) != rank or any(type(v) is not int or v < least for v in each):
        several = f" or {rank} of them" if rank > 1 else ""
        raise ShapeError(
            f"{where}: {name} is an int ≥ {least}{several}",
            repr(value),
            f"pass e.g. {max(least, 1)} or {(max(least, 1),) * rank}",
        )
    return each


def padding_of(
    where: str, value: Any, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Pairs:  # fmt: skip
    """Padding as one pair (before, after) for each axis: from an int, one for each axis, pairs, "same" or "valid"."""
    rank = len(kernel)
    if value == "valid":
        return ((0, 0),) * rank
    if value == "same":
        if any(s != 1 for s in stride):
            raise ShapeError(
                f'{where}: padding "same" keeps the size, which a stride cannot',
                f"stride {stride}",
                "give the padding in numbers",
            )
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((t // 2, t - t // 2) for t in total)
    if isinstance(value, str):
        raise ShapeError(f'{where}: padding is "same", "valid", ints or pairs', repr(value), "use one of these")
    if isinstance(value, (tuple, list)) and len(value) == rank and all(isinstance(v, (tuple, list)) for v in value):
        pairs = [per_axis(where, "each padding", v, 2, 0) for v in value]
        return tuple((a, b) for a, b in pairs)
    return tuple((p, p) for p in per_axis(where, "padding", value, rank, 0))


def _check(where: str, rank: int, x: Any, weight: Any, bias: Any, groups: int, channels_axis: int) -> None:
    """Check kinds, ranks, channels and groups. ``channels_axis`` is that of the weight which holds x's channels."""
    for name, t in (("x", x), ("weight", weight), ("bias", bias)):
        if not isinstance(t, Tensor):
            if t is None and name == "bias":
                continue
            raise not_a_tensor(where, name, t, None)
        if t.dtype.kind != "float":
            raise DTypeError(
                f"{where}: {name} needs a floating dtype", describe(name, t), f"cast it: fb.astype({name}, fb.float32)"
            )
    check_devices(where, x=x, weight=weight, bias=bias)
    if x.ndim != rank + 2:
        raise _misfit(where, f"x is [batch, channels, {AXES[rank]}]", x, weight, "add or remove axes of x")
    layout = _LAYOUTS[channels_axis][rank]
    if weight.ndim != rank + 2:
        raise _misfit(where, f"weight is {layout}", x, weight, "add the missing axes")
    if type(groups) is not int or groups < 1:
        raise ShapeError(f"{where}: groups is an int ≥ 1", repr(groups), "use 1 for an ordinary convolution")
    channels, rows, columns = x.shape[1], weight.shape[0], weight.shape[1]
    if channels % groups or rows % groups:
        raise _misfit(
            where, f"groups, here {groups}, divides the channels of x and of the result", x, weight, "choose a divisor"
        )
    held, out = (columns * groups, rows) if channels_axis else (rows, columns * groups)
    if channels != held:
        expected = f"weight is {layout}, here with groups {groups} for {held} channels of x"
        raise _misfit(where, expected, x, weight, "check the number of input channels of the layer")
    if bias is not None and bias.shape != (out,):
        raise ShapeError(f"{where}: bias is [{out}]", describe("bias", bias), "give one value an output channel")


def _misfit(where: str, expected: str, x: Tensor, weight: Tensor, remedy: str) -> ShapeError:
    return ShapeError(f"{where}: {expected}", f"{describe('x', x)} and {describe('weight', weight)}", remedy)


def _biased(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + reshape(narrow(bias), shape=(1, *bias.shape, *[1] * (y.ndim - 2)))


def _conv(
    where: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    groups = python_scalar(groups)
    _check(where, rank, x, weight, bias, groups, 1)
    kernel, s, d = weight.shape[2:], per_axis(where, "stride", stride, rank), per_axis(where, "dilation", dilation, rank)
    pads = padding_of(where, padding, kernel, s, d)
    if min(kernel) < 1 or min(places_of(x.shape[2:], kernel, s, pads, d)) < 1:
        raise ShapeError(
            f"{where}: the dilated kernel must fit into the padded image",
            f"{describe('x', x)}, kernel {kernel}, padding {pads}, dilation {d}", "use a smaller kernel or more padding",
        )  # fmt: skip
    params = {"stride": s, "padding": pads, "dilation": d, "groups": groups}
    return _biased(bind(OPS["conv"], (narrow(x), narrow(weight)), params), bias)


def _transposed(
    where: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, output_padding: Any,
    dilation: Any, groups: int,
) -> Tensor:  # fmt: skip
    groups = python_scalar(groups)
    _check(where, rank, x, weight, bias, groups, 0)
    if isinstance(padding, str):
        raise ShapeError(f"{where}: padding is ints or pairs", repr(padding), "give the padding in numbers")
    kernel, s, d = weight.shape[2:], per_axis(where, "stride", stride, rank), per_axis(where, "dilation", dilation, rank)
    pads = padding_of(where, padding, kernel, s, d)
    more = per_axis(where, "output_padding", output_padding, rank, 0)
    if any(o >= max(n, k) for o, n, k in zip(more, s, d, strict=True)):
        shown = f"{more}, stride {s}, dilation {d}"
        raise ShapeError(f"{where}: output_padding is smaller than the stride or the dilation", shown, "use a smaller one")
    behind = (0,) * rank
    if any(o >= n for o, n in zip(more, s, strict=True)):  # no strided convolution maps the result's size to x's
        # less is cut off at the end instead, and positions behind the last one that an element of x reaches are zeros
        spared = [min(o, after) if o >= n else 0 for o, (_, after), n in zip(more, pads, s, strict=True)]
        pads = tuple((before, after - c) for (before, after), c in zip(pads, spared, strict=True))
        more = tuple(o - c for o, c in zip(more, spared, strict=True))
        behind = tuple(o if o >= n else 0 for o, n in zip(more, s, strict=True))
        more = tuple(o - b for o, b in zip(more, behind, strict=True))
    size = tuple(
        (n - 1) * st - sum(p) + di * (k - 1) + o + 1
        for n, st, p, di, k, o in zip(x.shape[2:], s, pads, d, kernel, more, strict=True)
    )
    if min(size) < 1 or min(x.shape[2:]) < 1 or min(kernel) < 1:
        raise ShapeError(
            f"{where}: the result must have sizes ≥ 1",
            f"{describe('x', x)}, kernel {kernel}, padding {pads}: sizes {size}", "use less padding",
        )  # fmt: skip
    params = {"size": size, "stride": s, "padding": pads, "dilation": d, "groups": groups}
    y: Tensor = bind(OPS["conv_input"], (narrow(x), narrow(weight)), params)
    if any(behind):
        y = bind(OPS["pad"], (y,), {"widths": ((0, 0), (0, 0), *((0, b) for b in behind)), "value": 0})
    return _biased(y, bias)
