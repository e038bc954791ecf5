"""Kernels that move elements: reshapes, slices, padding, joining, and indexing with tensors.

Only ``reshape``, ``permute``, ``broadcast_to``, ``slice``, ``split`` and ``flip`` may return the operand's memory. Sums into
equal positions, and which of several values stays in one position, do not depend on the order in which threads run.
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


def slice_(x: Any, *, starts: Any, stops: Any, steps: Any, shape: Any = None) -> Any:
    """A view, or a copy where a step is negative."""
    view, flipped = _window(x, starts, stops, steps)
    found = view.flip(flipped) if flipped else view
    return found if shape is None else found.reshape(shape)


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


def positions(indices: Any, size: int, op: str) -> Any:
    """Indices as int64 in [0, size), checked before anything is read or written.

    Raises:
        OutOfRangeError: An index lies outside [-size, size).
    """
    at = indices.to(torch.int64)
    if at.numel():
        ends = at.aminmax()
        low, high = (ends[0].item(), ends[1].item()) if at.device.type == "cpu" else torch.stack(ends).tolist()  # one wait
        if low < -size or high >= size or (low < 0 and indices.dtype is torch.uint64):
            check_indices(to_host(indices), size, op)
        if low < 0:
            at = torch.where(at < 0, at + size, at)
    return at


def take(x: Any, indices: Any, *, axis: int) -> Any:
    """Whole slices by ``index_select``."""
    at = positions(indices, x.shape[axis], "take")
    if at.ndim == 1:
        return x.index_select(axis, at)
    return x.index_select(axis, at.reshape(-1)).reshape((*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]))


def gather(x: Any, indices: Any, *, axis: int) -> Any:
    """Single elements."""
    return x.gather(axis, positions(indices, x.shape[axis], "gather"))


def flat_places(at: Any, shape: Any, axis: int) -> Any:
    """For an index tensor along ``axis``: the row-major position in a tensor of ``shape`` of each index."""
    flat = torch.zeros((), dtype=torch.int64, device=at.device)
    for i, n in enumerate(at.shape):
        along = torch.arange(n, device=at.device).reshape([-1 if k == i else 1 for k in range(at.ndim)])
        flat = flat * shape[i] + (at if i == axis else along)
    return flat


def segments(at: Any, rows: Any, fold: Kernel) -> tuple[Any, Any]:
    """Distinct positions, and for each its rows folded by pairs of neighbours: errors grow with the logarithm."""
    at, order = torch.sort(at, stable=True)
    rows = rows.index_select(0, order)
    while at.numel() > 1:
        first = torch.ones_like(at, dtype=torch.bool)
        first[1:] = at[1:] != at[:-1]
        if bool(first.all()):
            break
        here = torch.arange(at.numel(), device=at.device)
        rank = here - torch.where(first, here, 0).cummax(0).values
        left = (rank % 2 == 0).nonzero().reshape(-1)
        right = (rank % 2 == 1).nonzero().reshape(-1)
        folded = rows.index_select(0, left)
        # the left neighbour of each element of odd rank, as a position among the left ones
        pair = (rank % 2 == 0).cumsum(0)[right] - 1
        folded[pair] = fold(folded[pair], rows.index_select(0, right))
        at, rows = at.index_select(0, left), folded
    return at, rows


def add_rows(x: Any, at: Any, rows: Any) -> Any:
    """``index_add`` along the first axis, the same on every device, whatever runs first."""
    places_, sums = segments(at, rows, torch.add)
    out = x.clone(memory_format=torch.contiguous_format)
    out[places_] += sums
    return out


def add_at(x: Any, at: Any, updates: Any, axis: int) -> Any:
    """``scatter_add`` in the same way."""
    flat = flat_places(at, x.shape, axis).reshape(-1)
    return add_rows(x.reshape(-1), flat, updates.reshape(-1)).reshape(x.shape)


# the most sequential additions to one position that err by 8 ulps at most: in the dtype itself, and for half precision
# added in float32
_FEW, _FEW_HALVES = 32, 1 << 16


def _in_order(x: Any, repeats: int) -> bool:
    """Whether PyTorch's kernel, which adds in the order of the updates, will do: on the CPU, and without long sums."""
    if x.device.type != "cpu":
        return False
    exact = not (x.is_floating_point() or x.is_complex())
    return exact or repeats <= (_FEW_HALVES if x.dtype in HALVES else _FEW)


def _repeats(x: Any, at: Any, axis: int) -> int:
    """How often the most frequent position occurs, or a bound if that is small enough."""
    if at.shape[axis] <= _FEW or x.device.type != "cpu":
        return int(at.shape[axis])
    one = torch.ones((), dtype=torch.int32, device=at.device).expand(at.shape)
    return (
        int(torch.zeros(x.shape, dtype=torch.int32, device=at.device).scatter_add_(axis, at, one).amax()) if at.numel() else 0
    )


def scatter_add(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    """Sums that do not depend on the order in which threads run; half precision in float32, rounded once."""
    at = positions(indices, x.shape[axis], "scatter_add")
    wide = torch.float32 if x.dtype in HALVES else x.dtype
    total, terms = x.to(wide), updates.to(wide)
    if _in_order(x, _repeats(x, at, axis)):
        return total.scatter_add(axis, at, terms).to(x.dtype)
    return add_at(total, at, terms, axis).to(x.dtype)


def index_add(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    """Sums that do not depend on the order in which threads run; half precision in float32, rounded once."""
    at = positions(indices, x.shape[axis], "index_add").reshape(-1)
    rows = updates.reshape((*x.shape[:axis], at.numel(), *x.shape[axis + 1 :])).movedim(axis, 0)
    wide = torch.float32 if x.dtype in HALVES else x.dtype
    few = at.numel() <= _FEW
    add = _add_columns if _in_order(x, at.numel() if few else int(torch.bincount(at).amax())) else add_rows
    return add(x.movedim(axis, 0).to(wide), at, rows.to(wide)).to(x.dtype).movedim(0, axis)


def _add_columns(x: Any, at: Any, rows: Any) -> Any:
    """A sum over columns: 20 times faster than PyTorch's ``index_add`` for 5000 rows of 256."""
    width = product(x.shape[1:])
    columns = at[:, None].expand(at.numel(), width)
    sums = x.reshape(x.shape[0], width).scatter_add(0, columns, rows.reshape(at.numel(), width))
    return sums.reshape(x.shape)


def set_last(x: Any, at: Any, updates: Any, axis: int) -> Any:
    """``scatter`` for accelerators: the last update of a position wins, whichever thread ran first."""
    if not at.numel():
        return x.clone()
    position = torch.arange(at.shape[axis], device=at.device)
    position = position.reshape([-1 if k == axis else 1 for k in range(at.ndim)])
    none = torch.full(x.shape, -1, dtype=torch.int64, device=x.device)
    last = none.scatter_reduce(axis, at, position.expand(at.shape), "amax")
    return torch.where(last < 0, x, updates.gather(axis, last.clamp(min=0)))


def scatter(x: Any, indices: Any, updates: Any, *, axis: int) -> Any:
    """The last of several values stays. On the CPU one thread writes all positions along the axis, in order."""
    at = positions(indices, x.shape[axis], "scatter")
    return x.scatter(axis, at, updates) if x.device.type == "cpu" else set_last(x, at, updates, axis)


_FOLDS = {"mul": ("prod", torch.mul), "min": ("amin", torch.minimum), "max": ("amax", torch.maximum)}


def fold_at(x: Any, at: Any, updates: Any, axis: int, mode: str) -> Any:
    """``scatter_reduce`` for accelerators, whose own kernel multiplies in whatever order threads run."""
    fold = _FOLDS[mode][1]
    flat, folded = segments(flat_places(at, x.shape, axis).reshape(-1), updates.reshape(-1), fold)
    out = x.reshape(-1).clone()
    out[flat] = fold(out[flat], folded)
    return out.reshape(x.shape)


def scatter_reduce(x: Any, indices: Any, updates: Any, *, axis: int, mode: str) -> Any:
    """Products in the order of the updates, half precision in float32; extremes do not depend on the order."""
    at = positions(indices, x.shape[axis], "scatter_reduce")
    wide = torch.float32 if x.dtype in HALVES else x.dtype
    held, terms = x.to(wide), updates.to(wide)
    if mode == "mul" and x.device.type != "cpu":
        return fold_at(held, at, terms, axis, mode).to(x.dtype)
    return held.scatter_reduce(axis, at, terms, _FOLDS[mode][0]).to(x.dtype)


def ravel_index(*indices: Any, sizes: Any, strides: Any, offset: int) -> Any:
    """Flat positions, each index checked and counted from the front first."""
    flat = sum(positions(i, n, "x[key]") * stride for i, n, stride in zip(indices, sizes, strides, strict=True))
    return flat + offset


VIEWS: dict[str, Kernel] = {
    "reshape": lambda x, *, shape: x.reshape(shape),
    "permute": lambda x, *, axes: x.permute(axes),
    "broadcast_to": lambda x, *, shape: x.expand(shape),
    "slice": slice_,
    "flip": lambda x, *, axes: x.flip(axes) if axes else x,
    "split": lambda x, *, sizes, axis: x.split(sizes, axis),
}
KERNELS: dict[str, Kernel] = {
    **VIEWS,
    "to_device": lambda x, *, device, source: x.clone(), "pad": pad, "concat": concat, "take": take,
    "gather": gather, "scatter": scatter, "scatter_add": scatter_add, "index_add": index_add,
    "scatter_reduce": scatter_reduce, "ravel_index": ravel_index,
    "slice_update": slice_update,
}  # fmt: skip
