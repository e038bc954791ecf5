"""``Sequential``, and layers that only reshape."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from firebrick.core.errors import ConfigError, OutOfRangeError, ShapeError
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import reshape
from firebrick.nn.module import Module

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # whose variables have defaults

    from firebrick.nn.call_types import Forward

    R = TypeVar("R", default=Tensor)
else:
    from typing import TypeVar

    R = TypeVar("R")


class Identity(Module):
    """x itself.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Identity()(fb.ones(2)).tolist()
        [1.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """Neighbouring axes as one: by default all after the first, [batch, …] to [batch, features].

    Args:
        start_axis: First axis of those that become one.
        end_axis: Last of them.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Flatten()(fb.ones((2, 3, 4))).shape
        (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise not_a_tensor("Flatten", "x", x, None)
        if x.ndim < 2 and (self.start_axis, self.end_axis) == (1, -1):
            return reshape(x, (x.shape[0] if x.ndim else 1, 1))
        start, end = normalize_axis(self.start_axis, x.ndim, "Flatten"), normalize_axis(self.end_axis, x.ndim, "Flatten")
        if start > end:
            raise ShapeError(
                "Flatten: start_axis comes before end_axis",
                f"{describe('x', x)}, start_axis {self.start_axis}, end_axis {self.end_axis}",
                "exchange them",
            )
        return x if start == end else reshape(x, (*x.shape[:start], prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))

    def describe(self) -> str:
        return "" if (self.start_axis, self.end_axis) == (1, -1) else f"{self.start_axis}, {self.end_axis}"


class Unflatten(Module):
    """One axis as several.

    Args:
        axis: Axis of x.
        sizes: Sizes of the axes that take its place; one may be -1.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Unflatten(1, (3, -1))(fb.ones((2, 12))).shape
        (2, 3, 4)
    """

    def __init__(self, axis: int, sizes: tuple[int, ...]) -> None:
        given: tuple[Any, ...] = tuple(sizes)
        self.axis, self.sizes = axis, given
        if not given or any(not isinstance(n, int) or n < -1 for n in given) or given.count(-1) > 1:
            raise ConfigError("Unflatten: sizes are ints ≥ 0, of which one may be -1", repr(sizes), "pass e.g. (3, -1)")

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise not_a_tensor("Unflatten", "x", x, None)
        axis = normalize_axis(self.axis, x.ndim, "Unflatten")
        known = prod(n for n in self.sizes if n != -1)
        n = x.shape[axis]
        fits = known > 0 and n % known == 0 if -1 in self.sizes else n == known
        if not fits:
            raise ShapeError(
                f"Unflatten: axis {self.axis} of x holds as many elements as sizes {self.sizes}",
                describe("x", x),
                "change the sizes",
            )
        sizes = (n // known if s == -1 else s for s in self.sizes)
        return reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))

    def describe(self) -> str:
        return f"{self.axis}, {self.sizes}"


class Sequential(Module, Generic[R]):
    """Layers one after another: each takes what the one before returned.

    Args:
        layers: Modules.

    Attributes:
        layers: The same, as a tuple; ``model[i]`` is layer i, ``model[1:]`` a ``Sequential`` of the same layers from the
            second on.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Sequential(fb.nn.Flatten(), fb.nn.Linear(6, 2))(fb.ones((5, 2, 3))).shape
        (5, 2)
    """

    @overload
    def __init__(self, *layers: *tuple[*tuple[Module, ...], Forward[..., R]]) -> None: ...
    @overload
    def __init__(self: Sequential[Any], *layers: Module) -> None: ...
    def __init__(self, *layers: Module) -> None:  # type: ignore[misc]  # mypy knows no implementation of a star of a tuple
        for i, layer in enumerate(layers):
            _check_layer(f"layers[{i}]", layer)
        self.layers: tuple[Any, ...] = layers  # for `model.layers[0].weight`, which no Module is known to have

    def forward(self, *args: Any) -> R:
        result: Any = self.layers[0](*args) if self.layers else args[0]
        for layer in self.layers[1:]:
            result = layer(result)
        last: R = result
        return last

    def append(self, layer: Module) -> Self:
        """Add a layer at the end; returns the model.

        Args:
            layer: Module or function of a tensor.
        """
        _check_layer("layer", layer)
        self.layers = (*self.layers, layer)
        if self._path is not None:
            self._name(self._path)
        return self

    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return Sequential(*self.layers[i])
        return self.layers[self._place(i)]

    def __setitem__(self, i: int, layer: Module) -> None:
        _check_layer("layer", layer)
        at = self._place(i)
        self.layers = (*self.layers[:at], layer, *self.layers[at + 1 :])
        if self._path is not None:
            self._name(self._path)

    def _place(self, i: int) -> int:
        n = len(self.layers)
        if not -n <= i < n:
            raise OutOfRangeError(f"Sequential: an index lies in [{-n}, {n})", repr(i), "use the number of a layer")
        return i % n

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


def _check_layer(name: str, layer: Any) -> None:
    if not isinstance(layer, Module):
        remedy = "use nn.ReLU() for fb.relu, and so on"
        if isinstance(layer, (list, tuple)):
            remedy = "pass the layers one by one: nn.Sequential(*layers)"
        elif isinstance(layer, type) and issubclass(layer, Module):
            remedy = f"make the layer: nn.{layer.__name__}()"
        raise ConfigError("Sequential takes modules", f"{name}: {type(layer).__name__}", remedy)
