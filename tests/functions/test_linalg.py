"""``fb.linalg`` against NumPy's, its gradients against torch's, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import firebrick as fb

KINDS = ["float64", "complex128"]


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, *shape])
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if dtype.startswith("c") else x


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def hermitian(shape: tuple[int, ...], dtype: str) -> Any:
    x = random(shape, dtype)
    return x + adjoint(x)


def positive(shape: tuple[int, ...], dtype: str) -> Any:
    x = random(shape, dtype)
    return x @ adjoint(x) + np.eye(shape[-1])


def close(got: fb.Tensor, want: Any, tolerance: float = 1e-10) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype.name == want.dtype.name
    np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


def check_orthonormal(v: Any) -> None:
    """Check that the columns of each matrix are orthonormal."""
    np.testing.assert_allclose(
        adjoint(v) @ v, np.broadcast_to(np.eye(v.shape[-1]), (*v.shape[:-2], *v.shape[-1:] * 2)), atol=1e-12
    )


def on(device: str, *arrays: Any) -> list[fb.Tensor]:
    return [fb.asarray(a, device=device) for a in arrays]


SQUARE = [(3, 3), (2, 3, 3), (2, 1, 4, 4), (1, 1), (0, 0), (2, 0, 0), (0, 3, 3)]
ANY = [*SQUARE, (4, 2), (2, 4), (2, 5, 3), (3, 2, 5), (2, 3, 0), (0, 3)]

kinds = pytest.mark.parametrize("dtype", KINDS)


EXTENSIONS = {
    "linalg": "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose "
    "outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm",
    "fft": "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift",
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_extensions_of_the_standard_are_complete(name: str) -> None:
    assert set(EXTENSIONS[name].split()) <= set(getattr(fb, name).__all__)


def test_the_extensions_are_imported_when_first_used() -> None:
    text = "import sys, firebrick as fb; a = 'firebrick.functions.linalg' in sys.modules; fb.linalg.inv; fb.fft.fft; print(a)"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@kinds
@pytest.mark.parametrize("name", ["det", "inv", "cholesky", "eigvalsh", "matrix_rank", "pinv"])
def test_functions_of_square_matrices(name: str, dtype: str, device: str) -> None:
    for shape in SQUARE:
        a = positive(shape, dtype)
        if name == "matrix_rank" and not shape[-1]:
            continue  # NumPy has no rank of empty matrices
        (x,) = on(device, a)
        want = getattr(np.linalg, name)(a)
        close(getattr(fb.linalg, name)(x), want)


@kinds
def test_logarithms_of_determinants(dtype: str, device: str) -> None:
    for shape in SQUARE:
        a = random(shape, dtype)
        got, want = fb.linalg.slogdet(*on(device, a)), np.linalg.slogdet(a)
        close(got.sign, want.sign)
        close(got.logabsdet, want.logabsdet)


def test_a_singular_matrix_has_determinant_0(device: str) -> None:
    (x,) = on(device, np.asarray([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]]]))
    sign, logabs = fb.linalg.slogdet(x)
    assert (sign.tolist(), logabs.tolist()[0]) == ([0.0, -1.0], -np.inf)
    np.testing.assert_allclose(fb.linalg.det(x).numpy(), [0.0, -2.0])


def by_permutations(x: fb.Tensor) -> fb.Tensor:
    """The determinant of each matrix as the sum over all permutations, a polynomial."""
    n = x.shape[-1]
    terms = []
    for order in permutations(range(n)):
        sign = (-1.0) ** sum(order[j] > order[i] for i in range(n) for j in range(i))
        terms.append(fb.prod(fb.stack([x[..., i, order[i]] for i in range(n)]), axis=0) * sign)
    return fb.sum(fb.stack(terms), axis=0)


@pytest.mark.parametrize("a", [
    [[-0.2765176128775258, -0.13731774770020175], [-0.9217253762584194, -0.45772582566733916]],
    [[0.1, 0.2, 0.7], [-0.4, 0.3, 0.5], [0.03, 0.06, 0.21]],
    [[1.0, 2.0], [2.0, 4.0]],
    [[0.0, 1.0], [0.0, 2.0]],
    [[1.0, 2.0, 3.0], [2.0, 4.0, 6.1], [2.0, 4.0, 6.0]],
    [[0.0]],
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
], ids=["rounded", "rounded rows", "exact", "column of zeros", "rank 2", "zero", "identity"])  # fmt: skip
def test_derivatives_of_determinants_are_those_of_the_polynomial_also_where_a_matrix_has_no_inverse(
    a: list[list[float]], device: str
) -> None:
    (x,) = on(device, np.asarray(a))
    want = fb.grad(by_permutations)(x).numpy()
    for gradient in (fb.grad(fb.linalg.det), fb.jacobian(fb.linalg.det, mode="forward"), fb.jit(fb.grad(fb.linalg.det))):
        np.testing.assert_allclose(gradient(x).numpy(), want, rtol=1e-12, atol=1e-13)
    if len(a) > 1:  # else the polynomial is linear
        curvature = fb.hessian(by_permutations)(x).numpy()
        np.testing.assert_allclose(fb.hessian(fb.linalg.det)(x).numpy(), curvature, rtol=1e-12, atol=1e-13)


def check_gradients_of_determinants(device: str, seed: int) -> None:
    """Random matrices, in most of which a row is a multiple of another one, against determinants of their minors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    a = rng.normal(size=(20, n, n))
    a[5:, 0] = a[5:, -1] * rng.choice([0.1, 0.3, 1.0, 7.0], (15, 1))
    a[15:, 0] += a[15:, -1] * 10.0 ** rng.integers(-16, -2, (5, 1))
    a = a[:, rng.permutation(n)] * 10.0 ** rng.integers(-3, 4)
    minors = [[np.delete(np.delete(a, i, 1), j, 2) for j in range(n)] for i in range(n)]
    want = np.stack(
        [np.stack([(-1) ** (i + j) * np.linalg.det(m) for j, m in enumerate(row)], -1) for i, row in enumerate(minors)], 1
    )
    got = fb.grad(lambda x: fb.sum(fb.linalg.det(x)))(fb.asarray(a, device=device)).numpy()
    assert (np.abs(got - want) <= 1e-11 * np.abs(want).max((1, 2), keepdims=True)).all(), f"seed {seed}: n = {n}"


def test_gradients_of_determinants_of_random_matrices_are_their_minors(device: str) -> None:
    for seed in range(20):
        check_gradients_of_determinants(device, seed)


@pytest.mark.soak
def test_gradients_of_determinants_of_many_random_matrices_are_their_minors(device: str) -> None:
    for seed in range(3000):
        check_gradients_of_determinants(device, seed)


def test_gradients_of_determinants_of_a_stack_are_those_of_each_matrix(device: str) -> None:
    a = random((4, 3, 3), "complex128", 5)
    a[1, 0] = a[1, 2] * (2.0 - 1.0j)
    (x,) = on(device, a)

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.real(fb.linalg.det(x) * (0.3 - 1.2j)))

    each = np.stack([fb.grad(lambda y: fb.real(by_permutations(y) * (0.3 - 1.2j)))(y).numpy() for y in x])
    np.testing.assert_allclose(fb.grad(loss)(x).numpy(), each, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(fb.vmap(fb.grad(loss))(x).numpy(), each, rtol=1e-12, atol=1e-13)


def of_rank(rank: int, n: int, dtype: str) -> np.ndarray:
    return random((n, rank), dtype, 3) @ random((rank, n), dtype, 4)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_of_determinants_of_any_rank_are_those_of_the_polynomial(n: int, dtype: str, device: str) -> None:
    a = np.stack([of_rank(rank, n, dtype) for rank in range(n + 1)])
    (x, t) = on(device, a, random(a.shape, dtype, 5))

    def by(det: Callable[[fb.Tensor], fb.Tensor]) -> Callable[[fb.Tensor], fb.Tensor]:
        return lambda x: fb.sum(fb.real(det(x) * (0.3 - 1.2j if dtype == "complex128" else 1.0)))

    got, want = fb.grad(by(fb.linalg.det)), fb.grad(by(by_permutations))
    np.testing.assert_allclose(got(x).numpy(), want(x).numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fb.jit(got)(x).numpy(), want(x).numpy(), rtol=1e-12, atol=1e-12)
    tangents = [fb.jvp(det, (x,), (t,))[1].numpy() for det in (fb.linalg.det, by_permutations)]
    np.testing.assert_allclose(*tangents, rtol=1e-12, atol=1e-12)
    curvature = want_curvature = None
    for g in (got, want):
        forward = fb.jvp(g, (x,), (t,))[1].numpy()
        backward = fb.grad(lambda y, g=g: fb.sum(fb.real(fb.conj(t) * g(y))))(x).numpy()
        np.testing.assert_allclose(forward, backward, rtol=1e-12, atol=1e-12)
        curvature, want_curvature = forward, curvature
    np.testing.assert_allclose(curvature, want_curvature, rtol=1e-11, atol=1e-11)


def test_third_derivatives_of_determinants_are_those_of_the_polynomial_or_nan(device: str) -> None:
    """Of each matrix of a stack by itself. They are unknown only for four rows or more, and a rank of two less."""
    for n in (2, 3, 4):
        (x, t) = on(device, np.stack([of_rank(rank, n, "float64") for rank in range(n + 1)]), random((n + 1, n, n), "float64"))

        def third(det: Callable[[fb.Tensor], fb.Tensor], x: fb.Tensor, t: fb.Tensor) -> np.ndarray:
            curvature = lambda y: fb.sum(fb.jvp(fb.grad(lambda z: fb.sum(det(z))), (y,), (t,))[1] * t)  # noqa: E731
            return fb.grad(lambda y: curvature(y) + 0.0 * fb.sum(y))(x).numpy()

        got = third(fb.linalg.det, x, t)
        unknown = n - 1 if n == 4 else 0
        assert np.isnan(got[:unknown]).all()
        want = third(by_permutations, x, t)
        np.testing.assert_allclose(got[unknown:], want[unknown:], rtol=1e-11, atol=1e-11)


def test_products_of_singular_values_neither_overflow_nor_underflow_where_the_cofactors_do_not(device: str) -> None:
    """A rank of n - 2, where products of large values meet small ones and a 0."""
    (x,) = on(device, np.diag([1e-200, 1e-200, 1e250, 1e250, 0.0, 0.0]))
    assert np.array_equal(fb.grad(fb.linalg.det)(x).numpy(), np.zeros((6, 6)))
    (t,) = on(device, np.diag([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]))
    np.testing.assert_allclose(fb.jvp(fb.grad(fb.linalg.det), (x,), (t,))[1].numpy()[5, 5], 1e100, rtol=1e-9)


def test_the_gradient_of_a_logarithm_of_a_determinant_0_is_refused(device: str) -> None:
    with pytest.raises(fb.LinAlgError, match="invertible"):
        fb.grad(lambda x: fb.linalg.slogdet(x)[1])(fb.ones((3, 3), device=device))


@kinds
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_gives_back_the_matrix(mode: str, dtype: str, device: str) -> None:
    for shape in ANY:
        a = random(shape, dtype)
        q, r = fb.linalg.qr(*on(device, a), mode=mode)
        want_q, want_r = np.linalg.qr(a, mode)
        assert (q.shape, r.shape) == (want_q.shape, want_r.shape)
        close(fb.matmul(q, r), a)
        check_orthonormal(q.numpy())
        close(fb.linalg.diagonal(r), np.abs(np.diagonal(want_r, axis1=-2, axis2=-1)).astype(dtype))
        close(fb.tril(r, k=-1), np.zeros(r.shape, dtype))


@kinds
@pytest.mark.parametrize("full", [False, True])
def test_singular_value_decompositions_give_back_the_matrix(full: bool, dtype: str, device: str) -> None:
    for shape in ANY:
        a = random(shape, dtype)
        u, s, vh = fb.linalg.svd(*on(device, a), full_matrices=full)
        want_u, want_s, want_vh = np.linalg.svd(a, full_matrices=full)
        assert (u.shape, vh.shape) == (want_u.shape, want_vh.shape)
        close(s, want_s)
        close(fb.linalg.svdvals(*on(device, a)), want_s)
        k = s.shape[-1]
        close(fb.matmul(u[..., :k] * fb.astype(s, u.dtype)[..., None, :], vh[..., :k, :]), a)
        check_orthonormal(u.numpy())
        check_orthonormal(adjoint(vh.numpy()))


@kinds
def test_eigenvectors_are_vectors_of_their_values(dtype: str, device: str) -> None:
    for shape in SQUARE:
        a = hermitian(shape, dtype)
        w, v = fb.linalg.eigh(*on(device, a))
        close(w, np.linalg.eigvalsh(a))
        close(fb.matmul(fb.asarray(a, device=device), v), v.numpy() * w.numpy()[..., None, :])


@kinds
def test_vectors_have_a_leading_component_that_is_real_and_positive(dtype: str, device: str) -> None:
    a = hermitian((5, 6, 6), dtype)
    for v in (fb.linalg.eigh(*on(device, a)).eigenvectors.numpy(), fb.linalg.svd(*on(device, a)).U.numpy()):
        size = np.abs(v)
        first = np.argmax(size >= 0.55 * size.max(-2, keepdims=True), -2)[:, None]
        lead = np.take_along_axis(v, first, -2)
        assert (lead.real > 0).all()
        np.testing.assert_allclose(np.imag(lead), 0, atol=1e-15)


def test_a_symmetric_matrix_of_equal_components_has_the_same_vectors_everywhere(device: str) -> None:
    (x,) = on(device, np.asarray([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]]))
    r = 0.5**0.5
    want = [[0.5, r, 0.5], [r, 0.0, -r], [0.5, -r, 0.5]]
    np.testing.assert_allclose(fb.linalg.eigh(x).eigenvectors.numpy(), want, atol=1e-12)


@kinds
def test_cholesky_of_the_upper_kind(dtype: str, device: str) -> None:
    a = positive((2, 3, 3), dtype)
    close(fb.linalg.cholesky(*on(device, a), upper=True), adjoint(np.linalg.cholesky(a)))


@kinds
@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 4)), ((3, 3), (5, 3, 1)), ((2, 1, 3, 3), (4, 3, 2)),
     ((2, 2, 2), (2, 2, 2)), ((0, 0), (0, 2)), ((2, 3, 3), (3, 0))],
    ids=str,
)  # fmt: skip
def test_linear_equations(a: tuple[int, ...], b: tuple[int, ...], dtype: str, device: str) -> None:
    m, v = random(a, dtype) + 3 * np.eye(a[-1]), random(b, dtype)
    close(fb.linalg.solve(*on(device, m, v)), np.linalg.solve(m, v))
    for upper in (False, True):
        t = np.triu(m) if upper else np.tril(m)
        close(fb.linalg.solve_triangular(*on(device, m, v), upper=upper), np.linalg.solve(t, v))
        unit = t - t * np.eye(a[-1]) + np.eye(a[-1])
        close(fb.linalg.solve_triangular(*on(device, m, v), upper=upper, unitriangular=True), np.linalg.solve(unit, v))
        if len(b) > 1:
            w = np.swapaxes(v, -1, -2)
            want = np.swapaxes(np.linalg.solve(np.swapaxes(t, -1, -2), v), -1, -2)
            close(fb.linalg.solve_triangular(*on(device, m, w), upper=upper, left=False), want)


@kinds
@pytest.mark.parametrize(("m", "n"), [(5, 3), (3, 5), (4, 4)])
def test_least_squares(m: int, n: int, dtype: str, device: str) -> None:
    a, b = random((m, n), dtype), random((m, 2), dtype, 1)
    got = fb.linalg.lstsq(*on(device, a, b))
    want, residuals, rank, s = np.linalg.lstsq(a, b, rcond=None)
    close(got.solution, want)
    close(got.singular_values, s)
    assert got.rank.item() == rank
    np.testing.assert_allclose(got.residuals.numpy(), residuals if m > n else np.zeros(2), atol=1e-12)
    one = fb.linalg.lstsq(*on(device, np.stack([a, 2 * a]), b[:, 0]))
    close(one.solution, np.stack([want[:, 0], want[:, 0] / 2]))
    assert (one.residuals.shape, one.rank.shape, one.singular_values.shape) == ((2,), (2,), (2, min(m, n)))


def test_least_squares_of_a_matrix_without_full_rank_gives_the_shortest_solution(device: str) -> None:
    a, b = random((5, 2), "float64") @ random((2, 3), "float64"), random((5,), "float64")
    got = fb.linalg.lstsq(*on(device, a, b))
    close(got.solution, np.linalg.lstsq(a, b, rcond=None)[0])
    assert got.rank.item() == 2


def test_ranks_and_pseudoinverses_with_a_cutoff_for_each_matrix(device: str) -> None:
    a = np.stack([np.diag([1.0, 0.1, 1e-3])] * 2)
    (x, cut) = on(device, a, np.asarray([1e-2, 0.5]))
    assert fb.linalg.matrix_rank(x, rtol=cut).tolist() == [2, 1]
    assert fb.linalg.matrix_rank(x, rtol=1e-4).tolist() == [3, 3]
    close(fb.linalg.pinv(x, rtol=cut), np.stack([np.diag([1.0, 10.0, 0.0]), np.diag([1.0, 0.0, 0.0])]))
    assert fb.linalg.matrix_rank(fb.zeros((2, 0, 3), device=device)).tolist() == [0, 0]


@kinds
def test_powers(dtype: str, device: str) -> None:
    a = positive((2, 3, 3), dtype) / 3
    for n in (-3, -1, 0, 1, 2, 5, 8):
        close(fb.linalg.matrix_power(*on(device, a), n), np.linalg.matrix_power(a, n), 1e-9)


def test_a_first_power_is_another_handle(device: str) -> None:
    x = fb.eye(2, device=device)
    y = fb.linalg.matrix_power(x, 1)
    y += 1.0
    assert x.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@kinds
@pytest.mark.parametrize("size", [0.0, 0.5, 20.0])
def test_exponentials(size: float, dtype: str, device: str) -> None:
    a = hermitian((2, 4, 4), dtype) * size / 8
    w, v = np.linalg.eigh(a)
    close(fb.linalg.expm(*on(device, a)), (v * np.exp(w)[..., None, :]) @ adjoint(v), 1e-9)


@kinds
@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, -2, np.inf, -np.inf])
def test_norms_of_vectors(order: float, dtype: str, device: str) -> None:
    a = random((2, 3, 4), dtype)
    for axis in (None, 0, -1, (0, 2)):
        for keepdims in (False, True):
            got = fb.linalg.vector_norm(*on(device, a), axis=axis, keepdims=keepdims, ord=order)
            close(got, np.linalg.vector_norm(a, axis=axis, keepdims=keepdims, ord=order))


@kinds
@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_of_matrices(order: Any, dtype: str, device: str) -> None:
    a = random((2, 3, 4), dtype)
    (x,) = on(device, a)
    for keepdims in (False, True):
        close(fb.linalg.matrix_norm(x, keepdims=keepdims, ord=order), np.linalg.matrix_norm(a, keepdims=keepdims, ord=order))
        for axes in ((1, 2), (2, 0), (-1, 1)):
            close(fb.linalg.norm(x, order, axis=axes, keepdims=keepdims), np.linalg.norm(a, order, axes, keepdims))


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3), (3, 0), (0, 3, 3)])
def test_a_norm_of_nothing_is_0(shape: tuple[int, ...], device: str) -> None:
    host = np.zeros(shape)
    x = fb.asarray(host, device=device)
    for order in (1, 2, np.inf, "fro", "nuc"):
        want = np.asarray(np.linalg.norm(host, order, axis=(-2, -1)))
        for keepdims in (False, True):
            got = fb.linalg.matrix_norm(x, ord=order, keepdims=keepdims).numpy()
            assert got.shape == ((*want.shape, 1, 1) if keepdims else want.shape)
            assert not got.any()
    for order in (0, 1, 2, 3, np.inf):
        got = fb.linalg.vector_norm(x, ord=order, axis=-1).numpy()
        assert got.shape == shape[:-1]
        assert not got.any()


def test_norms_by_the_number_of_axes(device: str) -> None:
    a = random((2, 3), "float64")
    (x,) = on(device, a)
    close(fb.linalg.norm(x), np.linalg.norm(a))
    close(fb.linalg.norm(x, 1), np.linalg.norm(a, 1))
    close(fb.linalg.norm(x[0], 1), np.linalg.norm(a[0], 1))
    close(fb.linalg.norm(x, axis=1), np.linalg.norm(a, axis=1))
    close(fb.linalg.norm(x, 3, axis=1, keepdims=True), np.linalg.norm(a, 3, axis=1, keepdims=True))


@kinds
def test_condition_numbers(dtype: str, device: str) -> None:
    a = positive((2, 3, 3), dtype)
    for p in (None, 2, -2, 1, -1, "fro", "nuc", np.inf, -np.inf):
        close(fb.linalg.cond(*on(device, a), p=p), np.linalg.cond(a, p))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("sizes", [(7, 10_000, 3), (128, 4096, 10), (1, 10_000, 300), (300, 10_000, 1), (1, 300_000, 1)])
def test_errors_of_products_do_not_grow_with_the_length_of_the_sum(sizes: tuple[int, ...], dtype: str, device: str) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0, 2, s).astype(dtype) for s in ((2, m, k), (k, n)))
    got = fb.matmul(fb.asarray(a, device=device), fb.asarray(b, device=device)).numpy()
    want = a.astype("complex128") @ b.astype("complex128")
    assert got.shape == want.shape
    assert got.dtype == dtype
    assert np.max(np.abs(got - want) / np.abs(want)) < fb.ops.OPS["matmul"].tolerance * np.finfo(np.float32).eps


def test_products(device: str) -> None:
    a, b, c, v = (random(s, "float64") for s in ((3, 4), (4, 5), (5, 2), (2,)))
    close(fb.linalg.multi_dot(on(device, a, b, c, v)), np.linalg.multi_dot([a, b, c, v]))
    close(fb.linalg.multi_dot(on(device, a[0], b, c)), np.linalg.multi_dot([a[0], b, c]))
    close(fb.linalg.multi_dot(on(device, v, v)), v @ v)
    close(fb.linalg.kron(*on(device, a, c)), np.kron(a, c))
    close(fb.linalg.kron(*on(device, v, a)), np.kron(v, a))
    close(fb.linalg.outer(*on(device, a[0], b[0])), np.outer(a[0], b[0]))
    x, y = random((2, 1, 3), "complex128"), random((4, 3), "complex128")
    close(fb.linalg.cross(*on(device, x, y)), np.cross(x, y))
    close(fb.linalg.cross(*on(device, x.T, x.T), axis=0), np.cross(x.T, x.T, axis=0))
    close(fb.linalg.vecdot(*on(device, x, y)), np.vecdot(x, y))
    for name in ("matmul", "tensordot", "vecdot"):
        assert getattr(fb.linalg, name) is getattr(fb, name)


@pytest.mark.parametrize("offset", [-3, -2, 0, 1, 4])
def test_diagonals(offset: int, device: str) -> None:
    a = random((2, 3, 4), "float64")
    (x,) = on(device, a)
    close(fb.linalg.diagonal(x, offset=offset), np.linalg.diagonal(a, offset=offset))
    close(fb.linalg.trace(x, offset=offset), np.linalg.trace(a, offset=offset))
    assert fb.linalg.trace(fb.ones((3, 3), dtype=fb.int8, device=device)).dtype is fb.int64


# gradients


FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "inv": (lambda la, x: la.inv(x), (2, 3, 3)),
    "det": (lambda la, x: la.det(x), (2, 3, 3)),
    "slogdet": (lambda la, x: la.slogdet(x)[1], (2, 3, 3)),
    "slogdet and its sign": (lambda la, x: la.slogdet(x)[0] * la.slogdet(x)[1], (2, 3, 3)),
    "cholesky": (lambda la, x: la.cholesky(x @ _h(x)), (2, 3, 3)),
    "cholesky upper": (lambda la, x: la.cholesky(x @ _h(x), upper=True), (2, 3, 3)),
    "solve": (lambda la, x: la.solve(x, x[..., :2] * x[..., :2]), (2, 3, 3)),
    "solve of a vector": (lambda la, x: la.solve(x, x[0]), (3, 3)),
    "solve_triangular": (lambda la, x: la.solve_triangular(x, x * x, upper=True), (2, 3, 3)),
    "from the right": (lambda la, x: la.solve_triangular(x, x * x, upper=False, left=False), (2, 3, 3)),
    "unitriangular": (lambda la, x: la.solve_triangular(x, x * x, upper=False, unitriangular=True), (2, 3, 3)),
    "qr Q": (lambda la, x: _squared(la.qr(x)[0]), (2, 4, 3)),
    "qr R": (lambda la, x: _squared(la.qr(x)[1]), (2, 4, 3)),
    "qr of a wide matrix": (lambda la, x: _squared(la.qr(x)[0]) @ _squared(la.qr(x)[1]), (2, 3, 5)),
    "eigvalsh": (lambda la, x: la.eigvalsh(x + _h(x)), (2, 4, 4)),
    "eigh": (lambda la, x: _squared(la.eigh(x + _h(x))[1]), (2, 4, 4)),
    "svdvals": (lambda la, x: la.svdvals(x), (2, 4, 3)),
    "svd U": (lambda la, x: _squared(la.svd(x, full_matrices=False)[0]), (2, 4, 3)),
    "svd Vh": (lambda la, x: _squared(la.svd(x, full_matrices=False)[2]), (2, 3, 4)),
    "svd": (lambda la, x: (lambda u, s, vh: u @ vh)(*la.svd(x)), (2, 3, 3)),
    "pinv": (lambda la, x: la.pinv(x), (2, 4, 3)),
    "pinv of a wide matrix": (lambda la, x: la.pinv(x), (2, 3, 4)),
    "expm": (lambda la, x: la.expm(x) if la is fb.linalg else la.matrix_exp(x), (2, 3, 3)),
    "matrix_power": (lambda la, x: la.matrix_power(x, -3), (2, 3, 3)),
    "lstsq": (lambda la, x: la.lstsq(x, x[..., :2] * x[..., 1:]).solution, (4, 3)),
    "fro": (lambda la, x: la.matrix_norm(x), (2, 3, 4)),
    "nuc": (lambda la, x: la.matrix_norm(x, ord="nuc"), (2, 3, 4)),
    "matrix 2": (lambda la, x: la.matrix_norm(x, ord=2), (2, 3, 4)),
    "matrix 1": (lambda la, x: la.matrix_norm(x, ord=1), (2, 3, 4)),
    "vector 3": (lambda la, x: la.vector_norm(x, ord=3), (3, 4)),
    "vector 0.5": (lambda la, x: la.vector_norm(x, ord=0.5), (3, 4)),
    "vector inf": (lambda la, x: la.vector_norm(x, ord=np.inf), (3, 4)),
    "cond": (lambda la, x: la.cond(x), (2, 3, 3)),
    "multi_dot": (lambda la, x: la.multi_dot([x, _h(x), x]), (2, 3)),
    "cross": (lambda la, x: la.cross(x, x * x), (2, 3)),
    "vecdot": (lambda la, x: la.vecdot(x, x * x), (2, 3)),
    "diagonal": (lambda la, x: la.diagonal(x, offset=1) if la is fb.linalg else x.diagonal(1, -2, -1), (2, 3, 4)),
}  # fmt: skip


def _h(x: Any) -> Any:
    return x.mT.conj() if not isinstance(x, fb.Tensor) else fb.conj(x.mT)


def _squared(x: Any) -> Any:
    """|x|², which the phases of vectors do not change."""
    return (x * x.conj()).real if not isinstance(x, fb.Tensor) else fb.real(x * fb.conj(x))


@kinds
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_torch(name: str, dtype: str, device: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    function, shape = FUNCTIONS[name]
    a = random(shape, dtype, 3) + 2 * np.eye(*shape[-2:])

    def loss(lib: Any, x: Any) -> Any:
        y = function(lib.linalg, x)
        weights = np.cos(np.arange(float(np.prod(y.shape)))).reshape(y.shape)
        w = weights + 1j * np.sin(3 * weights) if "complex" in str(y.dtype) else weights
        if lib is fb:
            return fb.sum(fb.real(y * fb.asarray(w, device=device)))
        z = y * torch.from_numpy(np.asarray(w))
        return (z.real if z.is_complex() else z).sum()

    theirs = torch.from_numpy(a).requires_grad_()
    value = loss(torch, theirs)
    value.backward()
    ours, got = fb.value_and_grad(lambda x: loss(fb, x))(fb.asarray(a, device=device))
    np.testing.assert_allclose(ours.item(), value.item(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(got.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("scale", [2.0**-90, 2.0**-50, 2.0**50, 2.0**90])
def test_gradients_of_pseudoinverses_and_least_squares_know_no_unit(scale: float, device: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4, 3)).astype(np.float32), rng.normal(size=(2, 4, 2)).astype(np.float32)

    def solved(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.linalg.lstsq(x, y).solution * fb.asarray(b[:, :3], device=device))

    def inverted(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.linalg.pinv(x) * fb.asarray(np.swapaxes(a, 1, 2), device=device))

    x, y = on(device, a, b)
    for gradient, power in ((fb.grad(lambda x: solved(x, y * (x.detach()[0, 0, 0] / a[0, 0, 0]))), 1), (fb.grad(inverted), 2)):
        if power == 2 and not 1e-20 < scale < 1e20:  # the gradient itself is out of range
            continue
        want = gradient(x).numpy().astype(np.float64)
        got = gradient(x * scale).numpy().astype(np.float64) * scale**power
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    _, tangent = fb.jvp(inverted, (x * 2.0**50,), (x,))
    _, usual = fb.jvp(inverted, (x,), (x,))
    np.testing.assert_allclose(tangent.item() * 2.0**100, usual.item(), rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["inv", "det", "qr R", "eigvalsh", "svdvals", "pinv", "expm", "fro", "nuc", "vector 3", "cholesky", "solve"]
)
def test_second_derivatives_by_central_differences(name: str) -> None:
    function, shape = FUNCTIONS[name]
    x = fb.asarray(random(shape, "float64", 3) + 2 * np.eye(*shape[-2:]), device="numpy")
    fb.gradcheck(lambda x: function(fb.linalg, x), [x], order=2)


@kinds
def test_the_gradient_of_norms_at_0_is_0(dtype: str, device: str) -> None:
    x = fb.zeros((3, 3), dtype=getattr(fb, dtype), device=device)
    for order in (1, 2, 3, 0.5, np.inf):
        got = fb.grad(lambda x, p=order: fb.linalg.vector_norm(x, ord=p))(x).numpy()
        assert not got.any(), order
    for kind in ("fro", "nuc", 2, 1):
        got = fb.grad(lambda x, p=kind: fb.linalg.matrix_norm(x, ord=p))(x).numpy()
        assert not got.any(), kind
    some = fb.asarray(np.asarray([0.0, 3.0, 4.0]), device=device)
    np.testing.assert_allclose(fb.grad(lambda x: fb.linalg.vector_norm(x))(some).numpy(), [0, 0.6, 0.8])


@pytest.mark.parametrize("order", [1, 2, 3, 0.5, -1, -2, np.inf])
def test_the_norm_of_a_single_number_is_its_size(order: float, device: str) -> None:
    x = fb.asarray([[-5.0], [0.25], [0.0]], device=device)
    close(fb.linalg.vector_norm(x, ord=order, axis=1), np.asarray([5.0, 0.25, 0.0], np.float32))
    if order > 0:
        beside_zeros = fb.asarray([[0.0, -5.0, 0.0], [0.25, 0.0, 0.0]], device=device)
        close(fb.linalg.vector_norm(beside_zeros, ord=order, axis=1), np.asarray([5.0, 0.25], np.float32))


def test_a_function_of_equal_eigenvalues_has_a_gradient(device: str) -> None:
    x = fb.eye(3, dtype=fb.float64, device=device)
    np.testing.assert_allclose(fb.grad(lambda x: fb.sum(fb.linalg.eigvalsh(x) ** 2.0))(x).numpy(), 2 * np.eye(3))
    np.testing.assert_allclose(fb.grad(lambda x: fb.linalg.matrix_norm(x, ord="nuc"))(x).numpy(), np.eye(3), atol=1e-15)
    np.testing.assert_allclose(fb.grad(lambda x: fb.sum(fb.linalg.pinv(x)))(x).numpy(), -np.ones((3, 3)), atol=1e-15)


def reconstructed(f: Callable[[fb.Tensor], fb.Tensor], m: Any, device: str) -> Callable[[fb.Tensor], fb.Tensor]:
    """x -> Σ m ∘ V f(w) Vᵀ, which does not depend on the choice of vectors."""

    def fn(x: fb.Tensor) -> fb.Tensor:
        w, v = fb.linalg.eigh(x)
        return fb.sum(fb.matmul(v * f(w)[..., None, :], v.mT) * fb.asarray(m, device=device))

    return fn


@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_through_vectors_of_equal_values_is_nan_and_never_a_part_of_the_right_one(
    device: str, compiled: bool
) -> None:
    wrap: Any = fb.jit if compiled else lambda f: f
    m = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 5.0], [7.0, 0.0, 1.0]])
    equal = fb.asarray(np.stack([np.eye(3), np.diag([1.0, 2.0, 3.0])]), device=device)
    log = reconstructed(fb.log, m, device)  # of 1 it is 0: no cotangent of the vectors is left in numbers, yet there is one
    got = wrap(fb.grad(log))(equal).numpy()
    assert np.isnan(got[0]).all()
    w = np.array([1.0, 2.0, 3.0])
    ratio = np.array([[1 / a if a == b else (np.log(a) - np.log(b)) / (a - b) for a in w] for b in w])  # Daleckii and Krein
    np.testing.assert_allclose(got[1], ratio * (m + m.T) / 2, rtol=1e-12)

    def projector(x: fb.Tensor) -> fb.Tensor:
        u, s, vh = fb.linalg.svd(x, full_matrices=False)
        return fb.sum(fb.matmul(u * s[..., None, :], vh) * fb.asarray(m, device=device))

    assert np.isnan(wrap(fb.grad(projector))(equal).numpy()[0]).all()
    np.testing.assert_allclose(wrap(fb.grad(projector))(equal).numpy()[1], m, atol=1e-13)
    flat = fb.asarray(np.eye(3, 2) * [[1.0, 0.0]], device=device)  # the vectors of the singular value 0
    assert np.isnan(wrap(fb.grad(lambda x: fb.sum(fb.linalg.svd(x, full_matrices=False).U)))(flat).numpy()).all()


@pytest.mark.parametrize("n", [2, 3, 8])
def test_values_that_differ_by_rounding_alone_count_as_equal(device: str, n: int) -> None:
    close_by = fb.asarray(np.ones((n, n)) + np.eye(n), device=device)  # n - 1 times 1, as far as LAPACK gets
    basis = np.linalg.qr(random((n + 1, n + 1), "float64"))[0]
    turned = fb.asarray((basis * ([1.0] * n + [3.0])) @ basis.T, device=device)
    m = random((n + 1, n + 1), "float64")
    if n > 2:
        assert np.isnan(fb.grad(reconstructed(fb.exp, m[:n, :n], device))(close_by).numpy()).all()
    assert np.isnan(fb.grad(reconstructed(fb.exp, m, device))(turned).numpy()).all()
    for of in (fb.linalg.eigvalsh, fb.linalg.svdvals):
        first = fb.grad(lambda x, of=of: fb.sum(of(x) ** 3.0))
        close(first(turned), 3.0 * (basis * ([1.0] * n + [9.0])) @ basis.T)
        assert np.isnan(fb.grad(lambda x, first=first: fb.sum(first(x) * fb.asarray(m, device=device)))(turned).numpy()).all()


def test_the_largest_vectors_of_a_matrix_of_low_rank_have_a_gradient(device: str) -> None:
    """The values of the others are 0 up to rounding; a function that does not look at their vectors does not depend on them."""
    half = random((9, 4), "float64")

    def spanned(x: fb.Tensor) -> fb.Tensor:
        top = fb.linalg.eigh(x).eigenvectors[:, -2:]
        return fb.sum((top @ top.mT)[0] * fb.arange(9.0, dtype=fb.float64, device=device))

    x = half @ half.T
    got = fb.grad(spanned)(fb.asarray(x, device=device)).numpy()
    step = random((9, 9), "float64")
    step = step + step.T
    sides = [float(spanned(fb.asarray(x + h * step, device=device))) for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(np.sum(got * step), (sides[0] - sides[1]) / 2e-5, rtol=1e-5)


def test_a_second_derivative_of_equal_values_is_nan_and_not_zero(device: str) -> None:
    for of in (fb.linalg.eigvalsh, fb.linalg.svdvals):
        first = fb.grad(lambda x, of=of: fb.sum(fb.square(of(x))))
        for x in (np.eye(3), np.diag([2.0, 0.0, 0.0])):
            got = fb.grad(lambda x, first=first: fb.sum(fb.triu(first(x))))(fb.asarray(x, device=device)).numpy()
            assert np.isnan(got).all()
        apart = fb.asarray(np.diag([1.0, 2.0, 4.0]), device=device)
        got = fb.grad(lambda x, first=first: fb.sum(fb.diagonal(first(x))))(apart).numpy()
        np.testing.assert_allclose(got, 2 * np.eye(3), atol=1e-14)


def test_vectors_that_the_matrix_does_not_determine_have_no_gradient(device: str) -> None:
    x = fb.asarray(random((4, 2), "float64"), device=device)
    with pytest.raises(fb.GradientError, match="last 2 columns of Q are arbitrary"):
        fb.grad(lambda x: fb.sum(fb.linalg.qr(x, mode="complete").Q))(x)
    with pytest.raises(fb.GradientError, match="arbitrary"):
        fb.grad(lambda x: fb.sum(fb.linalg.svd(x).U))(x)
    assert fb.grad(lambda x: fb.sum(fb.linalg.svd(x).S))(x).shape == (4, 2)


# bad input


@pytest.mark.parametrize("name", ["inv", "solve", "matrix_power", "cond"])
def test_a_singular_matrix_is_refused_by_its_place(name: str, device: str) -> None:
    x = fb.asarray(np.stack([np.eye(2), np.zeros((2, 2)), np.eye(2)]), device=device)
    call = {
        "inv": lambda: fb.linalg.inv(x), "solve": lambda: fb.linalg.solve(x, x),
        "matrix_power": lambda: fb.linalg.matrix_power(x, -1), "cond": lambda: fb.linalg.cond(x, p=1),
    }[name]  # fmt: skip
    with pytest.raises(fb.LinAlgError, match=rf"{name}: every matrix must be invertible\n.*matrix \(1,\) of a stack"):
        call()


@pytest.mark.parametrize("name", ["cholesky", "eigh", "eigvalsh", "svd", "svdvals", "pinv", "expm"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_matrices_that_are_not_finite_are_refused_by_their_place(name: str, bad: float, device: str) -> None:
    x = np.stack([np.eye(3), 2 * np.eye(3)])
    x[1, 0, 0] = bad
    with pytest.raises(fb.LinAlgError, match=r"finite\nReceived: matrix \(1,\)"):
        getattr(fb.linalg, name)(fb.asarray(x, device=device))


def test_matrices_without_an_answer_are_refused(device: str) -> None:
    x = fb.asarray(np.diag([1.0, 0.0]), device=device)
    with pytest.raises(fb.LinAlgError, match="solve_triangular: every matrix must be invertible"):
        fb.linalg.solve_triangular(x, x, upper=True)
    with pytest.raises(fb.LinAlgError, match="cholesky: every matrix must be positive definite\nReceived: the matrix is not"):
        fb.linalg.cholesky(-x)
    with pytest.raises(fb.LinAlgError, match=r"matrix \(0, 1\) of a stack of shape \(1, 2\) is not"):
        fb.linalg.cholesky(fb.asarray(np.stack([np.eye(2), -np.eye(2)])[None], device=device))
    nan = fb.asarray(np.asarray([[np.nan, 0.0], [0.0, 1.0]]), device=device)
    for name in ("eigh", "eigvalsh", "svd", "svdvals", "pinv", "expm", "matrix_rank", "cond"):
        with pytest.raises(fb.LinAlgError, match=f"^{name}: every matrix must be finite"):
            getattr(fb.linalg, name)(nan)
    with pytest.raises(fb.LinAlgError, match=r"^matrix_norm: every matrix must be finite"):
        fb.linalg.matrix_norm(nan, ord=2)
    assert issubclass(fb.LinAlgError, ValueError)


@pytest.mark.parametrize("name", ["cholesky", "det", "eigh", "eigvalsh", "expm", "inv", "slogdet"])
def test_shapes_and_dtypes_of_square_matrices_are_checked(name: str, device: str) -> None:
    function = getattr(fb.linalg, name)
    with pytest.raises(fb.ShapeError, match=f"{name}: x must have square matrices"):
        function(fb.ones((2, 3), device=device))
    with pytest.raises(fb.ShapeError, match=f"{name}: x must have"):
        function(fb.ones(3, device=device))
    with pytest.raises(fb.DTypeError, match=f"{name}: x needs a floating or complex dtype"):
        function(fb.ones((3, 3), dtype=fb.int32, device=device))
    with pytest.raises(fb.DTypeError, match=f"{name} computes in float32, float64"):
        function(fb.ones((3, 3), dtype=fb.float16, device=device))
    with pytest.raises(fb.OperandError, match=f"{name}: x must be a Firebrick tensor"):
        function(np.eye(3))


def test_other_arguments_are_checked(device: str) -> None:
    x, v = fb.ones((2, 3), device=device), fb.ones(3, device=device)
    linalg = fb.linalg
    for error, text, call in (
        (fb.ConfigError, "mode is", lambda: linalg.qr(x, mode="full")),
        (fb.ConfigError, "ord is one of", lambda: linalg.matrix_norm(x, ord=3)),
        (fb.ConfigError, "ord is a number", lambda: linalg.vector_norm(x, ord="fro")),
        (fb.ShapeError, "one axis or two", lambda: linalg.norm(fb.ones((2, 2, 2), device=device), 1)),
        (fb.ShapeError, "x2 must have as many rows", lambda: linalg.solve(x[:, :2], v[:, None])),
        (fb.ShapeError, "as many elements as x1 has rows", lambda: linalg.solve(x[:, :2], v)),
        (fb.ShapeError, "lstsq: x2 must have as many rows", lambda: linalg.lstsq(x, v)),
        (fb.ShapeError, "size 3 along axis 0", lambda: linalg.cross(x, x, axis=0)),
        (fb.ShapeError, "axis must be negative", lambda: linalg.cross(x, v, axis=0)),
        (fb.ShapeError, "two matrices or more", lambda: linalg.multi_dot([x])),
        (fb.ShapeError, "inner sizes of neighbours", lambda: linalg.multi_dot([x, x])),
        (fb.ShapeError, "arrays are matrices", lambda: linalg.multi_dot([x, v, x])),
        (fb.ShapeError, "one number for all matrices", lambda: linalg.pinv(x, rtol=fb.ones(3, device=device))),
        (fb.ShapeError, "no condition number", lambda: linalg.cond(fb.ones((0, 0), device=device))),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("name", ["solve", "lstsq", "outer", "cross", "kron", "multi_dot", "vecdot", "tensordot", "pinv"])
def test_every_tensor_argument_must_be_on_the_device_of_the_others(name: str) -> None:
    x = np.eye(3) if name in ("solve", "lstsq", "kron", "multi_dot", "tensordot", "pinv") else np.ones(3)
    a, b = fb.asarray(x, device="cpu:0"), fb.asarray(x, device="cpu:1")
    call = {
        "multi_dot": lambda: fb.linalg.multi_dot([a, b]),
        "pinv": lambda: fb.linalg.pinv(a, rtol=fb.asarray(0.1, device="cpu:1")),
    }.get(name, lambda: getattr(fb.linalg, name)(a, b))
    with pytest.raises(fb.DeviceMismatchError, match=rf"{name}: all tensors(.|\n)*Remedy:"):
        call()
