"""Generated convolutions and their gradients against the op table's references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contractions import Compiled

import firebrick as fb
from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm import host
from firebrick.compiler.targets.llvm.contract import (
    contraction,
    conv,
    conv_input,
    conv_weight,
    forward,
    input_gradient,
    weight_gradient,
)
from firebrick.compiler.targets.llvm.contract.alternatives import PATCHES, Alternative
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.dtypes import limits
from firebrick.core.errors import UnsupportedError
from firebrick.ops import OPS

NONE, ONE = ((0, 0), (0, 0)), ((1, 1), (1, 1))
# image, weight, stride, padding, dilation, groups
CASES = [
    *((s.inputs[0].shape, s.inputs[1].shape, *(s.params[k] for k in ("stride", "padding", "dilation", "groups")))
      for s in OPS["conv"].samples(np.random.default_rng(0), "float32")),
    ((2, 16, 32, 32), (20, 16, 3, 3), (1, 1), ONE, (1, 1), 1),
    ((2, 16, 32, 32), (20, 16, 3, 3), (2, 2), ONE, (1, 1), 1),
    ((3, 40, 8, 8), (20, 40, 1, 1), (2, 2), NONE, (1, 1), 1),
    ((3, 40, 4, 4), (64, 40, 3, 3), (1, 1), ONE, (1, 1), 1),
    ((3, 33, 7, 7), (35, 33, 3, 3), (1, 1), ONE, (1, 1), 1),
    ((3, 1, 28, 28), (16, 1, 5, 5), (1, 1), NONE, (1, 1), 1),
    ((3, 16, 12, 12), (32, 16, 5, 5), (1, 1), NONE, (1, 1), 1),
    ((2, 24, 14, 14), (24, 1, 3, 3), (1, 1), ONE, (1, 1), 24),
    ((2, 5, 20, 37), (5, 1, 5, 3), (2, 3), ((2, 0), (1, 4)), (1, 2), 5),
    ((2, 3, 9, 23), (3, 1, 7, 7), (1, 1), ((3, 3), (3, 3)), (1, 1), 3),
    ((3, 4, 40), (4, 1, 3), (1,), ((8, 0),), (4,), 4),
    ((2, 3, 5, 6, 7), (3, 1, 2, 3, 3), (2, 1, 4), ((0, 1), (1, 1), (2, 0)), (1, 2, 1), 3),
    # depthwise: several rows in a vector, rows of a vector, positions modulo the stride that several or no taps read
    ((2, 3, 5, 8), (3, 1, 3, 3), (1, 1), ONE, (1, 1), 3),
    ((2, 3, 2, 2), (3, 1, 3, 3), (1, 1), ONE, (1, 1), 3),
    ((2, 3, 9, 4), (3, 1, 5, 3), (1, 1), ((2, 2), (2, 2)), (1, 2), 3),
    ((2, 3, 16, 16), (3, 1, 3, 3), (1, 1), ONE, (1, 1), 3),
    ((2, 3, 7, 1), (3, 1, 3, 1), (1, 1), ((1, 1), (0, 0)), (1, 1), 3),
    ((2, 3, 7, 8), (3, 1, 3, 1), (1, 1), NONE, (1, 1), 3),  # rows of equal length, and fewer of them
    ((2, 3, 7, 8), (3, 1, 2, 3), (2, 1), ((1, 0), (1, 1)), (1, 1), 3),
    ((2, 3, 16, 16), (3, 1, 3, 3), (2, 2), ONE, (1, 1), 3),
    ((2, 3, 8, 34), (3, 1, 3, 3), (2, 2), ONE, (1, 1), 3),
    ((2, 3, 9, 13), (3, 1, 3, 3), (2, 2), ((0, 1), (2, 0)), (2, 1), 3),
    ((2, 3, 12, 12), (3, 1, 1, 1), (2, 2), NONE, (1, 1), 3),
    ((2, 3, 11, 10), (3, 1, 2, 4), (3, 4), ((0, 0), (1, 1)), (1, 1), 3),
    ((2, 8, 6, 7), (16, 4, 3, 2), (1, 1), ((0, 1), (0, 0)), (2, 1), 2),
    ((2, 3, 7, 6, 5), (9, 3, 3, 2, 3), (1, 1, 1), ((0, 0), (0, 0), (0, 0)), (1, 1, 1), 1),
    ((3, 2, 40), (8, 2, 9), (1,), ((0, 0),), (1,), 1),
    ((2, 3, 30, 31), (8, 3, 11, 11), (4, 4), ((2, 2), (2, 2)), (1, 1), 1),
    ((2, 4, 13, 11), (6, 4, 3, 2), (3, 2), ((2, 1), (0, 3)), (2, 3), 1),
    ((2, 4, 9), (4, 4, 2), (5,), ((3, 3),), (1,), 1),
    ((2, 5, 15, 17), (9, 5, 3, 3), (2, 2), ONE, (1, 1), 1),
    ((3, 6, 16, 16), (12, 6, 1, 1), (2, 2), NONE, (1, 1), 1),
    ((2, 6, 14, 21), (16, 3, 4, 3), (3, 2), ((4, 5), (0, 6)), (2, 1), 2),
    ((2, 5, 13, 12), (8, 5, 2, 3), (1, 2), ((0, 0), (1, 0)), (1, 2), 1),
    ((2, 5, 21), (8, 5, 5), (2,), ((2, 1),), (1,), 1),
    ((2, 8, 65, 1), (16, 8, 3, 1), (2, 2), ((1, 1), (0, 0)), (1, 1), 1),  # one place modulo the stride of the last axis
    # one row of places, shorter than a panel is wide and no power of two
    ((1, 4, 205), (4, 4, 3), (1,), ((1, 1),), (1,), 1),
    ((1, 40, 5), (9, 40, 3), (1,), ((1, 1),), (1,), 1),
    ((1, 3, 3, 9), (1, 3, 3, 3), (2, 2), NONE, (1, 1), 1),
    # a tap that meets the padding of all positions, which are rows apart
    ((1, 5, 13, 3), (8, 5, 2, 3), (1, 2), ((1, 1), (1, 0)), (1, 1), 1),
]  # fmt: skip
# few channels in a group: rows of a vector, every second element of several rows and of one, and other geometries
GROUPED = [
    ((3, 8, 8, 8), (12, 4, 3, 3), (1, 1), ONE, (1, 1), 2),
    ((2, 6, 9, 16), (6, 3, 3, 3), (1, 1), ONE, (1, 1), 2),
    ((3, 10, 16, 16), (15, 2, 3, 3), (2, 2), ONE, (1, 1), 5),
    ((2, 6, 8, 8), (6, 2, 3, 3), (2, 2), ONE, (1, 1), 3),
    ((2, 4, 12, 7), (6, 2, 5, 4), (1, 2), ((2, 2), (2, 2)), (1, 1), 2),
    ((2, 4, 17, 15), (4, 2, 3, 3), (2, 2), ONE, (1, 1), 2),
    ((2, 4, 16, 31), (4, 2, 3, 3), (4, 2), ((3, 1), (4, 0)), (2, 3), 2),
    ((2, 32, 5, 6), (32, 16, 2, 6), (1, 1), ((0, 1), (5, 5)), (1, 1), 2),
    ((2, 34, 4, 4), (34, 17, 3, 3), (1, 1), ONE, (1, 1), 2),
    ((41, 4, 3, 3), (4, 2, 3, 3), (1, 1), ONE, (1, 1), 2),
    ((2, 8, 6, 6), (8, 4, 1, 1), (1, 1), NONE, (1, 1), 2),
    ((2, 8, 16, 16), (8, 4, 3, 1), (2, 2), ((1, 1), (0, 0)), (1, 1), 2),
    ((2, 8, 2, 2), (8, 4, 2, 2), (2, 2), NONE, (1, 1), 2),
    ((3, 6, 40), (9, 2, 3), (2,), ((1, 1),), (1,), 3),
    ((2, 6, 4, 5, 6), (4, 3, 2, 3, 3), (1, 2, 3), ((0, 1), (1, 1), (2, 0)), (1, 1, 1), 2),
]  # fmt: skip
CASES += GROUPED
OTHERS = CASES[: -len(GROUPED) : 4] + CASES[-len(GROUPED) - 4 :]


def target_of(width: int) -> Target:
    try:
        return Target.host(width)
    except UnsupportedError:
        pytest.skip(f"no vectors of {width} bits here")


def check(name: str, out: np.ndarray, *operands: np.ndarray, **params) -> None:
    """An array is within the table's tolerance of what the op's reference gives in float64."""
    op = OPS[name]
    want = op.reference(*(x.astype(np.float64) for x in operands), **params)
    scale = op.reference(*(np.abs(x.astype(np.float64)) for x in operands), **params)
    error = np.abs(out - want)
    assert (error <= 16 * np.finfo(out.dtype).eps * scale).all(), name


def run(case, dtype: str, target: Target, cuts: int = 0) -> tuple[bytes, ...]:
    image, weight, stride, padding, dilation, groups = case
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    g = Convolution(dtype, tuple(image), tuple(weight), stride, padding, dilation, groups)
    rng = np.random.default_rng(7)
    x, w, gy = (rng.uniform(-1, 1, s).astype(dtype) for s in (g.image, g.weight, g.result))
    y, gx, gw = (np.full(s, np.nan, dtype) for s in (g.result, g.image, g.weight))
    Compiled(forward(g, target, "conv"), target)(w, x, y, cuts=cuts)
    for c in input_gradient(g, target, "input"):
        Compiled(c, target)(w, gy, gx, cuts=cuts)
    Compiled(weight_gradient(g, target, "weight"), target)(gy, x, gw, cuts=cuts)
    check("conv", y, x, w, **params)
    check("conv_input", gx, gy, w, size=g.image[2:], **params)
    check("conv_weight", gw, x, gy, kernel=g.weight[2:], **params)
    return y.tobytes(), gx.tobytes(), gw.tobytes()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_convolution_and_its_gradients_are_within_the_tables_tolerance(case) -> None:
    run(case, "float32", target_of(0))


@pytest.mark.parametrize("width", [128, 256, 512])
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_any_width_of_vectors_computes_convolutions(case, width) -> None:
    run(case, "float32", target_of(width))
    run(case, "float64", target_of(width))


@pytest.mark.parametrize("case", CASES[-8:] + CASES[-len(GROUPED) - 8 : -len(GROUPED)], ids=str)
def test_products_over_patches_suit_every_geometry_without_the_special_kernels(case) -> None:
    image, weight, stride, padding, dilation, groups = case
    g, target, rng = (
        Convolution("float32", image, weight, stride, padding, dilation, groups),
        target_of(0),
        np.random.default_rng(8),
    )
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x, w, gy = (rng.uniform(-1, 1, s).astype(np.float32) for s in (g.image, g.weight, g.result))
    y, gx = (np.full(s, np.nan, np.float32) for s in (g.result, g.image))
    Compiled(contraction(conv(g), target, "conv"), target)(w, x, y)
    for i, p in enumerate(conv_input(g)):
        Compiled(contraction(p, target, f"input{i}"), target)(w, gy, gx)
    check("conv", y, x, w, **params)
    check("conv_input", gx, gy, w, size=g.image[2:], **params)


SPECIAL = {
    "depthwise": ((2, 3, 16, 16), (3, 1, 3, 3), (1, 1), ONE, (1, 1), 3),
    "depthwise with a stride": ((2, 3, 16, 16), (3, 1, 3, 3), (2, 2), ONE, (1, 1), 3),
    "few channels in a group": ((2, 32, 9, 9), (32, 16, 3, 3), (2, 2), ONE, (1, 1), 2),
    "too many channels in a group": ((2, 32, 9, 9), (34, 16, 3, 3), (1, 1), ONE, (1, 1), 2),
    "products of taps, then their sums": ((2, 8, 30, 31), (16, 8, 3, 3), (2, 2), ONE, (1, 1), 1),
    "sums of taps": ((2, 3, 40, 41), (8, 3, 3, 3), (1, 1), ONE, (1, 1), 1),
}  # fmt: skip


def test_the_algorithm_of_patches_is_a_product_where_the_default_is_another_one() -> None:
    target, how = Target.named("x86_64", 256), Alternative(PATCHES, PATCHES, PATCHES)
    others = set()
    for name, case in SPECIAL.items():
        g = Convolution("float32", *case)
        found = {
            "result": ([contraction(conv(g), target, "c")], [forward(g, target, "c")], [forward(g, target, "c", None, how)]),
            "image": (
                [contraction(p, target, f"c.{i}") for i, p in enumerate(conv_input(g))],
                input_gradient(g, target, "c"), input_gradient(g, target, "c", how),
            ),
            "weight": (
                [contraction(conv_weight(g), target, "c")],
                [weight_gradient(g, target, "c")], [weight_gradient(g, target, "c", how)],
            ),
        }  # fmt: skip
        for side, (products, default, forced) in found.items():
            assert forced == products, (name, side)
            if default != products:
                others.add((name, side))
    assert others == {
        *(("depthwise", side) for side in ("result", "image", "weight")),
        *(("depthwise with a stride", side) for side in ("result", "image", "weight")),
        *(("few channels in a group", side) for side in ("result", "image", "weight")),
        ("products of taps, then their sums", "image"), ("sums of taps", "weight"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [((6, 16, 16, 16), (20, 16, 3, 3), (2, 2), ONE, (1, 1), 1), *CASES[-len(GROUPED) - 8 : -len(GROUPED) - 4], *GROUPED[::3]],
    ids=str,
)
def test_any_cut_of_the_grids_gives_the_same_bits(case) -> None:
    assert len({run(case, "float32", target_of(0), cuts) for cuts in (0, 1, 7)}) == 1


def test_code_for_neon_is_generated() -> None:
    target = Target.named("aarch64")
    g = Convolution("float32", (2, 16, 12, 12), (20, 16, 3, 3), (1, 1), ONE, (1, 1))
    for p in (conv(g), *conv_input(g), conv_weight(g)):
        assert "fmla" in host.emit_assembly(contraction(p, target, "conv").module, target)


# products whose sums are split, and a transposed product: one position with all its taps but one outside
LONG = [((1, 64, 5, 5), (600, 64, 3, 3), (1, 1), ONE, (1, 1), 1), ((9, 20, 1, 1), (12, 20, 3, 3), (1, 1), ONE, (1, 1), 1)]


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        *(("float32", w) for w in (0, 128, 256)), ("float64", 256), ("float16", 0), ("bfloat16", 256),
        *(pytest.param("float64", w, marks=pytest.mark.soak) for w in (0, 128)),
        *(pytest.param("float16", w, marks=pytest.mark.soak) for w in (128, 256)),
        *(pytest.param("bfloat16", w, marks=pytest.mark.soak) for w in (0, 128)),
    ],
)  # fmt: skip
def test_a_weight_that_is_not_finite_reaches_the_elements_that_its_taps_read_alone(dtype: str, width: int) -> None:
    target, rng, beside = target_of(width), np.random.default_rng(9), 0
    for image, weight, stride, padding, dilation, groups in OTHERS + LONG:
        g = Convolution(dtype, tuple(image), tuple(weight), stride, padding, dilation, groups)
        kind = as_dtype(dtype).np
        w, gy = (rng.uniform(-1, 1, s).astype(kind) for s in (g.weight, g.result))
        for at, value in ((0, np.inf), (w.size // 2, -np.inf), (w.size - 1, np.nan)):
            w.reshape(-1)[at] = value
        params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "size": g.image[2:]}
        with np.errstate(invalid="ignore"):
            want = OPS["conv_input"].reference(gy.astype(np.float64), w.astype(np.float64), **params)
            scale = OPS["conv_input"].reference(np.abs(gy.astype(np.float64)), np.abs(w.astype(np.float64)), **params)
        gx = np.full(g.image, np.nan, kind)
        for c in input_gradient(g, target, "input"):
            Compiled(c, target)(w, gy, gx)
        found = gx.astype(np.float64)
        np.testing.assert_array_equal(found[~np.isfinite(want)], want[~np.isfinite(want)])
        finite = np.isfinite(want)
        limit = 16 * float(limits(as_dtype(dtype)).eps) * scale[finite]
        assert (np.abs(found[finite] - want[finite]) <= limit).all()
        for p in conv_input(g):
            Compiled(contraction(replace(p, omits=False), target, "input"), target)(w, gy, gx)
        beside += int(np.isnan(gx[finite]).any())
    assert beside > 3, "what is tested is left out by products with zeros"


@pytest.mark.parametrize("width", [128, 256, 512])
@pytest.mark.parametrize("groups", [1, 2])
def test_taps_that_only_read_padding_add_zeros(width, groups) -> None:
    """A place of a size of 1 is known when code is generated, and with it that a tap reads nothing."""
    target_of(width)
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((1, 2, 5, 1, 13), (2, 2 // groups, 1, 3, 1)))

    def both(x: fb.Tensor, w: fb.Tensor) -> tuple[fb.Tensor, ...]:
        y, pull = fb.vjp(lambda x, w: fb.conv3d(x, w, stride=(1, 1, 4), padding=(0, 1, 0), groups=groups), x, w)
        return y, *pull(y)

    with fb.config.scope(cpu_vector_bits=width):
        found = fb.jit(both)(fb.asarray(x), fb.asarray(w))
    for a, b in zip(found, both(*(fb.asarray(a.astype(np.float64), device="numpy") for a in (x, w))), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)
