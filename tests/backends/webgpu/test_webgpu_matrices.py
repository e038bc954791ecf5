"""Cholesky and triangular solve on the device: random stacks of matrices against float64, and the errors of ``numpy``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu.lowering import LARGEST_MATRIX
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results

DEVICE = "webgpu:0"
CASES = 6
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 47, 48, 56, 57, 64, 65, 128)
STACKS: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (2,), (5,), (2, 3), (3, 1, 2), (100,))
Array = np.ndarray[Any, Any]
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _on_the_device() -> Any:
    with fb.config.scope(fallback="error"):
        yield


@dataclass
class Drawn:
    """An operation on stacks of matrices.

    Attributes:
        op: Its name.
        arrays: The operands.
        params: Its parameters.
    """

    op: str
    arrays: tuple[Array, ...]
    params: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(str(x.shape) for x in self.arrays)}, {self.params})"


def positive(rng: np.random.Generator, stack: tuple[int, ...], n: int, condition: float) -> Array:
    """Positive definite matrices of a condition."""
    u = np.linalg.qr(rng.normal(size=(*stack, n, n)))[0]
    values = np.geomspace(1, 1 / condition, n) * 10.0 ** rng.uniform(-3, 3)
    return np.asarray((u * values) @ np.swapaxes(u, -1, -2)).astype(np.float32)


def spoiled(rng: np.random.Generator, x: Array, op: str, upper: bool) -> Array:
    """Some matrices without an answer, or with special values where nothing reads them."""
    x = x.copy()
    n, kind = x.shape[-1], rng.integers(3)
    if not x.size or kind == 0:
        return x
    flat = x.reshape(-1, n, n)
    for k in rng.choice(len(flat), min(len(flat), int(rng.integers(1, 4))), replace=False):
        i, j = rng.integers(n, size=2)
        if op == "cholesky":
            flat[k, i, j if kind == 1 else i] = rng.choice([np.nan, np.inf, -np.inf, -1.0]) if kind == 1 else -1.0
        elif kind == 1:
            flat[k, i, i] = rng.choice([0.0, -0.0])
        elif i != j:
            flat[(k, j, i) if (i < j) == upper else (k, i, j)] = rng.choice([np.nan, np.inf])
    return x


def drawn(rng: np.random.Generator) -> Drawn:
    """An operation: conditions up to 10⁵, stacks that broadcast, few or many columns."""
    stack, n = STACKS[rng.integers(len(STACKS))], int(rng.choice(SIZES))
    if n > 33:
        stack = stack[:1] if stack[:1] != (100,) else (2,)
    x = positive(rng, stack, n, 10.0 ** rng.uniform(0, 5))
    if rng.integers(2):
        return Drawn("cholesky", (spoiled(rng, x, "cholesky", False),), {})
    upper = bool(rng.integers(2))
    exact = np.linalg.cholesky(x.astype(np.float64))
    t = (np.swapaxes(exact, -1, -2) if upper else exact).astype(np.float32)
    t = t + (np.tril if upper else np.triu)(rng.normal(size=t.shape).astype(np.float32), -1 if upper else 1)
    t = spoiled(rng, t, "solve_triangular", upper)
    columns = int(rng.choice([1, 2, 3, 4, 5, 17, max(n, 1)]))
    own = [stack, (), tuple(1 for _ in stack), (2, *stack)][rng.integers(4)]
    return Drawn("solve_triangular", (t, rng.normal(size=(*own, n, columns)).astype(np.float32)), {"upper": upper})


WAYS: dict[str, Callable[[Run], Run]] = {
    "eagerly": lambda f: f,
    "under jit": lambda f: fb.jit(f),
    "in a program": lambda f: fb.jit(lambda *xs: f(*(x * 2.0 * 0.5 for x in xs)) + 0.0),
    "in a scan": lambda f: fb.jit(lambda *xs: fb.scan(lambda c, _: (c, f(*xs)), fb.zeros((), device=DEVICE), length=2)[1][1]),
}


def outcome(f: Run, *xs: Any) -> Any:
    """A result, or the text of the error."""
    try:
        return f(*xs).numpy()
    except fb.LinAlgError as e:
        return str(e)


@pytest.mark.parametrize("part", [*range(4), *(pytest.param(k, marks=pytest.mark.soak) for k in range(4, 500))])
def test_random_matrices_have_the_factors_and_the_errors_of_numpy(part: int, seed: int) -> None:
    rng = np.random.default_rng([seed, part])
    flushes = fb.device(DEVICE).backend.flushes_denormals(fb.device(DEVICE))
    for _ in range(CASES):
        case = drawn(rng)
        op = OPS[case.op]
        way = str(rng.choice(list(WAYS)))

        def run(*xs: Any, case: Drawn = case, op: Any = op) -> Any:
            return op(*xs, **case.params)

        with np.errstate(all="ignore"):
            want = outcome(lambda *xs, run=run: run(*xs), *(fb.asarray(x, device="numpy:0") for x in case.arrays))
        on_device = [fb.asarray(x, device=DEVICE) for x in case.arrays]
        if not all(x.size for x in case.arrays):
            with fb.config.scope(fallback="silent"):
                found = outcome(WAYS[way](run), *on_device)
        else:
            found = outcome(WAYS[way](run), *on_device)
        if isinstance(want, str) or isinstance(found, str):
            assert found == want, f"{case} {way}"
            continue
        with np.errstate(all="ignore"):
            exact = op.reference(*(x.astype(np.float64) for x in case.arrays), **case.params)
        if not np.isfinite(exact).all():  # infinite elements of a triangle
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(exact), str(case))
            continue
        verdict = check_results(op, case.arrays, case.params, (found,), (np.asarray(exact),), flushes=flushes)
        assert verdict.ok, f"{case} {way}: {verdict}"


@pytest.mark.parametrize("condition", [2.0, 1e4])
def test_errors_do_not_grow_with_the_number_of_rows(condition: float) -> None:
    rng = np.random.default_rng(3)
    x, y = positive(rng, (2,), 300, condition), rng.normal(size=(300, 2)).astype(np.float32)
    factor = OPS["cholesky"](fb.asarray(x, device=DEVICE)).numpy()
    exact = np.linalg.cholesky(x.astype(np.float64))
    assert np.abs(factor - exact).max() < 2.0**-23 * np.abs(exact).max() * (2 if condition < 10 else condition / 10)
    for upper in (False, True):
        t = np.swapaxes(factor, -1, -2).copy() if upper else factor
        found = OPS["solve_triangular"](fb.asarray(t, device=DEVICE), fb.asarray(y, device=DEVICE), upper=upper).numpy()
        want = OPS["solve_triangular"].reference(t.astype(np.float64), y, upper=upper)
        assert check_results(OPS["solve_triangular"], (t, y), {"upper": upper}, (found,), (want,)).units < 2


def spoiled_stack() -> Array:
    """A stack with two matrices that are not positive definite."""
    x = positive(np.random.default_rng(0), (2, 3), 4, 10.0)
    x[1, 0], x[1, 2] = -x[1, 0], np.zeros((4, 4))
    return x


@pytest.mark.parametrize("way", WAYS)
def test_errors_name_the_first_matrix_and_count_the_others(way: str) -> None:
    x = fb.asarray(spoiled_stack(), device=DEVICE)
    want = r"must be positive definite\nReceived: matrix \(1, 0\) of a stack of shape \(2, 3\) is not \(2 in all\)"
    with pytest.raises(fb.LinAlgError, match=want):
        WAYS[way](lambda x: fb.linalg.cholesky(x))(x)
    zero = fb.asarray(np.diag([1.0, 0.0]).astype(np.float32), device=DEVICE)
    with pytest.raises(
        fb.LinAlgError, match=r"solve_triangular: every matrix must be invertible\nReceived: the matrix is not\."
    ):
        WAYS[way](lambda x: fb.linalg.solve_triangular(x, x, upper=True))(zero)


def test_of_several_matrices_without_an_answer_the_first_operation_of_a_program_is_reported() -> None:
    x = fb.asarray(spoiled_stack(), device=DEVICE)
    zero = fb.zeros((2, 2), device=DEVICE)

    @fb.jit
    def both(x: fb.Tensor, zero: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        return fb.linalg.solve_triangular(zero, zero, upper=True) + 1.0, fb.linalg.cholesky(x * 2.0)

    with pytest.raises(fb.LinAlgError, match="solve_triangular"):
        both(x, zero)
    with pytest.raises(fb.LinAlgError, match="cholesky"):
        both(x, zero + fb.eye(2, device=DEVICE))


def test_a_matrix_without_an_answer_changes_no_state() -> None:
    layer = fb.nn.Linear(4, 4).to(DEVICE)
    optimizer = fb.optim.SGD(layer, lr=0.1, momentum=0.9)

    @fb.jit
    def step(layer: fb.nn.Linear, x: fb.Tensor) -> fb.Tensor:
        def loss(layer: fb.nn.Linear) -> fb.Tensor:
            return fb.sum(layer(x) ** 2)

        value, grads = fb.value_and_grad(loss)(layer)
        optimizer.update(layer, grads)
        return value + fb.sum(fb.linalg.cholesky(x))

    good = fb.asarray(positive(np.random.default_rng(0), (), 4, 10.0), device=DEVICE)
    step(layer, good)
    before = layer.weight.numpy().copy()
    with pytest.raises(fb.LinAlgError, match="cholesky"):
        step(layer, good * -1.0)
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    step(layer, good)
    assert not np.array_equal(layer.weight.numpy(), before)


def test_a_kernel_that_follows_waits_for_no_range_that_is_known() -> None:
    """Indices that are proved to be in range prove nothing of matrices."""
    at = fb.asarray(np.array([0, 1]), device=DEVICE)
    x = fb.asarray(spoiled_stack().reshape(6, 4, 4), device=DEVICE)
    with pytest.raises(fb.LinAlgError, match=r"matrix \(1,\) of a stack of shape \(2,\)"):
        fb.jit(lambda x, at: fb.linalg.cholesky(fb.take(x, at, axis=0) + 0.0))(x[2:4], at)


def test_gradients_and_examples_are_computed_on_the_device() -> None:
    rng = np.random.default_rng(1)
    x, y = positive(rng, (3,), 5, 50.0), rng.normal(size=(3, 5, 2)).astype(np.float32)

    def solved(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        factor = fb.linalg.cholesky(x)
        return fb.sum(fb.linalg.solve_triangular(factor, y, upper=False) ** 2) + fb.sum(fb.log(fb.linalg.diagonal(factor)))

    def gradient(device: str, dtype: str) -> Array:
        a, b = (fb.asarray(v.astype(dtype), device=device) for v in (x, y))
        return np.asarray(fb.jit(fb.grad(solved))(a, b).numpy())

    exact = gradient("numpy:0", "float64")
    np.testing.assert_allclose(gradient(DEVICE, "float32"), exact, rtol=0, atol=1e-4 * np.abs(exact).max())
    a, b = fb.asarray(x, device=DEVICE), fb.asarray(y, device=DEVICE)
    each = [solved(a[k], b[k]).numpy() for k in range(3)]
    np.testing.assert_allclose(fb.vmap(solved)(a, b).numpy(), each, rtol=1e-5)
    np.testing.assert_allclose(fb.vmap(fb.grad(solved))(a, b).numpy(), exact, rtol=0, atol=1e-4 * np.abs(exact).max())


def test_views_are_factored_and_solved_with_as_copies() -> None:
    x = positive(np.random.default_rng(2), (2, 3), 6, 20.0)
    given = fb.asarray(np.ascontiguousarray(x.transpose(3, 1, 0, 2)), device=DEVICE)
    want = fb.linalg.cholesky(fb.asarray(x, device=DEVICE)).numpy()
    np.testing.assert_array_equal(fb.linalg.cholesky(fb.permute_dims(given, (2, 1, 3, 0))).numpy(), want)
    lower = fb.asarray(want, device=DEVICE)
    y = fb.asarray(x[:1], device=DEVICE)
    found = fb.linalg.solve_triangular(fb.linalg.matrix_transpose(lower), y[..., ::-1], upper=True).numpy()
    copied = fb.asarray(np.swapaxes(want, -1, -2).copy(), device=DEVICE)
    other = fb.linalg.solve_triangular(copied, fb.asarray(x[:1, ..., ::-1].copy(), device=DEVICE), upper=True).numpy()
    np.testing.assert_array_equal(found, other)


@pytest.mark.parametrize("dtype", ["complex64", "float32"])
def test_other_matrices_run_on_the_host_by_name(dtype: str) -> None:
    n = 2 if dtype == "complex64" else LARGEST_MATRIX + 1
    x = fb.eye(n, dtype=dtype, device=DEVICE)
    for run in (lambda: fb.linalg.cholesky(x), lambda: fb.linalg.solve_triangular(x, x, upper=False)):
        with pytest.raises(fb.UnsupportedError, match=dtype):
            run()
        with fb.config.scope(fallback="silent"):
            np.testing.assert_array_equal(run().numpy(), np.eye(n, dtype=dtype))
    why = "no kernels of complex64" if dtype == "complex64" else f"matrices of more than {LARGEST_MATRIX} rows"
    with fb.config.scope(fallback="silent"):
        assert why in fb.jit(fb.linalg.cholesky).explain(x)
    at_most = fb.eye(LARGEST_MATRIX, device=DEVICE)
    np.testing.assert_array_equal(fb.linalg.cholesky(at_most).numpy(), at_most.numpy())
    column = at_most[:, :1]
    np.testing.assert_array_equal(fb.linalg.solve_triangular(at_most, column, upper=True).numpy(), column.numpy())


def test_no_right_sides_need_invertible_triangles_too() -> None:
    zero = fb.zeros((2, 2), device=DEVICE)
    for run in (fb.linalg.solve_triangular, fb.jit(fb.linalg.solve_triangular)):
        with fb.config.scope(fallback="silent"), pytest.raises(fb.LinAlgError, match="invertible"):
            run(zero, zero[:, :0], upper=True)
    assert fb.linalg.solve_triangular(fb.zeros((0, 2, 2), device=DEVICE), zero, upper=True).shape == (0, 2, 2)
    assert fb.linalg.cholesky(fb.zeros((3, 0, 0), device=DEVICE)).shape == (3, 0, 0)
