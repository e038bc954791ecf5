"""Forward mode, Jacobians and Hessians: against the gradient rules, closed forms and PyTorch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core import trees
from firebrick.core.hooks import hooks
from firebrick.ops import OPS
from firebrick.testing import check_tangents

RNG = np.random.default_rng(1)
POINT, DIRECTION = RNG.normal(size=4), RNG.normal(size=4)
BY_GRADIENT_RULE = {"abs", "cumulative_logsumexp", "scatter_reduce"}
"""Ops that have a gradient and, for some operands at least, no rule of forward mode; ``abs`` of complex numbers."""


def f64(values: Any, device: str = "numpy") -> fb.Tensor:
    return fb.asarray(values, dtype=fb.float64, device=device)


def same(got: Any, want: Any, within: float = 1e-12) -> None:
    for a, b in zip(trees.flatten(got)[0], trees.flatten(want)[0], strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=within, atol=within)


def test_tangents_of_every_op_are_those_of_its_gradient_rule(seed: int) -> None:
    report = check_tangents("numpy", seed=seed)
    assert report.ok, report


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"])
def test_tangents_of_every_op_on_every_engine_in_every_dtype(device: str, dtype: str, seed: int) -> None:
    report = check_tangents(device, dtypes=[dtype], seed=seed)
    assert not report.failures, report


def test_ops_without_a_rule_are_those_that_are_known(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    from firebrick.autodiff import forward

    asked, plain = set(), forward._by_double_vjp
    monkeypatch.setattr(forward, "_by_double_vjp", lambda level, op, *rest: (asked.add(op.name), plain(level, op, *rest))[1])
    check_tangents("numpy", [n for n in OPS if n in BY_GRADIENT_RULE or OPS[n].jvp is None], seed=seed)
    assert asked <= BY_GRADIENT_RULE
    assert {n for n, op in OPS.items() if op.jvp is None and op.differentiable} <= BY_GRADIENT_RULE


def test_a_wrong_rule_is_seen() -> None:
    op = OPS["tanh"]
    right = op.jvp
    object.__setattr__(op, "jvp", lambda r: r.tangents[0] * 0.5)
    try:
        assert not check_tangents("numpy", ["tanh"]).ok
    finally:
        object.__setattr__(op, "jvp", right)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda r: 3.0, "jvp rule of tanh returns tensors\nReceived: float"),
        (lambda r: r.tangents[0][:2], r"jvp rule of tanh must return float64\[4\]\nReceived: float64\[2\]"),
        (lambda r: (None, None), "returns a tangent, or None, for each of 1 results\nReceived: 2"),
    ],
)
def test_what_a_rule_returns_is_checked(rule: Callable[..., Any], text: str) -> None:
    op = OPS["tanh"]
    right = op.jvp
    object.__setattr__(op, "jvp", rule)
    try:
        with pytest.raises(fb.GradientError, match=text):
            fb.jvp(fb.tanh, (f64(POINT),), (f64(DIRECTION),))
    finally:
        object.__setattr__(op, "jvp", right)


FUNCTIONS: dict[str, Callable[[fb.Tensor], Any]] = {
    "elementwise": lambda x: fb.sin(x) * fb.exp(x) + x,
    "several results": lambda x: {"a": fb.sum(x * x), "b": [x[1:] * 2.0, fb.sort(x)]},
    "products": lambda x: fb.softmax(fb.linalg.outer(x, x) @ x, axis=0),
    "python": lambda x: x * 2.0 if fb.sum(x).item() > 0.0 else fb.sin(x),
    "scan": lambda x: fb.scan(lambda c, e: (c * e + 1.0, fb.sin(c)), fb.sum(x), x),
    "cond": lambda x: fb.cond(fb.sum(x) > 0.0, lambda t: t * t, fb.sin, x),
    "checkpoint": lambda x: fb.checkpoint(lambda t: fb.sin(t) * t)(x),
    "a gradient": lambda x: fb.grad(lambda t: fb.sum(fb.sin(t) * t))(x),
    "a mapped function": lambda x: fb.vmap(lambda t: t * fb.sum(x) + t * t)(x),
    "no rule": lambda x: fb.linalg.expm(fb.linalg.outer(x, x) * 0.1),
    "a jvp": lambda x: fb.jvp(lambda t: fb.sin(t) * t, (x,), (x,))[1],
    "no dependence": lambda x: f64([1.0, 2.0]),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_jvp_and_linearize_agree_with_the_transposed_pullback(name: str) -> None:
    fn = FUNCTIONS[name]
    x, v = f64(POINT), f64(DIRECTION)
    y, dy = fb.jvp(fn, (x,), (v,))
    same(y, fn(x))
    z, push = fb.linearize(fn, x)
    same(z, y)
    same(push(v), dy)
    same(push(v * 2.0), fb.tree_map(lambda t: t * 2.0, dy))
    for k, t in enumerate(trees.flatten(dy)[0]):
        if name == "no dependence":
            assert t.tolist() == [0.0, 0.0]
            continue
        u = f64(RNG.normal(size=t.shape))
        _, pull = fb.vjp(lambda x, k=k: trees.flatten(fn(x))[0][k], x)
        np.testing.assert_allclose(fb.sum(pull(u)[0] * v).item(), fb.sum(u * t).item(), rtol=1e-10)
    if name != "python":
        same(fb.jit(lambda x, v: fb.jvp(fn, (x,), (v,)))(x, v), (y, dy))
    rows = fb.stack([v, v * 0.5])
    if name not in ("no dependence",):
        mapped = fb.vmap(lambda v: fb.jvp(fn, (x,), (v,))[1])(rows)
        for i in range(2):
            same(fb.tree_map(lambda t, i=i: t[i], mapped), fb.tree_map(lambda t, i=i: t * (1.0, 0.5)[i], dy))


def test_derivatives_of_tangents_flow_to_point_and_direction_and_to_what_is_captured() -> None:
    x, v, w = f64(POINT), f64(DIRECTION), f64(POINT[::-1].copy())
    fn = lambda x, v, w: fb.sum(fb.jvp(lambda t: t**3.0 * w, (x,), (v,))[1])  # noqa: E731
    same(fb.grad(lambda x: fn(x, v, w))(x), x * v * w * 6.0)
    same(fb.grad(lambda v: fn(x, v, w))(v), x * x * w * 3.0)
    same(fb.grad(lambda w: fn(x, v, w))(w), x * x * v * 3.0)
    same(fb.jvp(lambda x: fn(x, v, w), (x,), (v,))[1], fb.sum(x * v * w * v * 6.0))


def test_detached_values_have_no_tangent_and_results_are_untracked() -> None:
    x, v = f64(POINT), f64(DIRECTION)
    y, dy = fb.jvp(lambda t: t.detach() * t, (x,), (v,))
    same(dy, x * v)
    assert not y.tracked
    assert not dy.tracked


def _constant_factor(x: fb.Tensor) -> fb.Tensor:
    with fb.no_grad():
        factor = fb.sum(x * x)
    return fb.sum(x) * factor


def _constant_in_steps(x: fb.Tensor) -> fb.Tensor:
    def step(carry: fb.Tensor, row: fb.Tensor) -> tuple[fb.Tensor, None]:
        with fb.no_grad():
            constant = row * carry
        return carry * row + constant, None

    return fb.scan(step, fb.sum(x), x)[0]


def _constant_in_a_branch(x: fb.Tensor) -> fb.Tensor:
    return fb.cond(fb.sum(x) > 0, _constant_factor, fb.sum, x)


def _constant_derivative(x: fb.Tensor) -> fb.Tensor:
    with fb.no_grad():
        slope = fb.jvp(lambda y: fb.sum(y * y * y), (x,), (x,))[1] + fb.sum(fb.grad(lambda y: fb.sum(y * y))(x))
    return fb.sum(x) * slope


@pytest.mark.parametrize("fn", [_constant_factor, _constant_in_steps, _constant_in_a_branch, _constant_derivative])
def test_what_is_computed_without_gradient_has_no_tangent_either(fn: Callable[[fb.Tensor], fb.Tensor]) -> None:
    x, v = fb.asarray([1.0, 2.0], dtype=fb.float64), fb.asarray([1.0, 0.5], dtype=fb.float64)
    want = fb.sum(fb.grad(fn)(x) * v).item()
    assert fb.jvp(fn, (x,), (v,))[1].item() == pytest.approx(want, rel=1e-14)
    assert fb.jit(lambda x: fb.jvp(fn, (x,), (v,))[1])(x).item() == pytest.approx(want, rel=1e-14)
    assert fb.jvp(fb.jit(fn), (x,), (v,))[1].item() == pytest.approx(want, rel=1e-14)
    assert fb.vmap(lambda x: fb.jvp(fn, (x,), (v,))[1])(fb.stack([x, x])).tolist() == pytest.approx([want] * 2, rel=1e-14)


def test_a_derivative_that_is_taken_without_gradient_around_it_is_complete() -> None:
    x = fb.asarray([1.0, 2.0])
    with fb.no_grad():
        assert fb.jvp(lambda x: fb.sum(x * x), (x,), (x,))[1].item() == 10.0


def test_trees_are_points_and_directions() -> None:
    x, v = {"a": f64(2.0), "b": (f64([1.0, 2.0]),)}, {"a": f64(1.0), "b": (f64([0.5, 0.0]),)}
    y, dy = fb.jvp(lambda t, s: t["a"] * fb.sum(t["b"][0]) * s, (x, f64(3.0)), (v, f64(1.0)))
    assert (y.item(), dy.item()) == (18.0, 3.0 * (3.0 + 2.0 * 0.5) + 6.0)
    _, push = fb.linearize(lambda t, s: t["a"] * fb.sum(t["b"][0]) * s, x, f64(3.0))
    assert push(v, f64(1.0)).item() == dy.item()


def test_state_that_a_function_changes_keeps_values_without_tangents() -> None:
    state = f64([0.0] * 4)

    def fn(x: fb.Tensor) -> fb.Tensor:
        nonlocal state
        state += x
        return x * x

    fb.jvp(fn, (f64(POINT),), (f64(DIRECTION),))
    same(state, f64(POINT))
    kept: list[fb.Tensor] = []
    fb.jvp(lambda x: (kept.append(x * 2.0), x)[1], (f64(POINT),), (f64(DIRECTION),))
    same(kept[0] + 1.0, f64(2.0 * POINT + 1.0))
    kept.clear()
    gc.collect()
    with pytest.raises(ZeroDivisionError):
        fb.jvp(lambda x: 1 / 0, (f64(POINT),), (f64(DIRECTION),))
    gc.collect()
    assert not hooks.levels


def test_batch_norm_in_training_has_a_tangent_and_updates_its_statistics_once() -> None:
    norm = fb.nn.BatchNorm1d(4, device="numpy", dtype=fb.float64)
    x, v = f64(RNG.normal(size=(5, 4))), f64(RNG.normal(size=(5, 4)))
    _, dy = fb.jvp(norm, (x,), (v,))
    once = norm.running_mean.tolist()
    fresh = fb.nn.BatchNorm1d(4, device="numpy", dtype=fb.float64)
    _, push = fb.linearize(fresh, x)
    same(push(v), dy, 1e-10)
    assert fresh.running_mean.tolist() == once


# Jacobians


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_jacobians_are_those_of_torch(mode: str, jit: bool) -> None:
    torch = pytest.importorskip("torch")
    x = f64(RNG.normal(size=(2, 3)))
    ours = fb.jacobian(lambda t: fb.sin(t) @ fb.matrix_transpose(t) * fb.sum(t), mode=mode)
    want = torch.func.jacrev(lambda t: torch.sin(t) @ t.T * t.sum())(torch.tensor(x.numpy()))
    found = (fb.jit(ours) if jit else ours)(x)
    assert found.shape == (2, 2, 2, 3)
    same(found, f64(want.numpy()), 1e-10)


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_the_hessian_of_a_small_network_is_that_of_torch(jit: bool) -> None:
    torch = pytest.importorskip("torch")
    arrays = {"w": RNG.normal(size=(5, 3)), "b": RNG.normal(size=5), "v": RNG.normal(size=5)}
    point = RNG.normal(size=3)

    def loss(lib: Any, p: dict[str, Any], t: Any) -> Any:
        return (lib.tanh(p["w"] @ t + p["b"]) * p["v"]).sum() ** 2.0

    ours = fb.hessian(lambda p, t: loss(fb, p, t))
    found = (fb.jit(ours) if jit else ours)({k: f64(a) for k, a in arrays.items()}, f64(point))
    want = torch.func.hessian(lambda p: loss(torch, p, torch.tensor(point)))({k: torch.tensor(a) for k, a in arrays.items()})
    for a in arrays:
        for b in arrays:
            same(found[a][b], f64(want[a][b].numpy()), 1e-10)


def test_jacobians_of_trees_have_the_structure_of_results_then_of_arguments() -> None:
    x = {"a": f64(POINT), "b": f64([2.0])}
    fn = lambda t: (t["a"][:2] * t["b"], fb.sum(t["a"]))  # noqa: E731
    reverse, forward = fb.jacobian(fn)(x), fb.jacobian(fn, mode="forward")(x)
    assert fb.tree_map(lambda t: t.shape, reverse[0]) == {"a": (2, 4), "b": (2, 1)}
    assert reverse[1]["a"].tolist() == [1.0] * 4
    same(forward, reverse)


def test_further_arguments_are_not_differentiated() -> None:
    fn = lambda x, n, *, scale: x**2.0 * n * scale  # noqa: E731
    assert fb.jacobian(fn)(f64([1.0, 2.0]), 3, scale=f64(0.5)).tolist() == [[3.0, 0.0], [0.0, 6.0]]
    assert fb.hessian(lambda x, y: fb.sum(x**2.0 * y))(f64([1.0, 2.0]), f64(3.0)).tolist() == [[6.0, 0.0], [0.0, 6.0]]


X, INTS = f64(POINT), fb.asarray([1, 2], device="numpy")
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no mode": (lambda: fb.jacobian(fb.sin, mode="both"), "in the mode reverse or forward\nReceived: 'both'"),
    "no function": (lambda: fb.jacobian(3), "jacobian takes a function"),  # type: ignore[arg-type]
    "ints": (lambda: fb.jacobian(lambda t: t)(INTS), "gradients need a floating or complex dtype"),
    "tangents": (lambda: fb.jvp(fb.sin, (X,), (X, X)), "jvp needs one tangent for each primal"),
    "another shape": (lambda: fb.jvp(fb.sin, (X,), (X[:2],)), r"tangents\[0\] must have the shape of primals\[0\]"),
    "another dtype": (lambda: fb.linearize(fb.sin, X)[1](fb.astype(X, fb.float32)), "must have the dtype of primals"),
    "no tensor": (lambda: fb.jvp(lambda t: 3.0, (X,), (X,)), "returns tensors\nReceived: result: float"),
    "no tensor, linearized": (lambda: fb.linearize(lambda t: [t, "a"], X), r"returns tensors\nReceived: result\[1\]: str"),
    "a vector": (lambda: fb.hessian(fb.sin)(X), "returns a scalar tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
def test_mistakes_are_answered_by_what_was_expected(name: str) -> None:
    call, text = WRONG[name]
    with pytest.raises(fb.FirebrickError, match=text):
        call()


# linear maps that are kept, and used elsewhere


def _bent(x: fb.Tensor) -> fb.Tensor:
    return fb.sin(x) * fb.sum(x)


@pytest.mark.parametrize("fn", [_bent, fb.jit(_bent)], ids=["eager", "compiled"])
def test_the_pullback_of_a_function_is_mapped_and_differentiated_if_it_is_compiled_or_not(fn: Any) -> None:
    x, rows = f64(POINT), f64(RNG.normal(size=(3, 4)))
    want = fb.jacobian(_bent, mode="forward")(x).numpy()
    for mode in ("forward", "reverse"):
        same(fb.jacobian(fn, mode=mode)(x), f64(want))
    _, pull = fb.vjp(fn, x)
    same(fb.vmap(lambda g: pull(g)[0])(rows), f64(rows.numpy() @ want))
    same(fb.jvp(lambda g: pull(g)[0], (rows[0],), (rows[1],))[1], f64(rows[1].numpy() @ want))
    same(pull(rows[2])[0], f64(rows[2].numpy() @ want))
    rowwise = fb.jacobian(fb.grad(lambda x: fb.sum(fn(x) ** 2.0)))(x)
    same(rowwise, fb.hessian(lambda x: fb.sum(_bent(x) ** 2.0))(x))


def test_a_linear_map_that_is_used_under_vmap_first_is_used_outside_afterwards() -> None:
    x, rows = f64(POINT), f64(RNG.normal(size=(3, 4)))
    want = fb.jacobian(_bent)(x).numpy()
    push = fb.linearize(_bent, x)[1]
    same(fb.vmap(push)(rows), f64(rows.numpy() @ want.T))
    same(push(rows[0]), f64(want @ rows[0].numpy()))
    same(fb.grad(lambda t: fb.sum(push(t) * t))(rows[1]), f64((want + want.T) @ rows[1].numpy()))


def test_a_linear_map_that_was_recorded_outside_is_refused_in_a_graph_not_zero() -> None:
    push = fb.linearize(_bent, f64(POINT))[1]
    for _ in range(2):
        with pytest.raises(fb.TraceError, match="pass it as an argument"):
            fb.jit(push)(f64(DIRECTION))
        assert np.abs(push(f64(DIRECTION)).numpy()).max() > 0.0


def test_a_tensor_that_is_changed_and_passed_to_a_function_with_a_rule_is_not_kept() -> None:
    own = fb.custom_vjp(lambda t: t * t)
    own.defvjp(lambda t: (own(t), t), lambda t, g: (2.0 * t * g,))

    def loss(x: fb.Tensor) -> fb.Tensor:
        made = x * 1.0
        made[0] = 3.0
        return fb.sum(own(made))

    rows = f64(RNG.normal(size=(3, 4)))
    found = fb.grad(lambda rows: fb.sum(fb.vmap(loss)(rows)))(rows)
    same(found, fb.stack([fb.grad(loss)(row) for row in rows]))


def _written(a: fb.Tensor) -> fb.Tensor:
    z = a * 2.0
    z[0] = a[1]
    return z


def _added(a: fb.Tensor) -> fb.Tensor:
    z = fb.sin(a)
    z += a
    z *= a
    return z


def _masked(a: fb.Tensor) -> fb.Tensor:
    z = a * 1.0
    z[a > 1.5] = fb.sum(a)
    return z


@pytest.mark.parametrize("mode", ["eager", "jit of", "of jit", "second"])
@pytest.mark.parametrize("fn", [_written, _added, _masked])
def test_what_was_changed_in_place_is_returned_with_its_tangent(fn: Callable[..., fb.Tensor], mode: str) -> None:
    x, along = fb.asarray([1.0, 2.0, 3.0]), fb.asarray([0.5, -1.0, 2.0])

    def forward(f: Callable[..., fb.Tensor], a: fb.Tensor) -> fb.Tensor:
        return fb.jvp(f, (a,), (along,))[1]

    def after(a: fb.Tensor) -> fb.Tensor:
        return fn(a) * 1.0

    ways: dict[str, Callable[[Callable[..., fb.Tensor]], fb.Tensor]] = {
        "eager": lambda f: forward(f, x), "jit of": lambda f: fb.jit(lambda a: forward(f, a))(x),
        "of jit": lambda f: forward(fb.jit(f), x), "second": lambda f: forward(lambda a: forward(f, a), x),
    }  # fmt: skip
    found, wanted = ways[mode](fn).numpy(), ways[mode](after).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.any(wanted) or (mode == "second" and fn is not _added)


def test_state_that_is_changed_and_returned_keeps_its_value_and_gives_its_tangent() -> None:
    state = fb.zeros(3)

    def kept(a: fb.Tensor) -> fb.Tensor:
        state[:] = a * 3.0
        return state

    x = fb.asarray([1.0, 2.0, 3.0])
    assert fb.jvp(kept, (x,), (fb.ones(3),))[1].tolist() == [3.0, 3.0, 3.0]
    assert state.tolist() == [3.0, 6.0, 9.0]


def test_both_jacobians_of_a_complex_result_by_a_real_argument_are_complex() -> None:
    """The reverse one was the real part alone."""
    rng = np.random.default_rng(0)
    a = fb.asarray(rng.normal(size=(3, 2)) + 1j * rng.normal(size=(3, 2)))
    x = {"real": fb.asarray(rng.normal(size=2)), "complex": fb.asarray(rng.normal(size=2) + 0j)}

    def f(t: dict[str, fb.Tensor]) -> tuple[fb.Tensor, fb.Tensor]:
        return a @ (fb.astype(t["real"], "complex128") * (1.0 + 2.0j)) + fb.real(t["complex"][0]), fb.sum(t["real"] ** 2.0)

    reverse, forward = fb.jacobian(f)(x), fb.jacobian(f, mode="forward")(x)
    np.testing.assert_allclose(reverse[0]["real"].numpy(), a.numpy() * (1 + 2j), rtol=1e-14)
    for k in (0, 1):
        assert reverse[k]["real"].dtype is forward[k]["real"].dtype is (fb.complex128, fb.float64)[k]
        np.testing.assert_allclose(reverse[k]["real"].numpy(), forward[k]["real"].numpy(), rtol=1e-14)
    assert reverse[0]["complex"].tolist() == [[1, 0]] * 3
    narrow = fb.jacobian(fb.jit(lambda t: fb.astype(t, "complex64") * 1j))(fb.ones((), dtype="float32"))
    assert (narrow.dtype, narrow.item()) == (fb.complex64, 1j)


@pytest.mark.parametrize("name", ["cumulative_prod", "prod", "gelu", "erf"])
def test_a_tangent_of_half_precision_is_computed_in_float32_and_rounded_once(name: str) -> None:
    fn = getattr(fb, name)
    point, direction = (fb.asarray(v, dtype=fb.float16) for v in ([1.1, 0.3, -0.7, 2.3, 1.7], [0.3, 1.1, 0.7, -0.2, 0.9]))
    (_, found), (_, want) = (
        fb.jvp(fn, (point,), (direction,)),
        fb.jvp(fn, (point.astype("float32"),), (direction.astype("float32"),)),
    )
    assert found.dtype is fb.float16
    assert found.tolist() == want.astype("float16").tolist()


def test_a_tensor_inside_a_tangent_shows_its_value_and_where_it_is() -> None:
    shown: list[str] = []
    fb.jvp(lambda x: (shown.append(repr(x)), x)[1], (fb.asarray([1.0, 2.0]),), (fb.ones(2),))
    assert "tensor([1., 2.]" in shown[0]
    assert "inside fb.jvp" in shown[0]


@pytest.mark.parametrize("use", [
    lambda kept, run: fb.jit(lambda x: x * 2.0)((run(fb.ones(2)), kept[0])[1]),
    lambda kept, run: fb.jit(lambda: kept[0] * 2.0)() if run(fb.ones(2)) else None,
    lambda kept, run: fb.jit(lambda x: (run(x), kept[0] * 2.0)[1])(fb.ones(2)),
], ids=["argument", "captured", "within the call"])  # fmt: skip
def test_a_tensor_that_is_kept_from_a_tangent_is_refused_in_a_compiled_function(use: Any) -> None:
    kept: list[fb.Tensor] = []
    with pytest.raises(fb.LeakedTracerError, match=r"inside fb\.jvp\(.*\nReceived: used at .*\nRemedy: return it from"):
        use(kept, lambda x: fb.jvp(lambda v: (kept.append(v), v * 1.0)[1], (x,), (x,)))
    kept.clear()
    fb.jvp(lambda v: (kept.append(v), v * 1.0)[1], (fb.ones(2),), (fb.ones(2),))
    assert kept[0].tolist() == [1.0, 1.0]
