"""``detect_anomaly``: name the operation, and the label, of the first NaN of a forward or backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from firebrick.autodiff.tape import Node, anomaly
from firebrick.core.batched import values_of_all
from firebrick.core.errors import GradientError
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.operands import describe
from firebrick.core.scopes import scope
from firebrick.core.tensor import Tensor


@scope
def detect_anomaly() -> Iterator[None]:
    """Inside this block, a recorded operation that makes the first NaN raises GradientError; so does its gradient.

    Every tracked result is read, so it is slow: for finding a fault, not for training.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray(-1.0).require_grad()
        >>> with fb.detect_anomaly():
        ...     fb.log(x)
        Traceback (most recent call last):
        ...
        firebrick.core.errors.GradientError: log made the first NaN...
    """
    token = anomaly.set(True)
    try:
        yield
    finally:
        anomaly.reset(token)


def _has_nan(t: Tensor) -> bool:
    if not t.dtype.is_inexact:
        return False
    host = hooks.to_host(values_of_all(t))
    return bool(np.isnan(host.astype(np.complex128 if t.dtype.kind == "complex" else np.float64)).any())


def check_forward(op: Op, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """Raise if a result holds NaN and no operand does."""
    if any(map(_has_nan, outputs)) and not any(map(_has_nan, inputs)):
        names = op.operand_names(len(inputs))
        raise GradientError(
            f"{op.shown} made the first NaN of the forward pass",
            ", ".join(describe(n, t) for n, t in zip(names, inputs, strict=True)),
            "look at the values of these operands",
            op=op.shown,
        )


def check_backward(node: Node, i: int, g: Any) -> None:
    """Raise if a cotangent that a rule returned holds NaN."""
    if _has_nan(g):
        assert node.op is not None
        name = node.op.operand_names(len(node.parents))[i]
        parent = (node.parents[i] or (node,))[0]
        leaf = parent.handle() if parent.op is None else None  # its label may have been set after it was tracked
        label = node.where or parent.where or (leaf.label if leaf is not None else None)
        raise GradientError(
            f"the gradient of {node.op.shown} made the first NaN of the backward pass",
            f"operand {name}: {node.in_avals[i]}" + (f" ({label})" if label else ""),
            "look at the values that reach this operation (a division by 0, a root or logarithm of 0)",
            op=node.op.shown,
        )
