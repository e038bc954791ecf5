"""``tell``: functions that hear of values in the middle of a run, and the stages that a graph is cut into for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.graph import tell
from firebrick.graph.staged import stages
from firebrick.ir import Graph
from firebrick.ir.graph import interpret
from firebrick.ops import OPS
from firebrick.testing import engines

pytestmark = pytest.mark.usefixtures("nothing_left")
DEVICES = [d for d in ("numpy", "cpu", "torch:cpu") if d.partition(":")[0] not in engines().missing]


class Ear:
    """Keeps copies of what it is told."""

    unwatched = frozenset({"heard"})

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.heard: list[Any] = []

    def hear(self, *args: Any) -> None:
        assert not any(isinstance(v, fb.Tensor) and v.tracked for v in args)
        self.heard.append(fb.tree_map(lambda v: v.numpy().copy() if isinstance(v, fb.Tensor) else v, args))


EAR = Ear()
HEARD = EAR.heard


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    HEARD.clear()
    yield
    HEARD.clear()


def refuse(y: fb.Tensor) -> None:
    raise KeyError(y.tolist()[0])


class Keeper:
    """Keeps the tensors that it is told."""

    unwatched = frozenset({"kept"})

    def __init__(self) -> None:
        self.kept: list[fb.Tensor] = []

    def keep(self, x: fb.Tensor) -> None:
        self.kept.append(x)


class Layers:
    """What tells in the middle of a chain of products."""

    unwatched = frozenset({"seen"})

    def __init__(self, device: str, count: int = 4) -> None:
        rng = np.random.default_rng(3)
        self.weights = [fb.asarray(rng.normal(size=(8, 8)), dtype="float32", device=device) for _ in range(count)]
        self.seen: list[tuple[int, np.ndarray]] = []

    def hear(self, k: int, found: dict[str, fb.Tensor]) -> None:
        self.seen += [(k, t.numpy().copy()) for t in found.values()]

    def plain(self, x: fb.Tensor, told: bool = False) -> fb.Tensor:
        for k, w in enumerate(self.weights):
            x = fb.tanh(x @ w.mT + fb.asarray(np.arange(8.0), dtype="float32", device=x.device))
            if told:
                tell(self.hear, k, {"x": x})
        return fb.sum(x, axis=0)

    def telling(self, x: fb.Tensor) -> fb.Tensor:
        return self.plain(x, True)


def same(device: str, a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, or for kernels that are fused otherwise in stages, within float32's precision."""
    return bool(np.allclose(a, b, rtol=1e-5, atol=1e-6)) if device == "cpu" else a.tobytes() == b.tobytes()


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_told_and_what_is_returned_are_those_of_a_run_that_tells_nothing(device: str) -> None:
    layers = Layers(device)
    x = fb.asarray(np.random.default_rng(1).normal(size=(5, 8)), dtype="float32", device=device)
    expected = fb.jit(layers.plain)(x)
    layers.telling(x)
    eager, layers.seen = layers.seen, []
    f = fb.jit(layers.telling)
    for _ in range(2):
        assert same(device, f(x).numpy(), expected.numpy())
        assert [k for k, _ in layers.seen] == [0, 1, 2, 3]
        assert all(same(device, a, b) for (_, a), (_, b) in zip(layers.seen, eager, strict=True))
        layers.seen.clear()
    assert f.traces == 1
    said = f.explain(x)
    assert "stage 1 of 5" in said
    assert "stage 5 of 5" in said


def test_what_comes_after_a_call_has_not_run_yet() -> None:
    """A function that is told raises: the rest of the run, and what it changes, does not happen."""
    state = fb.nn.Buffer(fb.zeros(3))

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        y = x + 1.0
        tell(refuse, y)
        state[...] = y
        return fb.log(y)

    with pytest.raises(KeyError, match=r"2\.0"):
        f(fb.ones(3))
    assert state.tolist() == [0.0, 0.0, 0.0]


def test_the_object_that_hears_is_that_of_the_call() -> None:
    @fb.jit
    def f(ear: Ear, x: fb.Tensor) -> fb.Tensor:
        y = x * 2.0
        tell(ear.hear, y)
        return y

    a, b = Ear("a"), Ear("a")
    f(a, fb.asarray(1.0))
    f(b, fb.asarray(3.0))
    assert f.traces == 1
    assert [float(ear.heard[0][0]) for ear in (a, b)] == [2.0, 6.0]


class Holder:
    def __init__(self, ear: Ear) -> None:
        self.ear = ear

    def __call__(self, x: fb.Tensor) -> fb.Tensor:
        y = x * 2.0
        tell(self.ear.hear, y)
        return y


def test_an_object_that_is_replaced_between_two_calls_hears_no_more() -> None:
    one, other = Ear("a"), Ear("a")
    holder = Holder(one)
    f = fb.jit(holder)
    f(fb.asarray(1.0))
    f(fb.asarray(2.0))
    holder.ear = other
    f(fb.asarray(3.0))
    assert f.traces == 1
    assert [float(a[0]) for a in one.heard] == [2.0, 4.0]
    assert [float(a[0]) for a in other.heard] == [6.0]


@pytest.mark.parametrize("device", DEVICES)
def test_what_turns_out_to_be_an_input_is_told_as_a_value_of_its_own(device: str) -> None:
    @fb.jit
    def f(x: fb.Tensor) -> tuple[fb.Tensor, ...]:
        same = fb.astype(x * 1.0, x.dtype).mT.mT
        tell(EAR.hear, same)
        return same, x + 1.0

    x = fb.ones((2, 3), device=device)
    for n in (1.0, 3.0):
        x[...] = n
        same, more = f(x)
        x += 1.0
        assert same.tolist() == [[n] * 3] * 2
        assert more.tolist() == [[n + 1.0] * 3] * 2
        assert HEARD[-1][0].tolist() == [[n] * 3] * 2


def test_inputs_constants_and_changed_state_are_told_as_they_are_then() -> None:
    state = fb.nn.Buffer(fb.zeros(2))

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        tell(EAR.hear, "before", x, state, 3)
        state.__iadd__(x)
        tell(EAR.hear, "after", state)
        state.__iadd__(x)
        tell(EAR.hear, fb.ones(2))
        return x

    for n in (0.0, 2.0):
        HEARD.clear()
        f(fb.ones(2))
        assert HEARD[0][0] == "before"
        assert HEARD[0][1].tolist() == [1.0, 1.0]
        assert HEARD[0][2].tolist() == [n, n]
        assert HEARD[0][3] == 3
        assert HEARD[1][1].tolist() == [n + 1.0, n + 1.0]
        assert HEARD[2][0].tolist() == [1.0, 1.0]
    assert state.tolist() == [4.0, 4.0]


def test_a_graph_without_operations_tells_too() -> None:
    f = fb.jit(lambda x: tell(EAR.hear, x))
    f(fb.ones(2))
    f(fb.zeros(2))
    assert [args[0].tolist() for args in HEARD] == [[1.0, 1.0], [0.0, 0.0]]


def test_what_is_kept_of_a_call_stays_as_it_was() -> None:
    keeper, state = Keeper(), fb.nn.Buffer(fb.ones(64))

    @fb.jit
    def f() -> None:
        tell(keeper.keep, state)
        state.__imul__(2.0)
        tell(keeper.keep, state)
        state.__imul__(2.0)

    f()
    f()
    assert [t[0].item() for t in keeper.kept] == [1.0, 2.0, 4.0, 8.0]
    assert state[0].item() == 16.0


def test_nothing_is_told_that_depends_on_a_label_out_of_range() -> None:
    @fb.jit
    def f(logits: fb.Tensor, labels: fb.Tensor) -> fb.Tensor:
        loss = fb.cross_entropy(logits, labels)
        tell(EAR.hear, loss)
        return loss * 2.0

    logits = fb.zeros((2, 3))
    f(logits, fb.asarray([0, 2]))
    assert len(HEARD) == 1
    with pytest.raises(fb.FirebrickError, match="label"):
        f(logits, fb.asarray([0, 3]))
    assert len(HEARD) == 1


def test_nothing_is_told_that_depends_on_a_value_out_of_range_which_every_operation_takes() -> None:
    @fb.jit
    def f(probability: fb.Tensor, target: fb.Tensor) -> fb.Tensor:
        loss = fb.binary_cross_entropy(probability, target)
        tell(EAR.hear, loss)
        return loss * 2.0

    target = fb.zeros(2)
    f(fb.asarray([0.25, 0.5]), target)
    assert len(HEARD) == 1
    with pytest.raises(fb.OutOfRangeError, match="the values of probability"):
        f(fb.asarray([0.25, 1.5]), target)
    assert len(HEARD) == 1


def test_compiled_functions_within_tell_through_the_outer_one() -> None:
    @fb.jit
    def inner(x: fb.Tensor) -> fb.Tensor:
        y = x + 1.0
        tell(EAR.hear, y)
        return y

    f = fb.jit(lambda x: inner(inner(x)) * 2.0)
    for _ in range(2):
        HEARD.clear()
        assert f(fb.asarray(1.0)).item() == 6.0
        assert [float(args[0]) for args in HEARD] == [2.0, 3.0]


def test_gradients_are_told_under_jit_and_what_is_told_is_untracked() -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        def loss(x: fb.Tensor) -> fb.Tensor:
            y = x * x
            tell(EAR.hear, y)
            return fb.sum(y)

        g = fb.grad(loss)(x)
        tell(EAR.hear, g)
        return g

    for run in (f, fb.jit(f)):
        HEARD.clear()
        assert run(fb.ones(2)).tolist() == [2.0, 2.0]
        assert [a.tolist() for (a,) in HEARD] == [[1.0, 1.0], [2.0, 2.0]]


def test_a_call_on_tracked_tensors_is_refused() -> None:
    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        tell(EAR.hear, x)
        return x * x

    with pytest.raises(fb.TraceError, match="tracked tensors"):
        fb.grad(f)(fb.asarray(1.0))
    assert f(fb.asarray(3.0)).item() == 9.0


def test_a_branch_tells_nothing() -> None:
    def yes(x: fb.Tensor) -> fb.Tensor:
        tell(EAR.hear, x)
        return x

    with pytest.raises(fb.UnsupportedError, match=r"fb\.cond"):
        fb.jit(lambda x: fb.cond(x > 0.0, yes, lambda x: -x, x))(fb.asarray(1.0))


def test_a_function_that_would_be_that_of_the_first_call_is_refused() -> None:
    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        found: list[Any] = []
        tell(lambda y: found.append(y), x)
        return x

    with pytest.raises(fb.TraceError, match="to a callback that it can find again"):
        f(fb.ones(2))


def test_random_numbers_go_on_from_run_to_run() -> None:
    def f(g: fb.random.Generator) -> fb.Tensor:
        a = g.uniform((3,))
        tell(EAR.hear, a)
        return a + g.uniform((3,))

    one, other = fb.random.Generator(4), fb.random.Generator(4)
    compiled = fb.jit(f)
    for _ in range(3):
        assert f(one).tolist() == compiled(other).tolist()
    assert [a[0].tolist() for a in HEARD[::2]] == [a[0].tolist() for a in HEARD[1::2]]


# the cut


def random_graph(rng: np.random.Generator, nodes: int) -> Graph:
    """A chain of operations with views and constants between them, and outputs from all over."""
    g = Graph([Aval((4, 4), fb.float32), Aval((4, 4), fb.float32)])
    values = [0, 1, g.constant(rng.normal(size=(4, 4)).astype(np.float32))]
    for _ in range(nodes):
        kind = rng.integers(4)
        a, b = (int(rng.choice(values)) for _ in range(2))
        if kind == 0:
            values += g.add(OPS["permute"], a, axes=(1, 0))
        elif kind == 1:
            values += g.add(OPS["tanh"], a)
        elif kind == 2:
            values.append(g.constant(rng.normal(size=(4, 4)).astype(np.float32)))
        else:
            values += g.add(OPS["add"], a, b)
    made = [v for v in values if v > 1]
    g.outputs = tuple(int(v) for v in rng.choice(made, size=min(4, len(made)), replace=False))
    return g


@pytest.mark.parametrize("seed", range(40))
def test_stages_together_give_what_the_whole_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 20)
    count = len(graph.nodes)
    ends = sorted({*rng.choice(count, size=3) + 1, count})
    given = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(2)]

    def execute(op: Any, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return op.reference(*inputs, **params)

    expected = interpret(graph, given, execute)
    values: dict[int, Any] = dict(enumerate(given))
    parts = stages(graph, ends)
    assert sum(1 for s in parts for n in s.graph.nodes if n.op.name == "add") == sum(n.op.name == "add" for n in graph.nodes)
    for stage in parts:
        made = interpret(stage.graph, [values[v] for v in stage.inputs], execute)
        values.update(zip(stage.outputs, made, strict=True))
        for v in stage.over:
            del values[v]
    assert all(np.array_equal(values[v], e) for v, e in zip(graph.outputs, expected, strict=True))
    held = set(values) - set(graph.outputs)
    assert held <= {0, 1}
