"""Convolutions over the transforms of patches: against the op table's references, and special values as in the plain sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contractions import Compiled

from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.backends.cpu.runtime.segment import build_segment
from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm.contract import (
    Contraction,
    Epilogue,
    MatrixLayout,
    contraction,
    conv,
    conv_input,
    product,
)
from firebrick.compiler.targets.llvm.contract.winograd import tiling, winograd
from firebrick.compiler.targets.llvm.lowered import contracted
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import UnsupportedError
from firebrick.core.views import Digit
from firebrick.ops import OPS
from firebrick.scalar.expr import const, load, maximum

# image, weight, padding
CASES = [
    ((8, 32, 32, 32), (48, 32, 3, 3), ((1, 1), (1, 1))),
    ((8, 130, 4, 4), (150, 130, 3, 3), ((1, 1), (1, 1))),
    ((7, 64, 4, 4), (70, 64, 3, 3), ((1, 1), (1, 1))),
    ((5, 48, 8, 8), (64, 48, 3, 3), ((1, 1), (1, 1))),
    ((9, 40, 7, 7), (35, 40, 3, 3), ((1, 1), (1, 1))),
    ((8, 40, 14, 14), (37, 40, 3, 3), ((1, 1), (1, 1))),
    ((3, 33, 13, 11), (35, 33, 3, 3), ((0, 2), (2, 1))),
    ((6, 32, 6, 10), (32, 32, 3, 3), ((0, 0), (0, 0))),
    ((4, 24, 28, 28), (40, 24, 3, 3), ((1, 1), (1, 1))),
    ((2, 24, 9, 50), (20, 24, 3, 3), ((2, 2), (2, 2))),
    ((1, 24, 20, 45), (32, 24, 3, 3), ((1, 1), (0, 1))),
    ((2, 300, 12, 12), (40, 300, 3, 3), ((1, 1), (1, 1))),
]
STEP = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}


def target_of(width: int) -> Target:
    try:
        target = Target.host(width)
    except UnsupportedError:
        pytest.skip(f"no vectors of {width} bits here")
    if target.arch != "x86_64" or target.width_bits < 256:
        pytest.skip("no masked reads here")
    return target


def geometry(case) -> Convolution:
    image, weight, padding = case
    return Convolution("float32", image, weight, (1, 1), padding, (1, 1))


def made(g: Convolution, target: Target, adjoint: bool = False, epilogue: Epilogue | None = None) -> Contraction:
    """The kernels, whether or not they are better than others for so small a convolution."""
    t = tiling(g, target, adjoint, worth=100.0)
    assert t is not None
    return winograd(g, t, target, "input" if adjoint else "conv", epilogue)


def operands(g: Convolution, seed: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, s).astype(np.float32) for s in (g.image, g.weight, g.result)]


def near(name: str, out: np.ndarray, *of: np.ndarray, **params) -> None:
    op = OPS[name]
    want = op.reference(*(x.astype(np.float64) for x in of), **params)
    scale = op.reference(*(np.abs(x.astype(np.float64)) for x in of), **params)
    assert (np.abs(out - want) <= 16 * np.finfo(np.float32).eps * scale).all(), name


@pytest.mark.parametrize("width", [256, 512])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_transforms_give_what_the_sum_gives(case, width) -> None:
    g, target = geometry(case), target_of(width)
    x, w, gy = operands(g)
    y, gx = np.full(g.result, np.nan, np.float32), np.full(g.image, np.nan, np.float32)
    Compiled(made(g, target), target)(w, x, y)
    Compiled(made(g, target, adjoint=True), target)(w, gy, gx)
    near("conv", y, x, w, padding=g.padding, **STEP)
    near("conv_input", gx, gy, w, size=g.image[2:], padding=g.padding, **STEP)


@pytest.mark.parametrize("case", [CASES[0], CASES[4], CASES[6], CASES[11]], ids=str)
def test_patches_that_another_kernel_transforms_give_the_same_bits(case) -> None:
    """Speed alone decides whether there is such a kernel."""
    g, target = geometry(case), target_of(0)
    x, w, _ = operands(g)
    t = tiling(g, target, False, worth=100.0)
    assert t is not None
    results = []
    for separate in (False, True):
        made_of = winograd(g, replace(t, separate=separate), target, "conv", None)
        assert any(k.name.endswith("patches") for k in made_of.kernels) is separate
        results.append(np.full(g.result, np.nan, np.float32))
        Compiled(made_of, target)(w, x, results[-1])
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("where", ["image", "weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("case", [CASES[3], CASES[6]], ids=str)
def test_what_is_not_finite_is_what_the_sum_gives_bit_for_bit(case, value, where) -> None:
    g, target = geometry(case), target_of(0)
    x, w, gy = operands(g)
    rng = np.random.default_rng(5)
    for a in (x, gy) if where == "image" else (w,):
        a *= np.float32(1e-4) if value == 3e38 else np.float32(1)
        a.ravel()[rng.choice(a.size, 3)] = value
        if value == 3e38:  # two neighbours whose sum or difference is more than the largest number
            a[0, 0, 1, 1:3] = value, -value
    pairs = [
        ("conv", made(g, target), conv(g), x, g.result, {}),
        ("conv_input", made(g, target, adjoint=True), conv_input(g)[0], gy, g.image, {"size": g.image[2:]}),
    ]
    for op, kernels, plain, read, shape, more in pairs:
        out, want = np.full(shape, 7.0, np.float32), np.full(shape, 8.0, np.float32)
        Compiled(kernels, target)(w, read, out, cuts=3)
        Compiled(contraction(plain, target, "plain"), target)(w, read, want)
        assert out.tobytes() == want.tobytes()
        if where == "image":  # where an infinite weight meets padding, the references of the two operations differ
            with np.errstate(all="ignore"):
                exact = OPS[op].reference(read.astype(np.float64), w.astype(np.float64), padding=g.padding, **more, **STEP)
            assert (np.isnan(out) == np.isnan(exact)).all()
            assert value == 3e38 or (np.isfinite(out) == np.isfinite(exact)).all()
        assert value == 3e38 or not np.isfinite(out).all()


def test_a_flag_of_one_call_is_not_there_at_the_next() -> None:
    g, target = geometry(CASES[3]), target_of(0)
    x, w, _ = operands(g)
    run = Compiled(made(g, target), target)
    first, broken, second = (np.empty(g.result, np.float32) for _ in range(3))
    run(w, x, first)
    worse = x.copy()
    worse[1, 2, 3, 4] = np.inf
    run(w, worse, broken)
    run(w, x, second)
    assert first.tobytes() == second.tobytes()
    assert (~np.isfinite(broken)).sum() == 9 * g.weight[0]


def test_a_denormal_weight_is_not_lost() -> None:
    g, target = geometry(CASES[3]), target_of(0)
    x, w = np.ones(g.image, np.float32), np.zeros(g.weight, np.float32)
    w[:, 3, 1, 1] = 1e-45
    y = np.empty(g.result, np.float32)
    Compiled(made(g, target), target)(w, x, y)
    assert (y == np.float32(1e-45)).all()


@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[3], CASES[4], CASES[6], CASES[9]], ids=str)
def test_an_epilogue_is_applied_to_what_is_stored(case) -> None:
    g, target = geometry(case), target_of(0)
    x, w, _ = operands(g)
    rng = np.random.default_rng(1)
    b, r = rng.uniform(-1, 1, g.weight[0]).astype(np.float32), rng.uniform(-1, 1, g.result).astype(np.float32)
    plain, out = np.empty(g.result, np.float32), np.empty(g.result, np.float32)
    Compiled(made(g, target), target)(w, x, plain)
    p = conv(g)
    rows = MatrixLayout("float32", (Digit(g.weight[0], 1),), (Digit(p.n, 0),), (0,))
    whole = product("float32") + load(1, "float32") + load(2, "float32")
    chain = Epilogue((rows, p.c), ((maximum(whole, const(0.0, "float32")), p.c),))
    Compiled(made(g, target, epilogue=chain), target)(w, x, b, r, out)
    want = np.maximum(plain + b[:, None, None] + r, np.float32(0))
    assert np.array_equal(out, want)
    x[0, 0, 0, 0] = np.nan
    Compiled(made(g, target, epilogue=chain), target)(w, x, b, r, out)
    assert np.isnan(out).sum() == np.isnan(OPS["conv"].reference(x, w, padding=g.padding, **STEP)).sum() > 0


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[4]], ids=str)
def test_any_number_of_threads_and_any_cut_give_the_same_bits(case) -> None:
    g, target = geometry(case), target_of(0)
    x, w, gy = operands(g)
    for kernels, read, shape in ((made(g, target), x, g.result), (made(g, target, adjoint=True), gy, g.image)):
        seen = set()
        for cuts in (0, 5):
            out = np.empty(shape, np.float32)
            Compiled(kernels, target)(w, read, out, cuts=cuts)
            seen.add(out.tobytes())
        lowered = contracted([(kernels, (0, 1))], 2)
        segment = build_segment(lowered.text, lowered.launches(range(3 + len(lowered.temporary))))
        space = np.empty(sum(lowered.temporary) + 64, np.uint8)
        for threads in (1, 2, 4):
            out = np.empty(shape, np.float32)
            start = space.ctypes.data + -space.ctypes.data % 64
            bufs = np.array([w.ctypes.data, read.ctypes.data, out.ctypes.data, start], np.uint64)
            pool = Pool(threads)
            segment(bufs.ctypes.data, pool)
            pool.close()
            seen.add(out.tobytes())
        assert len(seen) == 1


def test_what_is_better_computed_so_is_chosen_from_its_shape() -> None:
    target = target_of(512)

    def chosen(image, weight, stride=(1, 1), dilation=(1, 1), groups=1, dtype="float32") -> bool:
        g = Convolution(dtype, image, weight, stride, ((1, 1), (1, 1)), dilation, groups)
        return tiling(g, target, adjoint=False) is not None

    assert chosen((32, 64, 32, 32), (64, 64, 3, 3))
    assert chosen((32, 512, 4, 4), (512, 512, 3, 3))
    assert chosen((8, 64, 56, 56), (64, 64, 3, 3))
    assert not chosen((1, 512, 4, 4), (512, 512, 3, 3)), "the weight's transform is more work than the sum"
    assert not chosen((32, 3, 32, 32), (64, 3, 3, 3)), "the patches' transforms are more work than what they save"
    assert not chosen((32, 64, 32, 32), (64, 64, 3, 3), stride=(2, 2))
    assert not chosen((32, 64, 32, 32), (64, 64, 3, 3), dilation=(2, 2))
    assert not chosen((32, 64, 32, 32), (64, 32, 3, 3), groups=2)
    assert not chosen((32, 64, 32, 32), (64, 64, 3, 3), dtype="float64")
    assert not chosen((32, 64, 32, 32), (64, 64, 5, 5))
