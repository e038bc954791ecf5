"""``solve`` of many systems of equal size on the ``cpu`` engine's own kernel, beside LAPACK: backward errors, pivots, what is
singular or not finite, and equal bits for any number of threads."""

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import eager, linear_systems


@pytest.fixture
def by_kernel(monkeypatch):
    """How often the kernel has solved a stack."""
    results = []
    solved = linear_systems.solved

    def counted(x1, x2):
        results.append(solved(x1, x2))
        return results[-1]

    monkeypatch.setattr(linear_systems, "solved", counted)
    return results


def _systems(rng, kind, n, dtype):
    a, b = rng.normal(size=(4, 8, n, n)), rng.normal(size=(4, 8, n, 1))
    if kind == "permutations":  # many pivots of equal size, and zeros on the diagonal
        a = np.stack([np.eye(n)[rng.permutation(n)] for _ in range(32)]).reshape(4, 8, n, n)
    elif kind == "scaled rows":
        a *= 10.0 ** rng.integers(-12, 12, size=(4, 8, n, 1))
    elif kind == "zero right sides":
        b *= 0.0
    return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["normal", "permutations", "scaled rows", "zero right sides"])
def test_many_systems_have_the_backward_error_of_lapack(by_kernel, kind, dtype):
    rng = np.random.default_rng(5)
    for n in (32, 33, 39, 40, 64):
        a, b = _systems(rng, kind, n, dtype)
        x = fb.linalg.solve(fb.asarray(a), fb.asarray(b)).numpy()
        assert x.dtype == dtype
        residual = np.abs(a.astype(np.longdouble) @ x - b).max((-1, -2))
        scale = (np.abs(a) @ np.abs(x).astype(np.float64) + np.abs(b)).max((-1, -2))
        assert np.all(residual <= 6 * np.finfo(dtype).eps * scale)
    assert len(by_kernel) == 5
    assert all(r is not None for r in by_kernel)


def test_the_kernel_solves_under_jit_and_vmap_with_the_same_bits_and_its_gradient_is_right(by_kernel):
    rng = np.random.default_rng(6)
    a, b = fb.asarray(rng.normal(size=(32, 36, 36)) + 9 * np.eye(36)), fb.asarray(rng.normal(size=(32, 36)))
    one = fb.vmap(fb.linalg.solve)(a, b)
    two = fb.jit(fb.vmap(fb.linalg.solve))(a, b)
    assert np.array_equal(one.numpy(), two.numpy())
    assert len(by_kernel) == 2
    got = fb.grad(lambda a: fb.sum(fb.vmap(fb.linalg.solve)(a, b)))(a).numpy()
    back = np.linalg.solve(np.swapaxes(a.numpy(), -1, -2), np.ones((32, 36, 1)))
    np.testing.assert_allclose(got, -back * one.numpy()[:, None, :], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_gives_what_numpy_gives(by_kernel, bad):
    rng = np.random.default_rng(7)
    for at in ((3, 0, 0), (3, 31, 5), (0, 7, 31)):
        a, b = rng.normal(size=(32, 32, 32)), rng.normal(size=(32, 32, 1))
        a[at] = bad
        np.testing.assert_array_equal(fb.linalg.solve(fb.asarray(a), fb.asarray(b)).numpy(), np.linalg.solve(a, b))
    assert by_kernel == [None] * 3


def test_a_singular_matrix_of_many_is_named_as_one_of_few():
    a = np.random.default_rng(8).normal(size=(32, 40, 40))
    a[5, :, 3] = 0.0
    with pytest.raises(fb.LinAlgError, match=r"matrix \(5,\) of a stack of shape \(32,\) is not"):
        fb.linalg.solve(fb.asarray(a), fb.ones((32, 40, 1), dtype=fb.float64))


@pytest.mark.parametrize(
    ("a", "b", "dtype", "expected"),
    [
        ((32, 32, 32), (32, 32, 1), "float32", True), ((8, 4, 64, 64), (8, 4, 64, 1), "float64", True),
        ((31, 64, 64), (31, 64, 1), "float32", False), ((64, 31, 31), (64, 31, 1), "float32", False),
        ((64, 65, 65), (64, 65, 1), "float32", False), ((32, 32, 32), (32, 32, 2), "float32", False),
        ((32, 32, 32), (1, 32, 1), "float32", False), ((32, 32), (32, 1), "float32", False),
        ((0, 32, 32), (0, 32, 1), "float32", False), ((64, 0, 0), (64, 0, 1), "float32", False),
        ((32, 32, 32), (32, 32, 1), "complex64", False),
    ],
)  # fmt: skip
def test_shapes_and_dtypes_decide_which_systems_are_lapacks(a, b, dtype, expected):
    assert eager.are_many_systems(np.empty(a, dtype), np.empty(b, dtype)) is expected


def test_any_number_of_threads_gives_the_same_bits(by_kernel):
    rng = np.random.default_rng(9)
    a, b = fb.asarray(rng.normal(size=(70, 64, 64))), fb.asarray(rng.normal(size=(70, 64, 1)))
    found = []
    for threads in (1, 2, 4):
        with fb.config.scope(num_threads=threads):
            found.append(fb.linalg.solve(a, b).numpy())
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert len(by_kernel) == 3
