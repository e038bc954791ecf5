"""Functions of neural networks over the op table: normalisation, convolution, pooling, attention and losses.

All images are [batch, channels, height, width].
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.core.bind import bind, check_devices, describe, not_a_tensor
from firebrick.core.errors import DTypeError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import where
from firebrick.functions.movement import expand_dims, squeeze, take_along_axis
from firebrick.functions.reductions import mean
from firebrick.functions.reductions import sum as sum_
from firebrick.ops import OPS

Pair = int | tuple[int, int]


def _operand(where_: str, name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where_, name, x, None)


def softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) along an axis.

    Example:
        >>> import firebrick as fb
        >>> fb.softmax(fb.zeros(4)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    _operand("softmax", "x", x)
    return bind(OPS["softmax"], (x,), {"axis": normalize_axis(axis, x.ndim, "softmax")})  # type: ignore[no-any-return]


def log_softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """x - log Σ exp(x) along an axis.

    Example:
        >>> import firebrick as fb
        >>> round(fb.log_softmax(fb.zeros(2))[0].item(), 4)
        -0.6931
    """
    _operand("log_softmax", "x", x)
    return bind(OPS["log_softmax"], (x,), {"axis": normalize_axis(axis, x.ndim, "log_softmax")})  # type: ignore[no-any-return]


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, /, *, eps: float = 1e-5) -> Tensor:
    """(x - mean) / √(variance + eps) · weight + bias over the last axis.

    Args:
        x: Floating tensor [..., n].
        weight: Tensor [n].
        bias: Tensor [n].
        eps: Added to the (biased) variance.

    Source: Ba, Kiros, Hinton, "Layer Normalization", arXiv:1607.06450.

    Example:
        >>> import firebrick as fb
        >>> fb.layer_norm(fb.asarray([[-1.0, 1.0]]), fb.ones(2), fb.zeros(2), eps=0.0).tolist()
        [[-1.0, 1.0]]
    """
    return bind(OPS["layer_norm"], (x, weight, bias), {"eps": eps})  # type: ignore[no-any-return]


def pair(value: Any, name: str, least: int = 1) -> tuple[int, int]:
    """An int, or two, as two ints ≥ ``least``."""
    both = value if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2 or any(not isinstance(v, int) or isinstance(v, bool) or v < least for v in both):
        raise ShapeError(f"{name} is an int ≥ {least} or two of them", repr(value), "pass e.g. 2 or (2, 1)")
    return both[0], both[1]


def padding_of(
    value: Any, kernel: tuple[int, int], dilation: tuple[int, int] = (1, 1)
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Padding as ((top, bottom), (left, right)), from an int, two ints, two pairs, or "same"."""
    if value == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return (total[0] // 2, total[0] - total[0] // 2), (total[1] // 2, total[1] - total[1] // 2)
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(v, (tuple, list)) for v in value):
        return pair(value[0], "padding", 0), pair(value[1], "padding", 0)
    a, b = pair(value, "padding", 0)
    return (a, a), (b, b)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, /, *, stride: Pair = 1, padding: Any = 0, dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """2-D convolution (cross-correlation).

    Args:
        x: Images [batch, channels, height, width].
        weight: Kernels [out, channels / groups, kernel height, kernel width].
        bias: Tensor [out], or None.
        stride: An int or (vertical, horizontal).
        dilation: An int or (vertical, horizontal).
        padding: An int, (vertical, horizontal), ((top, bottom), (left, right)) or "same" (for stride 1).
        groups: Number of groups that channels are split into.

    Returns:
        Tensor [batch, out, out height, out width].

    Example:
        >>> import firebrick as fb
        >>> fb.conv2d(fb.ones((1, 1, 3, 3)), fb.ones((1, 1, 2, 2))).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    for name, v in (("x", x), ("weight", weight)):
        _operand("conv2d", name, v)
    check_devices("conv2d", x=x, weight=weight, bias=bias)
    d = pair(dilation, "dilation")
    if groups < 1:
        raise ShapeError("conv2d: groups is an int ≥ 1", repr(groups), "use 1 for an ordinary convolution")
    if weight.ndim != 4:
        raise ShapeError("conv2d: weight is [out, channels / groups, kh, kw]", describe("weight", weight), "add the axes")
    params = {
        "stride": pair(stride, "stride"), "dilation": d, "groups": groups,
        "padding": padding_of(padding, (weight.shape[2], weight.shape[3]), d),
    }  # fmt: skip
    y: Tensor = bind(OPS["conv2d"], (x, weight), params)
    if bias is None:
        return y
    if bias.shape != (weight.shape[0],):
        raise ShapeError(f"conv2d: bias is [{weight.shape[0]}]", describe("bias", bias), "give one value an output channel")
    return y + bias.reshape(1, -1, 1, 1)


def _pool(name: str, x: Tensor, kernel: Pair, stride: Pair | None, padding: Any) -> dict[str, Any]:
    _operand(name, "x", x)
    k = pair(kernel, "kernel")
    return {
        "kernel": k,
        "stride": k if stride is None else pair(stride, "stride"),
        "padding": padding_of(padding, k),
    }


def max_pool2d(x: Tensor, /, kernel: Pair, *, stride: Pair | None = None, padding: Any = 0) -> Tensor:
    """The largest value of each window; windows do not overlap by default; padding is never a maximum.

    Example:
        >>> import firebrick as fb
        >>> fb.max_pool2d(fb.asarray([[[[1.0, 2.0], [3.0, 4.0]]]]), 2).tolist()
        [[[[4.0]]]]
    """
    return bind(OPS["max_pool2d"], (x,), _pool("max_pool2d", x, kernel, stride, padding))[0]  # type: ignore[no-any-return]


def avg_pool2d(x: Tensor, /, kernel: Pair, *, stride: Pair | None = None, padding: Any = 0) -> Tensor:
    """The mean of each window; windows do not overlap by default; padding counts as zeros.

    Example:
        >>> import firebrick as fb
        >>> fb.avg_pool2d(fb.asarray([[[[1.0, 2.0], [3.0, 4.0]]]]), 2).tolist()
        [[[[2.5]]]]
    """
    return bind(OPS["avg_pool2d"], (x,), _pool("avg_pool2d", x, kernel, stride, padding))  # type: ignore[no-any-return]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, /, *, mask: Tensor | None = None) -> Tensor:
    """softmax(query keyᵀ / √d) value.

    Args:
        query: Tensor [..., n, d].
        key: Tensor [..., m, d].
        value: Tensor [..., m, e].
        mask: Bool tensor that broadcasts to [..., n, m]; True where a query may look.

    Returns:
        Tensor [..., n, e].

    Source: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762.

    Example:
        >>> import firebrick as fb
        >>> q = fb.zeros((1, 2, 4))
        >>> fb.scaled_dot_product_attention(q, q, fb.ones((1, 2, 3))).shape
        (1, 2, 3)
    """
    for name, v in (("query", query), ("key", key), ("value", value)):
        _operand("scaled_dot_product_attention", name, v)
    check_devices("scaled_dot_product_attention", query=query, key=key, value=value, mask=mask)
    scores = query @ key.mT * (1.0 / math.sqrt(query.shape[-1]))
    if mask is not None:
        if mask.dtype.kind != "bool":
            raise DTypeError("attention: mask needs the bool dtype", describe("mask", mask), "compare it, for example mask > 0")
        scores = where(mask, scores, -math.inf)
    return softmax(scores) @ value


def cross_entropy(logits: Tensor, labels: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """-log softmax(logits)[label], averaged over samples.

    Args:
        logits: Floating tensor [batch, classes].
        labels: Integer tensor [batch], values in [0, classes).
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A label lies outside [0, classes).

    Example:
        >>> import firebrick as fb
        >>> round(fb.cross_entropy(fb.zeros((2, 10)), fb.asarray([3, 7])).item(), 4)
        2.3026
    """
    _operand("cross_entropy", "logits", logits)
    _operand("cross_entropy", "labels", labels)
    check_devices("cross_entropy", logits=logits, labels=labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ShapeError(
            "cross_entropy: logits [batch, classes] and labels [batch]",
            f"{describe('logits', logits)} and {describe('labels', labels)}",
            "reshape them; labels are class numbers, not one-hot rows",
        )
    if not labels.dtype.is_integer:
        raise DTypeError("cross_entropy: labels need an integer dtype", describe("labels", labels), "cast them to fb.int64")
    if labels.device.engine != "meta" and labels.size:
        values = hooks.to_host(labels)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= logits.shape[1]:
            raise OutOfRangeError(
                f"cross_entropy: labels must lie in [0, {logits.shape[1]})",
                f"labels from {low} to {high}" + (f" ({labels.label})" if labels.label else ""),
                "check the labels, or give the model as many outputs as there are classes",
            )
    picked = take_along_axis(log_softmax(logits), expand_dims(labels, axis=1), axis=1)
    return reduce_loss(-squeeze(picked, 1), reduction)


def mse_loss(prediction: Tensor, target: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """(prediction - target)², averaged over elements.

    Args:
        prediction: Floating tensor.
        target: Floating tensor of the same shape.
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> fb.mse_loss(fb.ones(2), fb.zeros(2)).item()
        1.0
    """
    _operand("mse_loss", "prediction", prediction)
    _operand("mse_loss", "target", target)
    check_devices("mse_loss", prediction=prediction, target=target)
    if prediction.shape != target.shape:
        raise ShapeError(
            "mse_loss needs equal shapes: broadcasting here is nearly always a mistake",
            f"{describe('prediction', prediction)} and {describe('target', target)}",
            "reshape one of them",
        )
    difference = prediction - target
    return reduce_loss(difference * difference, reduction)


def reduce_loss(losses: Tensor, reduction: str) -> Tensor:
    """Losses as they are ("none"), their sum or their mean."""
    if reduction == "mean":
        return mean(losses)
    if reduction == "sum":
        return sum_(losses)
    if reduction == "none":
        return losses
    raise ShapeError('reduction is "mean", "sum" or "none"', repr(reduction), "use one of these")
