"""The backend by which einops computes with tensors: einops looks for a subclass of its ``AbstractBackend``.

Imported when einops is; see ``functions.registrations``.
"""

from __future__ import annotations

from typing import Any

from einops._backends import AbstractBackend

from firebrick.core.tensor import Tensor
from firebrick.functions.arrangement import tile
from firebrick.functions.contraction import einsum
from firebrick.functions.conversion import asarray
from firebrick.functions.movement import broadcast_to, concat, expand_dims, permute_dims, reshape, stack
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import max, mean, min, prod, sum
from firebrick.functions.utility import all, any

_REDUCTIONS = {"sum": sum, "mean": mean, "max": max, "min": min, "prod": prod, "all": all, "any": any}


class FirebrickBackend(AbstractBackend):
    """What einops asks of a library of arrays, in functions of this package."""

    framework_name = "firebrick"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return asarray(x)

    def to_numpy(self, x: Tensor) -> Any:
        return x.numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return arange(start, stop)

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return reshape(x, tuple(shape))

    def transpose(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return permute_dims(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: tuple[int, ...]) -> Tensor:
        return _REDUCTIONS[operation](x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return expand_dims(x, axis=new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        for position in sorted(pos2len):
            x = expand_dims(x, axis=position)
        return broadcast_to(x, tuple(pos2len.get(axis, size) for axis, size in enumerate(x.shape)))

    def tile(self, x: Tensor, repeats: tuple[int, ...]) -> Tensor:
        return tile(x, tuple(repeats))

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        return concat(tensors, axis=axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.dtype.kind in ("float", "complex")

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)
