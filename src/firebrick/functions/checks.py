"""Conditions on the values of tensors: looked at on the host at once, or, inside a trace, by every run of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.autodiff.tape import no_grad
from firebrick.backends.dispatch import known_range
from firebrick.core.batched import Batched, values_of_all
from firebrick.core.bind import bind
from firebrick.core.dtypes import iinfo
from firebrick.core.errors import DataDependentError, OutOfRangeError
from firebrick.core.hooks import hooks
from firebrick.core.levels import here, readable
from firebrick.core.lines import user_line
from firebrick.core.operands import describe, describe_unnamed
from firebrick.core.tensor import Tensor
from firebrick.ops import OPS


def deferred(x: Any) -> bool:
    """Whether the values of a tensor cannot be read here: inside a trace, and of one example of ``fb.vmap``."""
    return isinstance(x, Tensor) and (hooks.trace() is not None or type(readable(x).storage.data) is Batched)


def staged(ok: Callable[[], Tensor], error: Callable[[], Exception]) -> bool:
    """Inside a trace: have each run of the graph raise ``error()`` unless ``ok()``, a bool tensor, holds everywhere. Inside
    ``fb.vmap``: raise it now unless it holds everywhere for all examples.

    Returns:
        Whether there is a trace or a ``vmap``; if not, nothing was done and the caller looks at the values on the host.
    """
    trace = hooks.trace()
    if trace is None and not any(level.maps for level in here()):
        return False
    with no_grad():
        condition = ok()
        if trace is None:
            if not hooks.to_host(values_of_all(condition)).all():
                raise error()
            return True
        trace.check(bind(OPS["all"], (condition,), {"axes": tuple(range(condition.ndim)), "keepdims": False}), error)
    return True


def known_now(where: str, needs: str, key: str, x: Tensor, remedy: str) -> None:
    """Check that values can be read here, which inside a trace and inside ``fb.vmap`` they cannot.

    Args:
        where: The public function.
        needs: What it needs them for, as in ``the shape of its result``.
        key: The user's name of the tensor.
        x: The tensor whose values are needed.
        remedy: What to do under ``jit``.

    Raises:
        DataDependentError: They cannot.
    """
    if deferred(x):
        traced = hooks.trace() is not None
        there = "while the graph is made, when there are none yet" if traced else "and under fb.vmap each example has its own"
        raise DataDependentError(
            f"{where}: {needs} needs the values of {key} {there}",
            f"{describe(key, x)}, at {user_line()}",
            f"{remedy}, or do it outside {'jit' if traced else 'vmap'}",
            op=where,
        )


def check_range(where: str, key: str, values: Tensor, low: int, high: int, remedy: str, ignored: int | None = None) -> None:
    """Check that integers lie in [low, high), those equal to ``ignored`` apart.

    Raises:
        OutOfRangeError: They do not (inside a trace: each run of the graph raises it).
    """
    if values.device.engine == "meta" or not values.size:
        return
    expected, said = f"{where}: {key} must lie in [{low}, {high})", describe(key, values).removeprefix(f"{key}: ")
    unnamed = describe_unnamed(key, values).removeprefix(f"{key}: ")

    def inside() -> Tensor:
        info = iinfo(values.dtype)  # a bound that it cannot pass is no operand beside it
        ok: Tensor = bind(OPS["greater_equal"], (values, max(low, info.min)), {})
        if high <= info.max:
            ok = bind(OPS["logical_and"], (ok, bind(OPS["less"], (values, high), {})), {})
        if ignored is not None and info.min <= ignored <= info.max:
            ok = bind(OPS["logical_or"], (ok, bind(OPS["equal"], (values, ignored), {})), {})
        return ok

    if staged(inside, lambda: OutOfRangeError(expected, f"{key} with a value outside, {unnamed}", remedy, op=where)):
        return
    if (known := known_range(values)) is not None and low <= known[0] and known[1] < high:
        return
    host = hooks.to_host(values)
    if ignored is not None:
        host = host[host != ignored]
    if host.size and (int(host.min()) < low or int(host.max()) >= high):
        raise OutOfRangeError(expected, f"{key} from {int(host.min())} to {int(host.max())}, {said}", remedy, op=where)
