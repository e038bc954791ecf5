"""``custom_vjp`` and ``custom_jvp``: the user's rule is the one that every transformation uses. The rules here are those of the
function times ten, so that another one would show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

X, W = (fb.asarray(a, dtype=fb.float64, device="numpy") for a in ([0.3, -1.2, 2.0], [1.0, 2.0, 3.0]))
ROWS = fb.stack([X, X * 2.0])


def plain(w: fb.Tensor, x: fb.Tensor) -> fb.Tensor:
    return fb.sin(w * x)


def by_vjp() -> Any:
    @fb.custom_vjp
    def f(w: fb.Tensor, x: fb.Tensor) -> fb.Tensor:
        return plain(w, x)

    def backward(residuals: Any, g: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        w, x = residuals
        slope = g * 10.0 * fb.cos(w * x)
        return slope * x, slope * w

    f.defvjp(lambda w, x: (f(w, x), (w, x)), backward)
    return f


def by_jvp() -> Any:
    @fb.custom_jvp
    def f(w: fb.Tensor, x: fb.Tensor) -> fb.Tensor:
        return plain(w, x)

    f.defjvp(lambda p, t: (f(*p), 10.0 * fb.cos(p[0] * p[1]) * (t[0] * p[1] + t[1] * p[0])))
    return f


Fn = Callable[[fb.Tensor, fb.Tensor], fb.Tensor]
WAYS: dict[str, Callable[[Fn], fb.Tensor]] = {
    "grad": lambda f: fb.grad(lambda w: fb.sum(f(w, X)))(W),
    "grad by the other": lambda f: fb.grad(lambda x: fb.sum(f(W, x)))(X),
    "jit of grad": lambda f: fb.jit(fb.grad(lambda w: fb.sum(f(w, X))))(W),
    "grad of jit": lambda f: fb.grad(lambda w: fb.sum(fb.jit(lambda w: f(w, X))(w)))(W),
    "vmap of grad": lambda f: fb.vmap(fb.grad(lambda w, x: fb.sum(f(w, x))), in_axes=(None, 0))(W, ROWS),
    "grad of vmap": lambda f: fb.grad(lambda w: fb.sum(fb.vmap(f, in_axes=(None, 0))(w, ROWS)))(W),
    "grad of vmap by what is mapped": lambda f: fb.grad(lambda r: fb.sum(fb.vmap(f, in_axes=(None, 0))(W, r)))(ROWS),
    "jit of grad of vmap": lambda f: fb.jit(fb.grad(lambda w: fb.sum(fb.vmap(f, in_axes=(None, 0))(w, ROWS))))(W),
    "jvp": lambda f: fb.jvp(lambda w: f(w, X), (W,), (X,))[1],
    "linearize": lambda f: fb.linearize(lambda w: f(w, X), W)[1](X),
    "vmap of jvp": lambda f: fb.vmap(lambda x: fb.jvp(lambda w: f(w, x), (W,), (x,))[1])(ROWS),
    "jvp of vmap": lambda f: fb.jvp(lambda w: fb.vmap(f, in_axes=(None, 0))(w, ROWS), (W,), (X,))[1],
    "grad of grad": lambda f: fb.grad(lambda w: fb.sum(fb.grad(lambda w: fb.sum(f(w, X)))(w)))(W),
    "diagonal of the hessian": lambda f: fb.linalg.diagonal(fb.hessian(lambda w: fb.sum(f(w, X)))(W)),
    "jit of jacobian": lambda f: fb.linalg.diagonal(fb.jit(fb.jacobian(lambda w: f(w, X)))(W)),
    "checkpoint": lambda f: fb.grad(lambda w: fb.sum(fb.checkpoint(f)(w, X)))(W),
    "balanced": lambda f: _strategy(f, fb.checkpointing("balanced")),
    "a budget": lambda f: _strategy(f, fb.checkpointing(budget=1)),
}  # fmt: skip


def _strategy(f: Fn, strategy: Any) -> fb.Tensor:
    with strategy:
        return fb.grad(lambda w: fb.sum(fb.exp(f(w, X) * 0.0) * f(w, X)))(W)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("own", [by_vjp, by_jvp], ids=["vjp", "jvp"])
def test_every_transformation_uses_the_rule(own: Callable[[], Any], way: str) -> None:
    np.testing.assert_allclose(WAYS[way](own()).numpy(), 10.0 * WAYS[way](plain).numpy(), rtol=1e-12)


@pytest.mark.parametrize("own", [by_vjp, by_jvp], ids=["vjp", "jvp"])
def test_the_value_is_that_of_the_function(own: Callable[[], Any]) -> None:
    f = own()
    want = plain(W, X).tolist()
    assert f(W, X).tolist() == fb.jit(lambda w: f(w, X))(W).tolist() == want
    assert not f(W, X).tracked
    assert f.__name__ == "f"


def test_arguments_and_results_may_be_trees_and_arguments_may_be_other_values() -> None:
    @fb.custom_vjp
    def scaled(tree: Any, power: int, name: str) -> Any:
        return {"y": tree["a"] ** float(power), "n": tree["i"] + 1}

    def backward(residuals: Any, g: Any) -> Any:
        a, power = residuals
        return {"a": g["y"] * a * power, "i": None}, None, None

    # a tree without the tensor that has no cotangent would have another structure
    def whole(residuals: Any, g: Any) -> Any:
        a, power = residuals
        return {"a": g["y"] * a * power, "i": fb.zeros(1)}, None, None

    scaled.defvjp(lambda tree, power, name: (scaled(tree, power, name), (tree["a"], float(power))), whole)
    tree = {"a": X, "i": fb.asarray([3], device="numpy")}
    loss = lambda a: fb.sum(scaled({"a": a, "i": tree["i"]}, 3, "s")["y"])  # noqa: E731
    assert fb.grad(loss)(X).tolist() == (X * 3.0).tolist()
    assert scaled(tree, 2, "s")["n"].tolist() == [4]
    rows = fb.vmap(fb.grad(loss))(ROWS)
    assert rows.tolist() == (ROWS * 3.0).tolist()
    scaled.defvjp(lambda tree, power, name: (scaled(tree, power, name), (tree["a"], float(power))), backward)
    with pytest.raises(fb.GradientError, match="argument 0 its structure, of 2 tensors\nReceived: 1"):
        fb.grad(loss)(X)


def test_a_straight_through_estimator_is_a_rule_of_ones_own() -> None:
    @fb.custom_jvp
    def rounded(x: fb.Tensor) -> fb.Tensor:
        return fb.round(x)

    rounded.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0]))
    assert fb.grad(lambda x: fb.sum(rounded(x) * x))(X).tolist() == (fb.round(X) + X).tolist()


def _vjp(forward: Any, backward: Any) -> Callable[[], Any]:
    f = by_vjp()
    f.defvjp(forward, backward)
    return lambda: fb.grad(lambda w: fb.sum(f(w, X)))(W)


def _jvp(rule: Any) -> Callable[[], Any]:
    f = by_jvp()
    f.defjvp(rule)
    return lambda: fb.jvp(lambda w: f(w, X), (W,), (W,))


def _pair(w: fb.Tensor, x: fb.Tensor) -> Any:
    return w * x, None


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no function": (lambda: fb.custom_vjp(3), "custom_vjp takes a function\nReceived: int"),  # type: ignore[arg-type]
    "no rule": (lambda: fb.custom_vjp(plain)(W, X), "plain has a gradient rule of its own\nReceived: none yet"),
    "no rule of tangents": (lambda: fb.custom_jvp(plain)(W, X), "plain has a rule of its own\nReceived: none yet"),
    "by name": (lambda: by_vjp()(W, x=X), "takes arguments by position\nReceived: x"),
    "too few": (_vjp(_pair, lambda r, g: (g,)), "a tuple of 2, a cotangent or None for each argument\nReceived: 1"),
    "no tuple": (_vjp(_pair, lambda r, g: g), "a tuple of 2, a cotangent or None for each argument\nReceived: Tensor"),
    "another shape": (
        _vjp(_pair, lambda r, g: (g[:1], None)), r"argument 0, tensor 0 a tensor like it, .*\nReceived: float64\[1\]"
    ),
    "no pair": (_vjp(lambda w, x: w * x, lambda r, g: (g, g)), "forward rule of f returns a pair"),
    "no tensor": (_vjp(lambda w, x: (3.0, None), lambda r, g: (g, g)), "f, which has .* returns tensors\nReceived: result"),
    "no pair of tangents": (_jvp(lambda p, t: t[0]), "the rule of f returns a pair, the result and its tangent"),
    "a tangent of another shape": (_jvp(lambda p, t: (p[0], t[0][:1])), r"for result 0 a tensor like it, float64\[3\]"),
    "a tangent too many": (_jvp(lambda p, t: (p[0], (t[0], t[1]))), "a tangent for each of 1 results\nReceived: 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
def test_mistakes_are_answered_by_what_was_expected(name: str) -> None:
    run, text = WRONG[name]
    with pytest.raises(fb.FirebrickError, match=text):
        run()


def test_a_rule_inside_a_loop_of_a_graph_is_refused_not_ignored() -> None:
    f = by_vjp()
    loop = fb.jit(lambda w: fb.sum(fb.scan(lambda c, e: (f(c, e), c), w, ROWS)[0]))
    with pytest.raises(fb.UnsupportedError, match="f has a derivative rule of its own, which"):
        fb.grad(loop)(W)
    with fb.no_grad():
        want = fb.scan(lambda c, e: (plain(c, e), c), W, ROWS)[0]
        assert loop(W).item() == fb.sum(want).item()
    eager = fb.grad(lambda w: fb.sum(fb.scan(lambda c, e: (f(c, e), c), w, ROWS)[0]))(W)
    assert eager.shape == (3,)
