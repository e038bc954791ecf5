"""The normal form of an index: what ``x[key]`` means, as slices, a final shape, or explicit positions.

A *basic* key (ints, slices, ``...``, ``None``) becomes one stepped slice and one reshape. Any key with integer or bool
arrays means what it means in NumPy, and becomes flat positions into the tensor, computed on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from firebrick.core.aval import Shape
from firebrick.core.errors import OperandError, OutOfRangeError, ShapeError
from firebrick.core.shapes import slice_length
from firebrick.core.tensor import Tensor


@dataclass(frozen=True)
class Basic:
    """A basic index: one ``start:stop:step`` an axis (stop -1 below step < 0 means "before 0"), then ``shape``."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    shape: Shape

    @property
    def sliced(self) -> Shape:
        """Shape after the slices and before ints drop axes and ``None`` adds them."""
        return tuple(map(slice_length, self.starts, self.stops, self.steps))


def _is_array(k: Any) -> bool:
    return isinstance(k, (Tensor, np.ndarray, list, bool, np.bool_))


def is_basic(key: Any) -> bool:
    """Whether ``key`` has no arrays."""
    return not any(_is_array(k) for k in (key if isinstance(key, tuple) else (key,)))


def _expand(key: tuple[Any, ...], ndim: int, shape: Shape) -> list[Any]:
    """``key`` with the ellipsis written out, one item an axis besides ``None``."""
    if sum(k is Ellipsis for k in key) > 1:
        raise ShapeError("an index may hold one ellipsis", repr(key), "write the slices out")
    used = sum(k is not None and k is not Ellipsis for k in key)
    if used > ndim:
        raise OutOfRangeError(f"too many indices: the tensor has {ndim} axes", f"{used} indices for shape {shape}", "drop some")
    fill = [slice(None)] * (ndim - used)
    if Ellipsis in [k if k is Ellipsis else None for k in key]:
        at = next(i for i, k in enumerate(key) if k is Ellipsis)
        return [*key[:at], *fill, *key[at + 1 :]]
    return [*key, *fill]


def parse_basic(key: Any, shape: Shape) -> Basic:
    """The normal form of a basic key.

    Raises:
        OutOfRangeError: An int outside its axis, or more indices than axes.
        OperandError: Something that is no index.
    """
    items = _expand(key if isinstance(key, tuple) else (key,), len(shape), shape)
    starts, stops, steps, final = [], [], [], []
    axis = 0
    for k in items:
        if k is None:
            final.append(1)
            continue
        size = shape[axis]
        if isinstance(k, slice):
            try:
                start, stop, step = k.indices(size)
            except (TypeError, ValueError) as e:
                raise OperandError(f"a slice needs ints and a step other than 0: {e}", repr(k), "use ints") from None
            n = slice_length(start, stop, step)
            if n == 0:
                start, stop, step = 0, 0, 1
            final.append(n)
        else:
            try:
                i = index(k)
            except TypeError:
                raise OperandError(
                    "an index is an int, slice, ..., None, or an integer or bool tensor",
                    repr(k),
                    "use one of these",
                ) from None
            if not -size <= i < size:
                raise OutOfRangeError(
                    f"an index into axis {axis} of size {size} must lie in [{-size}, {size})",
                    f"index {i} for shape {shape}",
                    "use an index inside the axis",
                )
            start = i % size
            stop, step = start + 1, 1
        starts.append(start)
        stops.append(stop)
        steps.append(step)
        axis += 1
    return Basic(tuple(starts), tuple(stops), tuple(steps), tuple(final))


def positions(key: Any, shape: Shape, where: str) -> np.ndarray[Any, Any]:
    """Flat positions (row-major) of the elements that a key with arrays selects, as int64 of the result's shape."""
    host = tuple(_to_host(k) for k in (key if isinstance(key, tuple) else (key,)))
    n = int(np.prod(shape, dtype=np.int64))
    try:
        found = np.arange(n, dtype=np.int64).reshape(shape)[host]
    except IndexError as e:
        raise OutOfRangeError(
            f"{where}: indices must lie inside the tensor's axes and masks match them",
            f"{e} (shape {shape})",
            "check the index tensors",
        ) from None
    return np.asarray(found)


def _to_host(k: Any) -> Any:
    if isinstance(k, Tensor):
        k = k.numpy()
    if isinstance(k, list):
        k = np.asarray(k, dtype=np.int64 if not k else None)
    if isinstance(k, np.ndarray) and k.dtype.kind not in "iub":
        raise OperandError("an index tensor needs an integer or bool dtype", str(k.dtype), "cast it to int64")
    return k
