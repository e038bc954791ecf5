"""Convolution (cross-correlation, as deep learning says it) over one to three axes, and its two adjoints.

The three ops are one trilinear form seen from its three sides, so each one's gradient is the other two, to any order.
Layout [batch, channels, *image]; weight [out, in / groups, *kernel]. ``stride`` and ``dilation`` hold one int for each axis
of the image, ``padding`` one pair (before, after).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Cost, Sample
from firebrick.ops import batch_rules, forward_rules
from firebrick.ops.declare import FLOATS, Array, Declare, size_of, values
from firebrick.ops.table import register


def out_size(size: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    """Number of places of a window along one axis."""
    return (size + pad[0] + pad[1] - dilation * (kernel - 1) - 1) // stride + 1


def places_of(image: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[int, ...]:
    """Number of places of a window along each axis of an image."""
    return tuple(map(out_size, image, kernel, stride, padding, dilation))


def elements(kernel: Any, places: Any, stride: Any, dilation: Any) -> Iterator[tuple[Any, Any]]:
    """For each element of a kernel, in row-major order: its key, and that of the part of padded images that it meets."""
    for at in product(*map(range, kernel)):
        starts = [i * d for i, d in zip(at, dilation, strict=True)]
        parts = (slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, stride, places, strict=True))
        yield (..., *at), (..., *parts)


def padded_to(x: Array, padding: Any, value: float = 0.0) -> Array:
    """Images with their padding written out."""
    if not any(map(any, padding)):
        return x
    return np.pad(x, ((0, 0), (0, 0), *padding), constant_values=np.asarray(value, x.dtype))


def without(x: Array, padding: Any, size: Any) -> Array:
    """The images inside their padding."""
    inner: Any = (..., *(slice(a, a + n) for (a, _), n in zip(padding, size, strict=True)))
    return np.ascontiguousarray(x[inner])


def _infer(x: Any, weight: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Aval:
    xs, ws = x.shape, weight.shape
    rank = len(stride)
    if len(xs) != rank + 2 or len(ws) != rank + 2 or xs[1] != ws[1] * groups or ws[0] % groups:
        raise ShapeError(
            f"conv: x [batch, channels, {rank} axes] and weight [out, channels / groups, {rank} axes] with out divisible by "
            "groups", f"x {xs}, weight {ws}, groups {groups}", "check the number of input channels of the layer",
        )  # fmt: skip
    places = places_of(xs[2:], ws[2:], stride, padding, dilation)
    if min(places) < 1 or min(ws[2:]) < 1:
        raise ShapeError(
            "conv: the dilated kernel must fit into the padded image",
            f"image {xs[2:]}, kernel {ws[2:]}, padding {padding}, dilation {dilation}", "use a smaller kernel or more padding",
        )  # fmt: skip
    return Aval((xs[0], ws[0], *places), x.dtype)


def _cost(n_out: int) -> Any:
    def cost(ins: Any, outs: Any, params: Any) -> Cost:
        avals = (*ins, *outs)
        big = {0: (outs[0], ins[1]), 1: (ins[0], ins[1]), 2: (ins[1], outs[0])}[n_out]
        flops = 2.0 * big[0].size * big[1].size / max(1, big[1].shape[0])
        return Cost(flops, sum(a.nbytes for a in avals))

    return cost


def _cases() -> list[tuple[Any, Any, dict[str, Any]]]:
    def p(stride: Any = (1, 1), padding: Any = ((0, 0), (0, 0)), dilation: Any = (1, 1), groups: int = 1) -> Any:
        return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    return [
        ((2, 3, 5, 6), (4, 3, 3, 3), p()),
        ((1, 2, 6, 5), (3, 2, 2, 3), p((2, 1), ((1, 0), (2, 1)))),
        ((2, 4, 6, 6), (6, 2, 2, 2), p((2, 2), ((1, 1), (0, 0)), (2, 1), 2)),
        ((3, 2, 4, 4), (2, 1, 3, 3), p((1, 1), ((1, 1), (1, 1)), (1, 1), 2)),
        ((0, 2, 4, 4), (3, 2, 1, 1), p()),
        ((2, 1, 5, 5), (2, 1, 2, 2), p((3, 3))),
        ((3, 3, 3, 3), (3, 3, 3, 3), p((1, 1), ((1, 1), (1, 1)))),
        ((1, 1, 1, 1), (1, 1, 1, 1), p()),
        ((2, 3, 7), (4, 3, 3), p((2,), ((1, 1),), (2,))),
        ((2, 4, 5), (2, 2, 2), p((1,), ((0, 2),), (1,), 2)),
        ((2, 2, 9), (3, 2, 1), p((3,), ((0, 0),), (1,))),
        ((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), p((1, 2, 1), ((0, 0), (1, 1), (1, 0)), (1, 1, 2))),
        ((2, 4, 3, 3, 3), (4, 2, 2, 2, 2), p((1, 1, 2), ((1, 1), (0, 0), (1, 1)), (1, 1, 1), 2)),
    ]


def _drawn(rng: np.random.Generator, name: str) -> Iterator[tuple[Array, Array, Array, dict[str, Any]]]:
    """Image, weight and cotangent of each case, and its parameters."""
    for xs, ws, params in _cases():
        places = places_of(xs[2:], ws[2:], params["stride"], params["padding"], params["dilation"])
        x, w, g = (values(rng, name, s, -1, 1) for s in (xs, ws, (xs[0], ws[0], *places)))
        yield x, w, g, params


def _samples(build: Any) -> Any:
    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        return [build(x, w, g, p, f"x{x.shape} w{w.shape} {p}") for x, w, g, p in _drawn(rng, name)]

    return samples


def _geometry(side: int) -> Any:
    """What a specification needs to know: ``side`` is which of result, image and weight is computed."""

    def facts(
        operands: Any, results: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, **_: Any
    ) -> dict[str, Any]:
        (x, y), (z,) = operands, results
        image, weight = ((x.shape, y.shape), (z.shape, y.shape), (x.shape, z.shape))[side]
        return {
            "dtype": x.dtype.name, "image": tuple(image), "weight": tuple(weight), "stride": tuple(stride),
            "padding": tuple((a, b) for a, b in padding), "dilation": tuple(dilation), "groups": groups,
            "direction": ("forward", "input", "weight")[side],
        }  # fmt: skip

    return facts


def _declare(vjp: Any, infer: Any, samples: Any, side: int, operand_names: str, batch: Any) -> Declare:
    return register(
        operands=operand_names, infer=infer, vjp=vjp, residuals=("inputs",), samples=samples, cost=_cost(side),
        bound="compute", fusion="contract", tolerance=16, scale="operands", dtypes=FLOATS,
        facts=_geometry(side), batch=batch, jvp=forward_rules.multilinear,
    )  # fmt: skip


def _grouped(x: Array, groups: int) -> Array:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def _conv_vjp(g: Any, r: Any) -> Any:
    x, w = r.inputs
    gx = conv_input(g, w, size=x.shape[2:], **r.params) if r.needs[0] else None
    gw = conv_weight(x, g, kernel=w.shape[2:], **r.params) if r.needs[1] else None
    return gx, gw


@_declare(_conv_vjp, _infer, _samples(lambda x, w, g, p, n: Sample((x, w), p, name=n)), 0, "x:floating=T weight:floating=T",
          batch_rules.convolved((1, 0, 1), ((0, False), (0, False)), ((0, True), (1, True))))  # fmt: skip
def conv(x: Array, weight: Array, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Convolution of images with kernels: y[n,o,h,…] = Σ x[n,c,h·stride+i·dilation-before,…] · weight[o,c,i,…]."""
    o, kernel = weight.shape[0], weight.shape[2:]
    places = places_of(x.shape[2:], kernel, stride, padding, dilation)
    xp = _grouped(padded_to(x, padding), groups)
    w = weight.reshape(groups, o // groups, *weight.shape[1:])
    out = np.zeros((x.shape[0], groups, o // groups, *places), x.dtype)
    for at, part in elements(kernel, places, stride, dilation):
        out += np.einsum("ngc...,goc->ngo...", xp[part], w[at])
    return out.reshape(x.shape[0], o, *places)


def _infer_input(g: Any, weight: Any, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Aval:
    shape = (g.shape[0], weight.shape[1] * groups, *size)
    want = _infer(Aval(shape, g.dtype), weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if want.shape != g.shape:
        raise ShapeError("conv_input: the cotangent must have conv's shape", f"{g.shape}, not {want.shape}", "check size")
    return Aval(shape, g.dtype)


def _input_vjp(gg: Any, r: Any) -> Any:
    g, w = r.inputs
    params = {k: v for k, v in r.params.items() if k != "size"}
    a = conv(gg, w, **params) if r.needs[0] else None
    b = conv_weight(gg, g, kernel=w.shape[2:], **params) if r.needs[1] else None
    return a, b


def _input_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    """Also weights that are not finite: they reach the elements that their taps read, and no others."""
    out = [Sample((g, w), {**p, "size": x.shape[2:]}, name=f"x{x.shape} w{w.shape} {p}") for x, w, g, p in _drawn(rng, name)]
    for s in [s for s in out if s.inputs[1].ndim == 4 and s.inputs[0].size and s.inputs[1].size > 4]:
        weight = s.inputs[1].copy()
        weight[0, 0, 0, 0], weight[0, -1, -1, 0], weight[-1, 0, 0, -1] = np.inf, np.nan, -np.inf
        out.append(Sample((s.inputs[0], weight), s.params, False, f"not finite, {s.name}"))
    return out


@_declare(_input_vjp, _infer_input, _input_samples, 1, "g:floating=T weight:floating=T",
          batch_rules.convolved((1, 0, 1), ((0, False), (0, False)), ((1, False), (1, True))))  # fmt: skip
def conv_input(g: Array, weight: Array, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The adjoint of conv in x: the transposed convolution onto images of ``size``."""
    n, o = g.shape[:2]
    c = weight.shape[1]
    padded = tuple(d + sum(p) for d, p in zip(size, padding, strict=True))
    out = np.zeros((n, groups, c, *padded), g.dtype)
    gg = _grouped(g, groups)
    w = weight.reshape(groups, o // groups, *weight.shape[1:])
    for at, part in elements(weight.shape[2:], g.shape[2:], stride, dilation):
        out[part] += np.einsum("ngo...,goc->ngc...", gg, w[at])
    return without(out.reshape(n, groups * c, *padded), padding, size)


def _infer_weight(x: Any, g: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Aval:
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    want = _infer(x, Aval(shape, x.dtype), stride=stride, padding=padding, dilation=dilation, groups=groups)
    if want.shape != g.shape:
        raise ShapeError("conv_weight: the cotangent must have conv's shape", f"{g.shape}, not {want.shape}", "check kernel")
    return Aval(shape, x.dtype)


def _weight_vjp(gw: Any, r: Any) -> Any:
    x, g = r.inputs
    params = {k: v for k, v in r.params.items() if k != "kernel"}
    a = conv_input(g, gw, size=x.shape[2:], **params) if r.needs[0] else None
    b = conv(x, gw, **params) if r.needs[1] else None
    return a, b


@_declare(_weight_vjp, _infer_weight, _samples(lambda x, w, g, p, n: Sample((x, g), {**p, "kernel": w.shape[2:]}, name=n)), 2,
          "x:floating=T g:floating=T",
          batch_rules.convolved((1, 1, 0), ((1, True), (1, False)), ((1, True), (0, True))))  # fmt: skip
def conv_weight(x: Array, g: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The adjoint of conv in its weight: images correlated with a cotangent of the result."""
    c, o = x.shape[1], g.shape[1]
    places = g.shape[2:]
    xp = _grouped(padded_to(x, padding), groups)
    rows = _grouped(g, groups).reshape(x.shape[0], groups, o // groups, size_of(places))
    out = np.zeros((groups, o // groups, c // groups, *kernel), x.dtype)
    for at, part in elements(kernel, places, stride, dilation):
        out[at] = np.einsum("ngcp,ngop->goc", xp[part].reshape(*xp.shape[:3], size_of(places)), rows)
    return out.reshape(o, c // groups, *kernel)
