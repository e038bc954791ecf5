"""Dense layers and lookup tables."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from firebrick.core.bind import describe
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose, reshape, take
from firebrick.nn import initial
from firebrick.nn.module import Module
from firebrick.random import Generator


class Linear(Module):
    """y = x Wᵀ + b over the last axis.

    Weight and bias start from U(-1/√in, 1/√in).

    Args:
        in_features: Size of the last axis of x.
        out_features: Size of the last axis of y.
        bias: Whether b is there.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [out, in].
        bias: Parameter [out], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Linear(4, 2)(fb.ones((3, 4))).shape
        (3, 2)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, generator: Generator | None = None,
        dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / sqrt(max(in_features, 1))
        how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
        self.weight = initial.uniform((out_features, in_features), bound, **how)
        self.bias = initial.uniform((out_features,), bound, **how) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in] to [..., out]."""
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ShapeError(
                f"Linear: x is [..., {self.in_features}]",
                f"{describe('x', x)} and {describe('weight', self.weight)}",
                "reshape x, or build the layer with its number of features",
            )
        flat = x if x.ndim <= 2 else reshape(x, (prod(x.shape[:-1]), self.in_features))
        y = matmul(flat, matrix_transpose(self.weight))
        if self.bias is not None:
            y = y + self.bias
        return y if x.ndim <= 2 else reshape(y, (*x.shape[:-1], self.out_features))

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class Embedding(Module):
    """Row i of a table for each index i.

    The table starts from N(0, 1).

    Args:
        count: Number of rows.
        features: Size of a row.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the table; the device's default float by default.
        device: Device of the table.

    Attributes:
        weight: Parameter [count, features].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Embedding(10, 3)(fb.asarray([[1, 2], [3, 9]])).shape
        (2, 2, 3)
    """

    def __init__(
        self, count: int, features: int, *, generator: Generator | None = None, dtype: Any = None, device: Any = None
    ) -> None:
        self.count, self.features = count, features
        self.weight = initial.normal((count, features), 1.0, generator=generator, dtype=dtype, device=device)

    def forward(self, indices: Tensor) -> Tensor:
        """Rows [..., features] for integer indices [...] in [0, count)."""
        if not indices.dtype.is_integer:
            raise DTypeError("Embedding: indices need an integer dtype", describe("indices", indices), "cast them to fb.int64")
        return take(self.weight, indices, axis=0)

    def describe(self) -> str:
        return f"{self.count}, {self.features}"
