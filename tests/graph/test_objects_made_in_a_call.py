"""Objects that a compiled function makes begin anew with each call.

What it returns has the same parts in common as without jit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim

DEVICES = ["cpu", "numpy"]


class Two(nn.Module):
    """Two parameters."""

    def __init__(self) -> None:
        self.p = nn.Parameter(fb.asarray(np.arange(3.0)))
        self.r = nn.Parameter(fb.asarray(np.arange(3.0) + 5.0))


def cost(model: Two) -> fb.Tensor:
    return fb.sum(model.p**2.0) + fb.sum(model.r**3.0)


def one(model: Two) -> fb.Tensor:
    return fb.sum(model.p**2.0)


def made(model: Two, optimizer: Callable[..., Any]) -> Any:
    """An optimizer that begins its moments, among them those of a parameter without a gradient, which is counted."""
    found = optimizer(model, lr=0.1)
    found.update(model, fb.grad(one)(model))
    found.update(model, fb.grad(cost)(model))
    return found


@pytest.mark.parametrize("optimizer", [optim.Adam, optim.Muon, lambda m, lr: optim.SGD(m, lr, momentum=0.9)])
@pytest.mark.parametrize("device", DEVICES)
def test_an_optimizer_made_in_a_call_begins_anew_with_each_call(device: str, optimizer: Callable[..., Any]) -> None:
    def run(compiled: bool) -> list[Any]:
        with fb.use_device(device):
            model = Two()

        def step() -> Any:
            return made(model, optimizer)

        out = []
        for call in [fb.jit(step) if compiled else step] * 4:
            moments = {k: {n: t.numpy() for n, t in held.items()} for k, held in call()._moments.items()}
            out.append((moments, model.p.numpy(), model.r.numpy()))
        return out

    for (plain, *expected), (traced, *found) in zip(run(False), run(True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert traced.keys() == plain.keys()
        for k, held in plain.items():
            assert traced[k].keys() == held.keys()
            for n, t in held.items():
                np.testing.assert_allclose(traced[k][n], t, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_an_optimizer_that_a_call_returns_is_one_of_its_own_each_time(device: str) -> None:
    with fb.use_device(device):
        model = Two()

    @fb.jit
    def step() -> Any:
        return made(model, optim.Adam)

    first = step()
    before = {k: {n: t.tolist() for n, t in held.items()} for k, held in first.state_dict()["moments"].items()}
    second = step()
    second.update(model, fb.grad(cost)(model))
    after = {k: {n: t.tolist() for n, t in held.items()} for k, held in first.state_dict()["moments"].items()}
    assert before == after
    assert (first.step, second.step) == (2, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_a_copy_made_in_a_call_is_trained_anew_with_each_call(device: str) -> None:
    with fb.use_device(device):
        model = Two()

    def step() -> list[fb.Tensor]:
        other = copy.deepcopy(model)
        made(other, optim.Adam)
        return [other.p + 0.0, other.r + 0.0]

    compiled = fb.jit(step)
    for _ in range(3):
        np.testing.assert_allclose(fb.read(compiled()), fb.read(step()), rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_containers_and_objects_that_are_returned_twice_are_one(device: str) -> None:
    with fb.use_device(device):
        model = Two()

    class Pair:
        def __init__(self, x: Any) -> None:
            self.x = x

    @fb.jit
    def parts(x: fb.Tensor) -> Any:
        inner = {"x": x + 1.0}
        both = (inner, inner["x"], [inner])
        pair, gradients = Pair(both), fb.grad(cost)(model)
        return pair, inner, both, [pair, gradients], gradients, both[2]

    for k in range(3):
        pair, inner, both, listed, gradients, single = parts(fb.full(2, float(k), device=device))
        assert pair.x is both
        assert both[0] is inner
        assert both[1] is inner["x"]
        assert single is both[2]
        assert single[0] is inner
        assert listed[0] is pair
        assert listed[1] is gradients
        assert inner["x"].tolist() == [k + 1.0, k + 1.0]
        assert gradients[model.p].tolist() == [0.0, 2.0, 4.0]
        inner["y"] = inner.pop("x")  # those of a call are its own


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_captured_generator_has_drawn_is_not_read_into_a_graph(device: str) -> None:
    generator = fb.random.Generator(7)

    def copied() -> fb.Tensor:
        return copy.deepcopy(generator).uniform((2,), device=device)

    def begun() -> fb.Tensor:
        return fb.random.Generator(int(generator.state()["counter"][0])).uniform((2,), device=device)

    def own() -> fb.Tensor:
        return copy.deepcopy(fb.random.Generator(3)).uniform((2,), device=device)

    for fn in (copied, begun, lambda: copy.copy(generator).uniform((2,), device=device)):
        compiled = fb.jit(fn)
        for _ in range(2):
            with pytest.raises(fb.UnsupportedError, match=r"Generator\.state, which a copy of a generator reads"):
                compiled()
    assert fb.jit(own)().tolist() == own().tolist()
