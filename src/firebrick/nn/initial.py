"""Initial parameters: drawn by the host reference in float64, rounded to the parameter's dtype, then moved.

So a model starts from the same numbers on every device, and in float32 from the rounded ones of float64.
"""

from __future__ import annotations

from typing import Any

from firebrick.autodiff.tape import no_grad
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float64
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DTypeError
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import full
from firebrick.functions.elementwise import astype
from firebrick.nn.parameter import Parameter
from firebrick.random import Generator, initial_generator, row_offset


def uniform(
    shape: tuple[int, ...], bound: float, *, generator: Generator | None = None, dtype: Any = None, device: Any = None
) -> Parameter:
    """A parameter drawn from U(-bound, bound).

    Args:
        shape: Sizes.
        bound: Largest magnitude.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default.
        device: Device of the parameter.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.uniform((2, 3), 0.5).shape
        (2, 3)
    """
    goal, dt = _target(dtype, device)
    with no_grad(), row_offset(0):
        drawn = (generator or initial_generator()).uniform(shape, -bound, bound, dtype=float64, device="numpy")
        return Parameter(astype(drawn, dt, copy=False).to(goal))


def normal(
    shape: tuple[int, ...], std: float, *, generator: Generator | None = None, dtype: Any = None, device: Any = None
) -> Parameter:
    """A parameter drawn from N(0, std²); arguments as for ``uniform``.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.normal((4,), 0.02).shape
        (4,)
    """
    goal, dt = _target(dtype, device)
    with no_grad(), row_offset(0):
        drawn = (generator or initial_generator()).normal(shape, 0.0, std, dtype=float64, device="numpy")
        return Parameter(astype(drawn, dt, copy=False).to(goal))


def constant(shape: tuple[int, ...], value: float, *, dtype: Any = None, device: Any = None) -> Parameter:
    """A parameter whose elements are all ``value``.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.constant((2,), 1.0).tolist()
        [1.0, 1.0]
    """
    goal, dt = _target(dtype, device)
    filled: Tensor = full(shape, value, dtype=dt, device=goal)
    return Parameter(filled)


def _target(dtype: Any, device: Any) -> tuple[Device, DType]:
    goal = find_device(device)
    dt = as_dtype(goal.backend.default_float(goal) if dtype is None else dtype)
    if dt.kind != "float":
        raise DTypeError("a parameter has a floating dtype", dt.name, "pass e.g. dtype=fb.float32")
    return goal, dt
