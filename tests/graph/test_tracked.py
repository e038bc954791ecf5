"""Compiled functions on tracked tensors: gradients through them, inside them and of them are eager's, in float64."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb

pytestmark = pytest.mark.usefixtures("nothing_left")

ENGINES = ["cpu", "numpy", "torch:cpu"]
TOLERANCE = 1e-12


@pytest.fixture(params=ENGINES)
def place(request) -> str:
    if request.param.startswith("torch"):
        pytest.importorskip("torch")
    return request.param


def data(place: str, *shape: int, seed: int = 0) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(seed).normal(size=shape), device=place)


def close(a, b) -> None:
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            close(one, other)
        return
    assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
    scale = max(1.0, float(np.abs(b.numpy()).max(initial=0.0)))
    assert np.abs(a.numpy() - b.numpy()).max(initial=0.0) <= TOLERANCE * scale


W = np.random.default_rng(9).normal(size=(3, 3))


def scalar(place: str):
    w = fb.asarray(W, device=place)

    def f(x: fb.Tensor) -> fb.Tensor:
        y = fb.tanh(fb.matmul(x, w)) * fb.exp(-(x**2.0))
        return fb.sum(y * fb.log_softmax(x, axis=-1)) + fb.mean(x) ** 3.0

    return f


def test_the_value_and_gradient_of_a_compiled_function(place) -> None:
    f, x = scalar(place), data(place, 2, 3)
    j = fb.jit(f)
    for _ in range(2):
        value, grad = fb.value_and_grad(j)(x)
        close([value, grad], list(fb.value_and_grad(f)(x)))
    assert j.traces == 1


@pytest.mark.parametrize(
    "name", ["grad(jit f)", "jit(grad f)", "jit(grad(jit f))", "grad of sum of jit(grad f)", "grad of sum of grad(jit f)"]
)
def test_orders_of_jit_and_grad(place, name) -> None:
    f, x = scalar(place), data(place, 2, 3)

    def of(fn, j):
        g = fb.grad(j(fn)) if name in ("grad(jit f)", "jit(grad(jit f))", "grad of sum of grad(jit f)") else fb.grad(fn)
        if name in ("jit(grad f)", "jit(grad(jit f))", "grad of sum of jit(grad f)"):
            g = j(g)
        return fb.grad(lambda x: fb.sum(g(x) ** 2.0)) if name.startswith("grad of") else g

    compiled, eager = of(f, fb.jit), of(f, lambda fn: fn)
    for seed in (0, 1):
        x = data(place, 2, 3, seed=seed)
        close(compiled(x), eager(x))


def test_a_third_derivative_through_a_compiled_function(place) -> None:
    j = fb.jit(lambda x: fb.sum(fb.sin(x) * x**3.0))
    x = data(place, 4)

    def third(f):
        first = fb.grad(f)
        second = fb.grad(lambda x: fb.sum(first(x)))
        return fb.grad(lambda x: fb.sum(second(x)))

    close(third(j)(x), third(j.fn)(x))
    close(fb.jit(third(j.fn))(x), third(j.fn)(x))
    close(fb.jit(third(j))(x), third(j.fn)(x))


def test_a_hessian_vector_product(place) -> None:
    f, x, v = scalar(place), data(place, 2, 3), data(place, 2, 3, seed=5)

    def hvp(f):
        return lambda x, v: fb.grad(lambda x: fb.sum(fb.grad(f)(x) * v))(x)

    expected = hvp(f)(x, v)
    close(hvp(fb.jit(f))(x, v), expected)
    close(fb.jit(hvp(f))(x, v), expected)
    close(fb.jit(hvp(fb.jit(f)))(x, v), expected)


def test_vjp_and_jvp_through_and_inside(place) -> None:
    w = fb.asarray(W, device=place)

    def f(x: fb.Tensor) -> fb.Tensor:
        return fb.sin(fb.matmul(x, w)) * x

    x, v = data(place, 2, 3), data(place, 2, 3, seed=3)
    value, pull = fb.vjp(f, x)
    compiled, pull_compiled = fb.vjp(fb.jit(f), x)
    close([compiled, *pull_compiled(v)], [value, *pull(v)])
    close(list(fb.jvp(fb.jit(f), (x,), (v,))), list(fb.jvp(f, (x,), (v,))))
    close(list(fb.jit(lambda x, v: fb.jvp(f, (x,), (v,)))(x, v)), list(fb.jvp(f, (x,), (v,))))
    close(fb.jit(lambda x, v: fb.vjp(f, x)[1](v)[0])(x, v), pull(v)[0])


def test_several_results_of_which_some_are_tracked(place) -> None:
    def f(x: fb.Tensor, y: fb.Tensor):
        a = x * y
        return a, a, x, fb.argmax(x), fb.sum(y) * 2.0, a.detach() * y, {"y": fb.exp(y)}

    def loss(run):
        def of(x):
            a, again, same, index, other, cut, more = run(x, y)
            assert a is again
            assert same is x
            assert not index.tracked
            assert not other.tracked
            return fb.sum(a) + fb.sum(again * 2.0) + fb.sum(same) + fb.sum(cut) + fb.sum(more["y"])

        return of

    x, y = data(place, 3), data(place, 3, seed=1)
    j = fb.jit(f)
    for _ in range(2):
        close(fb.grad(loss(j))(x), fb.grad(loss(f))(x))


def test_which_tensors_are_tracked_is_part_of_the_key(place) -> None:
    f = fb.jit(lambda x, y: fb.sum(x * x * y))
    x, y = data(place, 3), data(place, 3, seed=1)
    for _ in range(2):
        close(fb.grad(lambda x: f(x, y))(x), 2.0 * x * y)
        close(fb.grad(lambda y: f(x, y))(y), x * x)
        a, b = fb.grad(lambda p: f(*p))([x, y])
        close([a, b], [2.0 * x * y, x * x])
        f(x, y)
    assert f.traces == 4


def test_a_captured_parameter_takes_a_gradient(place) -> None:
    model = fb.nn.Linear(3, 2).astype(fb.float64).to(place)
    x = data(place, 4, 3)

    @fb.jit
    def forward(x: fb.Tensor) -> fb.Tensor:
        return fb.tanh(model(x))

    _, grads = fb.value_and_grad(lambda m, x: fb.sum(forward(x)))(model, x)
    _, expected = fb.value_and_grad(lambda m, x: fb.sum(fb.tanh(m(x))))(model, x)
    for p in model.parameters():
        close(grads[p], expected[p])


def test_backward_of_a_leaf_and_twice_over_one_graph(place) -> None:
    f = fb.jit(lambda x: fb.sum(x**3.0))
    x = data(place, 3).require_grad()
    loss = f(x)
    first = fb.backward(loss, retain_graph=True)[x]
    close(first, 3.0 * x.detach() ** 2.0)
    close(fb.backward(loss)[x], first)
    a, b = f(x), f(x * 2.0)
    close(fb.backward(a + b)[x], 3.0 * x.detach() ** 2.0 + 2.0 * 3.0 * (2.0 * x.detach()) ** 2.0)


def test_detach_and_no_grad_inside(place) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        with fb.no_grad():
            scale = fb.sum(x)
        return fb.sum(x * x.detach() * scale + fb.exp(x))

    x = data(place, 3)
    j = fb.jit(f)
    close(fb.grad(j)(x), fb.grad(f)(x))
    second = lambda f: fb.grad(lambda x: fb.sum(fb.grad(f)(x) ** 2.0))  # noqa: E731
    close(second(j)(x), second(f)(x))
    with fb.no_grad():
        assert not j(x.detach().require_grad()).tracked


def test_a_hook_inside_acts_on_the_gradient(place) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        y = x * 2.0
        if y.tracked:
            fb.register_hook(y, lambda g: g * 10.0)
        return fb.sum(y * y)

    x = data(place, 3)
    close(fb.grad(fb.jit(f))(x), fb.grad(f)(x))
    close(fb.jit(fb.grad(f))(x), fb.grad(f)(x))
    leaf = data(place, 3).require_grad()
    fb.register_hook(leaf, lambda g: g * 3.0)
    close(fb.backward(fb.jit(lambda x: fb.sum(x * x))(leaf))[leaf], 6.0 * leaf.detach())


@pytest.mark.parametrize("strategy", ["none", "balanced", "budget"])
def test_checkpointing_strategies_give_the_same_gradients(place, strategy) -> None:
    f, x = scalar(place), data(place, 2, 3)
    expected = fb.grad(f)(x)
    with fb.checkpointing(budget=64) if strategy == "budget" else fb.checkpointing(strategy):
        close(fb.grad(fb.jit(f))(x), expected)
        close(fb.jit(fb.grad(f))(x), expected)
    close(fb.grad(fb.jit(f))(x), expected)


def test_a_checkpoint_is_computed_again_in_the_backward_part(place) -> None:
    w = fb.asarray(W, device=place)

    def block(x: fb.Tensor) -> fb.Tensor:
        return fb.tanh(fb.matmul(fb.sin(x), w))

    def f(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.checkpoint(block)(fb.checkpoint(block)(x)) ** 2.0)

    x = data(place, 2, 3)
    gradient = fb.jit(fb.grad(f))
    close(gradient(x), fb.grad(f)(x))
    plain = fb.jit(fb.grad(lambda x: fb.sum(block(block(x)) ** 2.0)))
    close(plain(x), gradient(x))
    tanhs = [sum(n.op.name == "tanh" for n in j.graph(x).nodes) for j in (plain, gradient)]
    assert tanhs[1] > tanhs[0] == 2  # made again, not merged with what was there
    close(fb.grad(fb.jit(f))(x), fb.grad(f)(x))


def test_the_draws_of_a_checkpoint_repeat(place) -> None:
    def build(seed):
        drop = fb.nn.Dropout(0.5, seed=seed)

        def f(x: fb.Tensor) -> fb.Tensor:
            return fb.sum(fb.checkpoint(lambda x: drop(fb.sin(x)) ** 2.0)(x))

        return f

    x = data(place, 8)
    eager, inside, around = build(1), build(1), build(1)
    compiled_inside, compiled_around = fb.jit(inside), fb.jit(fb.grad(around))
    seen = []
    for _ in range(3):
        expected = fb.grad(eager)(x)
        close(fb.grad(compiled_inside)(x), expected)
        close(compiled_around(x), expected)
        seen.append(expected.tolist())
    assert seen[0] != seen[1]


def test_dropout_through_a_second_derivative_uses_one_mask(place) -> None:
    drop_a, drop_b = fb.nn.Dropout(0.5, seed=3), fb.nn.Dropout(0.5, seed=3)
    second = lambda f: fb.grad(lambda x: fb.sum(fb.grad(f)(x) ** 2.0))  # noqa: E731
    x = data(place, 8)
    j = fb.jit(lambda x: fb.sum(drop_a(x) ** 3.0))
    for _ in range(2):
        close(second(j)(x), second(lambda x: fb.sum(drop_b(x) ** 3.0))(x))


def test_state_that_a_tracked_call_changes_is_changed_once(place) -> None:
    norm_a, norm_b = (fb.nn.BatchNorm1d(3).astype(fb.float64).to(place) for _ in range(2))
    x = data(place, 4, 3)
    j = fb.jit(lambda x: fb.sum(norm_a(x) ** 3.0))
    for _ in range(2):
        close(fb.grad(j)(x), fb.grad(lambda x: fb.sum(norm_b(x) ** 3.0))(x))
        for (_, a), (_, b) in zip(norm_a.named_buffers(), norm_b.named_buffers(), strict=True):
            close(a, b) if a.dtype is fb.float64 else None
            assert a.tolist() == pytest.approx(b.tolist())


def test_state_changed_by_a_call_that_the_backward_pass_needs(place) -> None:
    """The backward pass looks at values as they were when the call was made."""
    state = data(place, 3, seed=2)

    def f(x: fb.Tensor, s: fb.Tensor) -> fb.Tensor:
        y = fb.sum(x * s * s)
        s += 1.0
        return y

    j = fb.jit(f)
    a, b = state.detach(), state.detach()
    x = data(place, 3).require_grad()
    first, second = j(x, a), j(x, a)
    f1, f2 = f(x, b), f(x, b)
    a += 100.0
    b += 100.0
    close(fb.backward(first + second)[x], fb.backward(f1 + f2)[x])
    close(a, b)


def test_a_tracked_argument_assigned_inside_raises_or_is_eagers(place) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        x = x * 2.0
        x += 1.0
        return fb.sum(x * x)

    x = data(place, 3)
    close(fb.grad(fb.jit(f))(x), fb.grad(f)(x))


def test_complex_values(place) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        z = fb.exp(fb.astype(x, fb.complex128) * 1j)
        return fb.sum(fb.real(z * z) + fb.abs(z + 2.0))

    x = data(place, 3)
    close(fb.grad(fb.jit(f))(x), fb.grad(f)(x))
    close(fb.jit(fb.grad(f))(x), fb.grad(f)(x))


def test_the_result_may_be_the_tracked_argument_or_not_depend_on_it(place) -> None:
    x, y = data(place, 3), data(place, 3, seed=1)
    close(fb.grad(lambda x: fb.sum(fb.jit(lambda x: x)(x) * 2.0))(x), 0.0 * x + 2.0)
    leaf = data(place, 3).require_grad()
    assert not fb.jit(lambda x: y + 1.0)(leaf).tracked
    assert leaf.tracked
    close(fb.jit(lambda x: fb.reshape(x, (3, 1)))(leaf).detach(), fb.reshape(leaf.detach(), (3, 1)))


def test_gradients_from_a_compiled_function_drive_an_optimizer_outside(place) -> None:
    def run(j):
        fb.random.seed(0)
        model = fb.nn.Linear(3, 2).astype(fb.float64).to(place)
        optimizer = fb.optim.Adam(model, lr=0.01)
        step = j(fb.value_and_grad(lambda m, x: fb.sum(m(x) ** 2.0)))
        for seed in range(3):
            _, grads = step(model, data(place, 4, 3, seed=seed))
            optimizer.update(model, grads)
        return [p.detach() for p in model.parameters()]

    close(run(fb.jit), run(lambda f: f))
