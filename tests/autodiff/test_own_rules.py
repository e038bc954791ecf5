"""``custom_vjp`` and ``custom_jvp``: the user's rule is the one that every transformation uses. The rules here are those of the
function times ten, so that another one would show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from combinations import pairs_of

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


def test_a_result_that_a_budget_drops_is_computed_again() -> None:
    f, y = by_vjp(), X * 0.5
    with fb.checkpointing(budget=1):
        found = fb.grad(lambda w: fb.sum(fb.sin(fb.exp(f(w, y)))))(W)
    np.testing.assert_allclose(found.numpy(), fb.grad(lambda w: fb.sum(fb.sin(fb.exp(f(w, y)))))(W).numpy(), rtol=1e-12)


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


# inside graphs that are differentiated

Point = Callable[[fb.Tensor], fb.Tensor]
START = fb.asarray(0.3, dtype=fb.float64, device="numpy")
STEPS = fb.asarray([0.1, 0.9, -0.4], dtype=fb.float64, device="numpy")
STEPS_ON = {"numpy:0": STEPS, "cpu:0": STEPS.to("cpu")}


def _scanned(f: Fn, x: fb.Tensor) -> fb.Tensor:
    last, ys = fb.scan(lambda c, e: (f(c, e) * e + c, f(e, c)), x, STEPS_ON[x.device.name])
    return last + fb.sum(ys)


def _unrolled(f: Fn, x: fb.Tensor) -> fb.Tensor:
    c, total = x, x * 0.0
    for e in (0.1, 0.9, -0.4):
        t = fb.full_like(x, e)
        total += f(t, c)
        c = f(c, t) * e + c
    return c + total


LOOPS: dict[str, tuple[Callable[[Fn, fb.Tensor], fb.Tensor], Callable[[Fn, fb.Tensor], fb.Tensor], int]] = {
    "scan": (_scanned, _unrolled, 3),
    "cond": (
        lambda f, x: fb.cond(x > 0.2, lambda v: f(v, v) * x, lambda v: v, x) + f(x, x), lambda f, x: f(x, x) * x + f(x, x), 3,
    ),
    "while": (
        lambda f, x: fb.while_loop(lambda s: s[0] < 2.5, lambda s: (s[0] + 1.0, f(s[1], x) * 1.5), (x * 0.0, x))[1],
        lambda f, x: f(f(f(x, x) * 1.5, x) * 1.5, x) * 1.5, 1,
    ),
    "none": (lambda f, x: f(x, x) * x, lambda f, x: f(x, x) * x, 3),
}  # fmt: skip


def _derived(f: Point, order: int) -> Point:
    for _ in range(order):
        f = fb.grad(f)
    return f


@pytest.mark.parametrize(("name", "own", "device"), pairs_of(LOOPS, [by_vjp, by_jvp], ["numpy", "cpu"]))
def test_a_rule_in_a_graph_that_is_differentiated_later_is_used_at_every_order(
    device: str, own: Callable[[], Any], name: str
) -> None:
    start = START.to(device)
    loop, written_out, orders = LOOPS[name]
    f = own()
    fn: Point = lambda x: loop(f, x)  # noqa: E731
    for order in range(1, orders + 1):
        want = _derived(lambda x: written_out(f, x), order)(start).item()
        for way in (_derived(fn, order), fb.jit(_derived(fn, order)), _derived(fb.jit(fn), order)):
            assert way(start).item() == pytest.approx(want, rel=1e-11), order
    want = _derived(lambda x: written_out(f, x), 1)(start).item()
    plainly = _derived(lambda x: written_out(plain, x), 1)(start).item()
    assert abs(want - plainly) > 1e-3, "the rule is not that of the function"
    rows = fb.stack([start, start * 1.5])
    each = [fb.grad(lambda x: written_out(f, x))(x).item() for x in rows]
    for way in (fb.vmap(fb.grad(fn)), fb.jit(fb.vmap(fb.grad(fn))), fb.jit(fb.grad(lambda r: fb.sum(fb.vmap(fn)(r))))):
        with fb.config.scope(fallback="silent"):  # gradients of a while loop have no batch rule
            np.testing.assert_allclose(way(rows).numpy(), each, rtol=1e-11)
    if name != "while":
        along: Point = lambda x: fb.jvp(fn, (x,), (fb.ones_like(x),))[1]  # noqa: E731
        assert fb.jit(along)(start).item() == pytest.approx(want, rel=1e-11)
        with fb.no_grad():
            assert fb.jit(along)(start).item() == pytest.approx(want, rel=1e-11)


def test_what_a_rule_captures_is_part_of_the_graph() -> None:
    weight = fb.asarray(2.0, dtype=fb.float64, device="numpy")

    def loss(x: fb.Tensor) -> fb.Tensor:
        def step(c: fb.Tensor, e: fb.Tensor) -> Any:
            q = (e * 3.0).detach()

            @fb.custom_vjp
            def f(a: fb.Tensor) -> fb.Tensor:
                return a * q * weight

            f.defvjp(lambda a: (f(a), None), lambda r, g: (g * q * weight * 10.0,))
            return f(c) + x, c

        return fb.scan(step, x, STEPS)[0]

    compiled = fb.jit(fb.grad(loss))
    want = fb.grad(loss)(START).item()
    assert compiled(START).item() == pytest.approx(want, rel=1e-12)
    weight += 1.0
    other = fb.grad(loss)(START).item()
    assert other != want
    assert compiled(START).item() == pytest.approx(other, rel=1e-12)
    assert compiled.traces == 1


def test_a_function_that_draws_random_numbers_draws_them_once() -> None:
    g = fb.random.Generator(3)

    @fb.custom_vjp
    def noisy(a: fb.Tensor) -> fb.Tensor:
        return a + g.normal((), dtype=fb.float64, device="numpy")

    def forward(a: fb.Tensor) -> Any:
        n = g.normal((), dtype=fb.float64, device="numpy")
        return a + n, n

    noisy.defvjp(forward, lambda n, cotangent: (cotangent * n,))
    fn: Point = lambda x: fb.scan(lambda c, e: (noisy(c) * e, None), x, STEPS)[0]  # noqa: E731

    counters = set()

    def at(way: Point) -> float:
        g.set_state(fb.random.Generator(3).state())
        found = way(START).item()
        counters.add(g.state()["counter"].tolist()[0])
        return found

    want = at(fb.grad(fn))
    assert at(fb.jit(fb.grad(fn))) == pytest.approx(want, rel=1e-12)
    assert at(fb.grad(fb.jit(fn))) == pytest.approx(want, rel=1e-12)
    assert len(counters) == 1, "as many keys are taken"
    draws = by_vjp()
    draws.defvjp(lambda w, x: (draws(w, x), None), lambda r, g2: (g2 * g.normal((), dtype=fb.float64, device="numpy"), None))
    with pytest.raises(fb.UnsupportedError, match="keep what is drawn among the residuals"):
        fb.grad(fb.jit(lambda x: draws(x, x)))(START)


def test_rules_that_call_each_other_end() -> None:
    f, g = fb.custom_vjp(fb.sin), fb.custom_vjp(fb.cos)
    f.defvjp(lambda a: (f(a), a), lambda a, ct: (2.0 * ct * g(a),))
    g.defvjp(lambda a: (g(a), a), lambda a, ct: (-3.0 * ct * f(a),))
    fn: Point = lambda x: fb.scan(lambda c, e: (f(c) * e, None), x, STEPS)[0]  # noqa: E731
    for order in (1, 2, 3):
        want = _derived(fn, order)(START).item()
        assert fb.jit(_derived(fn, order))(START).item() == pytest.approx(want, rel=1e-11)
        assert _derived(fb.jit(fn), order)(START).item() == pytest.approx(want, rel=1e-11)


def _capturing(own: Any) -> Point:
    def fn(x: fb.Tensor) -> fb.Tensor:
        f = own(lambda a: a * x)
        if own is fb.custom_vjp:
            f.defvjp(lambda a: (f(a), a), lambda r, g: (g,))
        else:
            f.defjvp(lambda p, t: (f(*p), t[0]))
        made: fb.Tensor = f(x * 1.0)
        return made

    return fn


CAPTURING: dict[str, Callable[[Point], Any]] = {
    "grad": lambda f: fb.grad(f)(START),
    "jit of grad": lambda f: fb.jit(fb.grad(f))(START),
    "grad of jit": lambda f: fb.grad(fb.jit(f))(START),
    "jvp": lambda f: fb.jvp(f, (START,), (START,)),
    "a scan": lambda f: fb.grad(fb.jit(lambda x: fb.scan(lambda c, e: (f(c * x) + f(x), None), x, STEPS)[0]))(START),
    "forward mode of a scan": lambda f: fb.jit(
        lambda x: fb.jvp(lambda x: fb.scan(lambda c, e: (f(c * x), None), x, STEPS)[0], (x,), (x,))
    )(START),
    "vmap": lambda f: fb.vmap(fb.grad(f))(STEPS),
    "gradcheck": lambda f: fb.gradcheck(f, [fb.astype(START, fb.float64)]),
}


@pytest.mark.parametrize("way", list(CAPTURING))
@pytest.mark.parametrize("own", [fb.custom_vjp, fb.custom_jvp], ids=["vjp", "jvp"])
def test_a_captured_tensor_that_is_differentiated_is_refused_not_a_constant(own: Any, way: str) -> None:
    with pytest.raises(fb.GradientError, match="derivatives by its arguments only"):
        CAPTURING[way](_capturing(own))


def test_results_of_integers_trees_and_numbers_of_the_call_go_through_a_rule_in_a_loop() -> None:
    @fb.custom_vjp
    def f(tree: Any, power: float) -> Any:
        return {"y": tree["a"] * power, "i": fb.astype(tree["a"] > 0.2, fb.int64)}

    f.defvjp(lambda tree, power: (f(tree, power), power), lambda power, g: ({"a": g["y"] * power * 10.0}, None))

    def loss(x: fb.Tensor, power: float) -> fb.Tensor:
        def step(c: fb.Tensor, e: fb.Tensor) -> Any:
            found = f({"a": c}, power)
            return found["y"] + e * fb.astype(found["i"], fb.float64), None

        return fb.scan(step, x, STEPS)[0]

    compiled = fb.jit(fb.grad(loss))
    for power in (0.5, 0.7):
        assert compiled(START, power).item() == pytest.approx(fb.grad(loss)(START, power).item(), rel=1e-12)
    assert compiled.traces == 1


def test_a_rule_that_captures_a_value_of_a_branch_of_examples_is_refused_not_differentiated_by_zero() -> None:
    def scaled(factor: fb.Tensor) -> Callable[[fb.Tensor], fb.Tensor]:
        @fb.custom_vjp
        def fn(x: fb.Tensor) -> fb.Tensor:
            return x * factor

        fn.defvjp(lambda x: (fn(x), None), lambda residuals, g: (g * 2.0,))
        return fn

    def each(x: fb.Tensor, detached: bool = False) -> fb.Tensor:
        def branch(y: fb.Tensor) -> fb.Tensor:
            factor = fb.sum(y) * 2.0
            return fb.sum(scaled(factor.detach() if detached else factor)(fb.ones(2)))

        result: fb.Tensor = fb.cond(fb.sum(x) > 0, branch, fb.sum, x)
        return result

    xs = fb.asarray([[1.0, 2.0], [3.0, -4.0]])
    with pytest.raises(fb.GradientError, match=r"capture x\.detach"):
        fb.grad(lambda xs: fb.sum(fb.vmap(each)(xs)))(xs)
    constant = lambda xs: fb.sum(fb.vmap(lambda x: each(x, detached=True))(xs))  # noqa: E731
    assert constant(xs).item() == 11.0
    assert fb.grad(constant)(xs).tolist() == [[0.0, 0.0], [1.0, 1.0]]


A = fb.asarray(np.random.default_rng(1).normal(size=(3, 3)))
LINEAR: dict[str, Callable[[fb.Tensor, fb.Tensor], fb.Tensor]] = {
    "times a function of the primal": lambda x, t: fb.cos(x) * t / (1.0 + x * x),
    "masked": lambda x, t: fb.where(x > 0.0, t, 0.5 * t),
    "through a matrix": lambda x, t: fb.linalg.solve(A, A @ (t - fb.mean(t))) @ A,
    "of the softmax": lambda x, t: fb.softmax(x) * (t - fb.sum(fb.softmax(x) * t)),
    "moved": lambda x, t: fb.flip(fb.pad(fb.concat([t[1:], t[:1]]), ((1, 1),)), axis=0)[1:4],
    "summed up": lambda x, t: fb.cumulative_sum(fb.take(t, fb.asarray([2, 0, 1]), axis=0)) + fb.prod(x) * fb.std(x) * t,
    "through complex numbers": lambda x, t: fb.real(fb.fft.ifft(fb.fft.fft(t) * 1j)) + fb.imag(fb.fft.fft(t)),
    "narrowed": lambda x, t: fb.astype(fb.astype(t, "float16"), "float64") * x,
    "by jvp": lambda x, t: fb.jvp(lambda y: fb.sin(y) * y, (x,), (t,))[1],
    "by linearize": lambda x, t: fb.linearize(lambda y: fb.exp(y) * A[0], x)[1](t),
    "in a loop": lambda x, t: fb.scan(lambda c, e: (c * 0.5 + e * t, None), t, x)[0],
    "by another rule": lambda x, t: _ruled(lambda x, t: t * x)(x) * t,
    "of random numbers": lambda x, t: t * fb.random.uniform((3,), dtype="float64"),
    "infinite": lambda x, t: t * float("inf"),
    "unused": lambda x, t: 0.0 * x,
}  # fmt: skip
NOT_LINEAR: dict[str, Callable[[fb.Tensor, fb.Tensor], fb.Tensor]] = {
    "squared": lambda x, t: t * t,
    "a function of it": lambda x, t: x * fb.sin(t),
    "a product of two": lambda x, t: fb.sum(t) * t,
    "a norm": lambda x, t: t / (1.0 + fb.linalg.vector_norm(t)),
    "an exponential": lambda x, t: fb.exp(t) - 1.0,
    "a sum with the primal": lambda x, t: t + x,
    "ones": lambda x, t: fb.ones_like(t),
    "its positive part": lambda x, t: fb.relu(t),
    "its magnitude": lambda x, t: fb.abs(t) * x,
    "two slopes": lambda x, t: fb.where(t > 0.0, t, 2.0 * t),
    "its maximum": lambda x, t: fb.max(t) * x,
    "cut off": lambda x, t: fb.clip(t, -8.0, 8.0) * x,
}
SHOWN_BY_VALUES = {
    "a sum with the primal", "ones", "its positive part", "its magnitude", "two slopes", "its maximum", "cut off",
}  # fmt: skip


def _ruled(rule: Callable[[fb.Tensor, fb.Tensor], fb.Tensor]) -> Any:
    @fb.custom_jvp
    def f(x: fb.Tensor) -> fb.Tensor:
        return x * 1.0

    f.defjvp(lambda primals, tangents: (f(*primals), rule(*primals, *tangents)))
    return f


TRANSPOSED: dict[str, Callable[[Any, fb.Tensor], Any]] = {
    "grad": lambda f, x: fb.grad(lambda x: fb.sum(f(x)))(x),
    "linearize": lambda f, x: fb.linearize(f, x)[1](x),
    "jacobian": lambda f, x: fb.jacobian(f)(x),
    "vmap": lambda f, x: fb.vmap(fb.grad(lambda x: fb.sum(f(x))))(fb.stack([x, x])),
    "jit": lambda f, x: fb.jit(fb.grad(lambda x: fb.sum(f(x))))(x),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_rule_that_is_linear_in_the_tangents_is_transposed(name: str) -> None:
    x = fb.asarray(np.array([0.3, -0.7, 1.1]))
    for run in TRANSPOSED.values():
        run(_ruled(LINEAR[name]), x)


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_a_rule_that_is_not_linear_in_the_tangents_is_refused_where_it_is_transposed(name: str) -> None:
    """Its gradient was that at tangents of zeros."""
    x = fb.asarray(np.array([0.3, -0.7, 1.1]))
    for way, run in TRANSPOSED.items():
        if name in SHOWN_BY_VALUES and way in ("vmap", "jit", "jacobian"):
            continue
        with pytest.raises(fb.GradientError, match="the rule of f is linear in the tangents"):
            run(_ruled(NOT_LINEAR[name]), x)


def test_a_rule_is_tried_once_for_operands_of_a_shape_and_draws_nothing_by_it() -> None:
    calls: list[int] = []
    generator = fb.random.Generator(0)

    def rule(x: fb.Tensor, t: fb.Tensor) -> fb.Tensor:
        calls.append(1)
        return t * generator.uniform(x.shape, dtype="float64")

    f, counts = _ruled(rule), []
    for size in (3, 3, 3, 4, 3):
        before = len(calls)
        start = generator.mark()
        fb.grad(lambda x: fb.sum(f(x)))(fb.ones(size, dtype="float64"))
        counts.append(len(calls) - before)
        assert generator.mark()[1] - start[1] == counts[-1] % 2
    assert counts == [3, 1, 1, 3, 1]


def test_a_gradient_of_nan_is_nan_in_every_dtype() -> None:
    """The rule was refused in bfloat16, for which NumPy's ``nan_to_num`` returns NaN."""
    for dtype in (fb.float16, fb.bfloat16, fb.float32, fb.float64):
        x = fb.asarray([fb.nan, 2.0], dtype=dtype)
        found = fb.grad(lambda x: fb.sum(_ruled(lambda x, t: t * x)(x)))(x)
        assert fb.isnan(found).tolist() == [True, False]
        assert found[1].item() == 2.0


def test_values_that_are_not_finite_do_not_show_a_rule_to_be_linear() -> None:
    """What was seen at infinity was kept for later operands of the shape, of which the gradient was then that of zeros."""
    f = _ruled(lambda x, t: fb.relu(t) * x)
    gradient = fb.grad(lambda x: fb.sum(f(x)))
    for value in (fb.inf, fb.nan):
        gradient(fb.asarray([value]))
    with pytest.raises(fb.GradientError, match="not multiplied by -1024"):
        gradient(fb.asarray([2.0]))


def test_a_rule_whose_small_tangents_are_flushed_to_zero_is_linear() -> None:
    """Drivers of GPUs flush denormal numbers, of which multiples are not denormal."""
    smallest = float(fb.finfo(fb.float32).smallest_normal)

    def rule(x: fb.Tensor, t: fb.Tensor) -> fb.Tensor:
        tangent = t * x
        return fb.where(fb.abs(tangent) < smallest, tangent * 0.0, tangent)

    x = fb.asarray([smallest * 1.2], dtype=fb.float32)
    fb.grad(lambda x: fb.sum(_ruled(rule)(x)))(x)


def test_checks_of_values_are_made_in_a_function_of_a_graph_and_refused_in_its_rule() -> None:
    def scored(in_rule: bool) -> Any:
        @fb.custom_vjp
        def f(x: fb.Tensor, labels: fb.Tensor) -> fb.Tensor:
            return fb.sin(x) if in_rule else fb.sin(x) * fb.cross_entropy(x, labels)

        def backward(residuals: Any, g: fb.Tensor) -> tuple[fb.Tensor, None]:
            return (g * fb.cross_entropy(*residuals) if in_rule else g * 3.0), None

        f.defvjp(lambda x, labels: (f(x, labels), (x, labels)), backward)
        return fb.grad(fb.jit(lambda x, labels: fb.sum(f(x, labels))))

    x = fb.ones((2, 3))
    assert scored(False)(x, fb.asarray([0, 1])).tolist() == [[3.0] * 3] * 2
    with pytest.raises(fb.OutOfRangeError, match="cross_entropy: labels must lie in"):
        scored(False)(x, fb.asarray([0, 7]))
    with pytest.raises(fb.UnsupportedError, match=r"the derivative rule of f makes no check of values.*\n.*a check in"):
        scored(True)(x, fb.asarray([0, 1]))
