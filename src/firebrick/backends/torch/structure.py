"""Kernels that move elements: reshapes, slices, padding, joining, and indexing with tensors.

Only ``reshape``, ``permute``, ``broadcast_to``, ``slice`` and ``flip`` may return the operand's memory. Sums into
equal places, and which of several values stays in one place, do not depend on the order in which threads run.
"""

from __future__ import annotations

from math import prod as product
from typing import Any

import numpy as np
import torch

from firebrick.backends.torch.memory import FIREBRICK, to_host
from firebrick.backends.torch.precision import HALVES, Kernel
from firebrick.core.shapes import slice_length
from firebrick.ops.indexing import check_indices


def _window(x: Any, starts: Any, stops: Any, steps: Any) -> tuple[Any, list[int]]:
    """A slice as a view with positive steps, PyTorch having no others, and the axes along which to flip it then."""
    key, flipped = [], []
    for axis, (a, b, c) in enumerate(zip(starts, stops, steps, strict=True)):
        n = slice_length(a, b, c)
        if not n:
            key.append(slice(0, 0))
        elif c > 0:
            key.append(slice(a, a + c * (n - 1) + 1, c))
        else:
            key.append(slice(a + c * (n - 1), a + 1, -c))
            flipped.append(axis)
    return x[tuple(key)], flipped


def slice_(x: Any, *, starts: Any, stops: Any, steps: Any) -> Any:
    """A view, or a copy where a step is negative."""
    view, flipped = _window(x, starts, stops, steps)
    return view.flip(flipped) if flipped else view


def slice_update(x: Any, updates: Any, *, starts: Any, stops: Any, steps: Any) -> Any:
    """A copy of x, written through the slice's view."""
    out = x.clone()
    view, flipped = _window(out, starts, stops, steps)
    view.copy_(updates.flip(flipped) if flipped else updates)
    return out


def pad(x: Any, *, widths: Any, value: Any) -> Any:
    """A constant tensor with x written into its middle."""
    fill = np.asarray(value).astype(FIREBRICK[x.dtype].np).item()
    shape = [a + d + b for d, (a, b) in zip(x.shape, widths, strict=True)]
    out = torch.full(shape, fill, dtype=x.dtype, device=x.device)
    out[tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, widths, strict=True))].copy_(x)
    return out


def concat(*arrays: Any, axis: int) -> Any:
    """Always a new tensor."""
    return torch.cat(arrays, axis) if len(arrays) > 1 else arrays[0].clone()


# indexing


def places(indices: Any, size: int, op: str) -> Any:
    """Indices as int64 in [0, size), checked before anything is read or written.

    Raises:
        OutOfRangeError: An index lies outside [-size, size).
    """
    at = indices.to(torch.int64)
    if at.numel():
        low, high = torch.stack(at.aminmax()).tolist()
        if low < -size or high >= size or (low < 0 and indices.dtype is torch.uint64):
            check_indices(to_host(indices), size, op)
        if low < 0:
            at = torch.where(at < 0, at + size, at)
    return at


def take(x: Any, indices: Any, *, axis: int) -> Any:
    """Whole slices by ``index_select``."""
    at = places(indices, x.shape[axis], "take")
    if at.ndim == 1:
        return x.index_select(axis, at)
    return x.index_select(axis, at.reshape(-1)).reshape((*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]))


def gather(x: Any, indices: Any, *, axis: int) -> Any:
    """Single elements."""
    return x.gather(axis, places(indices, x.shape[axis], "gather"))


def flat_places(at: Any, shape: Any, axis: int) -> Any:
    """For an index tensor along ``axis``: the row-major place in a tensor of ``shape`` of each index."""
    flat = torch.zeros((), dtype=torch.int64, device=at.device)
    for i, n in enumerate(at.shape):
        along = torch.arange(n, device=at.device).reshape([-1 if k == i else 1 for k in range(at.ndim)])
        flat = flat * shape[i] + (at if i == axis else along)
    return flat


def add_at(x: Any, at: Any, updates: Any, axis: int) -> Any:
    """``scatter_add`` for accelerators: PyTorch sorts the places there and sums each one's updates in order."""
    out = x.clone(memory_format=torch.contiguous_format)
    flat = flat_places(at, x.shape, axis).reshape(-1)
    out.view(-1).index_put_((flat,), updates.reshape(-1), accumulate=True)
    return out


def add_rows(x: Any, at: Any, rows: Any, axis: int) -> Any:
    """``index_add`` for accelerators, by the same sorted sum."""
    out = x.clone(memory_format=torch.contiguous_format)
    out.movedim(axis, 0).index_put_((at,), rows.movedim(axis, 0), accumulate=True)
    return out


def _add_columns(x: Any, at: Any, rows: Any, axis: int) -> Any:
    """``index_add`` on the CPU as a sum over columns: 20 times faster than PyTorch's for 5000 rows of 256."""
    first = x.movedim(axis, 0)
    width = product(first.shape[1:])
    sums = first.reshape(first.shape[0], width).scatter_add(
        0, at[:, None].expand(at.numel(), width), rows.movedim(axis, 0).reshape(at.numel(), width)
    )
    return sums.reshape(first.shape).movedim(0, axis)


def _accumulator(x: Any, terms: int) -> Any:
    """The dtype in which up to ``terms`` numbers are added to one place, so that the sum is good to a few ulps."""
    if x.dtype in HALVES:
        return torch.float32
    if terms > 64 and x.dtype in _WIDER and x.device.type != "mps":
        return _WIDER[x.dtype]
    return x.dtype


_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def scatter_add(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    """Sums in the order of the updates."""
    at = places(indices, x.shape[axis], "scatter_add")
    wide = _accumulator(x, at.shape[axis])
    total, terms = x.to(wide), updates.to(wide)
    total = total.scatter_add(axis, at, terms) if x.device.type == "cpu" else add_at(total, at, terms, axis)
    return total.to(x.dtype)


def index_add(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    """Sums in the order of the updates."""
    at = places(indices, x.shape[axis], "index_add").reshape(-1)
    rows = updates.reshape((*x.shape[:axis], at.numel(), *x.shape[axis + 1 :]))
    wide = _accumulator(x, int(torch.bincount(at).amax()) if at.numel() > 64 else at.numel())
    add = _add_columns if x.device.type == "cpu" else add_rows
    return add(x.to(wide), at, rows.to(wide), axis).to(x.dtype)


def set_last(x: Any, at: Any, updates: Any, axis: int) -> Any:
    """``scatter`` for accelerators: the largest position that names a place wins it, whatever ran first."""
    if not at.numel():
        return x.clone()
    position = torch.arange(at.shape[axis], device=at.device)
    position = position.reshape([-1 if k == axis else 1 for k in range(at.ndim)])
    none = torch.full(x.shape, -1, dtype=torch.int64, device=x.device)
    last = none.scatter_reduce(axis, at, position.expand(at.shape), "amax")
    return torch.where(last < 0, x, updates.gather(axis, last.clamp(min=0)))


def scatter(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    """The last of several values stays. On the CPU one thread writes all places along the axis, in order."""
    at = places(indices, x.shape[axis], "scatter")
    return x.scatter(axis, at, updates) if x.device.type == "cpu" else set_last(x, at, updates, axis)


VIEWS: dict[str, Kernel] = {
    "reshape": lambda x, *, shape: x.reshape(shape),
    "permute": lambda x, *, axes: x.permute(axes),
    "broadcast_to": lambda x, *, shape: x.expand(shape),
    "slice": slice_,
    "flip": lambda x, *, axes: x.flip(axes) if axes else x,
}
KERNELS: dict[str, Kernel] = {
    **VIEWS,
    "to_device": lambda x, *, device, source: x.clone(), "pad": pad, "concat": concat, "take": take,
    "gather": gather, "scatter": scatter, "scatter_add": scatter_add, "index_add": index_add,
    "slice_update": slice_update,
}  # fmt: skip
