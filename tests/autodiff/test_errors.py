"""Each error of gradients in full, as ``errors.txt`` has it: what was expected, what was received and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import firebrick as fb
from firebrick.autodiff import reducing, set_distributed_params

X = fb.asarray([1.0, 2.0])
X.label = "w"
I = fb.asarray([1, 2])  # noqa: E741 - integers
Z = fb.ones((), dtype=fb.complex64)


def leaf() -> fb.Tensor:
    x = X.detach().require_grad()
    x.label = "w"
    return x


def rebound() -> Any:
    x = leaf()
    grads = fb.backward(fb.sum(x * x))
    x += 1.0
    return grads[x]


def freed() -> Any:
    y = fb.sum(leaf() * 2.0)
    fb.backward(y)
    return fb.backward(y)


def hooked(returns: Any) -> Any:
    x = leaf()
    fb.register_hook(x, lambda g: returns)
    return fb.backward(fb.sum(x))


def replaced(gradient: fb.Tensor, of: fb.Tensor | None = None) -> None:
    x = leaf()
    fb.backward(fb.sum(x)).replace(x if of is None else of, gradient)


def changed(to: fb.Tensor) -> None:
    fb.backward(fb.sum(leaf())).change(lambda g: to)


def reduced(to: fb.Tensor) -> Any:
    x = set_distributed_params(leaf(), "layer.w")
    with reducing(lambda name, g: to):
        return fb.backward(fb.sum(x))


def again(*runs: Callable[[fb.Tensor], fb.Tensor]) -> Any:
    """A checkpointed function that is another one when it runs again."""
    each = iter(runs)
    return fb.grad(lambda x: fb.sum(fb.checkpoint(lambda x: next(each)(x))(x)))(X)


def own_rule(result: Any = None, **gradient: Any) -> Any:
    """The gradient of a function with a rule that returns something else."""

    @fb.custom_vjp
    def doubled(x: fb.Tensor) -> Any:
        return x * 2.0 if result is None else result

    doubled.defvjp(lambda x: (doubled.fn(x), None), lambda kept, g: (gradient.get("to", g),))
    return fb.grad(lambda x: fb.sum(doubled(x)))(X)


@fb.custom_jvp
def unruled(x: fb.Tensor) -> fb.Tensor:
    return x


def linear(**named: Any) -> Any:
    @fb.custom_jvp
    def halved(x: fb.Tensor) -> fb.Tensor:
        return x * 0.5

    halved.defjvp(lambda primals, tangents: (primals[0] * 0.5, tangents[0] * 0.5))
    return halved(X, **named)


def ruled(rule: Callable[[fb.Tensor], fb.Tensor]) -> Any:
    @fb.custom_jvp
    def f(x: fb.Tensor) -> fb.Tensor:
        return x * 2.0

    f.defjvp(lambda primals, tangents: (f(*primals), rule(*tangents)))
    return f


def of_nothing() -> Any:
    return fb.backward(fb.sum(leaf()))[X]


def not_reached() -> Any:
    return fb.backward(fb.sum(leaf()))[leaf()]


def wide() -> fb.Tensor:
    return fb.ones(2, dtype=fb.float64)


def elsewhere() -> fb.Tensor:
    return fb.ones(2, device="cpu:1")


ERRORS: dict[str, Callable[[], Any]] = {
    "require_grad of ints": lambda: I.require_grad(),
    "require_grad of a result": lambda: (leaf() * 2.0).require_grad(),
    "attach of an 8-bit float": lambda: fb.attach(fb.astype(X, fb.float8_e5m2)),
    "a hook of what is untracked": lambda: fb.register_hook(X, lambda g: g),
    "a hook that returns a number": lambda: hooked(1.0),
    "a hook that returns another shape": lambda: hooked(fb.ones(3)),
    "a hook that returns another device": lambda: hooked(elsewhere()),
    "a freed graph": freed,
    "backward of what is untracked": lambda: fb.backward(X),
    "backward of no scalar": lambda: fb.backward(leaf() * 2.0),
    "backward of a complex scalar": lambda: fb.backward(Z.detach().require_grad() * 2.0),
    "a cotangent that is a number": lambda: fb.backward(leaf() * 2.0, 1.0),
    "a cotangent on another device": lambda: fb.backward(leaf() * 2.0, elsewhere()),
    "a cotangent of another dtype": lambda: fb.backward(leaf() * 2.0, wide()),
    "a cotangent of another shape": lambda: fb.backward(leaf() * 2.0, fb.ones(())),
    "the gradient of a tensor that was rebound": rebound,
    "the gradient of what was not tracked": of_nothing,
    "the gradient of another leaf": not_reached,
    "a gradient for no leaf": lambda: replaced(fb.ones(2), X),
    "a gradient on another device": lambda: replaced(elsewhere()),
    "a gradient of another dtype": lambda: replaced(wide()),
    "a gradient of another shape": lambda: replaced(fb.ones((2, 1))),
    "a gradient changed to another shape": lambda: changed(fb.ones(())),
    "a gradient changed to another dtype": lambda: changed(wide()),
    "a gradient moved": lambda: changed(elsewhere()),
    "a distributed result": lambda: set_distributed_params(leaf() * 2.0, "layer.w"),
    "a gradient reduced to another shape": lambda: reduced(fb.ones(())),
    "a gradient reduced elsewhere": lambda: reduced(elsewhere()),
    "grad by a number": lambda: fb.grad(lambda x: x)(1.0),
    "grad by ints": lambda: fb.grad(lambda t: fb.sum(t[0]))([X, I]),
    "grad by nothing": lambda: fb.grad(lambda t: fb.sum(X))(()),
    "hessian by nothing": lambda: fb.hessian(lambda t: fb.sum(X))({}),
    "a rule that is not linear": lambda: fb.grad(lambda x: fb.sum(ruled(lambda t: t * t)(x)))(X),
    "a rule that is affine": lambda: fb.grad(lambda x: fb.sum(ruled(lambda t: t + 1.0)(x)))(X),
    "a rule that is linear in parts": lambda: fb.grad(lambda x: fb.sum(ruled(fb.relu)(x)))(X),
    "grad of no scalar": lambda: fb.grad(lambda x: x * 2.0)(X),
    "grad of a number": lambda: fb.grad(lambda x: 1.0)(X),
    "grad of no scalar with more": lambda: fb.grad(lambda x: (x * 2.0, 1), has_aux=True)(X),
    "grad of a complex scalar": lambda: fb.grad(lambda z: z * 2.0)(Z),
    "no pair": lambda: fb.grad(lambda x: (fb.sum(x), 1, 2), has_aux=True)(X),
    "no pair but a tensor": lambda: fb.grad(lambda x: fb.sum(x), has_aux=True)(X),
    "grad of a constant": lambda: fb.grad(lambda x: fb.sum(fb.floor(X)))(X),
    "grad of another leaf": lambda: fb.grad(lambda x, w: fb.sum(w * 2.0))(X, leaf()),
    "vjp by a module": lambda: fb.vjp(lambda m: m, fb.nn.Linear(1, 1)),
    "vjp of two results": lambda: fb.vjp(lambda x: (x, x), X),
    "vjp of a constant": lambda: fb.vjp(lambda x: X, X),
    "a cotangent of vjp": lambda: fb.vjp(lambda x: x * 2.0, X)[1](wide()),
    "jvp with a tangent too few": lambda: fb.jvp(lambda x, y: x * y, (X, X), (X,)),
    "jvp by ints": lambda: fb.jvp(lambda x: x, (I,), (X,)),
    "jvp with another tangent": lambda: fb.jvp(lambda x: x, (X,), (wide(),)),
    "jvp of a tensor": lambda: fb.jvp(lambda x, y: x * y, X, (X, X)),
    "jvp with other containers": lambda: fb.jvp(lambda x: x["w"], ({"w": X},), ([X],)),
    "gradcheck of a tensor": lambda: fb.gradcheck(lambda x, y: x * y, fb.ones(2, dtype=fb.float64)),
    "checkpoint of nothing": lambda: fb.checkpoint(None),
    "a strategy that is unknown": lambda: fb.checkpointing("all"),
    "a budget beside a strategy": lambda: fb.checkpointing("balanced", budget=5),
    "another operation again": lambda: again(lambda x: x * x, fb.exp),
    "another shape again": lambda: again(lambda x: x * x, lambda x: x[:1] * x[:1]),
    "more residuals again": lambda: again(lambda x: x * x, lambda x: x * x * x),
    "fewer residuals again": lambda: again(lambda x: x * x * x, lambda x: x + x),
    "fewer operations again": lambda: again(lambda x: x * x + x, lambda x: x * x),
    "backward inside a checkpoint": lambda: again(lambda x: fb.backward(fb.sum(x * x))[x], lambda x: x),
    "a hook of a second result": lambda: fb.register_hook(fb.split(leaf(), [1, 1], axis=0)[1], lambda g: g),
    "a result of an own rule": lambda: own_rule({"a": [3]}),
    "a gradient that is no tensor": lambda: own_rule(to=3),
    "a gradient that is another tensor": lambda: own_rule(to=fb.ones(3)),
    "no rule": lambda: unruled(X),
    "a keyword to an own rule": lambda: linear(x=X),
    "jvp of a module": lambda: fb.jvp(lambda m: m, (fb.nn.Linear(1, 1),), (X,)),
    "vjp of a module in a tree": lambda: fb.vjp(lambda m: m, [fb.nn.Linear(1, 1)]),
    "gradcheck in float32": lambda: fb.gradcheck(lambda a, b: b, [I, X]),
    "gradcheck in complex64": lambda: fb.gradcheck(lambda z: z, [Z]),
}


TEXTS: dict[str, str] = dict(
    part.split("\n", 1) for part in ("\n" + Path(__file__).with_name("errors.txt").read_text("utf-8")).split("\n## ")[1:]
)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_gradients_reads_in_full(name: str) -> None:
    with pytest.raises(fb.FirebrickError) as caught:
        ERRORS[name]()
    assert f"{type(caught.value).__name__}: {caught.value}" == TEXTS[name].strip()


def test_every_text_is_of_a_case() -> None:
    assert list(TEXTS) == list(ERRORS)
