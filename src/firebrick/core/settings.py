"""Checks of the numbers among a function's arguments: an error names the function, the argument and what it may be.

``python_settings`` is the only function in which NumPy scalars among the settings of a layer, an optimizer or a schedule become
Python numbers, before any of them is checked or kept; ``python_numbers`` does so for single values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from numbers import Real
from operator import index
from typing import Any, ParamSpec, TypeVar

import numpy as np

from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import ConfigError
from firebrick.core.other_arguments import refuse_unknown
from firebrick.core.weak import Weak

P = ParamSpec("P")
T = TypeVar("T")


def python_settings(fn: Callable[P, T]) -> Callable[P, T]:
    """A function whose arguments have Python numbers for NumPy scalars, also within lists, tuples and dicts.

    Example:
        >>> import numpy as np
        >>> from firebrick.core.settings import python_settings
        >>> python_settings(lambda sizes, p: (sizes, p))((np.int64(3), 2), np.float32(0.5))
        ((3, 2), 0.5)
    """

    @wraps(fn)
    def called(*args: P.args, **named: P.kwargs) -> T:
        given: Any = python_numbers(args)
        try:
            return fn(*given, **python_numbers(named))
        except TypeError:
            refuse_unknown(fn, args, named)
            raise

    return called


def python_numbers(value: Any) -> Any:
    """The value, or a copy with Python numbers if it is or holds NumPy scalars, also within lists, tuples and dicts.

    Example:
        >>> import numpy as np
        >>> from firebrick.core.settings import python_numbers
        >>> python_numbers([np.int64(3), (np.float32(0.5), "a")])
        [3, (0.5, 'a')]
    """
    kind = type(value)
    if kind is tuple or kind is list:
        items = [python_numbers(v) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else kind(items)
    if kind is dict:
        found = {k: python_numbers(v) for k, v in value.items()}
        return value if all(found[k] is v for k, v in value.items()) else found
    return python_scalar(value)


def number(where: str, name: str, value: Any, least: float | None = None) -> float:
    """A real number, as it is; at least ``least``, which NaN is not.

    Raises:
        ConfigError: It is no number, or a bool, or too small.
    """
    value = python_scalar(value)
    bound = "" if least is None else f" ≥ {least:g}"
    if isinstance(value, Real) and not isinstance(value, bool):
        real: float = value  # type: ignore[assignment]
        if least is None or real >= least:
            return real
        raise ConfigError(f"{where}: {name} is a number{bound}", _shown(name, value), "pass another one", op=where)
    if isinstance(value, Weak):
        raise value.unknown(f"{where}: {name}")
    raise ConfigError(f"{where}: {name} is a number{bound}", _shown(name, value), "pass a Python float or int", op=where)


def whole(where: str, name: str, value: Any, least: int | None = None) -> int:
    """An int, at least ``least``.

    Raises:
        ConfigError: It is no int, or too small.
    """
    try:
        found = None if isinstance(value, (bool, np.bool_)) else index(value)
    except TypeError:
        found = None
    if found is None or (least is not None and found < least):
        bound = "" if least is None else f" ≥ {least}"
        remedy = "pass a Python int" if found is None else "pass another one"
        raise ConfigError(f"{where}: {name} is an int{bound}", _shown(name, value), remedy, op=where)
    return found


def _shown(name: str, value: Any) -> str:
    return f"{name}={value!r:.80}"
