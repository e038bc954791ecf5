"""What the draws with tensor parameters share: their device, shape and dtypes, and checks of the parameters' values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.backends.contract import check_storable
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float32, float64, promote
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.checks import staged
from firebrick.functions.creation import full
from firebrick.functions.elementwise import astype, greater, greater_equal, less_equal, logical_and
from firebrick.functions.movement import broadcast_to
from firebrick.functions.utility import all as all_
from firebrick.random.defaults import source_of
from firebrick.random.generator import Generator

Parameter = Tensor | float


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that a parameter may be: from ``low`` (which is excluded, if ``strict``) to ``high``."""

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    def __str__(self) -> str:
        if self.high < math.inf:
            return f"in {'(' if self.strict else '['}{self.low:g}, {self.high:g}]"
        return "finite" if self.low == -math.inf else f"finite and {'>' if self.strict else '≥'} {self.low:g}"

    def holds(self, x: float) -> bool:
        """Whether a number may be the parameter."""
        return math.isfinite(x) and (self.low < x if self.strict else self.low <= x) and x <= self.high

    def hold(self, x: Tensor) -> Tensor:
        """The same of each element of a tensor."""
        low = -math.inf if self.low == -math.inf else self.low
        first = greater(x, low) if self.strict or low == -math.inf else greater_equal(x, low)
        last = less_equal(x, self.high) if self.high < math.inf else ~(greater_equal(x, math.inf))
        return logical_and(first, last)


ANY = Bounds()
POSITIVE = Bounds(0.0, strict=True)
NONNEGATIVE = Bounds(0.0)
PROBABILITY = Bounds(0.0, 1.0)


def check_parameter(name: str, key: str, value: Any, bounds: Bounds) -> None:
    """Check a number or the values of a tensor (inside a trace, by each run).

    Raises:
        ConfigError: A number is not within the bounds.
        OutOfRangeError: An element of a tensor is not.
        DTypeError: The tensor is complex or bool.
    """
    want = f"{name}: {key} is {bounds}"
    if not isinstance(value, Tensor):
        if not bounds.holds(number(name, key, value)):
            raise ConfigError(want, f"{key}={value!r:.60}", "pass another one", op=name)
        return
    check_operand(name, value, "real", key)
    if value.device.engine == "meta" or not value.size:
        return
    held = value.detach()
    held = held if held.dtype.kind == "float" else astype(held, float32)

    def error() -> OutOfRangeError:
        return OutOfRangeError(want, describe(key, value), "look at its values", op=name)

    check_values(lambda: bounds.hold(held), error)


def check_rounded(name: str, key: str, value: Any, bounds: Bounds, dtype: DType) -> None:
    """Check a number that is within the bounds, as a number of a dtype, which may be infinite or 0.

    Raises:
        ConfigError: It is not within the bounds any longer.
    """
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.asarray(float(value), dtype.np))
    if not bounds.holds(rounded):
        raise ConfigError(
            f"{name}: {key} is {bounds} in {dtype.name}", f"{key}={value!r:.60}, which is {rounded} there",
            "pass another one, or the parameters as tensors of a wider dtype", op=name,
        )  # fmt: skip


def check_values(ok: Callable[[], Tensor], error: Callable[[], Exception]) -> None:
    """Raise an error unless a condition holds everywhere; inside a trace, have each run raise it."""
    if not staged(ok, error) and not bool(all_(ok())):
        raise error()


@dataclass(frozen=True, slots=True)
class Draw:
    """A draw that was asked for.

    Attributes:
        device: Where it is drawn.
        shape: Shape of the result.
        dtype: Dtype of the result.
        wide: Dtype to compute in: float64 where the device has it.
        generator: Source of the bits.
        parameters: The parameters, as tensors of ``wide`` and of the draw's shape.
    """

    device: Device
    shape: tuple[int, ...]
    dtype: DType
    wide: DType
    generator: Generator
    parameters: Mapping[str, Tensor]


def draw(
    name: str,
    shape: Any,
    parameters: Mapping[str, tuple[Any, Bounds]],
    dtype: Any,
    device: Any,
    generator: Generator | None,
    whole: bool = False,
) -> Draw:
    """A draw's device, shape, dtypes and generator, from its arguments.

    Args:
        name: The public function.
        shape: As the user gave it.
        parameters: Values and bounds by the user's names.
        dtype: That of the result; by default that of the parameters that are tensors, or the device's.
        device: By default that of the parameters that are tensors, or the default device.
        generator: By default that of the device.
        whole: Whether the results are integers.
    """
    tensors = {k: v for k, (v, _) in parameters.items() if isinstance(v, Tensor)}
    check_devices(name, **tensors)
    found = next(iter(tensors.values()), None)
    goal = find_device(device) if device is not None or found is None else found.device
    if found is not None and found.device is not goal:
        check_devices(name, **tensors, device=full((), 0.0, device=goal))
    for key, (value, bounds) in parameters.items():
        check_parameter(name, key, value, bounds)
    sizes = normalize_shape(shape, name)
    for key, value in tensors.items():
        if not _fits(value.shape, sizes):
            raise ShapeError(
                f"{name}: {key} broadcasts to the shape that is drawn", f"{describe(key, value)}, shape {sizes}",
                f"draw e.g. {key}.shape",
            )  # fmt: skip
    wide = float64 if goal.backend.supports_dtype(goal, float64) else float32
    made = {}
    for key, (value, _) in parameters.items():
        x = astype(value, wide, copy=False) if isinstance(value, Tensor) else full((), float(value), dtype=wide, device=goal)
        made[key] = broadcast_to(x, sizes)
    dt = _result_dtype(name, goal, dtype, list(tensors.values()), whole)
    return Draw(goal, sizes, dt, wide, source_of(name, generator, goal), made)


def _fits(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))


def _result_dtype(name: str, device: Device, dtype: Any, tensors: list[Tensor], whole: bool) -> DType:
    if whole:
        dt = as_dtype(device.backend.default_int(device) if dtype is None else dtype)
        if not dt.is_integer and dt.kind != "float":
            raise DTypeError(f"{name} draws integers", dt.name, "pass an integer or a floating dtype")
        check_storable(dt, device)
        return dt
    floating = [t.dtype for t in tensors if t.dtype.kind == "float"]
    dt = as_dtype(device.backend.default_float(device) if dtype is None else dtype)
    if dtype is None and floating:
        dt = floating[0]
        for other in floating[1:]:
            dt = promote(dt, other) or dt
    if dt.kind != "float":
        raise DTypeError(f"{name} numbers have a floating dtype", dt.name, "use float32")
    check_storable(dt, device)
    return dt


def finished(drawn: Draw, x: Tensor) -> Tensor:
    """A result in the dtype that was asked for."""
    return astype(x, drawn.dtype, copy=False)
