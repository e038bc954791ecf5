"""Pooling over windows of [batch, channels, *image], with one to three axes of the image.

``kernel``, ``stride`` and ``dilation`` hold one int for each axis of the image, ``padding`` one pair (before, after).
Maxima never see the padding; averages count it as zeros. Every window meets the image. The first maximum of a window (in
row-major order) takes its gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import int64
from firebrick.core.errors import ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.op import Sample
from firebrick.ops import batch_rules, expansions, forward_rules
from firebrick.ops.convolution import elements, padded_to, places_of, without
from firebrick.ops.declare import FLOATS, Array, per_operand, size_of, values
from firebrick.ops.elementwise import equal, floor_divide, greater_equal, less, logical_and, remainder, where
from firebrick.ops.indexing import gather, scatter_add, zeros_like_aval
from firebrick.ops.movement import reshape
from firebrick.ops.table import register


def pooled_shape(op: str, shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[int, ...]:
    """The result's shape, after checking that every window of ``op`` meets the image."""
    if len(shape) != len(kernel) + 2:
        raise ShapeError(
            f"{op}: x must be [batch, channels, {len(kernel)} axes of the image]", f"shape {shape}", "add the missing axes"
        )
    places = places_of(shape[2:], kernel, stride, padding, dilation)
    if min(places) < 1:
        raise ShapeError(
            f"{op}: the window must fit into the padded image", f"image {shape[2:]}, kernel {kernel}, padding {padding}",
            "use a smaller window",
        )  # fmt: skip
    for size, k, s, (before, _), d, n in zip(shape[2:], kernel, stride, padding, dilation, places, strict=True):
        if before > d * (k - 1) or (n - 1) * s - before >= size or (before and size < d):
            raise ShapeError(
                f"{op}: every window must meet the image, so padding must be smaller than it",
                f"image {shape[2:]}, kernel {kernel}, padding {padding}, dilation {dilation}", "pad less",
            )  # fmt: skip
    return (*shape[:2], *places)


def _infer_max(x: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Aval, Aval]:
    shape = pooled_shape("max_pool", x.shape, kernel, stride, padding, dilation)
    return Aval(shape, x.dtype), Aval(shape, int64)


def _cases(rng: np.random.Generator, name: str) -> list[Sample]:
    none = ((0, 0), (0, 0))
    cases = [
        ((2, 3, 4, 6), (2, 2), (2, 2), none),
        ((1, 2, 5, 5), (3, 2), (2, 1), ((1, 1), (0, 1))),
        ((1, 1, 7, 7), (3, 3), (1, 1), ((1, 1), (1, 1))),
        ((0, 2, 4, 4), (2, 2), (2, 2), none),
        ((2, 3, 7), (3,), (2,), ((1, 1),)),
        ((1, 2, 5), (2,), (2,), ((0, 1),)),
        ((1, 2, 4, 3, 5), (2, 2, 3), (2, 1, 2), ((0, 0), (1, 0), (1, 1))),
        # the window fits only with the padding
        ((1, 1, 2, 1), (1, 3), (1, 1), ((0, 0), (1, 1))),
        ((1, 1, 6, 5, 1), (1, 1, 3), (1, 1, 1), ((0, 0), (0, 0), (1, 1))),
    ]
    return [Sample((values(rng, name, s),), {"kernel": k, "stride": t, "padding": p}, name=f"{s} {k}") for s, k, t, p in cases]


def _max_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    none = ((0, 0), (0, 0))
    out = _cases(rng, name)
    for s in out:
        s.params["dilation"] = (1,) * len(s.params["kernel"])
    params = {"kernel": (2, 3), "stride": (1, 2), "padding": ((1, 1), (1, 0)), "dilation": (2, 1)}
    out.append(Sample((values(rng, name, (2, 1, 6, 7)),), params, name="dilation"))
    params = {"kernel": (2, 2), "stride": (2, 2), "padding": none, "dilation": (1, 1)}
    flat = np.ones((1, 1, 4, 4), out[0].inputs[0].dtype)
    out.append(Sample((flat,), params, False, "ties"))
    nan = flat.copy()
    nan[0, 0, 1, 1] = np.nan
    nan[0, 0, 2:, 2:] = -np.inf
    out.append(Sample((nan,), params, False, "NaN and -inf"))
    out.append(Sample((nan,), {**params, "padding": ((1, 1), (1, 1))}, False, "NaN and -inf, padded"))
    return out


def _max_vjp(g: Any, r: Any) -> Any:
    return (max_pool_gradient(g[0], r.outputs[1], size=r.avals[0].shape[2:], **r.params),)


def image_places(image: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """For each element of the kernel: which of its places lie inside the image, and their row-major places there."""
    count = places_of(image, kernel, stride, padding, dilation)
    rank = len(image)
    for at, part in elements(kernel, count, stride, dilation):
        inside, where = np.ones((), np.bool_), np.zeros((), np.int64)
        for i in range(rank):
            line = np.arange(count[i]) * stride[i] + at[i + 1] * dilation[i] - padding[i][0]
            line = line.reshape([-1 if j == i else 1 for j in range(rank)])
            inside = inside & (line >= 0) & (line < image[i])
            where = where * image[i] + line
        yield part, inside, where


def _windows(fold: str, gradient: bool) -> Any:
    """What a specification needs to know."""

    def facts(operands: Any, results: Any, *, kernel: Any, stride: Any, padding: Any, **more: Any) -> dict[str, Any]:
        image, places = operands[0].shape, results[0].shape
        if gradient:
            image, places = places, image
        return {
            "fold": fold, "gradient": gradient, "planes": image[:2], "image": image[2:], "places": places[2:], "kernel": kernel,
            "stride": stride, "before": [before for before, _ in padding], "dilation": more.get("dilation", (1,) * len(kernel)),
        }  # fmt: skip

    return facts


@register(
    operands="x:floating", infer=_infer_max, vjp=_max_vjp, residuals=("outputs",), samples=_max_samples, cost=per_operand(1),
    bound="memory", fusion="window", tolerance=0, dtypes=FLOATS,
    facts=_windows("max", gradient=False),
    batch=batch_rules.windows,
    jvp=forward_rules.largest_of_windows,
)  # fmt: skip
def max_pool(x: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Array, Array]:
    """The largest value of each window, and its place in the image in row-major order."""
    xp = padded_to(x, padding, -np.inf)
    parts, insides, places = zip(*image_places(x.shape[2:], kernel, stride, padding, dilation), strict=True)
    each = np.stack([xp[part] for part in parts], -1)
    inside = np.broadcast_to(np.stack(insides, -1), each.shape)
    place = np.broadcast_to(np.stack(places, -1), each.shape)
    best = np.max(np.where(inside, each, -np.inf), -1, keepdims=True)
    first = np.argmax(inside & ((each == best) | np.isnan(each)), -1)[..., None]
    return best[..., 0].astype(x.dtype), np.ascontiguousarray(np.take_along_axis(place, first, -1)[..., 0])


def _infer_max_gradient(g: Any, at: Any, *, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Aval:
    shape = (*g.shape[:2], *size)
    want = pooled_shape("max_pool_gradient", shape, kernel, stride, padding, dilation)
    if want != g.shape or at.shape != g.shape:
        raise ShapeError(
            "max_pool_gradient: the cotangent and the places must have max_pool's shape",
            f"{g.shape} and {at.shape}, not {want}", "check size",
        )  # fmt: skip
    return Aval(shape, g.dtype)


def _max_gradient_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for s in _max_samples(rng, name):
        _, at = max_pool.reference(*s.inputs, **s.params)
        size = s.inputs[0].shape[2:]
        out.append(Sample((values(rng, name, at.shape), at), {**s.params, "size": size}, s.grad_safe, s.name))
    return out


def _max_gradient_vjp(gg: Any, r: Any) -> Any:
    at = r.inputs[1]
    inside, place = _in_window(at, **r.params)
    found = gather(_flat(gg), _flat(place), axis=2)
    return (where(inside, reshape(found, shape=at.shape), 0.0), None)


def _in_window(at: Any, *, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any]:
    """Whether places lie in their own windows, and the places, 0 for those that do not."""
    inside, rest = None, at
    for i in range(len(size) - 1, -1, -1):
        line = np.arange(at.shape[2 + i], dtype=at.dtype.np) * stride[i] - padding[i][0]
        start = hooks.from_host(line.reshape([-1 if j == i else 1 for j in range(len(size))]), at.device)
        offset = remainder(rest, size[i]) - start
        here = logical_and(greater_equal(offset, 0), less(offset, kernel[i] * dilation[i]))
        if dilation[i] > 1:
            here = logical_and(here, equal(remainder(offset, dilation[i]), 0))
        inside = here if inside is None else logical_and(inside, here)
        rest = floor_divide(rest, size[i])
    inside = logical_and(inside, equal(rest, 0))
    return inside, where(inside, at, 0)


def _flat(x: Any) -> Any:
    return reshape(x, shape=(*x.shape[:2], size_of(x.shape[2:])))


def _max_gradient_simple(g: Any, at: Any, *, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    shape = (*g.shape[:2], size_of(size))
    inside, at = _in_window(at, size=size, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    spread = scatter_add(zeros_like_aval(Aval(shape, g.dtype), g), _flat(at), _flat(where(inside, g, 0.0)), axis=2)
    return reshape(spread, shape=(*shape[:2], *size))


@register(
    operands="g:floating at:integer", infer=_infer_max_gradient, vjp=_max_gradient_vjp, residuals=("inputs",),
    samples=_max_gradient_samples, cost=per_operand(2), bound="memory", fusion="window", tolerance=8, scale="operands",
    dtypes=FLOATS, decompose=_max_gradient_simple,
    facts=_windows("max", gradient=True),
    batch=batch_rules.windows,
    jvp=forward_rules.linear(0),
)  # fmt: skip
def max_pool_gradient(g: Array, at: Array, *, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Array:
    """What max_pool sends a cotangent of its values to: each goes to ``at``, its window's place in images of ``size``.

    ``at`` is max_pool's second result for the same windows; nothing goes to a place outside its window.
    """
    out = np.zeros((*g.shape[:2], *(n + sum(p) for n, p in zip(size, padding, strict=True))), g.dtype)
    for part, inside, place in image_places(size, kernel, stride, padding, dilation):
        out[part] += np.where(inside & (at == place), g, np.zeros((), g.dtype))
    return without(out, padding, size)


def _infer_avg(x: Any, *, kernel: Any, stride: Any, padding: Any) -> Aval:
    return Aval(pooled_shape("avg_pool", x.shape, kernel, stride, padding, (1,) * len(kernel)), x.dtype)


def _avg_vjp(g: Any, r: Any) -> Any:
    return (avg_pool_input(g, size=r.avals[0].shape[2:], **r.params),)


@register(
    operands="x:floating", infer=_infer_avg, vjp=_avg_vjp, residuals=(), samples=_cases, cost=per_operand(1), bound="memory",
    fusion="window", tolerance=8, scale="operands", dtypes=FLOATS,
    facts=_windows("mean", gradient=False), expand=expansions.mean_of_images,
    batch=batch_rules.windows,
)  # fmt: skip
def avg_pool(x: Array, *, kernel: Any, stride: Any, padding: Any) -> Array:
    """The mean of each window, padding counted as zeros."""
    ones = (1,) * len(kernel)
    xp = padded_to(x, padding)
    places = places_of(x.shape[2:], kernel, stride, padding, ones)
    total = np.zeros((*x.shape[:2], *places), x.dtype)
    for _, part in elements(kernel, places, stride, ones):
        total += xp[part]
    return np.asarray(total / np.asarray(size_of(kernel), x.dtype))


def _infer_avg_input(g: Any, *, size: Any, kernel: Any, stride: Any, padding: Any) -> Aval:
    shape = (*g.shape[:2], *size)
    want = pooled_shape("avg_pool_input", shape, kernel, stride, padding, (1,) * len(kernel))
    if want != g.shape:
        raise ShapeError("avg_pool_input: the cotangent must have avg_pool's shape", f"{g.shape}, not {want}", "check size")
    return Aval(shape, g.dtype)


def _avg_input_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for s in _cases(rng, name):
        shape = s.inputs[0].shape
        g = values(rng, name, pooled_shape("", shape, dilation=(1,) * len(shape[2:]), **s.params))
        out.append(Sample((g,), {**s.params, "size": shape[2:]}, name=s.name))
    return out


def _avg_input_vjp(gg: Any, r: Any) -> Any:
    return (avg_pool(gg, **{k: v for k, v in r.params.items() if k != "size"}),)


@register(
    operands="g:floating", infer=_infer_avg_input, vjp=_avg_input_vjp, residuals=(), samples=_avg_input_samples,
    cost=per_operand(1), bound="memory", fusion="window", tolerance=8, scale="operands", dtypes=FLOATS,
    facts=_windows("mean", gradient=True), expand=expansions.spread_over_images,
    batch=batch_rules.windows,
)  # fmt: skip
def avg_pool_input(g: Array, *, size: Any, kernel: Any, stride: Any, padding: Any) -> Array:
    """The adjoint of avg_pool: each window's share spread over the images of ``size`` it came from."""
    out = np.zeros((*g.shape[:2], *(n + sum(p) for n, p in zip(size, padding, strict=True))), g.dtype)
    share = g / np.asarray(size_of(kernel), g.dtype)
    for _, part in elements(kernel, g.shape[2:], stride, (1,) * len(kernel)):
        out[part] += share
    return without(out, padding, size)
