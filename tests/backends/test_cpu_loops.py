"""Scans whose steps are native are part of a run: no turn of Python between steps, and the same results as step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from optree import tree_leaves as leaves
from poisoned_memory import poisoned_memory
from rounding import exact

import firebrick as fb
from firebrick.backends.cpu import loops
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.core.errors import OutOfRangeError

N, LENGTH = 32, 9


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Arenas full of NaN: what is read before it is written shows."""
    with poisoned_memory():
        yield


def draw(*shape: int, seed: int = 0) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32) / 4)


def wide(*tensors: fb.Tensor) -> list[fb.Tensor]:
    """Their values in float64, on the default device."""
    return [fb.asarray(t.numpy().astype(np.float64)) for t in tensors]


def program_of(step: Any) -> Any:
    (entry,) = step._entries.graphs.values()
    return entry.program.executable()


def scanned(f: Callable[..., Any], reverse: bool = False) -> Callable[..., Any]:
    def run(w: fb.Tensor, xs: fb.Tensor) -> Any:
        return fb.scan(lambda c, x: f(c, x, w), (xs[0], xs[1]), xs, reverse=reverse)

    return run


BODIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cell": lambda c, x, w: ((fb.tanh(c[0] @ w + x), c[1] * 0.5 + c[0]), c[0] - c[1]),
    "carries change places": lambda c, x, w: ((c[1], fb.tanh(c[0] @ w + x) * x), x @ w),
    "a carry that stays": lambda c, x, w: ((c[0], fb.tanh(c[1] @ w + x) * c[0]), c[1]),
    "carries of one value": lambda c, x, w: ((z := fb.tanh(c[0] @ w + c[1]) * x, z), z),
    "a delay": lambda c, x, w: ((fb.tanh(c[0] @ w + x) * x, c[0]), (c[1], c[0])),
    "a sum": lambda c, x, w: ((c[0] + fb.tanh(x @ w) * x, c[1]), ()),
    "sums that are seen": lambda c, x, w: ((c[0] + fb.tanh(x @ w) * x, c[1] + c[0]), (c[0], c[1])),
    "results twice": lambda c, x, w: ((z := fb.tanh(c[0] @ w + x) * x, x), (z, z, x)),
    "views of results": lambda c, x, w: (
        (fb.reshape(fb.tanh(c[0] @ w + x) * x, (N, N)), c[1]),
        (fb.reshape(z := fb.exp(-c[0] * x + x), (-1,)), z[3:7], z[:, 2:4]),
    ),
    "transposed": lambda c, x, w: ((fb.permute_dims(fb.tanh(c[0] @ w + x) * x, (1, 0)), c[0]), fb.permute_dims(x, (1, 0)) @ w),
    "an element": lambda c, x, w: ((x, fb.tanh(c[0] @ w) * c[1] + x), fb.sum(c[0])),
    "a part of it replaced": lambda c, x, w: ((fb.concat([c[0][8:], fb.tanh(x @ w)[:8] * x[:8]], axis=0), c[1]), ()),
}  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_loops_are_what_their_steps_are_one_by_one(body: Callable[..., Any], reverse: bool) -> None:
    run = scanned(body, reverse)
    w, xs = draw(N, N), draw(LENGTH, N, N, seed=1)
    fast, truth = fb.jit(run), exact(lambda: leaves(run(*wide(w, xs))), "float32")
    for _ in range(2):
        truth.check(leaves(fast(w, xs)))
    np.testing.assert_array_equal(xs.numpy(), draw(LENGTH, N, N, seed=1).numpy())
    assert "scan(" not in program_of(fast).source


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_loops(length: int) -> None:
    def run(w: fb.Tensor, xs: fb.Tensor) -> Any:
        return fb.scan(lambda c, x: BODIES["a delay"](c, x, w), (xs[0], xs[1]), xs[:length])

    w, xs = draw(N, N), draw(3, N, N, seed=1)
    exact(lambda: leaves(run(*wide(w, xs))), "float32").check(leaves(fb.jit(run)(w, xs)))


def loss(w: fb.Tensor, xs: fb.Tensor) -> fb.Tensor:
    (last, _), ys = fb.scan(lambda c, x: BODIES["cell"](c, x, w), (xs[0], xs[1]), xs)
    return fb.sum(last * last) + fb.sum(fb.tanh(ys))


def test_a_recurrent_training_step_is_one_call_before_the_update_and_one_after() -> None:
    model = fb.nn.LSTM(N, N)
    opt = fb.optim.SGD(model, lr=0.1, momentum=0.9)

    @fb.jit
    def step(x: fb.Tensor) -> fb.Tensor:
        value, grads = fb.value_and_grad(lambda m: fb.mean(m(x)[0] ** 2))(model)
        opt.update(model, grads)
        return value

    x = draw(8, LENGTH, N)
    first = float(step(x).item())
    for _ in range(5):
        last = float(step(x).item())
    assert last < first
    source = program_of(step).source
    assert sum("native" in line for line in source.splitlines()) <= 2
    assert "scan" not in source


def test_gradients_of_loops() -> None:
    w, xs = draw(N, N), draw(LENGTH, N, N, seed=1)
    both = fb.value_and_grad(loss)
    fast = fb.jit(both)
    exact(lambda: both(*wide(w, xs)), "float32").check(fast(w, xs))
    assert "scan" not in program_of(fast).source


def test_a_scan_keeps_the_sum_that_a_product_goes_into_and_reads_its_parts_where_they_lie() -> None:
    net = fb.nn.LSTM(16, 64)
    x = draw(8, LENGTH, 16)

    def error(m: Any, x: fb.Tensor) -> fb.Tensor:
        y = m(x)[0]
        return fb.mean(y * y)

    step = fb.jit(fb.value_and_grad(error))
    value, grads = step(net, x)
    other = net.fork().astype(fb.float64).to("numpy")

    def whole() -> list[fb.Tensor]:
        value, grads = fb.value_and_grad(error)(other, *wide(x))
        return [value, *(grads[p] for p in other.parameters())]

    exact(whole, "float32").check([value, *(grads[p] for p in net.parameters())])
    forward, back = (n.params["body"] for n in step.graph(net, x).nodes if n.op.name == "scan")
    made = {v: n.op.name for n in forward.nodes for v in n.results}
    assert made[forward.outputs[-1]] == "add"  # of the inputs' projection and the state's
    assert [n.op.name for n in back.nodes].count("matmul") == 1
    for body in (forward, back):
        assert "split" not in {n.op.name for n in loops.fuse(body, loops.kind_of, POLICY, states=()).nodes}


def test_sums_over_the_steps_grow_in_place() -> None:
    big = draw(512, 512)

    def run(xs: fb.Tensor, big: fb.Tensor = big) -> fb.Tensor:
        return fb.scan(lambda c, x: (c + fb.tanh(x) * fb.exp(x), ()), big, xs)[0]

    xs = draw(LENGTH, 512, 512, seed=1)
    fast = fb.jit(run)
    exact(lambda: run(*wide(xs, big)), "float32", trials=3).check(fast(xs))
    assert program_of(fast).plan.peak < 3 * 512 * 512 * 4


def test_any_number_of_threads_gives_the_same_bits() -> None:
    w, xs = draw(256, 256), draw(5, 256, 256, seed=1)
    fast = fb.jit(fb.value_and_grad(loss))
    found = []
    for threads in (1, 2, 4):
        with fb.config.scope(num_threads=threads):
            found.append([t.numpy().tobytes() for t in fast(w, xs)])
    assert found[0] == found[1] == found[2]


def test_an_index_out_of_range_in_a_step_raises() -> None:
    def run(w: fb.Tensor, at: fb.Tensor) -> fb.Tensor:
        return fb.scan(lambda c, i: (fb.tanh(fb.take(w, i, axis=0) + c) * c, ()), w[:4], at)[0]

    w, at = draw(N, N), np.random.default_rng(0).integers(0, N, (LENGTH, 4))
    fast = fb.jit(run)
    exact(lambda: run(*wide(w), fb.asarray(at)), "float32").check(fast(w, fb.asarray(at)))
    at[6, 2] = N
    with pytest.raises((OutOfRangeError, IndexError)):
        fast(w, fb.asarray(at)).numpy()


def test_long_loops_and_steps_that_are_not_native_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    w, xs = draw(N, N), draw(LENGTH, N, N, seed=1)
    other = lambda c, x, w: ((fb.tanh(fb.real(fb.fft.fft(c[0] @ w, axis=0)) * 0.1), c[1]), c[0])  # noqa: E731
    bodies = {"native": BODIES["cell"], "other": other}
    for name, body in bodies.items():
        if name == "native":
            monkeypatch.setattr(loops, "MOST", LENGTH)
        run = fb.jit(scanned(body))
        exact(lambda: leaves(scanned(body)(*wide(w, xs))), "float32").check(leaves(run(w, xs)))  # noqa: B023 - called here
        assert "scan(" in program_of(run).source
        monkeypatch.undo()


def test_a_program_with_a_loop_runs_step_by_step_under_verify() -> None:
    w, xs = draw(N, N), draw(LENGTH, N, N, seed=1)
    with fb.verify("cpu"):
        got = fb.jit(loss)(w, xs)
    exact(lambda: loss(*wide(w, xs)), "float32").check(got)


def loops_of(monkeypatch: pytest.MonkeyPatch, compile: Callable[[], Any]) -> list[loops.NativeScan]:
    """The loops that are compiled."""
    found: list[loops.NativeScan] = []
    make = loops.NativeScan.__init__

    def made(self: loops.NativeScan, *args: Any) -> None:
        make(self, *args)
        found.append(self)

    monkeypatch.setattr(loops.NativeScan, "__init__", made)
    compile()
    return found


@pytest.mark.parametrize("rows", [1, 8, 40])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_matrix_of_all_steps_is_packed_once_and_not_copied(
    rows: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def run(w: fb.Tensor, xs: fb.Tensor) -> Any:
        w = w.mT if transposed else w
        return fb.scan(lambda h, x: (fb.tanh(h @ w + x), h), xs[0], xs)

    w, xs = draw(96, 96), draw(LENGTH, rows, 96, seed=1)
    fast = fb.jit(run)
    with fb.config.scope(cache_plans="off"):
        (loop,) = loops_of(monkeypatch, lambda: fast(w, xs))
    exact(lambda: leaves(run(*wide(w, xs))), "float32").check(leaves(fast(w, xs)))
    dots = rows == 1 and transposed  # which read rows of the matrix as they lie
    launches = loop.launches(range(loop.block + 1))
    kernels = [x.kernel for launch in launches for part in (launch.sequences or ((launch,),)) for x in part]
    assert [".pack_" in k for k in kernels].count(True) == (0 if dots else 1)
    assert "copies of views" not in fast.explain(w, xs) or not transposed


def test_a_transposed_matrix_that_steps_also_add() -> None:
    def run(w: fb.Tensor, xs: fb.Tensor) -> Any:
        return fb.scan(lambda h, x: (fb.tanh(h @ w.mT + x) + w.mT, h), xs[0], xs)

    w, xs = draw(N, N), draw(LENGTH, N, N, seed=1)
    fast = fb.jit(run)
    exact(lambda: leaves(run(*wide(w, xs))), "float32").check(leaves(fast(w, xs)))


def test_products_of_several_matrices_and_of_a_matrix_on_the_left_in_a_loop() -> None:
    def run(w: fb.Tensor, v: fb.Tensor, xs: fb.Tensor) -> Any:
        def step(h: fb.Tensor, x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
            y = w.mT @ h
            return fb.tanh(y @ v.mT + x), fb.tanh(h @ w.mT) @ v

        return fb.scan(step, xs[0], xs)

    w, v, xs = draw(48, 48), draw(48, 48, seed=2), draw(LENGTH, 48, 48, seed=1)
    fast = fb.jit(run)
    exact(lambda: leaves(run(*wide(w, v, xs))), "float32").check(leaves(fast(w, v, xs)))


def recurrent(kind: Any, batch: int) -> tuple[Any, fb.Tensor]:
    fb.random.seed(0)
    return kind(16, 48), draw(batch, 10, 16, seed=3)


@pytest.mark.parametrize("batch", [16, 24, 36, 64])
@pytest.mark.parametrize("kind", [fb.nn.LSTM, fb.nn.GRU, fb.nn.RNN])
def test_a_batch_goes_through_all_steps_in_slices(kind: Any, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SLICED_US", 0.0)
    model, x = recurrent(kind, batch)
    fast = fb.jit(lambda x: leaves(model(x)))
    with fb.config.scope(cache_plans="off"):
        (loop,) = loops_of(monkeypatch, lambda: fast(x))
    assert loop.slices == {16: 2, 24: 3, 36: 4, 64: 8}[batch]
    other = model.fork().astype(fb.float64).to("numpy")
    exact(lambda: leaves(other(*wide(x))), "float32").check(fast(x))


def test_slices_have_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SLICED_US", 0.0)
    monkeypatch.setattr(loops, "BLOCK_US", 10.0)  # several launches
    model, x = recurrent(fb.nn.LSTM, 32)
    fast = fb.jit(fb.value_and_grad(lambda m, x: fb.mean(m(x)[0] ** 2)))
    found = []
    with fb.config.scope(cache_plans="off"):
        made = loops_of(monkeypatch, lambda: fast(model, x))
        for threads in (1, 2, 4):
            with fb.config.scope(num_threads=threads):
                value, grads = fast(model, x)
                found.append([t.numpy().tobytes() for t in (value, *(grads[p] for p in model.parameters()))])
    assert [loop.slices for loop in made[:2]] == [4, 4]  # forward, backward
    assert len([launch for launch in made[0].launches(range(made[0].block + 1)) if launch.sequences]) > 2
    assert found[0] == found[1] == found[2]


DEPENDENT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a sum over rows": lambda h, x, w: fb.tanh(h @ w + x) - fb.sum(h, axis=0) / 64,
    "rows reversed": lambda h, x, w: fb.tanh(h @ w + fb.flip(x, axis=0)),
    "a state on the right": lambda h, x, w: fb.tanh(w[:32, :32] @ h + x),
    "two states": lambda h, x, w: fb.tanh(h @ (fb.permute_dims(h, (1, 0)) @ x) / 32 + x),
    "rows of a constant": lambda h, x, w: fb.tanh(h @ w + x) + w[:32] / 8,
    "rows moved": lambda h, x, w: fb.concat([fb.tanh(h[8:] @ w + x[8:]), x[:8]], axis=0),
    "a state without rows": lambda h, x, w: fb.tanh(h @ w + x) * fb.mean(h),
}


@pytest.mark.parametrize("body", DEPENDENT.values(), ids=DEPENDENT)
def test_rows_that_depend_on_each_other_stay_together(body: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SLICED_US", 0.0)

    def run(w: fb.Tensor, xs: fb.Tensor) -> Any:
        return fb.scan(lambda h, x: ((new := body(h, x, w)), new), xs[0], xs)

    w, xs = draw(48, 48), draw(LENGTH, 32, 48, seed=1)
    fast = fb.jit(run)
    with fb.config.scope(cache_plans="off"):
        assert all(loop.slices == 1 for loop in loops_of(monkeypatch, lambda: fast(w, xs)))
    exact(lambda: leaves(run(*wide(w, xs))), "float32").check(leaves(fast(w, xs)))


INDEPENDENT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a bias and a factor": lambda c, x, w: ((fb.tanh(c[0] @ w + w[0]) * 0.5 + x, c[1] + x), c[0]),
    "carries change places": lambda c, x, w: ((c[1], fb.tanh(c[0] @ w + x) * x), x @ w),
    "a carry that stays": lambda c, x, w: ((c[0], fb.tanh(c[1] @ w + x) * c[0]), c[1]),
    "results twice": lambda c, x, w: ((z := fb.tanh(c[0] @ w + x) * x, x), (z, z, x)),
    "columns": lambda c, x, w: ((fb.concat(fb.split(c[0] @ w, 2, axis=1)[::-1], axis=1) + x, c[1]), fb.split(x, 2, axis=1)[1]),
    "a choice": lambda c, x, w: ((fb.where(c[0] > 0, c[0] @ w, x), c[1] * x), c[0] > c[1]),
}  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("body", INDEPENDENT.values(), ids=INDEPENDENT)
def test_slices_of_rows_are_what_all_rows_are(
    body: Callable[..., Any], reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(loops, "SLICED_US", 0.0)
    run = scanned(body, reverse)
    w, xs = draw(48, 48), draw(LENGTH, 32, 48, seed=1)
    fast = fb.jit(run)
    with fb.config.scope(cache_plans="off"):
        (loop,) = loops_of(monkeypatch, lambda: fast(w, xs))
    assert loop.slices == 4
    for _ in range(2):
        exact(lambda: leaves(run(*wide(w, xs))), "float32").check(leaves(fast(w, xs)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("around", ["cond", "other branch", "while", "scan of cond", "gradient"])
def test_slices_within_branches_and_loops_are_what_they_are_alone(around: str, threads: int) -> None:
    rng = np.random.default_rng(0)
    w, c, xs = (fb.asarray(rng.normal(size=s) * 0.1, dtype=fb.float32) for s in ((64, 64), (128, 64), (12, 128, 64)))

    def loop(c: Any) -> Any:
        return fb.scan(lambda c, v: (fb.tanh(c @ w + v), None), c, xs)[0]

    def branch(c: Any, bound: float = -1e9) -> Any:
        return fb.cond(fb.sum(c) > bound, lambda: loop(c), lambda: loop(c) * 2.0)

    program: Any = {
        "cond": branch,
        "other branch": lambda c: branch(c, 1e9),
        "while": lambda c: fb.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, loop(s[1])), (fb.asarray(0), c))[1],
        "scan of cond": lambda c: fb.scan(lambda c, _: (branch(c), None), c, None, length=2)[0],
        "gradient": lambda c: fb.grad(lambda c: fb.sum(branch(c) ** 2))(c),
    }[around]
    before = fb.config.num_threads
    fb.config.num_threads = threads
    try:
        np.testing.assert_allclose(fb.jit(program)(c).numpy(), program(c).numpy(), atol=2e-6)
    finally:
        fb.config.num_threads = before


@pytest.mark.parametrize("around", ["scan", "while", "cond in scan"])
def test_a_loop_within_a_loop_packs_its_own_matrices(around: str) -> None:
    rng = np.random.default_rng(0)
    w1, w2, c, xs = (fb.asarray(rng.normal(size=s) * 0.1) for s in ((128, 160), (160, 128), (24, 128), (5, 24, 128)))

    def product(c: Any) -> Any:
        return fb.tanh(c @ w1) @ w2

    def loop(c: Any) -> Any:
        return fb.scan(lambda c, v: (fb.tanh(product(c) + v), None), c, xs)[0]

    program: Any = {
        "scan": lambda c: fb.scan(lambda c, _: (loop(c) * 0.5 + product(c), None), c, None, length=3)[0],
        "while": lambda c: fb.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, loop(s[1]) + product(s[1])), (fb.asarray(0), c)
        )[1],
        "cond in scan": lambda c: fb.scan(
            lambda c, k: (fb.cond(k > 0, lambda: loop(c) * 0.5, lambda: product(c)) + product(c), None),
            c,
            fb.asarray([0, 1, 0]),
        )[0],
    }[around]
    np.testing.assert_allclose(fb.jit(program)(c).numpy(), program(c).numpy(), atol=1e-10)
