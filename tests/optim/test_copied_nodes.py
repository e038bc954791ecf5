"""Updates of parameters of one kind are traced once and copied: the graph is the one that tracing each parameter makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from combinations import pairs_of

import firebrick as fb
from firebrick import nn, optim
from firebrick.graph.repeated import Repeats

SHAPES = [(4, 3), (3,), (), (4, 3), (3,), (), (4, 3), (3,), (), (4, 3)]
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {}),
    "SGD with momentum": ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "Adam": ("Adam", {}),
    "Adam with amsgrad": ("Adam", {"weight_decay": 0.01, "amsgrad": True}),
    "AdamW in groups": (
        "AdamW",
        {"groups": [{"params": ["p0", "p2"], "weight_decay": 0.0}, {"params": "p3", "lr_scale": 0.5}]},
    ),
    "Adamax": ("Adamax", {}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {"decoupled": True}),
    "RMSprop": ("RMSprop", {"centered": True, "momentum": 0.9}),
    "Adagrad": ("Adagrad", {}),
    "Adadelta": ("Adadelta", {}),
    "LAMB": ("LAMB", {}),
    "Lion": ("Lion", {}),
    "Muon": ("Muon", {}),
}


class Bag(nn.Module):
    """Parameters of few shapes."""

    def __init__(self, dtypes: Sequence[str]) -> None:
        rng = np.random.default_rng(0)
        for i, shape in enumerate(SHAPES):
            setattr(self, f"p{i}", nn.Parameter(fb.asarray(rng.normal(size=shape), dtype=dtypes[i % len(dtypes)])))


def update(name: str, dtypes: Sequence[str], scaled: bool) -> tuple[str, list[Any]]:
    """The text of the graph of two updates, and the parameters after them."""
    bag = Bag(dtypes)
    kind, settings = OPTIMIZERS[name]
    optimizer = getattr(optim, kind)(bag, lr=0.01, **settings)

    def loss(bag: Bag) -> fb.Tensor:
        return sum((fb.sum(fb.astype(p, fb.float32) ** 2.0) for p in bag.parameters()), fb.zeros(()))

    @fb.jit
    def step(bag: Bag, optimizer: optim.Optimizer, fits: fb.Tensor) -> None:
        for _ in range(2):
            grads = fb.grad(loss)(bag)
            if scaled:
                grads.valid = fits
            optimizer.update(bag, grads)

    fits = fb.asarray(True)
    step(bag, optimizer, fits)
    return str(step.graph(bag, optimizer, fits)), [p.tolist() for p in bag.parameters()]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Repeats]:
    """All that is made of ``Repeats`` meanwhile."""
    made: list[Repeats] = []
    begin = Repeats.__init__

    def noted(self: Repeats) -> None:
        begin(self)
        made.append(self)

    monkeypatch.setattr(Repeats, "__init__", noted)
    return made


@pytest.mark.parametrize(
    ("name", "dtypes", "scaled"), pairs_of(OPTIMIZERS, [("float32",), ("bfloat16", "float32")], [False, True])
)
def test_copied_nodes_are_those_of_tracing_each_parameter(
    name: str, dtypes: Sequence[str], scaled: bool, monkeypatch: pytest.MonkeyPatch, counted: list[Repeats]
) -> None:
    graph, values = update(name, dtypes, scaled)
    assert 0 < sum(r.traced for r in counted) < 2 * len(SHAPES)
    monkeypatch.setattr(Repeats, "__call__", lambda self, key, compute, operands: compute(*operands))
    assert update(name, dtypes, scaled) == (graph, values)


def test_an_update_is_traced_once_for_each_shape_of_parameters(counted: list[Repeats]) -> None:
    update("Adam", ("float32",), scaled=False)
    assert [r.traced for r in counted] == [3, 3]


def test_an_optimizer_of_a_user_is_traced_for_each_parameter(counted: list[Repeats]) -> None:
    class Mine(optim.SGD):
        """Has a rate of its own for one of the parameters, which looks like others."""

        special: Any = None

        def new_values(self, p: Any, g: Any, moments: Any, scalars: Any, settings: Any) -> Any:
            special = p.storage is self.special.storage
            return super().new_values(p, g * 10.0 if special else g, moments, scalars, settings)

    bag = Bag(("float32",))
    optimizer = Mine(bag, 0.5)
    optimizer.special = bag.p3

    @fb.jit
    def step(bag: Bag, optimizer: Mine) -> None:
        optimizer.update(bag, fb.grad(lambda m: sum((fb.sum(p) for p in m.parameters()), fb.zeros(())))(bag))

    before = [p.numpy() for p in bag.parameters()]
    step(bag, optimizer)
    for i, (p, was) in enumerate(zip(bag.parameters(), before, strict=True)):
        np.testing.assert_array_equal(p.numpy(), was - np.float32(5.0 if i == 3 else 0.5))
    assert counted == []


def test_random_numbers_are_never_copied(counted: list[Repeats]) -> None:
    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        draws = Repeats()
        with fb.no_grad():
            return fb.stack([draws("key", lambda x: [x + fb.random.normal(x.shape)], [x])[0] for _ in range(3)])

    fb.random.seed(0)
    found = f(fb.zeros(2)).numpy()
    assert [r.traced for r in counted] == [3]
    assert len({row.tobytes() for row in found}) == 3


def test_operands_that_are_one_value_are_a_kind_of_their_own(counted: list[Repeats]) -> None:
    @fb.jit
    def f(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, ...]:
        found = Repeats()
        with fb.no_grad():
            return tuple(found("key", lambda a, b: [a - 2.0 * b], pair)[0] for pair in [(x, x), (x, y), (y, x), (y, y)])

    assert [t.tolist() for t in f(fb.asarray([1.0]), fb.asarray([3.0]))] == [[-1.0], [-5.0], [1.0], [-3.0]]
    assert [r.traced for r in counted] == [2]


def test_a_computation_that_returns_an_operand_or_a_constant_is_copied_too(counted: list[Repeats]) -> None:
    @fb.jit
    def f(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, ...]:
        found = Repeats()
        with fb.no_grad():
            return tuple(t for operand in (x, y) for t in found("key", lambda a: [a, fb.asarray(7.0), a * a], [operand]))

    assert [t.tolist() for t in f(fb.asarray(2.0), fb.asarray(3.0))] == [2.0, 7.0, 4.0, 3.0, 7.0, 9.0]
    assert [r.traced for r in counted] == [1]


def test_large_constants_are_copied_as_often_as_they_would_be_traced(counted: list[Repeats]) -> None:
    large = np.arange(2000.0, dtype=np.float32)

    @fb.jit
    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        found = Repeats()
        with fb.no_grad():
            return sum((found("key", lambda a: [a * fb.asarray(large)], [operand])[0] for operand in (x, y)), fb.zeros(()))

    np.testing.assert_array_equal(f(fb.asarray(2.0), fb.asarray(3.0)).numpy(), large * 5.0)
    assert [r.traced for r in counted] == [1]


def test_a_computation_that_is_recorded_for_gradients_is_not_copied(counted: list[Repeats]) -> None:
    @fb.jit
    def f(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        found = Repeats()
        return fb.grad(lambda xs: fb.sum(sum(found("key", lambda a: [a * a], [x])[0] for x in xs)))((x, y))

    assert [t.tolist() for t in f(fb.asarray([1.0]), fb.asarray([3.0]))] == [[2.0], [6.0]]
    assert [r.traced for r in counted] == [0]


def test_eager_calls_are_not_copied() -> None:
    found = Repeats()
    assert [found("key", lambda a: [a * a], [fb.asarray(v)])[0].tolist() for v in (2.0, 3.0)] == [4.0, 9.0]
    assert found.traced == 0
