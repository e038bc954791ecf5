"""Normalisations: softmax along an axis, and batch, group, instance, layer and RMS norm.

Channels are axis 1: [batch, channels, ...]. Statistics are those of the arguments, or given: nothing here keeps state.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.autocast import wide
from firebrick.core.bind import bind
from firebrick.core.constants import constant
from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_float32
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_axis, normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import broadcast_to
from firebrick.functions.scaled import divisor
from firebrick.ops import OPS
from firebrick.ops.declare import size_of
from firebrick.ops.normalisation import inverse_spread


@answers_arguments
def softmax(x: Tensor, /, axis: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) along an axis.

    Args:
        x: Floating tensor of at least one axis.
        axis: Axis whose elements sum to 1.

    Example:
        >>> import firebrick as fb
        >>> fb.softmax(fb.zeros(4)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    _operand("softmax", "x", x)
    return bind(OPS["softmax"], (wide(x),), {"axis": normalize_axis(axis, x.ndim, "softmax")})  # type: ignore[no-any-return]


@answers_arguments
def log_softmax(x: Tensor, /, axis: int = -1) -> Tensor:
    """x - log Σ exp(x) along an axis.

    Args:
        x: Floating tensor of at least one axis.
        axis: Axis whose exponentials sum to 1.

    Example:
        >>> import firebrick as fb
        >>> round(fb.log_softmax(fb.zeros(2))[0].item(), 4)
        -0.6931
    """
    _operand("log_softmax", "x", x)
    return bind(OPS["log_softmax"], (wide(x),), {"axis": normalize_axis(axis, x.ndim, "log_softmax")})  # type: ignore[no-any-return]


@answers_arguments
def layer_norm(
    x: Tensor,
    /,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    shape: Any = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / √(variance + eps) · weight + bias over the last axes.

    Args:
        x: Floating tensor [..., *shape].
        weight: Tensor [*shape], or None for ones.
        bias: Tensor [*shape], or None for zeros.
        shape: Sizes of the axes to normalise over, an int or several; the weight's or bias' shape by default, and the
            last axis without either.
        eps: Added to the (biased) variance.

    Source: Ba, Kiros, Hinton, "Layer Normalization", arXiv:1607.06450.

    Example:
        >>> import firebrick as fb
        >>> fb.layer_norm(fb.asarray([[-1.0, 1.0]]), weight=fb.ones(2), bias=fb.zeros(2), eps=0.0).tolist()
        [[-1.0, 1.0]]
    """
    _floating("layer_norm", x, weight=weight, bias=bias)
    over = _trailing("layer_norm", x, shape, weight=weight, bias=bias)
    eps = number("layer_norm", "eps", eps, least=0)
    x = wide(x)
    if weight is not None and bias is not None:
        if len(over) == 1:
            return bind(OPS["layer_norm"], (x, weight, bias), {"eps": eps})  # type: ignore[no-any-return]
        flat: Tensor = bind(
            OPS["layer_norm"], (_rows(x, over), weight.reshape(-1), bias.reshape(-1)), {"eps": eps}
        )  # fmt: skip
        return flat.reshape(x.shape)
    return _standardized(x, weight, bias, tuple(range(x.ndim - len(over), x.ndim)), eps)[0]


@answers_arguments
def rms_norm(x: Tensor, /, *, weight: Tensor | None = None, shape: Any = None, eps: float | None = None) -> Tensor:
    """x / √(mean(x²) + eps) · weight over the last axes.

    Args:
        x: Floating tensor [..., *shape].
        weight: Tensor [*shape], or None for ones.
        shape: Sizes of the axes to normalise over, an int or several; the weight's shape by default, and the last axis
            without one.
        eps: Added to the mean square; the smallest step from 1 of x's dtype by default.

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.

    Example:
        >>> import firebrick as fb
        >>> fb.rms_norm(fb.asarray([[3.0, -3.0]]), eps=0.0).tolist()
        [[1.0, -1.0]]
    """
    _floating("rms_norm", x, weight=weight)
    over = _trailing("rms_norm", x, shape, weight=weight)
    if eps is not None:
        eps = number("rms_norm", "eps", eps, least=0)
    x = wide(x)
    gain = constant(1.0, x.dtype, x.device) if weight is None else weight.reshape(-1)
    y: Tensor = bind(OPS["rms_norm"], (_rows(x, over), gain), {"eps": x.dtype.eps if eps is None else eps})
    return y.reshape(x.shape)


@answers_arguments
def batch_norm(
    x: Tensor, /, *, weight: Tensor | None = None, bias: Tensor | None = None, mean: Tensor | None = None,
    variance: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """(x - mean) / √(variance + eps) · weight + bias for each channel.

    Args:
        x: Floating tensor [batch, channels, ...].
        weight: Tensor [channels], or None for ones.
        bias: Tensor [channels], or None for zeros.
        mean: Tensor [channels], as running statistics are; the mean of x by default.
        variance: Tensor [channels], given with ``mean``; the (biased) variance of x by default.
        eps: Added to the variance.

    Raises:
        ShapeError: x has a single value in each channel, which has no variance, and no statistics are given.

    Source: Ioffe, Szegedy, "Batch Normalization", arXiv:1502.03167.

    Example:
        >>> import firebrick as fb
        >>> fb.batch_norm(fb.asarray([[1.0], [3.0]]), eps=0.0).tolist()
        [[-1.0], [1.0]]
        >>> fb.batch_norm(fb.asarray([[1.0], [3.0]]), mean=fb.ones(1), variance=fb.ones(1), eps=0.0).tolist()
        [[0.0], [2.0]]
    """
    check_channels("batch_norm", x, weight=weight, bias=bias, mean=mean, variance=variance)
    eps = number("batch_norm", "eps", eps, least=0)
    if (mean is None) != (variance is None):
        raise ShapeError("batch_norm: mean and variance are given together", "one of them", "pass both, or neither")
    if mean is None or variance is None:
        return batch_norm_with_statistics(x, weight, bias, eps, "batch_norm")[0]
    return _by_statistics(x, weight, bias, mean, variance, eps)


@in_float32
def _by_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float
) -> Tensor:  # fmt: skip
    """Batch norm by statistics that are given, all checked."""
    scale = inverse_spread(by_channel(variance, x), eps)
    if weight is not None:
        scale = by_channel(weight, x) * scale
    y: Tensor = (x - by_channel(mean, x)) * scale
    return y if bias is None else y + by_channel(bias, x)


def batch_norm_with_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, where: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm by x's own statistics, with their mean and biased variance, both [channels]."""
    if x.size // max(1, x.shape[1]) < 2 and x.shape[1]:
        raise ShapeError(
            f"{where}: training needs more than one value a channel, to have a variance", describe("x", x),
            "use a larger batch (drop a last batch of one sample), or evaluate with eval()",
        )  # fmt: skip
    w, b = (None if p is None else by_channel(p, x) for p in (weight, bias))
    y, mean, var = _standardized(x, w, b, (0, *range(2, x.ndim)), eps)
    return y, mean.reshape(-1), var.reshape(-1)


@answers_arguments
def instance_norm(
    x: Tensor, /, *, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """(x - mean) / √(variance + eps) · weight + bias for each channel of each sample.

    Args:
        x: Floating tensor [batch, channels, length, ...].
        weight: Tensor [channels], or None for ones.
        bias: Tensor [channels], or None for zeros.
        eps: Added to the (biased) variance.

    Source: Ulyanov, Vedaldi, Lempitsky, "Instance Normalization", arXiv:1607.08022.

    Example:
        >>> import firebrick as fb
        >>> fb.instance_norm(fb.asarray([[[1.0, 3.0], [5.0, 9.0]]]), eps=0.0).tolist()
        [[[-1.0, 1.0], [-1.0, 1.0]]]
    """
    check_channels("instance_norm", x, weight=weight, bias=bias)
    eps = number("instance_norm", "eps", eps, least=0)
    return instance_norm_with_statistics(x, weight, bias, eps, "instance_norm")[0]


def instance_norm_with_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, where: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Instance norm, with mean and biased variance, both [batch, channels]."""
    n, c = x.shape[:2]
    if x.ndim < 3 or (n * c and x.size // (n * c) < 2):
        raise ShapeError(
            f"{where}: x is [batch, channels, length, ...] with more than one value for each channel of a sample",
            describe("x", x), "use a larger image, or layer norm",
        )  # fmt: skip
    w, b = (None if p is None else by_channel(p, x) for p in (weight, bias))
    y, mean, var = _standardized(x, w, b, tuple(range(2, x.ndim)), eps)
    return y, mean.reshape(n, c), var.reshape(n, c)


@answers_arguments
def group_norm(
    x: Tensor, /, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """(x - mean) / √(variance + eps) · weight + bias, over groups of channels of each sample.

    Args:
        x: Floating tensor [batch, channels, ...].
        groups: Number of groups; divides the channels.
        weight: Tensor [channels], or None for ones.
        bias: Tensor [channels], or None for zeros.
        eps: Added to the (biased) variance.

    Source: Wu, He, "Group Normalization", arXiv:1803.08494.

    Example:
        >>> import firebrick as fb
        >>> fb.group_norm(fb.asarray([[1.0, 3.0, 5.0, 9.0]]), 2, eps=0.0).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]
    """
    check_channels("group_norm", x, weight=weight, bias=bias)
    eps, groups = number("group_norm", "eps", eps, least=0), python_scalar(groups)
    n, c = x.shape[:2]
    if type(groups) is not int or groups < 1 or c % groups:
        raise ShapeError(
            f"group_norm: groups is an int ≥ 1 that divides the {c} channels", f"groups = {groups!r}", "choose a divisor"
        )  # fmt: skip
    _values("group_norm", x, size_of(x.shape[1:]))
    split = x.reshape(n, groups, c // groups, *x.shape[2:])
    ones = [1] * (x.ndim - 2)
    w, b = (None if p is None else p.reshape(1, groups, c // groups, *ones) for p in (weight, bias))
    return _standardized(split, w, b, tuple(range(2, split.ndim)), eps)[0].reshape(x.shape)


@in_float32
def local_response_norm(
    x: Tensor, /, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:  # fmt: skip
    """x / (k + alpha · mean of x² over ``size`` neighbouring channels)^beta, with zeros beyond the outermost channels.

    Args:
        x: Floating tensor [batch, channels, length, ...].
        size: Number of neighbouring channels, itself among them.
        alpha: Weight of the mean square.
        beta: Exponent.
        k: Added to the mean square.

    Source: Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", 2012.

    Example:
        >>> import firebrick as fb
        >>> fb.local_response_norm(fb.ones((1, 2, 1)), 2, alpha=2.0, beta=1.0).tolist()
        [[[0.5], [0.3333333432674408]]]
    """
    _floating("local_response_norm", x)
    if x.ndim < 3:
        raise ShapeError("local_response_norm: x is [batch, channels, length, ...]", describe("x", x), "add the missing axes")
    size = python_scalar(size)
    if type(size) is not int or size < 1:
        raise ShapeError("local_response_norm: size is an int ≥ 1", repr(size), "pass a number of channels, e.g. 5")
    alpha, beta, k = (
        number("local_response_norm", name, value) for name, value in (("alpha", alpha), ("beta", beta), ("k", k))
    )
    if not x.size:
        return x.reshape(x.shape)
    rows = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
    params = {"kernel": (size, 1), "stride": (1, 1), "padding": ((size // 2, (size - 1) // 2), (0, 0))}
    around: Tensor = bind(OPS["avg_pool"], (rows,), params)
    found: Tensor = x / divisor(around.reshape(x.shape) * alpha + k) ** beta
    return found


def by_channel(p: Tensor, x: Tensor) -> Tensor:
    """One value a channel, shaped to broadcast against x."""
    return p.reshape(1, -1, *[1] * (x.ndim - 2))


def check_channels(where: str, x: Any, **by_name: Any) -> None:
    """Check that x is a floating tensor [batch, channels, ...] and that the others hold one value a channel."""
    _floating(where, x, **by_name)
    if x.ndim < 2:
        raise ShapeError(f"{where}: x is [batch, channels, ...]", describe("x", x), "add the missing axes")
    for name, p in by_name.items():
        if p is not None and p.shape != x.shape[1:2]:
            raise ShapeError(
                f"{where}: {name} is [{x.shape[1]}]: one value a channel of x", f"{describe('x', x)} and {describe(name, p)}",
                "check the number of channels",
            )  # fmt: skip


def _operand(where: str, name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where, name, x, None)


def _floating(where: str, x: Any, **optional: Any) -> None:
    _operand(where, "x", x)
    for name, p in optional.items():
        if p is not None:
            _operand(where, name, p)
    check_devices(where, x=x, **optional)
    for name, p in {"x": x, **optional}.items():
        if p is not None and p.dtype.kind != "float":
            raise DTypeError(
                f"{where}: {name} needs a floating dtype", describe(name, p), f"cast it: fb.astype({name}, fb.float32)"
            )


def _trailing(where: str, x: Tensor, shape: Any, **params: Tensor | None) -> tuple[int, ...]:
    """The sizes of the axes to normalise over, checked against x and the parameters."""
    given = [p.shape for p in params.values() if p is not None]
    over = normalize_shape(shape, where) if shape is not None else given[0] if given else x.shape[-1:]
    if not over or x.shape[x.ndim - len(over) :] != over or any(s != over for s in given) or len(over) > x.ndim:
        shown = ", ".join(describe(n, t) for n, t in (("x", x), *params.items()) if t is not None)
        raise ShapeError(
            f"{where}: the last axes of x, and {' and '.join(params)}, have the sizes to normalise over",
            f"{shown}, shape {over}", "check the layer's normalised shape",
        )  # fmt: skip
    _values(where, x, size_of(over))
    return over


def _values(where: str, x: Tensor, count: int) -> None:
    if not count:
        raise ShapeError(f"{where}: there must be values to take the mean of", describe("x", x), "pass axes of sizes ≥ 1")


def _rows(x: Tensor, over: tuple[int, ...]) -> Tensor:
    """x with the axes to normalise over as one."""
    return x if len(over) == 1 else x.reshape(*x.shape[: x.ndim - len(over)], size_of(over))


def _standardized(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    given = weight if weight is not None else bias
    x = wide(x)
    one, zero = (constant(value, x.dtype, x.device) for value in (1.0, 0.0))
    if given is not None:
        one, zero = broadcast_to(one, given.shape), broadcast_to(zero, given.shape)
    w, b = one if weight is None else weight, zero if bias is None else bias
    y, mean, var = bind(OPS["standardize"], (x, w, b), {"axes": axes, "eps": eps})
    return y, mean, var
