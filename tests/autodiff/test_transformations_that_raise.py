"""Transformations and control flow whose function raises, or whose result they refuse: tensors that the function changed and
random generators are as they were before the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.batched import Batched

Run = Callable[[Callable[..., Any]], Any]
X = fb.asarray([1.0, 2.0])

CALLS: dict[str, Run] = {
    "grad": lambda f: fb.grad(f)(X),
    "vmap": lambda f: fb.vmap(f)(X),
    "jvp": lambda f: fb.jvp(f, (X,), (X,)),
    "vjp": lambda f: fb.vjp(f, X),
    "linearize": lambda f: fb.linearize(f, X),
    "reverse jacobian": lambda f: fb.jacobian(f)(X),
    "forward jacobian": lambda f: fb.jacobian(f, mode="forward")(X),
    "hessian": lambda f: fb.hessian(f)(X),
    "checkpoint": lambda f: fb.checkpoint(f)(X),
    "cond": lambda f: fb.cond(fb.asarray(True), f, lambda x: x, X),
    "cond of a bool": lambda f: fb.cond(True, f, lambda x: x, X),
    "cond of examples": lambda f: fb.vmap(lambda x: fb.cond(x > 1.5, f, lambda x: x, x))(X),
    "while_loop": lambda f: fb.while_loop(lambda x: fb.sum(x) < 100.0, f, X),
    "condition of while_loop": lambda f: fb.while_loop(f, lambda x: x, X),
    "while_loop of examples": lambda f: fb.vmap(lambda x: fb.while_loop(lambda x: x < 100.0, f, x))(X),
    "scan": lambda f: fb.scan(lambda c, x: (c, f(x)), None, fb.ones((3, 2))),
    "reversed scan": lambda f: fb.scan(lambda c, x: (f(c), x), X, fb.ones((3, 2)), reverse=True),
    "scan of no steps": lambda f: fb.scan(lambda c, x: (c, f(x)), None, fb.ones((0, 2))),
    "jvp of scan": lambda f: fb.jvp(lambda v: fb.scan(lambda c, x: (f(c), x), v, fb.ones((3, 2)))[0], (X,), (X,)),
}
REFUSED = {  # results that are no tensors
    "grad", "vmap", "jvp", "vjp", "linearize", "reverse jacobian", "forward jacobian", "hessian", "while_loop",
    "condition of while_loop", "scan", "reversed scan", "scan of no steps",
}  # fmt: skip


def changed_by(run: Run, fn: Callable[[fb.Tensor], Any], after: int) -> tuple[Any, Any, int]:
    """What a tensor and a generator show before and after calls of a function that changes them; the last one raises."""
    state, generator = fb.zeros(()), fb.random.Generator(3)
    shared = fb.random.default_generator(X.device)
    calls: list[int] = []

    def changing(x: fb.Tensor) -> Any:
        calls.append(1)
        if type(x.storage.data) is not Batched:  # in one example ``vmap`` refuses it at once
            state.__iadd__(1.0)
        generator.uniform((2,))
        fb.random.normal((2,))
        return fn(x) if len(calls) > after else x * 1.5

    def shown() -> Any:
        return state.item(), generator.mark(), shared.mark()

    before = shown()
    with pytest.raises((fb.FirebrickError, KeyError)):
        run(changing)
    return before, shown(), len(calls)


def failing(x: fb.Tensor) -> Any:
    raise KeyError("of the function")


@pytest.mark.parametrize("name", CALLS)
def test_a_function_that_raises_has_changed_no_tensor_and_drawn_no_number(name: str) -> None:
    before, after, calls = changed_by(CALLS[name], failing, 0)
    assert calls
    assert after == before


@pytest.mark.parametrize("name", ["forward jacobian", "while_loop", "scan", "reversed scan", "jvp of scan"])
def test_calls_before_the_one_that_raises_are_undone_too(name: str) -> None:
    run = CALLS[name]
    if name == "forward jacobian":
        run = lambda f: fb.jacobian(lambda t: f(t["a"]) + f(t["b"]), mode="forward")({"a": X, "b": X})  # noqa: E731
    before, after, calls = changed_by(run, failing, 1)
    assert calls > 1
    assert after == before


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_result_that_is_refused_has_changed_no_tensor_and_drawn_no_number(name: str) -> None:
    before, after, calls = changed_by(CALLS[name], lambda x: "no tensor", 0)
    assert calls
    assert after == before


def test_a_call_that_succeeds_keeps_its_changes() -> None:
    for name in ("jvp", "checkpoint", "cond", "linearize", "scan"):
        state, generator = fb.zeros(()), fb.random.Generator(3)

        def changing(x: fb.Tensor, state: fb.Tensor = state, generator: fb.random.Generator = generator) -> fb.Tensor:
            state += 1.0
            return x * generator.uniform((2,))

        start = generator.mark()
        CALLS[name](changing)
        assert state.item() == (3.0 if name == "scan" else 1.0)
        assert generator.mark() != start


@pytest.mark.parametrize("outer", [
    lambda f, m: f(m),
    lambda f, m: fb.grad(f)(m),
    lambda f, m: fb.grad(lambda x: fb.sum(x) * f(m))(X),
    lambda f, m: fb.checkpoint(f)(m),
    lambda f, m: fb.vmap(lambda x, m: f(m) * x, in_axes=(0, None))(fb.ones(2), m),
], ids=["alone", "in grad", "in another grad", "in checkpoint", "in vmap"])  # fmt: skip
def test_a_module_whose_parameter_an_example_changes_shows_its_own_values_after_the_exception(
    outer: Callable[..., Any],
) -> None:
    model = nn.Linear(2, 2)
    before = {k: (v.shape, v.tolist(), v.tracked) for k, v in model.state_dict().items()}

    def one(m: nn.Linear) -> fb.Tensor:
        with fb.no_grad():
            m.weight *= 2.0
        raise KeyError("of the function")

    with pytest.raises((KeyError, fb.FirebrickError)):
        outer(lambda m: fb.sum(fb.vmap(one)(m)), model)
    assert {k: (v.shape, v.tolist(), v.tracked) for k, v in model.state_dict().items()} == before


@pytest.mark.parametrize("inner", [
    lambda f, m: fb.grad(f)(m),
    lambda f, m: fb.vmap(lambda x, m: fb.grad(f)(m)[m.bias] * x, in_axes=(0, None))(fb.ones(2), m),
    lambda f, m: fb.vmap(lambda m: fb.grad(f)(m)[m.bias])(m),
])  # fmt: skip
@pytest.mark.parametrize("outer", [
    lambda f, m: fb.grad(lambda x: fb.sum(x) * f(m))(X),
    lambda f, m: fb.grad(lambda m: f(m))(m),
    lambda f, m: fb.jvp(lambda x: f(m), (X,), (X,)),
])  # fmt: skip
def test_a_parameter_that_is_changed_in_a_gradient_within_another_call_is_free_after_the_exception(
    inner: Callable[..., Any], outer: Callable[..., Any]
) -> None:
    model = nn.Linear(2, 2)
    before = {k: (v.shape, v.tolist(), v.tracked) for k, v in model.state_dict().items()}

    def one(m: nn.Linear) -> fb.Tensor:
        with fb.no_grad():
            m.weight *= 2.0
        raise KeyError("of the function")

    with pytest.raises((KeyError, fb.FirebrickError)):
        outer(lambda m: inner(one, m), model)
    assert {k: (v.shape, v.tolist(), v.tracked) for k, v in model.state_dict().items()} == before
    grads = fb.grad(lambda m: fb.sum(m(X)))(model)
    assert grads[model.bias].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("call", [
    lambda: fb.jvp(lambda x, y: x * y, fb.ones((2, 3)), fb.ones((2, 3))),
    lambda: fb.jvp(lambda x: x, (X,), X),
    lambda: fb.jvp(lambda x: x, X, (X,)),
    lambda: fb.jvp(lambda x: x, {"x": X}, {"x": X}),
    lambda: fb.jvp(lambda x: x, (x for x in [X]), (X,)),
    lambda: fb.gradcheck(lambda x, y: x * y, fb.ones((2, 3), dtype=fb.float64)),
])  # fmt: skip
def test_a_tensor_in_place_of_a_tuple_of_arguments_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="as a tuple, with an entry for each argument of the function") as caught:
        call()
    assert "Remedy: write fb." in str(caught.value)


def test_tangents_in_other_containers_are_shown_beside_the_primals() -> None:
    _, push = fb.linearize(lambda x: x * 2.0, X)
    with pytest.raises(fb.GradientError, match=r"that the primals are in\nReceived: primals \(\*,\), tangents \(\(\*,\),\)"):
        push((X,))
