"""What a call or a ``with`` block sets for its context ends with it, whether it returns or raises."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import Context, ContextVar, copy_context
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.autodiff.checkpoint import wanted_at_once
from firebrick.autodiff.distributed import reducing
from firebrick.autodiff.tape import grad_mode
from firebrick.core.journal import journaled, undone, unnoted
from firebrick.core.sharing import sharing_cores
from firebrick.data.assembly import Job, reading
from firebrick.functions.parts import part_of_batch
from firebrick.graph.trace import alone, outside
from firebrick.train import evaluate
from firebrick.train.parallel.meeting import meeting_at

ROWS = np.arange(2)
JOB = Job(0, ROWS, ROWS, np.empty((2, 0), np.uint32), 0, 0, 0)


class Place:
    """Where replicas would meet."""

    def sum(self, x: fb.Tensor) -> fb.Tensor:
        return x

    def leave(self) -> None:
        """Nobody else is there."""


BLOCKS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": fb.no_grad, "grad_mode": lambda: grad_mode(False), "detect_anomaly": fb.detect_anomaly,
    "disable_jit": fb.disable_jit,
    "checkpointing": lambda: fb.checkpointing("balanced"), "autocast": lambda: fb.autocast("bfloat16"),
    "use_device": lambda: fb.use_device("numpy"), "row_offset": lambda: fb.random.row_offset(3),
    "wanted_at_once": wanted_at_once, "reducing": lambda: reducing(lambda name, g: g), "part_of_batch": part_of_batch,
    "sharing_cores": lambda: sharing_cores(0, 2), "journaled": journaled, "undone": undone, "unnoted": unnoted,
    "outside": outside, "alone": alone, "reading": lambda: reading(JOB), "meeting_at": lambda: meeting_at(Place()),
}  # fmt: skip


DEFAULTS = {"alone", "outside", "unnoted", "wanted_at_once"}  # what they set is the default, unless another block is around


class Layer(fb.nn.Module):
    """A layer that calls a function on the way."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.dense, self._act = fb.nn.Linear(2, 2), act

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self._act()
        return self.dense(x)


def run(act: Callable[[], None]) -> Callable[[fb.Tensor], fb.Tensor]:
    """A function of a tensor that calls another function on the way."""

    def f(x: fb.Tensor) -> fb.Tensor:
        act()
        return x * 2.0

    return f


def loss(act: Callable[[], None]) -> Callable[[fb.Tensor], fb.Tensor]:
    return lambda x: fb.sum(run(act)(x) ** 3.0)


def evaluated(act: Callable[[], None]) -> Any:
    loader = fb.data.DataLoader(fb.data.ArrayDataset(np.ones((3, 2), np.float32), np.array([0, 1, 0])), 2)
    return evaluate(Layer(act), loader, jit=False)


def looped(act: Callable[[], None]) -> Callable[[fb.Tensor], fb.Tensor]:
    return lambda x: fb.while_loop(lambda c: fb.sum(c) < 9.0, run(act), x)


def chosen(act: Callable[[], None]) -> Callable[[fb.Tensor], fb.Tensor]:
    return lambda x: fb.cond(fb.sum(x) > 0.0, run(act), run(act), x)


def summed(act: Callable[[], None]) -> Callable[[fb.Tensor], fb.Tensor]:
    return lambda x: fb.scan(lambda c, t: (run(act)(c) + t, None), x[0], x)[0]


X = fb.ones(2)
CALLS: dict[str, Callable[[Callable[[], None]], Any]] = {
    "grad": lambda act: fb.grad(loss(act))(X),
    "a second derivative": lambda act: fb.grad(lambda x: fb.sum(fb.grad(loss(act))(x)))(X),
    "a hook": lambda act: hooked(act),
    "vjp": lambda act: fb.vjp(run(act), X),
    "jvp": lambda act: fb.jvp(run(act), (X,), (X,)),
    "checkpoint": lambda act: fb.grad(lambda x: fb.sum(fb.checkpoint(run(act))(x)))(X),
    "jit": lambda act: fb.jit(run(act))(X),
    "jit of a gradient": lambda act: fb.jit(fb.grad(loss(act)))(X),
    "cond": lambda act: fb.jit(chosen(act))(X),
    "while_loop": lambda act: fb.jit(looped(act))(X),
    "scan": lambda act: fb.jit(summed(act))(X),
    "gradient of cond": lambda act: fb.jit(fb.grad(lambda x: fb.sum(chosen(act)(x))))(X),
    "gradient of scan": lambda act: fb.jit(fb.grad(lambda x: fb.sum(summed(act)(x))))(X),
    "summary": lambda act: Layer(act).summary((1, 2)),
    "evaluate": evaluated,
}


def hooked(act: Callable[[], None]) -> None:
    x = fb.ones(2).require_grad()

    def hook(gradient: fb.Tensor) -> None:
        act()

    y = x * 2.0
    fb.register_hook(y, hook)
    fb.backward(fb.sum(y))


def raises() -> None:
    raise ZeroDivisionError


def default_of(variable: ContextVar[Any]) -> Any:
    try:
        return Context().run(variable.get)
    except LookupError:
        return None


def ours() -> dict[str, Any]:
    """What is set in this context to anything but its default."""
    return {v.name: value for v, value in copy_context().items() if value != default_of(v)}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_sets_nothing_beyond_its_end(name: str) -> None:
    before = ours()
    with BLOCKS[name]():
        with BLOCKS[name]():
            pass
        inside = ours()
        with pytest.raises(ZeroDivisionError), BLOCKS[name]():
            raises()
        assert ours() == inside, "of the block around it"
    assert ours() == before
    with pytest.raises(ZeroDivisionError), BLOCKS[name]():
        raises()
    assert ours() == before


@pytest.mark.parametrize("name", CALLS)
def test_a_call_sets_nothing_beyond_its_end(name: str) -> None:
    before = ours()
    CALLS[name](lambda: None)
    assert ours() == before
    with pytest.raises(ZeroDivisionError):
        CALLS[name](raises)
    assert ours() == before


def test_what_a_block_sets_is_seen() -> None:
    """So that the tests above compare something."""
    before = ours()
    for name in set(BLOCKS) - DEFAULTS:
        with BLOCKS[name]():
            assert ours() != before, name
