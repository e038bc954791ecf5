"""Patches of convolutions by kernels are those of ``patch_rows``, with their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog import patches as module
from firebrick.analog.patches import patches
from firebrick.functions.windows import patch_rows

CASES: list[Any] = [
    ((2, 3, 9, 8), (3, 2), (2, 1), ((1, 1), (0, 2)), (2, 1)),
    ((2, 1, 5), (5,), (1,), ((0, 0),), (1,)),
    ((3, 2, 70), (7,), (3,), ((2, 4),), (1,)),
    ((1, 2, 4, 5, 6), (2, 2, 2), (1, 2, 2), ((1, 0), (0, 0), (1, 1)), (2, 1, 1)),
    ((3, 2, 20, 40), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    ((2, 2, 5, 45), (3, 20), (1, 3), ((0, 0), (1, 1)), (1, 1)),
    ((2, 2, 6, 33), (2, 17), (1, 16), ((0, 0), (0, 0)), (1, 1)),
]


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("these patches are taken by kernels")

    monkeypatch.setattr(module, "patch_rows", never)


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "x".join(map(str, case[0])))
def test_patches_and_their_derivatives_are_those_that_are_taken_by_index(case: Any, compiled: bool) -> None:
    shape, *settings = case
    rng = np.random.default_rng(0)
    x, t = (fb.asarray(rng.normal(size=shape)) for _ in range(2))
    wrapped = fb.jit if compiled else lambda f: f

    def of(function: Any) -> list[Any]:
        def rows(x: fb.Tensor) -> fb.Tensor:
            return function("a test", x, *settings)[0]  # type: ignore[no-any-return]

        def loss(x: fb.Tensor) -> fb.Tensor:
            return fb.sum(fb.sin(rows(x)))

        slope = fb.grad(loss)
        along = wrapped(lambda x, t: fb.jvp(rows, (x,), (t,))[1])
        second = wrapped(fb.grad(lambda x: fb.sum(slope(x) * t)))
        each = wrapped(fb.vmap(rows))
        of_each = wrapped(fb.grad(lambda many: fb.sum(fb.vmap(loss)(many))))
        many = fb.stack([x, t])
        return [wrapped(rows)(x), wrapped(slope)(x), along(x, t), second(x), each(many), of_each(many)]

    assert patches("a test", x, *settings)[1] == patch_rows("a test", x, *settings)[1]
    for found, wanted in zip(of(patches), of(patch_rows), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_of_patches_have_the_bits_of_the_interpreter_on_any_number_of_threads(threads: int) -> None:
    rng = np.random.default_rng(1)
    tables = [fb.asarray(t) for t in module._tables((3, 12), (8,), (5,), (1,), (1,))]
    rows = fb.asarray(rng.normal(size=(40, 8, 29, 15, 5)).astype(np.float32))
    with fb.config.scope(num_threads=threads):
        found = module._images(rows, tables, 36, 33, step=1, channels=3)
    host = [t.to("numpy") for t in (rows, *tables)]
    wanted = module._images(host[0], host[1:], 36, 33, step=1, channels=3)
    np.testing.assert_array_equal(found.numpy().view(np.uint32), wanted.numpy().view(np.uint32))


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_kernel_that_does_not_fit_is_refused(dilation: int) -> None:
    layer = analog.Conv1d(1, 1, 7, dilation=dilation, seed=0)
    with pytest.raises(fb.ShapeError, match=r"Conv1d: the kernel must fit into the padded image"):
        layer(fb.ones((1, 1, 6)))
