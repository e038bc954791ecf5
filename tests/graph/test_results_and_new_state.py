"""Results of a compiled function that are handles or objects of the caller, where the first call begins state.

An optimizer begins its moments in the first step that is traced. A later walk finds them among the captured tensors, before
those of variables whose names follow, so that positions of the trace are not those of a call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.graph import tell
from firebrick.optim import Adam
from firebrick.train import LossScaler

DEVICES = ["cpu", "numpy"]


class Two(nn.Module):
    """Two parameters."""

    def __init__(self) -> None:
        self.p = nn.Parameter(fb.asarray(np.arange(3.0)))
        self.r = nn.Parameter(fb.asarray(np.arange(3.0) + 5.0))


def cost(model: Two) -> fb.Tensor:
    return fb.sum(model.p**2.0) + fb.sum(model.r**3.0)


def begun(device: str) -> tuple[Two, Adam]:
    with fb.use_device(device):
        model = Two()
    return model, optim.Adam(model, lr=0.1)


@pytest.mark.parametrize("device", DEVICES)
def test_a_handle_that_is_returned_is_itself_though_an_optimizer_begins_in_the_call(device: str) -> None:
    model, adam = begun(device)
    seen = fb.asarray(np.arange(3.0), device=device)

    @fb.jit
    def step() -> tuple[fb.Tensor, fb.Tensor]:
        adam.update(model, fb.grad(cost)(model))
        seen[:] = seen + 1.0
        return seen, model.p

    for k in range(1, 3):
        returned, p = step()
        assert returned is seen
        assert p is model.p
        assert seen.tolist() == [k, k + 1.0, k + 2.0]
    assert step.traces == 1


@pytest.mark.parametrize("device", DEVICES)
def test_an_object_that_is_returned_is_itself_though_an_optimizer_begins_in_the_call(device: str) -> None:
    model, adam = begun(device)
    found = [{"weight": fb.ones(2, device=device)}]

    @fb.jit
    def step() -> tuple[Any, Any, Any]:
        adam.update(model, fb.grad(cost)(model))
        return found, model, model.parameters

    for _ in range(2):
        first, second, third = step()
        assert first is found
        assert second is model
        assert third.__self__ is model


@pytest.mark.parametrize("device", DEVICES)
def test_a_callback_is_the_captured_one_though_an_optimizer_begins_in_the_call(device: str) -> None:
    model, adam = begun(device)
    seen = fb.zeros(2, device=device)

    class Log:
        unwatched = frozenset({"values"})

        def __init__(self) -> None:
            self.values: list[Any] = []

        def hear(self, value: fb.Tensor) -> None:
            self.values.append(value.tolist())

    log = Log()

    @fb.jit
    def step() -> fb.Tensor:
        adam.update(model, fb.grad(cost)(model))
        tell(log.hear, seen + 1.0)
        return fb.sum(seen)

    step()
    step()
    assert log.values == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_flow_to_tracked_tensors_though_an_optimizer_begins_in_the_call(device: str) -> None:
    model, adam = begun(device)
    v, w = (fb.asarray(np.arange(3.0) + k, device=device).require_grad() for k in range(2))

    @fb.jit
    def step() -> fb.Tensor:
        with fb.no_grad():
            adam.update(model, fb.grad(cost)(model))
        return fb.sum(v * v) + fb.sum(w)

    for _ in range(3):
        gradients = fb.backward(step())
        assert gradients[v].tolist() == [0.0, 2.0, 4.0]
        assert gradients[w].tolist() == [1.0, 1.0, 1.0]
    assert step.traces == 1


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_a_call_flow_to_the_right_tensors_where_one_is_given_twice(device: str) -> None:
    u, v, w = (fb.asarray(np.arange(3.0) + k, device=device).require_grad() for k in range(3))

    def plain(a: fb.Tensor, b: fb.Tensor, c: fb.Tensor) -> fb.Tensor:
        return fb.sum(a * b) + fb.sum(c**3.0) * 2.0 + fb.sum(u**2.0)

    compiled = fb.jit(plain)
    for given in ((w, w, v), (w, v, w), (w, v, v), (v, w, u), (u, u, v)):
        expected, found = (fb.backward(fn(*given)) for fn in (plain, compiled))
        for t in (u, *given):
            assert found[t].tolist() == expected[t].tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_a_call_flow_to_the_right_parameters_where_one_is_an_argument_too(device: str) -> None:
    model, _ = begun(device)
    scale = fb.asarray(np.arange(3.0), device=device).require_grad()
    for p in model.parameters():
        p.require_grad()

    def plain(a: fb.Tensor) -> fb.Tensor:
        return fb.sum(a * model.p) + fb.sum(model.r**2.0) + fb.sum(scale**3.0)

    expected, found = (fb.backward(fn(model.p)) for fn in (plain, fb.jit(plain)))
    for t in (model.p, model.r, scale):
        assert found[t].tolist() == expected[t].tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_that_are_returned_hold_the_same_with_and_without_jit(device: str) -> None:
    def run(compiled: bool) -> tuple[Two, Any]:
        model, adam = begun(device)

        def step() -> Any:
            gradients = fb.grad(cost)(model)
            adam.update(model, gradients)
            return gradients

        return model, (fb.jit(step) if compiled else step)()

    (first, plain), (second, traced) = run(False), run(True)
    assert [g.tolist() for _, g in traced.items()] == [g.tolist() for _, g in plain.items()]
    assert "p: float64[3]" in repr(traced)
    assert "r: float64[3]" in repr(traced)
    assert len(traced) == 2
    for model, gradients in ((first, plain), (second, traced)):
        with pytest.raises(fb.GradientError, match="rebound since by an assignment"):
            gradients[model.p]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_that_overflowed_and_are_returned_change_nothing(device: str) -> None:
    model, adam = begun(device)
    scaler = LossScaler([fb.device(device)])

    @fb.jit
    def gradients(factor: fb.Tensor) -> Any:
        found = fb.grad(lambda m: cost(m) * factor * fb.astype(scaler.at(factor.device), fb.float64))(model)
        scaler.unscale(found)
        return found

    def update(factor: float) -> list[float]:
        adam.update(model, gradients(fb.asarray(factor, dtype=fb.float64, device=device)))
        return list(model.p.tolist())

    first = update(1.0)  # from here on moments alone would move the parameters
    assert update(np.inf) == first
    assert update(1.0) != first
