"""Moves between all pairs of engines and logical devices: values, identity, labels, gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import firebrick as fb
from firebrick.ops.declare import specials, values
from firebrick.testing import engines

NAMES = [f"{d}:{i}" for d in ("numpy", "cpu", "torch:cpu") for i in (0, 1)]
MISSING = engines().missing


def marks(name: str) -> list[pytest.MarkDecorator]:
    engine = name.split(":")[0]
    return [pytest.mark.skip(reason=f"engine {engine} cannot be used here")] if engine in MISSING else []


PAIRS = [pytest.param(a, b, id=f"{a}->{b}", marks=marks(a) or marks(b)) for a, b in itertools.permutations(NAMES, 2)]
pairs = pytest.mark.parametrize(("source", "goal"), PAIRS)
DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
]


@pairs
def test_every_dtype_arrives_bit_for_bit(source: str, goal: str) -> None:
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for host in (values(rng, dtype, (3, 4)), values(rng, dtype, ()), values(rng, dtype, (0, 3)), specials(dtype)):
            x = fb.asarray(host, device=source)
            y = x.to(goal)
            assert (y.device, y.dtype, y.shape) == (fb.device(goal), x.dtype, x.shape)
            assert y.numpy().tobytes() == host.tobytes()
            assert y.to(source).numpy().tobytes() == host.tobytes()
            assert x.numpy().tobytes() == host.tobytes()


@pairs
def test_views_arrive_as_what_they_show(source: str, goal: str) -> None:
    x = fb.asarray(np.arange(24.0).reshape(2, 3, 4), device=source)
    for view in (x[::-1, 1:, ::2], fb.permute_dims(x, (2, 0, 1)), fb.broadcast_to(x[:1], (5, 3, 4)), fb.flip(x), x[1, 2, 3]):
        np.testing.assert_array_equal(view.to(goal).numpy(), view.numpy())


@pairs
def test_two_devices_never_share_what_anyone_can_notice(source: str, goal: str) -> None:
    x = fb.ones(4, device=source)
    y = x.to(goal)
    x += 1.0
    assert y.tolist() == [1.0] * 4
    y[0] = 5.0
    fb.multiply(y, 2.0, out=y)
    assert x.tolist() == [2.0] * 4
    z = x.to(goal)
    fb.add(x, x, out=x)
    assert z.tolist() == [2.0] * 4
    fb.add(z, 1.0, out=z)
    assert x.tolist() == [4.0] * 4
    assert z.tolist() == [3.0] * 4


@pairs
def test_memory_that_a_move_shares_is_not_reused_when_its_source_is_gone(source: str, goal: str) -> None:
    x = fb.ones(4, device=source)
    y = x.to(goal)
    del x
    view = y[...]
    fb.add(y, 1.0, out=y)
    assert view.tolist() == [1.0] * 4
    host = fb.full(4, 3.0, device=source).to(goal).numpy()
    assert host.tolist() == [3.0] * 4


@pairs
def test_labels_move_along_and_a_move_to_where_it_is_gives_itself(source: str, goal: str) -> None:
    x = fb.ones(2, device=source)
    x.label = "conv1.weight"
    y = x.to(goal)
    assert y.label == "conv1.weight"
    assert y.to(goal) is y
    assert y.to_device(goal) is y
    assert fb.asarray(x, device=goal).device is fb.device(goal)
    with pytest.raises(fb.DeviceError):
        x.to("nowhere")


@pairs
def test_gradients_flow_back_through_a_move(source: str, goal: str) -> None:
    x = fb.asarray([1.0, 2.0, 3.0], device=source).require_grad()
    y = (x * x).to(goal)
    assert y.tracked
    loss = fb.sum(fb.exp(y * 0.0) * y)
    g = fb.backward(loss)[x]
    assert g.device is fb.device(source)
    assert g.tolist() == [2.0, 4.0, 6.0]


@pairs
def test_a_leaf_may_be_moved_itself_and_gradients_may_be_taken_twice(source: str, goal: str) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        there = x.to(goal)
        return fb.sum(there * there * there).to(source)

    x = fb.asarray([1.0, 2.0], dtype=fb.float64, device=source)
    second = fb.grad(lambda v: fb.sum(fb.grad(f)(v)))(x)
    assert second.device is fb.device(source)
    assert second.tolist() == [6.0, 12.0]


@pairs
def test_no_gradient_flows_where_none_is_recorded(source: str, goal: str) -> None:
    x = fb.ones(2, device=source).require_grad()
    with fb.no_grad():
        assert not x.to(goal).tracked
    assert not x.detach().to(goal).tracked


def test_a_move_to_meta_keeps_shape_and_dtype_only(device: str) -> None:
    y = fb.ones((2, 3), dtype=fb.float64, device=device).to("meta")
    assert (y.shape, y.dtype) == ((2, 3), fb.float64)
    with pytest.raises(fb.UnsupportedError):
        y.to(device)
