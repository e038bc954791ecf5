"""Views against NumPy's own: every element is found where NumPy finds it, and no copy is claimed to be none."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firebrick.core.views import View, cuts, row_major, strided


def addresses(x: View) -> np.ndarray:
    """The address of each element."""
    digits = [digit for axis in x.axes for digit in axis]
    grids = [x.offset + sum(i * s for i, (_, s) in zip(index, digits, strict=True))
             for index in product(*(range(n) for n, _ in digits))]  # fmt: skip
    return np.array(grids).reshape(x.shape)


def test_permuted_and_merged_axes_need_no_copy() -> None:
    memory = np.arange(2 * 6 * 4 * 5).reshape(2, 6, 4, 5)
    x = row_major(memory.shape).permuted((0, 2, 1, 3)).reshaped((8, 30))
    assert x == View((((2, 120), (4, 5)), ((6, 20), (5, 1))))
    assert x.strides is None
    np.testing.assert_array_equal(addresses(x), memory.transpose(0, 2, 1, 3).reshape(8, 30))


def test_axes_are_split_and_merged_as_numpy_does() -> None:
    memory = np.arange(24)
    for shape in ((4, 6), (2, 3, 4), (1, 24), (24,), (2, 1, 12), (3, 8)):
        x = row_major((4, 6)).reshaped(shape)
        assert x is not None
        assert x.in_rows
        np.testing.assert_array_equal(addresses(x), memory.reshape(shape))


def test_an_axis_that_begins_inside_of_a_digit_has_no_view() -> None:
    assert row_major((4, 6)).permuted((1, 0)).reshaped((8, 3)) is None
    assert row_major((4, 6)).permuted((1, 0)).reshaped((3, 2, 4)) is not None


def test_what_is_repeated_has_stride_0() -> None:
    x = strided((1, 3), (7, 2)).broadcast_to((5, 2, 3))
    np.testing.assert_array_equal(addresses(x), np.broadcast_to(np.array([0, 2, 4]), (5, 2, 3)))
    assert x.reshaped((10, 3)) == View((((10, 0),), ((3, 2),)))


def test_a_part_of_an_axis_of_several_digits_has_no_view_and_all_of_it_has() -> None:
    x = row_major((4, 6)).permuted((1, 0)).reshaped((24,))
    assert x is not None
    assert x.sliced((0,), (24,), (1,)) == x
    assert x.sliced((1,), (24,), (1,)) is None


@pytest.mark.parametrize(("view", "covers"), [
    (row_major((2, 3)), True), (row_major((2, 3)).permuted((1, 0)), True), (row_major((2, 3)).broadcast_to((4, 2, 3)), True),
    (row_major((2, 3)).flipped((1,)), False), (row_major((2, 3)).sliced((0, 0), (1, 3), (1, 1)), False),
    (row_major((6,)).sliced((1,), (6,), (1,)), False), (row_major((1, 1)), False),
])  # fmt: skip
def test_a_view_covers_a_buffer_of_six_elements_where_it_shows_each_of_them_forwards(view: View, covers: bool) -> None:
    assert view.covers(6) == covers


@pytest.mark.parametrize("seed", range(60))
def test_random_views_agree_with_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(d) for d in rng.choice([1, 2, 3, 4, 6], 4))
    memory = np.arange(int(np.prod(shape))).reshape(shape)
    x: View | None = row_major(shape)
    for _ in range(4):
        assert x is not None
        step = rng.integers(4)
        if step == 0:
            axes = tuple(int(a) for a in rng.permutation(memory.ndim))
            x, memory = x.permuted(axes), memory.transpose(axes)
        elif step == 1:
            axes = tuple(a for a in range(memory.ndim) if rng.integers(2))
            x, memory = x.flipped(axes), np.flip(memory, axes)
        elif step == 2 and memory.size:
            keys = [slice(int(rng.integers(d)), int(rng.integers(1, d + 1)), int(rng.integers(1, 3))) for d in memory.shape]
            x = x.sliced([k.start for k in keys], [k.stop for k in keys], [k.step for k in keys])
            memory = memory[tuple(keys)]
        else:
            n, goal = memory.size, []
            while n > 1 and len(goal) < 4:
                d = int(rng.choice([d for d in (1, 2, 3, 4, 6, 12) if n % d == 0]))
                goal.append(d)
                n //= d
            x, memory = x.reshaped((*goal, n)), memory.reshape(*goal, n)
        if x is None:
            return
        assert x.shape == memory.shape
        if memory.size:
            np.testing.assert_array_equal(addresses(x), memory)
            assert x.in_rows == bool((memory.reshape(-1) - memory.reshape(-1)[0] == np.arange(memory.size)).all())


def test_cuts_of_shapes_that_do_not_nest_are_refused() -> None:
    assert cuts((16, 64, 256), (1024, 256)) == [1, 256, 16384, 262144]
    assert cuts((4, 6), (8, 3)) == [1, 3, 6, 24]
    assert cuts((6, 4), (8, 3)) is None


def test_parts_of_complex_elements_are_a_view_of_the_same_memory_in_reals() -> None:
    memory = np.arange(24) + 1j * np.arange(100, 124)
    view = row_major((4, 6)).permuted((1, 0)).flipped((0,))
    shown = memory.reshape(4, 6).T[::-1]
    for part, want in ((0, shown.real), (1, shown.imag)):
        of = view.of_parts(part)
        at = of.offset + sum(np.ogrid[:6, :4][a] * s for a, s in enumerate(of.strides or ()))
        assert np.array_equal(memory.view(float)[at], want)
