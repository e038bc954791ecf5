"""Indexing and assignment against NumPy, on every engine."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import firebrick as fb

shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
full_shapes = npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def array_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(float(np.prod(shape, dtype=int))).reshape(shape)


def ours(key: Any, device: str) -> Any:
    """A NumPy key with tensors in place of arrays."""
    if isinstance(key, tuple):
        return tuple(ours(k, device) for k in key)
    return fb.asarray(key, device=device) if isinstance(key, np.ndarray) else key


def check(x: np.ndarray[Any, Any], key: Any, device: str) -> None:
    got, want = fb.asarray(x, device=device)[ours(key, device)], x[key]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


def check_assignment(x: np.ndarray[Any, Any], key: Any, value: Any, device: str) -> None:
    t = fb.asarray(x, device=device)
    before, alias = t.numpy(), t.detach()
    want = x.copy()
    want[key] = value
    t[ours(key, device)] = fb.asarray(value, device=device) if isinstance(value, np.ndarray) else value
    np.testing.assert_array_equal(t.numpy(), want)
    np.testing.assert_array_equal(before, x)
    np.testing.assert_array_equal(alias.numpy(), x)


@given(data=st.data())
def test_basic_keys_mean_what_they_mean_in_numpy(device: str, data: st.DataObject) -> None:
    shape = data.draw(shapes)
    key = data.draw(npst.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    check(array_of(shape), key, device)
    check_assignment(array_of(shape), key, -1.0, device)


@given(data=st.data())
def test_integer_arrays_mean_what_they_mean_in_numpy(device: str, data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    key = data.draw(npst.integer_array_indices(shape, result_shape=npst.array_shapes(max_dims=2, max_side=3)))
    check(array_of(shape), key, device)
    check(array_of(shape), key[0], device)
    check_assignment(array_of(shape), key, -1.0, device)


@given(data=st.data())
def test_masks_mean_what_they_mean_in_numpy(device: str, data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    axes = data.draw(st.integers(1, len(shape)))
    mask = data.draw(npst.arrays(np.bool_, shape[:axes]))
    x = array_of(shape)
    check(x, mask, device)
    check_assignment(x, mask, -1.0, device)
    check_assignment(x, mask, np.asarray(-array_of(x[mask].shape) - 1.0), device)
    check_assignment(x, mask, np.asarray(-array_of(shape[axes:]) - 1.0), device)


@given(data=st.data())
def test_slices_ints_newaxis_and_arrays_mix_as_in_numpy(device: str, data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=2, max_dims=4, min_side=1, max_side=4))
    width = data.draw(st.integers(1, 3))
    key: list[Any] = []
    for size in shape:
        kind = data.draw(st.sampled_from(["slice", "int", "array", "newaxis and slice"]))
        if kind == "int":
            key.append(data.draw(st.integers(-size, size - 1)))
        elif kind == "array":
            key.append(data.draw(npst.arrays(np.int64, width, elements=st.integers(-size, size - 1))))
        else:
            key += [None] * (kind != "slice") + [data.draw(st.slices(size))]
    check(array_of(shape), tuple(key), device)
    check_assignment(array_of(shape), tuple(key), -1.0, device)


@st.composite
def mixed_keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Ints, slices of any step, newaxis, an ellipsis, index arrays that broadcast, masks of one or two axes, bools."""
    lengths = draw(st.sampled_from([(2, 3), (3,), (1, 2), ()]))
    key: list[Any] = []
    rest, axis = list(shape), 0
    stop = draw(st.integers(0, len(shape)))  # axes that the key names
    masked = False
    while axis < stop:
        kind = draw(st.sampled_from(["slice", "int", "array", "array", "newaxis", "mask", "bool"]))
        size = rest[axis]
        if kind == "newaxis":
            key.append(None)
        elif kind == "bool":
            key.append(draw(st.booleans()))
            masked = masked or not key[-1]
        elif kind == "slice":
            key.append(draw(st.slices(size)))
            axis += 1
        elif kind == "mask" and not masked and lengths == ():
            width = draw(st.integers(1, min(2, stop - axis)))
            key.append(draw(npst.arrays(np.bool_, tuple(rest[axis : axis + width]))))
            masked = True
            axis += width
        elif kind == "int":
            key.append(draw(st.integers(-size, size - 1)))
            axis += 1
        elif kind in ("array", "mask"):
            some = tuple(1 if draw(st.booleans()) else n for n in lengths)[draw(st.integers(0, len(lengths))) :]
            key.append(draw(npst.arrays(np.int64, some, elements=st.integers(-size, size - 1))))
            axis += 1
    if draw(st.booleans()):
        # what the rest of the axes stands for, or nothing at all
        key.insert(len(key) if axis < len(shape) else draw(st.integers(0, len(key))), ...)
    return tuple(key)


@settings(max_examples=150)
@given(data=st.data())
def test_mixed_keys_read_and_write_what_they_do_in_numpy(device: str, data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    key = data.draw(mixed_keys(shape))
    x = array_of(shape)
    try:
        target = x[key].shape
    except IndexError:  # several bools that do not broadcast
        with pytest.raises((IndexError, ValueError), match="Remedy"):
            fb.asarray(x, device=device)[ours(key, device)]
        return
    check(x, key, device)
    check_assignment(x, key, -1.0, device)
    # places that occur twice get one value, whichever comes last
    value_shape = tuple(1 if data.draw(st.booleans()) else d for d in target)[data.draw(st.integers(0, 4)) :]
    check_assignment(x, key, np.full(value_shape, -3.0), device)


@given(data=st.data())
def test_assigned_values_broadcast_as_in_numpy(device: str, data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    key = data.draw(npst.basic_indices(shape, allow_newaxis=True))
    x = array_of(shape)
    target = np.asarray(x[key]).shape
    value_shape = tuple(1 if data.draw(st.booleans()) else d for d in target)[data.draw(st.integers(0, 4)) :]
    check_assignment(x, key, np.asarray(-1.0 - array_of(value_shape)), device)


@pytest.mark.parametrize(
    "key",
    [
        (slice(None, None, -1),),
        (slice(None), slice(None, None, -2)),
        (Ellipsis, 0),
        (None, Ellipsis, None),
        (1, Ellipsis, -1),
        (slice(3, 0, -2),),
        (slice(5, 2),),
        (slice(-100, 100),),
        (np.asarray([2, -1, 0, 2]),),
        (slice(None), np.asarray([0])),
        (np.asarray([[0, 1], [2, 2]]), np.asarray([0, 3])),
        (np.asarray([], np.int64),),
        (0, np.asarray([1, 2])),
        (np.asarray([True, False, True]), 1),
        (slice(None), np.asarray([True, False, True, False])),
    ],
    ids=repr,
)
def test_hard_keys_mean_what_they_mean_in_numpy(key: Any, device: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    check(x, key, device)
    check_assignment(x, key, -5.0, device)


_I, _J, _MASK = np.asarray([[0, 1], [1, 0]]), np.asarray([1, 0]), np.asarray([[True, False, True], [False, True, False]])


@pytest.mark.parametrize(
    "key",
    [
        (_I, ..., _J),
        (_I, _J, ..., _J),
        (0, slice(None), _J),
        (slice(None), 0, _J),
        (_J, 0, _J),
        (_J, slice(None), 0),
        (_J, None, _J),
        (None, _J, _J),
        (_J, _J, None),
        (_I, slice(None, None, -1), _I),
        (slice(None, None, -1), _J, slice(None, None, -2)),
        (_MASK,),
        (_MASK, slice(1, 3)),
        (_MASK, None, 0),
        (slice(None), _MASK[0], _J),
        (0, _MASK[0], [0, 1]),
        (True, _J),
        (_J, True, _J),
        (False, slice(None), _J[:1]),
        (np.asarray(1), slice(None), _J),
        (np.int64(1), _J),
        (slice(5, 2), _J),
        (_J[:0], slice(None), _J[:0]),
    ],
    ids=repr,
)
def test_the_block_of_index_tensors_stands_where_numpy_puts_it(key: Any, device: str) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    check(x, key, device)
    check_assignment(x, key, -5.0, device)
    check_assignment(x, key, -array_of(x[key].shape) - 1.0, device)


def test_index_tensors_may_have_any_integer_dtype_and_layout(device: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    for dtype in ("int8", "uint8", "int32", "uint16", "uint64"):
        at = fb.asarray([[2, 0], [1, 1]], dtype=dtype, device=device)
        np.testing.assert_array_equal(fb.asarray(x, device=device)[at.mT, at].numpy(), x[[[2, 1], [0, 1]], [[2, 0], [1, 1]]])


def test_augmented_assignment_changes_the_places_of_its_key(device: str) -> None:
    want = np.arange(24.0).reshape(4, 6)
    x = fb.asarray(want, device=device)
    alias = x.detach()
    at = np.asarray([3, 1])
    x[1:4:2, ::-1] += 1.0
    want[1:4:2, ::-1] += 1.0
    x[fb.asarray(at, device=device), ::2] *= fb.asarray([2.0, 3.0, 4.0], device=device)
    want[at, ::2] *= [2.0, 3.0, 4.0]
    x[x > 20.0] -= 5.0
    want[want > 20.0] -= 5.0
    x[...] /= 2.0
    want[...] /= 2.0
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-6)
    assert alias.tolist() == np.arange(24.0).reshape(4, 6).tolist()
    y = fb.asarray(1.0, device=device)
    y[()] = 3.0
    y[...] += 1.0
    assert y.item() == 4.0


@pytest.mark.parametrize("engine", ["numpy", "cpu"])
def test_a_key_costs_the_memory_of_its_result(engine: str) -> None:
    x = fb.zeros((400, 50, 100), device=engine)  # 8 MB
    r, c = (fb.asarray(np.arange(20) * 2, device=engine) for _ in range(2))
    for key in ((r, slice(None), c), (r, c), (r, 0, c), (slice(None), c[:5], slice(0, 2)), (0, slice(None), c)):
        tracemalloc.start()
        try:
            result = x[key]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 16 * result.nbytes + 60_000


@pytest.mark.parametrize("key", [True, False, np.asarray(True)], ids=repr)
def test_a_bool_adds_an_axis_as_in_numpy(key: Any, device: str) -> None:
    check(np.arange(3.0), key, device)


def test_lists_index_like_arrays(device: str) -> None:
    x = fb.arange(5, device=device)
    assert x[[3, -1]].tolist() == [3, 4]
    assert x[[]].tolist() == []
    assert x[[True, False, True, False, False]].tolist() == [0, 2]


def test_the_last_of_several_values_for_one_place_stays(device: str) -> None:
    x = fb.zeros(4, device=device)
    x[fb.asarray([1, 1, 3, 1], device=device)] = fb.asarray([1.0, 2.0, 3.0, 4.0], device=device)
    assert x.tolist() == [0.0, 4.0, 0.0, 3.0]


@pytest.mark.parametrize("key", [3, -4, (0, 4), (0, 0, 0), (slice(None), -5)], ids=repr)
def test_an_int_outside_its_axis_is_an_index_error(key: Any, device: str) -> None:
    x = fb.zeros((3, 4), device=device)
    with pytest.raises(IndexError, match="Remedy"):
        x[key]
    with pytest.raises(IndexError):
        x[key] = 1.0


def test_index_tensors_that_do_not_broadcast_are_a_shape_error(device: str) -> None:
    x, two, three = fb.zeros((3, 4), device=device), fb.asarray([0, 1], device=device), fb.asarray([0, 1, 2], device=device)
    with pytest.raises(fb.ShapeError, match="index tensors"):
        x[two, three]
    with pytest.raises(fb.OutOfRangeError, match="too many indices"):
        x[two, two, two]
    with pytest.raises(fb.OutOfRangeError, match="must lie in"):
        x[two, 4]
    with pytest.raises(fb.ShapeError):
        x[two, two] = fb.ones(3, device=device)
    with pytest.raises(fb.OutOfRangeError, match=r"\[-4, 4\)"):
        x[two, three[:2] + 3]
    with pytest.raises(fb.OutOfRangeError, match=r"\[-3, 3\)"):
        x[three + 1, three]


@pytest.mark.parametrize("at", [[0, 3], [-4]])
def test_an_index_tensor_outside_its_axis_is_an_index_error(at: list[int], device: str) -> None:
    x = fb.zeros((3, 4), device=device)
    key = fb.asarray(at, device=device)
    for call in (
        lambda: x[key],
        lambda: x[key, 0],
        lambda: x.__setitem__(key, 1.0),
        lambda: fb.take(x, key, axis=0),
        lambda: fb.take_along_axis(x[:, 0], key, axis=0),
        lambda: fb.scatter_add(x[:, 0], key, fb.ones(len(at), device=device), axis=0),
    ):
        with pytest.raises(IndexError, match=r"indices must lie"):
            call()
    assert fb.sum(x).item() == 0.0


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (1.5, fb.OperandError),
        ("a", fb.OperandError),
        ((..., ...), fb.ShapeError),
        (slice(0, 3, 0), fb.OperandError),
        ([1.5], fb.OperandError),
        ([[0, 1], [1]], fb.OperandError),
    ],
    ids=repr,
)
def test_what_is_no_index_says_what_is(key: Any, error: type[Exception], device: str) -> None:
    with pytest.raises(error, match="Remedy"):
        fb.zeros((3, 4), device=device)[key]


def test_a_float_tensor_is_no_index(device: str) -> None:
    x = fb.zeros(3, device=device)
    with pytest.raises(TypeError, match="integer"):
        x[fb.zeros(2, device=device)]


def test_a_mask_of_another_shape_is_an_error(device: str) -> None:
    with pytest.raises(IndexError, match="masks match"):
        fb.zeros((3, 4), device=device)[fb.asarray([True, False], device=device)]


def test_an_assigned_value_keeps_the_dtype_of_its_target(device: str) -> None:
    x = fb.zeros(3, dtype=fb.int32, device=device)
    x[0] = 7
    x[1] = fb.asarray(5, dtype=fb.int16, device=device)
    assert x.dtype is fb.int32
    assert x.tolist() == [7, 5, 0]
    with pytest.raises(fb.DTypeError):
        x[0] = 1.5
    with pytest.raises(fb.DTypeError):
        x[0] = fb.asarray(1.5, device=device)
    with pytest.raises(fb.ShapeError):
        x[:2] = fb.ones(3, dtype=fb.int32, device=device)
    with pytest.raises(fb.OperandError, match="value must be a Firebrick tensor"):
        x[:2] = np.ones(2, np.int32)
    assert x.tolist() == [7, 5, 0]


def test_gradients_flow_through_indexing_and_assignment(device: str) -> None:
    x = fb.asarray([1.0, 2.0, 3.0], device=device).require_grad()
    v = fb.asarray([5.0, 6.0], device=device).require_grad()
    y = x * 1.0
    y[1:] = v * v
    grads = fb.backward(fb.sum(y[::-1] * y))
    assert grads[v].tolist() == [2 * 25 * 2 * 5.0, 2 * 1.0 * 2 * 6.0]
    assert grads[x].tolist() == [2 * 36.0, 0.0, 0.0]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2), (0, 0)])
def test_an_empty_axis_of_a_mask_stands_for_any_axis_and_selects_nothing(shape: tuple[int, ...], device: str) -> None:
    a = np.arange(6.0).reshape(3, 2)
    x, mask = fb.asarray(a, device=device), np.zeros(shape, np.bool_)
    for key in (mask, fb.asarray(mask, device=device)):
        assert x[key].shape == a[mask].shape
        y = x.detach()
        y[key] = 7.0
        np.testing.assert_array_equal(y.numpy(), a)
    with pytest.raises(IndexError, match="masks match"):
        x[np.zeros((0, 1), np.bool_)]


def test_indices_that_only_a_new_axis_parts_are_not_spread_out_over_the_whole_result() -> None:
    """The axes of the indices come first in the result, and yet one take along a merged axis gives it."""
    x, i, j = array_of((3, 4, 5, 6)), np.asarray([0, 2, 1]), np.asarray([4, 0, 3])
    for key in ((slice(None), i, None, j), (slice(None), slice(1, 3), None, i, None, j)):
        indices = ours(key, "cpu")
        graph = fb.jit(lambda t, key=indices: t[key]).graph(fb.asarray(x))
        (index,) = [n.inputs[1] for n in graph.nodes if n.op.name == "take"]
        assert graph.avals[index].shape == i.shape
        check(x, key, "cpu")


def _random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Ints, slices, ``None``, index arrays and an ellipsis, which may stand for no axis, in any order."""
    count = int(rng.integers(0, len(shape) + 1))
    gap = int(rng.integers(0, count + 1)) if rng.random() < 0.7 or count < len(shape) else None
    block = [(2,), (3,), (), (2, 1)][rng.integers(4)]
    key: list[Any] = []
    for j in range(count):
        size = shape[j if gap is None or j < gap else len(shape) - count + j]
        if j == gap:
            key.append(...)
        if rng.random() < 0.15:
            key.append(None)
        draws = (int(rng.integers(-size, size)), slice(None, None, -1), slice(0, 2), rng.integers(-size, size, size=block))
        key.append(draws[rng.integers(4)])
    return (*key, ...) if gap == count else tuple(key)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.soak) for s in range(4, 100))])
def test_random_keys_read_and_write_what_numpy_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 3], size=rng.integers(1, 5)))
        a = np.arange(np.prod(shape)).reshape(shape)
        key = _random_key(rng, shape)
        tensors = ours(key, "cpu")
        expected = a[key]
        np.testing.assert_array_equal(fb.asarray(a)[tensors].numpy(), expected, err_msg=f"{shape}[{key}]", strict=True)
        if len(np.unique(expected)) == expected.size:
            written, x = np.arange(expected.size).reshape(expected.shape) + 100, fb.asarray(a)
            a[key] = written
            x[tensors] = fb.asarray(written)
            np.testing.assert_array_equal(x.numpy(), a, err_msg=f"{shape}[{key}] = …")
