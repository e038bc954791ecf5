"""Initialisers: torch's distributions, the same numbers on every engine, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, pi, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.nn import initial
from firebrick.nn.initial import normal_quantile

SHAPE = (60, 40, 3, 3)
FAN_IN, FAN_OUT = 360, 540
# standard deviation, and bound if there is one
KINDS: dict[str, tuple[Callable[..., nn.Parameter], float, float | None]] = {
    "uniform": (lambda s, **h: initial.uniform(s, bound=0.3, **h), 0.3 / sqrt(3), 0.3),
    "normal": (lambda s, **h: initial.normal(s, std=0.3, **h), 0.3, None),
    "xavier_uniform": (lambda s, **h: initial.xavier_uniform(s, 2.0, **h), 2 * sqrt(2 / 900), 2 * sqrt(6 / 900)),
    "xavier_normal": (lambda s, **h: initial.xavier_normal(s, 2.0, **h), 2 * sqrt(2 / 900), None),
    "kaiming_uniform": (lambda s, **h: initial.kaiming_uniform(s, sqrt(5), **h), sqrt(1 / 3 / 360), sqrt(1 / 360)),
    "kaiming_normal": (
        lambda s, **h: initial.kaiming_normal(s, mode="fan_out", nonlinearity="relu", **h), sqrt(2 / FAN_OUT), None,
    ),
}  # fmt: skip
EVERY = {
    **{n: k[0] for n, k in KINDS.items()},
    "trunc_normal": lambda s, **h: initial.trunc_normal(s, std=0.5, low=-0.5, high=1.0, **h),
    "orthogonal": initial.orthogonal,
    "constant": lambda s, generator=None, **h: initial.constant(s, 3.0, **h),
    "dirac": lambda s, generator=None, **h: initial.dirac(s, **h),
}


@pytest.mark.parametrize("name", KINDS)
def test_an_initialiser_has_the_spread_that_its_paper_asks_for(name: str) -> None:
    make, std, bound = KINDS[name]
    w = make(SHAPE, generator=fb.random.Generator(0), dtype=fb.float64).numpy()
    n = w.size
    assert abs(w.mean()) < 5 * std / sqrt(n)
    assert abs(w.std() / std - 1) < 5 / sqrt(n)
    if bound is not None:
        assert np.abs(w).max() <= bound
        assert np.abs(w).max() > 0.99 * bound


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "relu", "leaky_relu", "selu", "linear"])
def test_gains_and_fans_are_torchs(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    assert initial.gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert initial.gain("leaky_relu", 0.3) == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", 0.3))
    assert initial.fans(SHAPE) == torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(SHAPE)) == (FAN_IN, FAN_OUT)


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (-0.1, 3.0), (2.5, 3.0), (-9.0, -4.0), (6.0, 40.0)])
def test_a_truncated_normal_has_the_moments_of_its_formula(low: float, high: float) -> None:
    mean, std, n = 0.5, 0.8, 40_000
    bounds = mean + low * std, mean + high * std
    w = initial.trunc_normal(
        (n,), std=std, mean=mean, low=bounds[0], high=bounds[1], generator=fb.random.Generator(0), dtype=fb.float64
    ).numpy()
    assert w.min() >= bounds[0]
    assert w.max() <= bounds[1]
    # φ and Φ of the nearer tail, so that they do not cancel
    a, b = (low, high) if abs(low) <= abs(high) or low < 0 < high else (-high, -low)
    sign = 1.0 if a == low else -1.0

    def phi(t: float) -> float:
        return exp(-t * t / 2) / sqrt(2 * pi)

    mass = 0.5 * (erf(b / sqrt(2)) - erf(a / sqrt(2))) if a < 3 else NormalDist().cdf(-a) - NormalDist().cdf(-b)
    m = (phi(a) - phi(b)) / mass
    v = 1 + (a * phi(a) - b * phi(b)) / mass - m * m
    assert abs(w.mean() - (mean + sign * std * m)) < 5 * std * sqrt(v / n) + 1e-6
    assert abs(w.std() / (std * sqrt(v)) - 1) < 5 * sqrt(2 / n)  # 5 standard errors of an exponential, the longest tail here


def test_normal_quantiles_are_those_of_the_standard_library() -> None:
    p = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 501), 10.0 ** -np.arange(1, 300, 10)])
    want = np.asarray([NormalDist().inv_cdf(v) for v in p])
    np.testing.assert_allclose(normal_quantile(p), want, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (3, 2, 2), (5, 5)])
def test_orthogonal_weights_are_orthogonal(shape: tuple[int, ...]) -> None:
    w = initial.orthogonal(shape, 1.5, dtype=fb.float64).numpy().reshape(shape[0], -1)
    square = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(square, 2.25 * np.eye(len(square)), atol=1e-12)


def test_sparse_identity_and_dirac_place_their_zeros_and_ones() -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    w = initial.sparse((50, 20), 0.3, 0.5, dtype=fb.float64).numpy()
    assert ((w == 0).sum(axis=0) == 15).all()
    assert abs(w[w != 0].std() / 0.5 - 1) < 5 / sqrt(2 * 700)  # 5 standard errors of so many normals
    assert initial.identity((3, 2)).tolist() == torch.nn.init.eye_(torch.empty(3, 2)).tolist()
    for shape, groups in (((4, 2, 3), 2), ((2, 4, 3, 2), 1), ((6, 2, 1, 3, 3), 3)):
        assert initial.dirac(shape, groups).tolist() == torch.nn.init.dirac_(torch.empty(shape), groups).tolist()


@pytest.mark.parametrize("name", EVERY)
def test_a_seed_gives_the_same_numbers_on_every_engine_and_in_place(name: str, device: str) -> None:
    def made(**how: Any) -> np.ndarray:
        return EVERY[name]((4, 2, 3), generator=fb.random.Generator(7), **how).numpy()

    wide = made(dtype=fb.float64, device="numpy")
    assert made(dtype=fb.float64, device=device).tobytes() == wide.tobytes()
    assert made(dtype=fb.float32, device=device).tobytes() == wide.astype(np.float32).tobytes()
    there = nn.Parameter(fb.ones((4, 2, 3), dtype=fb.float64, device=device))
    model = nn.Sequential(nn.Identity())
    model.weight = there
    assert EVERY[name](there, generator=fb.random.Generator(7)) is there
    assert model.state_dict()["weight"].numpy().tobytes() == wide.tobytes()


def test_a_split_batch_does_not_move_initial_values() -> None:
    whole = initial.xavier_normal((3, 2), generator=fb.random.Generator(0)).tolist()
    with fb.random.row_offset(5):
        assert initial.xavier_normal((3, 2), generator=fb.random.Generator(0)).tolist() == whole


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: initial.xavier_uniform((3,)), ShapeError, r"fans: a weight is \[out, in, …\]"),
        (lambda: initial.kaiming_normal((3, 2), mode="fan"), ConfigError, 'mode is "fan_in" or "fan_out"'),
        (lambda: initial.gain("gelu"), ConfigError, "gain: nonlinearity is"),
        (lambda: initial.trunc_normal((3,), std=0.0), ConfigError, "trunc_normal: std is > 0 and low < high"),
        (lambda: initial.trunc_normal((3,), low=2.0, high=1.0), ConfigError, "low < high"),
        (lambda: initial.trunc_normal((3,), low=50.0, high=60.0), ConfigError, "the range holds some of the distribution"),
        (lambda: initial.orthogonal((3,)), ShapeError, "orthogonal: a weight is"),
        (lambda: initial.sparse((3, 2), 1.5), ConfigError, r"sparse: sparsity lies in \[0, 1\]"),
        (lambda: initial.identity((3, 2, 1)), ShapeError, "identity: a weight is"),
        (lambda: initial.dirac((3, 2, 1), 2), ShapeError, "groups divides out"),
        (lambda: initial.zeros((-1,)), ShapeError, "zeros|constant"),
        (lambda: initial.normal((3,), dtype=fb.int32), DTypeError, "a parameter has a floating dtype"),
        (lambda: initial.zeros(fb.ones(3)), ConfigError, "the first argument is a shape or a parameter"),
        (lambda: initial.zeros(nn.Parameter(fb.ones(3)), dtype=fb.float64), ConfigError, "a parameter keeps its dtype"),
    ],
)
def test_errors_say_what_was_expected_and_received(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_an_orthogonal_weight_is_the_one_factor_of_the_normal_draw_with_a_positive_diagonal(shape: tuple[int, int]) -> None:
    """Saxe's, with Mezzadri's choice of signs: the same seed gives the same weight in every version."""
    drawn = initial.normal((4, 3), generator=fb.random.Generator(7), dtype=fb.float64).numpy()
    found = initial.orthogonal(shape, generator=fb.random.Generator(7), dtype=fb.float64).numpy()
    q = found if shape == (4, 3) else found.T
    r = q.T @ drawn
    assert np.allclose(r, np.triu(r), atol=1e-12)
    assert (np.diag(r) > 0).all()
    assert np.allclose(q @ r, drawn)
