"""Random numbers in kernels: the op table's bits, wherever they are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_bodies import Body, body_of, kernels_of
from native_kernels import widths

import firebrick as fb
from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.compiler.targets.llvm.target import Target
from firebrick.ops import OPS

every_width = pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))


@every_width
@pytest.mark.parametrize("offset", [0, 3, 2**34 + 1])
@pytest.mark.parametrize("shape", [(3,), (5, 9), (3, 8200), (20_011,)])
def test_random_numbers_have_the_references_bits_in_maps_and_rows(shape: Any, offset: int, target: Target) -> None:
    key = np.array([1, 2**31 + 5, 77, 2**32 - 1], np.uint32)
    draw = {"shape": shape, "offset": offset, "dtype": fb.float32}
    want = OPS["random_uniform"].reference(key, **draw)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    other = key[::-1].copy()
    two = body_of(
        (key, other, x), ("random_uniform", (0,), draw), ("random_uniform", (1,), draw), ("subtract", (3, 4), {}),
        ("add", (5, 2), {}), outputs=(5, 6),
    )  # fmt: skip
    got, added = Body(two, target)(key, other, x)
    second = OPS["random_uniform"].reference(other, **draw)
    assert np.array_equal(got, want - second)
    assert np.array_equal(added, want - second + x)
    # masks of a softmax, drawn by the kernel of its rows
    rows = body_of(
        (key, x), ("softmax", (1,), {"axis": len(shape) - 1}), ("random_uniform", (0,), draw), ("multiply", (2, 3), {}),
        outputs=(2, 4),
    )  # fmt: skip
    body = Body(rows, target)
    if len(shape) > 1:
        assert kernels_of(body.lowered) == ["rows"]
    weights, dropped = body(key, x)
    assert np.array_equal(dropped, weights * want)


def test_random_bits_do_not_depend_on_threads_or_on_how_a_draw_is_split() -> None:
    key = np.array([9, 8, 7, 6], np.uint32)
    size = 300_001
    body = Body(body_of((key,), ("random_bits", (0,), {"shape": (size,), "offset": 5})))
    found = set()
    for threads in (1, 2, 4):
        crew = Pool(threads)
        found.add(body(key, pool=crew)[0].tobytes())
        crew.close()
    parts = [(5, 1000), (1005, 17), (1022, size - 1017)]
    split_up = [Body(body_of((key,), ("random_bits", (0,), {"shape": (n,), "offset": o})))(key)[0] for o, n in parts]
    assert found == {np.concatenate(split_up).tobytes()}


def test_dropout_is_one_kernel_whose_mask_is_that_of_an_eager_run() -> None:
    x = fb.ones((50, 33))
    found = []
    for compiled in (False, True):
        layer = fb.nn.Dropout(0.3, seed=5)
        step = fb.jit(lambda x, layer=layer: layer(x)) if compiled else layer
        found.append([step(x).numpy() for _ in range(2)])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0][0], found[0][1])
    assert "compiled kernels: 1 for 4 operations" in step.explain(x)
