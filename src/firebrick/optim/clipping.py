"""Limits on gradients before an update: on their global norm, or on each element."""

from __future__ import annotations

import math
from typing import Any

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad
from firebrick.autodiff.transforms import check_constants
from firebrick.core.constants import constant
from firebrick.core.dtypes import DType, float32, float64, python_scalar
from firebrick.core.errors import ConfigError, GradientError, OperandError
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.checks import staged
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import astype, clip, isfinite, maximum, pow, sqrt
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import sum as sum_


@answers_arguments
def clip_norm(grads: Gradients, max_norm: float, *, p: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
    """Scale all gradients by one factor so that their global norm is at most ``max_norm``.

    The factor is min(max_norm / (norm + 1e-6), 1). Where the norm is NaN, all gradients become NaN; where it is infinite,
    finite ones become 0.

    Args:
        grads: Gradients of parameters on any devices; they are replaced in place.
        max_norm: Largest norm, > 0.
        p: Order of the norm over all elements of all gradients, > 0; ``float("inf")`` takes the largest.
        error_if_nonfinite: Whether to raise for a norm that is NaN or infinite (which waits for the device).

    Returns:
        The norm before, 0-d float32 or float64 on the first gradient's device.

    Raises:
        GradientError: The norm is NaN or infinite, and ``error_if_nonfinite``; no gradient was changed.

    Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", arXiv:1211.5063.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([3.0, 4.0]).require_grad()
        >>> grads = fb.backward(fb.sum(x * x / 2.0))
        >>> fb.optim.clip_norm(grads, 1.0).item()
        5.0
        >>> [round(v, 3) for v in grads[x].tolist()]
        [0.6, 0.8]
    """
    max_norm, p = python_scalar(max_norm), python_scalar(p)
    _check("clip_norm", grads, "max_norm", max_norm)
    _check("clip_norm", grads, "p", p, infinite=True)
    with no_grad():
        total = global_norm(grads, p)
        if error_if_nonfinite:
            _check_finite(total)
        factor = clip(float(max_norm) / (total + 1e-6), 0.0, 1.0)

        def scaled(g: Tensor) -> Tensor:
            wide = _wide(g.dtype)
            there = astype(factor.to(g.device), wide, copy=False)
            return astype(astype(g, wide, copy=False) * there, g.dtype, copy=False)

        grads.change(scaled)
    return total


def _check_finite(total: Tensor) -> None:
    def error(value: str) -> GradientError:
        return GradientError(
            "clip_norm: the norm of the gradients is finite",
            value,
            "lower the learning rate or check the data; fb.detect_anomaly() names the operation that made the first NaN",
        )

    if not staged(lambda: isfinite(total), lambda: error("NaN or infinity")) and not math.isfinite(value := float(total)):
        raise error(f"{value}")


@answers_arguments
def clip_value(grads: Gradients, limit: float) -> None:
    """Limit every element of every gradient to [-limit, limit].

    Args:
        grads: Gradients of parameters on any devices; they are replaced in place.
        limit: Largest magnitude, > 0.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([3.0, -0.25]).require_grad()
        >>> grads = fb.backward(fb.sum(x * x))
        >>> fb.optim.clip_value(grads, 1.0)
        >>> grads[x].tolist()
        [1.0, -0.5]
    """
    limit = python_scalar(limit)
    _check("clip_value", grads, "limit", limit)
    with no_grad():
        grads.change(lambda g: clip(g, -float(limit), float(limit)))


def global_norm(grads: Gradients, p: float = 2.0) -> Tensor:
    """The p-norm over all elements of all gradients, on the first one's device."""
    found = [g.detach() for _, g in grads.items()]
    if not found:
        raise GradientError("gradients have a norm if there are any", "no gradients", "differentiate first")
    home, wide = found[0].device, float64 if any(g.dtype is float64 for g in found) else float32
    total = constant(0.0, wide, home)
    for g in found:
        x = abs_(astype(g, _wide(g.dtype), copy=False))
        if not x.size:
            continue
        part = max_(x) if math.isinf(p) else sum_(x * x if p == 2.0 else pow(x, float(p)))
        part = astype(part.to(home), wide, copy=False)
        total = maximum(total, part) if math.isinf(p) else total + part
    return total if math.isinf(p) else sqrt(total) if p == 2.0 else pow(total, 1.0 / p)


def _wide(dtype: DType) -> DType:
    return dtype if dtype.itemsize >= 4 else float32


def _check(name: str, grads: Any, setting: str, value: Any, *, infinite: bool = False) -> None:
    if not isinstance(grads, Gradients):
        raise OperandError(
            f"{name}: grads are fb.Gradients",
            type(grads).__name__,
            "take them from fb.value_and_grad(fn)(model, …), whose first argument is the module",
        )
    check_constants(name, grads)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    if not number or (math.isinf(value) and not infinite):
        raise ConfigError(f"{name}: {setting} is a number > 0", repr(value), "pass e.g. 1.0")
