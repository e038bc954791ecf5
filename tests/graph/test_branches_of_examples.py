"""Under ``vmap`` an example does not see what it does not take: no endless loop, no index out of range, no NaN comes of the
branch that other examples take, or of steps after its last one, neither in results nor in gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

Function = Callable[..., Any]
TABLE = [1.0, 2.0, 3.0]


def _root(a: fb.Tensor) -> fb.Tensor:
    return fb.cond(a > 1.5, lambda a: fb.sqrt(a - 1.5), lambda a: a * a, a)


def _captured_root(a: fb.Tensor) -> fb.Tensor:
    return fb.cond(a > 1.5, lambda: fb.sqrt(a - 1.5), lambda: a * a)


def _doubled(a: fb.Tensor) -> fb.Tensor:
    return fb.cond(a > 0.0, lambda: fb.while_loop(lambda s: s < 10.0, lambda s: s * 2.0, a), lambda: a)


def _factored(a: fb.Tensor) -> fb.Tensor:
    return fb.cond(a > 0.0, lambda a: fb.linalg.cholesky(a * fb.eye(2))[0, 0], lambda a: -a, a)


def _read(a: fb.Tensor) -> fb.Tensor:
    i = fb.astype(a, fb.int64)
    return fb.cond(a < 3.0, lambda: fb.asarray(TABLE)[i] * a, lambda: a)


def _inner(a: fb.Tensor) -> fb.Tensor:
    return fb.cond(a > 0.0, lambda: fb.cond(a > 2.0, lambda: fb.log(a - 2.0), lambda: fb.sqrt(2.0 - a) * a), lambda: -a)


def _until_fifty(a: fb.Tensor) -> fb.Tensor:
    return fb.while_loop(lambda s: s < 50.0, lambda s: s * 2.0 + 0.0 * fb.sqrt(50.0 - s), a)


def _pair(a: fb.Tensor) -> fb.Tensor:
    def step(c: tuple[fb.Tensor, fb.Tensor]) -> tuple[fb.Tensor, fb.Tensor]:
        return c[0] * 1.5 + a, c[1] + fb.log(20.0 - c[0])

    return fb.while_loop(lambda c: c[0] < 15.0, step, (a, a * 0.5))[1]


FUNCTIONS: dict[str, tuple[Function, list[list[float]]]] = {
    "root": (_root, [[1.0, 2.0], [0.5, 1.0], [2.0, 3.0], [2.0, 1.0, 4.0]]),
    "captured root": (_captured_root, [[1.0, 2.0], [0.5, 1.0]]),
    "endless loop": (_doubled, [[-1.0, 2.0], [-1.0, -2.0], [1.0, 3.0]]),
    "decomposition": (_factored, [[-1.0, 2.0], [-1.0, -2.0]]),
    "index": (_read, [[1.0, 7.0], [7.0, 8.0], [0.0, 2.0]]),
    "branch in a branch": (_inner, [[-1.0, 1.0, 3.0], [-1.0, -2.0, 5.0], [1.0, 1.5, -3.0]]),
    "steps after the last": (_until_fifty, [[1.0, 60.0], [1.0, 30.0, 3.0]]),
    "several carries": (_pair, [[1.0, 14.0], [30.0, 2.0, 8.0]]),
}
CASES = [(name, given) for name, (_, several) in FUNCTIONS.items() for given in several]


def _outer(transform: Function, f: Function) -> Function:
    return transform(fb.vmap(f))


@pytest.mark.parametrize(("name", "given"), CASES, ids=[f"{n} {g}" for n, g in CASES])
def test_results_and_gradients_are_those_of_each_example(name: str, given: list[float]) -> None:
    f, x = FUNCTIONS[name][0], fb.asarray(given, dtype=fb.float64)

    def each(g: Function) -> np.ndarray[Any, Any]:
        return np.asarray([g(x[i]).item() for i in range(len(given))])

    values, slopes = each(f), each(fb.grad(f))
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
    forms: list[tuple[str, Function, np.ndarray[Any, Any]]] = [
        ("vmap", fb.vmap(f), values),
        ("vmap of grad", fb.vmap(fb.grad(f)), slopes),
        ("grad of vmap", fb.grad(lambda x: fb.sum(fb.vmap(f)(x))), slopes),
        ("vmap of jvp", fb.vmap(lambda a: fb.jvp(f, (a,), (fb.ones_like(a),))[1]), slopes),
        ("vmap of vmap", lambda x: fb.reshape(fb.vmap(fb.vmap(f))(fb.reshape(x, (-1, 1))), (-1,)), values),
    ]
    for text, form, expected in forms:
        for transform in (lambda g: g, fb.jit):
            np.testing.assert_allclose(transform(form)(x).numpy(), expected, rtol=1e-12, err_msg=text)


def test_a_value_that_all_examples_share_gets_no_nan_of_a_branch_that_none_takes() -> None:
    def total(w: fb.Tensor, x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.vmap(lambda a: fb.cond(a > 1.5, lambda: w * fb.sqrt(a - 1.5), lambda: w * a))(x))

    for given in ([1.0, 2.0], [1.0, 1.2], [2.0, 3.0]):
        expected = sum(np.sqrt(a - 1.5) if a > 1.5 else a for a in given)
        for transform in (lambda g: g, fb.jit):
            found = transform(fb.grad(total))(fb.asarray(3.0, dtype=fb.float64), fb.asarray(given, dtype=fb.float64))
            np.testing.assert_allclose(found.item(), expected, rtol=1e-12)


@pytest.mark.parametrize("f", [_root, _doubled, _until_fifty])
def test_no_examples(f: Function) -> None:
    nothing = fb.zeros((0,))
    for transform in (lambda g: g, fb.jit):
        assert transform(fb.vmap(f))(nothing).shape == (0,)
        assert transform(fb.vmap(fb.grad(f)))(nothing).shape == (0,)
        shared = transform(fb.grad(lambda w: fb.sum(fb.vmap(lambda a: f(a * w))(nothing))))
        assert shared(fb.asarray(2.0)).item() == 0.0


def test_a_shared_value_of_a_branch_that_no_example_takes_has_a_gradient_of_zero() -> None:
    x = fb.asarray([-1.0, -2.0])

    def total(w: fb.Tensor) -> fb.Tensor:
        return fb.sum(
            fb.vmap(lambda a: fb.cond(a > 0.0, lambda: fb.while_loop(lambda s: s < 9.0, lambda s: s * w, a), lambda: a))(x)
        )

    for transform in (lambda g: g, fb.jit):
        assert transform(fb.grad(total))(fb.asarray(2.0)).item() == 0.0


def test_second_derivatives_of_a_branch() -> None:
    x = fb.asarray([1.0, 2.0], dtype=fb.float64)
    expected = [fb.grad(fb.grad(_root))(a).item() for a in (x[0], x[1])]
    for transform in (lambda g: g, fb.jit):
        np.testing.assert_allclose(transform(fb.vmap(fb.grad(fb.grad(_root))))(x).numpy(), expected, rtol=1e-12)


def test_an_error_of_a_branch_that_an_example_takes_is_raised() -> None:
    table, at = fb.asarray(TABLE), fb.asarray([1, 7])
    for transform in (lambda g: g, fb.jit):
        with pytest.raises(fb.OutOfRangeError, match="indices must lie in"):
            transform(fb.vmap(lambda i: fb.cond(i < 9, lambda i: table[i], lambda i: fb.zeros(()), i)))(at)


def test_forward_mode_outside_of_vmap_runs_one_branch() -> None:
    y, dy = fb.jvp(_doubled, (fb.asarray(-1.0),), (fb.asarray(1.0),))
    assert (y.item(), dy.item()) == (-1.0, 1.0)


def test_branches_that_draw_or_read_values_run_outside_of_graphs() -> None:
    x, scale = fb.asarray([1.0, -1.0]), fb.asarray(2.0)
    read = fb.vmap(lambda a: fb.cond(a > 0.0, lambda: a * scale.item(), lambda: -a))(x)
    assert read.tolist() == [2.0, 1.0]
    generator = fb.random.Generator(0)
    drawn = fb.vmap(lambda a: fb.cond(a > 0.0, lambda: a + generator.uniform(()), lambda: a))(x)
    assert 1.0 <= drawn[0].item() < 2.0
    assert drawn[1].item() == -1.0


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(s, marks=pytest.mark.soak) for s in range(3, 60))])
def test_random_branches_and_loops_are_those_of_each_example(seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    risky: list[Function] = [
        lambda a: fb.sqrt(a - 1.0), lambda a: fb.log(a) * 0.5, lambda a: 1.0 / (a - 0.5), lambda a: fb.asin(a * 0.3),
        lambda a: fb.while_loop(lambda s: s < 9.0, lambda s: s * s + 0.2, a), lambda a: fb.exp(a * 20.0),
    ]  # fmt: skip
    safe: list[Function] = [lambda a: a * a, fb.sin, lambda a: fb.where(a > 0.0, a, -a), lambda a: a + 0.25]
    first, second = risky[rng.integers(len(risky))], safe[rng.integers(len(safe))]
    bound, swapped = float(rng.choice([1.5, 2.0, 2.5])), bool(rng.integers(2))

    def f(a: fb.Tensor) -> fb.Tensor:
        inside = (a > bound) & (a < 3.2)
        if swapped:
            return fb.cond(~inside, lambda: second(a), lambda: first(a))
        return fb.cond(inside, first, second, a)

    x = fb.asarray(rng.uniform(-4.0, 6.0, size=rng.integers(1, 7)).astype(np.float32), device=device)
    for g in (f, fb.grad(f)):
        expected = [g(x[i]).item() for i in range(x.shape[0])]
        assert np.isfinite(expected).all()
        for transform in (lambda h: h, fb.jit):
            np.testing.assert_allclose(transform(fb.vmap(g))(x).numpy(), expected, rtol=2e-5, atol=1e-6)


def _detached(y: fb.Tensor) -> fb.Tensor:
    return fb.sum((y * y).detach() * y)


def _without_gradient(y: fb.Tensor) -> fb.Tensor:
    with fb.no_grad():
        factor = y * y
    return fb.sum(factor * y)


def _of_an_operand(part: Callable[[fb.Tensor], fb.Tensor], x: fb.Tensor) -> fb.Tensor:
    return fb.cond(fb.sum(x) > 0, part, lambda y: fb.sum(y * y), x)


def _of_what_is_captured(part: Callable[[fb.Tensor], fb.Tensor], x: fb.Tensor) -> fb.Tensor:
    return fb.cond(fb.sum(x) > 0, lambda y: part(x) * fb.sum(y) + part(y), lambda y: fb.sum(x * y), x)


def _of_steps(part: Callable[[fb.Tensor], fb.Tensor], x: fb.Tensor) -> fb.Tensor:
    return fb.scan(lambda c, r: (c * 0.5 + part(x) * r + part(c * x), None), fb.sum(x) * 0.1, x)[0]


@pytest.mark.parametrize("part", [_detached, _without_gradient])
@pytest.mark.parametrize("fn", [_of_an_operand, _of_what_is_captured, _of_steps])
def test_no_gradient_flows_through_what_is_detached_in_a_branch_of_examples_or_tangents(fn: Any, part: Any) -> None:
    def each(x: fb.Tensor) -> fb.Tensor:
        result: fb.Tensor = fn(part, x)
        return result

    xs = fb.asarray([[1.0, 2.0], [0.5, -3.0]], dtype=fb.float64)
    want = fb.stack([fb.grad(each)(x) for x in xs])  # each branch as it is written

    def total(xs: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.vmap(each)(xs))

    for gradients in (fb.vmap(fb.grad(each)), fb.grad(total)):
        for run in (gradients, fb.jit(gradients)):
            np.testing.assert_allclose(run(xs).numpy(), want.numpy(), rtol=1e-12)
    slope = fb.sum(want * xs).item()
    for tangent in (
        lambda xs: fb.jvp(total, (xs,), (xs,))[1],
        lambda xs: fb.sum(fb.vmap(lambda x: fb.jvp(each, (x,), (x,))[1])(xs)),
    ):
        for run in (tangent, fb.jit(tangent)):
            np.testing.assert_allclose(run(xs).item(), slope, rtol=1e-12)


def test_a_loop_of_examples_that_draws_goes_on_for_each_as_long_as_its_own_condition() -> None:
    """A graph cannot draw an unknown number of times, so the loop runs step by step."""

    def counted(limit: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        def step(state: tuple[fb.Tensor, fb.Tensor]) -> tuple[fb.Tensor, fb.Tensor]:
            n, total = state
            return n + 1.0, total + limit + 0.0 * fb.random.uniform(())

        return fb.while_loop(lambda state: state[0] < limit, step, (fb.zeros(()), fb.zeros(())))

    steps, totals = fb.vmap(counted)(fb.asarray([1.0, 3.0, 0.0, 2.0]))
    assert (steps.tolist(), totals.tolist()) == ([1.0, 3.0, 0.0, 2.0], [1.0, 9.0, 0.0, 4.0])


def test_a_check_in_a_branch_is_made_for_the_examples_that_take_it() -> None:
    x, signs = fb.ones((2, 2)), fb.asarray([[1.0, -1.0], [3.0, 3.0]])

    def chosen(p: fb.Tensor, x: fb.Tensor, sign: fb.Tensor) -> fb.Tensor:
        return fb.cond(p > 0.0, lambda x: fb.soft_margin_loss(x, sign), lambda x: fb.sum(x), x)

    found = fb.vmap(chosen)(fb.asarray([1.0, -1.0]), x, signs)
    want = (np.log1p(np.exp(-1.0)) + np.log1p(np.exp(1.0))) / 2.0
    np.testing.assert_allclose(found.numpy(), [want, 2.0], rtol=1e-6)
    with pytest.raises(fb.OutOfRangeError, match=r"soft_margin_loss: signs are 1 or -1\nReceived: .*another number"):
        fb.vmap(chosen)(fb.asarray([1.0, 1.0]), x, signs)


def test_a_draw_in_a_scan_of_examples_is_refused_under_jit() -> None:
    def walk(x: fb.Tensor) -> fb.Tensor:
        return fb.scan(lambda c, _: (c + fb.random.uniform(()), c), x, length=3)[0]

    with pytest.raises(
        fb.UnsupportedError, match=r"not drawn inside a fb\.scan that is itself inside fb\.vmap\nReceived: a draw at"
    ):
        fb.jit(fb.vmap(walk))(fb.zeros(2))
