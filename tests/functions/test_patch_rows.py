"""Patches of convolutions as rows: those of large images are taken along one axis after the other."""

import numpy as np
import pytest

import firebrick as fb
from firebrick.functions import windows

CASES = [
    ((2, 3, 9, 8), (3, 2), (2, 1), ((1, 1), (0, 2)), (1, 2)),
    ((2, 1, 5), (5,), (1,), ((0, 0),), (1,)),
    ((1, 2, 4, 5, 6), (2, 2, 2), (1, 2, 1), ((1, 0), (0, 0), (1, 1)), (2, 1, 1)),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation"), CASES)
def test_both_ways_have_the_same_patches_and_gradients(
    shape: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    x = fb.asarray(np.random.default_rng(0).normal(size=shape))

    def rows(x: fb.Tensor) -> tuple[fb.Tensor, tuple[int, ...]]:
        return windows.patch_rows("a test", x, kernel, stride, padding, dilation)

    found, sizes = rows(x)
    slope = fb.grad(lambda x: fb.sum(rows(x)[0] ** 2))(x)
    monkeypatch.setattr(windows, "_AT_ONCE", 0)
    other, other_sizes = rows(x)
    assert other_sizes == sizes
    np.testing.assert_array_equal(other.numpy(), found.numpy())
    np.testing.assert_allclose(fb.grad(lambda x: fb.sum(rows(x)[0] ** 2))(x).numpy(), slope.numpy(), rtol=1e-12)
