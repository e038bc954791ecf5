"""``bound_sizes``: the values of a signature's sizes for the arrays of a call, which must fit it and each other.

A name is bound by the first axis that has it. A size of an argument that is an expression is computed from the names, and
compared. The shapes of results, and the grid, follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firebrick.compiler.kernel.language.annotations import Signature, Size, size_name
from firebrick.compiler.kernel.language.values import counted
from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError


@dataclass(frozen=True, slots=True)
class BoundSizes:
    """The sizes of one call.

    Attributes:
        known: Values of names and numbers by their text, and of sizes that are expressions by array and axis, ``x_size0``.
        results: Shape of each result.
        grid: Sizes of the grid; without that of a group.
    """

    known: dict[str, int]
    results: dict[str, tuple[int, ...]]
    grid: tuple[int, ...]


def bound_sizes(signature: Signature, operands: Mapping[str, Aval], integers: Mapping[str, int], op: str) -> BoundSizes:
    """The sizes of a call.

    Args:
        signature: Of the kernel.
        operands: Its arrays, and its numbers, which have no axes, in order.
        integers: Its constants and arguments that sizes depend on.
        op: Name of the kernel, for messages.

    Raises:
        ShapeError: Shapes do not fit the signature, or each other.
    """
    known = dict(integers)
    where = {n: f"{n}={v}" for n, v in known.items()}
    computed: list[tuple[str, int, Size, Aval]] = []
    for name, aval in operands.items():
        array = signature.arrays.get(name)
        wanted = array.sizes if array is not None else ()
        if aval.ndim != len(wanted):
            raise ShapeError(f"{name} has {counted(len(wanted), 'axis')}", _shown(name, aval), "reshape it", op=op)
        for axis, (n, s) in enumerate(zip(aval.shape, wanted, strict=True)):
            if s is not None and not s.simple:
                computed.append((name, axis, s, aval))
                continue
            text = size_name(name, axis, s)
            if text.isdecimal():
                known.setdefault(text, int(text))
                where.setdefault(text, f"the annotation of {name}")
            if known.setdefault(text, n) != n:
                raise ShapeError(
                    f"axis {axis} of {name} has size {known[text]}, as {where[text]}", _shown(name, aval),
                    f"pass arrays whose sizes {text} are equal" if text.isidentifier() else f"pass one of size {text}", op=op,
                )  # fmt: skip
            where.setdefault(text, f"axis {axis} of {name}")
    for name, axis, s, aval in computed:
        known[f"{name}_size{axis}"] = n = s.value(known)
        if aval.shape[axis] != n:
            raise ShapeError(
                f"axis {axis} of {name} has size {n}, {s.text}", _shown(name, aval), f"pass one of size {s.text}", op=op
            )
    results: dict[str, tuple[int, ...]] = {}
    for name, array in signature.results.items():
        lengths: list[int] = []
        for axis, s in enumerate(array.sizes):
            n = known[size_name(name, axis, s)] if s is None or (s.simple and s.text in known) else s.value(known)
            if n < 0:
                raise ShapeError(
                    f"axis {axis} of the result {name} has a size of at least 0, {s.text if s else ''}", f"{n}",
                    "pass larger arrays", op=op,
                )  # fmt: skip
            if s is not None and not s.simple:
                known[f"{name}_size{axis}"] = n
            lengths.append(n)
        results[name] = tuple(lengths)
    grid = [known[s.text] if s.text in known else s.value(known) for s in signature.grid] or [1]
    if any(n < 0 for n in grid):
        raise ShapeError("sizes of the grid are not negative", str(grid), "pass larger arrays", op=op)
    return BoundSizes(known, results, tuple(grid))


def _shown(name: str, aval: Aval) -> str:
    return f"{name}: {aval.dtype.name}{list(aval.shape)}"
