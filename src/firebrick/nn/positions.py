"""Positions of a sequence: sinusoidal, learned, and rotary.

Tables of sines are functions of the place alone: they are computed in float64 on the host, kept for the process, and are
no part of a module's state.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe
from firebrick.core.settings import number
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import cast_host
from firebrick.functions.indexing import take
from firebrick.functions.movement import concat, reshape, split, stack
from firebrick.functions.ranges import arange
from firebrick.nn import initial
from firebrick.nn.checks import check_shape, check_sizes
from firebrick.nn.module import Module
from firebrick.random import Generator

_LEAST = 128  # rows of the smallest table


@lru_cache(maxsize=32)
def _host_table(length: int, features: int, base: float, dtype: DType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    angles = np.arange(length)[:, None] * base ** (-np.arange(0, features, 2) / features)
    return cast_host("positions", np.sin(angles), dtype), cast_host("positions", np.cos(angles), dtype)


@lru_cache(maxsize=32)
def _table(
    length: int, features: int, base: float, dtype: DType, device: Device, engine: Any
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Sines and cosines of place · base^(-2i / features), each [length, features / 2]; of the engine behind the device now."""
    made = []
    for values in _host_table(length, features, base, dtype):
        table: Tensor = hooks.from_host(values, device)
        table.storage.uncount()
        made.append(table)
    return made[0], made[1]


def _rows(
    where: str, n: int, offset: int | Tensor, length: int | None, features: int, base: float, x: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Sines and cosines for places offset … offset + n - 1, in x's dtype, on its device."""
    if isinstance(offset, Tensor):
        _check_offset(where, offset)
        if length is None:
            raise ConfigError(
                f"{where}: an offset that is a tensor needs a length", "no length", "pass length=, the most places"
            )
        check_sizes(where, length=length)
        places = arange(n, device=x.device) + offset
        stop = length
    else:
        check_sizes(where, 0, offset=offset)
        stop = offset + n
    capacity = _LEAST
    while capacity < stop:
        capacity *= 2
    rows = slice(0, stop) if isinstance(offset, Tensor) else slice(offset, stop)
    if hooks.trace() is not None:  # the rows become constants of the graph, which outlives no table
        found = _host_table(capacity, features, base, x.dtype)
        sines, cosines = (hooks.from_host(np.ascontiguousarray(t[rows]), x.device) for t in found)
    else:
        sines, cosines = (t[rows] for t in _table(capacity, features, base, x.dtype, x.device, x.device.backend))
    return (take(sines, places, axis=0), take(cosines, places, axis=0)) if isinstance(offset, Tensor) else (sines, cosines)


def _check_offset(where: str, offset: Tensor) -> None:
    if offset.ndim or not offset.dtype.is_integer:
        error = ShapeError if offset.ndim else DTypeError
        raise error(f"{where}: offset is an int, or an integer tensor of shape ()", describe("offset", offset), "pass an int")


def _check_even(where: str, features: int, base: float) -> None:
    check_sizes(where, features=features)
    if features % 2:
        raise ConfigError(f"{where}: features is even, a sine and a cosine each", f"features = {features}", "add one")
    if not base > 0:
        raise ConfigError(f"{where}: base is > 0", f"base = {base!r}", "the papers use 10000.0")


class SinusoidalPositions(Module):
    """x + p, where p of place t is sin(t · base^(-2i / features)) at feature 2i and the cosine at feature 2i + 1.

    Args:
        features: Size of the last axis of x, even.
        base: Ratio of the longest wavelength to the shortest.

    Source: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.SinusoidalPositions(4)(fb.zeros((1, 1, 4))).tolist()
        [[[0.0, 1.0, 0.0, 1.0]]]
    """

    def __init__(self, features: int, base: float = 10000.0) -> None:
        _check_even("SinusoidalPositions", features, base)
        self.features, self.base = features, base

    def forward(self, x: Tensor, *, offset: int | Tensor = 0, length: int | None = None) -> Tensor:
        """Add the positions of places offset, offset + 1, … to x [..., n, features].

        Args:
            x: Floating tensor [..., n, features].
            offset: Position of the first of the n: an int, or an integer tensor of shape ().
            length: How many positions there are, where ``offset`` is a tensor.
        """
        n = _places("SinusoidalPositions", x, self.features)
        sines, cosines = _rows("SinusoidalPositions", n, offset, length, self.features, self.base, x)
        return x + reshape(stack([sines, cosines], axis=2), (n, self.features))

    def describe(self) -> str:
        return f"{self.features}"


class LearnedPositions(Module):
    """x + p, with a learned p for each position.

    The table starts from N(0, std²).

    Args:
        length: Number of places.
        features: Size of the last axis of x.
        std: Standard deviation of the first values.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the table; the device's default float by default.
        device: Device of the table.

    Attributes:
        weight: Parameter [length, features].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.LearnedPositions(16, 4)(fb.zeros((2, 10, 4))).shape
        (2, 10, 4)
    """

    def __init__(
        self, length: int, features: int, std: float = 0.02, *, generator: Generator | None = None, dtype: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("LearnedPositions", length=length, features=features)
        self.length, self.features = length, features
        std = number("LearnedPositions", "std", std, least=0)
        self.weight = initial.normal((length, features), std=std, generator=generator, dtype=dtype, device=device)

    def forward(self, x: Tensor, *, offset: int | Tensor = 0) -> Tensor:
        """Add the positions of places offset, offset + 1, … to x [..., n, features].

        Args:
            x: Floating tensor [..., n, features].
            offset: Position of the first of the n: an int, or an integer tensor of shape ().
        """
        n = _places("LearnedPositions", x, self.features)
        if isinstance(offset, Tensor):
            _check_offset("LearnedPositions", offset)
            return x + take(self.weight, arange(n, device=x.device) + offset, axis=0)
        check_sizes("LearnedPositions", 0, offset=offset)
        if offset + n > self.length:
            raise ShapeError(
                f"LearnedPositions: x lies within {self.length} places",
                f"{describe('x', x)} from place {offset}",
                "shorten x, or build the layer with more places",
            )
        return x + self.weight[offset : offset + n]

    def describe(self) -> str:
        return f"{self.length}, {self.features}"


class RotaryPositions(Module):
    """Turns pairs of features (a, b) of place t by the angle t · base^(-2i / features), so that products of queries and keys
    depend on their distance only.

    Args:
        features: Size of the last axis of x (of a head), even.
        base: Ratio of the longest wavelength to the shortest.
        interleaved: Whether pair i is features 2i and 2i + 1 (as in the paper); else i and i + features / 2 (as most
            language models have it).

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864.

    Example:
        >>> import firebrick as fb
        >>> turn = fb.nn.RotaryPositions(4)
        >>> x = fb.ones((1, 2, 4))
        >>> turn(x)[0, 0].tolist(), fb.nn.MultiheadAttention(8, 2, rotary=turn)(fb.ones((1, 3, 8))).shape
        ([1.0, 1.0, 1.0, 1.0], (1, 3, 8))
    """

    def __init__(self, features: int, base: float = 10000.0, *, interleaved: bool = False) -> None:
        _check_even("RotaryPositions", features, base)
        self.features, self.base, self.interleaved = features, base, interleaved

    def forward(self, x: Tensor, *, offset: int | Tensor = 0, length: int | None = None) -> Tensor:
        """Turn x [..., n, features] at places offset, offset + 1, …

        Args:
            x: Floating tensor [..., n, features].
            offset: Position of the first of the n: an int, or an integer tensor of shape ().
            length: How many positions there are, where ``offset`` is a tensor.
        """
        n = _places("RotaryPositions", x, self.features)
        sines, cosines = _rows("RotaryPositions", n, offset, length, self.features, self.base, x)
        half = self.features // 2
        if self.interleaved:
            pairs = reshape(x, (*x.shape[:-1], half, 2))
            a, b = (reshape(t, (*x.shape[:-1], half)) for t in split(pairs, (1, 1), axis=-1))
            turned = stack([a * cosines - b * sines, a * sines + b * cosines], axis=-1)
            return reshape(turned, x.shape)
        a, b = split(x, (half, half), axis=-1)
        return concat([a * cosines - b * sines, a * sines + b * cosines], axis=-1)

    def describe(self) -> str:
        return f"{self.features}" + (", interleaved=True" if self.interleaved else "")


def _places(where: str, x: Any, features: int) -> int:
    """The number of places of x [..., n, features]."""
    check_shape(where, "x", x, f"..., length, {features}", features)
    if x.ndim < 2:
        raise ShapeError(f"{where}: x is [..., length, {features}]", describe("x", x), "add an axis for places")
    return int(x.shape[-2])
