"""``grad``, ``value_and_grad``, ``vjp``, ``jvp``: values, structures, nesting to any order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core import trees


def f64(values: Any, device: str = "numpy") -> fb.Tensor:
    return fb.asarray(values, dtype=fb.float64, device=device)


def test_gradients_come_back_in_the_structure_of_the_argument(device: str) -> None:
    w = {"a": [f64([1.0, 2.0], device), f64(3.0, device)], "b": (f64([4.0], device),)}
    value, grads = fb.value_and_grad(lambda t: fb.sum(t["a"][0] * t["a"][1]) + fb.sum(t["b"][0] * 0.0))(w)
    assert value.item() == 9.0
    assert grads["a"][0].tolist() == [3.0, 3.0]
    assert grads["a"][1].item() == 3.0
    assert grads["b"][0].tolist() == [0.0]
    assert not w["a"][0].tracked
    assert not value.tracked
    assert not grads["a"][0].tracked


def test_what_is_not_used_has_gradient_zero() -> None:
    grads = fb.grad(lambda t: fb.sum(t[0]))([f64([1.0]), f64([[2.0, 3.0]])])
    assert grads[1].tolist() == [[0.0, 0.0]]


def test_a_parameter_that_two_modules_of_the_argument_share_has_the_gradients_of_all_its_uses() -> None:
    first, second = fb.nn.Linear(2, 2, bias=False), fb.nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    x = fb.ones((1, 2))
    want = fb.grad(lambda m: fb.sum(m(m(x))))(first)[first.weight].tolist()
    assert fb.grad(lambda both: fb.sum(both[1](both[0](x))))((first, second))[second.weight].tolist() == want
    assert fb.grad(lambda both: fb.sum(both["b"](both["a"](x))))({"a": first, "b": first})[first.weight].tolist() == want
    assert not first.weight.tracked


@pytest.mark.parametrize("how", [lambda f: f, fb.jit])
def test_gradients_by_modules_and_tensors_are_read_with_both(how: Any) -> None:
    model, x = fb.nn.Linear(2, 1, bias=False), fb.asarray([[3.0, 5.0]])
    model.weight[...] = fb.asarray([[2.0, 7.0]])

    def loss(tree: Any) -> fb.Tensor:
        return fb.sum(tree["model"](tree["x"]))

    def slopes(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.grad(loss)({"x": x, "model": model})[x] ** 2.0) + fb.sum(x)

    for given in (x, x * 1.0, fb.asarray([[3.0, 5.0]]).require_grad()):
        grads = how(fb.grad(loss))({"x": given, "model": model})
        assert (grads[given].tolist(), grads[model.weight].tolist()) == ([[2.0, 7.0]], [[3.0, 5.0]])
    assert how(fb.grad(slopes))(x).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("how", [lambda f: f, fb.jit])
def test_a_tensor_that_occurs_twice_beside_a_module_has_the_gradient_of_both_places(how: Any) -> None:
    model, x = fb.nn.Linear(2, 1, bias=False), fb.asarray([[3.0, 5.0]])

    def squares(tree: Any) -> fb.Tensor:
        return sum((fb.sum(getattr(v, "weight", v) ** 2.0) for v in tree), fb.asarray(0.0))

    for tree in ((x, model, x), (model, x, x)):
        assert how(fb.grad(squares))(tree)[x].tolist() == [[12.0, 20.0]]
    model.weight[...] = fb.asarray([[2.0, 7.0]])
    for tree in ((model.weight, model), (model, model.weight)):
        assert how(fb.grad(squares))(tree)[model.weight].tolist() == [[8.0, 28.0]]


def test_gradients_are_read_with_tensors() -> None:
    with pytest.raises(fb.OperandError, match=r"gradients are read with a tensor or parameter.*\n.*str 'weight'"):
        fb.grad(lambda m: fb.sum(m.weight))(fb.nn.Linear(2, 1))["weight"]


def test_auxiliary_values_come_along_untracked() -> None:
    (value, aux), grads = fb.value_and_grad(lambda x: (fb.sum(x * x), {"y": x * 2.0, "n": 3}), has_aux=True)(f64([1.0]))
    assert (value.item(), aux["y"].tolist(), aux["n"], grads.tolist()) == (1.0, [2.0], 3, [2.0])
    assert not aux["y"].tracked
    g, aux = fb.grad(lambda x: (fb.sum(x), 5), has_aux=True)(f64([1.0]))
    assert (g.tolist(), aux) == ([1.0], 5)


def test_further_arguments_are_constants() -> None:
    g = fb.grad(lambda x, a, *, b: fb.sum(x * a * b))(f64([1.0, 2.0]), f64([3.0, 4.0]), b=2.0)
    assert g.tolist() == [6.0, 8.0]


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda x: x * x, "returns a scalar"),
        (lambda x: 3.0, "returns a scalar"),
        (lambda x: fb.sum(f64([1.0])), "must depend"),
        (lambda x: fb.sum(fb.astype(fb.floor(x), fb.int64)), "must depend"),
        (lambda x: fb.sum(x.detach()), "must depend"),
        (lambda x: fb.sum(f64([1.0]).require_grad() * 2.0), "must depend"),  # on a tape, but not on that of x
    ],
)
def test_what_has_no_gradient_says_why(fn: Any, match: str) -> None:
    with pytest.raises(fb.GradientError, match=match):
        fb.grad(fn)(f64([1.0, 2.0]))


def test_only_floating_tensors_are_differentiated() -> None:
    with pytest.raises(fb.DTypeError, match="floating"):
        fb.grad(lambda x: fb.sum(x))(fb.asarray([1]))
    with pytest.raises(fb.OperandError, match="what is differentiated"):
        fb.grad(lambda x: x)(1.0)
    with pytest.raises(fb.OperandError):
        fb.grad(lambda x: fb.sum(x["a"]))({"a": f64([1.0]), "n": 3})


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_gradients_nest_to_any_order(order: int, device: str) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        return fb.sin(x) * fb.exp(x * 0.5)

    def scalar_grad(g: Any) -> Any:
        return fb.grad(lambda x: fb.sum(g(x)))

    fn: Any = f
    for _ in range(order):
        fn = scalar_grad(fn)
    x = 0.7
    # the nth derivative of the imaginary part of exp((0.5 + i) x)
    want = ((0.5 + 1j) ** order * np.exp((0.5 + 1j) * x)).imag
    assert math.isclose(fn(f64(x, device)).item(), want, rel_tol=1e-12)


def test_an_inner_gradient_of_a_captured_outer_variable() -> None:
    # d/dx [x · d/dy (x y²)] = d/dx (2 x² y) = 4 x y
    def outer(x: fb.Tensor) -> fb.Tensor:
        return x * fb.grad(lambda y: x * y * y)(f64(3.0))

    assert fb.grad(outer)(f64(2.0)).item() == 24.0


def test_perturbations_are_not_confused() -> None:
    # d/dx [x · d/dy (x + y)] at 1 is 1, not 2
    assert fb.grad(lambda x: x * fb.grad(lambda y: x + y)(f64(1.0)))(f64(1.0)).item() == 1.0


def test_second_derivatives_through_backward_with_create_graph() -> None:
    x = f64([1.0, 2.0]).require_grad()
    g = fb.backward(fb.sum(x * x * x), create_graph=True)[x]
    assert g.tracked
    assert fb.backward(fb.sum(g))[x].tolist() == [6.0, 12.0]


def test_a_hessian_vector_product_both_ways() -> None:
    a = f64([[2.0, 1.0], [1.0, 3.0]])

    def f(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(x * (a @ x)) * 0.5 + fb.sum(fb.exp(x))

    x, v = f64([0.3, -0.2]), f64([1.0, 2.0])
    _, forward = fb.jvp(fb.grad(f), (x,), (v,))
    reverse = fb.grad(lambda y: fb.sum(fb.grad(f)(y) * v))(x)
    want = a.numpy() @ v.numpy() + np.exp(x.numpy()) * v.numpy()
    np.testing.assert_allclose(forward.numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(reverse.numpy(), want, rtol=1e-12)


def test_vjp_and_jvp_are_adjoint(device: str) -> None:
    rng = np.random.default_rng(0)

    def f(x: fb.Tensor, w: fb.Tensor) -> fb.Tensor:
        return fb.softmax(fb.tanh(x @ w))

    x, w = f64(rng.normal(size=(3, 4)), device), f64(rng.normal(size=(4, 5)), device)
    dx, dw = f64(rng.normal(size=(3, 4)), device), f64(rng.normal(size=(4, 5)), device)
    u = f64(rng.normal(size=(3, 5)), device)
    y, dy = fb.jvp(f, (x, w), (dx, dw))
    z, pull = fb.vjp(f, x, w)
    gx, gw = pull(u)
    np.testing.assert_allclose(y.numpy(), z.numpy())
    left = fb.sum(u * dy).item()
    right = (fb.sum(gx * dx) + fb.sum(gw * dw)).item()
    assert math.isclose(left, right, rel_tol=1e-12)
    again = pull(u)
    assert again[0].numpy().tobytes() == gx.numpy().tobytes(), "a pullback may be called many times"


def test_a_jvp_of_what_does_not_depend_is_zero() -> None:
    y, dy = fb.jvp(lambda x: x * 2.0, (f64([1.0]),), (f64([3.0]),))
    assert (y.tolist(), dy.tolist()) == ([2.0], [6.0])
    with pytest.raises(fb.GradientError, match="one tangent for each primal"):
        fb.jvp(lambda x: x, (f64([1.0]),), ())


def test_the_gradient_of_a_leaf_itself_is_one() -> None:
    assert fb.grad(lambda x: x)(f64(3.0)).item() == 1.0
    x = f64(3.0).require_grad()
    assert fb.backward(x)[x].item() == 1.0


# ties, and the points where a derivative is a choice (DESIGN §4.6)


@pytest.mark.parametrize(
    ("fn", "x", "want"),
    [
        (lambda x: fb.max(x), [1.0, 3.0, 3.0], [0.0, 1.0, 0.0]),
        (lambda x: fb.min(x), [2.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
        (lambda x: fb.sum(fb.relu(x)), [-1.0, 0.0, 2.0], [0.0, 0.0, 1.0]),
        (lambda x: fb.sum(fb.abs(x)), [-1.0, 0.0, 2.0], [-1.0, 0.0, 1.0]),
        (lambda x: fb.sum(fb.clip(x, 0.0, 1.0)), [-1.0, 0.0, 0.5, 1.0, 2.0], [0.0, 1.0, 1.0, 1.0, 0.0]),
        (lambda x: fb.sum(fb.maximum(x, 1.0)), [0.0, 1.0, 2.0], [0.0, 1.0, 1.0]),
        (lambda x: fb.sum(fb.maximum(1.0, x)), [0.0, 1.0, 2.0], [0.0, 0.0, 1.0]),
        (lambda x: fb.sum(fb.minimum(x, 1.0)), [0.0, 1.0, 2.0], [1.0, 1.0, 0.0]),
        (lambda x: fb.sum(fb.sort(x)[:2]), [2.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0]),
        (lambda x: fb.sum(fb.pow(x, 0.0)), [0.0, 2.0], [0.0, 0.0]),
        (lambda x: fb.sum(fb.pow(x, 2.0)), [0.0, 2.0], [0.0, 4.0]),
        (lambda x: fb.sum(fb.max_pool2d(x.reshape(1, 1, 2, 2), 2)), [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_ties_have_one_rule_on_every_engine(fn: Any, x: list[float], want: list[float], device: str) -> None:
    assert fb.grad(fn)(f64(x, device)).tolist() == want


@pytest.mark.parametrize(
    ("x", "want"),
    [
        ([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]),
        ([0.0, 3.0, 4.0], [12.0, 0.0, 0.0]),
        ([0.0, 3.0, 0.0], [0.0, 0.0, 0.0]),
        ([5.0], [1.0]),
    ],
)
def test_products_with_zeros_have_exact_gradients(x: list[float], want: list[float], device: str) -> None:
    assert fb.grad(lambda v: fb.prod(v))(f64(x, device)).tolist() == want
    pairs = f64([x, x[::-1]], device)
    assert fb.grad(lambda v: fb.sum(fb.prod(v, axis=1)))(pairs).tolist() == [want, want[::-1]]


def test_second_derivatives_of_a_product_with_zeros() -> None:
    hessian = [fb.grad(lambda v, i=i: fb.grad(lambda w: fb.prod(w))(v)[i])(f64([0.0, 3.0, 4.0])).tolist() for i in range(3)]
    assert hessian == [[0.0, 4.0, 3.0], [4.0, 0.0, 0.0], [3.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: fb.sort(x)[1:] * x[:-1] * x[:-1],
        lambda x: fb.max(x) ** 3.0 + fb.min(x * x),
        lambda x: fb.scatter_add(x, fb.asarray([0, 0, 2], device=x.device), x[:3] * x[:3]) ** 2.0,
        lambda x: fb.take(x * x, fb.asarray([3, 1, 1], device=x.device)) ** 2.0,
        lambda x: fb.max_pool2d((x * x).reshape(1, 1, 2, 2), 2) ** 2.0,
        lambda x: fb.where(x > 0.5, x * x * x, -x),
        lambda x: fb.var(x) ** 2.0,
        lambda x: fb.logsumexp(x),
    ],
    ids=["sort", "max", "scatter_add", "take", "max_pool2d", "where", "var", "logsumexp"],
)
def test_second_derivatives_through_choices_are_right(fn: Any) -> None:
    fb.gradcheck(fn, [f64([0.3, 1.7, -0.8, 0.9])], order=2)


def test_gradients_of_setting_the_same_place_twice() -> None:
    def f(v: fb.Tensor) -> fb.Tensor:
        x = fb.zeros(2, dtype=fb.float64, device=v.device)
        x[fb.asarray([0, 0], device=v.device)] = v
        return fb.sum(x)

    assert fb.grad(f)(f64([1.0, 2.0])).tolist() == [0.0, 1.0], "the last value stays, so it alone has a gradient"


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a @ b,
        lambda a, b: fb.concat([a, b.T]),
        lambda a, b: fb.stack([a, b.T]) * 2.0,
        lambda a, b: fb.tril(a) @ fb.triu(b),
        lambda a, b: fb.tensordot(a, b, axes=2) if a.shape == b.shape else fb.tensordot(a, b, axes=1),
        lambda a, b: fb.gelu(a) + fb.silu(b.T),
        lambda a, b: fb.scaled_dot_product_attention(a, a, a) @ b,
        lambda a, b: fb.std(a, axis=1),
        lambda a, b: a[::-1, 1:] * b.T[:, :2],
    ],
)
def test_compositions_have_right_gradients(fn: Any) -> None:
    rng = np.random.default_rng(1)
    fb.gradcheck(fn, [f64(rng.normal(size=(2, 3))), f64(rng.normal(size=(3, 2)))], order=2)


def test_gradcheck_finds_a_wrong_rule_and_asks_for_float64() -> None:
    from firebrick.testing import faults

    x = f64([0.3, 0.7])
    with faults.wrong_gradient("exp"), pytest.raises(fb.GradientError, match="must equal the slope"):
        fb.gradcheck(fb.exp, [x])
    fb.gradcheck(fb.exp, [x])
    with faults.wrong_gradient("cos"), pytest.raises(fb.GradientError, match="must equal the slope"):
        fb.gradcheck(fb.sin, [x], order=2)
    with pytest.raises(fb.DTypeError, match="needs float64"):
        fb.gradcheck(fb.exp, [fb.ones(2)])


def test_an_error_in_a_pullback_is_not_taken_for_independence() -> None:
    def refused(gradient: fb.Tensor) -> None:
        raise fb.GradientError("a hook of this test", "a gradient", "leave it")

    def f(x: fb.Tensor) -> fb.Tensor:
        y = x * x
        fb.register_hook(y, refused)
        return y * x

    with pytest.raises(fb.GradientError, match="a hook of this test"):
        fb.linearize(f, f64([1.0]))[1](f64([3.0]))


def test_a_leaf_of_ones_own_is_not_taken_apart() -> None:
    tree = {"a": [1, (2, 3)], "b": (4,)}
    leaves, spec = trees.flatten(tree, is_leaf=lambda v: isinstance(v, tuple))
    assert leaves == [1, (2, 3), (4,)]
    assert trees.unflatten(spec, leaves) == tree


def test_a_gradient_runs_no_rule_of_what_its_function_captured() -> None:
    ran = []

    def outer(x: fb.Tensor) -> fb.Tensor:
        captured = fb.exp(x)
        fb.register_hook(captured, lambda g: ran.append(g.shape))
        inner = fb.grad(lambda u: fb.sum(fb.sin(u) * captured))(x * 2.0)
        assert not ran
        return fb.sum(inner)

    x = fb.asarray([0.5, -1.0], dtype=fb.float64)
    want = np.exp(x.numpy()) * (np.cos(2 * x.numpy()) - 2 * np.sin(2 * x.numpy()))
    np.testing.assert_allclose(fb.grad(outer)(x).numpy(), want, rtol=1e-12)
    assert ran == [(2,)]
