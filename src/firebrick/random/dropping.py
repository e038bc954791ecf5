"""Dropout as a function."""

from __future__ import annotations

from typing import Never

from firebrick.core.errors import ConfigError
from firebrick.core.operands import check_operand
from firebrick.core.other_arguments import unknown_argument
from firebrick.core.settings import number
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import where
from firebrick.random.defaults import source_of
from firebrick.random.generator import Generator


def dropout(
    x: Tensor, /, p: float = 0.5, *, training: bool = True, generator: Generator | None = None, **_other: Never
) -> Tensor:
    """x / (1 - p) with probability 1 - p, else 0, for each element.

    Args:
        x: Floating tensor of any shape.
        p: Probability of dropping an element, in [0, 1).
        training: Whether anything is dropped; if not, the result is x.
        generator: Source of the mask; the default generator of x's device by default.

    Returns:
        Tensor of the shape and dtype of x.

    Raises:
        ConfigError: p lies outside [0, 1).
        OperandError: The generator is none.

    Source: Srivastava et al., "Dropout", JMLR 15, 2014.

    Example:
        >>> import firebrick as fb
        >>> sorted(set(fb.dropout(fb.ones(100), 0.5).tolist()))
        [0.0, 2.0]
        >>> fb.dropout(fb.ones(2), training=False).tolist()
        [1.0, 1.0]
    """
    if _other:
        raise unknown_argument(dropout, _other)
    check_operand("dropout", x, "floating")
    rate = number("dropout", "p", p)
    if not 0.0 <= rate < 1.0:
        raise ConfigError("dropout: p lies in [0, 1)", f"p={p!r:.40}", "pass e.g. 0.5")
    source = source_of("dropout", generator, x.device)
    if not training or rate == 0.0:
        return x
    kept = source.bernoulli(x.shape, p=1.0 - rate, device=x.device)
    return where(kept, x * (1.0 / (1.0 - rate)), 0.0)


__all__ = ["dropout"]
