"""The arguments of a launch, compared with the parameters of its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from firebrick.compiler.kernel.ir import Function, ScalarParameter
from firebrick.core.errors import LaunchError
from firebrick.scalar.expr import FLOATS, Number, const

Array = np.ndarray[Any, Any]


def check_arrays(function: Function, arrays: Mapping[str, Array], grid: int) -> None:
    """Check the arrays and the grid of a launch.

    Args:
        function: Kernel to launch.
        arrays: For each of its arrays the memory, one-dimensional and contiguous.
        grid: Number of items.

    Raises:
        LaunchError: A name is missing or unknown, or an array does not fit its parameter.
    """
    _check_names(function, "arrays", [a.name for a in function.arrays], arrays)
    for a in function.arrays:
        x = arrays[a.name]
        fits = x.dtype.name == a.dtype and x.ndim == 1 and x.flags.c_contiguous and a.extent in (None, x.size)
        if not fits or (a.access != "read" and not x.flags.writeable):
            how = "contiguous" if x.flags.c_contiguous else "not contiguous"
            how += "" if x.flags.writeable else ", read-only"
            _refuse(function, str(a), f"{x.dtype.name}{list(x.shape)}, {how}", "pass a contiguous array of one axis")
    if type(grid) is not int or grid < 0:
        _refuse(function, "its grid is a number of items", repr(grid), "pass an int of at least 0")


def numbers(function: Function, scalars: Mapping[str, Number]) -> dict[str, Array]:
    """The scalars of a launch in their dtypes, by name, in the order of the parameters.

    Args:
        function: Kernel to launch.
        scalars: For each of its scalars the number.

    Raises:
        LaunchError: A name is missing or unknown, or a number does not fit its dtype.
    """
    _check_names(function, "scalars", [s.name for s in function.scalars], scalars)
    return {s.name: _number(function, s, scalars[s.name]) for s in function.scalars}


def _check_names(function: Function, kind: str, wanted: list[str], given: Iterable[str]) -> None:
    if set(wanted) != set(given):
        names = (", ".join(n) or "none" for n in (wanted, given))
        _refuse(function, f"its {kind} are {next(names)}", next(names), "pass exactly these")


def _number(function: Function, s: ScalarParameter, value: Number) -> Array:
    if isinstance(value, bool | int) or s.dtype in FLOATS:
        found = np.asarray(const(value, s.dtype).value, s.dtype)
        if s.dtype in FLOATS or found.item() == value:
            return found
    _refuse(function, f"{s.name} is {s.dtype}", repr(value), "pass a number that the dtype holds")


def _refuse(function: Function, expected: str, received: str, remedy: str) -> NoReturn:
    raise LaunchError(f"kernel {function.name}: {expected}", received, remedy, kernel=function.name)
