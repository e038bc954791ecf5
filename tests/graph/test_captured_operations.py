"""Operations of the library that a compiled function holds: what they keep for themselves is no part of its graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.graph.walk import Walk
from firebrick.ops import OPS

pytestmark = pytest.mark.usefixtures("nothing_left")


def drawn(*shape: int) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32))


def two(o: Any, n: int) -> Any:
    return o(drawn(n, 4), drawn(n, 4))


def one(o: Any, n: int) -> Any:
    return o(drawn(n, 4))


HELD: dict[str, tuple[Any, Callable[[Any, int], Any]]] = {
    "maximum": (fb.maximum, two), "relu": (fb.relu, one), "exp": (fb.exp, one), "entry of the table": (OPS["tanh"], one),
    "sum": (fb.sum, one), "partial": (functools.partial(fb.sum, axis=0), one), "module": (nn.Linear(4, 3), one),
    "gradient": (fb.grad(lambda x: fb.sum(fb.sin(x))), one), "vmap": (fb.vmap(lambda r: fb.sum(fb.exp(r))), one),
    "compiled": (fb.jit(lambda x: fb.tanh(x)), one),
}  # fmt: skip


@pytest.fixture
def scaled() -> Iterator[Callable[[float], Any]]:
    """Declares an operation of one's own, which is no entry of the table for other tests."""

    def declare(factor: float) -> Any:
        return fb.op(
            "scaled_of_captured", infer=lambda x: x, reference=lambda x: x * factor, vjp=lambda g, x: g * factor,
            samples=lambda rng, dtype: [(rng.normal(size=3).astype(dtype),)], replace=True,
        )  # fmt: skip

    yield declare
    OPS.pop("scaled_of_captured", None)


def check(held: Any, call: Callable[[Any, int], Any]) -> None:
    run = fb.jit((lambda held: lambda: call(held, 3))(held))
    expected = run().tolist()
    for n in range(1, 6):
        for _ in range(4):  # so often that a plan is made
            call(held, n)
        assert run().tolist() == expected
    assert run.traces == 1, fb.explain_recompiles(run)


@pytest.mark.parametrize("name", HELD)
def test_eager_calls_of_what_a_compiled_function_holds_compile_it_no_second_time(name: str) -> None:
    check(*HELD[name])


def test_eager_calls_of_an_own_operation_that_a_compiled_function_holds_compile_it_no_second_time(scaled: Any) -> None:
    check(scaled(3.0), one)


def test_a_walk_does_not_enter_an_entry_of_the_table() -> None:
    held = fb.maximum
    assert len(Walk([("f", lambda a, b: held(a, b))]).entries) < 8


def test_another_operation_in_the_place_of_one_is_another_graph() -> None:
    def of(act: Any) -> Callable[[fb.Tensor], fb.Tensor]:
        return lambda x: act(x)

    f = of(fb.relu)
    run, x = fb.jit(f), fb.asarray([-1.0, 2.0])
    assert run(x).tolist() == [0.0, 2.0]
    f.__closure__[0].cell_contents = fb.abs  # type: ignore[index]
    assert run(x).tolist() == [1.0, 2.0]
    assert run.traces == 2


def test_an_own_operation_that_is_declared_anew_is_another_graph(scaled: Any) -> None:
    space = {"scaled": scaled(2.0)}
    run = fb.jit(lambda x: space["scaled"](x))
    x = fb.asarray([1.0])
    assert run(x).tolist() == [2.0]
    space["scaled"] = scaled(5.0)
    assert run(x).tolist() == [5.0]
