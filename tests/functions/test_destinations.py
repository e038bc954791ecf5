"""``out=`` reads true by construction: at once, in every way, as an operand, and under earlier views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sample_arguments

import firebrick as fb

CALLS = [c for c in sample_arguments.calls() if c.takes_out]
each_call = pytest.mark.parametrize("call", CALLS, ids=lambda c: c.name)

WAYS: dict[str, Any] = {
    "numpy": lambda t: t.numpy(),
    "dlpack": np.from_dlpack,
    "read": lambda t: fb.read([t])[0],
    "tolist": lambda t: np.asarray(t.tolist(), t.dtype.np),
    "array": np.asarray,
    "items": lambda t: np.asarray([t[i].item() for i in np.ndindex(t.shape)], t.dtype.np).reshape(t.shape),
}


def filler(like: fb.Tensor) -> fb.Tensor:
    return fb.asarray(np.full(like.shape, 7).astype(like.dtype.np), device=like.device)


@each_call
@pytest.mark.parametrize("way", WAYS)
def test_a_destination_is_read_right_at_once(call: Any, way: str, device: str) -> None:
    expected = call(call.on(device)).numpy()
    out = filler(fb.asarray(expected, device=device))
    result = call(call.on(device), out=out)
    got = WAYS[way](out)
    assert result is out
    np.testing.assert_array_equal(got, expected)


@each_call
def test_printing_a_destination_shows_it(call: Any, device: str) -> None:
    expected = call(call.on(device))
    out = call(call.on(device), out=filler(expected))
    assert repr(out) == repr(expected)


@each_call
def test_a_destination_may_be_any_operand(call: Any, device: str) -> None:
    expected = call(call.on(device)).numpy()
    for name in call.tensors:
        for watched in (False, True):
            given = call.on(device)
            out = given[name]
            if out.shape != expected.shape or out.dtype.np != expected.dtype:
                continue
            before, earlier = np.array(call.arrays[name]), out.detach() if watched else None
            assert call(given, out=out) is out
            np.testing.assert_array_equal(out.numpy(), expected)
            if earlier is not None:
                np.testing.assert_array_equal(earlier.numpy(), before)
            for other, array in call.arrays.items():
                if other != name and isinstance(array, np.ndarray):
                    np.testing.assert_array_equal(given[other].numpy(), array)


@each_call
def test_earlier_views_and_arrays_of_a_destination_show_what_they_showed(call: Any, device: str) -> None:
    expected = call(call.on(device))
    out = filler(expected)
    before = np.array(out.numpy())
    seen = {"view": out[...], "handle": out.detach(), "reshaped": fb.reshape(out, (-1,))}
    host, exported = out.numpy(), np.from_dlpack(out)
    call(call.on(device), out=out)
    for name, t in seen.items():
        np.testing.assert_array_equal(t.numpy().reshape(before.shape), before, err_msg=name)
    np.testing.assert_array_equal(host, before)
    np.testing.assert_array_equal(exported, before)
    np.testing.assert_array_equal(out.numpy(), expected.numpy())


@each_call
def test_borrowed_memory_is_rebound_and_never_written(call: Any, device: str) -> None:
    expected = call(call.on(device)).numpy()
    lent = np.full(expected.shape, 7).astype(expected.dtype)
    out = fb.asarray(lent, device=device, copy=False)
    call(call.on(device), out=out)
    np.testing.assert_array_equal(lent, np.full(expected.shape, 7).astype(expected.dtype))
    np.testing.assert_array_equal(out.numpy(), expected)


@each_call
def test_a_destination_of_another_dtype_or_shape_is_refused_by_name(call: Any, device: str) -> None:
    expected = call(call.on(device))
    other = fb.float64 if expected.dtype is not fb.float64 else fb.float32
    with pytest.raises(fb.DTypeError, match=r"out must have the result's dtype"):
        call(call.on(device), out=fb.zeros(expected.shape, dtype=other, device=device))
    with pytest.raises(fb.ShapeError, match=r"out must have the result's shape"):
        call(call.on(device), out=fb.zeros((*expected.shape, 1), dtype=expected.dtype, device=device))
    with pytest.raises(fb.OperandError, match=r"out must be a Firebrick tensor"):
        call(call.on(device), out=expected.numpy())


def test_the_memory_of_a_destination_is_used_where_nobody_sees_it() -> None:
    x = fb.ones(1000)
    out = fb.zeros(1000)
    address = out.storage.data.ctypes.data
    fb.add(x, x, out=out)
    assert out.storage.data.ctypes.data == address


def test_an_update_that_reads_its_destination_is_right_many_times(device: str) -> None:
    w, step = fb.zeros(5, device=device), fb.ones(5, device=device)
    for _ in range(10):
        fb.add(w, step, out=w)
    assert w.tolist() == [10.0] * 5


def test_the_gradient_of_a_computation_into_a_destination_is_that_of_the_computation(device: str) -> None:
    x = fb.asarray([1.0, 2.0, 3.0], device=device).require_grad()
    out = fb.zeros(3, device=device)
    fb.multiply(x, x, out=out)
    assert out.tracked
    assert fb.backward(fb.sum(out))[x].tolist() == [2.0, 4.0, 6.0]
