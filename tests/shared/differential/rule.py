"""A rule is one operation written three times, for Firebrick, NumPy and torch, and how its operands and parameters are drawn.

The texts are Python expressions with ``{0}``, ``{1}`` … for operands and ``{name}`` for parameters. NumPy's and torch's are the
ground truth: they say what the operation means without Firebrick. The rules themselves are in ``elementwise``, ``reductions``,
``movement`` and ``products``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Shape = tuple[int, ...]
Params = dict[str, Any]
Draw = Callable[[Random, list[Shape]], "Params | None"]
Others = Callable[[Random, Shape, list[int]], "list[Shape]"]


def nothing(d: Random, shapes: list[Shape]) -> Params | None:
    """No parameters."""
    return {}


@dataclass(frozen=True)
class Rule:
    """One operation.

    Attributes:
        name: Its key in ``RULES``.
        kinds: Kinds of its operands: ``f`` float, ``i`` int, ``b`` bool, ``a`` any.
        result: Kind of its result; ``=`` for the dtype of the first operand, or a dtype.
        fb, np, torch: The texts.
        draw: Chooses parameters for operands of these shapes, or None where none fit.
        joined: How operands must fit: ``broadcast`` together, ``equal`` shapes, or ``""`` where ``draw`` decides.
        weight: How often it is chosen among its family.
        slack: NumPy's text of what rounding in the operation may add: where terms of the value cancel, as in log_softmax, or
            of the derivative, as in the 1 - y² of tanh. In it, ``e(x)`` is a tiny multiple of x of random sign, ``d(x)`` is 0
            with the derivative of that, and ``stop(x)`` is x without its derivative.
        ranks: Ranks that the first operand may have; any by default.
        others: ``(d, shape of the first operand, sizes)``: shapes of new operands that fit it, where those at hand do not.
    """

    name: str
    kinds: str
    result: str
    fb: str
    np: str
    torch: str
    draw: Draw = nothing
    joined: str = ""
    weight: float = 1.0
    slack: str = ""
    ranks: tuple[int, ...] = ()
    others: Others | None = None

    @property
    def composed(self) -> bool:
        """Whether an operand goes through an operation of its own, in its own dtype, before it meets the others."""
        return re.fullmatch(r"[^()]*|fb\.[\w.]+\([^()]*\)", self.fb) is None


RULES: dict[str, Rule] = {}
FAMILIES: dict[str, list[Rule]] = {}


def rule(family: str, name: str, kinds: str, result: str, fb: str, numpy: str = "", torch: str = "", **more: Any) -> None:
    """Add a rule. A text that is not given is the one before it with the next library's name."""
    numpy = numpy or fb.replace("fb.", "np.")
    torch = torch or numpy.replace("np.", "torch.")
    assert name not in RULES, name
    RULES[name] = Rule(name, kinds, result, fb, numpy, torch, **more)
    FAMILIES.setdefault(family, []).append(RULES[name])


# draws that several families use


def one_axis(d: Random, shapes: list[Shape]) -> Params | None:
    """An axis of the first operand, counted from either end."""
    n = len(shapes[0])
    return {"axis": d.randrange(-n, n)} if n else None


def same_but_one(d: Random, shapes: list[Shape]) -> Params | None:
    """An axis of operands of one shape."""
    return one_axis(d, shapes) if len(set(shapes)) == 1 else None


def two_axes(d: Random, shapes: list[Shape]) -> Params | None:
    """Two different axes."""
    n = len(shapes[0])
    return dict(zip(("p", "q"), d.sample(range(n), 2), strict=True)) if n > 1 else None


def reduction(ndim: int, axis: int | tuple[int, ...] | None, keepdims: bool = False) -> Params:
    """Parameters of a reduction: ``dim`` is what torch takes for ``axis``."""
    dims = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis % ndim,)
    return {"axis": axis, "dim": dims, "keepdims": keepdims}


def reduced(d: Random, shapes: list[Shape]) -> Params | None:
    """Axes to reduce: often one, at times several or all."""
    n = len(shapes[0])
    if n == 0 or d.random() < 0.12:
        axis: int | tuple[int, ...] | None = None
    elif n == 1 or d.random() < 0.65:
        axis = d.randrange(-n, n)
    else:
        axis = tuple(sorted(d.sample(range(n), d.randint(2, n))))
    return reduction(n, axis, d.random() < 0.35)


def reduced_along_one(d: Random, shapes: list[Shape]) -> Params | None:
    """One axis to reduce."""
    n = len(shapes[0])
    return reduction(n, d.randrange(-n, n), d.random() < 0.35) if n else None
