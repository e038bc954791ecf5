"""Checkpointing: less memory, the same gradients, and an error where the second run would differ."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest
from combinations import turns_of

import firebrick as fb
from firebrick.autodiff.residuals import Budget, strategy
from firebrick.nn.joint import joint_sum


def f64(values: Any) -> fb.Tensor:
    return fb.asarray(values, dtype=fb.float64)


class Counter:
    """Counts calls of a block."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn, self.calls = fn, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self.fn(*args)


def test_the_block_runs_again_once_in_the_backward_pass_and_gives_the_same_bits() -> None:
    block = Counter(lambda x: fb.exp(fb.sin(x)) * x)
    x = f64([0.1, 0.2, 0.3])
    want = fb.grad(lambda v: fb.sum(block.fn(v)))(x)
    got = fb.grad(lambda v: fb.sum(fb.checkpoint(block)(v)))(x)
    assert got.numpy().tobytes() == want.numpy().tobytes()
    assert block.calls == 2
    fb.checkpoint(block)(x)
    assert block.calls == 3


def test_the_intermediate_values_are_forgotten() -> None:
    def deep(x: fb.Tensor) -> fb.Tensor:
        for _ in range(20):
            x = fb.sin(x)
        return x

    def kept(fn: Callable[..., Any]) -> int:
        memory = fb.device("cpu")._memory
        x = fb.ones(10_000).require_grad()
        gc.collect()
        before = memory.live
        y = fn(x)
        gc.collect()
        assert y.tracked
        return memory.live - before

    assert kept(deep) >= 19 * 40_000
    assert kept(fb.checkpoint(deep)) <= 2 * 40_000


def test_captured_tensors_get_their_gradients() -> None:
    w = f64([2.0, 3.0]).require_grad()

    class Layer:
        def __init__(self) -> None:
            self.weight = f64([5.0, 7.0]).require_grad()

        def __call__(self, x: fb.Tensor) -> fb.Tensor:
            return fb.exp(x * self.weight * 0.1) * w

    layer = Layer()
    x = f64([0.5, 0.25]).require_grad()
    want = fb.backward(fb.sum(layer(x)))
    got = fb.backward(fb.sum(fb.checkpoint(layer)(x)))
    for t in (x, w, layer.weight):
        assert got[t].numpy().tobytes() == want[t].numpy().tobytes()


def test_blocks_follow_and_nest() -> None:
    inner = Counter(lambda x: fb.tanh(x) * x)
    outer = fb.checkpoint(lambda x: fb.checkpoint(inner)(fb.exp(x)))
    x = f64([0.1, 0.4])
    want = fb.grad(lambda v: fb.sum(inner.fn(fb.exp(inner.fn(fb.exp(v))))))(x)
    got = fb.grad(lambda v: fb.sum(outer(outer(v))))(x)
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert inner.calls == 4


@pytest.mark.parametrize("jit", [False, True])
def test_a_block_takes_gradients_of_functions_that_capture_what_it_computed(jit: bool) -> None:
    def block(x: fb.Tensor) -> fb.Tensor:
        y = x * x
        slope = fb.grad(lambda u: fb.sum(fb.sin(u) * y) + fb.sum(u))(fb.exp(x))
        return slope + fb.vjp(lambda u: fb.cos(y) * u, x * 3.0)[1](y)[0]

    def gradient(fn: Callable[..., Any]) -> Any:
        found = fb.grad(lambda x: fb.sum(fn(x) ** 2.0))
        return (fb.jit(found) if jit else found)(f64([0.5, -1.0]))

    np.testing.assert_allclose(gradient(fb.checkpoint(block)).numpy(), gradient(block).numpy(), rtol=1e-14)


@pytest.mark.parametrize("keeping", [{"name": "balanced"}, {"budget": 60}], ids=["balanced", "budget"])
@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_what_a_graph_recomputes_for_a_gradient_within_it_has_derivatives(device: str, keeping: dict[str, Any]) -> None:
    """A scan's gradient, and the second gradient of a compiled function, are taken from the graph, not from the tape."""

    def slope(c: fb.Tensor) -> fb.Tensor:
        return fb.tanh(fb.grad(lambda u: fb.sum((u * 1.0 + fb.sin(c)) * u * fb.exp(u * 0.3)))(fb.cos(c) * c))

    def looped(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.scan(lambda c, _: (slope(c), None), x, length=2)[0] * x)

    def second(fn: Callable[..., Any]) -> Callable[..., Any]:
        return fb.grad(lambda x: fb.sum(fb.grad(fn)(x) * x))

    x = fb.asarray(np.array([0.3, 0.7, -0.4]), device=device)
    want = fb.grad(looped)(x).numpy(), second(lambda x: fb.sum(slope(x)))(x).numpy()
    with fb.checkpointing(**keeping):
        got = fb.jit(fb.grad(looped))(x).numpy(), second(fb.jit(lambda x: fb.sum(slope(x))))(x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_a_block_calls_compiled_functions_that_are_first_traced_there(device: str) -> None:
    def block(x: fb.Tensor) -> fb.Tensor:
        y = x * x
        return fb.jit(lambda u: fb.sin(u) * y)(fb.exp(x))

    def gradient(fn: Callable[..., Any]) -> Any:
        return fb.grad(lambda x: fb.sum(fn(x) * fn(x * 0.5)))(fb.asarray(np.array([0.5, -1.0]), device=device))

    np.testing.assert_allclose(gradient(fb.checkpoint(block)).numpy(), gradient(block).numpy(), rtol=1e-14)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_draws_and_state_of_a_compiled_function_in_a_block_are_those_of_one_call(device: str) -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        norm, generator = fb.nn.BatchNorm1d(4).to(device), fb.random.Generator(3)
        block = wrap(fb.jit(lambda x: norm(x) * generator.uniform(x.shape)))
        x = fb.reshape(fb.arange(12.0, device=device), (3, 4))
        found = [fb.grad(lambda x: fb.sum(block(x) ** 2.0))(x) for _ in range(2)]
        return [t.numpy() for t in (*found, norm.running_mean, norm.running_var, generator.uniform(2))]

    with fb.use_device(device):
        for got, want in zip(run(fb.checkpoint), run(lambda f: f), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_higher_order_gradients_through_a_block() -> None:
    block = fb.checkpoint(lambda x: fb.sin(x) * x)
    x = f64(0.7)
    want = 2 * np.cos(0.7) - 0.7 * np.sin(0.7)
    assert abs(fb.grad(fb.grad(block))(x).item() - want) < 1e-12


def test_a_block_whose_operations_change_raises_instead_of_using_other_values() -> None:
    state = {"n": 0}

    def moody(x: fb.Tensor) -> fb.Tensor:
        state["n"] += 1
        return fb.exp(x) * fb.sin(x) if state["n"] == 1 else fb.tanh(x) * fb.sin(x)

    x = f64([0.1]).require_grad()
    y = fb.sum(fb.checkpoint(moody)(x))
    with pytest.raises(fb.GradientError, match="must do the same operations") as caught:
        fb.backward(y)
    assert "tanh" in str(caught.value)


@pytest.mark.parametrize("shorter", [True, False])
def test_a_block_that_does_less_or_more_raises_too(shorter: bool) -> None:
    state = {"n": 0}

    def moody(x: fb.Tensor) -> fb.Tensor:
        state["n"] += 1
        for _ in range(3 - state["n"] if shorter else state["n"]):
            x = fb.exp(x)
        return x

    x = f64([0.1]).require_grad()
    y = fb.sum(fb.checkpoint(moody)(x))
    with pytest.raises(fb.GradientError, match="must do the same operations"):
        fb.backward(y)


def test_a_leaf_that_was_changed_in_between_raises() -> None:
    w = f64([2.0]).require_grad()
    w.label = "head.weight"
    x = f64([0.5]).require_grad()
    y = fb.sum(fb.checkpoint(lambda v: fb.exp(v * w))(x))
    w += 1.0
    with pytest.raises(fb.GradientError, match="must do the same operations"):
        fb.backward(y)


def test_an_argument_that_is_rebound_in_between_changes_nothing() -> None:
    x = f64([0.5]).require_grad()
    a = x * 2.0
    y = fb.sum(fb.checkpoint(lambda v: fb.exp(v) * v)(a))
    a += 5.0
    want = fb.backward(fb.sum(fb.exp(x * 2.0) * (x * 2.0)))[x]
    assert fb.backward(y)[x].numpy().tobytes() == want.numpy().tobytes()


def test_a_block_without_tracked_tensors_records_nothing() -> None:
    block = Counter(fb.exp)
    assert not fb.checkpoint(block)(f64([1.0])).tracked
    with fb.no_grad():
        assert not fb.checkpoint(block)(f64([1.0]).require_grad()).tracked
    assert block.calls == 2


# balanced


def net(x: fb.Tensor) -> fb.Tensor:
    for _ in range(12):
        x = fb.tanh(fb.exp(fb.sin(x)) * 0.3)
    return fb.sum(x)


def test_balanced_gives_the_same_bits_and_keeps_less() -> None:
    def run(strategy: str) -> tuple[bytes, int]:
        memory = fb.device("cpu")._memory
        x = fb.asarray(np.linspace(-1, 1, 20_000), dtype=fb.float32).require_grad()
        gc.collect()
        before = memory.live
        with fb.checkpointing(strategy):
            y = net(x)
        gc.collect()
        kept = memory.live - before
        return fb.backward(y)[x].numpy().tobytes(), kept

    plain, plain_kept = run("none")
    balanced, balanced_kept = run("balanced")
    assert balanced == plain
    assert plain_kept > 20 * 80_000
    assert balanced_kept < plain_kept / 10


def test_balanced_keeps_the_results_of_compute_bound_operations() -> None:
    rng = np.random.default_rng(0)
    x, w = f64(rng.normal(size=(4, 4))), f64(rng.normal(size=(4, 4)))

    def f(w: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.exp(fb.tanh(fb.exp(x @ w * 0.1) @ w)))

    want = fb.grad(f)(w)
    with fb.checkpointing("balanced"):
        _, pull = fb.vjp(f, w)
    with fb.profile("cpu") as report:
        got = pull(fb.ones((), dtype=fb.float64))[0]
    assert got.numpy().tobytes() == want.numpy().tobytes()
    forward_products, gradient_products = 2, 3
    assert report.rows["cpu", "matmul"].calls == gradient_products
    assert report.rows["cpu", "matmul"].calls < forward_products + gradient_products
    assert report.rows["cpu", "exp"].calls >= 2, "memory-bound operations run again"


def test_balanced_keeps_no_result_alive_that_is_known_again_by_its_recipe() -> None:
    x = f64(np.linspace(-1, 1, 8)).require_grad()
    with fb.checkpointing("balanced"):
        y = fb.sin(fb.exp(x))  # sin's rule wants exp's result, which is a recipe
        middle = fb.exp(x)
        wanted = fb.sin(middle)
        other = middle.detach() + x  # its operand is no recipe: one for the sum would keep it
    kept = ref(middle.storage)
    del middle
    gc.collect()
    assert kept() is None
    assert fb.backward(fb.sum(y + wanted + other))[x].shape == (8,)


def test_balanced_works_with_checkpoint_and_to_second_order() -> None:
    x = f64([0.3, 0.5])
    want = fb.grad(lambda v: fb.sum(fb.grad(net)(v)))(x).numpy()
    with fb.checkpointing("balanced"):
        got = fb.grad(lambda v: fb.sum(fb.grad(lambda u: fb.checkpoint(net)(u) * 1.0)(v)))(x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_strategy_is_scoped_and_unknown_ones_are_refused() -> None:
    with pytest.raises(fb.ConfigError, match="none, balanced"), fb.checkpointing("everything"):
        pass
    with pytest.raises(RuntimeError), fb.checkpointing("balanced"):
        raise RuntimeError
    x = fb.ones(10).require_grad()
    assert fb.exp(x).node.recipes == ()


# a budget


@pytest.mark.parametrize("share", [1.5, 0.5, 0.2])
def test_a_budget_gives_the_same_bits_and_is_kept_to(share: float) -> None:
    x = fb.asarray(np.linspace(-1, 1, 20_000), dtype=fb.float32)

    def run(budget: int | None) -> tuple[bytes, int]:
        fb.memory_cleanup("cpu")
        before = fb.memory_stats("cpu")["live"]
        with fb.checkpointing(budget=budget):
            g = fb.grad(net)(x)
        return g.numpy().tobytes(), fb.memory_stats("cpu")["peak"] - before

    plain, whole = run(None)
    got, peak = run(int(whole * share))
    assert got == plain
    working = 8 * x.nbytes  # operands, results and cotangents of the op that runs
    assert peak <= max(share * whole, 0) + working


@pytest.mark.parametrize("device", ["numpy", "torch:cpu"])
def test_a_budget_counts_the_memory_of_a_view_and_not_its_elements(device: str) -> None:
    if device != "numpy":
        pytest.importorskip("torch", reason="torch, an engine")
    x = fb.asarray([0.5], dtype=fb.float64, device=device).require_grad()
    with fb.checkpointing(budget=1000) as _:
        budget = strategy.get()
        wide = fb.broadcast_to(x, (10_000,))
        y = fb.sin(wide)
    assert isinstance(budget, Budget)
    assert wide.storage.root.nbytes < 1000 < wide.nbytes
    assert 0 < budget.total <= 1000
    assert y.shape == (10_000,)


def test_a_budget_works_to_second_order_and_when_the_graph_is_kept() -> None:
    x = f64([0.3, 0.5])
    want = fb.grad(lambda v: fb.sum(fb.grad(net)(v)))(x).numpy()
    with fb.checkpointing(budget=100):
        got = fb.grad(lambda v: fb.sum(fb.grad(net)(v)))(x).numpy()
        leaf = f64([0.3, 0.5]).require_grad()
        y = net(leaf)
    np.testing.assert_array_equal(got, want)
    first = fb.backward(y, retain_graph=True)[leaf].numpy()
    np.testing.assert_array_equal(fb.backward(y)[leaf].numpy(), first)
    np.testing.assert_array_equal(first, fb.grad(net)(x).numpy())


def test_a_long_way_back_is_no_deep_recursion() -> None:
    def deep(x: fb.Tensor) -> fb.Tensor:
        for _ in range(3000):
            x = fb.sin(x)
        return fb.sum(x)

    x = f64([0.5])
    want = fb.grad(deep)(x).numpy()
    for how in (fb.checkpointing("balanced"), fb.checkpointing(budget=4000)):
        with how:
            np.testing.assert_array_equal(fb.grad(deep)(x).numpy(), want)


# how much runs again


def _lstm() -> tuple[Any, Callable[..., Any]]:
    fb.random.seed(0)
    x = fb.random.normal((11, 8, 4))
    return fb.nn.LSTM(4, 7, 3), lambda m: fb.sum(m(x)[0] ** 2.0)


def _chain() -> tuple[Any, Callable[..., Any]]:
    def deep(x: fb.Tensor) -> fb.Tensor:
        for _ in range(200):
            x = fb.sin(x)
        return fb.sum(x)

    return fb.asarray([0.5]), deep


def _sums() -> tuple[Any, Callable[..., Any]]:
    """Each value is needed by all later ones: without a memory, work doubles with each step."""

    def dense(x: fb.Tensor) -> fb.Tensor:
        values = [x]
        for _ in range(16):
            total = values[0]
            for v in values[1:]:
                total = total * v
            values.append(fb.sin(total))
        return fb.sum(values[-1])

    return fb.asarray([0.5]), dense


def _calls(fn: Callable[..., Any], of: Any, home: str) -> int:
    """How many ops the gradient of ``fn`` executes."""
    with fb.profile(home.partition(":")[0]) as report:
        fb.grad(fn)(of)
    return sum(row.calls for row in report.rows.values())


@pytest.mark.parametrize(("home", "make"), turns_of(["numpy", "cpu", "torch:cpu"], [_lstm, _chain, _sums]))
def test_what_is_run_again_is_bounded_whatever_the_budget(make: Callable[[], Any], home: str) -> None:
    with fb.use_device(home):
        of, fn = make()
        plain = _calls(fn, of, home)
        with fb.profile(home.partition(":")[0]) as report:
            fn(of)
        recorded = sum(row.calls for row in report.rows.values())
        for budget in (1, 100, 1000, 4000, 10_000, 10**9):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fb.BudgetWarning)
                with fb.checkpointing(budget=budget):
                    assert _calls(fn, of, home) <= plain + 17 * recorded
        with fb.checkpointing("balanced"):
            assert _calls(fn, of, home) <= plain + recorded
        assert _calls(fb.checkpoint(fn), of, home) <= plain + recorded


def test_a_budget_that_cannot_be_met_warns_once_and_gives_the_same_bits() -> None:
    m, fn = _lstm()
    want = fb.grad(fn)(m)
    with fb.checkpointing(budget=4000):
        with pytest.warns(fb.BudgetWarning, match=r"budget=4000\): the budget is too small .* \d+ recorded ops") as caught:
            got, again = [fb.grad(fn)(m) for _ in range(2)]
        assert len(caught) == 1
    for p in m.parameters():
        assert got[p].numpy().tobytes() == again[p].numpy().tobytes() == want[p].numpy().tobytes()


def test_a_budget_drops_first_what_is_cheap_to_compute_again() -> None:
    rng = np.random.default_rng(0)
    x, w = (fb.asarray(rng.normal(size=s), dtype=fb.float32, device="cpu") for s in ((8, 2048), (2048, 8)))

    def deep(x: fb.Tensor) -> fb.Tensor:
        x = x @ w  # the oldest of nine values of one size, and the only expensive one
        for _ in range(8):
            x = fb.sin(x)
        return fb.sum(x)

    def products() -> int:
        with fb.profile("cpu") as report:
            fb.grad(deep)(x)
        return report.rows["cpu", "matmul"].calls

    whole = products()
    with fb.checkpointing(budget=4 * 8 * 8 * 4):
        assert products() == whole


def test_a_budget_that_is_met_does_not_warn() -> None:
    m, fn = _lstm()
    with fb.checkpointing(budget=50_000):
        fb.grad(fn)(m)


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "1MiB"])
def test_a_budget_is_a_number_of_bytes(budget: Any) -> None:
    with pytest.raises(fb.ConfigError, match="number of bytes"), fb.checkpointing(budget=budget):
        pass
    with pytest.raises(fb.ConfigError, match="without another strategy"), fb.checkpointing("balanced", budget=10):
        pass


def test_a_backward_pass_lets_go_of_what_it_has_used() -> None:
    x = fb.ones(100_000, dtype=fb.float32).require_grad()
    fb.memory_cleanup("cpu")
    before = fb.memory_stats("cpu")["live"]
    y = fb.sum(x)
    for _ in range(20):
        x = fb.sin(x)
    y = fb.sum(x)
    held = fb.memory_stats("cpu")["live"] - before
    del x
    fb.backward(y)
    # a cotangent or two and what rules compute, beside what the forward pass held at its end
    assert fb.memory_stats("cpu")["peak"] - before <= held + 4 * 400_000
    assert fb.memory_stats("cpu")["live"] - before <= 400_000


def test_a_strategy_is_entered_again_within_itself_and_by_threads() -> None:
    from threading import Thread

    from firebrick.autodiff.residuals import strategy

    balanced, seen = fb.checkpointing("balanced"), []
    for _ in range(2):
        with balanced:
            with fb.checkpointing(budget=64), balanced:
                assert strategy.get() == "balanced"
            other = Thread(target=lambda: (balanced.__enter__(), seen.append(strategy.get()), balanced.__exit__()))
            other.start()
            other.join()
            assert strategy.get() == "balanced"
        assert strategy.get() == "none"
    assert seen == ["balanced"] * 2
    decorated = fb.checkpointing("balanced")(strategy.get)
    assert [decorated(), decorated(), strategy.get()] == ["balanced", "balanced", "none"]
    with pytest.raises(ValueError, match="given up"), balanced:
        raise ValueError("given up")
    assert strategy.get() == "none"


@pytest.mark.parametrize("wrong", [{"name": "all"}, {"budget": 0}, {"name": "balanced", "budget": 64}])
def test_a_strategy_without_meaning_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(fb.ConfigError, match="checkpointing"):
        fb.checkpointing(**wrong)


@pytest.mark.parametrize("mode", ["balanced", "budget", "checkpoint"])
@pytest.mark.parametrize("device", ["numpy", "torch:cpu"])
def test_under_jit_gradients_have_the_same_bits_with_each_strategy(device: str, mode: str) -> None:
    fb.random.seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(16, 64), fb.nn.GELU(), fb.nn.LayerNorm(64), fb.nn.Linear(64, 8)).to(device)
    x = fb.asarray(np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32), device=device)
    how = {"balanced": {"name": "balanced"}, "budget": {"budget": 4096}}.get(mode, {})

    def gradients(call: Any, **strategy: Any) -> list[bytes]:
        def step(m: Any, x: fb.Tensor) -> list[fb.Tensor]:
            with fb.checkpointing(**strategy):
                grads = fb.grad(lambda m, x: fb.mean(call(m)(x) ** 2.0))(m, x)
            return [grads[p] for p in m.parameters()]

        return [g.numpy().tobytes() for g in fb.jit(step)(model, x)]

    plain = gradients(lambda m: m)
    assert gradients((lambda m: fb.checkpoint(lambda x: m(x))) if mode == "checkpoint" else (lambda m: m), **how) == plain


def _of_a_captured_addend(change: bool) -> None:
    b = fb.zeros(3)
    _, pull = fb.vjp(fb.checkpoint(lambda a: fb.sin(a + b)), fb.ones(3))
    if change:
        b += 1.0
    pull(fb.ones(3))


LINEAR = fb.nn.Linear(3, 3, generator=fb.random.Generator(0))


def _of_captured_weights(change: bool) -> None:
    m = LINEAR
    _, pull = fb.vjp(fb.checkpoint(lambda a: fb.sin(m(a))), fb.ones(3))
    if change:
        m.weight += 1.0
    pull(fb.ones(3))


def _of_a_late_bound(use: Any) -> Any:
    def run(change: bool) -> None:
        k = 1
        _, pull = fb.vjp(fb.checkpoint(lambda a: fb.sin(use(a, k))), fb.arange(3.0))
        k += int(change)
        pull(fb.ones_like(use(fb.arange(3.0), k)))

    return run


CHANGES = {
    "addend": _of_a_captured_addend, "weights": _of_captured_weights, "number": _of_a_late_bound(lambda a, k: a + k),
    "shift": _of_a_late_bound(fb.roll), "index": _of_a_late_bound(lambda a, k: a[k]),
}  # fmt: skip


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_second_run_of_another_function_is_refused(name: str, jit: bool) -> None:
    def run(change: bool) -> None:
        (fb.jit(lambda: CHANGES[name](change)) if jit else lambda: CHANGES[name](change))()

    run(False)
    with pytest.raises(fb.GradientError, match="a checkpointed function must do the same operations"):
        run(True)


TABLE = fb.arange(9.0)


@pytest.mark.parametrize("home", ["numpy", "cpu", "torch:cpu"])
@pytest.mark.parametrize("view", [
    lambda t, k: t[k : k + 3], lambda t, k: t[::-1][3:6] if k else t[3:6],
    lambda t, k: fb.reshape(t, (3, 3)).T if k else fb.reshape(t, (3, 3)),
])  # fmt: skip
def test_another_view_of_a_captured_tensor_is_refused_and_the_same_is_not(view: Any, home: str) -> None:
    """A view of the same memory counted as the same operand, and the gradient was that of its elements in the second run."""
    table, x = TABLE.to(home), fb.asarray([0.5, 1.0, 2.0], device=home).require_grad()

    def loss(late: list[int]) -> fb.Tensor:
        return fb.sum(fb.checkpoint(lambda v: fb.exp(v) * view(table, late[0]))(x))

    for k in (0, 1):
        y = loss([k])
        want = fb.backward(fb.sum(fb.exp(x) * view(table, k)))[x]
        assert fb.backward(y)[x].tolist() == want.tolist()
    late = [0]
    y = loss(late)
    late[0] = 1
    with pytest.raises(fb.GradientError, match=r"multiply of float32\[.*\], whose values were changed"):
        fb.backward(y)


def test_a_view_of_a_captured_tensor_without_values_is_that_of_the_first_run() -> None:
    table, x = fb.zeros(9, device="meta"), fb.zeros(3, device="meta").require_grad()
    y = fb.sum(fb.checkpoint(lambda v: fb.exp(v) * table[2:5])(x))
    assert fb.backward(y)[x].shape == (3,)


def test_a_view_of_what_is_forgotten_is_forgotten_too() -> None:
    x, alive = fb.ones(3).require_grad(), []

    def block(v: fb.Tensor) -> fb.Tensor:
        whole = fb.arange(1000.0)
        memory = ref(whole.storage.data)
        y = v * whole[7:10]
        del whole
        alive.append(memory() is not None)
        return fb.sin(y)

    y = fb.sum(fb.checkpoint(block)(x))
    assert alive == [False]
    want = np.cos(np.arange(7.0, 10.0)) * np.arange(7.0, 10.0)
    np.testing.assert_allclose(fb.backward(y)[x].numpy(), want, rtol=1e-6)


def test_a_result_whose_values_differ_in_the_second_run_is_refused() -> None:
    x = f64([0.5, 1.0]).require_grad()
    late = [1.0]
    y = fb.checkpoint(lambda v: fb.exp(v + fb.ones(2, dtype=fb.float64) * late[0]))(x)
    want = fb.exp(f64([1.5, 2.0])).tolist()
    np.testing.assert_allclose(fb.backward(fb.sum(y), retain_graph=True)[x].tolist(), want, rtol=1e-14)
    late[0] = 2.0
    with pytest.raises(fb.GradientError, match=r"exp of .*, whose values were changed since the first run"):
        fb.backward(fb.sum(y))


def _results_of_a_scan(x: fb.Tensor, k: int) -> fb.Tensor:
    carry, _ = fb.scan(lambda c, v: (c * v, (c,) * k), fb.sum(x), x)
    return carry


@pytest.mark.parametrize(("block", "jit", "counts", "received"), [
    (lambda x, k: fb.concat([fb.exp(x)] * k), False, (2, 3), "concat of 3 operands where the first run had 2"),
    (lambda x, k: fb.sum(x * fb.ones((k, 3))), False, (1, 2), r"multiply of float32\[2,3\] where .* float32\[1,3\]"),
    (_results_of_a_scan, True, (1, 2), "scan of float32.* where the first run had nothing more"),
])  # fmt: skip
def test_a_second_run_with_other_numbers_of_operands_results_or_elements_is_refused(
    block: Any, jit: bool, counts: tuple[int, int], received: str
) -> None:
    def gradient(first: int, later: int) -> fb.Tensor:
        k = first
        y, pull = fb.vjp(fb.checkpoint(lambda x: fb.sum(block(x, k))), fb.arange(1.0, 4.0))
        k = later
        return pull(fb.ones_like(y))[0]

    def run(first: int, later: int) -> list[float]:
        return (fb.jit(gradient, static_argnames=("first", "later")) if jit else gradient)(first, later).tolist()

    for k in counts:
        want = fb.grad(lambda x, k=k: fb.sum(block(x, k)))(fb.arange(1.0, 4.0))
        np.testing.assert_allclose(run(k, k), want.numpy(), rtol=1e-6)
    with pytest.raises(fb.GradientError, match=rf"must do the same operations[\s\S]*{received}"):
        run(*counts)


def test_captured_values_of_examples_are_not_those_that_are_the_same_for_all() -> None:
    shared = fb.ones(4)

    def of_one(x: fb.Tensor, w: fb.Tensor, which: tuple[str, str]) -> fb.Tensor:
        factors = {"own": w, "shared": shared[:3], "part": shared[1:]}
        name = which[0]
        y, pull = fb.vjp(fb.checkpoint(lambda v: fb.sin(v * factors[name])), x)
        name = which[1]
        return pull(fb.ones_like(y))[0]

    for same in ("own", "shared", "part"):
        found = fb.vmap(lambda x, w, same=same: of_one(x, w, (same, same)))(fb.zeros((2, 3)), fb.ones((2, 3)))
        assert found.tolist() == [[1.0] * 3] * 2
    for which in (("own", "shared"), ("shared", "own"), ("part", "own"), ("own", "part")):
        with pytest.raises(fb.GradientError, match="whose values were changed since the first run"):
            fb.vmap(lambda x, w, which=which: of_one(x, w, which))(fb.zeros((2, 3)), fb.ones((2, 3)))


# what a second run, or a budget, must not get wrong


def _changed_later(a: fb.Tensor, b: fb.Tensor, after: Callable[[fb.Tensor], None]) -> fb.Tensor:
    y = fb.checkpoint(lambda v: fb.exp(fb.sin(v)) * fb.sum(b))(a)
    after(b)
    return fb.sum(y)


def _put(b: fb.Tensor, at: Any) -> None:
    b[at] = 5.0


@pytest.mark.parametrize("after", [lambda b: _put(b, -1), lambda b: _put(b, ...), lambda b: b.__iadd__(1.0)])
@pytest.mark.parametrize("copied", [True, False])
def test_a_captured_tensor_that_is_differentiated_and_changed_later_is_refused(
    after: Callable[[fb.Tensor], None], copied: bool
) -> None:
    """The second run saw its new value, and the gradients of all others were wrong."""
    a, b = (fb.asarray(v, dtype=fb.float64) for v in ([0.3, -0.7], [1.1, 0.4]))

    def loss(ab: tuple[fb.Tensor, fb.Tensor]) -> fb.Tensor:
        return _changed_later(ab[0], ab[1] * 1.0 if copied else ab[1], after)

    for gradient in (fb.grad(loss), fb.jit(fb.grad(loss))):
        with pytest.raises(fb.GradientError, match="changed since the first run"):
            gradient((a, b))
    want = fb.grad(lambda ab: fb.sum(fb.exp(fb.sin(ab[0])) * fb.sum(ab[1])))((a, b))
    kept = fb.grad(lambda ab: _changed_later(ab[0], ab[1], lambda b: None))((a, b))
    whole = fb.grad(fb.checkpoint(loss))((a, b))  # which makes the change again
    for found in (kept, whole):
        assert [t.tolist() for t in found] == [t.tolist() for t in want]


BUDGETS = (1, 100, 3000, 10**8)


@pytest.mark.parametrize("inner", [
    fb.jit(lambda x: fb.sin(x) * 2.0), fb.jit(lambda x: (x * 2.0, fb.sin(x))[1]), fb.jit(lambda x: x[::-1] * fb.sum(x)),
])  # fmt: skip
def test_results_of_compiled_functions_are_kept_under_a_budget(inner: Callable[[fb.Tensor], fb.Tensor]) -> None:
    """What was computed again from them was computed from their arguments."""
    x = fb.asarray(np.linspace(0.1, 1.0, 300))

    def loss(x: fb.Tensor) -> fb.Tensor:
        y = inner(x)
        for _ in range(3):
            y = fb.exp(fb.sin(y)) * y
        return fb.sum(y * y)

    want = fb.grad(loss)(x).tolist()
    for budget in BUDGETS:
        with fb.checkpointing(budget=budget), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert fb.grad(loss)(x).tolist() == want


def test_what_a_function_with_a_rule_draws_is_kept_under_a_budget() -> None:
    generator = fb.random.Generator(0)

    @fb.custom_vjp
    def noisy(x: fb.Tensor) -> fb.Tensor:
        return x * generator.uniform(x.shape, dtype="float64")

    def forward(x: fb.Tensor) -> Any:
        factor = generator.uniform(x.shape, dtype="float64")
        return x * factor, factor

    noisy.defvjp(forward, lambda factor, g: (g * factor,))
    x, start = fb.asarray(np.linspace(0.1, 1.0, 300)), generator.mark()
    found = []
    for budget in (None, *BUDGETS):
        generator.return_to(start)
        with contextlib.nullcontext() if budget is None else fb.checkpointing(budget=budget), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(fb.grad(lambda x: fb.sum(fb.exp(fb.sin(noisy(x))) ** 2.0))(x).tolist())
    assert all(g == found[0] for g in found)


def test_sums_over_replicas_are_kept() -> None:
    class Twice:
        def sum(self, x: fb.Tensor) -> fb.Tensor:
            return x * 2.0

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.exp(fb.sin(joint_sum(x, Twice(), 1))) * 0.5)

    x = fb.asarray(np.linspace(0.1, 1.0, 300))
    want = fb.grad(loss)(x).tolist()
    for settings in ({"name": "balanced"}, {"budget": 1}):
        with fb.checkpointing(**settings), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert fb.grad(loss)(x).tolist() == want


@pytest.mark.parametrize("budget", BUDGETS)
def test_products_of_analog_tiles_are_kept_under_a_budget(budget: int) -> None:
    tile = fb.analog.Linear(4, 4)
    x = fb.asarray(np.linspace(0.1, 1.0, 12).reshape(3, 4).astype(np.float32))

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.exp(fb.sin(tile(x))))

    found = []
    for how in (contextlib.nullcontext(), fb.checkpointing(budget=budget)):
        fb.random.seed(0)
        with how, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            marks = [(g, g.mark()) for g in tile.generators().values()]
            found.append(fb.grad(loss)(x).tolist())
            for g, mark in marks:
                g.return_to(mark)
    assert found[0] == found[1]


@pytest.mark.parametrize("body", [
    lambda x, own: fb.jvp(lambda v: fb.exp(-v * v) * x, (x,), (x * 0.5,))[1],
    lambda x, own: fb.scan(lambda c, e: (own(c) + e, fb.sum(c)), x[0], x)[0],
    lambda x, own: fb.cond(fb.sum(own(x)) > 0.0, lambda v: v * fb.sum(own(x)), lambda v: own(v), x),
    lambda x, own: fb.vmap(lambda v: fb.cond(fb.sum(v) > 0.0, lambda: own(v) * 2.0, lambda: v * fb.sum(x)))(x),
], ids=["jvp", "scan", "cond", "vmap of cond"])  # fmt: skip
def test_tangents_and_rules_of_ones_own_in_a_checkpointed_function_are_repeated_under_jit(body: Callable[..., Any]) -> None:
    @fb.custom_vjp
    def own(x: fb.Tensor) -> fb.Tensor:
        return fb.sin(x)

    own.defvjp(lambda x: (own(x), x), lambda x, g: (g * fb.cos(x),))
    x = fb.asarray([0.3, -0.7, 1.1], dtype=fb.float64)

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.checkpoint(lambda x: fb.exp(body(x, own)))(x))

    want = fb.grad(lambda x: fb.sum(fb.exp(body(x, own))))(x).numpy()
    for gradient in (fb.grad(loss), fb.jit(fb.grad(loss))):
        np.testing.assert_allclose(gradient(x).numpy(), want, rtol=1e-12)
