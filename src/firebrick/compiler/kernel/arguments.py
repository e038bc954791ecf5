"""The arguments of a launch, compared with the parameters of its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from firebrick.compiler.kernel.ir import Function, ScalarParameter
from firebrick.core.errors import LaunchError
from firebrick.scalar.expr import FLOATS, Number, const

Array = np.ndarray[Any, Any]


def check_arrays(function: Function, arrays: Mapping[str, Array]) -> None:
    """Check the arrays of a launch.

    Args:
        function: Kernel to launch.
        arrays: For each of its arrays the memory, one-dimensional and contiguous.

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


def sizes(function: Function, grid: int | tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a launch's grid, along the outer axes and the item's.

    Args:
        function: Kernel to launch.
        grid: These sizes, or the only one.

    Raises:
        LaunchError: The grid does not fit the kernel.
    """
    found = grid if isinstance(grid, tuple) else (grid,)
    axes = len(function.outer) + 1
    if len(found) != axes or any(type(n) is not int or n < 0 for n in found):
        what = "its grid is a number of items"
        if axes > 1:
            what += f" for each of {', '.join((*function.outer, function.item))}"
        _refuse(function, what, repr(grid), "pass an int of at least 0" + (" for each" if axes > 1 else ""))
    if function.group and found[-1] != function.group:
        _refuse(function, f"the last axis of its grid is a group of {function.group}", repr(grid), "launch whole groups")
    return found


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
