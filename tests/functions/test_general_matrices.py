"""LU and eigenvalues of general matrices against SciPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb

ENGINES = ["numpy", "cpu", "torch:cpu"]
RNG = np.random.default_rng(12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 1, 40, 40), (70, 50), (0, 3), (2, 0, 0)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_product_of_the_factors_is_the_matrix(engine: str, shape: tuple[int, ...], dtype: str) -> None:
    x = RNG.normal(size=shape) + (1j * RNG.normal(size=shape) if dtype.startswith("c") else 0)
    p, lower, upper = fb.linalg.lu(fb.asarray(x, device=engine))
    assert p.shape == (*shape[:-1], shape[-2])
    np.testing.assert_allclose((p @ lower @ upper).numpy(), x, atol=1e-13)
    size = np.abs(np.tril(lower.numpy(), -1))
    assert size.max(initial=0) <= (1 if dtype == "float64" else 1.5)
    assert np.array_equal(np.triu(upper.numpy()), upper.numpy())


def test_factors_are_those_of_scipy() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    for shape in ((30, 30), (30, 20), (20, 30)):
        x = RNG.normal(size=shape)
        for found, want in zip(fb.linalg.lu(fb.asarray(x)), linalg.lu(x), strict=True):
            np.testing.assert_allclose(found.numpy(), want, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_gradients_of_lu_are_those_of_pytorch(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    x = RNG.normal(size=shape)
    t = torch.tensor(x, requires_grad=True)
    _, lower, upper = torch.linalg.lu(t)
    (lower.sin().sum() + upper.cos().sum()).backward()

    def f(v: fb.Tensor) -> fb.Tensor:
        _, lower, upper = fb.linalg.lu(v)
        return fb.sum(fb.sin(lower)) + fb.sum(fb.cos(upper))

    np.testing.assert_allclose(fb.jit(fb.grad(f))(fb.asarray(x)).numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_eigenvectors_are_turned_by_their_eigenvalues(engine: str, dtype: str) -> None:
    x = RNG.normal(size=(2, 6, 6)) + (1j * RNG.normal(size=(2, 6, 6)) if dtype.startswith("c") else 0)
    a = fb.asarray(x, device=engine)
    w, v = fb.linalg.eig(a)
    np.testing.assert_allclose(x @ v.numpy(), v.numpy() * w.numpy()[:, None, :], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(v.numpy(), axis=-2), 1.0, rtol=1e-12)
    parts = [(round(z.real, 9), z.imag) for z in w.numpy()[0]]
    assert parts == sorted(parts)
    assert fb.linalg.eigvals(a).tolist() == w.tolist()


def test_a_gradient_through_equal_eigenvalues_is_nan_and_through_the_values_alone_is_not() -> None:
    one = fb.asarray(np.eye(2))
    weights = fb.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=fb.float64)
    through_vectors = fb.grad(lambda x: fb.sum(fb.real(fb.linalg.eig(x).eigenvectors) * weights))
    assert np.isnan(through_vectors(one).numpy()).any()
    assert fb.grad(lambda x: fb.sum(fb.real(fb.linalg.eigvals(x))))(one).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_matrices_that_have_no_answer_are_refused() -> None:
    with pytest.raises(fb.LinAlgError, match="eigvals: every matrix must be finite"):
        fb.linalg.eigvals(fb.asarray([[1.0, fb.nan], [0.0, 1.0]]))
    with pytest.raises(fb.ShapeError, match="square"):
        fb.linalg.eig(fb.ones((2, 3)))
    with pytest.raises(fb.DTypeError, match="float32"):
        fb.linalg.lu(fb.ones((2, 2), dtype=fb.float16))
