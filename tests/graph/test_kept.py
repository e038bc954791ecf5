"""What compiled functions keep in memory: the graphs that they promise to keep, and nothing of those that went."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet, ref

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler import Executable, cache
from firebrick.compiler.targets.llvm import host
from firebrick.compiler.targets.llvm.loaded import loaded
from firebrick.graph import Jit, entries
from firebrick.graph.trace import Trace

KEPT = 6
ALIVE: WeakSet[Executable] = WeakSet()


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[None]:
    """Few graphs are kept, and nothing waits for the garbage collector."""
    monkeypatch.setattr(entries, "KEPT", KEPT)
    monkeypatch.setitem(Jit.__call__.__globals__, "WARNED", 1000)
    fb.jit(lambda x: x + 1)(fb.ones(2, device=device))
    made = Executable.__init__

    def counted(self: Executable, *args: Any, **kwargs: Any) -> None:
        ALIVE.add(self)
        made(self, *args, **kwargs)

    monkeypatch.setattr(Executable, "__init__", counted)
    gc.collect()
    gc.disable()
    with fb.config.scope(device=device):
        yield
    gc.enable()


def programs() -> int:
    """Programs that were made in these tests and live."""
    return len(ALIVE)


def curve(x: fb.Tensor) -> fb.Tensor:
    return fb.sum(fb.tanh(x * 2.0 + 1.0) * fb.exp(-x))


def trained() -> Callable[[fb.Tensor], fb.Tensor]:
    model = fb.nn.Sequential(fb.nn.Linear(8, 8), fb.nn.ReLU(), fb.nn.Linear(8, 1))
    optimizer = fb.optim.Adam(model, lr=0.01)

    def step(x: fb.Tensor) -> fb.Tensor:
        value, gradients = fb.value_and_grad(lambda m, x: fb.mean(m(x) ** 2.0))(model, x)
        optimizer.update(model, gradients)
        return value

    return fb.jit(step)


def derived(x: fb.Tensor) -> fb.Tensor:
    value, _ = fb.value_and_grad(fb.jit(curve))(x)
    return value


KINDS: dict[str, Callable[[], Callable[[fb.Tensor], Any]]] = {
    "a function": lambda: fb.jit(curve),
    "a training step": trained,
    "a gradient": lambda: derived,
    "a loop": lambda: fb.jit(lambda x: fb.while_loop(lambda v: fb.sum(v) < 1e4, lambda v: fb.exp(v * 0.1) + v * 2.0, x)),
    "a branch": lambda: fb.jit(lambda x: fb.cond(fb.sum(x) > 0.0, curve, lambda x: fb.sum(fb.exp(x)), x)),
    "a scan": lambda: fb.jit(lambda x: fb.scan(lambda c, v: (fb.tanh(c * v + 1.0), c), x[0], x)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_that_is_dropped_leaves_no_program_and_no_code(kind: str) -> None:
    before = programs(), loaded().modules
    for rows in range(3):
        f = KINDS[kind]()
        f(fb.ones((96 + rows, 8)))
        del f
        assert (programs(), loaded().modules) == before


def test_graphs_that_are_evicted_leave_no_program_and_no_code(device: str) -> None:
    before, code = programs(), loaded()
    f = fb.jit(curve)
    for n in range(5 * KEPT):
        f(fb.ones(600 + n))
    assert programs() - before == KEPT
    now = loaded()
    assert now.modules - code.modules == (KEPT if device == "cpu" else 0)
    assert now.linkers - code.linkers <= 2
    del f
    assert programs() == before
    assert (loaded().modules, loaded().nbytes) == (code.modules, code.nbytes)


def test_a_program_that_fails_does_not_outlive_its_function() -> None:
    before = programs(), loaded().modules
    f = fb.jit(lambda x, i: fb.sum(fb.take(fb.tanh(x) * x, i)))
    for _ in range(2):
        with pytest.raises(IndexError):
            f(fb.ones(800), fb.asarray([900]))
    del f
    assert (programs(), loaded().modules) == before


def test_a_trace_that_fails_leaves_nothing() -> None:
    before = programs(), loaded().modules
    model = fb.nn.Linear(8, 1)
    f = fb.jit(lambda x: float(fb.sum(model(x))))
    for _ in range(2):
        with pytest.raises(fb.DataDependentError):
            f(fb.ones((4, 8)))
    del f
    assert (programs(), loaded().modules) == before


def test_what_is_verified_or_profiled_is_not_kept() -> None:
    before = programs(), loaded().modules
    f = fb.jit(curve)
    with fb.verify():
        f(fb.ones(600))
    with fb.profile():
        f(fb.ones(600))
    assert f.explain(fb.ones(600))
    assert fb.explain_recompiles(f)
    del f
    assert (programs(), loaded().modules) == before


def test_a_class_of_modules_and_what_its_methods_hold_go_with_their_last_user() -> None:
    def used() -> tuple[ref[Any], ref[Any]]:
        held = fb.ones((4, 4))

        class Shifted(fb.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = fb.nn.Linear(4, 4)

            def __call__(self, x: fb.Tensor) -> fb.Tensor:
                return self.linear(x) + held

        model = Shifted()
        fb.jit(lambda x: model(x))(fb.ones((4, 4)))
        return ref(Shifted), ref(held)

    kind, tensor = used()
    gc.collect()  # a class refers to itself
    assert kind() is None
    assert tensor() is None


def test_a_program_that_something_keeps_is_seen(device: str) -> None:
    """The counts of these tests can fail."""
    before = programs(), loaded().modules
    f = fb.jit(curve)
    f(fb.ones(600))
    kept = f._entries.graphs.copy()
    del f
    assert programs() == before[0] + 1
    assert loaded().modules == before[1] + (device == "cpu")
    kept.clear()
    assert (programs(), loaded().modules) == before


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_an_evicted_graph_comes_back_from_the_cache_of_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "store", cache.ObjectStore())
    with fb.config.scope(cache_dir=str(tmp_path)):
        f = fb.jit(curve)
        want = f(fb.ones(600)).item()
        for n in range(1, KEPT + 1):
            f(fb.ones(600 + n))
        monkeypatch.setattr(host, "_emitted", None)
        assert f(fb.ones(600)).item() == want
        assert f.traces == KEPT + 2
        with pytest.raises(TypeError):  # and what was never compiled is not there
            f(fb.ones(700))


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_memory_stats_tell_the_bytes_of_code() -> None:
    before = fb.memory_stats("cpu")["code"]
    f = fb.jit(curve)
    f(fb.ones(600))
    assert fb.memory_stats("cpu")["code"] > before
    del f
    assert fb.memory_stats("cpu")["code"] == before


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_heavy_eager_operations_keep_a_bounded_number_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.backends.cpu import eager

    monkeypatch.setattr(eager, "KEPT", 3)
    fb.memory_cleanup("cpu")
    before = loaded().modules
    for n in range(8):
        assert np.isfinite(fb.softmax(fb.ones((1400, 1000 + n))).numpy()).all()
    assert loaded().modules == before + 3
    fb.memory_cleanup("cpu")
    assert loaded().modules == before


def test_a_trace_lets_go_of_its_nodes_when_its_program_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[Trace] = []
    begin = Trace.__init__

    def noted(self: Trace, *args: Any) -> None:
        begin(self, *args)
        traces.append(self)

    monkeypatch.setattr(Trace, "__init__", noted)
    f = fb.jit(lambda x, w: x @ w + 2.0)
    assert f(fb.ones((2, 2)), fb.ones((2, 2))).tolist() == [[4.0, 4.0], [4.0, 4.0]]
    x = fb.ones((2, 2))
    x.require_grad()
    fb.backward(fb.sum(f(x, fb.ones((2, 2)))))
    assert len(traces) >= 2
    for trace in traces:
        for held in (trace.nodes, trace.avals, trace.sources, trace.flows, trace.handles, trace.leaves):
            assert not held
