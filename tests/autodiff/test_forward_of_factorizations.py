"""Rules of forward mode of decompositions, sorts and recurrences: against central differences in float64, the transposed
gradient rule, second derivatives, and where derivatives do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.autodiff import forward
from firebrick.core import trees
from firebrick.ops import OPS

ENGINES = ["cpu", "numpy", "torch:cpu"]
Results = tuple[fb.Tensor, ...]


def op(name: str, **params: Any) -> Callable[..., Results]:
    """The inexact results of an op."""

    def fn(*xs: fb.Tensor) -> Results:
        found = OPS[name](*xs, **params)
        return tuple(t for t in (found if isinstance(found, tuple) else (found,)) if t.dtype.is_inexact)

    return fn


def drawn(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray[Any, Any]:
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if kind == "complex" else x


MATRICES: dict[str, tuple[Callable[..., Results], list[tuple[int, ...]]]] = {
    "eigh": (op("eigh"), [(3, 3), (2, 1, 2, 2), (1, 1), (0, 0), (2, 0, 0), (0, 3, 3)]),
    "eig": (op("eig"), [(3, 3), (2, 1, 2, 2), (1, 1), (0, 0), (0, 3, 3)]),
    "svd": (op("svd"), [(3, 3), (4, 2), (2, 2, 4), (1, 3), (3, 1), (1, 1), (0, 2), (2, 0), (0, 2, 2)]),
    "qr": (op("qr", complete=False), [(3, 3), (4, 2), (2, 2, 4), (1, 3), (3, 1), (1, 1), (0, 2), (2, 0)]),
    "complete qr": (op("qr", complete=True), [(3, 3), (2, 2, 4), (0, 2)]),
    "lu": (op("lu"), [(3, 3), (4, 2), (2, 2, 4), (1, 3), (3, 1), (1, 1), (0, 2), (2, 0)]),
}
CASES = [(name, kind, shape) for name, (_, shapes) in MATRICES.items() for kind in ("real", "complex") for shape in shapes]


def check(fn: Callable[..., Results], x: tuple[Any, ...], t: tuple[Any, ...], device: str = "numpy") -> None:
    """``jvp`` against central differences with one Richardson step, and against what ``linearize`` transposes."""
    xs, ts = (tuple(fb.asarray(a, device=device) for a in arrays) for arrays in (x, t))
    values, found = fb.jvp(fn, xs, ts)
    _, push = fb.linearize(fn, *xs)

    def moved(step: float) -> list[np.ndarray[Any, Any]]:
        points = (tuple(fb.asarray(a + s * step * b, device=device) for a, b in zip(x, t, strict=True)) for s in (1, -1))
        up, down = (fn(*p) for p in points)
        return [(a.numpy() - b.numpy()) / (2 * step) for a, b in zip(up, down, strict=True)]

    wide, narrow = moved(2e-4), moved(1e-4)
    for y, dy, same, a, b in zip(values, found, push(*ts), wide, narrow, strict=True):
        assert (dy.shape, dy.dtype) == (y.shape, y.dtype)
        size = 1.0 + float(np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(dy.numpy(), (4 * b - a) / 3, rtol=0, atol=2e-7 * size)
        np.testing.assert_allclose(dy.numpy(), same.numpy(), rtol=0, atol=1e-10 * size)


@pytest.mark.parametrize(("name", "kind", "shape"), CASES, ids=[f"{n} {k} {s}" for n, k, s in CASES])
def test_tangents_of_factorizations_are_central_differences(name: str, kind: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng([len(name), *shape])
    check(MATRICES[name][0], (drawn(rng, shape, kind),), (drawn(rng, shape, kind),))


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("name", list(MATRICES))
def test_tangents_on_each_engine_under_jit_and_under_vmap_are_the_same(name: str, device: str) -> None:
    fn, rng = MATRICES[name][0], np.random.default_rng(3)
    x, t = (fb.asarray(rng.normal(size=(4, 3, 3)), device=device) for _ in range(2))
    along = lambda x, t: fb.jvp(fn, (x,), (t,))[1]  # noqa: E731
    want = along(*(fb.asarray(a.numpy(), device="numpy") for a in (x, t)))
    for found in (along(x, t), fb.jit(along)(x, t), fb.vmap(along)(x, t), fb.jit(fb.vmap(along))(x, t)):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", list(MATRICES))
def test_second_derivatives_in_forward_mode_are_differences_of_first_ones(name: str, kind: str) -> None:
    fn, rng = MATRICES[name][0], np.random.default_rng(5)
    x, t, u = (fb.asarray(drawn(rng, (3, 3), kind), device="numpy") for _ in range(3))
    along = lambda x: fb.jvp(fn, (x,), (t,))[1]  # noqa: E731
    found = fb.jvp(along, (x,), (u,))[1]
    step = 1e-5
    for a, up, down in zip(found, along(x + u * step), along(x - u * step), strict=True):
        want = (up.numpy() - down.numpy()) / (2 * step)
        np.testing.assert_allclose(a.numpy(), want, rtol=1e-5, atol=1e-5 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_values_of_matrices_with_equal_values_have_derivatives_and_their_vectors_have_none(mode: Any) -> None:
    x = fb.asarray(np.diag([2.0, 1.0, 1.0]), device="numpy")
    sums = fb.jacobian(lambda x: fb.sum(fb.linalg.eigvalsh(x)), mode=mode)(x)
    np.testing.assert_allclose(sums.numpy(), np.eye(3), atol=1e-12)
    sums = fb.jacobian(lambda x: fb.sum(fb.linalg.svdvals(x)), mode=mode)(x)
    np.testing.assert_allclose(sums.numpy(), np.eye(3), atol=1e-12)
    along = fb.asarray([[0.0, 0.3, 0.0], [0.3, 0.0, 0.5], [0.0, 0.5, 0.0]], dtype=fb.float64, device="numpy")
    for fn, at in ((fb.linalg.eigh, 1), (fb.linalg.svd, 0)):
        assert np.isnan(fb.jvp(lambda x, fn=fn, at=at: fn(x)[at], (x,), (along,))[1].numpy()).any()
    w, dw = fb.jvp(lambda x: fb.linalg.eigh(x)[0], (x,), (along,))
    assert np.isfinite(dw.numpy()).all()
    assert w.tolist() == [1.0, 1.0, 2.0]


def test_vectors_of_a_low_rank_have_the_tangents_that_the_gradient_rule_gives_them() -> None:
    rng = np.random.default_rng(7)
    low = rng.normal(size=(4, 2)) @ rng.normal(size=(2, 4))
    x, t = fb.asarray(low, device="numpy"), fb.asarray(rng.normal(size=(4, 4)), device="numpy")
    _, dy = fb.jvp(lambda x: fb.linalg.svd(x).S[:2], (x,), (t,))
    _, push = fb.linearize(lambda x: fb.linalg.svd(x).S[:2], x)
    np.testing.assert_allclose(dy.numpy(), push(t).numpy(), atol=1e-10)
    assert np.isnan(fb.jvp(lambda x: fb.linalg.svd(x, full_matrices=False).U, (x,), (t,))[1].numpy()).any()
    tall = fb.asarray(np.asarray([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), device="numpy")
    assert np.isnan(fb.jvp(lambda x: fb.linalg.svd(x, full_matrices=False).U, (tall,), (t[:3, :2],))[1].numpy()).any()


def test_columns_that_are_arbitrary_are_refused_in_forward_mode_too() -> None:
    x = fb.ones((3, 2), dtype=fb.float64, device="numpy") + fb.eye(3, 2, dtype=fb.float64, device="numpy")
    with pytest.raises(fb.GradientError, match="a gradient needs as many columns of Q as are determined by x"):
        fb.jvp(lambda x: fb.linalg.qr(x, mode="complete"), (x,), (x,))


# sorts and recurrences

AXES = [((4,), 0), ((2, 3), 1), ((2, 3), 0), ((1, 3), 0), ((3, 1), 1), ((0, 2), 0), ((2, 0), 0), ((3, 3), 1)]


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_tangents_of_sorts_and_recurrences_are_central_differences(shape: tuple[int, ...], axis: int, kind: str) -> None:
    rng = np.random.default_rng([*shape, axis])
    x, a, t, b = (drawn(rng, shape, kind) for _ in range(4))
    for reverse in (False, True):
        check(op("cumulative_prod", axis=axis, reverse=reverse), (x,), (t,))
        for shifted in (False, True):
            fn = op("linear_recurrence", axis=axis, reverse=reverse, shifted=shifted)
            check(fn, (a, x), (b, t))
            here = [fb.asarray(v, device="numpy") for v in (a, x, b, t)]
            first = fb.jvp(lambda v, fn=fn, x=here[1]: fn(v, x), (here[0],), (here[2],))[1][0]
            second = fb.jvp(lambda v, fn=fn, a=here[0]: fn(a, v), (here[1],), (here[3],))[1][0]
            both = fb.jvp(fn, tuple(here[:2]), tuple(here[2:]))[1][0]
            np.testing.assert_allclose((first + second).numpy(), both.numpy(), atol=1e-12)
        if kind == "real":
            check(op("sort_values", axis=axis, descending=reverse), (x,), (t,))


def test_products_with_zeros_have_tangents() -> None:
    for x in ([2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 0.0]):
        check(op("cumulative_prod", axis=0, reverse=False), (np.asarray(x),), (np.asarray([0.5, -1.0, 2.0]),))


def test_equal_elements_of_a_sort_keep_the_tangents_of_their_order() -> None:
    x, t = (fb.asarray(v, device="numpy", dtype=fb.float64) for v in ([1.0, 2.0, 1.0], [5.0, 6.0, 7.0]))
    for down, want in ((False, [5.0, 7.0, 6.0]), (True, [6.0, 5.0, 7.0])):
        fn = op("sort_values", axis=0, descending=down)
        assert fb.jvp(fn, (x,), (t,))[1][0].tolist() == want
        assert fb.linearize(fn, x)[1](t)[0].tolist() == want


def test_none_of_these_differentiates_its_gradient_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_by_double_vjp", lambda level, op, *rest: pytest.fail(f"{op.name} has no rule"))
    x = fb.asarray(np.random.default_rng(1).normal(size=(3, 3)), device="numpy")
    fns = [fn for fn, _ in MATRICES.values()]
    fns += [op("sort_values", axis=0, descending=False), op("cumulative_prod", axis=1, reverse=True)]
    fns.append(lambda x: op("linear_recurrence", axis=1, reverse=False, shifted=False)(x, x))
    for fn in fns:
        assert all(np.isfinite(t.numpy()).all() for t in trees.flatten(fb.jvp(fn, (x,), (x,))[1])[0])


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_forward_mode_of_completed_singular_vectors_is_refused_with_the_remedy(shape: tuple[int, int]) -> None:
    x = fb.asarray(np.random.default_rng(3).normal(size=shape))
    with pytest.raises(fb.GradientError, match=r"last 2 columns of Q are arbitrary[\s\S]*of svd, full_matrices=False"):
        fb.jvp(lambda x: fb.linalg.svd(x).S, (x,), (fb.ones_like(x),))
    _, tangents = fb.jvp(lambda x: fb.linalg.svd(x, full_matrices=False).S, (x,), (fb.ones_like(x),))
    u, _, vh = np.linalg.svd(x.numpy(), full_matrices=False)
    np.testing.assert_allclose(tangents.numpy(), np.diag(u.T @ np.ones(shape) @ vh.T), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3)], ids=str)
def test_forward_mode_of_singular_values_of_empty_matrices(shape: tuple[int, ...]) -> None:
    x = fb.zeros(shape)
    y, dy = fb.jvp(lambda x: fb.linalg.svd(x, full_matrices=False), (x,), (fb.ones(shape),))
    assert [t.shape for t in dy] == [t.shape for t in y]
    assert all((t.numpy() == 0).all() for t in dy)
