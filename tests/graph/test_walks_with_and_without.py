"""One visit gives the walk from a function's roots and the walk that also goes through what the function is shown.

Both are what walks of their own would be. So state that begins with a call is found without visiting a model of thousands of
tensors once more.
"""

from __future__ import annotations

from typing import Any

import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.graph.walk import Walk


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.scale, self.steps = 2.0, [1, 2]

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.inner(x) * self.scale


def step(model: Scaled, optimizer: Any, batch: dict[str, Any]) -> fb.Tensor:
    return fb.sum(model(batch["x"])) + len(batch["names"])


def by_label(model: Any, optimizer: Any, batch: dict[str, Any]) -> str:
    return str(model.inner.weight.label) + "{0.scale}".format(model)  # noqa: UP030, UP032 - reads any attribute by a text


def _state(walk: Walk) -> dict[str, Any]:
    named = ("key", "frozen", "entries", "ends", "names", "strings", "ties", "every_name", "ids")
    return {name: getattr(walk, name) for name in named} | {
        "leaves": [(path, id(t)) for path, t in walk.leaves],
        "found": [type(v) for v in walk.found],  # some are made by each look: methods, views of the dicts of classes
        "slots": [(name, type(v)) for _, name, v in walk.slots],
        "lists": [len(items) for _, items in walk.lists],
    }


@pytest.mark.parametrize("fn", [step, by_label, lambda *a: step(*a)], ids=["step", "by label", "lambda"])
@pytest.mark.parametrize("more", ["nothing", "known", "new", "code"])
def test_both_walks_are_what_walks_of_their_own_would_be(fn: Any, more: str) -> None:
    model = Scaled()
    optimizer = optim.Adam(model)
    batch = {"x": fb.ones((2, 3)), "names": ["a", "b"]}
    shown = {
        "nothing": [],
        "known": [("arguments", {"model": model, "batch": batch})],
        "new": [("arguments", {"batch": {"x": fb.zeros((4,)), "names": ("c",)}}), ("keywords", {})],
        "code": [("arguments", {"hook": lambda m: getattr(m, "scale") + m.steps[0], "other": Scaled()})],  # noqa: B009
    }[more]
    roots = [("fn", fn), ("model", model), ("optimizer", optimizer), ("batch", batch)]
    without, both = Walk.with_and_without(roots, shown)
    assert _state(without) == _state(Walk(roots))
    assert _state(both) == _state(Walk(roots, shown))
    assert without.fresh()
    assert both.fresh()


def test_state_that_begins_with_a_call_is_found_by_the_walk_that_is_kept() -> None:
    model = Scaled()
    optimizer = optim.Adam(model)

    @fb.jit
    def train(model: Scaled, optimizer: optim.Adam, batch: list[fb.Tensor]) -> fb.Tensor:
        value, grads = fb.value_and_grad(lambda m: fb.sum(m(batch[0]) ** 2))(model)
        optimizer.update(model, grads)
        return value

    losses = [float(train(model, optimizer, [fb.ones((2, 3))])) for _ in range(4)]
    assert train.traces == 1
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 4
