"""``in_float32``: a function of several steps computes half precision in float32 and rounds its results once.

A product of float16 numbers near 300 overflows, and a mean near 300 is rounded by 0.25, where the function's result would be
an ordinary number. This is the one mechanism for functions, decompositions of ops and gradient rules;
``compiler.fusion.expand`` does the same for graphs, and kernels compute in float32 anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from firebrick.core.autocast import NARROW, autocast_dtype
from firebrick.core.dtypes import DType, float32, promote
from firebrick.core.errors import FirebrickError
from firebrick.core.hooks import hooks
from firebrick.core.other_arguments import refuse_unknown
from firebrick.core.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def widened(x: Tensor) -> Tensor:
    """Half precision as float32; other dtypes as they are."""
    found: Tensor = hooks.methods["astype"](x, float32) if x.dtype in NARROW else x
    return found


def narrowed(x: Any, dtype: DType) -> Any:
    """A float32 tensor, or those of a tuple, rounded to half precision; other values as they are."""
    if type(x) is tuple:
        return tuple(narrowed(each, dtype) for each in x)
    return hooks.methods["astype"](x, dtype) if isinstance(x, Tensor) and x.dtype is float32 else x


def in_float32(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of tensors that takes several steps: half precision among its arguments is computed in float32.

    Its float32 results are rounded to the dtype that the floating arguments promote to, once.
    """
    return _decorated(function, False)


def in_wide_float32(function: Callable[P, R]) -> Callable[P, R]:
    """``in_float32`` for what ``autocast`` computes in float32: inside of that context its results stay in float32."""
    return _decorated(function, True)


def _decorated(function: Callable[P, R], kept: bool) -> Callable[P, R]:
    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            for x in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(x, Tensor) and x.dtype in NARROW:
                    return cast(R, _computed(function, args, kwargs, kept and autocast_dtype() is not None))
            return function(*args, **kwargs)
        except TypeError:
            refuse_unknown(function, args, kwargs)
            raise

    return computed


def _computed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], kept: bool) -> Any:
    goal: DType | None = None
    for x in (*args, *kwargs.values()):
        if isinstance(x, Tensor) and x.dtype.kind in ("float", "complex"):
            goal = x.dtype if goal is None else promote(goal, x.dtype)
    try:
        found = function(*map(_wide, args), **{k: _wide(v) for k, v in kwargs.items()})
    except FirebrickError:
        function(*args, **kwargs)  # raises the same of the caller's own tensors, by their dtypes and labels
        raise
    return found if kept or goal not in NARROW else narrowed(found, goal)


def _wide(x: Any) -> Any:
    return widened(x) if isinstance(x, Tensor) else x
