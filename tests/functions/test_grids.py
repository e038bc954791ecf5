"""Images read at any positions, and distances of pairs, against PyTorch on every engine."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import firebrick as fb

torch = pytest.importorskip("torch")
functional = torch.nn.functional

ENGINES = ["numpy", "cpu", "torch:cpu"]
PADDINGS = ["zeros", "border", "reflection"]
CASES = [
    *itertools.product([(2, 3, 5, 4)], ["bilinear", "nearest", "bicubic"], PADDINGS, [False, True]),
    *itertools.product([(2, 2, 3, 4, 5)], ["trilinear", "nearest"], PADDINGS, [False, True]),
    ((1, 1, 1, 1), "bilinear", "reflection", True),
]


def images(shape: tuple[int, ...]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    rank = len(shape) - 2
    return rng.normal(size=shape), rng.uniform(-1.7, 1.7, (shape[0], *(6, 7, 2)[:rank], rank))


@pytest.mark.parametrize(("shape", "mode", "padding", "align"), CASES)
def test_samples_and_both_gradients_are_those_of_pytorch(shape: Any, mode: str, padding: str, align: bool) -> None:
    x, grid = images(shape)
    tx, tg = (torch.tensor(v, requires_grad=True) for v in (x, grid))
    settings = {"padding_mode": padding, "align_corners": align}
    want = functional.grid_sample(tx, tg, mode="bilinear" if mode == "trilinear" else mode, **settings)
    weights = np.random.default_rng(1).normal(size=want.shape)
    (want * torch.tensor(weights)).sum().backward()

    def total(x: fb.Tensor, grid: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.grid_sample(x, grid, mode=mode, **settings) * fb.asarray(weights))

    found = fb.grid_sample(fb.asarray(x), fb.asarray(grid), mode=mode, **settings)
    np.testing.assert_allclose(found.numpy(), want.detach().numpy(), rtol=1e-11, atol=1e-11)
    run: Any = lambda a, b: fb.grad(lambda pair: total(*pair))((a, b))  # noqa: E731
    run = fb.jit(run) if padding == "reflection" and not align else run
    gx, gg = run(fb.asarray(x), fb.asarray(grid))
    np.testing.assert_allclose(gx.numpy(), tx.grad.numpy(), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(gg.numpy(), tg.grad.numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_engine_samples_alike(engine: str, dtype: str) -> None:
    x, grid = images((2, 3, 5, 4))
    want = fb.grid_sample(fb.asarray(x), fb.asarray(grid), padding_mode="border").numpy()
    found = fb.grid_sample(*(fb.asarray(v.astype(dtype), device=engine) for v in (x, grid)), padding_mode="border")
    assert found.dtype.name == dtype
    np.testing.assert_allclose(found.numpy(), want, atol=2e-5 if dtype == "float32" else 2e-2)


def test_positions_that_are_no_numbers() -> None:
    x = fb.ones((1, 1, 2, 2))
    grid = fb.asarray([[[[fb.nan, 0.0], [fb.inf, 0.0], [0.0, 0.0]]]])
    assert fb.grid_sample(x, grid).tolist() == [[[[0.0, 0.0, 1.0]]]]
    found = fb.grid_sample(x, grid, padding_mode="border").tolist()[0][0][0]
    assert np.isnan(found[0])
    assert found[2] == 1.0


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 1, 4)])
def test_affine_grids_are_those_of_pytorch(size: tuple[int, ...], align: bool) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(2).normal(size=(2, rank, rank + 1))
    want = functional.affine_grid(torch.tensor(theta), size, align_corners=align).numpy()
    found = fb.affine_grid(fb.asarray(theta), size, align_corners=align)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12, atol=1e-12)
    fb.gradcheck(lambda t: fb.affine_grid(t, size, align_corners=align), [fb.asarray(theta)])


def test_what_does_not_fit_is_refused() -> None:
    x, grid = fb.ones((1, 1, 2, 2)), fb.zeros((1, 2, 2, 2))
    with pytest.raises(fb.ShapeError, match="grid_sample: images have sizes ≥ 1"):
        fb.grid_sample(x[:, :, :0], grid)
    with pytest.raises(fb.ShapeError, match="grid_sample takes x"):
        fb.grid_sample(x, fb.zeros((1, 2, 2, 3)))
    with pytest.raises(fb.ConfigError, match='mode is one of "nearest", "bilinear", "bicubic"'):
        fb.grid_sample(x, grid, mode="trilinear")
    with pytest.raises(fb.ConfigError, match="padding_mode"):
        fb.grid_sample(x, grid, padding_mode="wrap")
    with pytest.raises(fb.ShapeError, match="theta"):
        fb.affine_grid(fb.ones((1, 3, 3)), (1, 1, 2, 2))
    with pytest.raises(fb.ShapeError, match="one matrix for each image"):
        fb.affine_grid(fb.ones((1, 2, 3)), (2, 1, 2, 2))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
def test_distances_are_those_of_pytorch(p: float, engine: str) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 3, 5)), rng.normal(size=(1, 4, 5))
    want = torch.cdist(torch.tensor(a), torch.tensor(b), p=p).numpy()
    found = fb.cdist(fb.asarray(a, device=engine), fb.asarray(b, device=engine), p=p)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12)
    if p and engine == "cpu":
        fb.gradcheck(lambda x, y: fb.cdist(x, y, p=p), [fb.asarray(a), fb.asarray(b)])


def test_near_vectors_keep_their_digits_and_equal_ones_have_gradient_zero() -> None:
    x = fb.asarray([[1e4, 1.0]])
    assert fb.cdist(x, x + fb.asarray([[0.0, 1e-3]])).item() == pytest.approx(1e-3, rel=1e-3)
    assert fb.grad(lambda v: fb.sum(fb.cdist(v, v)))(x).tolist() == [[0.0, 0.0]]
    with pytest.raises(fb.ShapeError, match="cdist takes vectors"):
        fb.cdist(x, fb.ones((2, 3)))
    with pytest.raises(fb.ConfigError, match="p is a number ≥ 0"):
        fb.cdist(x, x, p=-1)
    for p in (0.0, 1.0, 2.0, 3.5, fb.inf):
        assert fb.cdist(fb.ones((2, 0)), fb.ones((3, 0)), p=p).tolist() == [[0.0] * 3] * 2
    for p in (True, "2", fb.nan):
        with pytest.raises(fb.ConfigError, match="cdist: p is a number ≥ 0"):
            fb.cdist(x, x, p=p)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_vectors_without_elements_are_at_distance_zero(p: float) -> None:
    assert fb.cdist(fb.zeros((2, 0)), fb.zeros((3, 0)), p=p).tolist() == [[0.0] * 3] * 2
