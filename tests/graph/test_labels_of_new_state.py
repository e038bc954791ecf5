"""Code that reads an attribute with the name of a tensor's own, such as ``batch.label``, and state that begins with a call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import firebrick as fb
from firebrick import nn, optim


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_a_call_that_begins_state_may_read_an_attribute_called_label(device: str) -> None:
    model = nn.Linear(2, 2).to(device)
    rule = optim.SGD(model, lr=0.1, momentum=0.9)  # whose moments begin with the first update

    def loss(model: nn.Module, batch: SimpleNamespace) -> fb.Tensor:
        return fb.mean((model(batch.x)[:, 0] - batch.label) ** 2)

    @fb.jit
    def step(batch: SimpleNamespace) -> fb.Tensor:
        value, gradients = fb.value_and_grad(loss)(model, batch)
        rule.update(model, gradients)
        return value

    batch = SimpleNamespace(x=fb.ones((3, 2), device=device), label=fb.zeros(3, device=device))
    losses = [step(batch).item() for _ in range(4)]
    assert losses[0] != losses[1] != losses[2] != losses[3]
    assert step.traces == 1
