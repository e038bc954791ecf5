"""Indexing functions, and what ``x[key]`` and ``x[key] = v`` call.

Indices count from the end if negative; one outside its axis is an ``OutOfRangeError``. Nothing is written in place: what
sets or adds elements returns a new tensor (``x[key] = v`` rebinds ``x`` to it). Sums into equal places are the same in
every run; of several values set to one place the last stays.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from firebrick.core.bind import bind, bind_as
from firebrick.core.constants import constant
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.dtypes import int64, promote, python_scalar, scalar_fits, scalar_misfit, zero_of
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.indexing import Advanced, Steps, is_basic, parse_advanced, parse_basic, strides_of
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.shapes import broadcast_shapes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, as_tensor, number_kind, weak_scalar
from firebrick.functions.checks import known_now
from firebrick.functions.elementwise import Scalar, astype, where
from firebrick.functions.movement import _operand, broadcast_to, expand_dims, permute_dims, reshape
from firebrick.functions.searching import places
from firebrick.ops import OPS


def _indices(op: str, indices: Any, name: str = "indices") -> None:
    _operand(op, indices, name)
    if not indices.dtype.is_integer:
        shown = describe(name, indices)
        raise DTypeError(f"{op}: {name} needs an integer dtype", shown, f"cast it: fb.astype({name}, fb.int64)")


def _mask(op: str, mask: Any) -> None:
    _operand(op, mask, "mask")
    if mask.dtype.kind != "bool":
        raise DTypeError(f"{op}: mask needs the bool dtype", describe("mask", mask), "compare it: mask != 0")


def _as_tensor(op: str, name: str, value: Any, like: Tensor) -> Tensor:
    """A Python or NumPy scalar as a tensor of the dtype beside it."""
    if isinstance(value, Tensor):
        return value
    value = weak_scalar(value)
    if isinstance(value, Weak):
        if not scalar_fits(value.kind(1), like.dtype):
            raise scalar_misfit(op, value.kind(1), like.dtype, f"{value.kind.__name__} {value.name}")
        later: Tensor = as_tensor(value, like.dtype, like.device)
        return later
    if not isinstance(value, (bool, int, float, complex)):
        raise not_a_tensor(op, name, value, like.device.name)
    if not scalar_fits(value, like.dtype):
        raise scalar_misfit(op, value, like.dtype)
    return constant(value, like.dtype, like.device)


@answers_arguments
def take(x: Tensor, indices: Tensor, /, axis: int | None = None) -> Tensor:
    """Slices of x along an axis, in the order of ``indices``.

    Args:
        x: Tensor.
        indices: Integer tensor of any shape, values in [-n, n).
        axis: Axis to index; may be left out for one axis.

    Raises:
        OutOfRangeError: An index lies outside the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.take(fb.asarray([10, 20, 30]), fb.asarray([2, 0])).tolist()
        [30, 10]
    """
    _operand("take", x)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError("take needs axis= for a tensor of several axes", describe("x", x), "name the axis")
        axis = 0
    return bind(OPS["take"], (x, indices), {"axis": normalize_axis(axis, x.ndim, "take")})  # type: ignore[no-any-return]


@answers_arguments
def embedding(indices: Tensor, weight: Tensor, /, *, padding_index: int | None = None) -> Tensor:
    """Rows of a table, one for each index.

    Args:
        indices: Integer tensor of any shape, values in [-rows, rows).
        weight: The table [rows, features].
        padding_index: Index whose row gets no gradient.

    Returns:
        Tensor [*indices.shape, features].

    Raises:
        OutOfRangeError: An index lies outside the table.

    Example:
        >>> import firebrick as fb
        >>> fb.embedding(fb.asarray([1, 0, 1]), fb.asarray([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    _indices("embedding", indices)
    _operand("embedding", weight, "weight")
    check_devices("embedding", indices=indices, weight=weight)
    if weight.ndim != 2:
        raise ShapeError("embedding: weight is a table [rows, features]", describe("weight", weight), "reshape it")
    try:
        rows: Tensor = bind(OPS["take"], (weight, indices), {"axis": 0})
    except OutOfRangeError as e:
        raise OutOfRangeError(
            f"embedding: indices must lie in [{-weight.shape[0]}, {weight.shape[0]}), the rows of weight",
            e.received,
            "check the indices (tokens, categories) against the size of the table",
            op="embedding",
        ) from None
    if padding_index is None:
        return rows
    pad = _row_of(padding_index, weight.shape[0])
    at = astype(indices, int64, copy=False)
    # a row that nothing flows back to
    padded = (at == pad) | (at == pad - weight.shape[0])
    return where(expand_dims(padded, axis=-1), rows.detach(), rows)


def in_default_int(labels: Tensor) -> Tensor:
    """Integers in a dtype that holds any class, length and index: the device's default one, unless theirs is as wide."""
    wide = as_dtype(labels.device.backend.default_int(labels.device))
    return labels if labels.dtype.kind == "int" and labels.dtype.itemsize >= wide.itemsize else astype(labels, wide)


def _row_of(padding_index: Any, rows: int) -> int:
    """``padding_index`` of a table, counted from the front."""
    padding_index = python_scalar(padding_index)
    if isinstance(padding_index, bool) or not isinstance(padding_index, int) or not -rows <= padding_index < rows:
        raise OutOfRangeError(
            f"embedding: padding_index is an int in [{-rows}, {rows})", repr(padding_index), "name a row of weight"
        )
    return padding_index % rows


def _broadcast_along(op: str, x: Tensor, indices: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Both broadcast together in all axes but one."""
    if x.ndim != indices.ndim:
        raise ShapeError(
            f"{op}: x and indices need equally many axes", f"{describe('x', x)}, {describe('indices', indices)}", "add axes"
        )
    a, b = ((*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, indices))
    if a == b:
        return x, indices
    shape = broadcast_shapes(a, b, op=f"{op}: x and indices, apart from axis {axis}")
    x, indices = (broadcast_to(t, (*shape[:axis], t.shape[axis], *shape[axis + 1 :])) for t in (x, indices))
    return x, indices


@answers_arguments
def take_along_axis(x: Tensor, indices: Tensor, /, axis: int = -1) -> Tensor:
    """Elements of x along an axis, one for each index; the other axes broadcast.

    Args:
        x: Tensor.
        indices: Integer tensor with as many axes, values in [-n, n).
        axis: Axis that is indexed.

    Example:
        >>> import firebrick as fb
        >>> fb.take_along_axis(fb.asarray([[1, 2], [3, 4]]), fb.asarray([[1], [0]]), axis=1).tolist()
        [[2], [3]]
    """
    _operand("take_along_axis", x)
    _indices("take_along_axis", indices)
    check_devices("take_along_axis", x=x, indices=indices)
    at = normalize_axis(axis, x.ndim, "take_along_axis")
    found = _broadcast_along("take_along_axis", x, indices, at)
    return bind_as("take_along_axis", OPS["gather"], found, {"axis": at})  # type: ignore[no-any-return]


_REDUCTIONS = ("set", "add", "mul", "min", "max")


def _scatter(op: str, x: Any, indices: Any, updates: Any, axis: Any, reduce: str) -> Tensor:
    _operand(op, x)
    _indices(op, indices)
    updates = _as_tensor(op, "updates", updates, x)
    check_devices(op, x=x, indices=indices, updates=updates)
    at = normalize_axis(axis, x.ndim, op)
    if updates.shape != indices.shape:
        updates = _broadcast(op, "updates", updates, indices.shape, "the indices' shape")
    if reduce in ("mul", "min", "max"):
        params = {"axis": at, "mode": reduce}
        return bind_as(op, OPS["scatter_reduce"], (x, indices, updates), params)  # type: ignore[no-any-return]
    entry = OPS["scatter_add" if reduce == "add" else "scatter"]
    return bind_as(op, entry, (x, indices, updates), {"axis": at})  # type: ignore[no-any-return]


def _broadcast(op: str, name: str, value: Tensor, shape: tuple[int, ...], what: str) -> Tensor:
    """A value broadcast to a shape, which ``what`` names."""
    lead = len(shape) - value.ndim
    if lead < 0 or any(d not in (1, goal) for d, goal in zip(value.shape, shape[lead:], strict=True)):
        want = f"{op}: {name} must broadcast to {what}, {shape}"
        raise ShapeError(want, describe(name, value), f"reshape {name}, or give it axes of size 1", op=op)
    return broadcast_to(value, shape)


@answers_arguments
def scatter(x: Tensor, indices: Tensor, updates: Tensor | Scalar, /, *, axis: int = -1, reduce: str = "set") -> Tensor:
    """x with the element along an axis that each index names combined with its update.

    Args:
        x: Tensor.
        indices: Integer tensor of x's shape except along ``axis``.
        updates: Tensor that broadcasts to the indices' shape, or a Python scalar.
        axis: Axis that is indexed.
        reduce: ``"set"`` (the last of several stays), ``"add"``, ``"mul"``, ``"min"`` or ``"max"``. Of equal extremes the
            first takes the gradient: the element of x before the updates.

    Raises:
        OutOfRangeError: An index lies outside the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.scatter(fb.ones(3), fb.asarray([0, 2, 2]), fb.asarray([2.0, 3.0, 5.0]), reduce="mul").tolist()
        [2.0, 1.0, 15.0]
    """
    if reduce not in _REDUCTIONS:
        raise ConfigError(f"scatter: reduce must be one of {', '.join(_REDUCTIONS)}", repr(reduce), "use one of these")
    return _scatter("scatter", x, indices, updates, axis, reduce)


@answers_arguments
def scatter_add(x: Tensor, indices: Tensor, updates: Tensor, /, *, axis: int = -1) -> Tensor:
    """x with each update added to the element along an axis that its index names; repeats accumulate, in order.

    Args:
        x: Numeric tensor.
        indices: Integer tensor, values in [-n, n); its shape is that of ``updates``.
        updates: Tensor; its dtype and that of x promote.
        axis: Axis that the indices count along.

    Example:
        >>> import firebrick as fb
        >>> fb.scatter_add(fb.zeros(3), fb.asarray([0, 2, 2]), fb.ones(3)).tolist()
        [1.0, 0.0, 2.0]
    """
    return _scatter("scatter_add", x, indices, updates, axis, "add")


@answers_arguments
def put_along_axis(x: Tensor, indices: Tensor, values: Tensor | Scalar, /, axis: int = -1) -> Tensor:
    """x with the elements along an axis that indices name replaced by values: what ``take_along_axis`` reads.

    Args:
        x: Tensor.
        indices: Integer tensor with as many axes; axes of size 1 other than ``axis`` broadcast to x's.
        values: Tensor that broadcasts to the indices' shape, or a Python scalar.
        axis: Axis that is indexed.

    Example:
        >>> import firebrick as fb
        >>> fb.put_along_axis(fb.zeros((2, 2)), fb.asarray([[1], [0]]), 5.0, axis=1).tolist()
        [[0.0, 5.0], [5.0, 0.0]]
    """
    _operand("put_along_axis", x)
    _indices("put_along_axis", indices)
    check_devices("put_along_axis", x=x, indices=indices, values=values)
    at = normalize_axis(axis, x.ndim, "put_along_axis")
    if x.ndim == indices.ndim:
        want = (*x.shape[:at], indices.shape[at], *x.shape[at + 1 :])
        indices = _broadcast("put_along_axis", "indices", indices, want, f"x's shape, except along axis {at},")
    values = _as_tensor("put_along_axis", "values", values, x)
    if values.shape != indices.shape:
        values = _broadcast("put_along_axis", "values", values, indices.shape, "the indices' shape")
    return _scatter("put_along_axis", x, indices, values, at, "set")


@answers_arguments
def index_add(x: Tensor, indices: Tensor, updates: Tensor, /, *, axis: int = 0) -> Tensor:
    """x with updates added to the slices along an axis that indices name; repeats accumulate.

    Args:
        x: Tensor.
        indices: Integer tensor of any shape.
        updates: Tensor of the shape of ``take(x, indices, axis=axis)``.
        axis: Axis that is indexed.

    Example:
        >>> import firebrick as fb
        >>> fb.index_add(fb.zeros((2, 2)), fb.asarray([1, 1]), fb.ones((2, 2))).tolist()
        [[0.0, 0.0], [2.0, 2.0]]
    """
    _operand("index_add", x)
    at = normalize_axis(axis, x.ndim, "index_add")
    return bind(OPS["index_add"], (x, indices, updates), {"axis": at})  # type: ignore[no-any-return]


@answers_arguments
def index_copy(x: Tensor, indices: Tensor, updates: Tensor, /, *, axis: int = 0) -> Tensor:
    """x with the slices along an axis that indices name replaced by updates; the last of several stays.

    Args:
        x: Tensor.
        indices: Integer tensor [n].
        updates: Tensor of the shape of ``take(x, indices, axis=axis)``.
        axis: Axis that is indexed.

    Example:
        >>> import firebrick as fb
        >>> fb.index_copy(fb.zeros((2, 2)), fb.asarray([1]), fb.ones((1, 2))).tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """
    _operand("index_copy", x)
    _indices("index_copy", indices)
    _operand("index_copy", updates, "updates")
    check_devices("index_copy", x=x, indices=indices, updates=updates)
    at = normalize_axis(axis, x.ndim, "index_copy")
    if indices.ndim != 1:
        raise ShapeError("index_copy: indices has one axis", describe("indices", indices), "reshape it")
    want = (*x.shape[:at], indices.size, *x.shape[at + 1 :])
    if updates.shape != want:
        raise ShapeError(f"index_copy: updates must have the shape {want}", describe("updates", updates), "reshape it")
    column = reshape(indices, (-1,) + (1,) * (x.ndim - 1 - at))
    return _scatter("index_copy", x, broadcast_to(column, want), updates, at, "set")


@answers_arguments
def masked_fill(x: Tensor, mask: Tensor, value: Tensor | Scalar, /) -> Tensor:
    """x with ``value`` where ``mask`` holds; mask and value broadcast to x's shape.

    Args:
        x: Tensor.
        mask: Bool tensor.
        value: Number, or tensor; its dtype and that of x promote.

    Example:
        >>> import firebrick as fb
        >>> fb.masked_fill(fb.asarray([1.0, 2.0]), fb.asarray([True, False]), 0.0).tolist()
        [0.0, 2.0]
    """
    _operand("masked_fill", x)
    _mask("masked_fill", mask)
    fill = _as_tensor("masked_fill", "value", value, x)
    check_devices("masked_fill", x=x, mask=mask, value=fill)
    if broadcast_shapes(x.shape, mask.shape, fill.shape, op="masked_fill") != x.shape:
        shown = f"{describe('x', x)}, {describe('mask', mask)}, {describe('value', fill)}"
        raise ShapeError("masked_fill: mask and value must broadcast to x's shape", shown, "broadcast x first")
    return where(mask, _fitting("masked_fill", "value", fill, x), x)


@answers_arguments
def masked_select(x: Tensor, mask: Tensor, /, *, size: int | None = None, fill_value: Scalar | None = None) -> Tensor:
    """The elements of x where ``mask`` holds, as a vector in row-major order; the two broadcast.

    Args:
        x: Tensor.
        mask: Bool tensor.
        size: Number of elements to give, so that the shape depends on no value: the first ``size``, or fewer filled up.
        fill_value: What to fill up with; by default the zero of x's dtype, False for bool.

    Returns:
        Tensor [count] or [size].

    Example:
        >>> import firebrick as fb
        >>> fb.masked_select(fb.asarray([[1, 2], [3, 4]]), fb.asarray([True, False])).tolist()
        [1, 3]
        >>> fb.masked_select(fb.asarray([1, 2, 3]), fb.asarray([True, False, True]), size=3, fill_value=-1).tolist()
        [1, 3, -1]
    """
    _operand("masked_select", x)
    _mask("masked_select", mask)
    check_devices("masked_select", x=x, mask=mask)
    shape = broadcast_shapes(x.shape, mask.shape, op="masked_select")
    x, mask = broadcast_to(x, shape), broadcast_to(mask, shape)
    if size is None:
        known_now("masked_select", "the shape of its result", "mask", mask, "pass size=, or use fb.where")
        return getitem(x, mask)
    fill_value = zero_of(x.dtype) if fill_value is None else fill_value
    fill = _fitting("masked_select", "fill_value", _as_tensor("masked_select", "fill_value", fill_value, x), x)
    count = whole("masked_select", "size", size, 0)
    if not x.size:
        return broadcast_to(fill, (count,))
    at = places(reshape(mask, (-1,)), count)
    there = at < x.size
    return where(there, take(reshape(x, (-1,)), where(there, at, 0)), fill)


# x[key] and x[key] = v


def getitem(x: Tensor, key: Any) -> Tensor:
    """What ``x[key]`` means: slices and ints, or NumPy's rules for index and mask tensors."""
    key = _with_numbers(key, x)
    if is_basic(key):
        b = parse_basic(key, x.shape)
        params = {"starts": b.starts, "stops": b.stops, "steps": b.steps, "shape": b.shape}
        return bind(OPS["slice"], (x,), params)  # type: ignore[no-any-return]
    check_devices("x[key]", x=x, key=key)
    _check_masks("x[key]", key, "use fb.where(mask, x, …), or fb.masked_select with size=")
    if isinstance(key, Tensor) and key.dtype.is_integer and x.ndim:
        return bind_as("x[key]", OPS["take"], (x, key), {"axis": 0})  # type: ignore[no-any-return]
    a = parse_advanced(key, x.shape, x.device)
    y = _take_run(x, a)
    if y is None:
        y = bind_as("x[key]", OPS["take"], (reshape(x, (-1,)), _positions(a, x.device)), {"axis": 0})
    return _shaped(y, a.result)


def _with_numbers(key: Any, x: Tensor) -> Any:
    """A key whose ints that are known when the graph runs are index tensors."""
    if not hooks.tracing:
        return key
    items = key if isinstance(key, tuple) else (key,)
    if not any(type(k) is Weak for k in items):
        return key
    return tuple(as_tensor(k.python, int64, x.device) if type(k) is Weak and number_kind(k.kind) is int else k for k in items)


def _check_masks(where_: str, key: Any, remedy: str) -> None:
    """Check that a key holds no mask whose true elements cannot be counted yet."""
    for k in key if isinstance(key, tuple) else (key,):
        if isinstance(k, Tensor) and k.dtype.kind == "bool":
            known_now(where_, "the shape of a selection by a mask", "key", k, remedy)


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else reshape(x, shape)


def _take_run(x: Tensor, a: Advanced) -> Tensor | None:
    """The elements of a key whose index tensors no slice parts: whole slices of x along one merged axis."""
    tensors = [k for k, e in enumerate(a.entries) if isinstance(e, Tensor)]
    first, end = tensors[0], tensors[-1] + 1
    run = a.entries[first:end]
    if any(isinstance(e, Steps) for e in run):
        return None
    others = (*a.entries[:first], *(Steps(0, n, 1, n) for n in a.shape[first:end]), *a.entries[end:])
    steps = [e if isinstance(e, Steps) else Steps(e, e + 1, 1, 1) for e in others if not isinstance(e, Tensor)]
    x = _shaped(x, a.shape)
    if any((s.start, s.step, s.length) != (0, 1, n) for s, n in zip(steps, a.shape, strict=True)):
        params = {"starts": tuple(s.start for s in steps), "stops": tuple(s.stop for s in steps)}
        x = bind(OPS["slice"], (x,), {**params, "steps": tuple(s.step for s in steps)})
    left, right = ([e.length for e in side if isinstance(e, Steps)] for side in (a.entries[:first], a.entries[end:]))
    merged = prod(a.shape[first:end])
    index = run[0] if len(run) == 1 else _ravel(run, a.shape[first:end])
    y: Tensor = bind_as("x[key]", OPS["take"], (_shaped(x, (*left, merged, *right)), index), {"axis": len(left)})
    if len(left) == a.before:
        return y
    block = range(len(left), len(left) + len(a.block))
    rest = [k for k in range(y.ndim) if k not in block]
    return permute_dims(y, (*rest[: a.before], *block, *rest[a.before :]))


def _ravel(entries: Any, shape: Any, last: int = 0) -> Tensor:
    """Row-major positions in ``shape`` of ints and index tensors (slices aside), with ``last`` axes of size 1 added."""
    tensors, offset = [], 0
    for e, n, stride in zip(entries, shape, strides_of(shape), strict=True):
        if isinstance(e, Tensor):
            tensors.append((reshape(e, (*e.shape, *(1,) * last)) if last else e, n, stride))
        elif not isinstance(e, Steps):
            offset += e * stride
    indices, sizes, strides = zip(*tensors, strict=True)
    return bind(OPS["ravel_index"], indices, {"sizes": sizes, "strides": strides, "offset": offset})  # type: ignore[no-any-return]


def _positions(a: Advanced, device: Any) -> Tensor:
    """The row-major position of each element that a key selects: of the result's shape, but for ``None``."""
    sliced = a.sliced
    after = len(sliced) - a.before
    at = _ravel(a.entries, a.shape, after)
    if not sliced:
        return at
    # the part of the slices, as an open grid with room for the block
    grid = np.zeros((), np.int64)
    apart = [s for e, s in zip(a.entries, strides_of(a.shape), strict=True) if isinstance(e, Steps)]
    for k, (e, stride) in enumerate(zip(sliced, apart, strict=True)):
        room = len(a.block) * (k < a.before) + len(sliced) - 1 - k
        grid = grid + ((e.start + e.step * np.arange(e.length)) * stride).reshape((-1,) + (1,) * room)
    return bind(OPS["add"], (at, hooks.from_host(grid, device)), {})  # type: ignore[no-any-return]


def _fitting(op: str, name: str, value: Tensor, x: Tensor) -> Tensor:
    """A value in x's dtype, if that holds it."""
    if value.dtype is x.dtype:
        return value
    common = promote(value.dtype, x.dtype)
    if common is not x.dtype:
        goals = [] if value.dtype.kind == "complex" else [(name, x.dtype)]  # which astype takes to no real dtype
        if common is not None or value.dtype.is_inexact:
            goals.append(("x", common or value.dtype))
        remedy = "cast " + ", or ".join(f"{of} with fb.astype({of}, fb.{to.name})" for of, to in goals)
        shown = f"{describe(name, value)} and {describe('x', x)}"
        raise DTypeError(f"{op} must keep the dtype of x, {x.dtype.name}", shown, remedy)
    return astype(value, x.dtype)


def setitem(x: Tensor, key: Any, value: Any) -> Tensor:
    """The tensor that ``x`` shows after ``x[key] = value``; value broadcasts and keeps x's dtype."""
    check_devices("x[key] = value", x=x, key=key, value=value)
    value = _fitting("x[key] = value", "value", _as_tensor("x[key] = value", "value", value, x), x)
    key = _with_numbers(key, x)
    if is_basic(key):
        b = parse_basic(key, x.shape)
        value = _fit(value, b.shape)
        value = _shaped(value, b.sliced)
        params = {"starts": b.starts, "stops": b.stops, "steps": b.steps}
        return bind(OPS["slice_update"], (x, value), params)  # type: ignore[no-any-return]
    if isinstance(key, Tensor) and key.dtype.kind == "bool" and key.shape == x.shape[: key.ndim]:
        rest = x.shape[key.ndim :]
        if value.ndim <= len(rest):  # the same for every true element: no place needs to be known
            mask = reshape(key, (*key.shape, *(1,) * len(rest)))
            return where(mask, _fit(value, rest), x)
    _check_masks("x[key] = value", key, "use a mask of x's leading axes and a value that broadcasts, or fb.where")
    a = parse_advanced(key, x.shape, x.device)
    value = _fit(value, a.result)
    places = broadcast_to(_positions(a, x.device), _without_new_axes(a))
    flat = bind(OPS["scatter"], (reshape(x, (-1,)), reshape(places, (-1,)), reshape(value, (-1,))), {"axis": 0})
    return reshape(flat, x.shape)


def _without_new_axes(a: Advanced) -> tuple[int, ...]:
    lengths = [s.length for s in a.sliced]
    return (*lengths[: a.before], *a.block, *lengths[a.before :])


def _fit(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """value broadcast to a shape, leading axes of size 1 dropped as in NumPy."""
    extra = value.ndim - len(shape)
    if extra > 0 and all(d == 1 for d in value.shape[:extra]):
        value = reshape(value, value.shape[extra:])
    return value if value.shape == shape else _broadcast("x[key] = value", "value", value, shape, "the shape of x[key]")
