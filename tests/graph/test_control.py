"""Branches and loops: inside jit they are what Python does outside, in values, derivatives, draws and errors."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from combinations import turns_of

import firebrick as fb
from firebrick.core import trees
from firebrick.functions.checks import check_range
from firebrick.graph.control.body import replayed
from firebrick.graph.passes import optimize, prune_control
from firebrick.ir import Graph, from_json, interpret, to_json, verify_graph
from firebrick.testing import faults

F64 = fb.float64
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(params=["numpy", "cpu", "torch:cpu"])
def home(request: pytest.FixtureRequest) -> Any:
    if request.param.startswith("torch"):
        pytest.importorskip("torch", reason="torch, an engine")
    with fb.use_device(request.param):
        yield request.param


def draw(seed: int, *shape: int) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(seed).normal(size=shape), dtype=F64)


def same(found: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    (left, spec), (right, other) = trees.flatten(found), trees.flatten(wanted)
    assert spec == other
    for a, b in zip(left, right, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)


def total(tree: Any) -> fb.Tensor:
    return sum((fb.sum(fb.sin(t) * t) for t in trees.flatten(tree)[0] if t.dtype.is_inexact), fb.zeros((), dtype=F64))


def agree(fn: Callable[..., Any], *args: Any) -> None:
    """Values, gradients and gradients of gradients: eager, all of it in jit, and taken of the function in jit."""
    same(fb.jit(fn)(*args), fn(*args))

    def loss(f: Callable[..., Any]) -> Callable[[Any], fb.Tensor]:
        return lambda a: total(f(*a))

    first = fb.value_and_grad(loss(fn))(args)
    same(fb.jit(fb.value_and_grad(loss(fn)))(args), first)
    same(fb.value_and_grad(loss(fb.jit(fn)))(args), first)

    def twice(f: Callable[..., Any]) -> Callable[[Any], Any]:
        return fb.grad(lambda a: total(fb.grad(loss(f))(a)))

    wanted = twice(fn)(args)
    same(fb.jit(twice(fn))(args), wanted)
    same(twice(fb.jit(fn))(args), wanted)


def ops_of(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


# scan


def rnn(w: fb.Tensor, h: fb.Tensor, xs: fb.Tensor, reverse: bool = False) -> Any:
    def step(c: Any, x: fb.Tensor) -> Any:
        h = fb.tanh(x + c["h"] @ w)
        return {"h": h, "n": c["n"] + 1}, (h * 2.0, [fb.sum(h), None], c["n"])

    return fb.scan(step, {"h": h, "n": fb.asarray(0)}, xs, reverse=reverse)


@pytest.mark.turns
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_in_jit_is_the_loop_to_the_second_derivative(home: str, reverse: bool) -> None:
    agree(lambda w, h, xs: rnn(w, h, xs, reverse), draw(0, 3, 3), draw(1, 2, 3), draw(2, 5, 2, 3))


def test_a_third_derivative_of_a_scan_is_that_of_the_loop() -> None:
    def fn(x: fb.Tensor, xs: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.scan(lambda c, y: (c * fb.sin(y), c * y), x, xs)[1] ** 3.0)

    third = fb.grad(lambda x, xs: fb.sum(fb.grad(lambda x, xs: fb.sum(fb.grad(fn)(x, xs) ** 2.0))(x, xs) ** 2.0))
    x, xs = draw(0, 3), draw(1, 4, 3)
    same(fb.jit(third)(x, xs), third(x, xs))


def test_results_stand_where_their_elements_do() -> None:
    total, sums = fb.scan(lambda c, x: (c + x, c + x), fb.asarray(0.0), fb.asarray([1.0, 2.0, 4.0]), reverse=True)
    assert (total.item(), sums.tolist()) == (7.0, [7.0, 6.0, 4.0])


def test_steps_without_elements_and_without_a_carry_run() -> None:
    ones = fb.ones(2)
    for f in (lambda: fb.scan(lambda c, x: (c, ones), None, None, length=3),) * 2:
        assert fb.jit(f)()[1].tolist() == f()[1].tolist() == [[1.0, 1.0]] * 3
    assert fb.jit(lambda: fb.scan(lambda c, x: (c, fb.ones(2)), None, length=2))()[1].shape == (2, 2)


def test_an_empty_sequence_gives_empty_results_and_the_first_carry(home: str) -> None:
    source = fb.random.Generator(0)

    def fn(x: fb.Tensor, xs: fb.Tensor) -> Any:
        return fb.scan(lambda c, y: (c * y, (c + source.uniform((3,), dtype=F64), fb.sum(y) > 0.0)), x, xs)

    x, none = draw(0, 3), fb.zeros((0, 3), dtype=F64)
    carry, (y, flags) = fb.jit(fn)(x, none)
    assert (y.shape, y.dtype, flags.shape, flags.dtype) == ((0, 3), F64, (0,), fb.bool)
    agree(fn, x, none)
    assert carry.tolist() == x.tolist()
    assert source.state()["counter"].tolist() == [0, 0]


def test_one_step_and_a_carry_that_stays_or_is_doubled_are_no_special_cases(home: str) -> None:
    def fn(a: fb.Tensor, b: fb.Tensor, xs: fb.Tensor) -> Any:
        # the second part of the carry takes the first one's value, the third stays, results repeat parts of the carry
        return fb.scan(lambda c, x: ((c[0] * x, c[0] * x, c[2]), (c[0], c[2], c[2], c[0] * x, c[0] * x)), (a, b, b), xs)

    for steps in (1, 3):
        agree(fn, draw(0, 2), draw(1, 2), draw(2, steps, 2))


def test_results_of_a_scan_share_no_memory() -> None:
    f = fb.jit(lambda x, xs: fb.scan(lambda c, y: (c, (c, c)), (x, x), xs))
    x = fb.ones(2)
    (a, b), ((c, d), (e, g)) = f(x, fb.zeros((2, 2)))
    for t in (a, c):
        t += 1.0
    assert all(t.numpy().max() == 1.0 for t in (x, b, d, e, g))


def test_what_is_detached_in_a_body_gets_no_gradient_there_either() -> None:
    def fn(w: fb.Tensor, xs: fb.Tensor) -> Any:
        def step(c: fb.Tensor, x: fb.Tensor) -> Any:
            with fb.no_grad():
                scale = fb.sum(c * w)
            return c.detach() * w + c * w.detach() * scale + x, (c * c).detach() * w

        return fb.scan(step, w * 0.5, xs)

    agree(fn, draw(0, 3), draw(1, 4, 3))


def test_a_captured_tensor_may_be_tracked_in_one_place_and_not_in_the_other() -> None:
    def fn(w: fb.Tensor, xs: fb.Tensor) -> Any:
        fixed = w.detach()
        inner = fb.grad(lambda v: fb.sum(fb.scan(lambda c, x: (c * v + fixed * w, None), xs[0], xs)[0]))
        return inner(w)

    agree(fn, draw(0, 3), draw(1, 3, 3))


def test_gradients_are_taken_inside_of_a_scan_and_through_it(home: str) -> None:
    def fn(w: fb.Tensor, xs: fb.Tensor) -> Any:
        descend = fb.grad(lambda v, x: fb.sum(fb.sin(v * x) * w))
        return fb.scan(lambda v, x: (v - 0.1 * descend(v, x), None), w, xs)[0]

    agree(fn, draw(0, 3), draw(1, 4, 3))


def test_control_flow_nests(home: str) -> None:
    def fn(w: fb.Tensor, xs: fb.Tensor) -> Any:
        def inner(c: fb.Tensor, x: fb.Tensor) -> Any:
            return fb.cond(fb.sum(x) > 0.0, lambda c: (c * x, fb.sin(c)), lambda c: (c + w, c), c)

        def outer(c: fb.Tensor, x: fb.Tensor) -> Any:
            c, ys = fb.scan(inner, c * x, xs, reverse=True)
            return fb.tanh(c), fb.sum(ys * w)

        return fb.scan(outer, w, xs)

    agree(fn, draw(0, 3), draw(1, 3, 3))


def test_parameters_are_captured_and_trained_by_steps_in_jit(home: str) -> None:
    def training(compiled: bool) -> tuple[list[float], list[np.ndarray[Any, Any]]]:
        source = fb.random.Generator(0)
        cell = fb.nn.Linear(3, 3, dtype=F64, generator=source)
        optimizer = fb.optim.Adam(cell, lr=0.01)

        def loss(cell: fb.nn.Module, xs: fb.Tensor) -> fb.Tensor:
            return fb.mean(fb.scan(lambda h, x: (fb.tanh(cell(h) + x), h), xs[0], xs)[0] ** 2.0)

        def step(xs: fb.Tensor) -> fb.Tensor:
            value, grads = fb.value_and_grad(loss)(cell, xs)
            optimizer.update(cell, grads)
            return value

        run = fb.jit(step) if compiled else step
        values = [run(draw(i, 4, 2, 3)).item() for i in range(5)]
        assert not compiled or run.traces == 1
        return values, [p.numpy() for p in cell.parameters()]

    (a, p), (b, q) = training(False), training(True)
    np.testing.assert_allclose(a, b, rtol=1e-12)
    for x, y in zip(p, q, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_vjp_and_jvp_of_a_scan_in_jit_are_those_of_the_loop() -> None:
    def fn(x: fb.Tensor) -> fb.Tensor:
        return fb.scan(lambda c, y: (c * y, fb.sin(c)), x[0], x)[1]

    x, v = draw(0, 4, 3), draw(1, 4, 3)
    same(fb.jit(lambda x, v: fb.jvp(fn, (x,), (v,)))(x, v), fb.jvp(fn, (x,), (v,)))
    same(fb.jit(lambda x, v: fb.vjp(fn, x)[1](v))(x, v), fb.vjp(fn, x)[1](v))


def test_a_scan_in_jit_is_right_with_every_strategy_of_checkpointing() -> None:
    source = fb.random.Generator(3)

    def fn(x: fb.Tensor, xs: fb.Tensor) -> fb.Tensor:
        def step(c: fb.Tensor, y: fb.Tensor) -> Any:
            return fb.sin(c * source.uniform((3,), dtype=F64)) + y, None

        return fb.sum(fb.exp(fb.scan(step, x + fb.zeros(3, dtype=F64), xs)[0]))

    args = draw(0, 3), draw(1, 4, 3)
    start = source.state()
    wanted = fb.value_and_grad(fn)(*args)
    after = source.state()["counter"].tolist()
    for strategy in ({}, {"name": "balanced"}, {"budget": 200}):
        for f in (fn, fb.checkpoint(fn)):
            source.set_state(start)
            with fb.checkpointing(**strategy):
                same(fb.jit(fb.value_and_grad(f))(*args), wanted)
            assert source.state()["counter"].tolist() == after


def test_a_graph_is_as_small_for_many_steps_as_for_few() -> None:
    m = fb.nn.LSTM(4, 4)
    step = fb.jit(fb.value_and_grad(lambda m, x: fb.sum(m(x)[0])))

    def size(steps: int) -> int:
        graph = step.graph(m, fb.ones((2, steps, 4)))
        return sum(1 + sum(len(p.nodes) for p in n.params.values() if isinstance(p, Graph)) for n in graph.nodes)

    assert size(2) == size(64) < 150


# random draws


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_draw_what_the_loop_draws_to_the_bit(home: str, reverse: bool) -> None:
    source, other = fb.random.Generator(5), fb.random.Generator(6)

    def fn(xs: fb.Tensor) -> Any:
        def inner(c: fb.Tensor, _: Any) -> Any:
            return c + source.uniform((3,), dtype=F64), other.integers((2,), low=0, high=10)

        def step(c: fb.Tensor, x: fb.Tensor) -> Any:
            u = source.uniform((3,), dtype=F64)
            c, drawn = fb.scan(inner, c, None, length=2, reverse=reverse)
            return c * 0.5 + x * u, (source.uniform(()), drawn)

        return source.uniform(()), fb.scan(step, fb.zeros(3, dtype=F64), xs, reverse=reverse), source.uniform(())

    xs, found = draw(0, 4, 3), []
    for f in (fn, fb.jit(fn)):
        for g, seed in ((source, 5), (other, 6)):
            g.set_state(fb.random.Generator(seed).state())
        found.append(([f(xs), f(xs)], source.state()["counter"].tolist(), other.state()["counter"].tolist()))
    same(found[0][0], found[1][0], 0.0 if home != "torch:cpu" else 1e-15)
    assert found[0][1:] == found[1][1:]


def test_dropout_in_a_scan_is_that_of_the_loop() -> None:
    drop = fb.nn.Dropout(0.5, generator=fb.random.Generator(1))
    start = drop.generator.state()

    def fn(xs: fb.Tensor) -> Any:
        return fb.scan(lambda c, x: (drop(c + x), c), xs[0], xs)

    wanted = fn(draw(0, 4, 8))
    drop.generator.set_state(start)
    same(fb.jit(fn)(draw(0, 4, 8)), wanted, 0.0)


# cond


def branches(x: fb.Tensor, y: fb.Tensor) -> Any:
    return fb.cond(fb.sum(x) > 0.0, lambda x: (x * y, fb.sin(x)), lambda x: (y, x.detach() * x), x)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond_in_jit_is_the_branch_to_the_second_derivative(home: str, sign: float) -> None:
    agree(branches, fb.abs(draw(0, 3)) * sign, draw(1, 3))


def test_one_graph_serves_both_branches() -> None:
    f = fb.jit(lambda x: fb.cond(x > 0.0, lambda: {"a": x}, lambda: {"a": -x}))
    assert [f(fb.asarray(v))["a"].item() for v in (3.0, -4.0, 5.0)] == [3.0, 4.0, 5.0]
    assert f.traces == 1


def test_the_branch_not_taken_is_not_run() -> None:
    def fn(i: fb.Tensor, table: fb.Tensor) -> fb.Tensor:
        return fb.cond(i < 3, lambda: fb.take(table, i[None])[0], lambda: fb.asarray(-1.0))

    f = fb.jit(fn)
    assert [f(fb.asarray(i), fb.arange(3.0)).item() for i in (2, 7)] == [2.0, -1.0]


def test_a_python_bool_chooses_at_once() -> None:
    f = fb.jit(lambda x, flag: fb.cond(flag, lambda: x, lambda: (x, x)), static_argnames="flag")
    assert f(fb.ones(1), True).shape == (1,)
    assert len(f(fb.ones(1), False)) == 2


def test_operands_of_cond_may_be_anything_and_are_not_rebound() -> None:
    def grow(x: fb.Tensor, by: float) -> fb.Tensor:
        x += by
        return x

    for wrap in (lambda f: f, fb.jit):
        x = fb.ones(2)
        y = wrap(lambda x: fb.cond(fb.any(x > 0.0), grow, lambda x, by: x, x, 2.0))(x)
        assert (x.tolist(), y.tolist()) == ([1.0, 1.0], [3.0, 3.0])


# while_loop


def newton(x: fb.Tensor, limit: fb.Tensor, w: fb.Tensor) -> Any:
    return fb.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, fb.sin(s[1]) * w + x), (fb.asarray(0), x))[1]


def test_a_while_loop_finds_its_number_of_steps_at_each_run(home: str) -> None:
    x, w = draw(0, 3), draw(1, 3)
    run = fb.jit(newton)
    for steps in (0, 1, 5):
        limit = fb.asarray(steps)
        same(run(x, limit, w), newton(x, limit, w))
        slope = fb.value_and_grad(lambda a, f, limit: total(f(a[0], limit, a[1])))
        wanted = slope((x, w), newton, limit)
        same(fb.jit(slope)((x, w), newton, limit), wanted)
        same(slope((x, w), run, limit), wanted)
    assert run.traces <= 2  # untracked and tracked


# many, some and no steps
@pytest.mark.parametrize(("start", "home"), turns_of([0.1, 0.9, 9.0], ["cpu", "numpy", "torch:cpu"]), indirect=["home"])
def test_derivatives_of_a_while_loop_of_any_order_and_in_any_mode_are_eagers(home: str, start: float) -> None:
    x, w = draw(0, 3) * 0.1 + start, draw(1, 3) * 0.2

    def fn(a: Any) -> fb.Tensor:
        limit, count = fb.asarray(20.0, dtype=F64), fb.asarray(0)
        more = lambda s: fb.sum(s[0]) < limit  # noqa: E731
        step = lambda s: (s[0] * 1.3 + fb.sin(s[1]) * a[1] + 0.4, s[1] * s[0] * 0.1, s[2] + 1)  # noqa: E731
        found = fb.while_loop(more, step, (a[0], a[0] * a[1], count))
        return fb.sum(fb.sin(found[0]) * found[1]) + fb.sum(found[0])

    first: Any = fb.grad(fn)
    second: Any = fb.grad(lambda a: total(first(a)))
    third: Any = fb.grad(lambda a: total(second(a)))
    ways: list[Any] = [
        second,
        third,
        lambda a: fb.jvp(second, (a,), ((w, x),))[1],
        fb.grad(lambda a: fb.jvp(fn, (a,), (a,))[1]),
    ]
    for way in ways:
        same(fb.jit(way)((x, w)), way((x, w)))
    rows = (fb.stack([x, x * 0.3, x * 9.0]), fb.stack([w, w, x]))
    for way in (first, second):
        each = [way((rows[0][i], rows[1][i])) for i in range(3)]
        want = tuple(fb.stack([e[k] for e in each]) for k in range(2))
        same(fb.jit(fb.vmap(way))(rows), want)
        same(fb.vmap(fb.jit(way))(rows), want)


def test_a_second_derivative_of_a_while_loop_within_a_loop_is_eagers() -> None:
    def inner(c: fb.Tensor, x: fb.Tensor) -> fb.Tensor:
        return fb.while_loop(lambda s: fb.sum(s * s) < 2.0, lambda s: s * 1.5 + 0.1 * fb.sin(x), c)

    def fn(x: fb.Tensor, w: fb.Tensor) -> Any:
        y = fb.scan(lambda c, e: (fb.sin(inner(c, e * w)), fb.sum(c)), x, fb.stack([x, w]))
        last = fb.while_loop(lambda s: s[1] < 3, lambda s: (inner(s[0] * 0.5 + 0.3, w) * 0.7, s[1] + 1), (y[0], fb.asarray(0)))
        return last[0], y[1]

    agree(fn, draw(0, 3) * 0.2, draw(1, 3) * 0.3)


def test_results_of_a_while_loop_share_no_memory_and_leave_its_start() -> None:
    f = fb.jit(lambda x: fb.while_loop(lambda c: c[0][0] < 3.0, lambda c: (c[0] + 1.0, c[0]), (x, x)))
    x = fb.zeros(2)
    for start in (x, x + 5.0):
        before = start.tolist()
        a, b = f(start)
        a += 100.0
        assert start.tolist() == before
        assert b.numpy().max() < 100.0


# what graphs carry


def conditions(kind: str, i: fb.Tensor) -> Any:
    def inside(j: fb.Tensor) -> fb.Tensor:
        check_range("here", "j", j, 0, 5, "choose another")
        return j * 2

    if kind == "scan":
        return fb.scan(lambda c, j: (c + inside(j), None), fb.asarray(0), i)[0]
    if kind == "cond":
        return fb.cond(i[0] >= 0, lambda: fb.scan(lambda c, j: (c + inside(j), None), fb.asarray(0), i)[0], lambda: i[0])
    if kind == "other branch":
        return fb.cond(i[0] < 0, lambda: inside(i[0]), lambda: inside(i[1]))
    return fb.while_loop(lambda s: inside(s[1]) < 1 << 60, lambda s: (s[0] + 1, i[s[0]]), (fb.asarray(0), i[0]))[0]


@pytest.mark.parametrize("kind", ["scan", "cond", "other branch"])
def test_what_bodies_check_is_checked_at_each_run(home: str, kind: str) -> None:
    f = fb.jit(lambda i: conditions(kind, i))
    for values, fine in (([0, 1, 4], True), ([0, 7, 1], False), ([3, 3, 3], True)):
        i = fb.asarray(values)
        if fine:
            assert f(i).item() == conditions(kind, i).item()
        else:
            for g in (f, lambda i: conditions(kind, i)):
                with pytest.raises(fb.OutOfRangeError, match="here: j must lie in"):
                    g(i)
    assert f.traces == 1


@pytest.mark.parametrize("kind", ["scan", "cond", "while_loop"])
def test_gradients_flow_beside_what_is_checked(kind: str) -> None:
    i = fb.asarray([0, 1, 4])

    def fn(x: fb.Tensor, w: fb.Tensor) -> Any:
        def step(c: fb.Tensor, j: fb.Tensor) -> Any:
            check_range("here", "j", j, 0, 5, "choose another")
            return c * fb.astype(j, F64) + fb.sin(c * w), c

        if kind == "scan":
            return fb.scan(step, x, i)
        if kind == "cond":
            return fb.cond(i[0] < 3, lambda: step(x, i[1])[0], lambda: step(w, i[2])[0])
        return fb.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1], i[s[0]])[0]), (fb.asarray(0), x))

    agree(fn, draw(0, 3), draw(1, 3))


def test_complex_and_narrow_carries_are_differentiated() -> None:
    z = fb.asarray([0.5 + 0.25j, -0.25 + 1.0j])

    def turned(z: fb.Tensor, xs: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.abs(fb.scan(lambda c, x: (c * z + fb.conj(c), c * x), z, xs)[1]))

    xs = fb.asarray([[1.0 + 1.0j, 2.0 + 0.0j]] * 3)
    same(fb.jit(fb.grad(turned))(z, xs), fb.grad(turned)(z, xs), 1e-6)

    def narrow(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.scan(lambda c, y: (c * y, None), x[0], x)[0])

    x = fb.astype(draw(0, 4, 3), fb.bfloat16)
    assert fb.jit(fb.grad(narrow))(x).tolist() == fb.grad(narrow)(x).tolist()


def test_threads_run_loops_at_once() -> None:
    f = fb.jit(lambda x, xs: fb.scan(lambda c, y: (fb.tanh(c @ y), c), x, xs)[1])
    x, xs = draw(0, 8, 8), draw(1, 20, 8, 8)
    wanted = f(x, xs).numpy()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda k: f(x, xs).numpy(), range(16)):
            assert (found == wanted).all()


def test_a_loop_ends_where_a_check_fails() -> None:
    def fn(i: fb.Tensor) -> fb.Tensor:
        def more(s: Any) -> fb.Tensor:
            check_range("here", "s", s, 0, 5, "choose another")
            return s >= 0  # for ever, were it not for the check

        return fb.while_loop(more, lambda s: s + 1, i)

    for f in (fn, fb.jit(fn)):
        with pytest.raises(fb.OutOfRangeError, match="here: s must lie in"):
            f(fb.asarray(0))


def test_numbers_among_the_arguments_may_change() -> None:
    def fn(x: fb.Tensor, n: float) -> Any:
        return fb.scan(lambda c, x: (c * n + x, fb.cond(fb.sum(x) > n, lambda: x * n, lambda: x)), x[0] * 0.0, x)

    f, x = fb.jit(fn), draw(0, 4, 3)
    for n in (2.0, -1.0):
        same(f(x, n), fn(x, n))
    assert f.traces == 1


def nested(x: fb.Tensor) -> Any:
    def step(c: fb.Tensor, y: fb.Tensor) -> Any:
        c = fb.cond(fb.sum(c) > 0.0, lambda: fb.sin(c) * y, lambda: c + y)
        return fb.while_loop(lambda c: fb.sum(c * c) < 4.0, lambda c: c * 1.5 + 0.1, c), fb.sum(c)

    return fb.scan(step, x[0], x)


def test_graphs_of_control_flow_verify_serialize_and_run_by_the_references() -> None:
    x = draw(0, 4, 3)
    for fn in (nested, fb.value_and_grad(lambda x: fb.sum(nested(x)[1]))):
        graph = fb.jit(fn).graph(x)
        verify_graph(graph)
        again = from_json(to_json(graph))
        assert str(again) == str(graph)
        verify_graph(optimize(again))
        found = interpret(again, [x.numpy()], lambda op, xs, params: op.reference(*xs, **params))
        wanted = [t.numpy() for t in trees.flatten(fn(x))[0]]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    ("fn", "change", "match"),
    [
        (
            lambda x: fb.scan(lambda c, y: (c + y, None), x[0], x),
            lambda p: {"length": 5},
            r"scan: sequences have 5 elements\nReceived: sequence 0: float64\[4,3\]",
        ),
        (
            lambda x: fb.scan(lambda c, y: (c + y, fb.sum(c)), x[0], x),
            lambda p: {"body": replace(p["body"], outputs=p["body"].outputs[::-1])},
            r"scan: a carry keeps its shapes\nReceived: .*shape=\(\).* from .*shape=\(3,\)",
        ),
        (
            lambda x: fb.while_loop(lambda c: fb.sum(c) < 9.0, lambda c: c + 1.0, x),
            lambda p: {"body": replace(p["body"], outputs=p["body"].outputs[:1] * 2)},
            r"while_loop: a carry keeps its shapes\nReceived: .*shape=\(\).* from .*shape=\(4, 3\)",
        ),
        (
            lambda x: fb.cond(fb.sum(x) > 0.0, lambda: fb.sin(x), lambda: fb.cos(x)),
            lambda p: {"branches": (p["branches"][0], replace(p["branches"][1], outputs=()))},
            r"cond: both graphs have the same results\nReceived: .*shape=\(4, 3\).* and \[\]",
        ),
    ],
    ids=["length", "scan", "while_loop", "cond"],
)
def test_verify_graph_names_what_does_not_fit_in_the_graphs_of_control_flow(fn: Any, change: Any, match: str) -> None:
    graph = fb.jit(fn).graph(draw(0, 4, 3))
    (k,) = (i for i, n in enumerate(graph.nodes) if n.op.control is not None)
    node = graph.nodes[k]
    graph.nodes[k] = replace(node, params={**node.params, **change(node.params)})
    with pytest.raises(fb.core.errors.GraphError, match=match):
        verify_graph(graph)


def test_verify_holds_every_step_against_its_reference_and_profile_counts_them() -> None:
    x = draw(0, 4, 3)
    f = fb.jit(lambda x: fb.scan(lambda c, y: (c + y, fb.sin(y)), x[0], x))
    with fb.verify("numpy"):
        same(fb.jit(nested)(x.to("numpy")), nested(x))
    wrong = pytest.raises(fb.ExecutionError, match="sin on faulty")
    with faults.planted(faults.reads_zero("sin")) as device, fb.verify("faulty"), wrong:
        f(x.to(device))
    with fb.profile("numpy") as report:
        f(x.to("numpy"))
    assert report.rows["numpy", "sin"].calls == 4


def test_shapes_alone_run_on_meta() -> None:
    x = fb.zeros((4, 3), device="meta")
    carry, ys = fb.jit(nested)(x)
    assert (carry.shape, ys.shape, carry.device.engine) == ((3,), (4,), "meta")
    assert fb.jit(fb.grad(lambda x: fb.sum(nested(x)[1])))(x).shape == (4, 3)


def test_loops_compute_only_what_is_used() -> None:
    def fn(x: fb.Tensor, w: fb.Tensor) -> Any:
        def step(c: Any, y: fb.Tensor) -> Any:
            return (c[0] + y, fb.exp(c[1] * w)), (fb.sin(y), c[0])

        return fb.scan(step, (x[0], x[0]), x)[1][1]

    graph = fb.jit(fn).graph(draw(0, 4, 3), draw(1, 3))
    (node,) = [n for n in graph.nodes if n.op.name == "scan"]
    assert (len(node.inputs), len(node.avals)) == (2, 2)
    assert ops_of(node.params["body"]) == ["add"]
    assert prune_control(graph) is graph


def test_a_graph_that_keeps_no_steps_is_differentiated_when_it_runs_again_on_the_tape() -> None:
    def fn(x: fb.Tensor, w: fb.Tensor) -> fb.Tensor:
        def step(c: Any, y: fb.Tensor) -> Any:
            return (c[0] * w + y, fb.exp(c[1] * w)), fb.sin(c[0])

        return fb.sum(fb.scan(step, (x[0], x[0]), x)[1])

    x, w = draw(0, 4, 3), draw(1, 3)
    graph = fb.jit(fn).graph(x, w)
    again = fb.grad(lambda args: replayed(graph, args, x.device)[graph.outputs[0]])
    same(again((x, w)), fb.grad(lambda args: fn(*args))((x, w)))


def test_steps_are_kept_only_where_gradients_are_taken() -> None:
    x = draw(0, 4, 3)
    (plain,) = [n for n in fb.jit(lambda x: fb.scan(lambda c, y: (c * y, c), x[0], x)[0]).graph(x).nodes if n.op.name == "scan"]
    assert len(plain.avals) == 1


def test_the_plans_peak_is_what_a_loop_takes() -> None:
    def fn(w: fb.Tensor, xs: fb.Tensor) -> Any:
        return fb.scan(lambda c, x: (fb.tanh(c @ w + x), c), xs[0], xs)

    for f in (fb.jit(fn), fb.jit(fb.value_and_grad(lambda w, xs: fb.sum(fn(w, xs)[0])))):
        w, xs = fb.ones((64, 64)) * 0.01, fb.ones((100, 32, 64))
        f(w, xs)
        fb.memory_cleanup()  # arenas of programs, which are kept for their next run
        with fb.config.scope(kept_results=0):  # else the memory of a result is of a class of sizes
            tracemalloc.start()
            f(w, xs)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        plan = next(iter(f._entries.graphs.values())).program.executable().plan
        assert 0.6 * plan.peak < peak < 1.1 * plan.peak


# errors


def both(fn: Callable[..., Any], error: type[Exception], match: str, *args: Any) -> None:
    for f in (fn, fb.jit(fn)):
        with pytest.raises(error, match=match):
            f(*args)


@pytest.mark.parametrize(
    ("fn", "error", "match"),
    [
        (lambda x: fb.scan(lambda c, y: ({**c, "b": y}, None), {"a": x[0], "b": x[0, 0]}, x), fb.ShapeError, r"\['b'\]"),
        (lambda x: fb.scan(lambda c, y: (fb.astype(c, fb.float32), None), x[0], x), fb.DTypeError, "the carry keeps one dtype"),
        (lambda x: fb.scan(lambda c, y: ((c, c), None), x[0], x), fb.ShapeError, "the carry keeps one structure"),
        (lambda x: fb.scan(lambda c, y: (1.0, None), x[0], x), fb.OperandError, "init must be a Firebrick tensor"),
        (lambda x: fb.scan(lambda c, y: c, x[0], x), fb.OperandError, "returns a pair"),
        (lambda x: fb.scan(lambda c, y: (c, 1.0), x[0], x), fb.OperandError, "the result of fn must be"),
        (lambda x: fb.scan(lambda c, y: (c, y), 0.0, x), fb.OperandError, "init must be"),
        (lambda x: fb.scan(lambda c, y: (c, y), x[0]), fb.ShapeError, "pass length="),
        (lambda x: fb.scan(lambda c, y: (c, y), x[0], (x, x[1:])), fb.ShapeError, r"xs\[1\]: float64\[3,3\]"),
        (lambda x: fb.scan(lambda c, y: (c, y), x[0], x, length=3), fb.ShapeError, "length = 3"),
        (lambda x: fb.scan(lambda c, y: (c, y), x[0], fb.sum(x)), fb.ShapeError, "the first axis"),
        (lambda x: fb.cond(x, lambda: x, lambda: x), fb.DTypeError, "pred is a bool tensor"),
        (lambda x: fb.cond(x > 0.0, lambda: x, lambda: x), fb.ShapeError, "fb.any or fb.all"),
        (lambda x: fb.cond(1, lambda: x, lambda: x), fb.OperandError, "pred is a bool tensor"),
        (lambda x: fb.while_loop(lambda c: fb.sum(c), lambda c: c, x), fb.DTypeError, "the result of cond_fn"),
        (lambda x: fb.while_loop(lambda c: fb.sum(c) < 99.0, fb.sum, x), fb.ShapeError, "the carry keeps one shape"),
    ],
)  # fmt: skip
def test_mistakes_are_named_alike_outside_and_inside(fn: Any, error: type[Exception], match: str) -> None:
    both(fn, error, match, fb.abs(draw(0, 4, 3)))


def test_branches_differ_in_nothing_under_jit() -> None:
    x = draw(0, 4, 3)
    for second, error, match in (
        (lambda: x[0], fb.ShapeError, r"one shape\nReceived: the result of true_fn float64\[4,3\], the result of false_fn"),
        (lambda: fb.astype(x, fb.float32), fb.DTypeError, "one dtype"),
        (lambda: (x,), fb.ShapeError, "one structure"),
        (lambda: 1.0, fb.OperandError, "the result of false_fn must be a Firebrick tensor"),
    ):
        with pytest.raises(error, match=match):
            fb.jit(lambda: fb.cond(fb.sum(x) > 0.0, lambda: x, second))()  # noqa: B023


def test_state_that_a_body_changes_belongs_into_its_carry() -> None:
    count = fb.zeros(3, dtype=F64)

    def fn(x: fb.Tensor) -> Any:
        def step(c: fb.Tensor, y: fb.Tensor) -> Any:
            count[...] = count + y
            return c, None

        return fb.scan(step, x[0], x)

    with pytest.raises(fb.StateChangedError, match=r"(?s)the body of fb.scan.*in step.*part of the carry"):
        fb.jit(fn)(draw(0, 4, 3))
    assert count.tolist() == [0.0, 0.0, 0.0]


def test_a_tensor_kept_from_a_body_names_its_line() -> None:
    def fn(x: fb.Tensor) -> Any:
        kept: list[fb.Tensor] = []

        def step(c: fb.Tensor, y: fb.Tensor) -> Any:
            kept.append(c * y)
            return c, None

        fb.scan(step, x[0], x)
        return kept[0] * 2.0

    with pytest.raises(fb.LeakedTracerError, match=r"(?s)the body of fb.scan.*in step.*return it"):
        fb.jit(fn)(draw(0, 4, 3))


def test_draws_where_their_number_is_not_known_are_refused() -> None:
    source, x = fb.random.Generator(0), fb.ones(3)
    for fn in (
        lambda x: fb.cond(fb.sum(x) > 0.0, lambda: source.uniform((3,)), lambda: x),
        lambda x: fb.while_loop(lambda c: fb.sum(c) < 9.0, lambda c: c + source.uniform((3,)), x),
        lambda x: fb.scan(lambda c, y: (fb.cond(y > 0.0, lambda: source.uniform(()), lambda: y), None), x[0], x),
    ):
        fn(x)
        with pytest.raises(fb.UnsupportedError, match=r"fb\.scan, which runs a known number of steps"):
            fb.jit(fn)(x)
    start = source.state()["counter"].tolist()
    with pytest.raises(fb.UnsupportedError):
        fb.jit(fn)(x)
    assert source.state()["counter"].tolist() == start


def test_python_needs_values_inside_a_body_that_are_not_there() -> None:
    with pytest.raises(fb.core.errors.DataDependentError, match=r"fb.where or fb.cond"):
        fb.jit(lambda x: fb.scan(lambda c, y: (c if y > 0.0 else -c, None), x[0], x))(fb.ones(3))


def test_a_hook_that_would_not_run_is_refused() -> None:
    def fn(x: fb.Tensor) -> fb.Tensor:
        def step(c: fb.Tensor, y: fb.Tensor) -> Any:
            c = c * y
            fb.register_hook(c, lambda g: g * 2.0)
            return c, None

        return fb.sum(fb.scan(step, x[0], x)[0])

    fb.grad(fn)(draw(0, 4, 3))
    with pytest.raises(fb.UnsupportedError, match="a hook inside"):
        fb.jit(fb.grad(fn))(draw(0, 4, 3))


def test_operands_on_two_devices_are_refused() -> None:
    x, y = fb.ones(2), fb.ones((3, 2), device="cpu:1")
    with pytest.raises(fb.DeviceMismatchError):
        fb.jit(lambda x, y: fb.scan(lambda c, z: (c, z), x, y))(x, y)


def test_the_gradient_of_a_transposed_matrix_is_summed_over_the_steps_and_turned_back() -> None:
    x = draw(0, 5, 2, 12)
    for weight, product in ((draw(1, 16, 12), lambda w, t: t @ w.mT), (draw(2, 12, 16), lambda w, t: t @ w)):
        agree(
            lambda w, product=product: fb.scan(lambda c, t: (c + fb.sum(product(w, t)), product(w, t)), x[0, 0, 0], x), weight
        )


def test_a_while_loop_without_a_tensor_runs_outside_of_jit_only() -> None:
    assert fb.while_loop(lambda c: fb.asarray(False), lambda c: c, ()) == ()
    with pytest.raises(fb.OperandError, match=r"while_loop: init holds at least one tensor\n.*\(\)"):
        fb.jit(lambda x: fb.while_loop(lambda c: x > 0.0, lambda c: c, ()))(fb.asarray(1.0))


CONSTANT_HERE: dict[str, Callable[[fb.Tensor], fb.Tensor]] = {
    "the carry of a scan without steps": lambda x: fb.scan(lambda c, e: (c * x, c), fb.ones(()), fb.zeros((0,)))[0],
    "its results": lambda x: fb.sum(fb.scan(lambda c, e: (c * x, c * x), fb.ones(()), fb.zeros((0,)))[1]),
    "a branch that is constant": lambda x: fb.cond(x > 9.0, lambda v: v * 2.0, fb.ones_like, x),
    "a branch that captures nothing": lambda x: fb.cond(x > 9.0, lambda: x * 2.0, lambda: fb.ones(())),
    "a while loop without steps": lambda x: fb.while_loop(lambda c: c < 0.0, lambda c: c * x, fb.ones(())),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CONSTANT_HERE))
def test_a_result_that_is_constant_for_these_values_has_a_gradient_of_zero_with_and_without_jit(name: str) -> None:
    fn, x = CONSTANT_HERE[name], fb.asarray(0.5)
    one = fb.ones(())
    for way in (fb.grad(fn), fb.jit(fb.grad(fn)), fb.grad(fb.jit(fn)), lambda x: fb.vjp(fn, x)[1](one)[0]):
        assert way(x).tolist() == 0.0
    assert fb.grad(fb.grad(fn))(x).tolist() == 0.0
    assert fb.vmap(fb.grad(fn))(fb.stack([x, x])).tolist() == [0.0, 0.0]
    assert fb.grad(lambda x: fn(x) + x * 3.0)(x).tolist() == 3.0


def test_a_result_that_depends_on_nothing_is_a_mistake_after_a_choice_elsewhere_too() -> None:
    x = fb.asarray(0.5)
    fb.cond(x > 1.0, lambda: x, lambda: -x)
    for fn in (lambda x: fb.ones(()), lambda x: fb.scan(lambda c, e: (c * e, c), fb.ones(()), fb.ones((3,)))[0]):
        with pytest.raises(fb.GradientError, match="must depend on"):
            fb.grad(fn)(x)
        with pytest.raises(fb.GradientError, match="must depend on"):
            fb.vjp(fn, x)


# forward mode inside graphs

POINT, ALONG, ROWS = (
    fb.asarray(a, dtype=fb.float64, device="numpy")
    for a in ([0.3, 0.8], [1.0, -0.5], [[0.1, 0.2], [0.5, 0.3], [-0.2, 0.7]])
)  # fmt: skip
ONES, COUNT = fb.ones_like(POINT), fb.asarray(3, device="numpy")
FORWARD: dict[str, Callable[[fb.Tensor], fb.Tensor]] = {
    "while": lambda x: fb.while_loop(
        lambda s: fb.sum(s[0] ** 2.0) < 9.0, lambda s: (s[0] * 1.4 + fb.sin(x) * s[1], s[1] * 0.9, s[2] + 1), (x, ONES, COUNT)
    )[0],
    "a while loop whose carry depends on it later": lambda x: fb.while_loop(
        lambda s: fb.sum(s[0] ** 2.0) < 90.0, lambda s: (s[0] * 1.4 + s[1], s[2] * 0.5, s[0]), (ONES, ONES, x)
    )[0],
    "scan": lambda x: fb.scan(lambda c, e: (fb.sin(c) * e + x, c * e), x, ROWS)[1],
    "a scan whose carry depends on it later": lambda x: fb.scan(
        lambda c, e: ((c[1] * 2.0, fb.sin(c[0]) * e + x * c[1], c[2] + 1), c[0] * e), (ONES, x, COUNT), ROWS, reverse=True
    )[1],
    "a scan over it": lambda x: fb.scan(lambda c, e: (fb.sin(c * e), c), fb.ones_like(x[0]), x)[0],
    "a scan without steps": lambda x: fb.scan(lambda c, e: (c * e, c * x), x, ROWS[:0])[0],
    "cond": lambda x: fb.cond(fb.sum(x) > 0.2, lambda v: fb.sin(v) * x, lambda v: v * v, x),
    "a branch that is constant": lambda x: fb.cond(fb.sum(x) > 9.0, lambda v: v * v, fb.ones_like, x) * x,
    "branches of which one result each is constant": lambda x: fb.cond(
        fb.sum(x) < 9.0, lambda v: (fb.ones_like(v), v), lambda v: (v * v, fb.ones_like(v)), x
    )[1],
    "nested": lambda x: fb.scan(
        lambda c, e: (fb.cond(fb.sum(c) > 0.9, lambda c: c * e, lambda c: c + fb.sin(x), c), c), x, ROWS
    )[1],
}  # fmt: skip


def _close(got: fb.Tensor, want: fb.Tensor) -> None:
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", list(FORWARD))
def test_forward_mode_of_control_flow_in_a_graph_is_that_outside(name: str) -> None:
    fn = FORWARD[name]

    def along(x: fb.Tensor) -> fb.Tensor:
        return fb.jvp(fn, (x,), (ALONG,))[1]

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.sin(fn(x)))

    _close(fb.jit(along)(POINT), along(POINT))
    _close(fb.jit(fb.jacobian(fn, mode="forward"))(POINT), fb.jacobian(fn, mode="reverse")(POINT))
    second = fb.jacobian(fb.grad(loss), mode="reverse")(POINT)
    _close(fb.hessian(loss)(POINT), second)
    _close(fb.jit(fb.hessian(loss))(POINT), second)
    twice: Any = lambda x: fb.jvp(along, (x,), (x,))[1]  # noqa: E731
    _close(fb.jit(twice)(POINT), twice(POINT))
    _close(fb.jit(fb.jacobian(fb.grad(loss), mode="reverse"))(POINT), second)
    over: Any = fb.grad(lambda x: fb.sum(along(x * x) ** 2.0))
    _close(fb.jit(over)(POINT), over(POINT))
    rows = fb.stack([POINT, POINT * 0.5])
    _close(fb.jit(fb.vmap(along))(rows), fb.stack([along(r) for r in rows]))
    _close(fb.jit(lambda r: fb.jvp(fb.vmap(fn), (r,), (fb.stack([ALONG] * 2),))[1])(rows), fb.stack([along(r) for r in rows]))


@pytest.mark.parametrize("length", [2.0, True, "2"])
def test_the_length_of_a_scan_is_an_int(length: Any) -> None:
    with pytest.raises(fb.OperandError, match=rf"scan: length is an int\nReceived: {type(length).__name__} {length!r}"):
        fb.scan(lambda c, _: (c, c), fb.asarray(1.0), length=length)


@pytest.mark.parametrize("jit", [False, True])
def test_branches_without_results_give_none(jit: bool) -> None:
    def chosen(x: fb.Tensor) -> Any:
        return fb.cond(fb.sum(x) > 0.0, lambda: {"of": ()}, lambda: {"of": ()})

    assert (fb.jit(chosen) if jit else chosen)(fb.ones(2)) == {"of": ()}
