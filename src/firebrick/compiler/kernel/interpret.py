"""The NumPy interpreter of kernel IR: what a kernel means, in its own dtypes.

Its items run together, statement by statement (``lockstep``). With checks every access is compared with those of other items,
so that a kernel without errors means the same in every order; a seed draws an order of the groups and of atomic operations.
Without checks it is as fast as NumPy is, and accesses no memory outside of its arrays: the fallback of engines that have no
code for a kernel. It shares nothing with the targets but the scalar expressions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.kernel.arguments import check_arrays, numbers, sizes
from firebrick.compiler.kernel.checked_arrays import CheckedArrays
from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.kernel.item_errors import ItemErrors
from firebrick.compiler.kernel.lockstep import Lockstep
from firebrick.compiler.kernel.scopes import ID, ROW, Scope
from firebrick.compiler.kernel.unchecked_arrays import UncheckedArrays
from firebrick.compiler.kernel.verify import verify
from firebrick.scalar.expr import Number

Array = np.ndarray[Any, Any]
LIMIT = 1_000_000
"""How often the interpreter executes the block of one ``While`` before it takes the loop for an endless one."""
_ITEMS = 1 << 16
"""How many items run together without checks: their values stay in the cache."""


def interpret(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: int | tuple[int, ...],
    limit: int = LIMIT, checked: bool = True, seed: int | None = None, unset: Collection[str] = (),
) -> Fault | None:  # fmt: skip
    """Run all items of a kernel.

    Args:
        function: Kernel.
        arrays: A one-dimensional array for each of its arrays, of the same dtype; stores change them.
        scalars: A number for each of its scalars.
        grid: Number of items along each axis of the grid: the outer ones, then the item's; an int for one axis.
        limit: How often the block of a ``While`` is executed at most.
        checked: Whether bounds, races and reads of elements that have no value are looked for. Otherwise an index out
            of range accesses the nearest element, and the result of a race is one of those that are possible.
        unset: Names of arrays whose elements, like those of shared arrays, have no value before they are stored: for checks.
        seed: Of the order of the groups (of the items, without groups) and of atomic operations; None for that of the indices.

    Returns:
        The fault that a launch reports, or None.

    Raises:
        KernelCompileError: The kernel breaks a rule of kernel IR.
        LaunchError: The arguments are not those of the kernel.
        OutOfRangeError: An item accesses an element that an array does not have.
        ExecutionError: An item accesses an element that another item stores, or reads an element that has no value, or a loop
            passes the limit.

    Example:
        >>> import numpy as np
        >>> from firebrick.compiler.kernel import ArrayParameter, Function, Store, interpret
        >>> from firebrick.scalar.expr import local
        >>> x, i = ArrayParameter("x", "int64", "read_write"), local("i", "int64")
        >>> data = np.arange(4)
        >>> interpret(Function("square", (x,), (), "i", (Store("x", i, x[i] * x[i]),)), {"x": data}, {}, 4)
        >>> data
        array([0, 1, 4, 9])
    """
    _verified(function)
    shape = sizes(function, grid)
    check_arrays(function, arrays)
    given = numbers(function, scalars)
    errors = ItemErrors(function, shape)
    rng = None if seed is None else np.random.default_rng(seed)
    memory = CheckedArrays(function, arrays, prod(shape), errors, unset) if checked else UncheckedArrays(function, arrays)
    run = Lockstep(memory, errors, limit, rng, function.index)
    waves = _boxes(function, shape, prod(shape) if checked else _ITEMS) if rng is None else _drawn(function, shape, rng)
    with np.errstate(all="ignore"):
        for wave in waves:
            memory.begin(prod(wave.shape[:-1]))
            wave.values.update(given)
            run.block(function.body, wave)
    return min((Fault(*f) for f in run.faults), default=None)


@lru_cache(256)
def _verified(function: Function) -> None:
    verify(function)


def _boxes(function: Function, grid: tuple[int, ...], most: int) -> Iterator[Scope]:
    """The items in the order of their indices, in boxes of about ``most`` items or one group."""
    if not prod(grid):
        return
    names = (*function.outer, function.item)
    last = len(grid) - 1
    axis = last  # the boxes are pieces along this axis, and have all of the axes behind it
    while axis and prod(grid[axis:]) < most:
        axis -= 1
    step = max(1, most // prod(grid[axis + 1 :]))
    if function.group and axis == last:
        step = grid[last]
    strides = [prod(grid[a + 1 :]) for a in range(len(grid))]
    for lead in product(*map(range, grid[:axis])):
        for begin in range(0, grid[axis], step):
            corner = (*lead, begin, *(0 for _ in grid[axis + 1 :]))
            shape = (*(1 for _ in lead), min(step, grid[axis] - begin), *grid[axis + 1 :])
            wave = Scope(shape)
            for a, name in enumerate(names):
                wave.define_linear(name, (corner[a], *(int(a == b and n > 1) for b, n in enumerate(shape))))
                if function.index != "int64":
                    wave.define(name, wave.read(name).astype(function.index))
            number = sum(c * s for c, s in zip(corner, strides, strict=True))
            wave.define_linear(ID, (number, *strides))
            wave.define_linear(ROW, (0, *(prod(shape[a + 1 : -1]) for a in range(last)), 0))
            yield wave


def _drawn(function: Function, grid: tuple[int, ...], rng: np.random.Generator) -> Iterator[Scope]:
    """The groups, or items without groups, in a random order, some of them together."""
    names = (*function.outer, function.item)
    size = function.group or 1
    order = rng.permutation(prod(grid) // size)
    cuts = np.sort(rng.integers(0, order.size + 1, rng.integers(4)))
    for piece in np.split(order, cuts):
        if piece.size:
            number = piece[:, None] * size + np.arange(size) if function.group else piece
            indices = [x.astype(function.index) for x in np.unravel_index(number, grid)]
            row = np.arange(piece.size)[:, None] if function.group else np.arange(piece.size)
            yield Scope(number.shape, dict(zip(names, indices, strict=True)) | {ID: number, ROW: row})
