"""Layouts of views against NumPy's own: every element is found where NumPy finds it, and no copy is claimed to be none."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firebrick.compiler.layout.digits import Layout, broadcast, cuts, permuted, reshaped, row_major, strided


def places(x: Layout) -> np.ndarray:
    """The place in memory of each element."""
    digits = [digit for axis in x for digit in axis]
    shape = [int(np.prod([n for n, _ in axis])) for axis in x]
    grids = [sum(i * s for i, (_, s) in zip(index, digits, strict=True)) for index in product(*(range(n) for n, _ in digits))]
    return np.array(grids).reshape(shape)


def test_permuted_and_merged_axes_need_no_copy() -> None:
    memory = np.arange(2 * 6 * 4 * 5).reshape(2, 6, 4, 5)
    x = reshaped(permuted(row_major(memory.shape), (0, 2, 1, 3)), (8, 30))
    assert x is not None
    assert x == (((2, 120), (4, 5)), ((6, 20), (5, 1)))
    np.testing.assert_array_equal(places(x), memory.transpose(0, 2, 1, 3).reshape(8, 30))


def test_axes_are_split_and_merged_as_numpy_does() -> None:
    memory = np.arange(24)
    for shape in ((4, 6), (2, 3, 4), (1, 24), (24,), (2, 1, 12), (3, 8)):
        x = reshaped(row_major((4, 6)), shape)
        assert x is not None
        np.testing.assert_array_equal(places(x), memory.reshape(shape))


def test_an_axis_cut_amid_a_digit_has_no_layout() -> None:
    assert reshaped(permuted(row_major((4, 6)), (1, 0)), (8, 3)) is None
    assert reshaped(permuted(row_major((4, 6)), (1, 0)), (3, 2, 4)) is not None


def test_what_is_repeated_has_stride_0() -> None:
    x = broadcast(strided((1, 3), (7, 2)), (5, 2, 3))
    np.testing.assert_array_equal(places(x), np.broadcast_to(np.array([0, 2, 4]), (5, 2, 3)))
    y = reshaped(x, (10, 3))
    assert y == (((10, 0),), ((3, 2),))


@pytest.mark.parametrize("seed", range(40))
def test_random_views_agree_with_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(d) for d in rng.choice([1, 2, 3, 4, 6], 4))
    memory = np.arange(int(np.prod(shape))).reshape(shape)
    x: Layout | None = row_major(shape)
    for _ in range(4):
        assert x is not None
        if rng.integers(2):
            axes = tuple(int(a) for a in rng.permutation(memory.ndim))
            x, memory = permuted(x, axes), memory.transpose(axes)
        else:
            n, goal = memory.size, []
            while n > 1 and len(goal) < 4:
                d = int(rng.choice([d for d in (1, 2, 3, 4, 6, 12) if n % d == 0]))
                goal.append(d)
                n //= d
            x, memory = reshaped(x, (*goal, n)), memory.reshape(*goal, n)
        if x is None:
            return
        np.testing.assert_array_equal(places(x), memory)


def test_cuts_of_shapes_that_do_not_nest_are_refused() -> None:
    assert cuts((16, 64, 256), (1024, 256)) == [1, 256, 16384, 262144]
    assert cuts((4, 6), (8, 3)) == [1, 3, 6, 24]
    assert cuts((6, 4), (8, 3)) is None
