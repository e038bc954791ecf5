"""Addresses of a view's elements as quasi-affine expressions, and whether a result is written once at each element."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from firebrick.compiler.fusion.affine import Affine, affine
from firebrick.core.views import Digits, View


def linear_address(offset: int, strides: Sequence[int], index: Sequence[Affine | int]) -> Affine:
    """The address at an index of one stride for each axis."""
    address = affine(offset)
    for s, i in zip(strides, index, strict=True):
        if s:
            address = address + affine(i) * s
    return address


def address_of(view: View, index: Sequence[Affine | int]) -> Affine:
    """The address of a view's element."""
    address = affine(view.offset)
    for axis, i in zip(view.axes, index, strict=True):
        address = address + _parts(i, axis)
    return address


def _parts(index: Affine | int, axes: Digits) -> Affine:
    """What digits of an index, the last fastest, add to an address."""
    address, rest = affine(0), affine(index)
    for number, (size, stride) in enumerate(reversed(axes)):
        here = rest % size if number < len(axes) - 1 else rest
        if stride:
            address = address + here * stride
        rest = rest // size
    return address


def covers(view: View, domain: Sequence[int], reduced: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a result is written once at each of its elements, axes that are reduced put aside."""
    if view.offset or any(not any(s for _, s in axis) and size > 1 and a not in reduced
                          for a, (axis, size) in enumerate(zip(view.axes, domain, strict=True))):  # fmt: skip
        return False
    return _once([d for axis in view.axes for d in axis if d.size > 1 and d.stride], prod(shape))


def _once(axes: Sequence[tuple[int, int]], count: int) -> bool:
    """Whether steps along axes reach each of ``count`` elements in a row once."""
    step = 1
    for size, stride in sorted(axes, key=lambda axis: axis[1]):
        if stride != step:
            return False
        step *= size
    return step == count
