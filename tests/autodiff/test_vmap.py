"""``vmap``: axes, trees, modules, generators, effects, and gradients inside and outside of it, against loops and PyTorch."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core import trees
from firebrick.core.hooks import hooks

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(4, 3))
WEIGHT = RNG.normal(size=3)


def f64(values: Any, device: str = "numpy") -> fb.Tensor:
    return fb.asarray(values, dtype=fb.float64, device=device)


def loop(fn: Callable[..., Any], *args: fb.Tensor) -> Any:
    """``fn`` of each example, with the results stacked."""
    rows = [fn(*(x[i] for x in args)) for i in range(args[0].shape[0])]
    return trees.tree_map(lambda *column: fb.stack(list(column)), rows[0], *rows[1:])


def same(got: Any, want: Any, within: float = 1e-12) -> None:
    for a, b in zip(trees.flatten(got)[0], trees.flatten(want)[0], strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=within, atol=within)


def scalar(fn: Callable[..., Any]) -> Callable[..., fb.Tensor]:
    """The sum of squares of what ``fn`` returns."""

    def squared(*args: Any) -> fb.Tensor:
        total = f64(0.0, args[0].device.name)
        for t in trees.flatten(fn(*args))[0]:
            total = total + fb.sum(t * t)
        return total

    return squared


# axes


def test_a_function_of_one_example_runs_once_for_all(device: str) -> None:
    calls = []

    def distance(a: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        calls.append((a.shape, b.shape, a.ndim, len(a)))
        return fb.sqrt(fb.sum((a - b) ** 2.0))

    x, b = f64(ROWS, device), f64(WEIGHT, device)
    found = fb.vmap(distance, in_axes=(0, None))(x, b)
    same(found, loop(lambda a: distance(a, b), x))
    assert calls[0] == ((3,), (3,), 1, 3)
    assert len(calls) == 1 + 4


def test_the_examples_may_lie_along_any_axis_of_arguments_and_results() -> None:
    x = f64(RNG.normal(size=(2, 4, 3)))
    for axis in (0, 1, 2, -1, -2, -3):
        for to in (0, 1, 2, -1, -3):
            found = fb.vmap(lambda t: fb.sin(t) * 2.0, in_axes=axis, out_axes=to)(x)
            want = np.moveaxis(2.0 * np.sin(np.moveaxis(x.numpy(), axis, 0)), 0, to)
            np.testing.assert_array_equal(found.numpy(), want)


def test_axes_follow_the_containers_of_arguments_and_results() -> None:
    x, y, z = f64(ROWS), f64(ROWS.T), f64(WEIGHT)
    fn = lambda t, w: {"sum": t["x"] + t["y"][0], "w": w * 2.0, "both": (t["x"], w)}  # noqa: E731
    found = fb.vmap(fn, in_axes=({"x": 0, "y": [1]}, None), out_axes={"sum": 1, "w": None, "both": (0, None)})(
        {"x": x, "y": [y]}, z
    )
    same(found["sum"], f64((ROWS + ROWS).T))
    same(found["w"], f64(WEIGHT * 2.0))
    same(found["both"], (x, z))


def test_results_that_are_the_same_for_all_examples_are_repeated() -> None:
    x, w = f64(ROWS), f64(WEIGHT)
    one, other = fb.vmap(lambda t: (w, w * 2.0))(x)
    same(one, f64(np.broadcast_to(WEIGHT, (4, 3))))
    same(other, f64(np.broadcast_to(2.0 * WEIGHT, (4, 3))))


def test_values_that_are_no_tensors_and_keyword_arguments_are_the_same_for_all() -> None:
    found = fb.vmap(lambda t, n, *, scale, name: t * n * fb.sum(scale) + len(name))(f64(ROWS), 3, scale=f64(WEIGHT), name="ab")
    same(found, f64(ROWS * 3 * WEIGHT.sum() + 2))


def test_two_results_that_are_one_argument_are_two_handles() -> None:
    x = f64(ROWS)
    a, b = fb.vmap(lambda t: (t, t))(x)
    a[0] = 0.0
    same(b, f64(ROWS))
    same(x, f64(ROWS))


@pytest.mark.parametrize("count", [0, 1])
def test_there_may_be_no_example_or_one(count: int, device: str) -> None:
    x, w = f64(ROWS[:count], device), f64(WEIGHT, device)
    found = fb.vmap(lambda t, w: fb.softmax(t * w, axis=0) @ w, in_axes=(0, None))(x, w)
    assert found.shape == (count,)


def test_calls_nest_over_different_axes(device: str) -> None:
    x, y = f64(ROWS, device), f64(WEIGHT, device)
    table = fb.vmap(fb.vmap(lambda a, b: a * b + fb.sin(a), in_axes=(None, 0)), in_axes=(0, None))(x[:, 0], y)
    same(table, x[:, :1] * y + fb.sin(x[:, :1]))
    inner = fb.vmap(lambda t: fb.vmap(lambda a: a * fb.sum(t))(t) + y)(x)
    same(inner, x * fb.sum(x, axis=1, keepdims=True) + y)


def test_assigning_to_elements_of_an_example_changes_it_alone() -> None:
    def fn(t: fb.Tensor) -> fb.Tensor:
        t[0] = fb.sum(t)
        made = fb.zeros(3, dtype=fb.float64, device="numpy")
        made += t
        made[1:] = t[:2]
        return made

    x = f64(ROWS)
    want = np.stack([[r.sum(), r.sum(), r[1]] for r in ROWS])
    same(fb.vmap(fn)(x), f64(want))
    same(x, f64(ROWS))


# gradients


FUNCTIONS: dict[str, Callable[[fb.Tensor, fb.Tensor], Any]] = {
    "elementwise": lambda w, x: fb.sin(x) * w + fb.exp(w * 0.1),
    "products": lambda w, x: fb.tanh(fb.linalg.outer(w, x) @ x) @ w,
    "reductions": lambda w, x: fb.softmax(x * w, axis=0) + fb.cumulative_sum(x) * fb.max(w * x),
    "indexing": lambda w, x: fb.take(x, fb.asarray([2, 0, 0], device=x.device)) * w[1:2] + fb.sort(x * w)[::-1],
    "checkpoint": lambda w, x: fb.checkpoint(lambda t: fb.sin(t) * fb.exp(t * w))(x),
    "tree": lambda w, x: (x * w, [fb.sum(x) * w]),
    "detach": lambda w, x: x.detach() * w * x + w.detach(),
    "scan": lambda w, x: fb.scan(lambda c, e: (c * e + w[0], fb.sin(c)), fb.sum(x), x),
    "cond": lambda w, x: fb.cond(fb.sum(x) > 0.0, lambda t: t * w, lambda t: fb.sin(t * w), x),
    "linalg": lambda w, x: fb.linalg.solve(fb.linalg.outer(x, x) + fb.eye(3, dtype=fb.float64, device=x.device), w),
}


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_gradients_inside_and_outside_agree_with_a_loop(name: str, jit: bool) -> None:
    fn = scalar(FUNCTIONS[name])
    w, x = f64(WEIGHT), f64(ROWS)
    run: Callable[[Any], Any] = fb.jit if jit else (lambda f: f)
    both = lambda w, x: (fb.grad(fn)(w, x), fb.grad(lambda t: fn(w, t))(x))  # noqa: E731
    want = loop(lambda t: both(w, t), x)
    same(run(lambda w, x: fb.vmap(both, in_axes=(None, 0))(w, x))(w, x), want)

    outside = lambda w, x: fb.sum(fb.vmap(fn, in_axes=(None, 0))(w, x))  # noqa: E731
    same(run(fb.grad(outside))(w, x), fb.sum(want[0], axis=0))
    same(run(fb.grad(lambda x: outside(w, x)))(x), want[1])

    def twice(mapped: Callable[..., Any]) -> Callable[..., fb.Tensor]:
        return lambda w, x: fb.sum(mapped(w, x)[0] ** 2.0) + fb.sum(fb.sin(mapped(w, x)[1]))

    again = twice(lambda w, x: fb.vmap(both, in_axes=(None, 0))(w, x))
    looped = twice(lambda w, x: loop(lambda t: both(w, t), x))
    same(run(fb.grad(again))(w, x), fb.grad(looped)(w, x), 1e-10)
    same(run(fb.grad(lambda x: again(w, x)))(x), fb.grad(lambda x: looped(w, x))(x), 1e-10)


def test_the_result_is_tracked_where_what_was_mapped_is() -> None:
    x, w = f64(ROWS), f64(WEIGHT).require_grad()
    assert not fb.vmap(lambda t: t * 2.0)(x).tracked
    assert not fb.vmap(fb.grad(lambda t: fb.sum(t * t)))(x).tracked
    y = fb.vmap(lambda t: t * w)(x)
    assert y.tracked
    same(fb.backward(fb.sum(y))[w], f64(ROWS.sum(0)))
    assert not fb.vmap(lambda t: t * w.detach())(x).tracked
    with fb.no_grad():
        assert not fb.vmap(lambda t: t * w)(x).tracked


def test_a_pullback_may_be_mapped() -> None:
    x = f64(WEIGHT)
    _, pull = fb.vjp(lambda t: fb.sin(t) * fb.sum(t), x)
    rows = fb.vmap(lambda g: pull(g)[0])(fb.eye(3, dtype=fb.float64, device="numpy"))
    want = np.diag(np.cos(WEIGHT)) * WEIGHT.sum() + np.sin(WEIGHT)[:, None]
    same(rows, f64(want))


def test_the_hessian_of_a_small_network_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    shapes = [(5, 3), (5,), (2, 5), (2,)]
    arrays = [RNG.normal(size=s) for s in shapes]
    point = RNG.normal(size=3)

    def network(lib: Any, t: Any, p: Any) -> Any:
        hidden = lib.tanh(p[0] @ t + p[1])
        return (lib.sin(p[2] @ hidden + p[3]) ** 2.0).sum()

    def hessian(t: fb.Tensor) -> fb.Tensor:
        parameters = [f64(a) for a in arrays]
        slope = fb.grad(lambda t: network(fb, t, parameters))
        return fb.vmap(lambda v: fb.jvp(slope, (t,), (v,))[1])(fb.eye(3, dtype=fb.float64, device="numpy"))

    parameters = [torch.tensor(a) for a in arrays]
    want = torch.func.hessian(lambda t: network(torch, t, parameters))(torch.tensor(point))
    same(hessian(f64(point)), f64(want.numpy()), 1e-10)
    same(fb.jit(hessian)(f64(point)), f64(want.numpy()), 1e-10)


# modules


def _networks(device: str) -> tuple[fb.nn.Module, Any]:
    torch = pytest.importorskip("torch")
    with fb.use_device(device):
        nn, kind = fb.nn, {"dtype": fb.float64}
        ours = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, **kind), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, groups=2, **kind), nn.Tanh(),
            nn.Flatten(), nn.Linear(24, 5, **kind),
        )  # fmt: skip
    nn = torch.nn
    theirs = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, groups=2), nn.Tanh(), nn.Flatten(),
        nn.Linear(24, 5),
    ).double()  # fmt: skip
    with torch.no_grad():
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            q.copy_(torch.tensor(p.numpy()))
    return ours, theirs


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_gradients_of_each_example_of_a_convolutional_network_are_those_of_torch(jit: bool) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = _networks("cpu")
    images, labels = RNG.normal(size=(6, 1, 8, 8)), RNG.integers(0, 5, 6)

    def loss(model: fb.nn.Module, x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return fb.cross_entropy(model(x[None]), y[None])

    def per_example(x: fb.Tensor, y: fb.Tensor) -> Any:
        return fb.vmap(fb.grad(loss), in_axes=(None, 0, 0))(ours, x, y)

    found = (fb.jit(per_example) if jit else per_example)(fb.asarray(images, device="cpu"), fb.asarray(labels, device="cpu"))
    parameters = {k: v.detach() for k, v in theirs.named_parameters()}

    def their_loss(p: Any, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(torch.func.functional_call(theirs, p, (x[None],)), y[None])

    mapped = torch.func.vmap(torch.func.grad(their_loss), in_dims=(None, 0, 0))
    want = mapped(parameters, torch.tensor(images), torch.tensor(labels))
    for p, name in zip(ours.parameters(), parameters, strict=True):
        same(found[p], fb.asarray(want[name].numpy(), device="cpu"), 1e-10)
        assert not p.tracked


def test_an_axis_of_a_module_is_that_of_all_its_parameters_and_they_are_as_before_afterwards() -> None:
    members = [fb.nn.Linear(3, 2, dtype=fb.float64, device="numpy") for _ in range(4)]
    model = fb.nn.Linear(3, 2, dtype=fb.float64, device="numpy")
    model.weight = fb.nn.Parameter(fb.stack([m.weight for m in members]))
    model.bias = fb.nn.Parameter(fb.stack([m.bias for m in members]))
    x = f64(ROWS)
    want = fb.stack([m(x) for m in members])
    same(fb.vmap(lambda m, x: m(x), in_axes=(0, None))(model, x), want)
    assert model.weight.shape == (4, 2, 3)
    losses = lambda m, x: fb.sum(m(x) ** 2.0)  # noqa: E731
    inside = fb.vmap(fb.grad(losses), in_axes=(0, None))(model, x)
    outside = fb.grad(lambda m: fb.sum(fb.vmap(losses, in_axes=(0, None))(m, x)))(model)
    for p, name in ((model.weight, "weight"), (model.bias, "bias")):
        each = fb.stack([fb.grad(losses)(m, x)[getattr(m, name)] for m in members])
        same(inside[p], each)
        same(outside[p], each)
    with pytest.raises(ZeroDivisionError):
        fb.vmap(lambda m, x: 1 / 0, in_axes=(0, None))(model, x)
    assert (model.weight.shape, model.weight.tracked) == ((4, 2, 3), False)


def test_running_statistics_are_an_effect_that_is_refused_and_undone() -> None:
    norm, x = fb.nn.BatchNorm1d(3, device="numpy"), fb.asarray(RNG.normal(size=(4, 5, 3)).astype(np.float32), device="numpy")
    with pytest.raises(fb.TraceError, match=r"changes a tensor that existed before .*\nReceived: running_mean: float32"):
        fb.vmap(norm)(x)
    assert norm.running_mean.tolist() == [0.0, 0.0, 0.0]
    norm.eval()
    same(fb.vmap(norm)(x), norm(x.reshape(20, 3)).reshape(4, 5, 3), 1e-6)


# random numbers


def test_the_draw_of_an_example_is_its_row_of_one_draw(device: str) -> None:
    x = fb.asarray(np.zeros((4, 3), np.float32), device=device)
    whole = fb.random.Generator(7)
    want = [whole.uniform((4, 3), device=device), whole.integers((4,), low=0, high=9, device=device)]
    for run in (lambda f: f, fb.jit):
        g = fb.random.Generator(7)

        def draws(t: fb.Tensor, g: fb.random.Generator = g) -> tuple[fb.Tensor, fb.Tensor]:
            return t + g.uniform((3,), device=device), g.integers((), low=0, high=9, device=device)

        same(run(fb.vmap(draws))(x), (want[0], want[1]))
        assert g.state()["counter"][0] == 2


def test_generators_are_arguments_and_keys_differ_between_examples() -> None:
    g = fb.random.Generator(3)
    keys = fb.vmap(lambda t, g: g.key(device="numpy"))(f64(ROWS), g)
    assert keys.shape == (4, 4)
    assert len({tuple(k) for k in keys.tolist()}) == 4
    later = fb.random.Generator(3)
    assert keys.tolist() == [later.key(device="numpy").tolist() for _ in range(4)]
    both = fb.vmap(fb.vmap(lambda t: g.permutation(5, device="numpy")))(f64(ROWS))
    assert both.shape == (4, 3, 5)
    assert (np.sort(both.numpy(), -1) == np.arange(5)).all()
    assert len({tuple(r) for r in both.numpy().reshape(12, 5).tolist()}) > 6


def test_each_example_drops_others_and_a_checkpoint_draws_the_same_again() -> None:
    ones = fb.ones((4, 50), device="numpy")
    drop = fb.nn.Dropout(0.5, generator=fb.random.Generator(1))
    assert len({tuple(r) for r in fb.vmap(drop)(ones).tolist()}) == 4
    g = fb.random.Generator(5)
    noisy = fb.checkpoint(lambda t: fb.sin(t) * g.uniform((3,), device="numpy"))
    x = fb.asarray(ROWS.astype(np.float32), device="numpy")
    found = fb.grad(lambda t: fb.sum(fb.vmap(noisy)(t)))(x)
    same(found, fb.cos(x) * fb.random.Generator(5).uniform((4, 3), device="numpy"), 1e-6)


# effects and errors


def test_what_a_function_keeps_has_no_value_outside_of_it() -> None:
    kept: list[fb.Tensor] = []
    fb.vmap(lambda t: (kept.append(t * 2.0), t)[1])(f64(ROWS))
    assert "one of 4 examples of <lambda>" in repr(kept[0])
    for use in (lambda: kept[0].numpy(), lambda: (kept[0] + 1.0).tolist(), lambda: fb.jit(lambda t: t + kept[0])(f64(WEIGHT))):
        with pytest.raises(fb.TraceError, match="a tensor of one example of fb"):
            use()


def test_no_level_is_left_and_operations_are_fast_again() -> None:
    gc.collect()
    before = dict(hooks.levels)
    fb.vmap(lambda t: fb.vmap(lambda a: a * 2.0)(t))(f64(ROWS))
    with pytest.raises(ZeroDivisionError):
        fb.vmap(lambda t: 1 / 0)(f64(ROWS))
    gc.collect()
    assert hooks.levels == before


@pytest.mark.parametrize(
    "change",
    [
        lambda state, t: state.__iadd__(t),
        lambda state, t: state.__setitem__(0, fb.sum(t)),
        lambda state, t: state.__iadd__(1.0),
        lambda state, t: fb.multiply(t, 2.0, out=state),
    ],
    ids=["of the example", "an element", "of no example", "out"],
)
def test_a_change_of_a_tensor_that_was_there_is_refused_and_undone(change: Callable[..., Any]) -> None:
    state = f64(WEIGHT)
    state.label = "state"
    with pytest.raises(fb.TraceError, match=r"changes a tensor that existed before it, .*\nReceived: state: float64"):
        fb.vmap(lambda t: (change(state, t), t * 2.0)[1])(f64(ROWS))
    same(state, f64(WEIGHT))
    with pytest.raises(ZeroDivisionError):
        fb.vmap(lambda t: (change(state, t), 1 / 0)[1])(f64(ROWS))
    same(state, f64(WEIGHT))


def test_anomalies_are_found_in_any_example_inside_and_outside() -> None:
    x = f64(ROWS)
    with fb.detect_anomaly():
        same(fb.vmap(fb.grad(lambda t: fb.sum(t * t)))(x), x * 2.0)
        with pytest.raises(fb.GradientError, match="log made the first NaN"):
            fb.vmap(fb.grad(lambda t: fb.sum(fb.log(t))))(x)
        with pytest.raises(fb.GradientError, match="log made the first NaN"):
            fb.grad(lambda x: fb.sum(fb.vmap(fb.log)(x)))(x)


def test_what_is_the_same_for_all_examples_may_be_read() -> None:
    loss = lambda w, t: fb.sum(w * t) if fb.sum(w).item() > 0.0 else fb.sum(t)  # noqa: E731
    w = f64(np.abs(WEIGHT))
    same(fb.vmap(fb.grad(loss), in_axes=(None, 0))(w, f64(ROWS)), f64(ROWS))


def test_threads_map_functions_at_the_same_time() -> None:
    found: dict[int, Any] = {}
    x = f64(ROWS)

    def work(k: int) -> None:
        for _ in range(20):
            found[k] = fb.vmap(lambda t: fb.grad(lambda u: fb.sum(fb.sin(u) * float(k)))(t))(x)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        same(found[k], fb.cos(x) * float(k))


X, W = f64(ROWS), f64(WEIGHT)
IDENTITY: Callable[..., Any] = lambda *t: t[0]  # noqa: E731
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no function": (lambda: fb.vmap(3), "vmap takes a function of one example\nReceived: int"),  # type: ignore[arg-type]
    "numbers differ": (lambda: fb.vmap(IDENTITY)(X, W), "same number of examples\nReceived: 4 in args.0.: .*, 3 in"),
    "nothing mapped": (lambda: fb.vmap(IDENTITY, in_axes=None)(X), "has an axis of examples\nReceived: in_axes=None"),
    "no tensor": (lambda: fb.vmap(IDENTITY)(3), "has an axis of examples"),
    "NumPy": (lambda: fb.vmap(IDENTITY)(X, ROWS), r"vmap: args\[1\] must be a Firebrick tensor\nReceived: args\[1\]: a NumPy"),
    "no such axis": (lambda: fb.vmap(IDENTITY, in_axes=2)(X), "axis 2 for an argument of <lambda>, which has 2 axes"),
    "a scalar": (lambda: fb.vmap(IDENTITY)(fb.sum(X)), "axis 0 for an argument of <lambda>, which has 0 axes"),
    "too many axes": (lambda: fb.vmap(IDENTITY, in_axes=(0, 0))(X), "in_axes has the structure.*\n.*2 entries"),
    "another structure": (lambda: fb.vmap(IDENTITY, in_axes=({"a": 0},))({"b": X}), "in_axes has the structure"),
    "axes are no ints": (lambda: fb.vmap(IDENTITY, in_axes="0")(X), "in_axes holds ints, and None"),  # type: ignore[arg-type]
    "an axis is a bool of NumPy": (lambda: fb.vmap(IDENTITY, in_axes=np.bool_(True))(X), "in_axes holds ints, and None"),
    "an axis is a bool": (lambda: fb.vmap(IDENTITY, in_axes=True)(X), "in_axes holds ints, and None"),
    "differs": (lambda: fb.vmap(IDENTITY, out_axes=None)(X), "out_axes is None for a result of <lambda> that differs"),
    "no such result axis": (lambda: fb.vmap(IDENTITY, out_axes=2)(X), "out_axes gives axis 2 for a result of <lambda>"),
    "results differ": (lambda: fb.vmap(IDENTITY, out_axes=(0, 0))(X), "out_axes has the structure of the results"),
    "no tensor returned": (lambda: fb.vmap(lambda t: 3)(X), "returns tensors\nReceived: result: int 3"),
    "if": (lambda: fb.vmap(lambda t: t if fb.sum(t) > 0 else -t)(X), "if, while, and, or, not needs one value, and"),
    "item": (lambda: fb.vmap(lambda t: fb.sum(t).item())(X), r"item\(\) needs one value"),
    "numpy": (lambda: fb.vmap(lambda t: t.numpy())(X), r"numpy\(\) needs one value"),
    "range": (lambda: fb.vmap(lambda t: range(fb.sum(fb.astype(t, fb.int64))))(X), "a size, an index or range"),
    "another argument": (lambda: fb.vmap(IDENTITY, in_dims=0), "in_axes"),  # type: ignore[call-arg]
    "shapes": (lambda: fb.vmap(lambda t: t + fb.ones(2, dtype=fb.float64, device="numpy"))(X), r"x1: float64\[3\]"),
    "labels": (lambda: fb.vmap(lambda t, y: fb.cross_entropy(t, y))(X, fb.asarray([0, 1, 3, 2], device="numpy")), r"\[0, 3\)"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_mistakes_are_answered_by_what_was_expected(name: str) -> None:
    call, text = WRONG[name]
    with pytest.raises((fb.FirebrickError, TypeError), match=text):
        call()


def test_a_tensor_that_the_function_makes_may_be_changed_although_the_tape_holds_it() -> None:
    def loss(x: fb.Tensor) -> fb.Tensor:
        made = x * 1.0
        made[0] = 3.0
        return fb.sum(fb.checkpoint(lambda v: fb.exp(v) * fb.sum(made))(x))  # which captures it

    rows = fb.asarray([[0.5, 1.0], [0.2, -1.0]])
    found = fb.grad(lambda rows: fb.sum(fb.vmap(loss)(rows)))(rows)
    assert fb.all(fb.abs(found - fb.stack([fb.grad(loss)(row) for row in rows])) < 1e-5)


def test_a_parameter_of_an_ensemble_that_the_function_changes_is_refused() -> None:
    model = fb.nn.Linear(2, 2)
    model.weight = fb.nn.Parameter(fb.ones((3, 2, 2)))
    model.bias = fb.nn.Parameter(fb.ones((3, 2)))

    def changing(m: fb.nn.Linear, x: fb.Tensor) -> fb.Tensor:
        m.bias += 1.0
        return m(x)

    with pytest.raises(fb.StateChangedError, match="changes a tensor that existed before it"):
        fb.vmap(changing, in_axes=(0, None))(model, fb.ones(2))
    assert model.bias.tolist() == [[1.0, 1.0]] * 3


def _adds_to_captured(a: fb.Tensor, captured: fb.Tensor) -> fb.Tensor:
    captured += a
    return captured


def _assigns_to_captured(a: fb.Tensor, captured: fb.Tensor) -> fb.Tensor:
    captured[0] = a[0]
    return captured


@pytest.mark.parametrize("change", [_adds_to_captured, _assigns_to_captured])
@pytest.mark.parametrize("given", ["captured", "argument that is the same for all"])
def test_a_tensor_that_existed_before_is_not_changed_by_a_function_that_returns_it(change: Any, given: str) -> None:
    kept = fb.zeros(4)
    call = fb.vmap(lambda a: change(a, kept)) if given == "captured" else fb.vmap(change, in_axes=(0, None))
    arguments = (fb.ones((3, 4)),) if given == "captured" else (fb.ones((3, 4)), kept)
    with pytest.raises(fb.StateChangedError, match="changes a tensor that existed before it"):
        call(*arguments)
    assert kept.tolist() == [0.0] * 4


def test_a_tensor_that_the_function_makes_in_a_cycle_of_references_is_changed_and_returned() -> None:
    class Node:
        me: Any
        made: Any

    def filled(a: fb.Tensor) -> fb.Tensor:
        node = Node()
        node.me, node.made = node, fb.zeros(2)
        node.made[0] = a[0]
        return node.made

    assert fb.vmap(filled)(fb.asarray([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[1.0, 0.0], [3.0, 0.0]]


def test_a_result_of_the_wrong_kind_leaves_captured_tensors_as_they_were() -> None:
    kept = fb.zeros(2)

    def wrong(a: fb.Tensor) -> str:
        _adds_to_captured(a, kept)
        return "text"

    with pytest.raises(fb.OperandError, match="returns tensors"):
        fb.vmap(wrong)(fb.ones((3, 2)))
    assert kept.tolist() == [0.0, 0.0]


def test_a_result_that_is_no_tensor_is_returned_where_out_axes_has_none() -> None:
    found, label = fb.vmap(lambda x: (x * 2.0, "label"), out_axes=(0, None))(fb.asarray([1.0, 2.0]))
    assert (found.tolist(), label) == ([2.0, 4.0], "label")
