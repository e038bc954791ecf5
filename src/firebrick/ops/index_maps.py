"""Index maps: which element of each operand an element of a result is computed from.

An entry's ``index_map(element, shapes, **params)`` gives one index for each operand, by arithmetic (``+ * // %``) on the
indices in ``element``, so that it serves integers, arrays of integers and symbolic indices alike. The index of an axis of
size 1 is 0. The tests hold every map against its entry's reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick.core.op import Element

Shape = tuple[int, ...]
Index = tuple[Any, ...]


def aligned(index: Sequence[Any], shape: Shape) -> Index:
    """The index in an array of ``shape`` that is broadcast to where ``index`` is."""
    lead = len(index) - len(shape)
    return tuple(0 if d == 1 else index[lead + a] for a, d in enumerate(shape))


def flat(index: Sequence[Any], shape: Shape) -> Any:
    """The row-major position of an index."""
    position: Any = 0
    for i, d in zip(index, shape, strict=True):
        position = position * d + i
    return position


def unflattened(position: Any, shape: Shape) -> Index:
    """The index of a row-major position."""
    index: list[Any] = []
    for d in reversed(shape[1:]):
        index.append(0 if d == 1 else position % d)
        position = position // d if d != 1 else position
    if shape:
        index.append(0 if shape[0] == 1 else position)
    return tuple(reversed(index))


def elementwise(element: Element, shapes: Sequence[Shape], **params: Any) -> tuple[Index, ...]:
    """Every operand where broadcasting aligns it."""
    return tuple(aligned(element.index, shape) for shape in shapes)


def reduction(element: Element, shapes: Sequence[Shape], *, axes: Sequence[int], keepdims: bool) -> tuple[Index, ...]:
    """All positions along ``axes``."""
    rest = iter(element.index)
    kept = [next(rest) if keepdims or a not in axes else None for a in range(len(shapes[0]))]
    return (tuple(element.along(a) if a in axes else i for a, i in enumerate(kept)),)


def extreme(element: Element, shapes: Sequence[Shape], *, axis: int, keepdims: bool) -> tuple[Index, ...]:
    """All positions along one axis."""
    return reduction(element, shapes, axes=(axis,), keepdims=keepdims)


def row(element: Element, shapes: Sequence[Shape], *, axis: int = -1, **params: Any) -> tuple[Index, ...]:
    """All positions of the result's own row along an axis; further operands where broadcasting aligns them."""
    axis %= len(shapes[0])
    index = tuple(element.along(axis) if a == axis else i for a, i in enumerate(element.index))
    return tuple(aligned(index, shape) for shape in shapes)


def reshape(element: Element, shapes: Sequence[Shape], *, shape: Shape) -> tuple[Index, ...]:
    """The same row-major position."""
    return (unflattened(flat(element.index, tuple(shape)), shapes[0]),)


def permute(element: Element, shapes: Sequence[Shape], *, axes: Sequence[int]) -> tuple[Index, ...]:
    """Axis ``axes[i]`` of the operand is axis i of the result."""
    return (tuple(element.index[list(axes).index(a)] for a in range(len(axes))),)


def broadcast_to(element: Element, shapes: Sequence[Shape], *, shape: Shape) -> tuple[Index, ...]:
    """Where broadcasting aligns the operand."""
    return (aligned(element.index, shapes[0]),)


def flip(element: Element, shapes: Sequence[Shape], *, axes: Sequence[int]) -> tuple[Index, ...]:
    """Counted from the end along ``axes``."""
    return (tuple(i * -1 + (shapes[0][a] - 1) if a in axes else i for a, i in enumerate(element.index)),)


def slice_(
    element: Element, shapes: Sequence[Shape], *, starts: Any, stops: Any, steps: Any, shape: Any = None
) -> tuple[Index, ...]:  # fmt: skip
    """``starts + steps · index``, after axes of size 1 are put in or dropped."""
    from firebrick.core.shapes import slice_length

    index: Sequence[Any] = element.index
    if shape is not None:
        index = unflattened(flat(index, tuple(shape)), tuple(map(slice_length, starts, stops, steps)))
    return (tuple(i * c + a for i, a, c in zip(index, starts, steps, strict=True)),)


def split(element: Element, shapes: Sequence[Shape], *, sizes: Sequence[int], axis: int) -> tuple[Index, ...]:
    """Behind the parts in front."""
    before = sum(sizes[: element.slot])
    return (tuple(i + before if a == axis else i for a, i in enumerate(element.index)),)


def take(element: Element, shapes: Sequence[Shape], *, axis: int) -> tuple[Index, ...]:
    """Along the axis, where the element of the indices says."""
    x, at = shapes
    where = tuple(element.index[axis : axis + len(at)])
    found = element.value(1, where, x[axis])
    return (*element.index[:axis], found, *element.index[axis + len(at) :]), where


def gather(element: Element, shapes: Sequence[Shape], *, axis: int) -> tuple[Index, ...]:
    """Along the axis, where the element of the indices at the same place says."""
    found = element.value(1, element.index, shapes[0][axis])
    return (*element.index[:axis], found, *element.index[axis + 1 :]), element.index


def matmul(element: Element, shapes: Sequence[Shape], **params: Any) -> tuple[Index, ...]:
    """Row and column; all positions along the last axis of the left operand. Leading axes are broadcast."""
    x, y = shapes
    k = element.along(len(x) - 1)
    columns = len(y) > 1
    batch = element.index[: len(element.index) - (len(x) > 1) - columns]
    left = (element.index[-1 - columns], k) if len(x) > 1 else (k,)
    right = (k, element.index[-1]) if columns else (k,)
    return (*aligned(batch, x[:-2]), *left), (*aligned(batch, y[:-2]), *right)
