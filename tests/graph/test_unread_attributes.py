"""What no code reached by a compiled function reads makes no new graph: counters, histories, logs of the objects around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.graph.uses import passes_first, uses_of
from firebrick.graph.walk import Walk
from firebrick.testing import assert_max_traces

CALLS = 4


def ones() -> fb.Tensor:
    return fb.ones((1, 2))


class Run:
    """An object as programs have it around a model, with methods that read what changes."""

    def __init__(self) -> None:
        self.model = nn.Linear(2, 2)
        self.optimizer = optim.SGD(self.model, lr=0.1)
        self.gradients = fb.value_and_grad(self.loss)
        self.done, self.scale, self.history, self.best = 0, 2.0, [], None
        self.started = time.perf_counter()
        self.parts = {"a": 1}
        self.pending = iter([1])

    def count(self) -> None:
        self.done += 1
        self.history.append(self.done)

    def advance(self) -> None:
        self.count()
        self.parts[str(self.done)] = self.done
        self.best = (self.done, time.perf_counter() - self.started)

    def __len__(self) -> int:
        return self.done

    def __repr__(self) -> str:
        return f"{self.done} {self.history} {self.parts} {self.best}"

    def __iter__(self) -> Iterator[Any]:
        return iter(self.history)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.done == other.done

    __hash__ = None  # type: ignore[assignment]

    @property
    def mean(self) -> float:
        return sum(self.history) / self.done

    def report(self) -> Any:
        return self, [self], f"{self}", next(self.pending)

    def loss(self, model: Any, x: fb.Tensor) -> fb.Tensor:
        return fb.sum(model(x)) * self.scale

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.model(x) * self.scale

    def update(self, x: fb.Tensor) -> fb.Tensor:
        loss, gradients = self.gradients(self.model, x)
        self.optimizer.update(self.model, gradients)
        return loss

    @fb.jit
    def step(self, x: fb.Tensor) -> fb.Tensor:
        return self.update(x)

    def __call__(self, x: fb.Tensor) -> fb.Tensor:
        self.advance()
        return self.step(x)


class Above(Run):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return super().forward(x)

    def advance(self) -> None:
        super().advance()


@dataclass
class Fields:
    model: Any = field(default_factory=lambda: nn.Linear(2, 2))
    done: int = 0
    history: list[int] = field(default_factory=list)

    def advance(self) -> None:
        self.done += 1
        self.history.append(self.done)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.model(x)


class Slotted:
    __slots__ = ("done", "model")

    def __init__(self) -> None:
        self.model, self.done = nn.Linear(2, 2), 0

    def advance(self) -> None:
        self.done += 1

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.model(x)


class Outer:
    """An object whose attribute is such an object, which it tests for None and of which it calls methods."""

    def __init__(self) -> None:
        self.inner, self.nothing, self.done = Run(), None, 0

    def advance(self) -> None:
        self.inner.advance()
        self.done += 1

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        if self.nothing is not None:
            return x
        return self.inner.forward(x) if self.inner is not None else self.inner.model(x)


RUN = Run()
Pair = tuple[Callable[[fb.Tensor], Any], Any]
PROGRAMS: dict[str, Callable[[Any], Callable[[fb.Tensor], Any]]] = {
    "an attribute": lambda run: lambda x: run.model(x),
    "a method": lambda run: lambda x: run.forward(x),
    "a bound method": lambda run: run.forward,
    "code inside": lambda run: lambda x: (lambda y: sum(run.forward(z) for z in (y,)))(x),
    "a default": lambda run: lambda x, run=run: run.forward(x),
    "a default by name": lambda run: lambda x, *, run=run: run.forward(x),
    "the name of the class": lambda run: lambda x: run.forward(x) * len(run.__class__.__name__),
    "another function": lambda run: (lambda f: lambda x: f(x) * 2.0)(lambda x: run.forward(x)),
}


@pytest.mark.parametrize("kind", [Run, Above, Fields, Slotted, Outer])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_counter_that_the_function_does_not_read_makes_no_new_graph(name: str, kind: type) -> None:
    if name == "an attribute" and kind is Outer:
        pytest.skip("it has no model")
    run = kind()
    f = PROGRAMS[name](run)
    compiled = fb.jit(f)
    with assert_max_traces(1, compiled):
        for _ in range(CALLS):
            assert compiled(ones()).tolist() == f(ones()).tolist()
            run.advance()


def test_a_counter_of_a_global_or_of_an_argument_makes_no_new_graph() -> None:
    compiled = fb.jit(lambda x: RUN.forward(x))
    given = fb.jit(lambda run, x: run.forward(x))
    run = Run()
    with assert_max_traces(1, compiled), assert_max_traces(1, given):
        for _ in range(CALLS):
            compiled(ones())
            given(run, ones())
            RUN.advance()
            run.advance()


@pytest.mark.parametrize("kind", [Run, Above])
def test_a_trainer_that_counts_its_steps_traces_its_step_once(kind: Any) -> None:
    eager, compiled = kind(), kind()
    compiled.model.weight, compiled.model.bias = eager.model.weight.detach(), eager.model.bias.detach()
    own = fb.jit(compiled.update)
    before = Run.step.traces
    for i in range(2 * CALLS):
        with fb.disable_jit():
            want = eager(ones()).item()
        found = compiled(ones()).item() if i % 2 else own(ones()).item()
        assert found == pytest.approx(want, rel=1e-5)
        compiled.history.append(i)
    assert (Run.step.traces - before, own.traces) == (1, 1)


def test_a_loop_of_epochs_with_callbacks_and_logs_traces_its_step_once() -> None:
    class Meter:
        def __init__(self) -> None:
            self.total, self.count = 0.0, 0

        def add(self, v: float) -> None:
            self.total += v
            self.count += 1

    class Loop:
        def __init__(self) -> None:
            self.model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
            self.optimizer = optim.Adam(self.model, lr=1e-2)
            self.meter, self.epoch, self.log, self.callbacks = Meter(), 0, [], [self.record]
            self._step = fb.jit(self._update)

        def record(self, v: float) -> None:
            self.log.append((self.epoch, v))

        def _loss(self, model: Any, x: fb.Tensor) -> fb.Tensor:
            return fb.mean(model(x) ** 2.0)

        def _update(self, x: fb.Tensor) -> fb.Tensor:
            loss, gradients = fb.value_and_grad(self._loss)(self.model, x)
            self.optimizer.update(self.model, gradients)
            return loss

        def fit(self, epochs: int) -> None:
            for self.epoch in range(epochs):
                loss = self._step(ones()).item()
                self.meter.add(loss)
                for callback in self.callbacks:
                    callback(loss)
                print(f"{self.epoch}: {self.meter.total / self.meter.count} {self!r}")

    loop = Loop()
    loop.fit(6)
    assert loop._step.traces == 1
    assert loop.log[-1][1] < loop.log[0][1]


def test_a_callable_object_that_is_compiled_may_count_elsewhere() -> None:
    class Scaled:
        def __init__(self) -> None:
            self.scale, self.done = 2.0, 0

        def __call__(self, x: fb.Tensor) -> fb.Tensor:
            return x * self.scale

        def advance(self) -> None:
            self.done += 1

    held, holder = Scaled(), Run()
    holder.best = held
    compiled, inner = fb.jit(held), fb.jit(lambda x: holder.best(x))
    for _ in range(CALLS):
        assert compiled(ones()).tolist() == inner(ones()).tolist() == [[2.0, 2.0]]
        held.advance()
    assert (compiled.traces, inner.traces) == (1, 1)
    held.scale = 3.0
    assert compiled(ones()).tolist() == inner(ones()).tolist() == [[3.0, 3.0]]


def test_a_method_that_is_not_reached_may_be_replaced_and_may_capture_anything() -> None:
    class Mine(Run):
        def report(self) -> Any:
            return pending, self.done

    pending = iter([1])
    run = Mine()
    compiled = fb.jit(lambda x: run.forward(x))
    compiled(ones())
    Mine.report = lambda self: 3  # type: ignore[method-assign]
    compiled(ones())
    Mine.forward = lambda self, x: x  # type: ignore[method-assign]
    assert compiled(ones()).tolist() == ones().tolist()
    assert compiled.traces == 2


def test_a_change_of_what_is_read_is_a_new_graph_that_is_explained() -> None:
    run = Run()
    compiled = fb.jit(lambda x: run.forward(x))
    compiled(ones())
    run.advance()
    run.scale = 3.0
    assert compiled(ones()).tolist() == run.forward(ones()).tolist()
    assert [r.reason for r in fb.explain_recompiles(compiled)] == ["first call", "run.scale: float 2.0 → float 3.0"]


def test_a_function_that_counts_while_it_is_traced_raises_and_leaves_the_count() -> None:
    run = Run()

    def counting(x: fb.Tensor) -> fb.Tensor:
        run.count()
        return run.forward(x)

    with pytest.raises(fb.StateChangedError, match=r"run\.done"):
        fb.jit(counting)(ones())
    assert (run.done, run.history) == (0, [])


def test_a_walk_keeps_no_argument_alive_that_it_was_spared() -> None:
    walk = Walk([("f", lambda run, x: run.forward(x)), ("run", Run())])
    walk.let_go(lambda _: None)
    assert not [held for held in (walk.whole, walk.invoked, walk.by_names) if held]
    assert not isinstance(walk.spared, Run)


# how code uses what it loads


def codes(source: str) -> CodeType:
    space: dict[str, Any] = {}
    exec(f"def f(self, v):\n    {source}", space)
    return space["f"].__code__


ATTRIBUTES_ONLY = (
    "return v.a", "return v.a(1)", "v.a = 1", "del v.a", "v.a += 1", "v.a.b += self.c", "return lambda: v.a",
    "return [v.a for _ in self.b]", "return v is None", "return 1 if v is None else 2", "return (v.a, v.b(v.c))",
    "v.a[0] = v.b", "return v.__class__.__name__", "v", "return (lambda w: w)(v.a)", "x = v.a; return x",
)  # fmt: skip
WHOLE = (
    "return v", "return g(v)", "w = v", "return v()", "return v[0]", "return v + 1", "return -v", "return [v]", "return {1: v}",
    "v += 1", "return f'{v}'", "return v == 1", "return 1 in v", "for _ in v: pass", "return not v", "return v or 1",
    "return 1 if v else 2", "return lambda: v", "return (w := v).a", "with v: pass", "return g(*v)", "return g(**v)", "raise v",
    "self.a = v", "return lambda w=v: 1", "return v is self", "yield v", "yield from v", "return g(v if self.a else 1)",
    "return [w for w in v]", "return [v for _ in self.a]", "assert v", "return v < 1 < 2", "del v[0]", "v[0] = 1",
    "self.a[v] = 1",
    "match v:\n        case 1: pass", "import os as v; return v", "class A(v): pass", "class A:\n        b = v",
    "try: pass\n    except v: pass",
)  # fmt: skip


@pytest.mark.parametrize("source", ATTRIBUTES_ONLY)
def test_code_that_reads_and_sets_attributes_does_not_have_the_object_whole(source: str) -> None:
    assert not {"v", "self"} & uses_of(codes(source)).variables


@pytest.mark.parametrize("source", WHOLE)
def test_code_that_does_anything_else_with_an_object_has_it_whole(source: str) -> None:
    assert "v" in uses_of(codes(source)).variables


@pytest.mark.parametrize("source", ["return self.v", "return g(self.v)", "self.w = self.v", "x = self.v", "return self.v[0]"])
def test_an_attribute_that_is_taken_is_had_whole(source: str) -> None:
    assert "v" in uses_of(codes(source)).attributes


def test_an_attribute_of_which_attributes_are_read_is_not_had_whole() -> None:
    uses = uses_of(codes("self.v.a; self.v.a = self.b; self.v.c(2); self.v(1)"))
    assert uses.attributes == {"b"}
    assert uses.called == {"c", "v"}


@pytest.mark.parametrize(
    ("source", "passed"),
    [
        ("return super().a", False), ("return super().a(1)", False), ("return super()", True), ("return g(super())", True),
        ("return self.a", False), ("return self", True), ("return __class__", False),
    ],
)  # fmt: skip
def test_a_method_passes_on_its_object(source: str, passed: bool) -> None:
    space: dict[str, Any] = {}
    exec(f"class A:\n    def f(self):\n        {source}", space)
    assert passes_first(space["A"].f.__code__) is passed
    assert passes_first((lambda *args: 1).__code__)
    assert not passes_first((lambda: 1).__code__)


def test_code_that_names_what_shows_any_object_has_all_whole() -> None:
    for source in ("return self.a.__self__", "return globals()", "return self.__class__()", "return lambda: locals()"):
        assert uses_of(codes(source)).reveals
    assert not uses_of(codes("return self.__class__.a")).reveals
    assert not uses_of(codes("return self.a.b")).reveals
