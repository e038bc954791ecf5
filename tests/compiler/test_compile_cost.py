"""Compiling a program twice as large takes twice the work: calls of Python functions are counted, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.compiler.targets.llvm import copy_kernels
from firebrick.compiler.targets.llvm.copy_kernels import copy_kernel
from firebrick.core.aval import Aval
from firebrick.ir import Graph


def calls_of(run: Callable[[], Any]) -> int:
    """How many times Python functions are called, or go on, while something runs."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


class Wide(nn.Module):
    """So many parameters beside each other."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for i in range(count):
            setattr(self, f"p{i}", nn.Parameter(fb.ones((2, 3))))

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return sum((fb.sum(p * p) for p in self.parameters()), fb.sum(x))


def test_an_update_of_twice_as_many_parameters_is_compiled_with_twice_the_work() -> None:
    def work(count: int) -> int:
        model = Wide(count)
        optimizer = optim.Adam(model)

        @fb.jit
        def step(model: nn.Module, optimizer: optim.Adam, x: fb.Tensor) -> fb.Tensor:
            value, grads = fb.value_and_grad(lambda m: fb.mean(m(x)))(model)
            optimizer.update(model, grads)
            return value

        x = fb.ones((3, 4))
        return calls_of(lambda: step(model, optimizer, x))

    work(20)  # what is imported and compiled once for all
    one, two, four = work(20), work(40), work(80)
    assert four - two < 2.1 * (two - one)


class Deep(nn.Module):
    """A table, and so many layers after each other."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(count)]

    def forward(self, at: fb.Tensor) -> fb.Tensor:
        x = self.table(at)
        for layer in self.layers:
            x = x - layer(x)
        return fb.sum(x * x)


def test_lists_of_all_values_of_a_graph_are_not_made_for_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    made, avals = 0, Graph.avals.fget
    assert avals is not None

    def counted(self: Graph) -> list[Aval]:
        nonlocal made
        found: list[Aval] = avals(self)
        made += len(found)
        return found

    monkeypatch.setattr(Graph, "avals", property(counted))

    def work(count: int) -> int:
        nonlocal made
        model = Deep(count)
        optimizer = optim.SGD(model, lr=0.1)

        @fb.jit
        def step(model: nn.Module, optimizer: optim.SGD, at: fb.Tensor) -> None:
            optimizer.update(model, fb.grad(lambda m: m(at))(model))

        made = 0
        step(model, optimizer, fb.asarray([1, 2, 3]))
        return made

    work(10)
    one, two, four = work(10), work(20), work(40)
    assert four - two < 2.1 * (two - one)


def test_a_loop_with_many_steps_generates_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*args: Any, **more: Any) -> Any:
        made.append(args)
        return copy_kernel(*args, **more)

    monkeypatch.setattr(copy_kernels, "copy_kernel", counted)
    copy_kernels.copied.cache_clear()
    loop = fb.jit(lambda x: fb.scan(lambda c, t: (fb.tanh(c * 0.9 + t), c), fb.zeros(()), x)[1])
    loop(fb.ones(50))
    assert 1 <= len(made) <= 4
