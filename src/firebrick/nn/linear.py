"""Dense layers and lookup tables."""

from __future__ import annotations

from math import inf, prod, sqrt
from typing import Any

from firebrick.core.autocast import narrow
from firebrick.core.errors import DTypeError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.functions.checks import check_range
from firebrick.functions.elementwise import astype, equal, maximum, not_equal, where
from firebrick.functions.indexing import in_default_int, take
from firebrick.functions.linear import matmul
from firebrick.functions.movement import expand_dims, permute_dims, reshape
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import sum as sum_
from firebrick.nn import initial
from firebrick.nn.checks import check_choice, check_floating, check_shape, check_sizes
from firebrick.nn.module import Module
from firebrick.ops.movement import permute
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
        check_sizes("Linear", 0, in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / sqrt(max(in_features, 1))
        how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
        self.weight = initial.uniform((out_features, in_features), bound=bound, **how)
        self.bias = initial.uniform((out_features,), bound=bound, **how) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in] to [..., out].

        Args:
            x: Floating tensor [..., in_features].
        """
        check_floating("Linear", "x", x)
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ShapeError(
                f"Linear: x is [..., {self.in_features}]",
                f"{describe('x', x)} and {describe('weight', self.weight)}",
                "flatten x before: nn.Flatten(), or fb.flatten(x, start_axis=1)"
                if x.ndim > 2 and prod(x.shape[1:]) == self.in_features
                else f"reshape x, or build the layer for it: nn.Linear({x.shape[-1] if x.ndim else 1}, {self.out_features})",
            )
        # a graph has the product of matrices, which compilers fuse best; an engine alone makes one of a stack itself
        flat = reshape(x, (prod(x.shape[:-1]), self.in_features)) if x.ndim > 2 and hooks.trace() is not None else x
        y = matmul(flat, permute(self.weight, axes=(1, 0)))
        if self.bias is not None:
            y = y + narrow(self.bias)
        return y if flat is x else reshape(y, (*x.shape[:-1], self.out_features))

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class Bilinear(Module):
    """y = x1ᵀ W x2 + b, with a matrix W for each output.

    Weight and bias start from U(-1/√in1, 1/√in1).

    Args:
        in1_features: Size of the last axis of x1.
        in2_features: Size of the last axis of x2.
        out_features: Size of the last axis of y.
        bias: Whether b is there.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [out, in1, in2].
        bias: Parameter [out], or None.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Bilinear(4, 3, 2)(fb.ones((5, 4)), fb.ones((5, 3))).shape
        (5, 2)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, *,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("Bilinear", in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1.0 / sqrt(in1_features)
        how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
        self.weight = initial.uniform((out_features, in1_features, in2_features), bound=bound, **how)
        self.bias = initial.uniform((out_features,), bound=bound, **how) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Map x1 [..., in1] and x2 [..., in2] to [..., out].

        Args:
            x1: Floating tensor [..., in1_features].
            x2: Floating tensor [..., in2_features].
        """
        check_devices("Bilinear", x1=x1, x2=x2, weight=self.weight)
        for name, x, n in (("x1", x1, self.in1_features), ("x2", x2, self.in2_features)):
            check_shape("Bilinear", name, x, f"..., {n}", n)
        lead = x1.shape[:-1]
        if x2.shape[:-1] != lead:
            raise ShapeError(
                "Bilinear: x1 and x2 have equal axes but the last",
                f"{describe('x1', x1)} and {describe('x2', x2)}",
                "reshape or broadcast one of them",
            )
        rows = prod(lead)
        out, first, second = self.weight.shape
        table = reshape(permute_dims(self.weight, (1, 0, 2)), (first, out * second))
        part = reshape(matmul(reshape(x1, (rows, first)), table), (rows, out, second))
        y = reshape(matmul(part, reshape(x2, (rows, second, 1))), (*lead, out))
        return y if self.bias is None else y + narrow(self.bias)

    def describe(self) -> str:
        shown = f"{self.in1_features}, {self.in2_features}, {self.out_features}"
        return shown + ("" if self.bias is not None else ", bias=False")


class Embedding(Module):
    """Row i of a table for each index i.

    The table starts from N(0, 1), the row of ``padding_index`` from zeros.

    Args:
        count: Number of rows.
        features: Size of a row.
        padding_index: Index of padding: its row gets no gradient, so it does not change.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the table; the device's default float by default.
        device: Device of the table.

    Attributes:
        weight: Parameter [count, features].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Embedding(10, 3, padding_index=0)(fb.asarray([[1, 2], [3, 0]]))[1, 1].tolist()
        [0.0, 0.0, 0.0]
    """

    def __init__(
        self, count: int, features: int, padding_index: int | None = None, *, generator: Generator | None = None,
        dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("Embedding", count=count, features=features)
        self.count, self.features = count, features
        self.padding_index = None if padding_index is None else _row_of("Embedding", padding_index, count)
        self.weight = initial.normal((count, features), generator=generator, dtype=dtype, device=device)
        if self.padding_index is not None:
            self.weight[self.padding_index] = 0.0

    def forward(self, indices: Tensor) -> Tensor:
        """Rows [..., features] for integer indices [...] in [0, count).

        Args:
            indices: Integer tensor of any shape.
        """
        indices = _checked_indices("Embedding", indices, self.count)
        found = take(self.weight, indices, axis=0)
        if self.padding_index is None:
            return found
        fixed = self.weight.detach()[self.padding_index]
        return where(expand_dims(equal(indices, self.padding_index), axis=-1), fixed, found)

    def describe(self) -> str:
        return f"{self.count}, {self.features}" + (
            "" if self.padding_index is None else f", padding_index={self.padding_index}"
        )


class EmbeddingBag(Module):
    """Rows of a table, summed, averaged or compared over the last axis of indices.

    The table starts from N(0, 1), the row of ``padding_index`` from zeros.

    Args:
        count: Number of rows.
        features: Size of a row.
        mode: "mean", "sum" or "max" of a bag's rows.
        padding_index: Index that stands for nothing: bags do not count it. A bag of nothing else gives zeros.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the table; the device's default float by default.
        device: Device of the table.

    Attributes:
        weight: Parameter [count, features].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.EmbeddingBag(10, 3, padding_index=0)(fb.asarray([[1, 2, 5], [3, 0, 0]])).shape
        (2, 3)
    """

    def __init__(
        self, count: int, features: int, *, mode: str = "mean", padding_index: int | None = None,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("EmbeddingBag", count=count, features=features)
        check_choice("EmbeddingBag", "mode", mode, ("mean", "sum", "max"))
        self.count, self.features, self.mode = count, features, mode
        self.padding_index = None if padding_index is None else _row_of("EmbeddingBag", padding_index, count)
        self.weight = initial.normal((count, features), generator=generator, dtype=dtype, device=device)
        if self.padding_index is not None:
            self.weight[self.padding_index] = 0.0

    def forward(self, indices: Tensor, *, weights: Tensor | None = None) -> Tensor:
        """Map bags of indices [..., size] to [..., features].

        Args:
            indices: Integers in [0, count).
            weights: Floating tensor of the same shape, a factor for each row; for "sum" only.
        """
        indices = _checked_indices("EmbeddingBag", indices, self.count)
        check_devices("EmbeddingBag", indices=indices, weights=weights, weight=self.weight)
        if indices.ndim == 0:
            raise ShapeError("EmbeddingBag: indices are [..., size]", describe("indices", indices), "add an axis")
        if weights is not None and (self.mode != "sum" or weights.shape != indices.shape):
            raise ShapeError(
                'EmbeddingBag: weights have the shape of indices, in mode "sum"',
                f"{describe('weights', weights)} and {describe('indices', indices)}, mode {self.mode!r}",
                "reshape them, or choose the mode",
            )
        rows = take(self.weight, indices, axis=0)
        if weights is not None:
            rows = rows * expand_dims(weights, axis=-1)
        counted: Tensor | None = None
        if self.padding_index is not None:
            counted = not_equal(indices, self.padding_index)
            rows = where(expand_dims(counted, axis=-1), rows, -inf if self.mode == "max" else 0.0)
        if self.mode == "max":
            return _largest(rows)
        total = sum_(rows, axis=-2)
        if self.mode == "sum":
            return total
        if counted is None:
            return total * (1.0 / max(1, indices.shape[-1]))
        return total / maximum(sum_(astype(counted, total.dtype), axis=-1, keepdims=True), 1.0)

    def describe(self) -> str:
        padding = "" if self.padding_index is None else f", padding_index={self.padding_index}"
        return f"{self.count}, {self.features}, mode={self.mode!r}{padding}"


def _largest(rows: Tensor) -> Tensor:
    """The largest elements of rows [..., size, features] that are not -∞; 0 if there is none."""
    if not rows.shape[-2]:
        return sum_(rows, axis=-2)
    found = max_(rows, axis=-2)
    return where(equal(found, -inf), 0.0, found)


def _row_of(layer: str, index: Any, count: int) -> int:
    """An index of a row as one ≥ 0."""
    if not isinstance(index, int) or isinstance(index, bool) or not -count <= index < count:
        raise OutOfRangeError(
            f"{layer}: padding_index lies in [{-count}, {count})", f"padding_index = {index!r}", "pass an index of the table"
        )
    return int(index % count)


def _checked_indices(layer: str, indices: Any, count: int) -> Tensor:
    """Indices of rows, in a dtype that holds them all."""
    if not isinstance(indices, Tensor):
        raise not_a_tensor(layer, "indices", indices, None)
    if not indices.dtype.is_integer:
        raise DTypeError(f"{layer}: indices need an integer dtype", describe("indices", indices), "cast them to fb.int64")
    check_range(layer, "indices", indices, 0, count, "check them (tokens, categories) against the number of rows")
    return in_default_int(indices)
