"""Set functions of the Array API standard, by sorting: distinct elements, in ascending order, and what belongs to them.

Every NaN is distinct from every other; -0.0 and 0.0 are one element. How many elements are distinct depends on values:
without ``size`` that number is read, once; with it nothing is read and the shape is fixed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from firebrick.core.bind import bind
from firebrick.core.dtypes import bool_, int64, no_common_dtype, promote, uint8
from firebrick.core.errors import ShapeError
from firebrick.core.operands import check_devices, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import operand
from firebrick.functions.checks import known_now
from firebrick.functions.complex import imag, real
from firebrick.functions.creation import full, ones
from firebrick.functions.elementwise import astype, equal, less, logical_not, minimum, not_equal, where
from firebrick.functions.indexing import take
from firebrick.functions.movement import concat, reshape
from firebrick.functions.searching import check_fill, fixed_size, places, searchsorted
from firebrick.functions.sorting import argsort, sort
from firebrick.ops import OPS


class UniqueAll(NamedTuple):
    """What ``unique_all`` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` gives."""

    values: Tensor
    inverse_indices: Tensor


def _order(flat: Tensor) -> Tensor:
    """The indices that sort a tensor of any dtype, complex numbers by their real and then their imaginary parts."""
    if flat.dtype.kind == "complex":
        minor = argsort(imag(flat))
        return take(minor, argsort(real(take(flat, minor))))
    return argsort(astype(flat, uint8) if flat.dtype.kind == "bool" else flat)


def _distinct(name: str, x: Tensor, size: int | None, fill_value: Any) -> UniqueAll:
    operand(name, x, "comparable")
    count = None if size is None else fixed_size(name, size)
    if count is None:
        known_now(name, "the shape of its result", "x", x, "pass size=")
    if fill_value is not None:
        check_fill(name, fill_value, x.dtype)
    flat = reshape(x, (-1,))
    n = flat.size
    if not n and count:
        raise ShapeError(f"{name}: x has no element to fill {count} places with", f"size={size}", "leave size out")
    order = _order(flat.detach())
    ordered = take(flat.detach(), order)
    first = ones(min(n, 1), dtype=bool_, device=x.device)
    new = concat([first, not_equal(ordered[1:], ordered[:-1])])
    # where each run of equals starts, and one more: where the last one that is asked for ends
    starts = places(new, None if count is None else count + 1)
    if count is None:
        starts = concat([starts, full(1, n, dtype=int64, device=x.device)])
    runs, ends = starts[:-1], starts[1:]
    there = less(runs, n)
    indices = take(order, where(there, runs, 0))
    values = take(flat, indices)
    if count is not None and fill_value is not None:
        values = where(there, values, fill_value)
    rank = bind(OPS["cumulative_sum"], (astype(new, int64),), {"axis": 0, "reverse": False}) - 1
    inverse = bind(OPS["scatter"], (rank, order, rank), {"axis": 0})
    return UniqueAll(values, indices, reshape(inverse, x.shape), ends - runs)


@answers_arguments
def unique_all(x: Tensor, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Distinct elements, where each is first, which of them every element of x is, and how often each occurs.

    Args:
        x: Bool, real or complex tensor of any shape.
        size: Number of values to give, so that the shape depends on no value: the smallest ``size``, or fewer filled up.
        fill_value: What to fill up ``values`` with; the smallest value by default. ``indices`` are filled up with the
            place of the smallest value, ``counts`` with 0.

    Returns:
        ``values`` [count], of x's dtype and in ascending order, ``indices`` [count] into the flat x, ``inverse_indices``
        of x's shape, such that ``values[inverse_indices]`` is x, and ``counts`` [count]; the last three int64.

    Example:
        >>> import firebrick as fb
        >>> found = fb.unique_all(fb.asarray([5, 2, 5]))
        >>> found.values.tolist(), found.indices.tolist(), found.inverse_indices.tolist(), found.counts.tolist()
        ([2, 5], [1, 0], [1, 0, 1], [1, 2])
    """
    return _distinct("unique_all", x, size, fill_value)


@answers_arguments
def unique_counts(x: Tensor, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Distinct elements and how often each occurs.

    Args:
        x: Bool, real or complex tensor of any shape.
        size: Number of values to give, the smallest ones; by default it is read from the values.
        fill_value: What to fill up the values with; the smallest by default.

    Returns:
        ``values`` [count], of x's dtype and in ascending order, and ``counts`` int64 [count], filled up with 0.

    Example:
        >>> import firebrick as fb
        >>> values, counts = fb.unique_counts(fb.asarray([5, 2, 5]))
        >>> values.tolist(), counts.tolist()
        ([2, 5], [1, 2])
    """
    found = _distinct("unique_counts", x, size, fill_value)
    return UniqueCounts(found.values, found.counts)


@answers_arguments
def unique_inverse(x: Tensor, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Distinct elements, and which of them every element of x is.

    Args:
        x: Bool, real or complex tensor of any shape.
        size: Number of values to give, the smallest ones; by default it is read from the values.
        fill_value: What to fill up the values with; the smallest by default.

    Returns:
        ``values`` [count], of x's dtype and in ascending order, and ``inverse_indices``, int64 of x's shape, such that
        ``values[inverse_indices]`` is x unless ``size`` leaves values out.

    Example:
        >>> import firebrick as fb
        >>> values, inverse = fb.unique_inverse(fb.asarray([5, 2, 5]))
        >>> values.tolist(), inverse.tolist()
        ([2, 5], [1, 0, 1])
    """
    found = _distinct("unique_inverse", x, size, fill_value)
    return UniqueInverse(found.values, found.inverse_indices)


@answers_arguments
def unique_values(x: Tensor, /, *, size: int | None = None, fill_value: Any = None) -> Tensor:
    """Distinct elements in ascending order.

    Args:
        x: Bool, real or complex tensor of any shape.
        size: Number of values to give, the smallest ones; by default it is read from the values.
        fill_value: What to fill up the values with; the smallest by default.

    Returns:
        Tensor [count] of x's dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.unique_values(fb.asarray([5, 2, 5])).tolist()
        [2, 5]
        >>> fb.unique_values(fb.asarray([5, 2, 5]), size=3, fill_value=-1).tolist()
        [2, 5, -1]
    """
    return _distinct("unique_values", x, size, fill_value).values


@answers_arguments
def unique(
    x: Tensor,
    /,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    size: int | None = None,
    fill_value: Any = None,
) -> Tensor | tuple[Tensor, ...]:
    """Distinct elements in ascending order, with the further results of ``unique_all`` that are asked for.

    Args:
        x: Bool, real or complex tensor of any shape.
        return_index: Whether to give where each is first.
        return_inverse: Whether to give which of them every element of x is.
        return_counts: Whether to give how often each occurs.
        size: Number of values to give; see ``unique_all``.
        fill_value: What to fill up the values with; the smallest by default.

    Returns:
        The values, or a tuple of the values and what was asked for, in the order above.

    Example:
        >>> import firebrick as fb
        >>> values, counts = fb.unique(fb.asarray([5, 2, 5]), return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([2, 5], [1, 2])
    """
    values, indices, inverse, counts = _distinct("unique", x, size, fill_value)
    asked = ((return_index, indices), (return_inverse, inverse), (return_counts, counts))
    extra = tuple(t for wanted, t in asked if wanted)
    return (values, *extra) if extra else values


@answers_arguments
def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2; NaN is in nothing.

    Args:
        x1: Real or bool tensor.
        x2: Tensor of any shape, of a dtype that promotes with x1's.
        invert: Whether to say which are not.

    Returns:
        Bool tensor of x1's shape.

    Example:
        >>> import firebrick as fb
        >>> fb.isin(fb.asarray([1, 2, 3]), fb.asarray([3, 1])).tolist()
        [True, False, True]
    """
    operand("isin", x1, name="x1")
    operand("isin", x2, name="x2")
    check_devices("isin", x1=x1, x2=x2)
    if x1.dtype.kind == x2.dtype.kind == "bool":
        x1, x2 = astype(x1, uint8), astype(x2, uint8)
    operand("isin", x1, "real", "x1")
    operand("isin", x2, "real", "x2")
    if promote(x1.dtype, x2.dtype) is None:
        raise no_common_dtype("isin", [(describe("x1", x1), x1.dtype), (describe("x2", x2), x2.dtype)])
    x1, x2 = x1.detach(), x2.detach()
    ordered = sort(reshape(x2, (-1,)))
    if ordered.size:
        at = minimum(searchsorted(ordered, x1), ordered.size - 1)
        found = equal(take(ordered, at), x1)
    else:
        found = full(x1.shape, False, dtype=bool_, device=x1.device)
    return logical_not(found) if invert else found
