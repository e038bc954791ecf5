"""2-D pooling over windows of [batch, channels, height, width].

``kernel`` and ``stride`` are pairs, ``padding`` is ((top, bottom), (left, right)). Maxima never see the padding; averages
count it as zeros. The first maximum of a window (in row-major order) takes its gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import int64
from firebrick.core.errors import ShapeError
from firebrick.core.op import Sample
from firebrick.ops.convolution import out_size
from firebrick.ops.declare import FLOATS, Array, per_operand, values
from firebrick.ops.indexing import gather, scatter_add, zeros_like_aval
from firebrick.ops.movement import reshape
from firebrick.ops.table import register


def _pooled(op: str, shape: Any, kernel: Any, stride: Any, padding: Any) -> tuple[int, ...]:
    if len(shape) != 4:
        raise ShapeError(f"{op}: x must be [batch, channels, height, width]", f"shape {shape}", "add the missing axes")
    if any(max(p) >= k for p, k in zip(padding, kernel, strict=True)):
        raise ShapeError(f"{op}: padding must be smaller than the kernel", f"{padding}, kernel {kernel}", "pad less")
    hw = tuple(out_size(shape[i + 2], kernel[i], stride[i], padding[i], 1) for i in (0, 1))
    if min(hw) < 1:
        raise ShapeError(f"{op}: the window must fit into the image", f"image {shape[2:]}, kernel {kernel}", "pool less")
    return (*shape[:2], *hw)


def _infer_max(x: Any, *, kernel: Any, stride: Any, padding: Any) -> tuple[Aval, Aval]:
    shape = _pooled("max_pool2d", x.shape, kernel, stride, padding)
    return Aval(shape, x.dtype), Aval(shape, int64)


def _samples(rng: np.random.Generator, name: str) -> list[Sample]:
    none = ((0, 0), (0, 0))
    cases = [((2, 3, 4, 6), (2, 2), (2, 2), none), ((1, 2, 5, 5), (3, 2), (2, 1), ((1, 1), (0, 1))),
             ((1, 1, 7, 7), (3, 3), (1, 1), ((1, 1), (1, 1))), ((0, 2, 4, 4), (2, 2), (2, 2), none)]  # fmt: skip
    out = [Sample((values(rng, name, s),), {"kernel": k, "stride": t, "padding": p}, name=f"{s} {k}") for s, k, t, p in cases]
    flat = np.ones((1, 1, 4, 4), out[0].inputs[0].dtype)
    out.append(Sample((flat,), {"kernel": (2, 2), "stride": (2, 2), "padding": none}, False, "ties"))
    nan = flat.copy()
    nan[0, 0, 1, 1] = np.nan
    nan[0, 0, 2:, 2:] = -np.inf
    out.append(Sample((nan,), {"kernel": (2, 2), "stride": (2, 2), "padding": none}, False, "NaN and -inf"))
    return out


def windows(x: Array, kernel: Any, stride: Any) -> Array:
    """Every window of padded images, as a view [batch, channels, out h, out w, kh, kw]."""
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))
    return view[:, :, :: stride[0], :: stride[1]]


def _max_vjp(g: Any, r: Any) -> Any:
    n, c, h, w = r.avals[0].shape
    at = r.outputs[1]
    flat = (n, c, at.shape[2] * at.shape[3])
    zeros = zeros_like_aval(Aval((n, c, h * w), r.avals[0].dtype), g[0])
    spread = scatter_add(zeros, reshape(at, shape=flat), reshape(g[0], shape=flat), axis=2)
    return (reshape(spread, shape=(n, c, h, w)),)


@register(
    operands="x:floating", infer=_infer_max, vjp=_max_vjp, residuals=("outputs",), samples=_samples, cost=per_operand(1),
    bound="memory", fusion="window", tolerance=0, dtypes=FLOATS,
)  # fmt: skip
def max_pool2d(x: Array, *, kernel: Any, stride: Any, padding: Any) -> tuple[Array, Array]:
    """The largest value of each window, and its place as row · width + column of the image."""
    (top, _), (left, _) = padding
    h, w = x.shape[2:]
    low = np.asarray(-np.inf, x.dtype)
    view = windows(np.pad(x, ((0, 0), (0, 0), *padding), constant_values=low), kernel, stride)
    n, c, oh, ow = view.shape[:4]
    rows = np.arange(oh)[:, None, None, None] * stride[0] + np.arange(kernel[0])[:, None] - top
    cols = np.arange(ow)[:, None, None] * stride[1] + np.arange(kernel[1]) - left
    inside = (rows >= 0) & (rows < h) & (cols >= 0) & (cols < w)
    flat = view.reshape(n, c, oh, ow, kernel[0] * kernel[1])
    ok = np.broadcast_to(inside, (oh, ow, *kernel)).reshape(oh, ow, -1)
    best = np.max(np.where(ok, flat, low), -1, keepdims=True)
    hit = ok & ((flat == best) | np.isnan(flat))
    at = np.argmax(hit, -1)
    place = np.broadcast_to(rows * w + cols, (oh, ow, *kernel)).reshape(oh, ow, -1)
    where = np.take_along_axis(np.broadcast_to(place, flat.shape), at[..., None], -1)[..., 0]
    return best[..., 0], np.ascontiguousarray(where, np.int64)


def pooled_places(x: Any, at: Any) -> Any:
    """Elements of images x at the places that ``max_pool2d`` found."""
    n, c = x.shape[:2]
    flat = gather(reshape(x, shape=(n, c, -1)), reshape(at, shape=(n, c, -1)), axis=2)
    return reshape(flat, shape=at.shape)


def _infer_avg(x: Any, *, kernel: Any, stride: Any, padding: Any) -> Aval:
    return Aval(_pooled("avg_pool2d", x.shape, kernel, stride, padding), x.dtype)


def _avg_vjp(g: Any, r: Any) -> Any:
    return (avg_pool2d_input(g, size=r.avals[0].shape[2:], **r.params),)


@register(
    operands="x:floating", infer=_infer_avg, residuals=(),
    vjp=_avg_vjp,
    samples=lambda rng, name: _samples(rng, name)[:4], cost=per_operand(1), bound="memory", fusion="window", tolerance=8,
    scale="operands", dtypes=FLOATS,
)  # fmt: skip
def avg_pool2d(x: Array, *, kernel: Any, stride: Any, padding: Any) -> Array:
    """The mean of each window, padding counted as zeros."""
    view = windows(np.pad(x, ((0, 0), (0, 0), *padding)), kernel, stride)
    return np.asarray(np.mean(view, axis=(4, 5), dtype=x.dtype))


def _infer_avg_input(g: Any, *, size: Any, kernel: Any, stride: Any, padding: Any) -> Aval:
    shape = (*g.shape[:2], *size)
    want = _pooled("avg_pool2d_input", shape, kernel, stride, padding)
    if want != g.shape:
        raise ShapeError(
            "avg_pool2d_input: the cotangent must have avg_pool2d's shape",
            f"{g.shape}, not {want}",
            "check size",
        )
    return Aval(shape, g.dtype)


def _avg_input_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for s in _samples(rng, name)[:4]:
        shape = s.inputs[0].shape
        g = values(rng, name, _pooled("", shape, **s.params))
        out.append(Sample((g,), {**s.params, "size": shape[2:]}, name=s.name))
    return out


def _avg_input_vjp(gg: Any, r: Any) -> Any:
    return (avg_pool2d(gg, **{k: v for k, v in r.params.items() if k != "size"}),)


@register(
    operands="g:floating", infer=_infer_avg_input, vjp=_avg_input_vjp, residuals=(), samples=_avg_input_samples,
    cost=per_operand(1), bound="memory", fusion="window", tolerance=8, scale="operands", dtypes=FLOATS,
)  # fmt: skip
def avg_pool2d_input(g: Array, *, size: Any, kernel: Any, stride: Any, padding: Any) -> Array:
    """The adjoint of avg_pool2d: each window's share spread over the images of ``size`` it came from."""
    (top, bottom), (left, right) = padding
    n, c, oh, ow = g.shape
    out = np.zeros((n, c, size[0] + top + bottom, size[1] + left + right), g.dtype)
    share = g / np.asarray(kernel[0] * kernel[1], g.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            out[
                :,
                :,
                i : i + stride[0] * (oh - 1) + 1 : stride[0],
                j : j + stride[1] * (ow - 1) + 1 : stride[1],
            ] += share
    return np.ascontiguousarray(out[:, :, top : top + size[0], left : left + size[1]])
