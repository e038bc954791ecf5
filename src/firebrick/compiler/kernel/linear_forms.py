"""Integers that are linear functions of the coordinates of items: ``LinearForm``. Accesses at such indices are slices.

A form is a tuple: the integer of the first item, then the step along each axis of the items' shape. It is exact, where the
int64 that it stands for wraps around; the two agree if the extremes are in range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firebrick.scalar.expr import Expr

Array = np.ndarray[Any, Any]
LinearForm = tuple[int, ...]
LINEAR = frozenset({"const", "local", "add", "sub", "neg", "mul"})
"""The nodes that ``form_of`` knows."""
_LARGEST = (1 << 63) - 1


def extremes(form: LinearForm, shape: tuple[int, ...]) -> tuple[int, int]:
    """The smallest and the largest integer of a form."""
    low = high = form[0]
    for step, n in zip(form[1:], shape, strict=True):
        reach = step * (n - 1)
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high


def array_of(form: LinearForm, shape: tuple[int, ...]) -> Array:
    """The integers of a form, with size 1 along axes where they are the same; without axes if they are all the same."""
    out = np.full((1,) * len(shape), form[0], np.int64)
    for axis, (step, n) in enumerate(zip(form[1:], shape, strict=True)):
        if step:
            out = out + (np.arange(n) * step).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return out if any(form[1:]) else out.reshape(())


def added(a: LinearForm, b: LinearForm, times: int) -> LinearForm:
    """a + times · b."""
    return tuple([x + times * y for x, y in zip(a, b, strict=True)])


def form_of(order: Sequence[Expr], shape: tuple[int, ...], known: Callable[[str], LinearForm | None]) -> LinearForm | None:
    """The form of an int64 expression, if it has one.

    Args:
        order: Its nodes, operands first, all of them of ``LINEAR``.
        shape: Of the items.
        known: The form of a name.
    """
    found: dict[Expr, LinearForm] = {}
    same = (0,) * len(shape)
    for e in order:
        match e.op:
            case "const":
                form: LinearForm | None = (int(e.value or 0), *same)
            case "local":
                form = known(str(e.value))
            case "neg":
                form = tuple([-x for x in found[e.args[0]]])
            case "mul":
                form = _product(*(found[a] for a in e.args))
            case _:
                form = added(found[e.args[0]], found[e.args[1]], 1 if e.op == "add" else -1)
        if form is None:
            return None
        found[e] = form
    out = found[order[-1]]
    low, high = extremes(out, shape)
    return out if low >= -_LARGEST and high <= _LARGEST else None


def _product(a: LinearForm, b: LinearForm) -> LinearForm | None:
    if any(b[1:]):
        a, b = b, a
    return None if any(b[1:]) else tuple([x * b[0] for x in a])


def sliced(array: Array, form: LinearForm, shape: tuple[int, ...]) -> Array:
    """The elements of an array at the positions of a form, all in range, with size 1 along axes where they are the same."""
    sizes = [n if step else 1 for step, n in zip(form[1:], shape, strict=True)]
    strides = [step * array.itemsize for step in form[1:]]
    return np.ndarray(sizes, array.dtype, array, form[0] * array.itemsize, strides)
