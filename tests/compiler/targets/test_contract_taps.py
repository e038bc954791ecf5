"""Weight gradients summed tap by tap, against the op table's reference."""

from __future__ import annotations

import numpy as np
import pytest
from contractions import Compiled

from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.backends.cpu.runtime.segment import build_segment
from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm.contract import weight_gradient
from firebrick.compiler.targets.llvm.contract.taps import tap_sum_kernels, tap_sums
from firebrick.compiler.targets.llvm.lowered import contracted
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import UnsupportedError
from firebrick.ops import OPS

NONE, ONE = ((0, 0), (0, 0)), ((1, 1), (1, 1))
# image, weight, stride, padding, dilation
CASES = [
    ((9, 1, 28, 28), (16, 1, 5, 5), (1, 1), NONE, (1, 1)),
    ((17, 5, 12, 12), (32, 5, 5, 5), (1, 1), NONE, (1, 1)),
    ((20, 16, 12, 12), (35, 16, 5, 5), (1, 1), NONE, (1, 1)),
    ((3, 3, 32, 32), (64, 3, 3, 3), (1, 1), ONE, (1, 1)),
    ((5, 20, 16, 16), (33, 20, 3, 3), (1, 1), ONE, (1, 1)),
    ((5, 33, 31, 31), (50, 33, 3, 3), (2, 2), ONE, (1, 1)),
    ((17, 40, 16, 16), (128, 40, 1, 1), (2, 2), NONE, (1, 1)),
    ((70, 30, 4, 4), (20, 30, 3, 3), (1, 1), ONE, (1, 1)),
    ((1, 7, 40, 41), (8, 7, 3, 2), (1, 1), ((2, 0), (0, 3)), (1, 1)),
    ((3, 6, 50, 37), (10, 6, 3, 3), (1, 2), ((2, 2), (3, 1)), (2, 3)),
    ((2, 2, 70, 33), (4, 2, 2, 4), (1, 1), ((5, 4), (6, 7)), (1, 1)),
    ((2, 2, 64, 64), (3, 2, 8, 8), (2, 1), ONE, (1, 1)),
]


def target_of(width: int) -> Target:
    try:
        target = Target.host(width)
    except UnsupportedError:
        pytest.skip(f"no vectors of {width} bits here")
    if target.arch != "x86_64" or target.width_bits < 256:
        pytest.skip("no masked reads here")
    return target


def geometry(case, dtype: str = "float32") -> Convolution:
    return Convolution(dtype, *case)


def operands(g: Convolution) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    return rng.uniform(-1, 1, g.result).astype(g.dtype), rng.uniform(-1, 1, g.image).astype(g.dtype)


def reference(g: Convolution, gy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return OPS["conv_weight"].reference(
        x.astype(np.float64), gy.astype(np.float64), kernel=g.weight[2:], stride=g.stride, padding=g.padding,
        dilation=g.dilation, groups=1,
    )  # fmt: skip


@pytest.mark.parametrize(("width", "dtype"), [(512, "float32"), (256, "float32"), (512, "float64")])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_taps_are_the_weights_gradient(case, width, dtype) -> None:
    g, target = geometry(case, dtype), target_of(width)
    gy, x = operands(g)
    t = tap_sums(g, target)
    assert t is not None
    out = np.full(g.weight, np.nan, dtype)
    Compiled(tap_sum_kernels(g, t, target, "weight"), target)(gy, x, out, cuts=4)
    scale = reference(g, np.abs(gy), np.abs(x))
    assert (np.abs(out - reference(g, gy, x)) <= 16 * np.finfo(dtype).eps * scale).all()


@pytest.mark.parametrize("side", ["cotangent", "image"])
@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[8], CASES[9]], ids=str)
def test_what_is_not_finite_reaches_the_taps_that_meet_it(case, side) -> None:
    g, target = geometry(case), target_of(0)
    gy, x = operands(g)
    (gy if side == "cotangent" else x)[-1, 1, 0, 0] = np.inf
    (gy if side == "cotangent" else x)[0, 0, -1, -1] = np.nan
    out = np.empty(g.weight, np.float32)
    Compiled(weight_gradient(g, target, "weight"), target)(gy, x, out)
    with np.errstate(invalid="ignore"):
        want = reference(g, gy, x)
    assert not np.isfinite(want).all()
    assert np.isfinite(want).any()
    assert (np.isnan(out) == np.isnan(want)).all()
    assert (np.isinf(out) == np.isinf(want)).all()


@pytest.mark.parametrize("case", [CASES[2], CASES[5], CASES[7]], ids=str)
def test_any_number_of_threads_and_any_cut_give_the_same_bits(case) -> None:
    g, target = geometry(case), target_of(0)
    gy, x = operands(g)
    made = weight_gradient(g, target, "weight")
    seen = set()
    for cuts in (0, 6):
        out = np.empty(g.weight, np.float32)
        Compiled(made, target)(gy, x, out, cuts=cuts)
        seen.add(out.tobytes())
    lowered = contracted([(made, (0, 1))], 2)
    segment = build_segment(lowered.text, lowered.launches(range(3 + len(lowered.temporary))))
    space = np.empty(sum(lowered.temporary) + 64, np.uint8)
    for threads in (1, 2, 4):
        out = np.empty(g.weight, np.float32)
        bufs = np.array([*(a.ctypes.data for a in (gy, x, out)), space.ctypes.data + -space.ctypes.data % 64], np.uint64)
        pool = Pool(threads)
        segment(bufs.ctypes.data, pool)
        pool.close()
        seen.add(out.tobytes())
    assert len(seen) == 1


def test_only_few_outputs_of_many_places_are_summed_so() -> None:
    target = target_of(0)

    def chosen(image, weight, groups=1, dtype="float32") -> bool:
        return tap_sums(Convolution(dtype, image, weight, (1, 1), ONE, (1, 1), groups), target) is not None

    assert chosen((32, 64, 32, 32), (64, 64, 3, 3))
    assert not chosen((32, 64, 32, 32), (512, 64, 3, 3)), "patches are then packed for many outputs"
    assert not chosen((1, 64, 8, 8), (64, 64, 3, 3))
    assert not chosen((32, 64, 32, 32), (64, 32, 3, 3), groups=2)
    assert not chosen((32, 64, 32, 32), (64, 64, 3, 3), dtype="float16")
