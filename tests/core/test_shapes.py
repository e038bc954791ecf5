"""Broadcasting, axes and reshapes: what fits, and what the error says where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as npst

import firebrick as fb
from firebrick.core.shapes import normalize_axes, normalize_axis, resolve_reshape, slice_length


@given(shapes=npst.mutually_broadcastable_shapes(num_shapes=3))
def test_broadcasting_is_numpys(shapes: npst.BroadcastableShapes) -> None:
    assert fb.broadcast_shapes(*shapes.input_shapes) == shapes.result_shape


def test_shapes_that_do_not_broadcast_are_shown() -> None:
    with pytest.raises(fb.ShapeError, match=r"\(2, 3\) and \(4, 3\)"):
        fb.broadcast_shapes((2, 3), (4, 3))
    with pytest.raises(fb.ShapeError, match=r"x1.*\n?.*"):
        fb.ones((2, 3)) + fb.ones((2, 4))
    assert fb.broadcast_shapes() == ()


def test_axes_count_from_either_end() -> None:
    assert [normalize_axis(a, 3, "f") for a in (0, 2, -1, -3, np.int64(1))] == [0, 2, 2, 0, 1]
    assert normalize_axes((-1, 0), 3, "f") == (0, 2)
    assert normalize_axes(None, 2, "f") == (0, 1)
    with pytest.raises(IndexError, match=r"f: axis must lie in \[-3, 3\)"):
        normalize_axis(3, 3, "f")
    with pytest.raises(fb.ShapeError, match="axis must be an int"):
        normalize_axis(1.0, 3, "f")
    with pytest.raises(fb.ShapeError, match="distinct"):
        normalize_axes((1, -2), 3, "f")
    with pytest.raises(IndexError):
        normalize_axis(0, 0, "f")


@pytest.mark.parametrize(
    ("shape", "size", "want"),
    [((2, -1), 6, (2, 3)), (-1, 6, (6,)), ((), 1, ()), ((-1, 1), 0, (0, 1)), ((0, 4), 0, (0, 4)), (6, 6, (6,))],
)
def test_reshapes_that_fit(shape: object, size: int, want: tuple[int, ...]) -> None:
    assert resolve_reshape(shape, size) == want


@pytest.mark.parametrize(("shape", "size"), [((4,), 6), ((-1, -1), 6), ((4, -1), 6), ((0, -1), 0), ((-2, 3), 6), ((0, -1), 6)])
def test_reshapes_that_do_not_fit_are_refused(shape: object, size: int) -> None:
    with pytest.raises(fb.ShapeError, match=f"the same {size} elements"):
        resolve_reshape(shape, size)


@given(
    key=npst.array_shapes(min_dims=1, max_dims=1, min_side=0, max_side=9).flatmap(
        lambda s: npst.basic_indices(s, max_dims=1, allow_ellipsis=False)
    )
)
def test_the_length_of_a_slice_is_that_of_its_range(key: object) -> None:
    k = key[0] if isinstance(key, tuple) and key else key
    if isinstance(k, slice):
        assert slice_length(*k.indices(9)) == len(range(9)[k])


@pytest.mark.parametrize("shape", [(2.0,), "ab", (-1,), (2, None)])
def test_a_shape_that_is_none_is_refused(shape: object) -> None:
    with pytest.raises(fb.ShapeError, match="Remedy"):
        fb.zeros(shape)


def test_index_arithmetic_is_64_bits_wide() -> None:
    x = fb.empty((2**20, 2**14), device="meta")
    assert x.size == 2**34
    assert fb.reshape(x, (-1,))[2**33 :].shape == (2**33,)
    assert x.nbytes == 2**36


@pytest.mark.parametrize("shapes", [(3,), ((3, 1), 4), (None, (2,))])
def test_what_is_no_shape_does_not_broadcast(shapes: tuple[object, ...]) -> None:
    with pytest.raises(fb.ShapeError, match="tuple of sizes"):
        fb.broadcast_shapes(*shapes)
