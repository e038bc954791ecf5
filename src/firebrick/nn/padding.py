"""Zeros around images."""

from __future__ import annotations

from typing import Any

from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.windows import pad
from firebrick.nn.module import Module


class ZeroPad(Module):
    """Images with zeros before and after them along each axis.

    Args:
        padding: How many zeros: an int ≥ 0 on all sides; one pair (before, after) for each axis of the image, in order; or
            an int for each axis, for both of its sides.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ZeroPad(1)(fb.ones((1, 1, 1, 1))).tolist()
        [[[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]]
        >>> fb.nn.ZeroPad(((0, 1), (2, 0)))(fb.ones((1, 3, 4, 4))).shape
        (1, 3, 5, 6)
    """

    def __init__(self, padding: Any) -> None:
        self.padding = padding
        self._pairs: int | tuple[tuple[int, int], ...]
        if isinstance(padding, (tuple, list)):
            self._pairs = tuple(_pair(padding, p) for p in padding)
        else:
            self._pairs = _pair(padding, padding)[0]

    def forward(self, x: Tensor) -> Tensor:
        """Pad x [batch, channels, *image].

        Args:
            x: Tensor [batch, channels, *image], with as many axes of the image as there are pairs.
        """
        rank = x.ndim - 2
        pairs = ((self._pairs, self._pairs),) * rank if isinstance(self._pairs, int) else self._pairs
        if rank < 1 or len(pairs) != rank:
            axes = "*image" if isinstance(self._pairs, int) else f"{len(pairs)} axes of an image"
            raise ShapeError(f"ZeroPad: x is [batch, channels, {axes}]", describe("x", x), "check padding, or add axes")
        return pad(x, ((0, 0), (0, 0), *pairs))

    def describe(self) -> str:
        return f"{self.padding}"


def _pair(given: Any, value: Any) -> tuple[int, int]:
    both = tuple(map(python_scalar, value)) if isinstance(value, (tuple, list)) else (python_scalar(value),) * 2
    if len(both) != 2 or any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in both):
        raise ConfigError(
            "ZeroPad: padding is an int ≥ 0, or an int or a pair (before, after) for each axis of the image",
            f"padding={given!r:.60}",
            "pass e.g. 1 or ((1, 1), (2, 2))",
        )
    return both
