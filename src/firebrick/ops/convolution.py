"""2-D convolution (cross-correlation, as deep learning says it) and its two adjoints.

The three ops are one trilinear form seen from its three sides, so each one's gradient is the other two, to any order.
Layout [batch, channels, height, width]; weight [out, in / groups, kernel height, kernel width]; ``padding`` is
((top, bottom), (left, right)); ``stride`` and ``dilation`` are pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Cost, Sample
from firebrick.ops.declare import FLOATS, Array, Declare, values
from firebrick.ops.table import register


def out_size(size: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    """Number of places of a window along one axis."""
    return (size + pad[0] + pad[1] - dilation * (kernel - 1) - 1) // stride + 1


def _out_hw(hw: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[int, int]:
    a, b = (out_size(hw[i], kernel[i], stride[i], padding[i], dilation[i]) for i in (0, 1))
    return a, b


def _infer(x: Any, weight: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Aval:
    xs, ws = x.shape, weight.shape
    if len(xs) != 4 or len(ws) != 4 or xs[1] != ws[1] * groups or ws[0] % groups:
        raise ShapeError(
            "conv2d: x [batch, channels, height, width] and weight [out, channels / groups, kh, kw] with out divisible "
            "by groups",
            f"x {xs}, weight {ws}, groups {groups}",
            "check the number of input channels of the layer",
        )
    hw = _out_hw(xs[2:], ws[2:], stride, padding, dilation)
    if min(hw) < 1:
        raise ShapeError(
            "conv2d: the dilated kernel must fit into the padded image",
            f"image {xs[2:]}, kernel {ws[2:]}, padding {padding}, dilation {dilation}",
            "use a smaller kernel or more padding",
        )
    return Aval((xs[0], ws[0], *hw), x.dtype)


def _windows(kernel: Any, hw: Any, stride: Any, dilation: Any) -> Any:
    """For each kernel element (i, j): the strided part of a padded image that it meets."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            yield (
                i,
                j,
                (
                    ...,
                    slice(top, top + stride[0] * (hw[0] - 1) + 1, stride[0]),
                    slice(left, left + stride[1] * (hw[1] - 1) + 1, stride[1]),
                ),
            )


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
    ]


def _samples(build: Any) -> Any:
    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        out = []
        for xs, ws, params in _cases():
            hw = _out_hw(xs[2:], ws[2:], params["stride"], params["padding"], params["dilation"])
            x, w, g = (values(rng, name, s, -1, 1) for s in (xs, ws, (xs[0], ws[0], *hw)))
            out.append(build(x, w, g, params, f"x{xs} w{ws} {params}"))
        return out

    return samples


def _declare(vjp: Any, infer: Any, build: Any, side: int, operand_names: str) -> Declare:
    return register(
        operands=operand_names, infer=infer, vjp=vjp, residuals=("inputs",), samples=_samples(build), cost=_cost(side),
        bound="compute", fusion="contract", tolerance=16, scale="operands", dtypes=FLOATS,
    )  # fmt: skip


def _conv_vjp(g: Any, r: Any) -> Any:
    x, w = r.inputs
    gx = conv2d_input(g, w, size=x.shape[2:], **r.params) if r.needs[0] else None
    gw = conv2d_weight(x, g, kernel=w.shape[2:], **r.params) if r.needs[1] else None
    return gx, gw


@_declare(_conv_vjp, _infer, lambda x, w, g, p, n: Sample((x, w), p, name=n), 0, "x:floating=T weight:floating=T")
def conv2d(x: Array, weight: Array, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Convolution of images with kernels: y[n,o,h,w] = Σ x[n,c,h·s+i·d-p,w·s+j·d-p] · weight[o,c,i,j]."""
    n, c = x.shape[:2]
    o = weight.shape[0]
    hw = _out_hw(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    xp = np.pad(x, ((0, 0), (0, 0), *padding)).reshape(n, groups, c // groups, *_padded(x, padding))
    w = weight.reshape(groups, o // groups, *weight.shape[1:])
    out = np.zeros((n, groups, o // groups, *hw), x.dtype)
    for i, j, at in _windows(weight.shape[2:], hw, stride, dilation):
        out += np.einsum("ngchw,goc->ngohw", xp[at], w[..., i, j])
    return out.reshape(n, o, *hw)


def _padded(x: Array, padding: Any) -> tuple[int, ...]:
    return tuple(d + sum(p) for d, p in zip(x.shape[2:], padding, strict=True))


def _infer_input(g: Any, weight: Any, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Aval:
    shape = (g.shape[0], weight.shape[1] * groups, *size)
    want = _infer(Aval(shape, g.dtype), weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if want.shape != g.shape:
        raise ShapeError(
            "conv2d_input: the cotangent must have conv2d's shape",
            f"{g.shape}, not {want.shape}",
            "check size",
        )
    return Aval(shape, g.dtype)


def _input_vjp(gg: Any, r: Any) -> Any:
    g, w = r.inputs
    params = {k: v for k, v in r.params.items() if k != "size"}
    a = conv2d(gg, w, **params) if r.needs[0] else None
    b = conv2d_weight(gg, g, kernel=w.shape[2:], **params) if r.needs[1] else None
    return a, b


@_declare(_input_vjp, _infer_input, lambda x, w, g, p, n: Sample((g, w), {**p, "size": x.shape[2:]}, name=n), 1,
          "g:floating=T weight:floating=T")  # fmt: skip
def conv2d_input(g: Array, weight: Array, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The adjoint of conv2d in x: the transposed convolution onto images of ``size``."""
    n, o = g.shape[:2]
    c = weight.shape[1]
    padded = tuple(d + sum(p) for d, p in zip(size, padding, strict=True))
    out = np.zeros((n, groups, c, *padded), g.dtype)
    gg = g.reshape(n, groups, o // groups, *g.shape[2:])
    w = weight.reshape(groups, o // groups, *weight.shape[1:])
    for i, j, at in _windows(weight.shape[2:], g.shape[2:], stride, dilation):
        out[at] += np.einsum("ngohw,goc->ngchw", gg, w[..., i, j])
    out = out.reshape(n, groups * c, *padded)
    (t, _), (left, _) = padding
    return np.ascontiguousarray(out[:, :, t : t + size[0], left : left + size[1]])


def _infer_weight(x: Any, g: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Aval:
    shape = (g.shape[1], x.shape[1] // groups, *kernel)
    want = _infer(x, Aval(shape, x.dtype), stride=stride, padding=padding, dilation=dilation, groups=groups)
    if want.shape != g.shape:
        raise ShapeError(
            "conv2d_weight: the cotangent must have conv2d's shape",
            f"{g.shape}, not {want.shape}",
            "check kernel",
        )
    return Aval(shape, x.dtype)


def _weight_vjp(gw: Any, r: Any) -> Any:
    x, g = r.inputs
    params = {k: v for k, v in r.params.items() if k != "kernel"}
    a = conv2d_input(g, gw, size=x.shape[2:], **params) if r.needs[0] else None
    b = conv2d(x, gw, **params) if r.needs[1] else None
    return a, b


@_declare(_weight_vjp, _infer_weight, lambda x, w, g, p, n: Sample((x, g), {**p, "kernel": w.shape[2:]}, name=n), 2,
          "x:floating=T g:floating=T")  # fmt: skip
def conv2d_weight(x: Array, g: Array, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """The adjoint of conv2d in its weight: images correlated with a cotangent of the result."""
    n, c = x.shape[:2]
    o = g.shape[1]
    xp = np.pad(x, ((0, 0), (0, 0), *padding)).reshape(n, groups, c // groups, *_padded(x, padding))
    gg = g.reshape(n, groups, o // groups, *g.shape[2:])
    out = np.zeros((groups, o // groups, c // groups, *kernel), x.dtype)
    for i, j, at in _windows(kernel, g.shape[2:], stride, dilation):
        out[..., i, j] = np.einsum("ngchw,ngohw->goc", xp[at], gg)
    return out.reshape(o, c // groups, *kernel)
